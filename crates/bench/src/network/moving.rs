//! Fragments out and in, beside the bare copy of the same frames.

use super::Measurement;
use super::options::Plan;
use super::peer::{Peer, SOURCES};
use super::wire::{pull, push};
use crate::Result;
use forebay_client::{Client, Options, Tls};
use forebay_core::{Bounds, EventStore, Key, PutOptions, PutOutcome, Sources};
use std::ops::Range;
use std::time::Instant;

/// Fragments of one call.
pub(super) const CALL: usize = 4096;
/// Of them those that go in one frame.
const FRAME: usize = 512;
/// Payload of one frame of the client, as the limit sends it.
const FRAME_BYTES: usize = 512 << 10;
/// Frames of the limit that are under way together.
const AHEAD: u64 = 16;
/// Bytes of a frame beside its payload, per fragment.
const META_BYTES: usize = 34;

/// Sizes of the tables.
pub(super) const SIZES: [usize; 2] = [64, 10 << 10];

/// A client of a peer over this transport.
pub(super) fn client(peer: &Peer, transport: &str) -> Result<Client> {
    let tls = Tls { ca: Some(peer.certificate()), ..Tls::default() };
    let options = Options { name: "bench".to_owned(), extend_leases: false, tls, ..Options::default() };
    Ok(Client::connect(peer.address("native", transport)?, options)?)
}

/// Fragments of this size in one pass.
pub(super) fn count(plan: &Plan, bytes: usize) -> u64 {
    let count = if bytes < 1024 { plan.pass_fragments } else { plan.pass_bytes / bytes as u64 };
    count.next_multiple_of(SOURCES)
}

/// The key of the n-th fragment of a run.
pub(super) fn key(client: &impl EventStore, run: u64, number: u64) -> Result<Key> {
    Ok(client.schema().key(&[run, number / SOURCES, number % SOURCES])?)
}

/// Puts fragments of a run, many in a call; the time that it took.
pub(super) fn put(client: &impl EventStore, run: u64, count: u64, value: &[u8]) -> Result<f64> {
    put_part(client, run, 0..count, value)
}

