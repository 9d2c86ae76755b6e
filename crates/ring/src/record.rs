//! A retroactive recording: ticks that a ring still has and ticks that are to come go to containers, gap by gap accounted for.
//!
//! ```text
//! record ─▶ rates and space compared ─▶ pin [begin, now + ahead) ─▶ thread: piece after piece
//!   piece [t, u): window of each source ─▶ fragments verified, pushed │ gaps with the ring's cause ─▶ pin moves to [u, …)
//! end ─▶ links dropped ─▶ Recording::finish: durable, manifest
//! ```
//!
//! A window that the quota of pins does not hold is pinned from its newest tick backwards: the oldest go to the devices as
//! long as the ring still has them.
//!
//! *Invariants*: every tick of `[begin, end)` of every source is recorded or a gap of the manifest
//! (tests/ring/record.rs); the pin moves in one step, so that nothing between the recording and the ring's head is evicted
//! while the devices keep up.
//!
//! *On failure*: where the devices do not keep up, the ring takes its space back: those ticks are gaps, *gone from the
//! ring*. Where they still hold it up when its grace is over, the rest is missed, *device stalled*. Where the ring
//! closes, the recording ends there, with its manifest. Where the process dies, what was durable plays back.

use super::pin::RingPin;
use super::window::{RingFragment, SourceWindow};
use super::{Coverage, Ring, RingSources};
use forebay_core::{Error, GapCause, Kind, Result, RingStamp, SourceId};
use forebay_recorder::{GapManifest, GapReason, LinkConfig, Recording, RecordingLink, RecordingProgress};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Ticks that are demoted at once, as time.
const PIECE: Duration = Duration::from_millis(50);
/// How long the pin lasts from each move on: longer than any piece, and short enough that a recording that died lets go.
const PIN: Duration = Duration::from_secs(60);
/// Part of the ring's history, as a divisor, that is pinned ahead of its newest tick.
const AHEAD_SHARE: u32 = 8;
/// Parts of the ticks to be pinned by which the oldest are given up where the quota does not hold all.
const PIN_STEPS: u64 = 16;
/// How long a push waits for the device.
const PUSH_WAIT: Duration = Duration::from_secs(10);
/// How often a wait for the ring looks whether it shall end.
const LOOK: Duration = Duration::from_millis(20);

