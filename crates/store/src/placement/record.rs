//! Writing records to the hot level: the one place where a payload and its entry come together.
//!
//! *Invariants*: an entry is written after its payload, and both are flushed; they are durable, and may become visible, after
//! the next fence (`Region::fence`). An entry without its payload never verifies: its checksum covers the payload's.

use super::Placement;
use forebay_core::Key;
use forebay_media::bytes::{Entry, EntryFlags, StateWord};
use forebay_media::hot::Place;

/// The fields of a record beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordHead {
    pub(crate) key: Key,
    pub(crate) status: u32,
    pub(crate) version: u16,
    pub(crate) flags: EntryFlags,
}

impl Placement {
    /// Copies the bytes of a record to its place; answers their CRC-32C, computed in the same pass.
    #[inline]
    pub(crate) fn copy_payload(&self, place: &Place, bytes: &[u8]) -> u32 {
        self.hot.region.copy_in(self.hot.payload_offset(place.location.segment, place.offset), bytes)
    }

    /// Writes the entry of a place that has its bytes.
    #[inline]
    pub(crate) fn write_head(&self, place: &Place, head: &RecordHead, length: u32, payload_crc: u32, state: StateWord) {
        // The segment is not used again, and the region not unmapped, while a record of it is in flight. Recovery fills holes
        // before anything is.
        debug_assert!(
            head.flags == EntryFlags::VOID || self.hot.segment(place.location.segment).in_flight() > 0,
            "an entry is written to a place reserved for it"
        );
        let RecordHead { key, status, version, flags } = *head;
        let entry = Entry { key, offset: place.offset, length, payload_crc, status, version, flags };
        self.hot.write_entry(place, &entry, state);
    }

    /// Writes a whole record; answers the CRC-32C of its bytes.
    pub(crate) fn write_record(&self, place: &Place, head: &RecordHead, bytes: &[u8], state: StateWord) -> u32 {
        // In this order: an entry that is whole vouches for its payload.
        let crc = self.copy_payload(place, bytes);
        self.write_head(place, head, bytes.len() as u32, crc, state);
        crc
    }

    /// Fills a place that holds nothing: in a sealed segment every entry counts.
    pub(crate) fn write_void(&self, place: &Place, key: Key) {
        let head = RecordHead { key, status: 0, version: 0, flags: EntryFlags::VOID };
        self.write_head(place, &head, 0, 0, StateWord::ENDED);
    }
}
