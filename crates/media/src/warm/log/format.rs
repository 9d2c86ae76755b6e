//! The bytes of a device's decision log: the head of a file, the head of a block. `docs/format-device-log.md` is the
//! specification; everything is little-endian.
//!
//! ```text
//! file:   head copy 0 | head copy 1 | block 0 | block 1 | …
//! block:  crc 4 | magic 4 | commit 8 | index 4 | blocks 4 | slots 4 | zero 4 | slot | slot | … | zeros
//! ```
//!
//! *Invariants*: a block's head and its slots are seeded with store, device, file, generation and their number, so that
//! one of another place or an earlier generation never verifies; slots never reach over the end of a block.

use crate::bytes::{RecordSeed, Slot, SlotLayout};
use crate::warm::BLOCK_BYTES;
use forebay_core::{Error, Result, crc32c, crc32c_append};

/// The two files of a device's log.
pub(crate) const FILE_NAMES: [&str; 2] = ["decisions-0.fb", "decisions-1.fb"];
/// Smallest file of a log, in bytes.
pub(crate) const LOG_BYTES_MIN: u64 = 64 << 10;
/// Largest file of a log, in bytes.
pub(crate) const LOG_BYTES_MAX: u64 = 4 << 30;
/// Most devices: the number is beside the file's in 31 bits of every seed.
pub(crate) const DEVICES_MAX: u32 = 1 << 20;
/// Blocks before the first one with slots: two copies of the head.
pub(super) const HEAD_BLOCKS: u32 = 2;
/// What the medium writes whole or not at all, in bytes.
pub(super) const SECTOR_BYTES: usize = 512;
/// Bytes of a block before its first slot.
pub(super) const BLOCK_HEAD_BYTES: usize = 32;

const MAGIC: [u8; 8] = *b"FBDECLOG";
const VERSION: u32 = 3;
/// The oldest version that is read: what it has means the same today.
const VERSION_MIN: u32 = 2;
const BLOCK_MAGIC: [u8; 4] = *b"FBDB";
pub(super) const FILE_HEAD_BYTES: usize = 128;

// Slot numbers have 32 bits.
const _: () = assert!((LOG_BYTES_MAX / BLOCK_BYTES as u64) * (BLOCK_BYTES as u64 / 64) < 1 << 32);
// The smallest file has room for its head, a snapshot's block and some commits.
const _: () = assert!(LOG_BYTES_MIN >= 8 * BLOCK_BYTES as u64);
// A block's head and its first slot are in one sector: one does not survive a torn write without the other.
const _: () = assert!(BLOCK_HEAD_BYTES + 96 <= SECTOR_BYTES);

/// What a file of the log is at the moment. Of two copies with one generation the greater state holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum FileState {
    /// A snapshot is being written to it; it does not count.
    Begun = 1,
    /// It is the log.
    InForce = 2,
    /// The other file has taken over; it does not count.
    Replaced = 3,
}

/// The head of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileHead {
    pub(super) store: [u8; 16],
    pub(super) device: u32,
    pub(super) file: u32,
    pub(super) state: FileState,
    pub(super) key_bytes: u16,
    /// Raised durably each time the log moves to another file.
    pub(super) generation: u64,
    pub(super) file_bytes: u64,
    /// Blocks at the file's beginning that its snapshot takes.
    pub(super) snapshot_blocks: u32,
    /// Life of the store in which the snapshot was taken.
    pub(super) boot: u32,
    /// Entries of all shadows before the first one in this file: the snapshot has them.
    pub(super) position: u64,
}

