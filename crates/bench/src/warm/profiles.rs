//! Events of known experiments streamed in and out, however much larger than a device operation they are.

use super::Measurement;
use super::fio::{Fio, Job, Pattern, preallocated};
use super::level::{Level, Payloads, Shape};
use crate::Result;
use crate::engine::Scratch;

/// Threads that read whole events, and operations that fio has in flight.
const READERS: usize = 4;

/// Measures one repetition.
pub(super) fn measure(on: &mut Measurement<'_>) -> Result<()> {
    let plan = on.plan;
    // In small, an event of lead on lead would not fit into a container.
    let pbpb = if plan.smoke { 17_300 } else { 173_000 };
    for (id, bytes) in [("pp", 5000), ("pbpb", pbpb)] {
        let shape = Shape { fragments: 500, bytes };
        let payloads = Payloads::new(on.buffer, shape);
        let scratch = Scratch::new(&plan.dir)?;
        let file = preallocated(&scratch.path().join("fio"), plan.write_bytes)?;
        let job = |pattern, depth| Job::once(pattern, &file, plan.write_bytes, plan.operation_bytes, depth);
        on.fio.run(&[job(Pattern::Write, plan.depth)])?;
        // Large events leave the ends of containers empty.
        let level = Level::create(plan, std::slice::from_ref(&plan.dir), 2 * plan.write_bytes, plan.operation_bytes)?;
        level.wear(&payloads, shape)?;

        let bytes = shape.event_bytes();
        let mut places = Vec::new();
        let fio = |fio: &Fio| Ok(fio.run(&[job(Pattern::Write, plan.depth)])?[0].rate);
        let write = || {
            level.recycle(std::mem::take(&mut places), shape)?;
            let (rate, written) = level.write(&payloads, shape, plan.write_bytes, 1)?;
            places = written;
            Ok(rate)
        };
        on.beside(|word| format!("{id}.write.{word}"), bytes, fio, write)?;
        let fio = |fio: &Fio| Ok(fio.run(&[job(Pattern::Read, READERS)])?[0].rate);
        let read = || level.read(&places, shape, READERS, false);
        on.beside(|word| format!("{id}.read.{word}"), bytes, fio, read)?;
    }
    Ok(())
}
