//! A recording that begins before its trigger: links fill a ring, and its last seconds and the next go to containers.
//!
//! ```text
//! containers made, room and rate compared ─▶ links ─readout threads─▶ ring ─▶ trigger: Ring::record ─▶ containers, manifest
//! ```
//!
//! *Invariants*: what the ring had in the window is recorded or missed, and what it had not is a gap with its reason
//! (daq/tests/record.rs).
//!
//! *On failure*: a recording that is refused leaves its directories empty; ended before its trigger, it is an empty one.

use super::config::{Plan, Retroactive};
use super::shared::RecordShared;
use super::{RecordSummary, methods, tell};
use crate::directory::Directory;
use crate::limits::{LOOK, READOUT_STEP, RECORD_CATCH_UP, RING_OVERHEAD_BYTES, SKEW_MAX};
use crate::progress::{Phase, Reporter, Told};
use crate::threads::{EndThreads, Failures, Together, spawn};
use forebay_core::{Error, Kind, Result, RingKeyspace, SourceId, SourceSchema};
use forebay_recorder::{GapManifest, Recording};
use forebay_ring::{Ring, RingConfig, RingOutcome, RingPut, RingRecordingOptions, RingSources};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Chunks of one link that its history fills.
const CHUNKS_PER_LINK: f64 = 64.0;
const CHUNK_BYTES_MIN: u64 = 64 << 10;
const CHUNK_BYTES_MAX: u64 = 64 << 20;
/// History beyond what the trigger asks back for: what comes while it is demoted.
const HISTORY_MORE: Duration = Duration::from_millis(500);
/// Part of the ring that a recording may pin.
const PIN_PERCENT: u8 = 90;
/// How often it is looked whether the trigger falls: well within what the ring holds beyond the window.
const TRIGGER_LOOK: Duration = Duration::from_millis(2);
/// How long each device is written to for its rate.
const MEASURE: Duration = Duration::from_millis(300);
/// Most pushes of a link before the clock is looked at again.
const STEP_PUSHES: u64 = 64;

/// The trigger of a recorded ring, and what it found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RetroSummary {
    /// The newest tick when it fell.
    pub trigger_tick: u64,
    /// First tick asked for.
    pub begin: u64,
    /// Tick after the last one asked for.
    pub end: u64,
    /// Bytes per second of all links.
    pub link_bytes_per_second: u64,
    /// What the devices together were found to take, in bytes per second; `None` where nothing was free to measure on.
    pub device_bytes_per_second: Option<u64>,
    /// Frames that the readout came too late for, in the whole time: the ring never had them.
    pub not_taken: u64,
    /// Frames that the ring refused, in the whole time; the manifest has the causes of those in the window.
    pub refused: u64,
}

/// Frames that did not come to the ring.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    not_taken: u64,
    refused: u64,
}

/// What the trigger asked for and got.
struct Triggered {
    tick: u64,
    begin: u64,
    end: u64,
    at: Instant,
    manifest: GapManifest,
}

pub(super) fn run(plan: &Plan, window: &Retroactive, stop: &AtomicBool, told: &mut Told<'_>) -> Result<RecordSummary> {
    let recording = Recording::create(&plan.dirs, plan.config.clone())?;
    let (measured, directory, ring) = match prepare(plan, window, &recording) {
        Ok(prepared) => prepared,
        Err(error) => {
            recording.discard();
            return Err(error);
        }
    };
    let (triggered, lost) = take(plan, window, &ring, recording, measured, stop, told)?;
    let seconds = triggered.at.elapsed().as_secs_f64();
    ring.close()?;
    directory.remove()?;
    let Triggered { tick, begin, end, manifest, .. } = triggered;
    Ok(RecordSummary {
        seconds,
        seconds_to_durable: seconds,
        mb_per_second: manifest.totals.recorded_bytes as f64 / seconds / 1e6,
        methods: methods(manifest.devices.iter().map(|device| device.method.as_str())),
        stopped: stop.load(Ordering::Relaxed),
        ended: None,
        retroactive: Some(RetroSummary {
            trigger_tick: tick,
            begin,
            end,
            link_bytes_per_second: links_bytes_per_second(plan),
            device_bytes_per_second: measured,
            not_taken: lost.not_taken,
            refused: lost.refused,
        }),
        manifest,
    })
}