impl FileHead {
    /// One block, one copy.
    pub(super) fn encode(&self, out: &mut [u8]) {
        // A generation of 0 is that of a log without a file: heads on a medium have a higher one.
        debug_assert!(self.generation > 0 && self.file < 2, "{self:?} cannot be on a medium");
        out.fill(0);
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12] = self.state as u8;
        out[14..16].copy_from_slice(&self.key_bytes.to_le_bytes());
        out[16..32].copy_from_slice(&self.store);
        out[32..36].copy_from_slice(&self.device.to_le_bytes());
        out[36..40].copy_from_slice(&self.file.to_le_bytes());
        out[40..48].copy_from_slice(&self.generation.to_le_bytes());
        out[48..56].copy_from_slice(&self.file_bytes.to_le_bytes());
        out[56..60].copy_from_slice(&self.snapshot_blocks.to_le_bytes());
        out[60..64].copy_from_slice(&self.boot.to_le_bytes());
        out[64..72].copy_from_slice(&self.position.to_le_bytes());
        let crc = crc32c(&out[..FILE_HEAD_BYTES - 4]);
        out[FILE_HEAD_BYTES - 4..FILE_HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads one copy: `None` where it does not verify.
    ///
    /// # Errors
    /// `Invalid` where it verifies and is of another version.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<FileHead>> {
        let Some(bytes) = bytes.first_chunk::<FILE_HEAD_BYTES>() else { return Ok(None) };
        if bytes[..8] != MAGIC || crc32c(&bytes[..FILE_HEAD_BYTES - 4]) != word(bytes, FILE_HEAD_BYTES - 4) {
            return Ok(None);
        }
        let version = word(bytes, 8);
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(Error::invalid(format!(
                "a decision log of format version {version}; forebay {} reads {VERSION_MIN} to {VERSION}: open the store with \
                 the version that wrote it, release or remove what it holds there, close it, then make a new one",
                env!("CARGO_PKG_VERSION")
            )));
        }
        let state = match bytes[12] {
            1 => FileState::Begun,
            2 => FileState::InForce,
            3 => FileState::Replaced,
            _ => return Ok(None),
        };
        let mut store = [0; 16];
        store.copy_from_slice(&bytes[16..32]);
        Ok(Some(FileHead {
            store,
            device: word(bytes, 32),
            file: word(bytes, 36),
            state,
            key_bytes: u16::from_le_bytes([bytes[14], bytes[15]]),
            generation: long(bytes, 40),
            file_bytes: long(bytes, 48),
            snapshot_blocks: word(bytes, 56),
            boot: word(bytes, 60),
            position: long(bytes, 64),
        }))
    }
}

/// What a block says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHead {
    /// Number of its commit in this generation; 0 is the snapshot's.
    pub(super) commit: u64,
    /// Which block of the commit it is.
    pub(super) index: u32,
    /// Blocks of the commit.
    pub(super) blocks: u32,
    /// Slots of this block.
    pub(super) slots: u32,
}

/// One generation of one file: how its blocks are cut and what seeds their checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    layout: SlotLayout,
    seed: RecordSeed,
    head_seed: u32,
}

impl Pages {
    pub(super) fn new(layout: SlotLayout, store: &[u8; 16], device: u32, file: u32, generation: u64) -> Pages {
        // The top bit keeps a device's file apart from the segments of the hot level.
        let tag = 1 << 31 | device << 1 | file;
        let head_seed = crc32c_append(crc32c(store), &tag.to_le_bytes());
        let head_seed = crc32c_append(head_seed, &generation.to_le_bytes());
        Pages { layout, seed: RecordSeed::new(store, tag, generation as u32), head_seed }
    }

    pub(super) fn seed(&self) -> RecordSeed {
        self.seed
    }

    /// Slots of one block.
    pub(super) fn slots_per_block(&self) -> u32 {
        slots_per_block(self.layout)
    }

    /// Where slot `index` of a block is in it.
    pub(super) fn slot_range(&self, index: u32) -> std::ops::Range<usize> {
        let start = BLOCK_HEAD_BYTES + index as usize * self.layout.slot_bytes();
        start..start + self.layout.slot_bytes()
    }

