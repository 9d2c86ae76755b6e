//! Fuzzes slots of the decision log: raw, and under a repaired checksum; decisions and blobs.

use forebay_core::crc32c_append;
use forebay_media::bytes::{Slot, SlotLayout};

use crate::seal;

pub(crate) fn target(data: (u8, u32, Vec<u8>)) {
    let (key_bytes, number, mut bytes) = data;
    let layout = SlotLayout::for_key_bytes(2 + key_bytes as usize % 31);
    check(layout, number, &bytes);
    if bytes.len() >= layout.slot_bytes() {
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        let crc = crc32c_append(seal::seed_crc(), &bytes[..layout.slot_bytes()]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        check(layout, number, &bytes);
    }
}

/// What a slot says survives being written again.
fn check(layout: SlotLayout, number: u32, bytes: &[u8]) {
    let seed = seal::seed();
    let Some(slot) = layout.decode(bytes, seed, number) else { return };
    let mut again = vec![0xAA; layout.slot_bytes()];
    match &slot {
        Slot::Decision(decision) => layout.encode(decision, seed, number, &mut again),
        Slot::Blob(chunk) => {
            assert!(chunk.data.len() <= layout.blob_bytes());
            layout.encode_blob(chunk, seed, number, &mut again);
        }
    }
    assert_eq!(layout.decode(&again, seed, number), Some(slot));
}
