//! An image: the fragments of one event, or some of them, in one piece.
//!
//! ```text
//! head:   magic 4 | crc 4 | bytes 8 | fragments 4 | state 1 | stage 1 | deliveries 1 | flags 1 | detail 4 | meta_bytes 4
//!         | payload_bytes 8 | record_bytes 4 | record_version 2 | record_status 1 | zero 1
//! meta:   head 48 | primary key, padded to 8 | table | the event's own record, padded to 8
//! table:  per fragment: remaining key | length 4 | crc 4 | status 4 | version 2 | flags 2
//! image:  meta | payloads, each at a multiple of 8 | zeros to a multiple of 16
//! ```
//!
//! *Invariants*: the checksum covers the meta and is seeded with the position; payloads have their own checksums in the
//! table; where a payload begins follows from the lengths before it. A *void* image holds nothing: bytes that did not
//! verify while they were copied are there.

use super::{ContainerSeed, IMAGE_ALIGN, set, u16_at, u32_at, u64_at, zero};
use crate::bytes::EntryFlags;
use forebay_core::limits::KEY_BYTES_MAX;

const MAGIC: [u8; 4] = *b"FBEV";
const HEAD_BYTES: usize = 48;
const ENTRY_TAIL_BYTES: usize = 16;
// Payloads are read as numbers in place; lines, as on the hot level, would cost small fragments more than themselves.
const PAYLOAD_ALIGN: u64 = 8;
const _: () = assert!(HEAD_BYTES.is_multiple_of(PAYLOAD_ALIGN as usize) && IMAGE_ALIGN.is_multiple_of(PAYLOAD_ALIGN));
const READY: u8 = 1;
const MASKED: u8 = 2;
const VOID: u8 = 4;
const RECORD: u8 = 8;

/// The state of an event when its image was written. Decisions that are recorded later dominate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ImageState {
    /// Nobody had decided.
    #[default]
    Undecided = 0,
    /// Accepted.
    Accepted = 1,
    /// In the debug stream.
    Debug = 2,
}

impl ImageState {
    fn from_byte(byte: u8) -> Option<ImageState> {
        [ImageState::Undecided, ImageState::Accepted, ImageState::Debug].into_iter().find(|state| *state as u8 == byte)
    }
}

/// What an image says about its event, beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageMarks {
    /// The state of the event.
    pub state: ImageState,
    /// The stage that it had reached.
    pub stage: u8,
    /// Deliveries that had not ended well.
    pub deliveries: u8,
    /// It was ready.
    pub ready: bool,
    /// It was complete without sources that were masked.
    pub masked: bool,
    /// Output of an accept, reason of a debug event.
    pub detail: u32,
}

/// The event's own record: its attributes and announced sources, as the store packs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageRecord<'a> {
    /// Status bits, below 256.
    pub status: u32,
    /// 0 for the first, raised by each change.
    pub version: u16,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// One entry of an image's table. The payload's offset follows from the entries before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryMeta<'a> {
    /// The packed sub-keys after the primary key.
    pub rest: &'a [u8],
    /// Payload length in bytes.
    pub length: u32,
    /// CRC-32C of the payload.
    pub crc: u32,
    /// The producer's status bits.
    pub status: u32,
    /// 0 for the first put, raised by each update.
    pub version: u16,
    /// What the entry is.
    pub flags: EntryFlags,
}

/// The head of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHead {
    /// Bytes of the whole image; a multiple of [`IMAGE_ALIGN`].
    pub bytes: u64,
    /// Entries of its table.
    pub fragments: u32,
    /// What it says about its event.
    pub marks: ImageMarks,
    /// Holds nothing.
    pub void: bool,
    /// Bytes of head, primary key and table, padding included.
    pub meta_bytes: u32,
    /// Bytes of its payloads, padding not included.
    pub payload_bytes: u64,
    /// Bytes, version and status of the event's own record; `None` without one.
    pub record: Option<(u32, u16, u8)>,
}

impl ImageHead {
    /// Bytes of an encoded head.
    pub const BYTES: usize = HEAD_BYTES;

