//! Write heads: open segments, one per putting thread as far as they go, so that writers do not meet.
//!
//! *Invariants*: entries grow down from the segment's end, payload up from its header; they never cross.

use super::segment::{ENTRIES_MAX, IN_FLIGHT_MAX};
use super::{Class, Hot, Location, Place};
use crate::bytes::{RecordSeed, SegmentKind};
use crate::limits::{PAYLOAD_ALIGN, SEGMENT_HEADER_BYTES};
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

#[repr(align(128))]
struct Padded(Mutex<Option<Head>>);

struct Head {
    segment: u32,
    entries: u32,
    payload_end: u64,
    seed: RecordSeed,
}

/// All heads; the last one belongs to evacuation.
pub(super) struct Heads(Vec<Padded>);

static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: Cell<usize> = Cell::new(NEXT_THREAD.fetch_add(1, Ordering::Relaxed));
}

impl Heads {
    pub(super) fn new(heads: usize) -> Heads {
        Heads((0..heads.max(1) + 1).map(|_| Padded(Mutex::new(None))).collect())
    }

    fn of(&self, class: Class) -> &Mutex<Option<Head>> {
        let writers = self.0.len() - 1;
        let at = if class == Class::Evacuation { writers } else { THREAD.get() % writers };
        &self.0[at].0
    }
}

impl Hot {
    /// A place for a record of `length` payload bytes, counted as in flight; `None` where the class has no space.
    #[inline]
    pub fn reserve_place(&self, class: Class, length: u32) -> Option<Place> {
        let mut head = self.heads.of(class).lock();
        loop {
            if let Some(open) = head.as_mut() {
                if let Some(place) = self.place_in(open, length) {
                    return Some(place);
                }
                self.close(open.segment, open.entries, open.payload_end);
                *head = None;
            }
            let segment = self.take(class, SegmentKind::Data)?;
            let seed = self.seed(segment);
            *head = Some(Head { segment, entries: 0, payload_end: SEGMENT_HEADER_BYTES as u64, seed });
        }
    }

    #[inline]
    fn place_in(&self, head: &mut Head, length: u32) -> Option<Place> {
        let entry_bytes = self.layout.entry_bytes() as u64;
        let end = head.payload_end + u64::from(length).next_multiple_of(PAYLOAD_ALIGN as u64);
        let full = end + (u64::from(head.entries) + 1) * entry_bytes > self.geometry.segment_bytes;
        let crowded = self.segment(head.segment).in_flight() >= IN_FLIGHT_MAX;
        if full || crowded || head.entries == ENTRIES_MAX {
            return None;
        }
        let place = Place {
            location: Location { segment: head.segment, entry: head.entries },
            offset: head.payload_end,
            seed: head.seed,
        };
        head.entries += 1;
        head.payload_end = end;
        self.segment(head.segment).begin();
        Some(place)
    }

    /// Closes all heads, as a store does before it is flushed, or where a nearly full store needs their segments.
    pub fn close_heads(&self) {
        for padded in &self.heads.0 {
            if let Some(open) = padded.0.lock().take() {
                self.close(open.segment, open.entries, open.payload_end);
            }
        }
    }

    /// Closes heads whose records are all dead: their segments become free.
    pub fn close_idle_heads(&self) {
        for padded in &self.heads.0 {
            let mut head = padded.0.lock();
            if let Some(open) = head.take_if(|open| open.entries > 0 && self.segment(open.segment).live() == 0) {
                self.close(open.segment, open.entries, open.payload_end);
            }
        }
    }

    /// Entries and payload end of open segments, for `inspect`.
    pub fn open_heads(&self) -> Vec<(u32, u32, u64)> {
        let all = self.heads.0.iter();
        all.filter_map(|padded| padded.0.lock().as_ref().map(|head| (head.segment, head.entries, head.payload_end)))
            .collect()
    }
}
