//! A retroactive recording: ticks that rings still have and ticks that are to come go to containers, gap by gap accounted for.
//!
//! ```text
//! record ─▶ rates and space compared ─▶ pin [begin, now + ahead) ─▶ a thread for each ring: piece after piece
//!   piece [t, u): window of each source ─▶ fragments verified, pushed │ gaps with the ring's cause ─▶ pin moves to [u, …)
//! end ─▶ links dropped ─▶ Recording::finish: durable, manifest
//! ```
//!
//! A ring is one of this process or one on a server ([`RingStore`]): several of them, of one detector clock, are recorded
//! together, with one range of ticks and one manifest.
//!
//! A window that the quota of pins does not hold is pinned from its newest tick backwards: the oldest go to the devices as
//! long as the ring still has them.
//!
//! *Invariants*: every tick of `[begin, end)` of every source is recorded or a gap of the manifest
//! (tests/ring/record.rs); the pin moves in one step, so that nothing between the recording and the ring's head is evicted
//! while the devices keep up.
//!
//! *On failure*: where the devices do not keep up, the ring takes its space back: those ticks are gaps, *gone from the
//! ring*. Where they still hold it up when its grace is over, the rest is missed, *device stalled*. Where a ring
//! closes, or its server is away for longer than calls wait, the rest of its ticks is missed, *restart of the ring*; the others
//! go on. Where the process dies, what was durable plays back.

mod demotion;
mod prepare;

use super::{Ring, RingSources};
use demotion::{Demotion, demote_all};
use forebay_core::{Error, Result, RingStore};
use forebay_recorder::{GapManifest, Recording, RecordingProgress};
use parking_lot::Mutex;
use prepare::{Asked, Prepared};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a ring is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingRecordingOptions {
    /// Which sources: `All` names those that a ring has seen by now; the only choice where several rings are recorded.
    pub sources: RingSources,
    /// What the fragments are, for readers; may be empty.
    pub format: String,
    /// Ticks of one fragment, to count those that are missing; `None` reckons with the declared rate and the longest
    /// fragment.
    pub ticks_per_fragment: Option<u32>,
    /// What the devices together take, in bytes per second; `None` measures it before the first fragment.
    pub device_bytes_per_second: Option<u64>,
    /// How long after its time a tick may still come before it is a gap, *not in the ring in time*.
    pub patience: Duration,
    /// Time beyond that of its ticks after which a recording ends in any case; what is left is missed, *device stalled*.
    pub grace: Duration,
}

impl Default for RingRecordingOptions {
    fn default() -> RingRecordingOptions {
        RingRecordingOptions {
            sources: RingSources::All,
            format: String::new(),
            ticks_per_fragment: None,
            device_bytes_per_second: None,
            patience: Duration::from_secs(1),
            grace: Duration::from_secs(60),
        }
    }
}

/// A recording of a ring that is under way. Dropping it stops it and leaves it without a manifest.
pub struct RingRecording {
    controls: Arc<Controls>,
    thread: Option<JoinHandle<Result<GapManifest>>>,
}

struct Controls {
    recording: Recording,
    stop: AtomicBool,
    abandoned: AtomicBool,
    /// For each ring: everything before it is demoted, and what keeps it from going as it should.
    rings: Vec<OfRing>,
    end: u64,
    device_bytes_per_second: Option<u64>,
}

struct OfRing {
    tick: AtomicU64,
    trouble: Mutex<Option<String>>,
}

/// How a recording of a ring is going.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingRecordingProgress {
    /// Every tick before it has gone to the recording, or is a gap.
    pub tick: u64,
    /// Where it ends.
    pub end: u64,
    /// What the devices together were found to take, in bytes per second; `None` where nothing was free to measure on.
    pub device_bytes_per_second: Option<u64>,
    /// What keeps it from going as it should: its pin cannot grow, or the ring has closed.
    pub trouble: Option<String>,
    /// The recording.
    pub recording: RecordingProgress,
}

impl Ring {
    /// Records `[begin, end)`, past and future, to containers: pins what is there, demotes it and what comes, piece by
    /// piece on a thread of its own, and ends with the manifest. The recording is this ring's alone, so that its space is
    /// reserved; where it is refused, its containers are removed again. Measuring takes 0.3 s for each device, with the
    /// ticks pinned meanwhile.
    ///
    /// # Errors
    /// `Full` where the devices take less than the ring's declared rate, where their space does not hold the ticks asked
    /// for, or where other pins have the whole quota, each with its figures; `Invalid` as for [`Ring::window`], without a source
    /// by now, or for a recording that cannot take its fragments; `Closed`.
    pub fn record(
        &self,
        recording: Recording,
        begin: u64,
        end: u64,
        how: &RingRecordingOptions,
    ) -> Result<RingRecording> {
        RingRecording::of_rings(std::slice::from_ref(self), recording, begin, end, how)
    }
}

