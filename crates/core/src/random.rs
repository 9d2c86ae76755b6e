//! Random numbers, from a trait so that a simulator can give the same ones again.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where random numbers come from. They tell things apart, such as stores; nothing that must stay secret is made of them.
pub trait Random: fmt::Debug + Send + Sync {
    /// The next number.
    fn next(&self) -> u64;

    /// An id that no other store has.
    fn id(&self) -> [u8; 16] {
        let (mut id, halves) = ([0; 16], [self.next(), self.next()]);
        id.chunks_mut(8).zip(halves).for_each(|(bytes, half)| bytes.copy_from_slice(&half.to_le_bytes()));
        id
    }
}

/// The operating system's.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn next(&self) -> u64 {
        // The time as well, should the system's random source be weak right after a boot: two stores with one id could read
        // each other's segments as their own.
        let random = RandomState::new().build_hasher().finish();
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        random ^ time.rotate_left(17)
    }
}

/// The same numbers for the same seed: for tests and simulators.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// Numbers that follow from `seed`.
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom(AtomicU64::new(seed))
    }
}

impl Random for SeededRandom {
    fn next(&self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut number = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^ number >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_published_numbers() {
        let random = SeededRandom::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(expected.map(|_| random.next()), expected);
    }

    #[test]
    fn the_system_gives_other_numbers_each_time() {
        let ids: std::collections::BTreeSet<[u8; 16]> = (0..1000).map(|_| SystemRandom.id()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