/// What the devices take, and a ring that holds what the trigger will ask back for.
fn prepare(plan: &Plan, window: &Retroactive, recording: &Recording) -> Result<(Option<u64>, Directory, Ring)> {
    let needed = (links_bytes_per_second(plan) as f64 * plan.choices.seconds) as u64;
    let room = recording.room_bytes(plan.push_bytes);
    if room < needed {
        return Err(Error::full(format!(
            "{:.3} s of {} links are {needed} bytes: the directories have room for {room}",
            plan.choices.seconds, plan.choices.links
        )));
    }
    let measured = rate(plan, recording)?;
    let (keyspace, config) = (keyspace(plan, window)?, ring_config(plan, window));
    let directory = Directory::prepare(window.ring.as_deref(), config.hot_bytes)?;
    let ring = Ring::create(directory.path(), &keyspace, config)?;
    Ok((measured, directory, ring))
}

fn links_bytes_per_second(plan: &Plan) -> u64 {
    (plan.link_bytes_per_second() * f64::from(plan.choices.links)).ceil() as u64
}

/// What the devices take; refused where that is less than the links send.
fn rate(plan: &Plan, recording: &Recording) -> Result<Option<u64>> {
    let rate = match recording.measure(MEASURE) {
        Ok(rate) => rate,
        // The containers have all there is: nothing is left to measure on.
        Err(error) if error.kind() == Kind::Full => return Ok(None),
        Err(error) => return Err(error),
    };
    let links = links_bytes_per_second(plan);
    if rate < links {
        return Err(Error::full(format!(
            "{} links send {links} bytes per second: the devices take {rate}; record fewer links or name more devices",
            plan.choices.links
        )));
    }
    Ok(Some(rate))
}

fn history(window: &Retroactive) -> Duration {
    window.last.mul_f64(1.2) + HISTORY_MORE
}

fn keyspace(plan: &Plan, window: &Retroactive) -> Result<RingKeyspace> {
    let keyspace = RingKeyspace {
        name: "links".to_owned(),
        source: SourceSchema::parse(&["link:u32"])?,
        ticks_per_second: plan.ticks_per_second,
        sources_max: plan.choices.links,
        history: history(window),
        source_bytes_per_second: plan.link_bytes_per_second().ceil() as u64,
        max_skew: SKEW_MAX,
        fragment_bytes_max: plan.push_bytes,
        pin_percent: PIN_PERCENT,
    };
    keyspace.check()?;
    Ok(keyspace)
}

fn ring_config(plan: &Plan, window: &Retroactive) -> RingConfig {
    let of_link = plan.link_bytes_per_second() * history(window).as_secs_f64();
    let chunk = ((of_link / CHUNKS_PER_LINK) as u64).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
    let chunk = chunk.max(8 * plan.push_bytes as u64).next_multiple_of(CHUNK_BYTES_MIN);
    let links = u64::from(plan.choices.links);
    // A quarter more: entries, ends of chunks, and the chunks of each link that are being written and evicted.
    let hot_bytes = (of_link * 1.25) as u64 * links + (RING_OVERHEAD_BYTES + 4 * chunk) * (links + 16);
    RingConfig { hot_bytes, segment_bytes: Some(chunk), ..RingConfig::default() }
}

