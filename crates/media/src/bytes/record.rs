//! The bytes of the hot level: segment headers, directory entries and their state words. `docs/format-hot.md` is the
//! specification; everything is little-endian.
//!
//! ```text
//! segment:  header copy 0 | header copy 1 | … 4096 | payload ──▶   free   ◀── entry 1 | entry 0 |
//! entry:    crc 4 | version 2 | flags 2 | offset 4 (of 64 B) | length 4 | payload crc 4 | status 4 | key | state word 8
//! ```
//!
//! *Invariants*: an entry's checksum is seeded with store, segment and generation and covers its number, so that an
//! entry of another place or an earlier life never verifies (test `an_entry_verifies_only_in_its_place`); no single
//! flipped bit turns a live mark into a dead one (test `no_single_bit_removes`).

use crate::limits::PAYLOAD_ALIGN;
use forebay_core::{Key, KeySchema, crc32c, crc32c_append};

/// Seed of every checksum in one generation of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSeed {
    crc: u32,
    generation: u32,
}

impl RecordSeed {
    /// The seed for a segment's generation in the store with this id.
    pub fn new(store: &[u8; 16], segment: u32, generation: u32) -> RecordSeed {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(store);
        bytes[16..20].copy_from_slice(&segment.to_le_bytes());
        bytes[20..].copy_from_slice(&generation.to_le_bytes());
        RecordSeed { crc: crc32c(&bytes), generation }
    }

    /// The segment's generation.
    pub fn generation(self) -> u32 {
        self.generation
    }

    pub(crate) fn checksum(self, bytes: &[u8]) -> u32 {
        crc32c_append(self.crc, bytes)
    }
}

/// Sizes that follow from the key's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryLayout {
    key_bytes: usize,
    entry_bytes: usize,
}

const ENTRY_HEAD_BYTES: usize = 24;

// `Hot::write_entry` builds an entry, its state word included, in a buffer of one cache line.
const _: () = assert!(ENTRY_HEAD_BYTES + forebay_core::limits::KEY_BYTES_MAX + 8 <= 64);

/// What an entry is, beside a fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryFlags(pub u16);

impl EntryFlags {
    /// A fragment.
    pub const FRAGMENT: EntryFlags = EntryFlags(0);
    /// A reservation that was given up: the entry holds nothing.
    pub const VOID: EntryFlags = EntryFlags(1);
    /// Bytes that conflict with the fragment of the same key; kept for a person to look at.
    pub const CONFLICT: EntryFlags = EntryFlags(2);
    /// The event's own record: its attributes and, where it was announced with them, its sources; the sub-keys after the
    /// primary key are zero.
    pub const ATTRIBUTES: EntryFlags = EntryFlags(4);
    /// A fragment that came after its event was ready.
    pub const LATE: EntryFlags = EntryFlags(8);
    /// A fragment that a worker wrote with its verdict; counts once the verdict is recorded. Its `status` are the low
    /// bits of the token's counter.
    pub const RESULT: EntryFlags = EntryFlags(16);
    /// A fragment whose bytes another node has: the payload is an [`forebay_core::Elsewhere`].
    pub const ELSEWHERE: EntryFlags = EntryFlags(32);
    const KNOWN: u16 = 63;

    /// Whether all its bits have a meaning here.
    pub fn is_known(self) -> bool {
        self.0 & !EntryFlags::KNOWN == 0
    }

    /// Whether another node has the bytes.
    pub fn is_elsewhere(self) -> bool {
        self.0 & EntryFlags::ELSEWHERE.0 != 0
    }

    /// Whether the record is a fragment of its event, however it came.
    pub fn is_fragment(self) -> bool {
        self.0 & !(EntryFlags::LATE.0 | EntryFlags::RESULT.0 | EntryFlags::ELSEWHERE.0) == 0
    }
}

/// One directory entry: where a record's payload lies and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The fragment's key.
    pub key: Key,
    /// Payload offset from the segment's start, in bytes; a multiple of [`PAYLOAD_ALIGN`].
    pub offset: u64,
    /// Payload length in bytes.
    pub length: u32,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
    /// The producer's status bits.
    pub status: u32,
    /// 0 for the first put, raised by each update.
    pub version: u16,
    /// What the entry is.
    pub flags: EntryFlags,
}

impl Entry {
    /// A placeholder for an entry that is not known yet.
    pub const EMPTY: Entry =
        Entry { key: Key::EMPTY, offset: 0, length: 0, payload_crc: 0, status: 0, version: 0, flags: EntryFlags::VOID };
}

impl EntryLayout {
    /// The layout for a schema.
    pub fn new(schema: &KeySchema) -> EntryLayout {
        EntryLayout::for_key_bytes(schema.key_bytes())
    }

