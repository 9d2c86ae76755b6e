//! A readout thread: owns a share of the sources and puts their fragments, event by event, straight into the store's
//! memory.
//!
//! ```text
//! trigger.wait(event) ─▶ for each of its sources: reserve ─▶ fill (frames) ─▶ commit ─▶ trigger.done(event)
//! ```
//!
//! *Invariants*: a granted event is produced by every thread; a fragment for which there is no space is offered again until
//! it is stored. Only after the time for draining is over does the thread give up, and says so.

use super::meter::{Latency, Meter};
use super::plan::RUN;
use super::shared::{AbortOnPanic, Shared};
use forebay_core::{Error, Kind, Result};
use forebay_store::{PutOptions, PutOutcome, Store};
use std::time::{Duration, Instant};

/// Between two tries where a put finds no space.
const RETRY: Duration = Duration::from_millis(1);

/// What a readout thread has to say at its end.
pub(crate) struct ReadoutReport {
    /// Reserve, fill and commit of one fragment, waits for space included.
    pub(crate) put: Latency,
    /// Time lost to puts that were answered `Full`.
    pub(crate) full: Duration,
    /// Such answers; each was tried again.
    pub(crate) full_answers: u64,
    /// Set where a fragment was given up.
    pub(crate) gave_up: Option<String>,
}

/// The body of a readout thread; a failure ends the demo.
pub(crate) fn run(shared: &Shared<'_>, thread: usize) -> Result<ReadoutReport> {
    let _abort = AbortOnPanic(shared);
    let store = shared.store.named(&format!("readout-{thread}"));
    produce(shared, &store, thread).inspect_err(|_| shared.abort())
}

fn produce(shared: &Shared<'_>, store: &Store, thread: usize) -> Result<ReadoutReport> {
    let plan = shared.plan;
    let mut report = ReadoutReport { put: Latency::new()?, full: Duration::ZERO, full_answers: 0, gave_up: None };
    let inhibit = || store.stats().inhibit.map(|inhibit| (inhibit.owner, inhibit.cause));
    let step = plan.config.readout_threads;
    let mut event = 1;
    while shared.trigger.wait(event, &inhibit) {
        let mut fragments = 0;
        for source in (thread as u32..plan.config.sources).step_by(step) {
            if !put(shared, store, event, source, &mut report)? {
                return Ok(report);
            }
            fragments += 1;
        }
        let meter = &shared.put[thread];
        Meter::count(&meter.fragments, fragments);
        Meter::count(&meter.bytes, fragments * plan.fragment_bytes as u64);
        // Thread 0 counts events: every thread has its part in each.
        Meter::count(&meter.events, u64::from(thread == 0));
        shared.trigger.done(thread, event);
        event += 1;
    }
    Ok(report)
}

/// Stores one fragment, however long the store is full; `false` where it was given up.
fn put(shared: &Shared<'_>, store: &Store, event: u64, source: u32, report: &mut ReadoutReport) -> Result<bool> {
    let plan = shared.plan;
    let key = plan.schema.key(&[RUN, event, source.into()])?;
    let once = || -> Result<PutOutcome> {
        let mut memory = store.reserve(&key, plan.fragment_bytes, &PutOptions::default())?;
        plan.frames.fill(event, source, &mut memory);
        memory.commit()
    };
    loop {
        let start = Instant::now();
        match once() {
            Ok(PutOutcome::Stored) => {
                report.put.record(start);
                return Ok(true);
            }
            Ok(other) => {
                let name = plan.schema.text(key.as_bytes());
                return Err(Error::internal(format!("the first put of {name} was answered {other:?}")));
            }
            Err(error) if error.kind() == Kind::Full => {
                if shared.gives_up() {
                    let name = plan.schema.text(key.as_bytes());
                    report.gave_up = Some(format!("the readout gave up {name}: {}", error.message()));
                    return Ok(false);
                }
                std::thread::sleep(RETRY);
                report.full += start.elapsed();
                report.full_answers += 1;
            }
            Err(error) => return Err(error),
        }
    }
}