impl RingRecording {
    /// Records `[begin, end)` of several rings together, as [`Ring::record`] does of one: one range of ticks, one recording, one
    /// manifest. The rings have one clock and no source in common.
    ///
    /// # Errors
    /// As [`Ring::record`]; `Invalid` also for rings that do not go together, `Unavailable` where a server does not answer.
    pub fn of_rings<R: RingStore>(
        rings: &[R],
        recording: Recording,
        begin: u64,
        end: u64,
        how: &RingRecordingOptions,
    ) -> Result<RingRecording> {
        let asked = Asked { begin, end, how };
        let prepared = match begin < end {
            true => asked.prepare(rings, &recording),
            false => Err(Error::invalid(format!("the ticks [{begin}, {end}) are none"))),
        };
        match prepared {
            Ok((prepared, rate)) => RingRecording::start(recording, prepared, rate, &asked),
            Err(error) => {
                recording.discard();
                Err(error)
            }
        }
    }

    fn start<R: RingStore>(
        recording: Recording,
        prepared: Vec<Prepared<R>>,
        device_bytes_per_second: Option<u64>,
        asked: &Asked<'_>,
    ) -> Result<RingRecording> {
        let of_ring = |_: &Prepared<R>| OfRing { tick: AtomicU64::new(asked.begin), trouble: Mutex::default() };
        let controls = Arc::new(Controls {
            recording,
            stop: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            rings: prepared.iter().map(of_ring).collect(),
            end: asked.end,
            device_bytes_per_second,
        });
        let demotion = |(number, prepared): (usize, Prepared<R>)| Demotion {
            deadline: asked.deadline(prepared.ring.keyspace()),
            ring: prepared.ring,
            number,
            controls: controls.clone(),
            sources: prepared.sources,
            links: prepared.links,
            pin: prepared.pin,
            pinned: Instant::now(),
            at: asked.begin,
            patience: asked.how.patience,
        };
        let demotions: Vec<Demotion<R>> = prepared.into_iter().enumerate().map(demotion).collect();
        let of_thread = controls.clone();
        let thread = std::thread::Builder::new()
            .name("ring-record".to_owned())
            .spawn(move || demote_all(&of_thread, demotions))
            .map_err(|error| Error::unavailable("cannot start the recording's thread").with_source(error))?;
        Ok(RingRecording { controls, thread: Some(thread) })
    }

    /// How it is going.
    pub fn progress(&self) -> RingRecordingProgress {
        let rings = &self.controls.rings;
        RingRecordingProgress {
            tick: rings.iter().map(|ring| ring.tick.load(Ordering::Acquire)).min().unwrap_or(self.controls.end),
            end: self.controls.end,
            device_bytes_per_second: self.controls.device_bytes_per_second,
            trouble: rings.iter().find_map(|ring| ring.trouble.lock().clone()),
            recording: self.controls.recording.progress(),
        }
    }

    /// Whether it has come to its end: [`RingRecording::wait`] answers at once.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it at the tick that it has reached; [`RingRecording::wait`] answers the manifest.
    pub fn stop(&self) {
        self.controls.stop.store(true, Ordering::Release);
    }

    /// Waits for its end and answers the manifest. The wait ends when the grace after the last tick is over, at the latest,
    /// and what the devices take to settle.
    ///
    /// # Errors
    /// As [`Recording::finish`]; `Internal` where its thread died.
    pub fn wait(mut self) -> Result<GapManifest> {
        let Some(thread) = self.thread.take() else { return Err(died()) };
        thread.join().unwrap_or_else(|_| Err(died()))
    }
}

fn died() -> Error {
    Error::internal("the thread of a ring's recording died")
}

impl Drop for RingRecording {
    fn drop(&mut self) {
        // Before the stop: the thread that finds the stop must know that nobody wants a manifest.
        self.controls.abandoned.store(true, Ordering::Release);
        self.controls.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // Nobody waits for its manifest.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for RingRecording {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RingRecording({} of {})", self.progress().tick, self.controls.end)
    }
}

impl Controls {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}