    /// Writes the head of block number `block`.
    pub(super) fn encode_head(&self, head: BlockHead, block: u32, out: &mut [u8]) {
        debug_assert!(head.index < head.blocks && head.index <= block, "{head:?} cannot be block {block}");
        debug_assert!(head.slots <= self.slots_per_block(), "{head:?} has more slots than a block");
        let out = &mut out[..BLOCK_HEAD_BYTES];
        out.fill(0);
        out[4..8].copy_from_slice(&BLOCK_MAGIC);
        out[8..16].copy_from_slice(&head.commit.to_le_bytes());
        out[16..20].copy_from_slice(&head.index.to_le_bytes());
        out[20..24].copy_from_slice(&head.blocks.to_le_bytes());
        out[24..28].copy_from_slice(&head.slots.to_le_bytes());
        let crc = self.head_crc(block, out);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads the head of block number `block`; `None` where it does not verify or cannot be.
    pub(super) fn decode_head(&self, bytes: &[u8], block: u32) -> Option<BlockHead> {
        let bytes = bytes.first_chunk::<BLOCK_HEAD_BYTES>()?;
        if bytes[4..8] != BLOCK_MAGIC || self.head_crc(block, bytes) != word(bytes, 0) {
            return None;
        }
        let head = BlockHead {
            commit: long(bytes, 8),
            index: word(bytes, 16),
            blocks: word(bytes, 20),
            slots: word(bytes, 24),
        };
        // A checksum proves only that the bytes are whole. What cannot be would make the scan count back before the file.
        let legal = head.index < head.blocks && head.index <= block && head.slots <= self.slots_per_block();
        legal.then_some(head)
    }

    /// Reads slot `index` of block number `block`.
    pub(super) fn decode_slot(&self, bytes: &[u8], block: u32, index: u32) -> Option<Slot> {
        // Numbers run over the file, so that a slot does not verify in another block either.
        let number = block.checked_mul(self.slots_per_block())?.checked_add(index)?;
        self.layout.decode(bytes.get(self.slot_range(index))?, self.seed, number)
    }

    fn head_crc(&self, block: u32, head: &[u8]) -> u32 {
        crc32c_append(crc32c_append(self.head_seed, &block.to_le_bytes()), &head[4..BLOCK_HEAD_BYTES])
    }
}

/// Slots of one block.
pub(super) fn slots_per_block(layout: SlotLayout) -> u32 {
    ((BLOCK_BYTES - BLOCK_HEAD_BYTES) / layout.slot_bytes()) as u32
}

/// Where block number `block` begins in its file, in bytes.
pub(super) fn block_offset(block: u32) -> u64 {
    (u64::from(HEAD_BLOCKS) + u64::from(block)) * BLOCK_BYTES as u64
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head() -> FileHead {
        FileHead {
            store: [7; 16],
            device: 3,
            file: 1,
            state: FileState::InForce,
            key_bytes: 16,
            generation: 5 << 32,
            file_bytes: 1 << 20,
            snapshot_blocks: 9,
            boot: 6,
            position: 7 << 40,
        }
    }

    #[test]
    fn a_file_head_round_trips_and_every_bit_matters() {
        let mut bytes = vec![0xAA; BLOCK_BYTES];
        head().encode(&mut bytes);
        assert_eq!(FileHead::decode(&bytes).unwrap(), Some(head()));
        for bit in 0..FILE_HEAD_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FileHead::decode(&bytes).unwrap(), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let of_version = |version: u8| {
            let mut bytes = bytes.clone();
            bytes[8] = version;
            let crc = crc32c(&bytes[..124]);
            bytes[124..128].copy_from_slice(&crc.to_le_bytes());
            FileHead::decode(&bytes)
        };
        assert_eq!(of_version(2).unwrap(), Some(head()));
        for version in [1, 4] {
            assert_eq!(of_version(version).unwrap_err().kind(), forebay_core::Kind::Invalid);
        }
    }

    #[test]
    fn a_block_verifies_only_in_its_place() {
        let pages = |store, device, file, generation| {
            Pages::new(SlotLayout::for_key_bytes(16), &[store; 16], device, file, generation)
        };
        let here = pages(1, 2, 0, 7);
        let head = BlockHead { commit: 4, index: 1, blocks: 2, slots: 63 };
        let mut bytes = [0; BLOCK_BYTES];
        here.encode_head(head, 5, &mut bytes);
        assert_eq!(here.decode_head(&bytes, 5), Some(head));
        assert_eq!(here.decode_head(&bytes, 6), None);
        for other in
            [pages(2, 2, 0, 7), pages(1, 3, 0, 7), pages(1, 2, 1, 7), pages(1, 2, 0, 8), pages(1, 2, 0, 7 << 32)]
        {
            assert_eq!(other.decode_head(&bytes, 5), None);
        }
        for bit in 0..BLOCK_HEAD_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(here.decode_head(&bytes, 5), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn slots_of_every_key_length_stay_within_a_block() {
        for key_bytes in 1..=32 {
            let pages = Pages::new(SlotLayout::for_key_bytes(key_bytes), &[0; 16], 0, 0, 1);
            assert!(pages.slot_range(pages.slots_per_block() - 1).end <= BLOCK_BYTES);
            assert!(pages.slots_per_block() >= 42);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), block: u32, index in 0_u32..64) {
            let pages = Pages::new(SlotLayout::for_key_bytes(9), &[1; 16], 1, 1, 1);
            let _ = FileHead::decode(&bytes);
            let _ = pages.decode_head(&bytes, block);
            let _ = pages.decode_slot(&bytes, block, index);
        }
    }
}
