//! The tables: threads × fragment size, as on the poster of the ATLAS test; size of the device operations with one
//! thread, as in DUNE's talk. And the write amplification, counted at the devices.

use super::Measurement;
use super::fio::{Job, Pattern, preallocated};
use super::level::{Level, Payloads, Shape};
use super::writing;
use crate::Result;
use crate::engine::Scratch;

/// Direct I/O wants blocks that are multiples of this on any device; smaller ones fio is not asked for.
const DIRECT_BYTES: usize = 4096;

/// Measures one repetition over fragment sizes.
pub(super) fn fragments(on: &mut Measurement<'_>) -> Result<()> {
    let plan = on.plan;
    let scratch = Scratch::new(&plan.dir)?;
    let file = preallocated(&scratch.path().join("fio"), plan.table_bytes)?;
    let level = Level::create(plan, std::slice::from_ref(&plan.dir), 2 * plan.table_bytes, plan.operation_bytes)?;
    level.wear(&Payloads::new(on.buffer, writing::SHAPE), writing::SHAPE)?;
    on.fio.run(&[Job::once(Pattern::Write, &file, plan.table_bytes, plan.operation_bytes, plan.depth)])?;
    for &bytes in &plan.sizes {
        let shape = Shape { fragments: 16, bytes };
        let payloads = Payloads::new(on.buffer, shape);
        for threads in [1, 2] {
            let before = level.counters();
            let (rate, places) = level.write(&payloads, shape, plan.table_bytes, threads)?;
            on.record(&format!("write.{threads}"), bytes, rate);
            if threads == 1 {
                // Directories belong to it: every container is closed.
                level.level.close()?;
                let payload = (places.len() * shape.event_bytes()) as f64;
                let written = level.counters().bytes_written - before.bytes_written;
                on.record("amplification", bytes, written as f64 / payload);
            }
            level.recycle(places, shape)?;
            if bytes.is_multiple_of(DIRECT_BYTES) {
                let job = Job::once(Pattern::Write, &file, plan.table_bytes, bytes, plan.depth);
                let job = Job { processes: threads as u64, time: Some(plan.fio), ..job };
                on.record(&format!("fio.blocks.{threads}"), bytes, on.fio.run(&[job])?[0].rate);
            }
        }
    }
    Ok(())
}

/// Measures one repetition over sizes of the device operations.
pub(super) fn operations(on: &mut Measurement<'_>) -> Result<()> {
    let plan = on.plan;
    let payloads = Payloads::new(on.buffer, writing::SHAPE);
    let scratch = Scratch::new(&plan.dir)?;
    let file = preallocated(&scratch.path().join("fio"), plan.table_bytes)?;
    on.fio.run(&[Job::once(Pattern::Write, &file, plan.table_bytes, plan.operation_bytes, plan.depth)])?;
    for &bytes in &plan.operation_sizes {
        let level = Level::create(plan, std::slice::from_ref(&plan.dir), plan.table_bytes, bytes)?;
        level.wear(&payloads, writing::SHAPE)?;
        let (rate, _) = level.write(&payloads, writing::SHAPE, plan.table_bytes, 1)?;
        on.record("operation.write", bytes, rate);
        let job = Job::once(Pattern::Write, &file, plan.table_bytes, bytes, plan.depth);
        on.record("operation.fio", bytes, on.fio.run(&[Job { time: Some(plan.fio), ..job }])?[0].rate);
    }
    Ok(())
}
