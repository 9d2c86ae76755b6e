//! The ring: frames of 48 links put in turn, against the same frames put as events; windows of a millisecond over all of
//! them, opened, and copied out against a plain copy of as many bytes; memory per fragment.

use super::engine::{Bench, Scratch, Span};
use super::options::Plan;
use super::results::Results;
use super::source::{Blocks, Buffer, Warmth};
use crate::Result;
use forebay_core::{Keyspace, RingKeyspace, SourceId};
use forebay_ring::{Ring, RingConfig, RingOutcome, RingPut, RingSources};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// A WIBEth frame.
pub(super) const BYTES: usize = 7200;
const SPAN: u64 = 2048;
const LINKS: u64 = 48;
/// A millisecond of a 62.5 MHz clock.
const WINDOW_TICKS: u64 = 62_500;
/// Turns of ring and store in one repetition, and the most frames of each link in one turn.
const TURNS: u64 = 5;
const FRAMES_MAX: u64 = 200;
const WINDOWS: u64 = 40;

/// Measures one repetition.
pub(super) fn measure(plan: &Plan, buffer: &Buffer, results: &mut Results) -> Result<()> {
    let scratch = Scratch::new(&plan.dir)?;
    let frames = (plan.fragments(BYTES) / 4 / LINKS).min(FRAMES_MAX);
    let mut links = Links::create(&scratch, plan.hot_bytes / 4)?;
    let mut bench = Bench::of(&plan.dir, plan.hot_bytes / 4, Keyspace::events("frames", LINKS as u32).opening_runs())?;
    let mut blocks = buffer.blocks(BYTES, Warmth::Cold, 0, 1);
    // Once around first: from here on the ring evicts, and the store writes into recycled segments.
    while links.ring.stats().evicted < LINKS {
        links.put(frames, &mut blocks)?;
    }
    store_put(&mut bench, frames, &mut blocks)?;
    let (mut ring, mut store) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..TURNS {
        ring += links.put(frames, &mut blocks)?;
        store += store_put(&mut bench, frames, &mut blocks)?;
    }
    let fragments = (TURNS * frames * LINKS) as f64;
    results.record("ring.put", BYTES, fragments / ring.as_secs_f64());
    results.record("ring.events", BYTES, fragments / store.as_secs_f64());
    windows(&links, buffer, results)?;
    let stats = links.ring.stats();
    let memory = stats.memory.index + stats.memory.books + stats.memory.fixed;
    results.record("ring.memory", BYTES, memory as f64 / stats.fragments as f64);
    match links.ring.ledger().imbalance() {
        Some(imbalance) => Err(format!("the ring's ledger does not balance: {imbalance}").into()),
        None => Ok(()),
    }
}

struct Links {
    ring: Ring,
    sources: Vec<SourceId>,
    tick: u64,
    history_ticks: u64,
}

impl Links {
    fn create(scratch: &Scratch, hot_bytes: u64) -> Result<Links> {
        let mut keyspace = RingKeyspace::wibeth("frames", LINKS as u32)?;
        // Half of the region at the declared rate, in whole milliseconds. Puts here keep no time, so that no timestamp
        // is insane.
        let milliseconds = hot_bytes / 2 * 1000 / (LINKS * keyspace.source_bytes_per_second);
        keyspace.history = Duration::from_millis(milliseconds);
        keyspace.max_skew = Duration::from_secs(3600);
        let config = RingConfig { hot_bytes, ..RingConfig::default() };
        let ring = Ring::create(&scratch.path().join("ring"), &keyspace, config)?;
        let sources = (0..LINKS).map(|link| keyspace.source(&[link])).collect::<forebay_core::Result<_>>()?;
        Ok(Links { ring, sources, tick: 1 << 40, history_ticks: milliseconds * WINDOW_TICKS })
    }

    /// Puts a stretch of all links; yields how long that took.
    fn put(&mut self, frames: u64, blocks: &mut Blocks<'_>) -> Result<Duration> {
        let how = RingPut { run: 1, status: 0 };
        let from = Instant::now();
        for _ in 0..frames {
            for source in &self.sources {
                match self.ring.put(source, self.tick, SPAN as u32, blocks.next_block(), &how)? {
                    RingOutcome::Stored => {}
                    other => return Err(format!("the ring answered {other:?}").into()),
                }
            }
            self.tick += SPAN;
        }
        Ok(from.elapsed())
    }
}

/// Puts as many frames as events of one frame of each link; yields how long that took.
fn store_put(bench: &mut Bench, frames: u64, blocks: &mut Blocks<'_>) -> Result<Duration> {
    let run = bench.new_run(LINKS)?;
    let span = Span { sources: 0..LINKS, ..Span::dense(run, 0..frames) };
    let from = Instant::now();
    span.put(&bench.store, blocks)?;
    let time = from.elapsed();
    bench.end_run(run)?;
    Ok(time)
}

fn windows(links: &Links, buffer: &Buffer, results: &mut Results) -> Result<()> {
    let mut target = Vec::new();
    let (mut copied, mut plain, mut bytes) = (Duration::ZERO, Duration::ZERO, 0_u64);
    // About the same bytes in one piece, from memory as cold as the ring's: both walk through more than any cache holds.
    let piece = (LINKS * (WINDOW_TICKS / SPAN + 1)) as usize * BYTES;
    let mut pieces = buffer.blocks(piece, Warmth::Cold, 0, 1);
    let back = (links.history_ticks / WINDOW_TICKS).saturating_sub(2).max(1);
    for turn in 0..WINDOWS {
        // One window after the other through the history, beginning anywhere in a frame.
        let begin = links.tick - (2 + turn % back) * WINDOW_TICKS - turn * 97;
        let from = Instant::now();
        let window = links.ring.window(begin, begin + WINDOW_TICKS, &RingSources::All, Duration::ZERO)?;
        let opened = from.elapsed();
        results.record("ring.open", BYTES, opened.as_secs_f64() * 1e6);
        let total: u64 = window.sources.iter().map(|source| source.bytes_total()).sum();
        if !window.is_complete() || total < LINKS * WINDOW_TICKS / SPAN * BYTES as u64 {
            return Err(format!("a window of {total} bytes is not complete").into());
        }
        target.resize((total as usize).max(target.len()), 1_u8);
        let from = Instant::now();
        let mut at = 0;
        for fragment in window.sources.iter().flat_map(|source| source.fragments()) {
            target[at..at + fragment.bytes.len()].copy_from_slice(fragment.bytes);
            at += fragment.bytes.len();
        }
        black_box(&target);
        copied += from.elapsed();
        target.resize(piece.max(target.len()), 1_u8);
        let from = Instant::now();
        target[..piece].copy_from_slice(pieces.next_block());
        black_box(&target);
        plain += from.elapsed();
        bytes += at as u64;
    }
    results.record("ring.window", BYTES, bytes as f64 / copied.as_secs_f64());
    results.record("ring.plain", BYTES, (WINDOWS * piece as u64) as f64 / plain.as_secs_f64());
    Ok(())
}