    /// The layout for keys of this length.
    pub fn for_key_bytes(key_bytes: usize) -> EntryLayout {
        EntryLayout { key_bytes, entry_bytes: ENTRY_HEAD_BYTES + key_bytes.next_multiple_of(8) + 8 }
    }

    /// Bytes of one entry, its state word included: 48 for 16-byte keys.
    #[inline]
    pub fn entry_bytes(&self) -> usize {
        self.entry_bytes
    }

    /// Offset of the state word in the entry: the last 8 bytes, aligned to 8.
    #[inline]
    pub fn state_offset(&self) -> usize {
        self.entry_bytes - 8
    }

    /// Writes an entry (without its state word) into `out[..state_offset]`.
    #[inline]
    pub fn encode(&self, entry: &Entry, seed: RecordSeed, number: u32, out: &mut [u8]) {
        debug_assert!(entry.offset.is_multiple_of(PAYLOAD_ALIGN as u64), "the offset is kept in units of a line");
        debug_assert!(entry.flags.is_known(), "flags that no reader knows");
        let out = &mut out[..self.state_offset()];
        // The number is where the checksum will be: it is covered, and costs no bytes.
        out[..4].copy_from_slice(&number.to_le_bytes());
        out[4..6].copy_from_slice(&entry.version.to_le_bytes());
        out[6..8].copy_from_slice(&entry.flags.0.to_le_bytes());
        out[8..12].copy_from_slice(&((entry.offset / PAYLOAD_ALIGN as u64) as u32).to_le_bytes());
        out[12..16].copy_from_slice(&entry.length.to_le_bytes());
        out[16..20].copy_from_slice(&entry.payload_crc.to_le_bytes());
        out[20..24].copy_from_slice(&entry.status.to_le_bytes());
        let key_end = ENTRY_HEAD_BYTES + self.key_bytes;
        out[ENTRY_HEAD_BYTES..key_end].copy_from_slice(entry.key.as_bytes());
        out[key_end..].fill(0);
        let crc = seed.checksum(out);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads an entry; `None` where its checksum, its flags or its padding are wrong: it was never completed in this
    /// generation of this segment, or has rotted.
    #[inline]
    pub fn decode(&self, bytes: &[u8], seed: RecordSeed, number: u32) -> Option<Entry> {
        let body = bytes.get(..self.state_offset())?;
        let mut copy = [0; ENTRY_HEAD_BYTES + forebay_core::limits::KEY_BYTES_MAX];
        let copy = &mut copy[..body.len()];
        copy.copy_from_slice(body);
        let crc = u32_at(copy, 0);
        copy[..4].copy_from_slice(&number.to_le_bytes());
        if seed.checksum(copy) != crc {
            return None;
        }
        // Unknown flags and padding that is not zero: written by a later version, and not to be half understood.
        let flags = u16::from_le_bytes([copy[6], copy[7]]);
        let key_end = ENTRY_HEAD_BYTES + self.key_bytes;
        if flags & !EntryFlags::KNOWN != 0 || copy[key_end..].iter().any(|&byte| byte != 0) {
            return None;
        }
        Some(Entry {
            key: Key::from_packed(&copy[ENTRY_HEAD_BYTES..key_end]),
            offset: u64::from(u32_at(copy, 8)) * PAYLOAD_ALIGN as u64,
            length: u32_at(copy, 12),
            payload_crc: u32_at(copy, 16),
            status: u32_at(copy, 20),
            version: u16::from_le_bytes([copy[4], copy[5]]),
            flags: EntryFlags(flags),
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Whether a record still counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The record is live.
    Live,
    /// A durable decision, an update or an evacuation ended the record.
    Dead,
}

/// The word beside an entry that changes after the entry is written: one atomic 8-byte store.
///
/// ```text
/// bit 0 generation (24) | 24 mark (8) | 32 deliveries (4) | 36 ready (1) | 37 stage (3) | 40 check (24)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateWord {
    /// Whether the record counts.
    pub mark: Mark,
    /// Grants of the event that have not ended well, including one under way.
    pub deliveries: u8,
    /// The event became ready (by time, by seal or by a grant) and stays so. On a result: its verdict is recorded.
    pub ready: bool,
    /// The event is complete without sources that were masked when it became ready. Only beside `ready`.
    pub masked: bool,
    /// The stage that the event has reached.
    pub stage: u8,
}

// Marks differ in four bits or more: a flipped bit, or two, makes a word that says nothing, never the opposite.
const LIVE: u64 = 0x3C;
const LIVE_MASKED: u64 = 0x55;
const DEAD: u64 = 0xC3;
const _: () = assert!((LIVE ^ DEAD).count_ones() >= 4);
const _: () = assert!((LIVE ^ LIVE_MASKED).count_ones() >= 4 && (DEAD ^ LIVE_MASKED).count_ones() >= 4);

impl StateWord {
    /// A fresh record's word.
    pub const FRESH: StateWord = StateWord { mark: Mark::Live, deliveries: 0, ready: false, masked: false, stage: 0 };
    /// The word of a record that has ended.
    pub const ENDED: StateWord = StateWord { mark: Mark::Dead, ..StateWord::FRESH };

    /// The word for entry `number` of this generation.
    #[inline]
    pub fn encode(self, seed: RecordSeed, number: u32) -> u64 {
        debug_assert!(self.stage < 8, "stage {} does not fit its three bits", self.stage);
        // A dead record may be called masked by its caller: the word of a dead one does not say it.
        let mark = match (self.mark, self.masked) {
            (Mark::Live, false) => LIVE,
            (Mark::Live, true) => LIVE_MASKED,
            (Mark::Dead, _) => DEAD,
        };
        let word = u64::from(seed.generation & 0xFF_FFFF)
            | mark << 24
            | u64::from(self.deliveries & 15) << 32
            | u64::from(self.ready) << 36
            | u64::from(self.stage & 7) << 37;
        word | check(word, seed, number) << 40
    }

    /// Reads a word; `None` where its check is wrong or it belongs to another generation.
    #[inline]
    pub fn decode(word: u64, seed: RecordSeed, number: u32) -> Option<StateWord> {
        let body = word & 0xFF_FFFF_FFFF;
        let (mark, masked) = match word >> 24 & 0xFF {
            LIVE => (Mark::Live, false),
            LIVE_MASKED => (Mark::Live, true),
            DEAD => (Mark::Dead, false),
            _ => return None,
        };
        if word >> 40 != check(body, seed, number) || word & 0xFF_FFFF != u64::from(seed.generation & 0xFF_FFFF) {
            return None;
        }
        let (deliveries, stage) = ((word >> 32 & 15) as u8, (word >> 37 & 7) as u8);
        Some(StateWord { mark, deliveries, ready: word >> 36 & 1 == 1, masked, stage })
    }
}

#[inline]
fn check(body: u64, seed: RecordSeed, number: u32) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&body.to_le_bytes());
    bytes[8..12].copy_from_slice(&number.to_le_bytes());
    // 24 bits are what the word has left. Beside the mark's distance they leave one torn or rotten word in 16 million unseen.
    u64::from(seed.checksum(&bytes) >> 8)
}

/// What a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// Fragments and attribute blocks.
    Data,
    /// The decision log.
    Log,
    /// A snapshot of what the log said before it.
    Snapshot,
}

