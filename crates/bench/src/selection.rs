//! `get_any` and accept of single-fragment events, one by one and in batches; then their release.

use super::engine::{Span, create, rate};
use super::options::Plan;
use super::results::Results;
use super::source::{Buffer, Warmth};
use crate::Result;
use forebay_core::Primary;
use forebay_store::{GetAny, Store};

/// Size of the fragments: the rates depend on it little, because accepting reads no payload.
pub(super) const BYTES: usize = 1024;

/// Measures one repetition.
pub(super) fn measure(plan: &Plan, buffer: &Buffer, results: &mut Results) -> Result<()> {
    let mut bench = create(plan, 1)?;
    let events = plan.fragments(BYTES).min(plan.fragments_max / 4);
    let mut taken = Vec::with_capacity(events as usize);
    for batch in [1, 64] {
        let run = bench.new_run(1)?;
        Span::single(run, 0..events).put(&bench.store, &mut buffer.blocks(BYTES, Warmth::Cached, 0, 1))?;
        let store = bench.store.named("select");
        results.record(&format!("select.{batch}"), BYTES, rate(events, || select(&store, events, batch, &mut taken))?);
        let release = || -> Result<()> {
            for primary in &taken {
                if !store.release(primary)? {
                    return Err("an accepted event was not there to be released".into());
                }
            }
            Ok(())
        };
        results.record("release", BYTES, rate(events, release)?);
        taken.clear();
        bench.end_run(run)?;
    }
    Ok(())
}

fn select(store: &Store, events: u64, batch: usize, taken: &mut Vec<Primary>) -> Result<()> {
    let request = GetAny { n: batch, ..GetAny::default() };
    while (taken.len() as u64) < events {
        let leases = store.get_any(&request)?;
        if leases.is_empty() {
            return Err(
                format!("get_any found nothing with {} of {events} events to go", events - taken.len() as u64).into()
            );
        }
        for lease in leases {
            lease.accept(&["physics"])?;
            taken.push(lease.primary);
        }
    }
    Ok(())
}