    /// Reads a head without verifying it: only to learn how many bytes to read. `None` where it is none.
    pub fn peek(bytes: &[u8]) -> Option<ImageHead> {
        let bytes = bytes.get(..HEAD_BYTES)?;
        let flags = bytes[23];
        let void = flags & VOID != 0;
        let has_record = flags & RECORD != 0;
        let unused = if has_record { &bytes[47..HEAD_BYTES] } else { &bytes[40..HEAD_BYTES] };
        if bytes[..4] != MAGIC || flags & !(READY | MASKED | VOID | RECORD) != 0 || !zero(unused) {
            return None;
        }
        let head = ImageHead {
            bytes: u64_at(bytes, 8),
            fragments: u32_at(bytes, 16),
            marks: ImageMarks {
                state: ImageState::from_byte(bytes[20])?,
                stage: bytes[21],
                deliveries: bytes[22],
                ready: flags & READY != 0,
                masked: flags & MASKED != 0,
                detail: u32_at(bytes, 24),
            },
            void,
            meta_bytes: u32_at(bytes, 28),
            payload_bytes: u64_at(bytes, 32),
            record: has_record.then(|| (u32_at(bytes, 40), u16_at(bytes, 44), bytes[46])),
        };
        // Lengths that contradict each other come from bytes that are no head: a scan meets such bytes at every step.
        let fits = head.bytes >= u64::from(head.meta_bytes) && head.bytes.is_multiple_of(IMAGE_ALIGN);
        (fits && head.meta_bytes as usize >= HEAD_BYTES).then_some(head)
    }

    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut out = [0; HEAD_BYTES];
        set(&mut out, 0, MAGIC);
        set(&mut out, 8, self.bytes.to_le_bytes());
        set(&mut out, 16, self.fragments.to_le_bytes());
        out[20] = self.marks.state as u8;
        out[21] = self.marks.stage;
        out[22] = self.marks.deliveries;
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out[23] = flag(self.marks.ready, READY)
            | flag(self.marks.masked, MASKED)
            | flag(self.void, VOID)
            | flag(self.record.is_some(), RECORD);
        set(&mut out, 24, self.marks.detail.to_le_bytes());
        set(&mut out, 28, self.meta_bytes.to_le_bytes());
        set(&mut out, 32, self.payload_bytes.to_le_bytes());
        if let Some((bytes, version, status)) = self.record {
            set(&mut out, 40, bytes.to_le_bytes());
            set(&mut out, 44, version.to_le_bytes());
            out[46] = status;
        }
        out
    }
}

/// Sizes that follow from the lengths of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLayout {
    primary_bytes: usize,
    rest_bytes: usize,
}

/// An image's meta, verified or from a verified directory.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// Its head.
    pub head: ImageHead,
    /// The event's packed primary key.
    pub primary: &'a [u8],
    /// The event's own record, if the image has it.
    pub record: Option<ImageRecord<'a>>,
    rest_bytes: usize,
    table: &'a [u8],
}

impl<'a> Image<'a> {
    /// The entries of its table, in order.
    pub fn table(&self) -> TableIter<'a> {
        TableIter { rest_bytes: self.rest_bytes, table: self.table, next_offset: u64::from(self.head.meta_bytes) }
    }
}

impl<'a> Image<'a> {
    /// An entry by its number; `None` past the last one.
    pub fn entry(&self, index: u32) -> Option<EntryMeta<'a>> {
        let bytes = self.rest_bytes + ENTRY_TAIL_BYTES;
        let table = self.table.get((index as usize).checked_mul(bytes)?..)?;
        TableIter { rest_bytes: self.rest_bytes, table, next_offset: 0 }.next().map(|(meta, _)| meta)
    }
}

/// Entries of a table, each with its payload's offset from the image's start, in bytes.
#[derive(Clone, Debug)]
pub struct TableIter<'a> {
    rest_bytes: usize,
    table: &'a [u8],
    next_offset: u64,
}

