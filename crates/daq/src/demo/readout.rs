//! A readout thread: owns a share of the sources and puts their fragments, event by event, straight into the store's
//! memory.
//!
//! ```text
//! trigger.wait(event) ─▶ for each of its sources: reserve ─▶ fill (frames) ─▶ commit ─▶ trigger.done(event)
//!     └▶ open_event: the first thread that waits announces what is granted
//! ```
//!
//! *Invariants*: a granted event is produced by every thread, with all of its sources; each offer is
//! counted by a producer of the run, so that the ledger has something to be held against. A fragment for which
//! there is no space is offered again until it is stored. Only after the time for draining is over does the thread give up, and says so.

use super::plan::RUN;
use super::shared::DemoShared;
use super::trigger::Port;
use crate::meter::{Latency, Meter};
use crate::threads::Together;
use forebay_core::{Error, Kind, Result};
use forebay_store::{OpenEvent, Producer, PutOptions, PutOutcome, Store};
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
pub(crate) fn run(shared: &DemoShared<'_>, thread: usize) -> Result<ReadoutReport> {
    shared.guarded(|| produce(shared, &shared.store.named(&format!("readout-{thread}")), thread))
}

fn produce(shared: &DemoShared<'_>, store: &Store, thread: usize) -> Result<ReadoutReport> {
    let plan = shared.plan;
    let mut report = ReadoutReport { put: Latency::new()?, full: Duration::ZERO, full_answers: 0, gave_up: None };
    let inhibit = || shared.inhibit.lock().wait_change(Duration::ZERO);
    let announce = |event: u64| announce(shared, store, event);
    let port = Port { inhibit: &inhibit, announce: &announce };
    let producer = store.producer(RUN, &format!("readout-{thread}"))?;
    let step = plan.config.readout_threads;
    let mut event = 1;
    while shared.trigger.wait(event, &port)? {
        let mut fragments = 0;
        for source in (thread as u32..plan.config.sources).step_by(step) {
            if !put(shared, store, &producer, (event, source), &mut report)? {
                producer.finish()?;
                return Ok(report);
            }
            fragments += 1;
        }
        let meter = &shared.put[thread];
        Meter::count(&meter.fragments, fragments);
        Meter::count(&meter.bytes, fragments * plan.fragment_bytes as u64);
        // Thread 0 counts events: every thread has its part in each.
        Meter::count(&meter.events, u64::from(thread == 0));
        // Last: the window moves on once all threads have put their part.
        shared.trigger.done(thread, event);
        event += 1;
    }
    producer.finish()?;
    Ok(report)
}

/// Announces an event; `false` where there is no space for it now.
fn announce(shared: &DemoShared<'_>, store: &Store, event: u64) -> Result<bool> {
    let plan = shared.plan;
    let primary = plan.schema.primary(&[RUN, event])?;
    match store.open_event(&primary, &OpenEvent { sources: None, attributes: None }) {
        Ok(PutOutcome::Stored) => {
            shared.announced();
            Ok(true)
        }
        Ok(other) => Err(Error::internal(format!("the announcement of event {event} was answered {other:?}"))),
        // The trigger counts this as dead time and tries again: the event is not granted until it is announced.
        Err(error) if error.kind() == Kind::Full => Ok(false),
        Err(error) => Err(error),
    }
}

/// Stores one fragment, however long the store is full; `false` where it was given up.
fn put(
    shared: &DemoShared<'_>,
    store: &Store,
    producer: &Producer,
    (event, source): (u64, u32),
    report: &mut ReadoutReport,
) -> Result<bool> {
    let plan = shared.plan;
    let key = plan.schema.key(&[RUN, event, source.into()])?;
    let once = || -> Result<PutOutcome> {
        // Filled in place, as a detector link would write into the store's memory.
        let mut memory = store.reserve(&key, plan.fragment_bytes, &PutOptions::default())?;
        plan.frames.fill(event, source, &mut memory);
        memory.commit()
    };
    loop {
        let start = Instant::now();
        producer.offered(plan.fragment_bytes as u64);
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
