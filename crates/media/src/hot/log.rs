//! The decision log: slots appended one after the other to segments of their own, and the snapshot of what was before them.
//!
//! ```text
//! snapshot segments        what all slots before the boundary said; and what some of those after it said already
//! log segments             … | boundary ─▶ slot | slot | …      one after the other
//! ```
//!
//! *Invariants*: a slot is durable before the next one begins, so that the log has no holes (`append`); space is
//! reserved for the decisions of every live event with anything on the hot level (`Hot::reserve`), so that what ends it is
//! never refused; what a snapshot replaces is freed only after the snapshot is whole and durable. An event with nothing on
//! the hot level reserves nothing: its decisions use the space of decisions, and where they reach what others reserve, the
//! next call has a snapshot written first. Segments of the log are in the order in which they were taken (asserted in `slot`).
//!
//! *On failure*: without a segment the append answers `Full` and nothing was decided.

use super::{Class, Hot};
use crate::bytes::{Blob, BlobChunk, Decision, DecisionKind, RecordSeed, SegmentKind};
use crate::limits::SEGMENT_HEADER_BYTES;
use forebay_core::mutants::is_planted;
use forebay_core::{Error, Result};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// A place between two slots: segment (by the order in which it was taken), slot in it, and slots of the log before it
/// since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boundary {
    /// Order in which the segment was taken.
    pub order: u64,
    /// Slot in the segment.
    pub slot: u32,
    /// Slots of the log before it.
    pub position: u64,
}

/// The tail of the log.
#[derive(Debug, Default)]
struct Tail {
    /// Segments in order; the last one is written.
    segments: VecDeque<u32>,
    /// Slots used in the last one.
    slots: u32,
    /// Slots of the log since the store was made.
    position: u64,
}

/// The decision log of one store.
#[derive(Debug, Default)]
pub struct Log {
    tail: Mutex<Tail>,
    /// The tail's position, read without its lock.
    position: AtomicU64,
    /// Segments of the snapshot in force.
    snapshot: Mutex<Vec<u32>>,
}

impl Log {
    /// Appends a decision. Those that end an event have room reserved; others stop short of that reserve.
    pub fn append(&self, hot: &Hot, decision: &Decision) -> Result<()> {
        // What ends nothing must not use up the room of what ends events: a full store could not be emptied any more.
        let class = match decision.kind {
            DecisionKind::RemoveKey | DecisionKind::Supersede | DecisionKind::Mark => Class::Evacuation,
            _ => Class::Decision,
        };
        let encode = |seed, number, out: &mut [u8]| hot.slots.encode(decision, seed, number, out);
        self.slot(hot, &mut self.tail.lock(), class, encode)
    }

    /// Appends a blob, piece by piece. What accepts name, and what ends something, has room reserved (`Class::Decision`);
    /// others stop short of that reserve (`Class::Evacuation`).
    pub fn append_blob(&self, hot: &Hot, class: Class, blob: Blob, data: &[u8]) -> Result<()> {
        // One hold for all pieces: a reader takes pieces of one blob only where they are side by side.
        let mut tail = self.tail.lock();
        for chunk in hot.slots.chunks(blob, data) {
            let encode = |seed, number, out: &mut [u8]| hot.slots.encode_blob(&chunk, seed, number, out);
            self.slot(hot, &mut tail, class, encode)?;
        }
        Ok(())
    }

    /// Position behind the last slot. Under the lock of an event's shard it includes every decision about that event.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// Where the log ends now.
    pub fn boundary(&self, hot: &Hot) -> Boundary {
        let tail = self.tail.lock();
        let order = tail.segments.back().map_or(0, |&last| hot.segment(last).order.load(Ordering::Relaxed));
        Boundary { order, slot: tail.slots, position: tail.position }
    }

    /// Writes a snapshot of what was before the boundary into segments of its own, then frees what it replaces. Appends
    /// go on meanwhile.
    pub fn replace(&self, hot: &Hot, snapshot: &[u8], boundary: &Boundary) -> Result<()> {
        debug_assert!(boundary.position <= self.position(), "a boundary that the log has not reached");
        // Without the lock of the tail: decisions go on while a snapshot of megabytes is written.
        let written = write_snapshot(hot, snapshot)?;
        // From here on it counts: it is whole, and later than the one before. A crash before this point finds two
        // snapshots, of which recovery takes the later one that is whole.
        let replaced = std::mem::replace(&mut *self.snapshot.lock(), written);
        let slots = snapshot.len().div_ceil(hot.slots.blob_bytes()) as u64;
        hot.snapshot_slots.store(slots, Ordering::Relaxed);
        let mut freed = replaced;
        let mut tail = self.tail.lock();
        // By segment, not by slot: the segment of the boundary stays, since slots behind it are not in the snapshot. The last
        // one stays in any case, because it is being written.
        while tail.segments.len() > 1
            && tail
                .segments
                .front()
                .is_some_and(|&first| hot.segment(first).order.load(Ordering::Relaxed) < boundary.order)
        {
            freed.extend(tail.segments.pop_front());
        }
        // New decisions do not wait for this.
        drop(tail);
        freed.into_iter().for_each(|segment| hot.free_log(segment));
        Ok(())
    }

