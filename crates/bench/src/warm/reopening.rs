//! A store of which everything is demoted: the memory that this takes, and reopening it.
//!
//! Events have one fragment of 64 bytes. Half of them were accepted before they went down, so that their images say so; a
//! tenth of the others is accepted on the warm level, so that the device's decision log says so.

use super::demoted::{BYTES, RUN, demoting, put, wait_for_demotion};
use super::options::Plan;
use crate::Result;
use crate::engine::Scratch;
use crate::results::Results;
use forebay_core::{Completeness, Level, RunConfig};
use forebay_store::{GetAny, Sources, Store};
use std::time::{Duration, Instant};

/// Events in one call of the selection.
const BATCH: u64 = 512;
/// Openings of each store.
const OPENINGS: usize = 3;
/// Measures a tenth of the events, and all of them.
pub(super) fn measure(plan: &Plan, results: &mut Results) -> Result<()> {
    let tenth = one(plan, plan.reopen_events / 10, "open.tenth", results)?;
    let all = one(plan, plan.reopen_events, "open.all", results)?;
    results.record("open.proportion", BYTES, all / tenth);
    Ok(())
}

/// Answers seconds per event, the median of the openings.
fn one(plan: &Plan, events: u64, series: &str, results: &mut Results) -> Result<f64> {
    let scratch = Scratch::new(&plan.dir)?;
    let (dir, keyspace, config) = demoting(plan, &scratch, events);
    let store = Store::create(&dir, &keyspace, config.clone())?;
    let before = heap_bytes(&store);
    store.run_open(RUN, &RunConfig::new(Completeness::Count(1), Duration::from_secs(3600)))?;
    for first in (0..events).step_by(BATCH as usize) {
        let last = (first + BATCH).min(events);
        put(&store, first..last)?;
        accept(&store, ((last - first) / 2) as usize, Level::Hot)?;
    }
    wait_for_demotion(&store)?;
    results.record("memory.event", BYTES, (heap_bytes(&store) - before) as f64 / events as f64);
    for _ in 0..events.div_ceil(BATCH * 20) {
        accept(&store, BATCH as usize, Level::Warm)?;
    }
    wait_for_demotion(&store)?;
    let ledger = store.ledger(RUN)?;
    store.close()?;
    drop(store);
    let mut openings = Vec::new();
    for _ in 0..OPENINGS {
        let from = Instant::now();
        let store = Store::open(&dir, config.clone())?;
        let seconds = from.elapsed().as_secs_f64();
        if store.ledger(RUN)?.live != ledger.live {
            return Err(format!("{events} demoted events: reopened with {:?}", store.ledger(RUN)?.live).into());
        }
        store.close()?;
        results.record(series, BYTES, seconds);
        openings.push(seconds / events as f64);
    }
    openings.sort_by(f64::total_cmp);
    Ok(openings[OPENINGS / 2])
}

/// What the store counts beyond its region that grows with the data.
fn heap_bytes(store: &Store) -> u64 {
    let memory = store.stats().memory;
    memory.nodes + memory.leaves + memory.tables + memory.leases + memory.decided
}

fn accept(store: &Store, most: usize, level: Level) -> Result<()> {
    let wanted = GetAny { n: most, level: Some(level), sources: Sources::None, ..GetAny::default() };
    for lease in store.get_any(&wanted)? {
        lease.accept(&["physics"])?;
    }
    Ok(())
}
