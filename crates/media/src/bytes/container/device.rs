//! The first bytes of a device of the warm level: whose it is and how it is cut. Two copies alternate.
//!
//! ```text
//! magic 8 | version 4 | device 4 | store 16 | devices 4 | first container 4 | containers 4 | key bytes 2 | primary
//! bytes 2 | container_bytes 8 | log_bytes 8 | revision 8 | zero 52 | crc 4 at 124
//! ```

use super::{
    CONTAINER_BLOCK_BYTES, CONTAINER_BYTES_MAX, CONTAINER_BYTES_MIN, CONTAINERS_MAX, set, u16_at, u32_at, u64_at, zero,
};
use forebay_core::limits::KEY_BYTES_MAX;
use forebay_core::{Error, Result, crc32c};

const MAGIC: [u8; 8] = *b"FBDEVICE";
const VERSION: u32 = 1;

/// The owner of a device and its division into containers. Fixed at creation, except for `devices` and the revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSuperblock {
    /// Random identity of the store that it belongs to.
    pub store: [u8; 16],
    /// Which of the store's devices it is, from 0.
    pub device: u32,
    /// Devices of the store; fewer on one that no opening has seen since others were added.
    pub devices: u32,
    /// Number of its first container; numbers run over all devices.
    pub first: u32,
    /// Containers on this device.
    pub containers: u32,
    /// Bytes of a packed key.
    pub key_bytes: u16,
    /// Bytes of a packed primary key.
    pub primary_bytes: u16,
    /// Bytes of each container.
    pub container_bytes: u64,
    /// Bytes of each of the two files of the decision log.
    pub log_bytes: u64,
    /// Counts the writes of the superblock; the higher valid copy is in force.
    pub revision: u64,
}

impl DeviceSuperblock {
    /// Bytes of one copy that mean something; the copies are one block apart.
    pub const BYTES: usize = 128;

    /// Revision of a device that was added, and that no opening has taken in yet.
    pub const REVISION_ADDED: u64 = 0;

    /// Whether no opening has taken it in yet.
    pub fn is_added(&self) -> bool {
        self.revision == Self::REVISION_ADDED
    }

    /// The superblock as bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        set(&mut out, 0, MAGIC);
        set(&mut out, 8, VERSION.to_le_bytes());
        set(&mut out, 12, self.device.to_le_bytes());
        set(&mut out, 16, self.store);
        set(&mut out, 32, self.devices.to_le_bytes());
        set(&mut out, 36, self.first.to_le_bytes());
        set(&mut out, 40, self.containers.to_le_bytes());
        set(&mut out, 44, self.key_bytes.to_le_bytes());
        set(&mut out, 46, self.primary_bytes.to_le_bytes());
        set(&mut out, 48, self.container_bytes.to_le_bytes());
        set(&mut out, 56, self.log_bytes.to_le_bytes());
        set(&mut out, 64, self.revision.to_le_bytes());
        let crc = crc32c(&out[..124]);
        set(&mut out, 124, crc.to_le_bytes());
        out
    }

    /// Reads one copy.
    ///
    /// # Errors
    /// `Invalid` where it is not a device of Forebay or one of another version; `Corrupt` where it does not verify.
    pub fn decode(bytes: &[u8]) -> Result<DeviceSuperblock> {
        let bytes = bytes.get(..Self::BYTES).ok_or_else(|| Error::corrupt("device superblock: file too short"))?;
        if bytes[..8] != MAGIC {
            return Err(Error::invalid("not a warm device of Forebay: the magic bytes are missing"));
        }
        if u32_at(bytes, 8) != VERSION {
            return Err(Error::invalid(format!(
                "warm device of version {}; this build reads version {VERSION}",
                u32_at(bytes, 8)
            )));
        }
        if crc32c(&bytes[..124]) != u32_at(bytes, 124) {
            return Err(Error::corrupt("device superblock: checksum does not match"));
        }
        let mut store = [0; 16];
        store.copy_from_slice(&bytes[16..32]);
        let superblock = DeviceSuperblock {
            store,
            device: u32_at(bytes, 12),
            devices: u32_at(bytes, 32),
            first: u32_at(bytes, 36),
            containers: u32_at(bytes, 40),
            key_bytes: u16_at(bytes, 44),
            primary_bytes: u16_at(bytes, 46),
            container_bytes: u64_at(bytes, 48),
            log_bytes: u64_at(bytes, 56),
            revision: u64_at(bytes, 64),
        };
        if !zero(&bytes[72..124]) || !superblock.possible() {
            return Err(Error::corrupt(format!("device superblock with impossible sizes: {superblock:?}")));
        }
        Ok(superblock)
    }

    /// Whether the sizes can be those of a device.
    pub fn possible(&self) -> bool {
        self.devices >= 1
            && self.device < self.devices
            && self.containers >= 1
            && u64::from(self.first) + u64::from(self.containers) <= u64::from(CONTAINERS_MAX)
            && usize::from(self.key_bytes) <= KEY_BYTES_MAX
            && (1..self.key_bytes).contains(&self.primary_bytes)
            && (CONTAINER_BYTES_MIN..=CONTAINER_BYTES_MAX).contains(&self.container_bytes)
            && self.container_bytes.is_multiple_of(CONTAINER_BLOCK_BYTES)
            && self.log_bytes.is_multiple_of(CONTAINER_BLOCK_BYTES)
    }
}

const _: () = assert!(DeviceSuperblock::BYTES as u64 <= CONTAINER_BLOCK_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Kind;

    fn sample() -> DeviceSuperblock {
        DeviceSuperblock {
            store: [3; 16],
            device: 1,
            devices: 2,
            first: 100,
            containers: 50,
            key_bytes: 16,
            primary_bytes: 12,
            container_bytes: 1 << 30,
            log_bytes: 64 << 20,
            revision: 9,
        }
    }

    #[test]
    fn round_trip_and_every_bit_matters() {
        let mut bytes = sample().encode();
        assert_eq!(DeviceSuperblock::decode(&bytes).unwrap(), sample());
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(DeviceSuperblock::decode(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn says_whether_it_is_foreign_another_version_or_broken() {
        let kind = |bytes: &[u8]| DeviceSuperblock::decode(bytes).unwrap_err().kind();
        let mut bytes = sample().encode();
        assert_eq!(kind(&[0; 128]), Kind::Invalid);
        assert_eq!(kind(&bytes[..100]), Kind::Corrupt);
        bytes[8] = 2;
        assert_eq!(kind(&bytes), Kind::Invalid);
        assert_eq!(kind(&DeviceSuperblock { device: 2, ..sample() }.encode()), Kind::Corrupt);
        assert_eq!(kind(&DeviceSuperblock { container_bytes: 5 << 30, ..sample() }.encode()), Kind::Corrupt);
        assert_eq!(kind(&DeviceSuperblock { first: 1 << 20, ..sample() }.encode()), Kind::Corrupt);
    }
}
