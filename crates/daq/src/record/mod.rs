//! Recording links: emulated or replayed frames at their real rate, straight to containers, and playing them back.
//!
//! ```text
//! links ─readout threads─▶ Recording (forebay-store) ─one thread per device─▶ containers, manifest
//! rings: of others, in directories or on servers ─trigger─▶ one range of ticks of all ─▶ Recording
//! ring:  links ─▶ ring (forebay-store) ─trigger─▶ its last seconds and the next ─▶ Recording
//! play:  containers ─window─▶ frames in time order ─▶ checks against frames and manifest, file
//! ```
//!
//! *Invariants*: every frame of every link is recorded or missed with a reason (daq/tests/record.rs).
//!
//! *Not here*: containers, manifests (`forebay-store`); the command line.

mod check;
mod config;
mod play;
mod readout;
mod retro;
mod rings;
mod shared;

pub use check::FrameChecker;
pub use config::{RecordChoices, RecordDir, Retroactive};
pub use play::{PlayChoices, PlayLink, PlaySummary, PlayWindow, play};
pub use retro::RetroSummary;
pub use rings::{RingChoices, RingSpan, record_rings};

use crate::limits::LOOK;
use crate::progress::{Figure, Figures, Phase, Reporter, Told};
use crate::scenario::Summary;
use crate::threads::{EndThreads, Failures, Together, spawn};
use config::Plan;
use forebay_core::Result;
use forebay_recorder::{GapManifest, GapReason, Recording, RecordingDevice, RecordingLink, RecordingProgress};
use parking_lot::Mutex;
use serde::Serialize;
use shared::RecordShared;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a recording was, at its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordSummary {
    /// Seconds from the first frame to the last.
    pub seconds: f64,
    /// Seconds until everything was durable and the manifest written.
    pub seconds_to_durable: f64,
    /// Durable payload over that time, in 10⁶ bytes per second.
    pub mb_per_second: f64,
    /// How the devices were written, each once.
    pub methods: Vec<String>,
    /// It was stopped before its time.
    pub stopped: bool,
    /// As fast as the devices went: why that ended early.
    pub ended: Option<GapReason>,
    /// Where a ring was recorded: its trigger.
    pub retroactive: Option<RetroSummary>,
    /// The account.
    pub manifest: GapManifest,
}

impl Summary for RecordSummary {
    fn claim(&self) -> &'static str {
        "complete: every frame is recorded"
    }

    fn problems(&self) -> Vec<String> {
        let missed = self.manifest.totals.missed;
        if self.manifest.is_complete() {
            Vec::new()
        } else {
            vec![format!("{missed} frames missed; the manifest says why")]
        }
    }

    fn is_judged_when_stopped(&self) -> bool {
        false
    }
}

/// Records. `told` is called about twice a second, on the calling thread; setting `stop` ends it with a manifest, as at
/// the end of the time asked.
///
/// # Errors
/// `Invalid` for choices that cannot work, `Full` where a directory has not the room, and the errors of the recording.
/// Frames that were missed are not an error: they are in the manifest.
pub fn run(choices: &RecordChoices, stop: &AtomicBool, told: &mut Told<'_>) -> Result<RecordSummary> {
    let plan = Plan::new(choices)?;
    if let Some(window) = &choices.retroactive {
        return retro::run(&plan, window, stop, told);
    }
    let recording = Recording::create(&plan.dirs, plan.config.clone())?;
    let links = recording.links((0..plan.choices.links).map(|link| plan.link(link)).collect())?;
    let shared = RecordShared::new(&plan, stop);
    read_out(&shared, &recording, links, told)?;
    let seconds = shared.start.elapsed().as_secs_f64();
    // What was pushed is durable, and the manifest written, only after this: the rate counts the time that it takes.
    let manifest = recording.finish()?;
    let seconds_to_durable = shared.start.elapsed().as_secs_f64();
    Ok(RecordSummary {
        seconds,
        seconds_to_durable,
        mb_per_second: manifest.totals.recorded_bytes as f64 / seconds_to_durable / 1e6,
        methods: methods(manifest.devices.iter().map(|device| device.method.as_str())),
        stopped: stop.load(Ordering::Relaxed),
        ended: shared.ended(),
        retroactive: None,
        manifest,
    })
}

fn read_out(
    shared: &RecordShared<'_>,
    recording: &Recording,
    links: Vec<RecordingLink>,
    told: &mut Told<'_>,
) -> Result<()> {
    let threads = shared.plan.choices.threads;
    let mut shares: Vec<Mutex<Vec<RecordingLink>>> = (0..threads).map(|_| Mutex::default()).collect();
    for (at, link) in links.into_iter().enumerate() {
        shares[at % threads].get_mut().push(link);
    }
    let shares = &shares;
    let mut reporter = Reporter::new(told);
    std::thread::scope(|scope| {
        let _end = EndThreads(shared);
        let body = |thread: usize| {
            let links = std::mem::take(&mut *shares[thread].lock());
            shared.guarded(|| readout::run(shared, links))
        };
        let readers = spawn(scope, "readout", threads, body)?;
        while !readers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(LOOK);
            reporter.tick(Phase::Taking, |figures| tell(figures, &recording.progress(), None));
        }
        let mut failures = Failures::default();
        failures.join(readers);
        failures.result()
    })
}

/// How it is going.
fn tell(figures: &mut Figures<'_>, progress: &RecordingProgress, trouble: Option<String>) {
    figures.byte_rate("written", progress.recorded_bytes);
    figures.set("in all", Figure::Bytes(progress.recorded_bytes));
    figures.set("missed", Figure::Count(progress.missed));
    let methods = methods(progress.devices.iter().map(|device| device.method.as_str()));
    figures.set("by", Figure::Words(methods.join("; ")));
    for trouble in progress.devices.iter().filter_map(of_device).chain(trouble) {
        figures.set("TROUBLE", Figure::Words(trouble));
    }
}

/// Each method once, in their order.
fn methods<'a>(all: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut methods: Vec<String> = Vec::new();
    for method in all {
        if !methods.iter().any(|known| known == method) {
            methods.push(method.to_owned());
        }
    }
    methods
}

fn of_device(device: &RecordingDevice) -> Option<String> {
    match &device.failure {
        Some(failure) => Some(format!("{}: {failure}", device.directory)),
        None if device.stalled => Some(format!("{}: stalled", device.directory)),
        None => None,
    }
}