/// How a ring is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingRecordingOptions {
    /// Which sources: `All` names those that the ring has seen by now.
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
    /// Everything before it is demoted.
    tick: AtomicU64,
    end: u64,
    device_bytes_per_second: Option<u64>,
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
        match self.prepare(&recording, begin, end, how) {
            Ok(prepared) => self.begin_recording(recording, prepared),
            Err(error) => {
                recording.discard();
                Err(error)
            }
        }
    }

    fn prepare(&self, recording: &Recording, begin: u64, end: u64, how: &RingRecordingOptions) -> Result<Prepared> {
        let engine = self.engine();
        engine.check_window(begin, end)?;
        let sources = engine.names(&how.sources)?;
        engine.check_open()?;
        if sources.is_empty() {
            return Err(Error::invalid("no source to record: the ring has seen none yet"));
        }
        self.check_room(recording, &sources, end - begin)?;
        // Before anything that takes time: what is there goes on to age.
        let named = RingSources::Only(sources.clone());
        let pin = self.pin_most(begin, self.pin_end(&sources, end).max(begin.saturating_add(1)), &named)?;
        let device_bytes_per_second = self.check_rate(recording, &sources, how)?;
        let plans = sources.iter().map(|source| self.link_plan(source, how)).collect();
        let mut links = recording.links(plans)?;
        if let Some(link) = links.iter_mut().find(|link| link.payload_bytes_max() < engine.length_max) {
            return Err(Error::invalid(format!(
                "fragments of {} bytes: an extent of the recording takes {}",
                engine.length_max,
                link.payload_bytes_max()
            )));
        }
        links.iter_mut().for_each(|link| link.wait_for_device(PUSH_WAIT));
        Ok(Prepared {
            sources: named,
            links,
            pin,
            begin,
            end,
            deadline: self.deadline(end - begin, how),
            patience: how.patience,
            device_bytes_per_second,
        })
    }

    fn begin_recording(&self, recording: Recording, prepared: Prepared) -> Result<RingRecording> {
        let Prepared { sources, links, pin, begin, end, deadline, patience, device_bytes_per_second } = prepared;
        let controls = Arc::new(Controls {
            recording,
            stop: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            tick: AtomicU64::new(begin),
            end,
            device_bytes_per_second,
            trouble: Mutex::default(),
        });
        let (ring, of_thread) = (self.clone(), controls.clone());
        let demotion = Demotion {
            ring,
            controls: of_thread,
            sources,
            links,
            pin,
            pinned: Instant::now(),
            at: begin,
            deadline,
            patience,
        };
        let thread = std::thread::Builder::new()
            .name("ring-record".to_owned())
            .spawn(move || demotion.run())
            .map_err(|error| Error::unavailable("cannot start the recording's thread").with_source(error))?;
        Ok(RingRecording { controls, thread: Some(thread) })
    }

    fn check_room(&self, recording: &Recording, sources: &[SourceId], ticks: u64) -> Result<()> {
        let keyspace = self.keyspace();
        // In 128 bits: a day of ticks by bytes per second passes 64.
        let bytes =
            u128::from(ticks) * u128::from(self.declared(sources)) / u128::from(keyspace.ticks_per_second.max(1));
        let room = recording.room_bytes(self.engine().length_max);
        if u128::from(room) < bytes {
            return Err(Error::full(format!(
                "{ticks} ticks of {} sources at {} bytes per second each are {bytes} bytes: the recording has room for \
                 {room}",
                sources.len(),
                keyspace.source_bytes_per_second
            )));
        }
        Ok(())
    }

    /// What the devices take, where that is known or can be measured.
    fn check_rate(
        &self,
        recording: &Recording,
        sources: &[SourceId],
        how: &RingRecordingOptions,
    ) -> Result<Option<u64>> {
        let rate = match how.device_bytes_per_second {
            // Measured with the ticks pinned: what is there must not age away while the devices are tried.
            Some(known) => Some(known),
            None => match recording.measure(MEASURE) {
                Ok(rate) => Some(rate),
                // The containers have all there is: nothing is left to measure on.
                Err(error) if error.kind() == Kind::Full => None,
                Err(error) => return Err(error),
            },
        };
        let declared = self.declared(sources);
        if let Some(rate) = rate.filter(|&rate| rate < declared) {
            return Err(Error::full(format!(
                "{} sources at {} bytes per second are {declared} together: the devices take {rate}",
                sources.len(),
                self.keyspace().source_bytes_per_second
            )));
        }
        Ok(rate)
    }

    /// Bytes per second of these sources together.
    fn declared(&self, sources: &[SourceId]) -> u64 {
        self.keyspace().source_bytes_per_second.saturating_mul(sources.len() as u64)
    }

    /// When a recording of this number of ticks is over in any case.
    fn deadline(&self, ticks: u64, how: &RingRecordingOptions) -> Instant {
        let ns = u128::from(ticks) * 1_000_000_000 / u128::from(self.keyspace().ticks_per_second.max(1));
        let length = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        Instant::now() + length.saturating_add(how.patience).saturating_add(how.grace).min(YEAR)
    }

    fn link_plan(&self, source: &SourceId, how: &RingRecordingOptions) -> LinkConfig {
        let keyspace = self.keyspace();
        let key = keyspace.source.key(source, &RingStamp { timestamp: 0, span: 1, run: 0 });
        let rate = u128::from(keyspace.source_bytes_per_second.max(1));
        let reckoned = keyspace.fragment_bytes_max as u128 * u128::from(keyspace.ticks_per_second) / rate;
        LinkConfig {
            source: key.as_bytes().get(..keyspace.source.bytes()).unwrap_or_default().to_vec(),
            name: format!("source {source}"),
            format: how.format.clone(),
            ticks_per_frame: how.ticks_per_fragment.unwrap_or(u32::try_from(reckoned).unwrap_or(u32::MAX)).max(1),
            ticks_per_second: keyspace.ticks_per_second,
            device: None,
        }
    }

    /// Pins what the quota holds.
    fn pin_most(&self, begin: u64, end: u64, sources: &RingSources) -> Result<RingPin> {
        let mut refused = None;
        for begin in pin_begins(begin, end) {
            match self.pin(begin, end, sources, PIN) {
                Err(error) if error.kind() == Kind::Full => refused = refused.or(Some(error)),
                other => return other,
            }
        }
        Err(refused.unwrap_or_else(|| Error::internal("a pin has no begin")))
    }

    /// Up to where a pin reaches now: what there is, and a part of the history ahead of it.
    fn pin_end(&self, sources: &[SourceId], end: u64) -> u64 {
        let engine = self.engine();
        let newest =
            |status: super::RingSourceStatus| status.newest.filter(|_| sources.binary_search(&status.source).is_ok());
        let head = self.sources().into_iter().filter_map(newest).max();
        let now = engine.relations.expected(engine.now_ns());
        let ahead = engine.keyspace.ticks(engine.keyspace.history / AHEAD_SHARE);
        head.max(now).map_or(end, |now| now.saturating_add(ahead).min(end))
    }
}

