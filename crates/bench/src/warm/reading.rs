//! Whole events read back in random order against fio's random read, and how many device operations each took.

use super::Measurement;
use super::fio::{Job, Pattern, preallocated};
use super::level::{Level, Payloads, Shape, shuffled};
use crate::Result;
use crate::engine::Scratch;

/// Events of 1 MiB.
pub(super) const SHAPE: Shape = Shape { fragments: 16, bytes: 64 << 10 };

/// Measures one repetition.
pub(super) fn measure(on: &mut Measurement<'_>) -> Result<()> {
    let plan = on.plan;
    let payloads = Payloads::new(on.buffer, SHAPE);
    let scratch = Scratch::new(&plan.dir)?;
    let file = preallocated(&scratch.path().join("fio"), plan.write_bytes)?;
    // Blocks that were never written are read without the device.
    on.fio.run(&[Job::once(Pattern::Write, &file, plan.write_bytes, plan.operation_bytes, plan.depth)])?;
    let level = Level::create(plan, std::slice::from_ref(&plan.dir), plan.write_bytes, plan.operation_bytes)?;
    let (_, places) = level.write(&payloads, SHAPE, plan.write_bytes, 1)?;
    let places = shuffled(places);
    for &threads in &plan.readers {
        let job = || Job::once(Pattern::RandomRead, &file, plan.write_bytes, SHAPE.event_bytes(), threads);
        let id = |word: &str| format!("read.{word}.{threads}");
        let before = level.counters();
        on.beside(
            id,
            SHAPE.event_bytes(),
            |fio| Ok(fio.run(&[job()])?[0].rate),
            || level.read(&places, SHAPE, threads, false),
        )?;
        let operations = level.counters().reads - before.reads;
        on.record("read.operations", SHAPE.event_bytes(), operations as f64 / (2 * places.len()) as f64);
        let rate = level.read(&places, SHAPE, threads, true)?;
        on.record(&format!("read.verified.{threads}"), SHAPE.event_bytes(), rate);
    }
    Ok(())
}
