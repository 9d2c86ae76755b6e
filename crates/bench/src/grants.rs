//! `get_any` alone: 64 events in one call against 64 calls for one event each, in turn on the same store. Verdicts fall
//! between the measurements.

use super::engine::{Span, create};
use super::options::Plan;
use super::results::Results;
use super::selection::BYTES;
use super::source::{Buffer, Warmth};
use crate::Result;
use forebay_store::{GetAny, Lease, Store};
use std::time::{Duration, Instant};

const BATCH: usize = 64;

/// Measures one repetition.
pub(super) fn measure(plan: &Plan, buffer: &Buffer, results: &mut Results) -> Result<()> {
    let mut bench = create(plan, 1)?;
    let rounds = plan.fragments(BYTES).min(plan.fragments_max / 4) / (2 * BATCH as u64);
    let run = bench.new_run(1)?;
    let events = 0..rounds * 2 * BATCH as u64;
    Span::single(run, events).put(&bench.store, &mut buffer.blocks(BYTES, Warmth::Cached, 0, 1))?;
    let store = bench.store.named("select");
    let (mut single, mut batched) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..rounds {
        single += granted(&store, 1)?;
        batched += granted(&store, BATCH)?;
    }
    for (id, time) in [("grant.1", single), ("grant.64", batched)] {
        results.record(id, BYTES, (rounds * BATCH as u64) as f64 / time.as_secs_f64());
    }
    bench.end_run(run)
}

/// Time of the calls that lease `BATCH` events, `each` per call; the rejects after them are not timed.
fn granted(store: &Store, each: usize) -> Result<Duration> {
    let request = GetAny { n: each, ..GetAny::default() };
    let mut calls: Vec<Vec<Lease>> = Vec::with_capacity(BATCH);
    let from = Instant::now();
    for _ in 0..BATCH / each {
        calls.push(store.get_any(&request)?);
    }
    let time = from.elapsed();
    if calls.iter().any(|leases| leases.len() != each) {
        return Err(format!("get_any of {each} events found fewer").into());
    }
    for lease in calls.iter().flatten() {
        lease.reject()?;
    }
    Ok(time)
}