    /// Segments of the snapshot in force, and of the log behind it.
    pub fn lengths(&self) -> (u32, u32) {
        let snapshot = self.snapshot.lock().len();
        (snapshot as u32, self.tail.lock().segments.len() as u32)
    }

    /// Goes on where recovery found the end: segments and slots used in the last one, position, segments of the snapshot.
    pub fn adopt(&self, segments: Vec<u32>, slots: u32, position: u64, snapshot: Vec<u32>) {
        debug_assert!(slots == 0 || !segments.is_empty(), "slots without a segment");
        debug_assert!(u64::from(slots) <= position, "more slots than were ever appended");
        debug_assert!(snapshot.iter().all(|segment| !segments.contains(segment)), "one segment for log and snapshot");
        *self.tail.lock() = Tail { segments: segments.into(), slots, position };
        self.position.store(position, Ordering::Release);
        *self.snapshot.lock() = snapshot;
    }

    fn slot(
        &self,
        hot: &Hot,
        tail: &mut Tail,
        class: Class,
        encode: impl FnOnce(RecordSeed, u32, &mut [u8]),
    ) -> Result<()> {
        if tail.segments.is_empty() || tail.slots >= hot.slots_per_segment() {
            let segment = hot
                .take_at(class, SegmentKind::Log, tail.position)
                .ok_or_else(|| Error::full("no segment left for the decision log beyond what live events reserve"))?;
            let order = |segment: u32| hot.segment(segment).order.load(Ordering::Relaxed);
            debug_assert!(
                tail.segments.back().is_none_or(|&last| order(last) < order(segment)),
                "the log goes backwards"
            );
            tail.segments.push_back(segment);
            tail.slots = 0;
        }
        let segment = tail.segments[tail.segments.len() - 1];
        write_slot(hot, segment, tail.slots, encode);
        // Durable before the next slot begins, under the lock. So the first slot that does not verify is the end of the log;
        // were a later one durable before it, recovery could not tell the end from damage.
        if !is_planted("decision-unfenced") {
            hot.region.fence();
        }
        tail.slots += 1;
        tail.position += 1;
        // Release: a snapshot that reads this position without the lock finds what was decided up to it.
        self.position.store(tail.position, Ordering::Release);
        hot.segment(segment).entries.store(tail.slots, Ordering::Relaxed);
        Ok(())
    }
}

/// Flushed, not fenced.
fn write_slot(hot: &Hot, segment: u32, slot: u32, encode: impl FnOnce(RecordSeed, u32, &mut [u8])) {
    debug_assert!(slot < hot.slots_per_segment(), "slot {slot} lies past the end of segment {segment}");
    let size = hot.slots.slot_bytes();
    let offset = hot.payload_offset(segment, SEGMENT_HEADER_BYTES as u64 + u64::from(slot) * size as u64);
    encode(hot.seed(segment), slot, hot.region.bytes_mut(offset, size));
    hot.region.flush(offset, size);
}

/// A snapshot in fresh segments, durable; where space ends before it does, these are given back.
fn write_snapshot(hot: &Hot, snapshot: &[u8]) -> Result<Vec<u32>> {
    let mut segments: Vec<u32> = Vec::new();
    let pieces = snapshot.len().div_ceil(hot.slots.blob_bytes()).max(1);
    let mut slot = hot.slots_per_segment();
    for number in 0..pieces {
        if slot == hot.slots_per_segment() {
            let Some(segment) = hot.take(Class::Decision, SegmentKind::Snapshot) else {
                segments.into_iter().for_each(|segment| hot.free_log(segment));
                return Err(Error::full(format!("no space for a snapshot of {} bytes", snapshot.len())));
            };
            segments.push(segment);
            slot = 0;
        }
        let from = number * hot.slots.blob_bytes();
        let data = snapshot[from..snapshot.len().min(from + hot.slots.blob_bytes())].to_vec();
        let chunk = BlobChunk { blob: Blob::Snapshot, first: number == 0, last: number + 1 == pieces, data };
        let segment = segments[segments.len() - 1];
        write_slot(hot, segment, slot, |seed, number, out| hot.slots.encode_blob(&chunk, seed, number, out));
        slot += 1;
        hot.segment(segment).entries.store(slot, Ordering::Relaxed);
    }
    // One fence for all of it: nothing refers to the snapshot before it is whole.
    hot.region.fence();
    Ok(segments)
}