fn take(
    plan: &Plan,
    window: &Retroactive,
    ring: &Ring,
    recording: Recording,
    measured: Option<u64>,
    stop: &AtomicBool,
    told: &mut Told<'_>,
) -> Result<(Triggered, Lost)> {
    let shared = &RecordShared::new(plan, stop);
    std::thread::scope(|scope| {
        let _end = EndThreads(shared);
        let threads = plan.choices.threads;
        let feeders = spawn(scope, "readout", threads, |thread| shared.guarded(|| feed(shared, ring, thread)))?;
        let triggered = trigger(shared, window, ring, recording, measured, told);
        shared.finish();
        let mut failures = Failures::default();
        let lost = failures.join(feeders);
        failures.result()?;
        let sum = |sum: Lost, one: Lost| Lost {
            not_taken: sum.not_taken + one.not_taken,
            refused: sum.refused + one.refused,
        };
        Ok((triggered?, lost.into_iter().fold(Lost::default(), sum)))
    })
}

/// Waits for the trigger's time, records, and answers when all is durable.
fn trigger(
    shared: &RecordShared<'_>,
    window: &Retroactive,
    ring: &Ring,
    recording: Recording,
    measured: Option<u64>,
    told: &mut Told<'_>,
) -> Result<Triggered> {
    let newest = || ring.sources().iter().filter_map(|source| source.newest).max();
    let filled = shared.plan.tick(0).saturating_add(ring.keyspace().ticks(window.last));
    let waits = || match window.after {
        Some(after) => shared.start.elapsed() < after || newest().is_none(),
        None => newest().is_none_or(|newest| newest < filled),
    };
    while waits() {
        if shared.stops() {
            let (tick, at) = (newest().unwrap_or_default(), Instant::now());
            return Ok(Triggered { tick, begin: tick, end: tick, at, manifest: recording.finish()? });
        }
        std::thread::sleep(TRIGGER_LOOK);
    }
    let at = Instant::now();
    let tick = newest().unwrap_or_default();
    let begin = tick.saturating_sub(ring.keyspace().ticks(window.last));
    let end = tick.saturating_add(ring.keyspace().ticks(window.next)).max(begin.saturating_add(1));
    let how = RingRecordingOptions {
        sources: RingSources::All,
        format: shared.plan.frames.kind().name().to_owned(),
        ticks_per_fragment: Some(shared.plan.push_ticks),
        device_bytes_per_second: measured,
        ..RingRecordingOptions::default()
    };
    let running = ring.record(recording, begin, end, &how)?;
    let mut reporter = Reporter::new(told);
    while !running.is_finished() {
        if shared.stops() {
            running.stop();
        }
        std::thread::sleep(LOOK);
        reporter.tick(Phase::Taking, |figures| {
            let progress = running.progress();
            tell(figures, &progress.recording, progress.trouble);
        });
    }
    Ok(Triggered { tick, begin, end, at, manifest: running.wait()? })
}

/// The body of a readout thread: its links' frames go to the ring at their pace, until all is over.
fn feed(shared: &RecordShared<'_>, ring: &Ring, thread: usize) -> Result<Lost> {
    let plan = shared.plan;
    let link = |link: u32| -> Result<(u32, SourceId)> { Ok((link, ring.keyspace().source(&[link.into()])?)) };
    let mine = (thread as u32..plan.choices.links).step_by(plan.choices.threads);
    let links = mine.map(link).collect::<Result<Vec<_>>>()?;
    let per_second = plan.pushes_per_second();
    let catch_up = ((RECORD_CATCH_UP.as_secs_f64() * per_second) as u64).max(1);
    let mut frame = vec![0; plan.push_bytes];
    let (mut next, mut lost) = (0, Lost::default());
    while !shared.finished() {
        let due = (shared.start.elapsed().as_secs_f64() * per_second) as u64;
        if due <= next {
            std::thread::sleep(READOUT_STEP);
            continue;
        }
        if due - next > catch_up {
            lost.not_taken += (due - next - catch_up / 2) * links.len() as u64;
            next = due - catch_up / 2;
        }
        let last = due.min(next + STEP_PUSHES);
        for push in next..last {
            for (link, source) in &links {
                plan.frames.fill(push, *link, &mut frame);
                let put = ring.put(source, plan.tick(push), plan.push_ticks, &frame, &RingPut::default())?;
                lost.refused += u64::from(matches!(put, RingOutcome::Refused(_)));
            }
        }
        next = last;
    }
    Ok(lost)
}
