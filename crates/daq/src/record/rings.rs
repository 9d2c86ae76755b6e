//! A recording of rings that others fill: in this process, in a directory, or on servers, with one trigger for all.
//!
//! ```text
//! newest tick of all rings, or a tick that was named ─▶ one range ─▶ RingRecording::of_rings ─▶ containers, one manifest
//! ```
//!
//! *On failure*: a recording that is refused leaves its directories empty; a server that is away costs its own ticks.

use super::config::{Cut, RING_MORE, RecordDir, needed};
use super::{RecordSummary, RetroSummary, methods, tell};
use crate::limits::LOOK;
use crate::progress::{Phase, Reporter, Told};
use forebay_core::{Error, Result, RingStore};
use forebay_recorder::{Recording, RecordingConfig};
use forebay_ring::{RingRecording, RingRecordingOptions, RingSources};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Which ticks are recorded: the same of all rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingSpan {
    /// From a tick to the tick after the last one.
    Ticks(u64, u64),
    /// Around a trigger.
    Trigger {
        /// Its tick; `None` is the newest tick that any of the rings has now.
        at: Option<u64>,
        /// What lies before it.
        last: Duration,
        /// What comes after it.
        next: Duration,
    },
}

/// Choices of a recording of rings.
#[derive(Clone, Debug, PartialEq)]
pub struct RingChoices {
    /// Directories, each one device.
    pub dirs: Vec<RecordDir>,
    /// Which ticks.
    pub span: RingSpan,
    /// Nothing comes to these rings any more: their directories are read.
    pub still: bool,
    /// What the fragments are, for readers; may be empty.
    pub format: String,
    /// Ticks of one fragment, to count those that are missing; `None` reckons with the declared rate.
    pub ticks_per_fragment: Option<u32>,
    /// Run number of the recording.
    pub run: u64,
    /// Name, for people.
    pub name: String,
    /// Bytes in memory per source, while the device is slow.
    pub buffer_bytes_per_link: u64,
    /// How long after its time a tick may still come.
    pub patience: Option<Duration>,
    /// Sources go to other devices where their own is full or fails.
    pub spill: bool,
}

/// Records rings. As [`super::run`] for `told` and `stop`.
///
/// # Errors
/// `Invalid` for rings that do not go together or have seen no source, `Full` where the directories have not the room or the
/// rate, `Unavailable` where a server does not answer.
pub fn record_rings<R: RingStore>(
    rings: &[R],
    choices: &RingChoices,
    stop: &AtomicBool,
    told: &mut Told<'_>,
) -> Result<RecordSummary> {
    let start = Instant::now();
    let found = Found::look(rings, choices)?;
    let cut = found.cut(rings, choices)?;
    let config = RecordingConfig {
        name: choices.name.clone(),
        run: choices.run,
        spill: choices.spill,
        ..cut.config(choices.buffer_bytes_per_link)
    };
    let mut how = RingRecordingOptions {
        sources: RingSources::All,
        format: choices.format.clone(),
        ticks_per_fragment: choices.ticks_per_fragment,
        // What does not grow can wait for the device.
        device_bytes_per_second: choices.still.then_some(u64::MAX),
        ..RingRecordingOptions::default()
    };
    how.patience = choices.patience.unwrap_or(how.patience);
    let running = RingRecording::of_rings(rings, Recording::create(&cut.dirs, config)?, found.begin, found.end, &how)?;
    let mut reporter = Reporter::new(told);
    while !running.is_finished() {
        if stop.load(Ordering::Relaxed) {
            running.stop();
        }
        std::thread::sleep(LOOK);
        reporter.tick(Phase::Taking, |figures| {
            let progress = running.progress();
            tell(figures, &progress.recording, progress.trouble);
        });
    }
    let progress = running.progress();
    let measured = progress.device_bytes_per_second.filter(|_| !choices.still);
    let manifest = running.wait()?;
    let seconds = start.elapsed().as_secs_f64();
    // A server that has left is not asked once more: what it refused of these ticks is in the manifest.
    let refused = if progress.trouble.is_none() { refused(rings)?.saturating_sub(found.refused) } else { 0 };
    Ok(RecordSummary {
        seconds,
        seconds_to_durable: seconds,
        mb_per_second: manifest.totals.recorded_bytes as f64 / seconds / 1e6,
        methods: methods(manifest.devices.iter().map(|device| device.method.as_str())),
        stopped: stop.load(Ordering::Relaxed),
        ended: None,
        retroactive: Some(RetroSummary {
            trigger_tick: found.trigger,
            begin: found.begin,
            end: found.end,
            link_bytes_per_second: found.bytes_per_second,
            device_bytes_per_second: measured,
            not_taken: 0,
            refused,
        }),
        manifest,
    })
}

/// What the rings are when the trigger falls.
struct Found {
    trigger: u64,
    begin: u64,
    end: u64,
    sources: usize,
    bytes_per_second: u64,
    refused: u64,
}

impl Found {
    fn look<R: RingStore>(rings: &[R], choices: &RingChoices) -> Result<Found> {
        let first = rings.first().ok_or_else(|| Error::invalid("no ring to record"))?;
        let (mut newest, mut sources, mut bytes_per_second) = (None, 0, 0_u64);
        for ring in rings {
            let statuses = ring.sources()?;
            newest = newest.max(statuses.iter().filter_map(|status| status.newest).max());
            sources += statuses.len();
            let rate = ring.keyspace().source_bytes_per_second.saturating_mul(statuses.len() as u64);
            bytes_per_second = bytes_per_second.saturating_add(rate);
        }
        let newest = newest.ok_or_else(|| Error::invalid("no source to record: the rings have seen none yet"))?;
        let ticks = |time: Duration| first.keyspace().ticks(time);
        let (trigger, begin, end) = match choices.span {
            RingSpan::Ticks(begin, end) => (begin, begin, end),
            RingSpan::Trigger { at, last, next } => {
                let trigger = at.unwrap_or(newest);
                (trigger, trigger.saturating_sub(ticks(last)), trigger.saturating_add(ticks(next)))
            }
        };
        Ok(Found { trigger, begin, end, sources, bytes_per_second, refused: refused(rings)? })
    }

    /// Directories and containers for the bytes that the rings declare for these ticks.
    fn cut<R: RingStore>(&self, rings: &[R], choices: &RingChoices) -> Result<Cut> {
        let per_second = rings.iter().map(|ring| ring.keyspace().ticks_per_second).max().unwrap_or(1).max(1);
        let seconds = self.end.saturating_sub(self.begin) as f64 / per_second as f64;
        let dirs = choices.dirs.len().max(1);
        let payload = self.bytes_per_second as f64 * seconds / dirs as f64;
        let what = format!("{seconds:.3} s of {} sources on {dirs} devices", self.sources);
        let longest = rings.iter().map(|ring| ring.keyspace().fragment_bytes_max).max().unwrap_or(1);
        let needed = needed(payload * RING_MORE, self.sources.div_ceil(dirs) as u32);
        Cut::new(&choices.dirs, needed, &what, longest, false)
    }
}

/// Fragments that the rings have refused since they were opened.
fn refused<R: RingStore>(rings: &[R]) -> Result<u64> {
    let one = |ring: &R| ring.stats().map(|stats| stats.refused);
    let all = rings.iter().map(one).collect::<Result<Vec<_>>>()?;
    Ok(all.iter().map(|refused| refused.no_space + refused.skew + refused.too_late).sum())
}
