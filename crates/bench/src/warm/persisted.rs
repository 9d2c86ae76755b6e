//! Puts that are acknowledged only once they are durable on the device: one at a time, and several to a commit.

use super::Measurement;
use super::level::{Level, Payloads, Shape};
use crate::Result;
use std::time::Instant;

/// Events of one fragment of 10 KiB.
const SHAPE: Shape = Shape { fragments: 1, bytes: 10 << 10 };
/// Puts that share a commit in the grouped row.
const GROUP: u64 = 16;

/// Measures one repetition.
pub(super) fn measure(on: &mut Measurement<'_>) -> Result<()> {
    let plan = on.plan;
    let payloads = Payloads::new(on.buffer, SHAPE);
    // A commit pads to the block.
    let room = (plan.persisted_events * 2 * SHAPE.bytes as u64 * 2).max(plan.container_bytes);
    let level = Level::create(plan, std::slice::from_ref(&plan.dir), room, plan.operation_bytes)?;
    for (series, group) in [("persisted.puts", 1), ("persisted.grouped", GROUP)] {
        let before = level.counters();
        let mut writing = level.level.writing(0, None)?;
        let from = Instant::now();
        for event in (0..plan.persisted_events).step_by(group as usize) {
            let from = Instant::now();
            writing.put_persisted(event, payloads.of_events(event / group, group, SHAPE), SHAPE.fragments)?;
            if group == 1 {
                on.record("persisted.delay", SHAPE.bytes, from.elapsed().as_secs_f64() * 1e6);
            }
        }
        let rate = plan.persisted_events.next_multiple_of(group) as f64 / from.elapsed().as_secs_f64();
        on.record(series, SHAPE.bytes, rate);
        let places = writing.finish()?;
        if group == 1 {
            let written = level.counters().bytes_written - before.bytes_written;
            let payload = (places.len() * SHAPE.event_bytes()) as f64;
            on.record("persisted.amplification", SHAPE.bytes, written as f64 / payload);
        }
    }
    Ok(())
}