/// The same with some of them, by number.
pub(super) fn put_part(client: &impl EventStore, run: u64, numbers: Range<u64>, value: &[u8]) -> Result<f64> {
    let keys = numbers.map(|number| key(client, run, number)).collect::<Result<Vec<_>>>()?;
    let from = Instant::now();
    for part in keys.chunks(CALL) {
        let puts: Vec<(Key, &[u8], PutOptions<'_>)> =
            part.iter().map(|key| (*key, value, PutOptions::default())).collect();
        for outcome in client.put_many(&puts)? {
            if outcome? != PutOutcome::Stored {
                return Err("a put was not stored".into());
            }
        }
    }
    Ok(from.elapsed().as_secs_f64())
}

/// Keys of one call.
fn per_get(bytes: usize) -> usize {
    if bytes < 1024 { CALL } else { 128 }
}

/// Gets the fragments of a run, many in a call; the time that it took.
pub(super) fn get(client: &Client, run: u64, count: u64, bytes: usize) -> Result<f64> {
    let per_get = per_get(bytes);
    let from = Instant::now();
    for first in (0..count).step_by(per_get) {
        let part = first..count.min(first + per_get as u64);
        let keys = part.map(|number| key(client, run, number)).collect::<Result<Vec<_>>>()?;
        let found = client.get_many(&keys)?;
        if found.iter().any(|fragment| fragment.as_ref().is_none_or(|fragment| fragment.len() != bytes)) {
            return Err("a get without its fragment".into());
        }
    }
    Ok(from.elapsed().as_secs_f64())
}

/// Removes a run, and waits until its space is back.
pub(super) fn end_run(client: &impl EventStore, run: u64) -> Result<()> {
    end_runs(client, &[run])
}

/// The same of several.
pub(super) fn end_runs(client: &impl EventStore, runs: &[u64]) -> Result<()> {
    for &run in runs {
        client.remove_range(&Bounds::parse(client.schema(), &run.to_string())?)?;
        client.run_stop(run)?;
        client.run_close(run)?;
    }
    let mut stats = client.stats()?;
    for _ in 0..500 {
        if stats.segments - stats.segments_free <= stats.segments / 8 + 4 {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        stats = client.stats()?;
    }
    Err(format!("space does not come back: {stats:?}").into())
}

/// Puts and gets of each size, over each transport, each beside its limit.
pub(super) fn measure(on: &mut Measurement<'_>) -> Result<()> {
    for transport in ["unix", "tcp"] {
        let client = client(on.forebay, transport)?;
        let bare = on.bare.address("native", transport)?.to_owned();
        let unpaced = on.bare.address("native", "unpaced")?.to_owned();
        for bytes in SIZES {
            let count = count(on.plan, bytes);
            let value = vec![0xA5; bytes];
            let per_frame = (FRAME_BYTES / bytes).min(FRAME);
            let frames = count.div_ceil(per_frame as u64);
            let meta = vec![1; 44 + META_BYTES * per_frame];
            let pieces: Vec<&[u8]> = std::iter::once(&meta[..]).chain((0..per_frame).map(|_| &value[..])).collect();

            let run = on.next_run();
            let from = Instant::now();
            push(&bare, frames, &pieces, AHEAD)?;
            let limit = count as f64 / from.elapsed().as_secs_f64();
            let rate = count as f64 / put(&client, run, count, &value)?;
            on.share(&format!("{transport}.put"), bytes, rate, limit);
            if transport == "tcp" {
                let from = Instant::now();
                push(&unpaced, frames, &pieces, AHEAD)?;
                let limit = count as f64 / from.elapsed().as_secs_f64();
                on.results.record("tcp.put.unpaced.share", bytes, rate / limit);
            }

            let length = 44 + 18 * per_frame + per_frame * bytes;
            let limit = count as f64 / pull(&bare, frames, length, AHEAD, false)?;
            let cold = count as f64 / pull(&bare, frames, length, AHEAD, true)?;
            let rate = count as f64 / get(&client, run, count, bytes)?;
            on.share(&format!("{transport}.get"), bytes, rate, limit);
            on.share(&format!("{transport}.get.cold"), bytes, rate, cold);
            if transport == "tcp" {
                let limit = count as f64 / pull(&unpaced, frames, length, AHEAD, false)?;
                on.results.record("tcp.get.unpaced.share", bytes, rate / limit);
            }
            end_run(&client, run)?;
        }
        events(on, &client, transport, &bare, &unpaced)?;
    }
    Ok(())
}

/// Fragments of a long event.
const FRAGMENTS: u64 = 100;

/// Puts events of 100 fragments of 10 KiB; answers how many.
pub(super) fn put_long_events(plan: &Plan, client: &impl EventStore, run: u64) -> Result<u64> {
    let bytes = 10 << 10;
    let events = 0..(plan.pass_bytes / (FRAGMENTS * bytes as u64)).max(4);
    let value = vec![0x5A; bytes];
    for event in events.clone() {
        let key =
            |source| client.schema().key(&[run, event, source]).map(|key| (key, &value[..], PutOptions::default()));
        let puts = (0..FRAGMENTS).map(key).collect::<forebay_core::Result<Vec<_>>>()?;
        for outcome in client.put_many(&puts)? {
            let _ = outcome?;
        }
    }
    Ok(events.end)
}

/// Reads some of these events by number, each in one call; the time that it took.
pub(super) fn get_long_events(client: &impl EventStore, run: u64, events: Range<u64>) -> Result<f64> {
    let from = Instant::now();
    for event in events {
        let found = client.get_event(&client.schema().primary(&[run, event])?, &Sources::All)?;
        if found.is_none_or(|event| event.fragments.len() != FRAGMENTS as usize) {
            return Err("an event without its fragments".into());
        }
    }
    Ok(from.elapsed().as_secs_f64())
}

/// Events of 100 fragments of 10 KiB, each in one call, beside the limits.
fn events(on: &mut Measurement<'_>, client: &Client, transport: &str, bare: &str, unpaced: &str) -> Result<()> {
    let (bytes, run) = (10 << 10, on.next_run());
    let events = put_long_events(on.plan, client, run)?;
    let took = get_long_events(client, run, 0..events)?;
    let length = 100 + 35 * FRAGMENTS as usize + FRAGMENTS as usize * bytes;
    let limit = events as f64 / pull(bare, events, length, 1, false)?;
    let cold = events as f64 / pull(bare, events, length, 1, true)?;
    let rate = events as f64 / took;
    on.results.record(&format!("{transport}.event.share"), bytes, rate / limit);
    on.results.record(&format!("{transport}.event.cold.share"), bytes, rate / cold);
    if transport == "tcp" {
        let limit = events as f64 / pull(unpaced, events, length, 1, false)?;
        on.results.record("tcp.event.unpaced.share", bytes, rate / limit);
    }
    end_run(client, run)
}
