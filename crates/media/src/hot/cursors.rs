//! Write cursors: where in an open segment the next record goes. Of a store's level there are several, so that threads that
//! put side by side do not meet.
//!
//! *Invariants*: entries grow down from the segment's end, payload up from its header; they never cross (asserted in
//! `Hot::close`).

use super::segment::{ENTRIES_MAX, IN_FLIGHT_MAX};
use super::{Class, Hot, Location, OPEN, Place};
use crate::bytes::{RecordSeed, SegmentKind};
use crate::limits::{PAYLOAD_ALIGN, SEGMENT_HEADER_BYTES};
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where the next record of an open segment goes.
pub struct WriteCursor {
    segment: u32,
    entries: u32,
    payload_end: u64,
    // Computed when the segment is taken: a checksum over store, segment and generation for each put would show.
    seed: RecordSeed,
}

impl WriteCursor {
    /// The beginning of a segment that was just taken.
    pub fn new(hot: &Hot, segment: u32) -> WriteCursor {
        debug_assert_eq!(hot.segment(segment).state(), OPEN, "segment {segment} takes no records");
        WriteCursor { segment, entries: 0, payload_end: SEGMENT_HEADER_BYTES as u64, seed: hot.seed(segment) }
    }

    /// The segment that is written.
    #[inline]
    pub fn segment(&self) -> u32 {
        self.segment
    }

    /// The segment's generation.
    pub fn generation(&self) -> u32 {
        self.seed.generation()
    }

    /// The place of a record of `length` payload bytes; `None` where the segment has no room for it.
    #[inline]
    pub fn place(&mut self, hot: &Hot, length: u32) -> Option<Place> {
        let entry_bytes = hot.layout.entry_bytes() as u64;
        let end = self.payload_end + u64::from(length).next_multiple_of(PAYLOAD_ALIGN as u64);
        let full = end + (u64::from(self.entries) + 1) * entry_bytes > hot.geometry.segment_bytes;
        if full || self.entries == ENTRIES_MAX {
            return None;
        }
        let location = Location { segment: self.segment, entry: self.entries };
        let place = Place { location, offset: self.payload_end, seed: self.seed };
        self.entries += 1;
        self.payload_end = end;
        Some(place)
    }

    /// No more records go into the segment.
    pub fn close(self, hot: &Hot) {
        hot.close(self.segment, self.entries, self.payload_end);
    }
}

// Two cache lines each, as for segments: cursors lie side by side, and each is written at every put.
#[repr(align(128))]
struct Padded(Mutex<Option<WriteCursor>>);

/// All write cursors of a store's level; the last one belongs to evacuation.
// Evacuation has one of its own, because it may use space that puts may not: a put must not end up in its segment.
pub(super) struct WriteCursors(Vec<Padded>);

static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: Cell<usize> = Cell::new(NEXT_THREAD.fetch_add(1, Ordering::Relaxed));
}

impl WriteCursors {
    /// For this number of threads that put side by side, and for evacuation.
    pub(super) fn new(writers: usize) -> WriteCursors {
        WriteCursors((0..writers.max(1) + 1).map(|_| Padded(Mutex::new(None))).collect())
    }

    fn of(&self, class: Class) -> &Mutex<Option<WriteCursor>> {
        let writers = self.0.len() - 1;
        let at = if class == Class::Evacuation { writers } else { THREAD.get() % writers };
        &self.0[at].0
    }
}

impl Hot {
    /// A place for a record of `length` payload bytes, counted as in flight; `None` where the class has no space.
    #[inline]
    pub fn reserve_place(&self, class: Class, length: u32) -> Option<Place> {
        // Held for a few additions, and while a segment is taken. Under the lock of an event's cell; below it comes only the
        // list of free segments.
        let mut cursor = self.cursors.of(class).lock();
        loop {
            if let Some(open) = cursor.as_mut()
                && let Some(place) = self.place_at(open, length)
            {
                return Some(place);
            }
            if let Some(full) = cursor.take() {
                full.close(self);
            }
            let segment = self.take(class, SegmentKind::Data)?;
            *cursor = Some(WriteCursor::new(self, segment));
        }
    }

    #[inline]
    fn place_at(&self, cursor: &mut WriteCursor, length: u32) -> Option<Place> {
        let segment = self.segment(cursor.segment);
        // Reservations are held for as long as their callers like: past the bound of the count a new segment is begun.
        if segment.in_flight() >= IN_FLIGHT_MAX {
            return None;
        }
        let place = cursor.place(self, length)?;
        // Under the cursor's lock: a segment is closed under it, and must not look idle while a place in it is being given out.
        segment.begin();
        Some(place)
    }

    /// Closes all write cursors, as a store does before it is flushed, or where a nearly full store needs their segments.
    pub fn close_cursors(&self) {
        for padded in &self.cursors.0 {
            if let Some(open) = padded.0.lock().take() {
                open.close(self);
            }
        }
    }

    /// Closes write cursors whose records are all dead: their segments become free.
    pub fn close_idle_cursors(&self) {
        for padded in &self.cursors.0 {
            let mut cursor = padded.0.lock();
            // Not one without entries: the next put would take another segment, and this would go on forever.
            if let Some(idle) = cursor.take_if(|open| open.entries > 0 && self.segment(open.segment).live() == 0) {
                idle.close(self);
            }
        }
    }

    /// Segment, entries and payload end of each write cursor, for `inspect`.
    pub fn open_cursors(&self) -> Vec<(u32, u32, u64)> {
        let figures = |open: &WriteCursor| (open.segment, open.entries, open.payload_end);
        self.cursors.0.iter().filter_map(|padded| padded.0.lock().as_ref().map(figures)).collect()
    }
}
