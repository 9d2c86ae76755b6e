//! Sequential writing by one thread against fio, and what it costs of the processor.
//!
//! Each repetition: files and containers never written before, then the same ones again.
//!
//! *CPU* is the whole process's, kernel and workers of io_uring included, by bytes of payload; the copy with its
//! checksum is measured bare in the same repetition and taken off.

use super::Measurement;
use super::fio::{Fio, Job, Pattern, preallocated};
use super::level::{Level, Payloads, Shape};
use crate::Result;
use crate::engine::{Scratch, cpu_time};
use forebay_store::measure::copy_bare;
use std::time::Duration;

pub(super) const SHAPE: Shape = Shape { fragments: 16, bytes: 10 << 10 };

/// Measures one repetition.
pub(super) fn measure(on: &mut Measurement<'_>, repetition: usize) -> Result<()> {
    let plan = on.plan;
    let payloads = Payloads::new(on.buffer, SHAPE);
    let scratch = Scratch::new(&plan.dir)?;
    let file = preallocated(&scratch.path().join("fio"), plan.write_bytes)?;
    let level = Level::create(plan, std::slice::from_ref(&plan.dir), plan.write_bytes, plan.operation_bytes)?;
    let job = || Job::once(Pattern::Write, &file, plan.write_bytes, plan.operation_bytes, plan.depth);

    // Never written before: one pass each, in turn first.
    let mut fio = None;
    if repetition % 2 == 1 {
        fio = Some(on.fio.run(&[job()])?[0]);
    }
    let (rate, places) = level.write(&payloads, SHAPE, plan.write_bytes, 1)?;
    let fio = match fio {
        Some(fio) => fio,
        None => on.fio.run(&[job()])?[0],
    };
    on.record("first.fio", SHAPE.bytes, fio.rate);
    on.record("first.warm", SHAPE.bytes, rate);
    on.record("first.share", SHAPE.bytes, rate / fio.rate);
    level.recycle(places, SHAPE)?;
    level.wear(&payloads, SHAPE)?;

    let (mut cpu, mut written) = (Duration::ZERO, 0);
    let id = |word: &str| format!("again.{word}");
    let fio = |fio: &Fio| Ok(fio.run(&[job()])?[0].rate);
    let rate = on.beside(id, SHAPE.bytes, fio, || {
        let from = cpu_time();
        let (rate, places) = level.write(&payloads, SHAPE, plan.write_bytes, 1)?;
        cpu += cpu_time().saturating_sub(from);
        written += places.len() * SHAPE.event_bytes();
        level.recycle(places, SHAPE)?;
        Ok(rate)
    })?;
    let every = (plan.commit_bytes / plan.operation_bytes as u64).max(1) as u32;
    let synced = on.fio.run(&[Job { synced_every: every, ..job() }])?[0];
    on.record("synced.fio", SHAPE.bytes, synced.rate);
    on.record("synced.share", SHAPE.bytes, rate / synced.rate);

    let (whole, copy) = (cpu.as_secs_f64() / written as f64 * 1e9, bare_copy(on, &payloads)?);
    on.record("cpu.whole", SHAPE.bytes, whole);
    on.record("cpu.copy", SHAPE.bytes, copy);
    on.record("cpu.beyond", SHAPE.bytes, (whole - copy).max(0.0));
    on.record("cpu.fio", SHAPE.bytes, synced.core_seconds / (synced.bytes / 1e9));
    Ok(())
}

/// CPU seconds per 10⁹ bytes of copying and checking alone, into as many buffers as are in flight.
fn bare_copy(on: &Measurement<'_>, payloads: &Payloads<'_>) -> Result<f64> {
    let from = cpu_time();
    let copied = copy_bare(payloads.all(), on.plan.write_bytes, on.plan.operation_bytes, on.plan.depth)?;
    Ok(cpu_time().saturating_sub(from).as_secs_f64() / (copied as f64 / 1e9))
}
