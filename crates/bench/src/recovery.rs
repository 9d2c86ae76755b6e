//! Reopening a filled store: fragments indexed per second and core, and payload verified against what memory can read.
//!
//! *Per core* means: by the greater of the wall time and the process's CPU time, so that several threads gain nothing.

use super::engine::{SOURCES, Span, config, create};
use super::options::Plan;
use super::results::Results;
use super::source::{Buffer, Warmth};
use crate::Result;
use forebay_store::Config;

/// Fragment sizes that are measured.
pub(super) const SIZES: [usize; 2] = [1024, 10_240];

/// Measures all repetitions: each reopens the same store without and with verification.
pub(super) fn measure(plan: &Plan, results: &mut Results) -> Result<()> {
    let buffer = Buffer::new(1 << 20);
    for bytes in SIZES {
        let mut bench = create(plan, SOURCES)?;
        let run = bench.new_run(SOURCES)?;
        let span = Span::dense(run, 0..plan.fragments(bytes) / SOURCES);
        span.put(&bench.store, &mut buffer.blocks(bytes, Warmth::Cached, 0, 1))?;
        for _ in 0..plan.repetitions {
            for verify in [false, true] {
                let (again, wall, cpu) = bench.reopen(Config { verify, ..config(plan.hot_bytes) })?;
                bench = again;
                let present = bench.store.stats().events.total().fragments;
                if present != span.fragments() {
                    return Err(format!("{present} of {} fragments after reopening", span.fragments()).into());
                }
                let per_second = present as f64 / wall.max(cpu).as_secs_f64();
                match verify {
                    false => results.record("open.rate", bytes, per_second),
                    true => results.record("open.verify", bytes, per_second * bytes as f64),
                }
            }
        }
        bench.end_run(run)?;
    }
    Ok(())
}
