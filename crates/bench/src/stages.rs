//! A selection in two stages on two threads, each doing both: `fast` reads one source of ten and passes one event of ten,
//! `final` reads everything and accepts; the events are released at once. All events are put before the measurement, which
//! counts decided events per second.

use super::engine::{Bench, Span, try_side_by_side};
use super::options::Plan;
use super::results::Results;
use super::source::{Buffer, Warmth};
use crate::Result;
use forebay_core::Keyspace;
use forebay_store::{GetAny, Sources, Store};
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of the fragments: small.
pub(super) const BYTES: usize = 64;
/// Fragments of one event.
const SOURCES: u64 = 10;
/// One event in this many is passed.
const PASSED_OF: u64 = 10;
const BATCH: usize = 64;

/// Measures one repetition.
pub(super) fn measure(plan: &Plan, buffer: &Buffer, results: &mut Results) -> Result<()> {
    let mut keyspace = Keyspace::events("stages", SOURCES as u32).opening_runs();
    keyspace.stages = vec!["fast".to_owned(), "final".to_owned()];
    let mut bench = Bench::of(&plan.dir, plan.hot_bytes, keyspace)?;
    let run = bench.new_run(SOURCES)?;
    // Each event keeps slots of the decision log free for every stage, which for events this small is a lot.
    let events = plan.fragments(BYTES) / SOURCES / 2;
    let span = Span { sources: 0..SOURCES, ..Span::single(run, 0..events) };
    span.put(&bench.store, &mut buffer.blocks(BYTES, Warmth::Cached, 0, 1))?;
    let left = AtomicU64::new(events);
    let per_second = try_side_by_side(vec![0, 1], |thread| {
        let worker = Worker::new(&bench.store.named(&format!("worker-{thread}")))?;
        let done = worker.work(&left);
        if done.is_err() {
            // The other thread must not wait for events of this one.
            left.store(0, Ordering::Relaxed);
        }
        done
    })?;
    results.record("stages.2", BYTES, per_second);
    let ledger = bench.store.ledger(run)?;
    let passed = events.div_ceil(PASSED_OF);
    if (ledger.released.events, ledger.rejected.events) != (passed, events - passed) {
        return Err(format!("{} released, {} rejected", ledger.released.events, ledger.rejected.events).into());
    }
    bench.end_run(run)
}

struct Worker {
    store: Store,
    fast: GetAny,
    last: GetAny,
}

impl Worker {
    fn new(store: &Store) -> Result<Worker> {
        let stage =
            |name: &str, sources| GetAny { n: BATCH, stage: Some(name.to_owned()), sources, ..GetAny::default() };
        let few = Sources::only(store.schema(), [0])?;
        Ok(Worker { store: store.clone(), fast: stage("fast", few), last: stage("final", Sources::All) })
    }

    /// Decides events until none is left; yields how many it decided.
    fn work(&self, left: &AtomicU64) -> Result<u64> {
        let mut decided = 0;
        while left.load(Ordering::Relaxed) > 0 {
            let now = self.fast()? + self.last()?;
            decided += now;
            // Where an error of the other thread has set it to nothing, it stays about there.
            let _ = left.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(now)));
            if now == 0 {
                std::hint::spin_loop();
            }
        }
        Ok(decided)
    }

    fn fast(&self) -> Result<u64> {
        let mut rejected = 0;
        for lease in self.store.get_any(&self.fast)? {
            if lease.fragments.len() != 1 {
                return Err(format!("{} fragments where one was asked for", lease.fragments.len()).into());
            }
            if self.store.schema().values(lease.primary.as_bytes())[1].is_multiple_of(PASSED_OF) {
                lease.pass("final", &[])?;
            } else {
                lease.reject()?;
                rejected += 1;
            }
        }
        Ok(rejected)
    }

    fn last(&self) -> Result<u64> {
        let leases = self.store.get_any(&self.last)?;
        for lease in &leases {
            if lease.fragments.len() != SOURCES as usize {
                return Err(format!("{} fragments where {SOURCES} are", lease.fragments.len()).into());
            }
            lease.accept(&["physics"])?;
            if !self.store.release(&lease.primary)? {
                return Err("an accepted event was not there to be released".into());
            }
        }
        Ok(leases.len() as u64)
    }
}
