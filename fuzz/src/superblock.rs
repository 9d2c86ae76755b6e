//! Fuzzes superblocks: raw, and with magic, version and checksum repaired.

use forebay_core::crc32c;
use forebay_media::bytes::Superblock;

pub(crate) fn target(bytes: &[u8]) {
    check(bytes);
    let Some(mut sealed) = bytes.get(..Superblock::BYTES).map(<[u8]>::to_vec) else { return };
    sealed[..8].copy_from_slice(b"FOREBAY\x01");
    sealed[8..12].copy_from_slice(&Superblock::FORMAT.to_le_bytes());
    let crc = crc32c(&sealed[..124]);
    sealed[124..].copy_from_slice(&crc.to_le_bytes());
    check(&sealed);
}

fn check(bytes: &[u8]) {
    if let Ok(superblock) = Superblock::decode(bytes) {
        // A geometry that decodes can be computed with.
        assert!(superblock.geometry.region_bytes() >= superblock.geometry.segment_offset(0));
        assert_eq!(Superblock::decode(&superblock.encode()).ok(), Some(superblock));
    }
}