impl<'a> Iterator for TableIter<'a> {
    type Item = (EntryMeta<'a>, u64);

    #[inline]
    fn next(&mut self) -> Option<(EntryMeta<'a>, u64)> {
        let (entry, after) = self.table.split_at_checked(self.rest_bytes + ENTRY_TAIL_BYTES)?;
        self.table = after;
        let (rest, tail) = entry.split_at(self.rest_bytes);
        let meta = EntryMeta {
            rest,
            length: u32_at(tail, 0),
            crc: u32_at(tail, 4),
            status: u32_at(tail, 8),
            version: u16_at(tail, 12),
            flags: EntryFlags(u16_at(tail, 14)),
        };
        let offset = self.next_offset;
        self.next_offset += u64::from(meta.length).next_multiple_of(PAYLOAD_ALIGN);
        Some((meta, offset))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.table.len() / (self.rest_bytes + ENTRY_TAIL_BYTES);
        (left, Some(left))
    }
}

impl ExactSizeIterator for TableIter<'_> {}

impl ImageLayout {
    /// The layout for packed primary keys and remaining sub-keys of these lengths.
    pub fn new(primary_bytes: usize, rest_bytes: usize) -> ImageLayout {
        debug_assert!((2..=KEY_BYTES_MAX).contains(&(primary_bytes + rest_bytes)));
        ImageLayout { primary_bytes, rest_bytes }
    }

    /// Bytes of a packed primary key.
    pub fn primary_bytes(&self) -> usize {
        self.primary_bytes
    }

    /// Bytes of the packed sub-keys after it.
    pub fn rest_bytes(&self) -> usize {
        self.rest_bytes
    }

    /// Bytes of one entry of the table.
    pub fn entry_bytes(&self) -> usize {
        self.rest_bytes + ENTRY_TAIL_BYTES
    }

    fn table_offset(&self) -> usize {
        HEAD_BYTES + self.primary_bytes.next_multiple_of(8)
    }

    /// Bytes of head, primary key, table and record for this number of fragments and this length of the record.
    pub fn meta_bytes(&self, fragments: usize, record_bytes: usize) -> u64 {
        let table = fragments as u64 * self.entry_bytes() as u64;
        (self.table_offset() as u64 + table + record_bytes as u64).next_multiple_of(8)
    }

    /// Bytes of an image whose payloads have these lengths.
    pub fn image_bytes(&self, lengths: impl ExactSizeIterator<Item = usize>, record_bytes: usize) -> u64 {
        let meta = self.meta_bytes(lengths.len(), record_bytes);
        let payloads: u64 = lengths.map(|length| (length as u64).next_multiple_of(PAYLOAD_ALIGN)).sum();
        (meta + payloads).next_multiple_of(IMAGE_ALIGN)
    }

    /// Appends the meta of an image at this position to `out`; answers its head. `primary` and each `rest` have the
    /// layout's lengths.
    #[expect(clippy::too_many_arguments, reason = "what an image is made of, and where it goes")]
    pub fn encode<'a>(
        &self,
        marks: ImageMarks,
        primary: &[u8],
        entries: impl ExactSizeIterator<Item = EntryMeta<'a>>,
        record: Option<ImageRecord<'_>>,
        seed: ContainerSeed,
        position: u64,
        out: &mut Vec<u8>,
    ) -> ImageHead {
        debug_assert_eq!(primary.len(), self.primary_bytes, "a primary key of another keyspace");
        debug_assert!(record.is_none_or(|record| record.status < 256), "the head has one byte for the record's status");
        debug_assert!(position.is_multiple_of(IMAGE_ALIGN), "no location names position {position}");
        let start = out.len();
        let fragments = entries.len();
        let meta_bytes = self.meta_bytes(fragments, record.map_or(0, |record| record.bytes.len()));
        out.extend_from_slice(&[0; HEAD_BYTES]);
        out.extend_from_slice(&primary[..self.primary_bytes]);
        out.resize(start + self.table_offset(), 0);
        let (mut payload_bytes, mut padded) = (0, 0);
        for entry in entries {
            debug_assert_eq!(entry.rest.len(), self.rest_bytes, "sub-keys of another keyspace");
            payload_bytes += u64::from(entry.length);
            padded += u64::from(entry.length).next_multiple_of(PAYLOAD_ALIGN);
            out.extend_from_slice(&entry.rest[..self.rest_bytes]);
            let mut tail = [0; ENTRY_TAIL_BYTES];
            set(&mut tail, 0, entry.length.to_le_bytes());
            set(&mut tail, 4, entry.crc.to_le_bytes());
            set(&mut tail, 8, entry.status.to_le_bytes());
            set(&mut tail, 12, entry.version.to_le_bytes());
            set(&mut tail, 14, entry.flags.0.to_le_bytes());
            out.extend_from_slice(&tail);
        }
        out.extend_from_slice(record.map_or(&[], |record| record.bytes));
        out.resize(start + meta_bytes as usize, 0);
        let head = ImageHead {
            bytes: (meta_bytes + padded).next_multiple_of(IMAGE_ALIGN),
            fragments: fragments as u32,
            marks,
            void: false,
            meta_bytes: meta_bytes as u32,
            payload_bytes,
            record: record.map(|record| (record.bytes.len() as u32, record.version, record.status as u8)),
        };
        debug_assert_eq!((out.len() - start) as u64, meta_bytes, "a meta of another length than its head says");
        seal(&head, seed, position, &mut out[start..]);
        head
    }

