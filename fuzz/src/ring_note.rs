//! Fuzzes the account of a ring: raw bytes, and bytes under a repaired checksum.

use forebay_core::{crc32c, crc32c_append};
use forebay_ring::RingNote;

const STORE: [u8; 16] = [7; 16];

pub(crate) fn target(bytes: Vec<u8>) {
    check(&bytes);
    let mut repaired = bytes;
    if repaired.len() >= 8 {
        repaired[..4].copy_from_slice(b"FBRN");
        repaired[4..6].copy_from_slice(&1_u16.to_le_bytes());
        // Head, earlier runs, and as many runs as the note says.
        let end = 32 + 112 + usize::from(u16::from_le_bytes([repaired[6], repaired[7]])) * 120;
        if repaired.len() >= end + 4 {
            let crc = crc32c_append(crc32c(&STORE), &repaired[..end]);
            repaired[end..end + 4].copy_from_slice(&crc.to_le_bytes());
        }
    }
    check(&repaired);
}

/// A note that decodes is the one that encodes to these very bytes.
fn check(bytes: &[u8]) {
    if let Some(note) = RingNote::decode(bytes, &STORE) {
        let again = note.encode(&STORE);
        assert_eq!(again[..], bytes[..again.len()]);
        assert_eq!(RingNote::decode(bytes, &[8; 16]), None);
    }
}
