//! The decision log: slots appended one after the other to segments of their own.
//!
//! *Invariants*: a slot is durable before the next one begins, so that the log has no holes (`append`); space for the
//! decision of every live event is reserved (`Hot::reserve`), so that a decision is never refused.
//!
//! *On failure*: without a segment the append answers `Full` and nothing was decided.

use super::{Class, Hot};
use forebay_core::limits::SEGMENT_HEADER_BYTES;
use forebay_core::{Blob, BlobChunk, Decision, DecisionKind, Error, Result, SegmentKind};
use parking_lot::Mutex;

/// The tail of the log.
#[derive(Debug, Default)]
struct Tail {
    /// Segments in order; the last one is written.
    segments: Vec<u32>,
    /// Slots used in the last one.
    slots: u32,
}

/// The decision log of one store.
#[derive(Debug, Default)]
pub(crate) struct Log {
    tail: Mutex<Tail>,
    /// While a snapshot is made: the marks that were appended meanwhile, which it may not have.
    late_marks: Mutex<Option<Vec<Decision>>>,
}

impl Log {
    /// Appends a decision. Those that end an event have room reserved; others stop short of that reserve.
    pub(crate) fn append(&self, hot: &Hot, decision: &Decision) -> Result<()> {
        let class = match decision.kind {
            DecisionKind::RemoveKey | DecisionKind::Supersede | DecisionKind::Mark => Class::Evacuation,
            _ => Class::Decision,
        };
        let encode = |seed, number, out: &mut [u8]| hot.slots.encode(decision, seed, number, out);
        self.slot(hot, &mut self.tail.lock(), class, encode)
    }

    /// A snapshot is about to be made: from now on marks are kept for it.
    pub(crate) fn keep_marks(&self) {
        *self.late_marks.lock() = Some(Vec::new());
    }

    /// Appends the marks of an event, under its lock: unlike decisions they do not wait for a snapshot under way.
    pub(crate) fn append_mark(&self, hot: &Hot, mark: &Decision) -> Result<()> {
        if let Some(late) = self.late_marks.lock().as_mut() {
            late.push(mark.clone());
        }
        self.append(hot, mark)
    }

    /// Appends a blob, piece by piece.
    pub(crate) fn append_blob(&self, hot: &Hot, blob: Blob, data: &[u8]) -> Result<()> {
        let mut tail = self.tail.lock();
        self.blob(hot, &mut tail, Class::Evacuation, &hot.slots.chunks(blob, data))
    }

    /// Writes a snapshot into fresh segments, with the marks that came since [`Log::keep_marks`], and frees those before
    /// it. The caller keeps decisions away meanwhile.
    pub(crate) fn replace(&self, hot: &Hot, snapshot: &[u8]) -> Result<()> {
        let mut tail = self.tail.lock();
        let before = tail.segments.len();
        let (slots_before, chunks) = (tail.slots, hot.slots.chunks(Blob::Snapshot, snapshot));
        hot.snapshot_slots.store(chunks.len() as u64, std::sync::atomic::Ordering::Relaxed);
        // A fresh segment, so that what is before can be freed whole.
        tail.slots = u32::MAX;
        if let Err(error) = self.blob(hot, &mut tail, Class::Decision, &chunks) {
            // Nothing is lost: the log before is untouched and goes on after the unfinished snapshot's segments.
            for segment in tail.segments.drain(before..) {
                hot.free_log(segment);
            }
            tail.slots = slots_before;
            *self.late_marks.lock() = None;
            return Err(error);
        }
        // Whoever appends a mark from here on waits for the tail, and goes behind the snapshot.
        for mark in self.late_marks.lock().take().unwrap_or_default() {
            let encode = |seed, number, out: &mut [u8]| hot.slots.encode(&mark, seed, number, out);
            // Without space it is lost: after a crash its event goes out once more.
            let _ = self.slot(hot, &mut tail, Class::Evacuation, encode);
        }
        for segment in tail.segments.drain(..before) {
            hot.free_log(segment);
        }
        Ok(())
    }

    /// Segments that the log occupies.
    pub(crate) fn length(&self) -> u32 {
        self.tail.lock().segments.len() as u32
    }

    /// Goes on where recovery found the end.
    pub(crate) fn adopt(&self, segments: Vec<u32>, slots: u32) {
        *self.tail.lock() = Tail { segments, slots };
    }

    fn blob(&self, hot: &Hot, tail: &mut Tail, class: Class, chunks: &[BlobChunk]) -> Result<()> {
        for chunk in chunks {
            self.slot(hot, tail, class, |seed, number, out| hot.slots.encode_blob(chunk, seed, number, out))?;
        }
        Ok(())
    }

    fn slot(
        &self,
        hot: &Hot,
        tail: &mut Tail,
        class: Class,
        encode: impl FnOnce(forebay_core::RecordSeed, u32, &mut [u8]),
    ) -> Result<()> {
        if tail.segments.is_empty() || tail.slots >= hot.slots_per_segment() {
            let segment = hot
                .take(class, SegmentKind::Log)
                .ok_or_else(|| Error::full("no segment left for the decision log beyond what live events reserve"))?;
            tail.segments.push(segment);
            tail.slots = 0;
        }
        let segment = tail.segments[tail.segments.len() - 1];
        let size = hot.slots.slot_bytes();
        let offset = hot.payload_offset(segment, SEGMENT_HEADER_BYTES as u64 + u64::from(tail.slots) * size as u64);
        encode(hot.seed(segment), tail.slots, hot.region.bytes_mut(offset, size));
        hot.region.flush(offset, size);
        hot.region.fence();
        tail.slots += 1;
        hot.segment(segment).entries.store(tail.slots, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }
}
