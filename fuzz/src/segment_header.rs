//! Fuzzes segment headers: raw, and with magic, version, position and checksum repaired.

use forebay_core::{crc32c, crc32c_append};
use forebay_media::bytes::SegmentHeader;

use crate::seal;

pub(crate) fn target(bytes: &[u8]) {
    check(bytes);
    let Some(mut sealed) = bytes.get(..SegmentHeader::BYTES).map(<[u8]>::to_vec) else { return };
    sealed[..4].copy_from_slice(b"FBSG");
    sealed[4..6].copy_from_slice(&1_u16.to_le_bytes());
    sealed[16..20].copy_from_slice(&seal::SEGMENT.to_le_bytes());
    let crc = crc32c_append(crc32c(&seal::STORE), &sealed[..60]);
    sealed[60..].copy_from_slice(&crc.to_le_bytes());
    check(&sealed);
}

fn check(bytes: &[u8]) {
    if let Some(header) = SegmentHeader::decode(bytes, &seal::STORE, seal::SEGMENT) {
        let again = header.encode(&seal::STORE);
        assert_eq!(SegmentHeader::decode(&again, &seal::STORE, seal::SEGMENT), Some(header));
        assert_eq!(SegmentHeader::decode(&again, &seal::STORE, seal::SEGMENT + 1), None);
    }
}
