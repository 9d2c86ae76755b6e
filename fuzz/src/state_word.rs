//! Fuzzes state words: raw, and under a repaired generation and check.

use forebay_core::crc32c_append;
use forebay_media::bytes::{Mark, StateWord};

use crate::seal;

pub(crate) fn target(data: (u64, u32)) {
    let (word, number) = data;
    check(word, number);
    let body = word & 0xFF_FF00_0000 | u64::from(seal::GENERATION & 0xFF_FFFF);
    let bytes = [&body.to_le_bytes()[..], &number.to_le_bytes(), &[0; 4]].concat();
    check(body | u64::from(crc32c_append(seal::seed_crc(), &bytes) >> 8) << 40, number);
}

/// What a word says survives being written again, and no single bit turns a live mark into a dead one.
fn check(word: u64, number: u32) {
    let seed = seal::seed();
    let Some(state) = StateWord::decode(word, seed, number) else { return };
    assert_eq!(StateWord::decode(state.encode(seed, number), seed, number), Some(state));
    if state.mark == Mark::Live {
        for bit in 0..64 {
            let flipped = StateWord::decode(word ^ 1 << bit, seed, number);
            assert_ne!(flipped.map(|state| state.mark), Some(Mark::Dead));
        }
    }
}
