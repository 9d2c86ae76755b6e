//! Fuzzes directory entries: raw bytes, and bytes under a repaired checksum, so that what lies behind it is reached.

use forebay_core::crc32c_append;
use forebay_media::bytes::{EntryLayout, RecordSeed};

use crate::seal;

pub(crate) fn target(data: (u8, u32, Vec<u8>)) {
    let (key_bytes, number, mut bytes) = data;
    let layout = EntryLayout::for_key_bytes(2 + key_bytes as usize % 31);
    check(layout, number, &bytes);
    if bytes.len() >= layout.state_offset() {
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        let crc = crc32c_append(seal::seed_crc(), &bytes[..layout.state_offset()]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        check(layout, number, &bytes);
    }
}

/// An entry that decodes is the one that encodes to these very bytes.
fn check(layout: EntryLayout, number: u32, bytes: &[u8]) {
    let seed: RecordSeed = seal::seed();
    if let Some(entry) = layout.decode(bytes, seed, number) {
        let mut again = vec![0xAA; layout.entry_bytes()];
        layout.encode(&entry, seed, number, &mut again);
        assert_eq!(again[..layout.state_offset()], bytes[..layout.state_offset()]);
        assert_eq!(layout.decode(bytes, seed, number.wrapping_add(1)), None);
    }
}
