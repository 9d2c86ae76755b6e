//! Fuzzes the image of a device's decision log: raw bytes; slots and blocks under repaired checksums, so that what lies
//! behind them is reached.

use forebay_core::{crc32c, crc32c_append};

use crate::seal;

const BLOCK_BYTES: usize = 4096;
const SLOT_BYTES: usize = 64;
const BLOCKS_MAX: usize = 6;

/// A block: commit, index and blocks of its head, slots, how many of its slots are repaired, bytes.
type Block = (u8, u8, u8, u8, u8, Vec<u8>);

pub(crate) fn target(data: (bool, u8, Vec<Block>, Vec<u8>)) {
    let (repaired, snapshot_blocks, blocks, raw) = data;
    forebay_media::warm::decode_device_log(&raw, seal::STORE, 16);
    let mut image = vec![0; 2 * BLOCK_BYTES];
    head(&mut image, snapshot_blocks);
    for (number, block) in (0_u32..).zip(blocks.iter().take(BLOCKS_MAX)) {
        image.extend(bytes_of(number, block, repaired));
    }
    image.extend_from_slice(&raw);
    forebay_media::warm::decode_device_log(&image, seal::STORE, 16);
}

/// The head of a file, as `docs/format-device-log.md` has it.
fn head(out: &mut [u8], snapshot_blocks: u8) {
    out[..8].copy_from_slice(b"FBDECLOG");
    out[8] = 1;
    out[12] = 2;
    out[14] = 16;
    out[16..32].copy_from_slice(&seal::STORE);
    out[40..48].copy_from_slice(&u64::from(seal::GENERATION).to_le_bytes());
    out[48..56].copy_from_slice(&(64_u64 << 10).to_le_bytes());
    out[56] = snapshot_blocks;
    let crc = crc32c(&out[..124]);
    out[124..128].copy_from_slice(&crc.to_le_bytes());
}

fn bytes_of(number: u32, block: &Block, repaired: bool) -> Vec<u8> {
    let (commit, index, blocks, slots, sealed, content) = block;
    let mut out = vec![0; BLOCK_BYTES];
    let count = content.len().min(BLOCK_BYTES - 32);
    out[32..32 + count].copy_from_slice(&content[..count]);
    let tag = (1_u32 << 31).to_le_bytes();
    let seed = crc32c(&[&seal::STORE[..], &tag, &seal::GENERATION.to_le_bytes()].concat());
    let per_block = (BLOCK_BYTES - 32) / SLOT_BYTES;
    for at in 0..per_block.min(usize::from(*sealed)) {
        let slot = &mut out[32 + at * SLOT_BYTES..32 + (at + 1) * SLOT_BYTES];
        slot[..4].copy_from_slice(&(number * per_block as u32 + at as u32).to_le_bytes());
        let crc = crc32c_append(seed, slot);
        slot[..4].copy_from_slice(&crc.to_le_bytes());
    }
    if repaired {
        out[4..8].copy_from_slice(b"FBDB");
        out[8] = *commit;
        out[16] = *index;
        out[20] = *blocks;
        out[24] = *slots;
        let place =
            [&seal::STORE[..], &tag, &u64::from(seal::GENERATION).to_le_bytes(), &number.to_le_bytes()].concat();
        let crc = crc32c_append(crc32c(&place), &out[4..32]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }
    out
}
