//! Many demoted events without a decision: no put is refused, verdicts on them succeed, and snapshots of the decision log
//! delay these verdicts little.
//!
//! Verdicts run in turn with continuous snapshots and without. Each verdict waits for the device. Few threads give them, so
//! that processor time is left and a wait shows the effect of a snapshot, not the queue for the processor.

use super::demoted::{BYTES, RUN, demoting, put, wait_for_demotion};
use super::options::Plan;
use crate::Result;
use crate::engine::Scratch;
use crate::results::Results;
use forebay_core::{Completeness, Level, RunConfig};
use forebay_store::{GetAny, Sources, Store, measure};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Threads that give verdicts, and events in one call of the selection.
const FILTERS: usize = 8;
const BATCH: usize = 64;
/// Turns with snapshots, as many without, and verdicts of each.
const TURNS: u64 = 3;
const VERDICTS: u64 = 80_000;

/// Puts and demotes all events, then decides some of them in two halves.
pub(super) fn measure(plan: &Plan, results: &mut Results) -> Result<()> {
    let scratch = Scratch::new(&plan.dir)?;
    let events = plan.reopen_events;
    let (dir, keyspace, config) = demoting(plan, &scratch, events);
    let store = Store::create(&dir, &keyspace, config)?;
    store.run_open(RUN, &RunConfig::new(Completeness::Count(1), Duration::from_secs(3600)))?;
    put(&store, 0..events)?;
    wait_for_demotion(&store)?;
    let warm = store.ledger(RUN)?.live.ready.events;
    if warm != events {
        return Err(format!("{warm} of {events} events wait for a verdict").into());
    }
    let verdicts = VERDICTS.min(events / (2 * TURNS));
    let mut halves = [("folding", true), ("quiet", false)].map(|half| (half, Vec::new(), 0.0));
    for _ in 0..TURNS {
        for ((_, folding), waits, seconds) in &mut halves {
            let decided = decide(&store, verdicts, *folding, results)?;
            waits.extend(decided.waits);
            *seconds += decided.seconds;
        }
    }
    for ((half, _), mut waits, seconds) in halves {
        waits.sort_unstable();
        let at = |share: f64| f64::from(waits[((waits.len() - 1) as f64 * share) as usize]);
        results.record(&format!("undecided.rate.{half}"), BYTES, waits.len() as f64 / seconds);
        results.record(&format!("undecided.median.{half}"), BYTES, at(0.5));
        results.record(&format!("undecided.rare.{half}"), BYTES, at(0.999));
        results.record(&format!("undecided.longest.{half}"), BYTES, at(1.0));
    }
    let left = store.ledger(RUN)?.live.ready.events;
    if left != events - 2 * TURNS * verdicts {
        return Err(format!("{left} of {events} events are left after {TURNS} times {verdicts} verdicts twice").into());
    }
    store.close()?;
    Ok(())
}

struct Decided {
    /// Microseconds of each verdict.
    waits: Vec<u32>,
    seconds: f64,
}

/// Decides `count` events and accepts half of them; with `folding`, snapshots are taken at the same time.
fn decide(store: &Store, count: u64, folding: bool, results: &mut Results) -> Result<Decided> {
    let (left, ended) = (AtomicU64::new(count), AtomicBool::new(false));
    let began = Instant::now();
    let filter = || -> Result<Vec<u32>> {
        let mut waits = Vec::new();
        loop {
            let take = left.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                (left > 0).then(|| left.saturating_sub(BATCH as u64))
            });
            let Ok(before) = take else { return Ok(waits) };
            let n = before.min(BATCH as u64) as usize;
            let wanted = GetAny { n, level: Some(Level::Warm), sources: Sources::None, ..GetAny::default() };
            for (number, lease) in store.get_any(&wanted)?.into_iter().enumerate() {
                let from = Instant::now();
                if number % 2 == 0 {
                    lease.accept(&["physics"])?
                } else {
                    lease.reject()?
                }
                waits.push(from.elapsed().as_micros() as u32);
            }
        }
    };
    let fold = || -> Result<Vec<(f64, usize)>> {
        let mut folds = Vec::new();
        while folding && !ended.load(Ordering::Relaxed) {
            let from = Instant::now();
            let bytes = measure::take_snapshot(store)?;
            folds.push((from.elapsed().as_secs_f64(), bytes));
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(folds)
    };
    let (waits, folds) = std::thread::scope(|scope| {
        let folds = scope.spawn(fold);
        let filters: Vec<_> = (0..FILTERS).map(|_| scope.spawn(filter)).collect();
        let waits: Vec<_> = filters.into_iter().map(|filter| filter.join()).collect();
        ended.store(true, Ordering::Relaxed);
        (waits, folds.join())
    });
    let seconds = began.elapsed().as_secs_f64();
    for (seconds, bytes) in folds.map_err(|_| "the folding thread panicked")?? {
        results.record("undecided.fold", BYTES, seconds);
        results.record("undecided.snapshot", BYTES, bytes as f64);
    }
    let mut all = Vec::new();
    for waits in waits {
        all.extend(waits.map_err(|_| "a filter panicked")??);
    }
    Ok(Decided { waits: all, seconds })
}
