//! A store of which everything is demoted: the memory that this takes, and reopening it.
//!
//! Events have one fragment of 64 bytes. Half of them were accepted before they went down, so that their images say so; a
//! tenth of the others is accepted on the warm level, so that the device's decision log says so.

use super::options::Plan;
use crate::Result;
use crate::engine::{Scratch, config};
use crate::results::Results;
use forebay_core::{Completeness, Keyspace, Level, RunConfig};
use forebay_store::{Config, GetAny, PutOptions, Sources, Store, WarmDevice};
use std::time::{Duration, Instant};

const RUN: u64 = 1;
const BYTES: usize = 64;
/// Events in one call of the selection.
const BATCH: u64 = 512;
/// Openings of each store.
const OPENINGS: usize = 3;
/// How long everything may take to be on the device.
const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes on the device for an event: image, directory, and what is open.
const DEVICE_BYTES: u64 = 512;

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
    let mut keyspace = Keyspace::events("bench", 1);
    keyspace.run.complete_within = Duration::from_secs(3600);
    let containers = (events * DEVICE_BYTES).div_ceil(plan.container_bytes) + 8;
    let log_bytes = (events * 48).next_multiple_of(4096).clamp(1 << 20, 1 << 30);
    let config = Config {
        warm: vec![WarmDevice::directory(
            scratch.path().join("warm"),
            containers * plan.container_bytes + 2 * log_bytes + (1 << 20),
        )],
        container_bytes: plan.container_bytes,
        device_log_bytes: log_bytes,
        demote_high: 0.001,
        demote_low: 0.0,
        ..config(if plan.smoke { 64 << 20 } else { 1 << 30 })
    };
    let dir = scratch.path().join("store");
    let store = Store::create(&dir, &keyspace, config.clone())?;
    let before = heap_bytes(&store);
    store.run_open(RUN, &RunConfig::new(Completeness::Count(1), Duration::from_secs(3600)))?;
    let payload = [0x5A; BYTES];
    for first in (0..events).step_by(BATCH as usize) {
        let last = (first + BATCH).min(events);
        for event in first..last {
            let _ = store.put(&store.schema().key(&[RUN, event, 0])?, &payload, &PutOptions::default())?;
        }
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

/// Waits until nothing is on its way down and next to nothing is left to go.
fn wait_for_demotion(store: &Store) -> Result<()> {
    let (from, mut known, mut since) = (Instant::now(), 0, Instant::now());
    loop {
        let warm = store.warm_stats().ok_or("a store with a warm level")?;
        if warm.demoted_events != known {
            (known, since) = (warm.demoted_events, Instant::now());
        }
        if warm.in_flight_bytes == 0 && since.elapsed() > Duration::from_millis(500) {
            return Ok(());
        }
        if from.elapsed() > PATIENCE {
            return Err(format!("{known} events demoted after {} s: {:?}", PATIENCE.as_secs(), warm.notes).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
