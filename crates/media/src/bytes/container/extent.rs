//! The head of an extent: what one append wrote, and how far everything was durable then.
//!
//! ```text
//! magic 4 | crc 4 | bytes 8 | images 4 | fragments 4 | committed 8 | number 4 | kind 1, zero 3 | payload_bytes 8 | zero 16
//! ```

use super::{CONTAINER_BLOCK_BYTES, ContainerSeed, set, u32_at, u64_at, zero};

const MAGIC: [u8; 4] = *b"FBEX";

/// Why an extent was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ExtentKind {
    /// Events that left the hot level.
    Demoted = 1,
    /// Puts that asked for durability.
    Persisted = 2,
    /// A continuous recording.
    Recorded = 3,
    /// Events that left another container.
    Moved = 4,
}

impl ExtentKind {
    fn from_byte(byte: u8) -> Option<ExtentKind> {
        use ExtentKind::*;
        [Demoted, Persisted, Recorded, Moved].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The head of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentHead {
    /// Bytes of the whole extent, head and padding included; a whole number of blocks.
    pub bytes: u64,
    /// Images in it, void ones included.
    pub images: u32,
    /// Fragments in it, as they were planned.
    pub fragments: u32,
    /// Everything before this position of the container was durable when this head was made.
    pub committed: u64,
    /// Its number in the container, from 0.
    pub number: u32,
    /// Why it was written.
    pub kind: ExtentKind,
    /// Bytes of its payloads, as they were planned.
    pub payload_bytes: u64,
}

impl ExtentHead {
    /// Bytes of an encoded head.
    pub const BYTES: usize = 64;
    /// What each head begins with.
    pub const MAGIC: [u8; 4] = MAGIC;

    /// The head as bytes, for this position of the container.
    pub fn encode(&self, seed: ContainerSeed, position: u64) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        set(&mut out, 0, MAGIC);
        set(&mut out, 8, self.bytes.to_le_bytes());
        set(&mut out, 16, self.images.to_le_bytes());
        set(&mut out, 20, self.fragments.to_le_bytes());
        set(&mut out, 24, self.committed.to_le_bytes());
        set(&mut out, 32, self.number.to_le_bytes());
        out[36] = self.kind as u8;
        set(&mut out, 40, self.payload_bytes.to_le_bytes());
        let crc = seed.checksum(position, &out[8..]);
        set(&mut out, 4, crc.to_le_bytes());
        out
    }

    /// Reads a head; `None` where it does not verify at this position of this filling.
    pub fn decode(bytes: &[u8], seed: ContainerSeed, position: u64) -> Option<ExtentHead> {
        let bytes = bytes.get(..Self::BYTES)?;
        if bytes[..4] != MAGIC || seed.checksum(position, &bytes[8..]) != u32_at(bytes, 4) {
            return None;
        }
        let head = ExtentHead {
            bytes: u64_at(bytes, 8),
            images: u32_at(bytes, 16),
            fragments: u32_at(bytes, 20),
            committed: u64_at(bytes, 24),
            number: u32_at(bytes, 32),
            kind: ExtentKind::from_byte(bytes[36])?,
            payload_bytes: u64_at(bytes, 40),
        };
        let whole = head.bytes >= CONTAINER_BLOCK_BYTES && head.bytes.is_multiple_of(CONTAINER_BLOCK_BYTES);
        (whole && zero(&bytes[37..40]) && zero(&bytes[48..])).then_some(head)
    }
}

const _: () = assert!(ExtentHead::BYTES as u64 <= CONTAINER_BLOCK_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ExtentHead {
        ExtentHead {
            bytes: 8 << 20,
            images: 100,
            fragments: 5000,
            committed: 123 * 4096,
            number: 7,
            kind: ExtentKind::Persisted,
            payload_bytes: 8_000_000,
        }
    }

    #[test]
    fn round_trip_and_every_bit_matters() {
        let seed = ContainerSeed::new(&[1; 16], 0, 1, 2);
        let mut bytes = sample().encode(seed, 8192);
        assert_eq!(ExtentHead::decode(&bytes, seed, 8192), Some(sample()));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ExtentHead::decode(&bytes, seed, 8192), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(ExtentHead::decode(&bytes[..63], seed, 8192), None);
    }

    #[test]
    fn verifies_only_in_its_place() {
        let seed = ContainerSeed::new(&[1; 16], 0, 1, 2);
        let bytes = sample().encode(seed, 8192);
        assert_eq!(ExtentHead::decode(&bytes, seed, 12288), None);
        assert_eq!(ExtentHead::decode(&bytes, ContainerSeed::new(&[1; 16], 0, 1, 3), 8192), None);
        let ragged = ExtentHead { bytes: 5000, ..sample() };
        assert_eq!(ExtentHead::decode(&ragged.encode(seed, 8192), seed, 8192), None);
    }
}
