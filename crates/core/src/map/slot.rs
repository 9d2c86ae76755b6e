//! The slot of an event: 12 bits of a hash of its primary key.

/// Slots of a keyspace.
pub const SLOTS: usize = 4096;
/// Most bits of a primary key that one block of neighbours has.
pub const BLOCK_BITS_MAX: u8 = 16;

/// The slot of a packed primary key without its last `block_bits` bits: neighbours share a slot, so that they stay dense on
/// their node. A key whose last sub-key is padded to whole bytes counts the bits of the padding too.
///
/// The finaliser is that of MurmurHash3 (Appleby, `fmix64`), another one than that of a store's shards: the events of one slot
/// use all shards.
#[inline]
pub fn slot_of(primary: &[u8], block_bits: u8) -> u16 {
    let (high, low) = primary.split_at(primary.len().saturating_sub(8));
    let mut hash = mix((word(low) >> block_bits).wrapping_add(0x9E37_79B9_7F4A_7C15));
    for chunk in high.chunks(8) {
        hash = mix(hash ^ word(chunk));
    }
    (hash >> 52) as u16
}

/// At most 8 bytes as a big-endian number.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[inline]
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash = (hash ^ hash >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(run: u32, event: u64) -> Vec<u8> {
        [&run.to_be_bytes()[..], &event.to_be_bytes()].concat()
    }

    /// The shard of the store (`store/src/events/shard.rs`) for run:u32, event:u64.
    fn shard_of(run: u32, event: u64) -> usize {
        let hash = (event >> 6 ^ u64::from(run)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        (hash.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32) as usize % 16
    }

    #[test]
    fn fixed_keys_have_the_slots_of_the_document() {
        let slots: Vec<u16> =
            [(0, 0), (1, 0), (1, 63), (1, 64), (7, 1_000_000)].map(|(run, event)| slot_of(&key(run, event), 6)).into();
        assert_eq!(slots, [1593, 2264, 2264, 888, 1741]);
        assert_eq!([slot_of(&[], 6), slot_of(&[1, 2], 0), slot_of(&[7; 32], 0)], [2506, 3921, 3249]);
    }

    #[test]
    fn slots_are_flat_and_independent_of_shards() {
        // Dense, every 64th, every 4096th, and many runs.
        for (runs, step) in [(1, 1), (1, 64), (1, 4096), (1000, 64)] {
            let mut joint = [0_u32; 256];
            let mut slots = vec![0_u32; SLOTS];
            let blocks = 1 << 18;
            for at in 0..blocks {
                let (run, event) = (at % runs, u64::from(at / runs) * step);
                let slot = usize::from(slot_of(&key(run, event), if step == 1 { 0 } else { 6 }));
                slots[slot] += 1;
                joint[slot % 16 * 16 + shard_of(run, event)] += 1;
            }
            // Chi-square has k - 1 degrees of freedom and a deviation of sqrt(2k); 6 deviations are allowed. Shards themselves
            // need not be flat: what is expected of a pair is what its slot and its shard have alone.
            let total = f64::from(blocks);
            let flat = |k: usize, terms: &mut dyn Iterator<Item = (u32, f64)>| {
                let chi: f64 = terms.map(|(n, expected)| (f64::from(n) - expected).powi(2) / expected).sum();
                assert!(chi < k as f64 + 6.0 * (2.0 * k as f64).sqrt(), "{runs} runs, step {step}, {k} cells: {chi}");
            };
            flat(SLOTS, &mut slots.iter().map(|&n| (n, total / SLOTS as f64)));
            let of_slot: Vec<u32> = joint.chunks(16).map(|row| row.iter().sum()).collect();
            let of_shard: Vec<u32> = (0..16).map(|shard| joint.iter().skip(shard).step_by(16).sum()).collect();
            let pair = |at: usize| f64::from(of_slot[at / 16]) * f64::from(of_shard[at % 16]) / total;
            flat(256, &mut joint.iter().enumerate().map(|(at, &n)| (n, pair(at))));
        }
    }
}
