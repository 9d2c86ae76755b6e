//! The checksum seed of one place on a medium, as `docs/format-hot.md` makes it: store id, segment, generation.
#![allow(dead_code, reason = "not every target needs every part")]

use forebay_core::crc32c;
use forebay_media::bytes::RecordSeed;

pub(crate) const STORE: [u8; 16] = *b"forebay fuzzing!";
pub(crate) const SEGMENT: u32 = 3;
pub(crate) const GENERATION: u32 = 0x0100_0007;

/// The seed by the library.
pub(crate) fn seed() -> RecordSeed {
    RecordSeed::new(&STORE, SEGMENT, GENERATION)
}

/// What its checksums start from, made from the specification alone.
pub(crate) fn seed_crc() -> u32 {
    crc32c(&[&STORE[..], &SEGMENT.to_le_bytes(), &GENERATION.to_le_bytes()].concat())
}
