//! Warm levels to measure on, and the loops that write and read events: the same for every part of the benchmark.

use super::options::Plan;
use crate::Result;
use crate::engine::{Scratch, try_side_by_side};
use crate::source::{Buffer, Warmth};
use forebay_core::Kind;
use forebay_store::measure::{EventPlace, Payload, WarmCounters, WarmLevel, WarmPlan, checksum};
use std::path::PathBuf;

/// Payload that the store demotes at a time: what one extent holds at least.
pub(super) const EXTENT_BYTES: usize = 8 << 20;

/// The data of one pass: fragments per event and bytes per fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) fragments: usize,
    pub(super) bytes: usize,
}

impl Shape {
    pub(super) fn event_bytes(self) -> usize {
        self.fragments * self.bytes
    }

    /// Events with at least this much payload, at least one.
    pub(super) fn events(self, payload: u64) -> u64 {
        payload.div_ceil(self.event_bytes() as u64).max(1)
    }
}

/// Fragments with their checksums, as the hot level has them: one after the other through cold memory.
pub(super) struct Payloads<'a>(Vec<Payload<'a>>);

impl<'a> Payloads<'a> {
    /// As many fragments of this size as the buffer holds, at least one event's.
    pub(super) fn new(buffer: &'a Buffer, shape: Shape) -> Payloads<'a> {
        let mut blocks = buffer.blocks(shape.bytes, Warmth::Cold, 0, 1);
        let first = blocks.next_block();
        let mut found = vec![Payload { bytes: first, checksum: checksum(first) }];
        loop {
            let next = blocks.next_block();
            if next.as_ptr() == first.as_ptr() && found.len() >= shape.fragments {
                break;
            }
            found.push(Payload { bytes: next, checksum: checksum(next) });
        }
        Payloads(found)
    }

    /// All of them.
    pub(super) fn all(&self) -> &[Payload<'a>] {
        &self.0
    }

    /// The fragments of `events` events, or fewer if the fragments do not suffice; the same for the same `turn`.
    pub(super) fn of_events(&self, turn: u64, events: u64, shape: Shape) -> &[Payload<'a>] {
        let part = self.part(turn, events as usize * shape.fragments);
        &part[..part.len() / shape.fragments * shape.fragments]
    }

    /// `count` fragments that follow each other, beginning anywhere.
    fn part(&self, turn: u64, count: usize) -> &[Payload<'a>] {
        let places = (self.0.len() / count).max(1);
        let from = turn as usize % places * count;
        &self.0[from..(from + count).min(self.0.len())]
    }
}

/// A warm level in a directory of its own. Its creation is never part of a measurement.
pub(super) struct Level {
    pub(super) level: WarmLevel,
    _scratch: Vec<Scratch>,
}

impl Level {
    /// A level with room for `payload` bytes on each of these directories.
    pub(super) fn create(plan: &Plan, parents: &[PathBuf], payload: u64, operation_bytes: usize) -> Result<Level> {
        let scratch = parents.iter().map(|parent| Scratch::new(parent)).collect::<Result<Vec<_>>>()?;
        let containers = (payload + payload / 12).div_ceil(plan.container_bytes) + 2;
        let level = WarmLevel::create(&WarmPlan {
            dirs: scratch.iter().map(|scratch| scratch.path().to_owned()).collect(),
            containers,
            container_bytes: plan.container_bytes,
            operation_bytes,
            depth: plan.depth,
            commit_bytes: plan.commit_bytes,
        })?;
        Ok(Level { level, _scratch: scratch })
    }

    /// Writes every container once, and empties them: from then on all blocks are there.
    pub(super) fn wear(&self, payloads: &Payloads<'_>, shape: Shape) -> Result<()> {
        // The level keeps one container back; the second round begins with it.
        for _ in 0..2 {
            let mut writing = self.level.writing(0, None)?;
            let batch = (EXTENT_BYTES / shape.event_bytes()).max(1) as u64;
            for turn in 0.. {
                match writing.append(turn * batch, payloads.of_events(turn, batch, shape), shape.fragments) {
                    Ok(()) => {}
                    Err(error) if error.kind() == Kind::Full => break,
                    Err(error) => return Err(error.into()),
                }
            }
            let places = writing.finish()?;
            self.recycle(places, shape)?;
        }
        Ok(())
    }