/// How long each device is written to for its rate.
const MEASURE: Duration = Duration::from_millis(300);

impl RingRecording {
    /// How it is going.
    pub fn progress(&self) -> RingRecordingProgress {
        RingRecordingProgress {
            tick: self.controls.tick.load(Ordering::Acquire),
            end: self.controls.end,
            device_bytes_per_second: self.controls.device_bytes_per_second,
            trouble: self.controls.trouble.lock().clone(),
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
        write!(out, "RingRecording({} of {})", self.controls.tick.load(Ordering::Relaxed), self.controls.end)
    }
}

/// A recording that can begin.
struct Prepared {
    sources: RingSources,
    links: Vec<RecordingLink>,
    pin: RingPin,
    begin: u64,
    end: u64,
    deadline: Instant,
    patience: Duration,
    device_bytes_per_second: Option<u64>,
}

/// The thread's own.
struct Demotion {
    ring: Ring,
    controls: Arc<Controls>,
    sources: RingSources,
    links: Vec<RecordingLink>,
    pin: RingPin,
    /// When the pin was moved last.
    pinned: Instant,
    at: u64,
    deadline: Instant,
    patience: Duration,
}

impl Demotion {
    fn run(mut self) -> Result<GapManifest> {
        // Piece by piece: a window holds guards on all of its chunks, and the pin follows behind each.
        let piece = self.ring.keyspace().ticks(PIECE).max(1);
        while self.at < self.controls.end {
            let end = self.at.saturating_add(piece).min(self.controls.end);
            match self.demote(end) {
                Ok(true) => self.at = end,
                Ok(false) => break,
                Err(error) => {
                    *self.controls.trouble.lock() = Some(error.to_string());
                    break;
                }
            }
            self.controls.tick.store(end, Ordering::Release);
            // After the piece is handed over: a fragment that is not yet in a buffer of the recording is still pinned.
            self.move_pin();
        }
        // Links hand over what they hold when they are dropped; `finish` refuses while one is held.
        drop(std::mem::take(&mut self.links));
        if self.controls.abandoned.load(Ordering::Acquire) {
            return Err(Error::closed("the recording was given up"));
        }
        self.controls.recording.finish()
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Demotes `[at, end)` of all sources, once it has come, or should have; `false` where it was stopped before that.
    fn demote(&mut self, end: u64) -> Result<bool> {
        let window = loop {
            if self.controls.stops() {
                return Ok(false);
            }
            // In short steps, so that a stop, or a clock that nobody feeds, is seen soon.
            let wait = if self.is_over() { Duration::ZERO } else { LOOK };
            let window = self.ring.window(self.at, end, &self.sources, wait)?;
            let mut stretches = window.sources.iter().flat_map(|source| &source.coverage);
            if stretches.all(|stretch| stretch.state != Coverage::NotYet) || self.is_overdue(end) {
                break window;
            }
            // Its guards would keep chunks from being evicted that are recorded already.
            drop(window);
            if self.pinned.elapsed() > PIN / 4 {
                self.move_pin();
            }
        };
        let mut links = std::mem::take(&mut self.links);
        let piece = Piece { begin: self.at, end, controls: &self.controls, deadline: self.deadline };
        let sources = window.sources.iter().zip(&mut links);
        let demoted = sources.map(|(source, link)| piece.demote(source, link)).collect::<Result<Vec<bool>>>();
        self.links = links;
        Ok(demoted?.into_iter().all(|whole| whole))
    }

    /// Whether these ticks should have come by now, and the patience is over. As long as nobody knows the ring's time, only
    /// the recording's own end is known.
    fn is_overdue(&self, end: u64) -> bool {
        let engine = self.ring.engine();
        let now = engine.relations.expected(engine.now_ns());
        let late = now.is_some_and(|now| now.saturating_sub(engine.keyspace.ticks(self.patience)) >= end);
        late || self.is_over()
    }

    /// Lets go of what is recorded, and keeps what comes: all of it that the quota allows.
    fn move_pin(&mut self) {
        let names = match &self.sources {
            RingSources::Only(names) => names.as_slice(),
            RingSources::All => &[],
        };
        if self.at >= self.controls.end {
            return;
        }
        let end = self.ring.pin_end(names, self.controls.end).max(self.at.saturating_add(1));
        let mut trouble = None;
        for begin in pin_begins(self.at, end) {
            let moved = match self.pin.move_to(begin, end, PIN) {
                // A device stopped for longer than the pin lasts.
                Err(error) if error.kind() == Kind::Fenced => {
                    self.ring.pin(begin, end, &self.sources, PIN).map(|pin| self.pin = pin)
                }
                moved => moved,
            };
            let Err(error) = moved else { break };
            trouble.get_or_insert(error.to_string());
            if error.kind() != Kind::Full {
                break;
            }
        }
        self.pinned = Instant::now();
        *self.controls.trouble.lock() = trouble;
    }
}

/// Where a pin may begin, best first: what the quota does not hold is given up from the oldest tick on.
fn pin_begins(begin: u64, end: u64) -> impl Iterator<Item = u64> {
    let step = (end - begin) / PIN_STEPS;
    (0..if step > 0 { PIN_STEPS } else { 1 }).map(move |at| begin + at * step)
}

impl Controls {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// A bound for sums of time.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Ticks that go to the recording together.
struct Piece<'a> {
    begin: u64,
    end: u64,
    controls: &'a Controls,
    deadline: Instant,
}

impl Piece<'_> {
    /// One source's part: stretch by stretch, in order; `false` where it was stopped on the way.
    fn demote(&self, window: &SourceWindow, link: &mut RecordingLink) -> Result<bool> {
        // What only reaches into the first piece belongs to it, what reaches into a later one was pushed with the one
        // before.
        let first = link.next_tick().is_none();
        let mut fragments = window.fragments().filter(|fragment| first || fragment.timestamp >= self.begin).peekable();
        for stretch in &window.coverage {
            // What the fragment before reaches into is covered.
            let from = link.next_tick().map_or(stretch.begin, |next| next.clamp(stretch.begin, stretch.end));
            debug_assert!(stretch.begin <= from && from <= stretch.end, "ticks outside of their stretch");
            let frames = link.frames_in(from, stretch.end);
            match stretch.state {
                Coverage::Complete => {
                    let end = stretch.end.min(self.end);
                    while let Some(fragment) = fragments.next_if(|fragment| fragment.timestamp < end) {
                        if self.controls.stops() {
                            return Ok(false);
                        }
                        self.push(link, &fragment)?;
                    }
                }
                _ if from == stretch.end => {}
                Coverage::Gap(GapCause::NeverArrived) => link.silent(from, stretch.end)?,
                Coverage::NotYet => link.absent(from, stretch.end, GapReason::RingNotYet)?,
                Coverage::Gap(cause) => link.missed(from, stretch.end, frames, GapReason::of_ring(cause))?,
                Coverage::Gone if window.first.is_some_and(|first| stretch.end <= first) => {
                    link.absent(from, stretch.end, GapReason::RingBefore)?;
                }
                Coverage::Gone => link.missed(from, stretch.end, frames, GapReason::RingGone)?,
            }
        }
        Ok(true)
    }

    fn push(&self, link: &mut RecordingLink, fragment: &RingFragment<'_>) -> Result<()> {
        let end = fragment.timestamp + u64::from(fragment.span);
        if Instant::now() >= self.deadline {
            return link.missed(fragment.timestamp, end, 1, GapReason::DeviceStalled);
        }
        // A recording outlives the ring: bytes that have rotted in memory must not be copied under a fresh checksum.
        if fragment.verify().is_err() {
            return link.missed(fragment.timestamp, end, 1, GapReason::Corrupt);
        }
        // A frame that the device does not take is a gap by then.
        link.push(fragment.timestamp, fragment.span, fragment.bytes).map(drop)
    }
}