    /// Bytes of the meta of a void image; what [`ImageLayout::encode`] wrote before them is at least as long.
    pub fn void_bytes(&self) -> usize {
        self.meta_bytes(0, 0) as usize
    }

    /// The meta of a void image of `bytes` bytes, which overwrites the beginning of one that did not verify.
    pub fn encode_void(&self, bytes: u64, seed: ContainerSeed, position: u64) -> Vec<u8> {
        let mut out = vec![0; self.void_bytes()];
        let head = ImageHead {
            bytes,
            fragments: 0,
            marks: ImageMarks::default(),
            void: true,
            meta_bytes: out.len() as u32,
            payload_bytes: 0,
            record: None,
        };
        seal(&head, seed, position, &mut out);
        out
    }

    /// Reads the meta of an image; `None` where it does not verify at this position of this filling. `bytes` may be
    /// longer than the meta.
    pub fn decode<'a>(&self, bytes: &'a [u8], seed: ContainerSeed, position: u64) -> Option<Image<'a>> {
        let head = ImageHead::peek(bytes)?;
        let meta = bytes.get(..head.meta_bytes as usize)?;
        if seed.checksum(position, &meta[8..]) != u32_at(meta, 4) {
            return None;
        }
        self.decode_verified(bytes)
    }

    /// The meta of an image whose head was read and found right before; `None` only where `bytes` is too short.
    #[inline]
    pub fn view<'a>(&self, head: ImageHead, bytes: &'a [u8]) -> Option<Image<'a>> {
        let primary = bytes.get(HEAD_BYTES..HEAD_BYTES + self.primary_bytes)?;
        let behind = bytes.get(self.table_offset()..head.meta_bytes as usize)?;
        let (table, behind) = behind.split_at_checked((head.fragments as usize).checked_mul(self.entry_bytes())?)?;
        let record = match head.record {
            Some((length, version, status)) => {
                Some(ImageRecord { status: u32::from(status), version, bytes: behind.get(..length as usize)? })
            }
            None => None,
        };
        Some(Image { head, primary, record, rest_bytes: self.rest_bytes, table })
    }

    /// Reads the meta of an image whose checksum is known to be right; `None` where it cannot be one.
    #[inline]
    pub fn decode_verified<'a>(&self, bytes: &'a [u8]) -> Option<Image<'a>> {
        let head = ImageHead::peek(bytes)?;
        let meta = bytes.get(..head.meta_bytes as usize)?;
        let record_bytes = head.record.map_or(0, |record| record.0 as usize);
        if u64::from(head.meta_bytes) != self.meta_bytes(head.fragments as usize, record_bytes) {
            return None;
        }
        // What the checksum cannot prove is looked at here, once, so that every later walk over the table can rely on it.
        let image = self.view(head, meta)?;
        let record_end = self.table_offset() + image.table.len() + record_bytes;
        if !zero(&meta[HEAD_BYTES + self.primary_bytes..self.table_offset()]) || !zero(&meta[record_end..]) {
            return None;
        }
        if head.void {
            return (head.fragments == 0 && head.payload_bytes == 0 && head.record.is_none()).then_some(image);
        }
        let (mut payload_bytes, mut after) = (0, u64::from(head.meta_bytes));
        for (entry, offset) in image.table() {
            if !entry.flags.is_known() {
                return None;
            }
            payload_bytes += u64::from(entry.length);
            after = offset + u64::from(entry.length).next_multiple_of(PAYLOAD_ALIGN);
        }
        let sums = payload_bytes == head.payload_bytes && after.next_multiple_of(IMAGE_ALIGN) == head.bytes;
        sums.then_some(image)
    }
}