    /// Writes `payload` bytes of events with this many threads, each to its own container, commits each extent and waits
    /// for the last; returns the rate in payload bytes per second and the places of the events.
    pub(super) fn write(
        &self,
        payloads: &Payloads<'_>,
        shape: Shape,
        payload: u64,
        threads: usize,
    ) -> Result<(f64, Vec<EventPlace>)> {
        let places = std::sync::Mutex::new(Vec::new());
        let rate = try_side_by_side((0..threads as u64).collect(), |thread| {
            let events = shape.events(payload / threads as u64);
            let written = self.write_one(payloads, shape, thread << 40..(thread << 40) + events, None)?;
            places.lock().map_err(|_| "a writer failed")?.extend(written);
            Ok(events * shape.event_bytes() as u64)
        })?;
        Ok((rate, places.into_inner().map_err(|_| "a writer failed")?))
    }

    /// Writes these events in the calling thread, on the named device or any.
    pub(super) fn write_one(
        &self,
        payloads: &Payloads<'_>,
        shape: Shape,
        events: std::ops::Range<u64>,
        device: Option<u32>,
    ) -> Result<Vec<EventPlace>> {
        let stream = (events.start >> 40) as u8;
        let mut writing = self.level.writing(stream, device)?;
        let batch = (EXTENT_BYTES / shape.event_bytes()).max(1) as u64;
        let mut event = events.start;
        while event < events.end {
            let count = batch.min(events.end - event);
            let fragments = payloads.of_events(event / batch, count, shape);
            writing.append(event, fragments, shape.fragments)?;
            event += (fragments.len() / shape.fragments) as u64;
        }
        Ok(writing.finish()?)
    }

    /// Reads these events whole, `threads` at a time; answers payload bytes per second.
    pub(super) fn read(&self, places: &[EventPlace], shape: Shape, threads: usize, verified: bool) -> Result<f64> {
        let each = places.len().div_ceil(threads);
        try_side_by_side(places.chunks(each).collect(), |places| {
            let mut bytes = 0;
            for place in places {
                bytes += if verified { self.level.read_verified(place)? } else { self.level.read(place)? };
            }
            match bytes == (places.len() * shape.event_bytes()) as u64 {
                true => Ok(bytes),
                false => {
                    Err(format!("{} events have {bytes} bytes, not {} each", places.len(), shape.event_bytes()).into())
                }
            }
        })
    }

    /// Gives every event's space back: the containers are empty again.
    pub(super) fn recycle(&self, places: Vec<EventPlace>, shape: Shape) -> Result<()> {
        Ok(self.level.recycle(&places, shape.fragments as u32)?)
    }

    /// What went through the devices so far, all together.
    pub(super) fn counters(&self) -> WarmCounters {
        self.level.counters()
    }
}

/// In an order that looks random and is the same each time.
pub(super) fn shuffled(mut places: Vec<EventPlace>) -> Vec<EventPlace> {
    for at in (1..places.len()).rev() {
        places.swap(at, crate::source::mix(at as u64) as usize % (at + 1));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_go_round_and_events_are_enough() {
        let buffer = Buffer::new(1 << 16);
        let shape = Shape { fragments: 16, bytes: 1024 };
        let payloads = Payloads::new(&buffer, shape);
        assert_eq!(payloads.0.len(), 64);
        assert_eq!(payloads.part(5, 16)[0].bytes.as_ptr(), payloads.part(1, 16)[0].bytes.as_ptr());
        assert_eq!(payloads.part(3, 1000).len(), 64);
        let large = Payloads::new(&buffer, Shape { fragments: 100, bytes: 1024 });
        assert!(large.0.len() >= 100);
        assert_eq!(shape.events(16 * 1024 + 1), 2);
    }
}
