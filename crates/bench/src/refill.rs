//! Fill, remove everything, fill again: the whole capacity must come back every time.

use super::engine::{Bench, SOURCES, Span};
use super::options::Plan;
use super::results::Results;
use super::source::{Buffer, Warmth};
use crate::Result;

/// Size of the fragments.
pub(super) const BYTES: usize = 1024;
/// Region: every round writes all of it, so it is smaller than that of the rates.
const REGION_BYTES: u64 = 512 << 20;

/// Fills and empties one store again and again.
pub(super) fn measure(plan: &Plan, results: &mut Results) -> Result<()> {
    let region = REGION_BYTES.min(plan.hot_bytes);
    let buffer = Buffer::new(1 << 20);
    let mut bench = Bench::create(&plan.dir, region, SOURCES)?;
    let mut blocks = buffer.blocks(BYTES, Warmth::Cached, 0, 1);
    let more_than_fits = region / BYTES as u64 / SOURCES + 1;
    for round in 0..plan.refills {
        let run = bench.new_run(SOURCES)?;
        let stored = Span::dense(run, 0..more_than_fits).put_until_full(&bench.store, &mut blocks)?;
        results.record(if round == 0 { "refill.first" } else { "refill.later" }, BYTES, stored as f64);
        bench.end_run(run)?;
        // The next fill shows the free space only after reclaiming has ended.
        bench.wait_for_rest()?;
    }
    let segment_bytes = bench.store.stats().segment_bytes;
    results.record("refill.segment", BYTES, (segment_bytes / BYTES as u64) as f64);
    Ok(())
}