/// The state of a segment in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// May have incomplete entries: every one is checked, invalid ones were never acknowledged.
    Open,
    /// Every entry counts: an invalid one is corruption.
    Sealed,
}

/// A segment's header; two copies alternate, the valid one with the higher `revision` is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// What it holds.
    pub kind: SegmentKind,
    /// Its state.
    pub state: SegmentState,
    /// Position in the region.
    pub segment: u32,
    /// Raised durably before a reclaimed segment's first entry is written.
    pub generation: u32,
    /// Order in which segments were taken, over the whole store.
    pub order: u64,
    /// Entries (or log slots) at sealing; 0 while open.
    pub entries: u32,
    /// End of the payload from the segment's start at sealing, in bytes; 0 while open.
    pub payload_end: u64,
    /// Counts the writes of this header.
    pub revision: u32,
}

const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"FBSG");
const SEGMENT_VERSION: u16 = 1;

impl SegmentHeader {
    /// Bytes of one header copy: one cache line.
    pub const BYTES: usize = 64;

    /// The header as bytes.
    pub fn encode(&self, store: &[u8; 16]) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..4].copy_from_slice(&SEGMENT_MAGIC.to_le_bytes());
        out[4..6].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
        out[6] = match self.kind {
            SegmentKind::Data => 1,
            SegmentKind::Log => 2,
            SegmentKind::Snapshot => 3,
        };
        out[7] = match self.state {
            SegmentState::Open => 1,
            SegmentState::Sealed => 2,
        };
        out[8..16].copy_from_slice(&store[..8]);
        out[16..20].copy_from_slice(&self.segment.to_le_bytes());
        out[20..24].copy_from_slice(&self.generation.to_le_bytes());
        out[24..32].copy_from_slice(&self.order.to_le_bytes());
        out[32..36].copy_from_slice(&self.entries.to_le_bytes());
        out[40..48].copy_from_slice(&self.payload_end.to_le_bytes());
        out[48..52].copy_from_slice(&self.revision.to_le_bytes());
        let crc = crc32c_append(crc32c(store), &out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads one header copy of segment `segment`; `None` where it does not verify.
    pub fn decode(bytes: &[u8], store: &[u8; 16], segment: u32) -> Option<SegmentHeader> {
        let bytes = bytes.get(..Self::BYTES)?;
        let legal = crc32c_append(crc32c(store), &bytes[..60]) == u32_at(bytes, 60)
            && u32_at(bytes, 0) == SEGMENT_MAGIC
            && u16::from_le_bytes([bytes[4], bytes[5]]) == SEGMENT_VERSION
            && u32_at(bytes, 16) == segment;
        if !legal {
            return None;
        }
        Some(SegmentHeader {
            kind: match bytes[6] {
                1 => SegmentKind::Data,
                2 => SegmentKind::Log,
                3 => SegmentKind::Snapshot,
                _ => return None,
            },
            state: match bytes[7] {
                1 => SegmentState::Open,
                2 => SegmentState::Sealed,
                _ => return None,
            },
            segment,
            generation: u32_at(bytes, 20),
            order: u64_at(bytes, 24),
            entries: u32_at(bytes, 32),
            payload_end: u64_at(bytes, 40),
            revision: u32_at(bytes, 48),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STORE: [u8; 16] = [7; 16];

    fn sample() -> (EntryLayout, Entry) {
        let schema = KeySchema::run_event_source();
        let entry = Entry {
            key: schema.key(&[1, 2, 3]).unwrap(),
            offset: 4096,
            length: 10_240,
            payload_crc: 0xDEAD_BEEF,
            status: 5,
            version: 9,
            flags: EntryFlags::FRAGMENT,
        };
        (EntryLayout::new(&schema), entry)
    }

    #[test]
    fn sizes_on_the_medium() {
        assert_eq!(sample().0.entry_bytes(), 48);
        for key_bytes in 2..=forebay_core::limits::KEY_BYTES_MAX {
            let layout = EntryLayout::for_key_bytes(key_bytes);
            assert!(layout.entry_bytes().is_multiple_of(8) && layout.entry_bytes() <= 64);
        }
    }

    #[test]
    fn an_entry_verifies_only_in_its_place() {
        let (layout, entry) = sample();
        let seed = RecordSeed::new(&STORE, 3, 8);
        let mut bytes = [0; 64];
        layout.encode(&entry, seed, 5, &mut bytes);
        assert_eq!(layout.decode(&bytes, seed, 5), Some(entry));
        assert_eq!(layout.decode(&bytes, seed, 6), None);
        for other in [RecordSeed::new(&STORE, 3, 9), RecordSeed::new(&STORE, 4, 8), RecordSeed::new(&[8; 16], 3, 8)] {
            assert_eq!(layout.decode(&bytes, other, 5), None);
        }
        for bit in 0..layout.state_offset() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(layout.decode(&bytes, seed, 5), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(layout.decode(&bytes[..20], seed, 5), None);
    }

    #[test]
    fn no_single_bit_removes() {
        let seed = RecordSeed::new(&STORE, 3, 8);
        let live = StateWord { mark: Mark::Live, deliveries: 2, ready: true, masked: true, stage: 5 }.encode(seed, 77);
        assert_eq!(StateWord::decode(live, seed, 78), None);
        for bit in 0..64 {
            let flipped = StateWord::decode(live ^ 1 << bit, seed, 77);
            assert_ne!(flipped.map(|state| state.mark), Some(Mark::Dead), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn state_words_round_trip(mark in 0_u8..3, deliveries in 0_u8..16, ready in any::<bool>(), stage in 0_u8..8, generation in any::<u32>()) {
            let seed = RecordSeed::new(&STORE, 1, generation);
            let (mark, masked) = [(Mark::Dead, false), (Mark::Live, false), (Mark::Live, true)][usize::from(mark)];
            let state = StateWord { mark, deliveries, ready, masked, stage };
            prop_assert_eq!(StateWord::decode(state.encode(seed, 4), seed, 4), Some(state));
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), number in any::<u32>()) {
            let seed = RecordSeed::new(&STORE, 1, 1);
            let _ = sample().0.decode(&bytes, seed, number);
            let _ = SegmentHeader::decode(&bytes, &STORE, number);
        }
    }

    #[test]
    fn headers_round_trip_and_notice_every_bit() {
        let header = SegmentHeader {
            kind: SegmentKind::Data,
            state: SegmentState::Sealed,
            segment: 4,
            generation: 9,
            order: 1 << 40,
            entries: 77,
            payload_end: 1 << 33,
            revision: 12,
        };
        let mut bytes = header.encode(&STORE);
        assert_eq!(SegmentHeader::decode(&bytes, &STORE, 4), Some(header));
        assert_eq!(SegmentHeader::decode(&bytes, &STORE, 5), None);
        for bit in 0..SegmentHeader::BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&bytes, &STORE, 4), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