/// Writes the head with its checksum over the beginning of the meta.
fn seal(head: &ImageHead, seed: ContainerSeed, position: u64, meta: &mut [u8]) {
    meta[..HEAD_BYTES].copy_from_slice(&head.encode());
    let crc = seed.checksum(position, &meta[8..]);
    set(meta, 4, crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: ImageLayout = ImageLayout { primary_bytes: 12, rest_bytes: 5 };

    fn entry(rest: &[u8], length: u32) -> EntryMeta<'_> {
        EntryMeta { rest, length, crc: length ^ 77, status: 3, version: 1, flags: EntryFlags::LATE }
    }

    fn seed() -> ContainerSeed {
        ContainerSeed::new(&[1; 16], 0, 1, 2)
    }

    fn encoded(lengths: &[u32]) -> (ImageHead, Vec<u8>) {
        let marks = ImageMarks {
            state: ImageState::Accepted,
            stage: 2,
            deliveries: 3,
            ready: true,
            masked: false,
            detail: 0x8000_0001,
        };
        let rests: Vec<[u8; 5]> = (0..lengths.len()).map(|at| [at as u8; 5]).collect();
        let entries: Vec<EntryMeta> = rests.iter().zip(lengths).map(|(rest, &length)| entry(rest, length)).collect();
        let mut out = Vec::new();
        let head = LAYOUT.encode(marks, b"primary key!", entries.into_iter(), None, seed(), 160, &mut out);
        (head, out)
    }

    #[test]
    fn round_trip_with_offsets() {
        for lengths in [&[][..], &[0], &[1], &[8, 0, 9, 100_000], &[7; 100]] {
            let (head, bytes) = encoded(lengths);
            assert_eq!(bytes.len() as u64, LAYOUT.meta_bytes(lengths.len(), 0));
            assert_eq!(head.bytes, LAYOUT.image_bytes(lengths.iter().map(|&length| length as usize), 0));
            let image = LAYOUT.decode(&bytes, seed(), 160).unwrap();
            assert_eq!((image.head, image.primary), (head, &b"primary key!"[..]));
            let mut expected = u64::from(head.meta_bytes);
            assert_eq!(image.table().len(), lengths.len());
            for (at, (meta, offset)) in image.table().enumerate() {
                assert_eq!(meta, entry(&[at as u8; 5], lengths[at]));
                assert_eq!(offset, expected);
                assert!(offset.is_multiple_of(8));
                expected += u64::from(lengths[at]).next_multiple_of(8);
            }
        }
    }

    #[test]
    fn every_bit_matters() {
        let (_, mut bytes) = encoded(&[5, 6]);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(LAYOUT.decode(&bytes, seed(), 160).is_none(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..bytes.len() {
            assert!(LAYOUT.decode(&bytes[..length], seed(), 160).is_none());
        }
    }

    #[test]
    fn verifies_only_in_its_place() {
        let (_, bytes) = encoded(&[5]);
        assert!(LAYOUT.decode(&bytes, seed(), 176).is_none());
        assert!(LAYOUT.decode(&bytes, ContainerSeed::new(&[1; 16], 0, 1, 3), 160).is_none());
        assert!(ImageLayout::new(12, 4).decode(&bytes, seed(), 160).is_none());
    }

    #[test]
    fn a_void_image_stands_over_the_beginning_of_another() {
        let (head, mut bytes) = encoded(&[5, 6]);
        let void = LAYOUT.encode_void(head.bytes, seed(), 160);
        bytes[..void.len()].copy_from_slice(&void);
        let image = LAYOUT.decode(&bytes, seed(), 160).unwrap();
        assert!(image.head.void && image.table().next().is_none());
        assert_eq!(image.head.bytes, head.bytes);
    }

    #[test]
    fn meta_costs_what_the_write_amplification_allows() {
        // 16 fragments of 1 KiB, keys of 12 + 4 bytes; meta twice (image and directory, with 8 bytes of its own there).
        let layout = ImageLayout::new(12, 4);
        let bytes = layout.image_bytes([1024; 16].into_iter(), 0) + layout.meta_bytes(16, 0) + 8;
        assert!(bytes as f64 / (16.0 * 1024.0) < 1.05, "{bytes}");
    }
}
