//! A container's header: what it holds and its state in its life. Two copies alternate.
//!
//! ```text
//! magic 8 | version 4 | device 4 | store 16 | container 4 | generation 4 | state 1 | kind 1 | stream 2 | extents 4
//! run 8 | container_bytes 8 | order 8 | data_end 8 | directory: offset 8, bytes 8, crc 4 | zero 4 | images 8
//! fragments 8 | payload_bytes 8 | revision 8 | custody_since 8 | filling 8 | zero 100 | crc 4 at 252
//! ```

use super::{
    CONTAINER_BLOCK_BYTES, CONTAINER_BYTES_MAX, CONTAINER_DATA_OFFSET, Stream, set, u16_at, u32_at, u64_at, zero,
};
use forebay_core::{Error, Result, crc32c};
use std::fmt;

const MAGIC: [u8; 8] = *b"FBCONTNR";
const VERSION: u32 = 3;
/// The first one; it and the next have no filling.
const VERSION_MIN: u32 = 1;

/// The state of a container in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ContainerState {
    /// Holds nothing; may be taken.
    Empty = 0,
    /// Is written, front to back.
    Filling = 1,
    /// Closed with a directory: nothing is written into it any more.
    Full = 2,
    /// Its events are being moved away.
    Draining = 3,
    /// A write or a sync failed: what was committed is readable, nothing is written any more.
    Poisoned = 4,
    /// The archive was proved to have it: readable, and released when its time has come or its space is needed.
    Custody = 5,
}

impl ContainerState {
    /// The state of a number; `None` where no state has it.
    pub fn from_byte(byte: u8) -> Option<ContainerState> {
        use ContainerState::*;
        [Empty, Filling, Full, Draining, Poisoned, Custody].into_iter().find(|state| *state as u8 == byte)
    }
}

impl fmt::Display for ContainerState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ContainerState::Empty => "empty",
            ContainerState::Filling => "filling",
            ContainerState::Full => "full",
            ContainerState::Draining => "draining",
            ContainerState::Poisoned => "poisoned",
            ContainerState::Custody => "custody",
        })
    }
}

/// What kind of data a container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ContainerKind {
    /// Events.
    Events = 0,
    /// A continuous recording.
    Recording = 1,
}

impl ContainerKind {
    fn from_byte(byte: u8) -> Option<ContainerKind> {
        [ContainerKind::Events, ContainerKind::Recording].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Where the directory of a closed container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryPlace {
    /// From the container's start, in bytes; a whole number of blocks.
    pub offset: u64,
    /// Its length in bytes, before it is padded to the block.
    pub bytes: u64,
    /// Its checksum, as its own head has it.
    pub crc: u32,
}

/// A container's header; of two valid copies the one with the higher `revision` is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerHeader {
    /// The device that it is on.
    pub device: u32,
    /// Its number, over all devices.
    pub container: u32,
    /// Counts its fillings; part of every seed in it.
    pub generation: u32,
    /// Its filling; 0 where it holds nothing, or where no header says it: one of an earlier version, or one that is lost.
    pub filling: u64,
    /// Its state in its life.
    pub state: ContainerState,
    /// What it is for.
    pub kind: ContainerKind,
    /// Which stream it holds.
    pub stream: Stream,
    /// Whose run; [`ContainerHeader::SHARED_RUN`] for several.
    pub run: u64,
    /// Its size in bytes.
    pub container_bytes: u64,
    /// In which order containers began to be filled, over the whole level.
    pub order: u64,
    /// End of its last extent, in bytes from its start; known once it is full or poisoned.
    pub data_end: u64,
    /// Its directory, once it is full.
    pub directory: Option<DirectoryPlace>,
    /// Extents in it, once it is full.
    pub extents: u32,
    /// Images in it, once it is full.
    pub images: u64,
    /// Fragments in it, once it is full.
    pub fragments: u64,
    /// Bytes of all payloads in it, once it is full.
    pub payload_bytes: u64,
    /// When the archive was proved to have it, in milliseconds since 1970 by the clock of the machine; 0 where it was not.
    pub custody_since: u64,
    /// Counts the writes of this header; write number `revision` goes to copy `revision % 2`.
    pub revision: u64,
}

impl ContainerHeader {
    /// Bytes of one copy; the copies are one block apart.
    pub const BYTES: usize = 256;
    /// The run of a container that several runs share.
    pub const SHARED_RUN: u64 = u64::MAX;

    /// The header of an empty container that was never filled.
    pub fn empty(device: u32, container: u32, container_bytes: u64) -> ContainerHeader {
        ContainerHeader {
            device,
            container,
            generation: 0,
            filling: 0,
            state: ContainerState::Empty,
            kind: ContainerKind::Events,
            stream: Stream::Shared,
            run: ContainerHeader::SHARED_RUN,
            container_bytes,
            order: 0,
            data_end: 0,
            directory: None,
            extents: 0,
            images: 0,
            fragments: 0,
            payload_bytes: 0,
            custody_since: 0,
            revision: 0,
        }
    }

    /// The header as bytes.
    pub fn encode(&self, store: &[u8; 16]) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        set(&mut out, 0, MAGIC);
        set(&mut out, 8, VERSION.to_le_bytes());
        set(&mut out, 12, self.device.to_le_bytes());
        set(&mut out, 16, *store);
        set(&mut out, 32, self.container.to_le_bytes());
        set(&mut out, 36, self.generation.to_le_bytes());
        out[40] = self.state as u8;
        out[41] = self.kind as u8;
        set(&mut out, 42, self.stream.code().to_le_bytes());
        set(&mut out, 44, self.extents.to_le_bytes());
        set(&mut out, 48, self.run.to_le_bytes());
        set(&mut out, 56, self.container_bytes.to_le_bytes());
        set(&mut out, 64, self.order.to_le_bytes());
        set(&mut out, 72, self.data_end.to_le_bytes());
        if let Some(directory) = self.directory {
            set(&mut out, 80, directory.offset.to_le_bytes());
            set(&mut out, 88, directory.bytes.to_le_bytes());
            set(&mut out, 96, directory.crc.to_le_bytes());
        }
        set(&mut out, 104, self.images.to_le_bytes());
        set(&mut out, 112, self.fragments.to_le_bytes());
        set(&mut out, 120, self.payload_bytes.to_le_bytes());
        set(&mut out, 128, self.revision.to_le_bytes());
        set(&mut out, 136, self.custody_since.to_le_bytes());
        set(&mut out, 144, self.filling.to_le_bytes());
        let crc = crc32c(&out[..252]);
        set(&mut out, 252, crc.to_le_bytes());
        out
    }

    /// Reads one copy of the header of `container` on `device` of `store`.
    ///
    /// # Errors
    /// `Invalid` for another version; `Corrupt` where it does not verify, is another container's or cannot be.
    pub fn decode(bytes: &[u8], store: &[u8; 16], device: u32, container: u32) -> Result<ContainerHeader> {
        let corrupt =
            |what: &str| Error::corrupt(format!("header of container {container} of device {device}: {what}"));
        let bytes = bytes.get(..Self::BYTES).ok_or_else(|| corrupt("too short"))?;
        if bytes[..8] != MAGIC || crc32c(&bytes[..252]) != u32_at(bytes, 252) {
            return Err(corrupt("does not verify"));
        }
        let version = u32_at(bytes, 8);
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(Error::invalid(format!(
                "container {container} of version {version}; this build reads versions {VERSION_MIN} to {VERSION}"
            )));
        }
        if bytes[16..32] != *store || u32_at(bytes, 12) != device || u32_at(bytes, 32) != container {
            return Err(corrupt("belongs to another store, device or container"));
        }
        let state = ContainerState::from_byte(bytes[40]).ok_or_else(|| corrupt("unknown state"))?;
        let kind = ContainerKind::from_byte(bytes[41]).ok_or_else(|| corrupt("unknown kind"))?;
        let stream = Stream::from_code(u16_at(bytes, 42)).ok_or_else(|| corrupt("unknown stream"))?;
        let directory = DirectoryPlace { offset: u64_at(bytes, 80), bytes: u64_at(bytes, 88), crc: u32_at(bytes, 96) };
        let header = ContainerHeader {
            device,
            container,
            generation: u32_at(bytes, 36),
            filling: u64_at(bytes, 144),
            state,
            kind,
            stream,
            run: u64_at(bytes, 48),
            container_bytes: u64_at(bytes, 56),
            order: u64_at(bytes, 64),
            data_end: u64_at(bytes, 72),
            directory: (directory.offset != 0).then_some(directory),
            extents: u32_at(bytes, 44),
            images: u64_at(bytes, 104),
            fragments: u64_at(bytes, 112),
            payload_bytes: u64_at(bytes, 120),
            custody_since: u64_at(bytes, 136),
            revision: u64_at(bytes, 128),
        };
        // Bytes without a meaning in this version are zero: a later version that gives them one is not half understood.
        let unused =
            zero(&bytes[100..104]) && zero(&bytes[152..252]) && (directory.offset != 0 || zero(&bytes[80..100]));
        if unused && header.possible() && (version == VERSION || header.filling == 0) {
            Ok(header)
        } else {
            Err(corrupt("impossible values"))
        }
    }

    /// Whether all places lie within the container, at blocks.
    fn possible(&self) -> bool {
        let ends = self.data_end <= self.container_bytes && self.data_end.is_multiple_of(CONTAINER_BLOCK_BYTES);
        let directory = self.directory.is_none_or(|directory| {
            directory.offset >= CONTAINER_DATA_OFFSET
                && directory.offset.is_multiple_of(CONTAINER_BLOCK_BYTES)
                && directory.offset.checked_add(directory.bytes).is_some_and(|end| end <= self.container_bytes)
        });
        let custody = (self.state == ContainerState::Custody) == (self.custody_since != 0);
        self.container_bytes <= CONTAINER_BYTES_MAX && ends && directory && custody
    }
}

const _: () = assert!(ContainerHeader::BYTES as u64 <= CONTAINER_BLOCK_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Kind;

    const STORE: [u8; 16] = [5; 16];

    fn sample() -> ContainerHeader {
        ContainerHeader {
            device: 2,
            container: 77,
            generation: 3,
            filling: 0x1234_5678_9abc_def0,
            state: ContainerState::Full,
            kind: ContainerKind::Recording,
            stream: Stream::Recording(12),
            run: 4711,
            container_bytes: 1 << 20,
            order: 99,
            data_end: 65536,
            directory: Some(DirectoryPlace { offset: 65536, bytes: 500, crc: 1234 }),
            extents: 4,
            images: 5,
            fragments: 6,
            payload_bytes: 50_000,
            custody_since: 0,
            revision: 8,
        }
    }

    #[test]
    fn round_trip_and_every_bit_matters() {
        let mut bytes = sample().encode(&STORE);
        assert_eq!(ContainerHeader::decode(&bytes, &STORE, 2, 77).unwrap(), sample());
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(ContainerHeader::decode(&bytes, &STORE, 2, 77).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let custody = ContainerHeader { state: ContainerState::Custody, custody_since: 1_764_000_000_000, ..sample() };
        assert_eq!(ContainerHeader::decode(&custody.encode(&STORE), &STORE, 2, 77).unwrap(), custody);
        let empty = ContainerHeader::empty(0, 5, 1 << 30);
        assert_eq!(ContainerHeader::decode(&empty.encode(&STORE), &STORE, 0, 5).unwrap(), empty);
    }

    #[test]
    fn a_header_of_another_place_or_with_impossible_values_is_refused() {
        let bytes = sample().encode(&STORE);
        for (store, device, container) in [([6; 16], 2, 77), (STORE, 1, 77), (STORE, 2, 76)] {
            assert_eq!(ContainerHeader::decode(&bytes, &store, device, container).unwrap_err().kind(), Kind::Corrupt);
        }
        let place = |offset, bytes| Some(DirectoryPlace { offset, bytes, crc: 0 });
        for impossible in [
            ContainerHeader { data_end: 2 << 20, ..sample() },
            ContainerHeader { data_end: 65537, ..sample() },
            ContainerHeader { container_bytes: 5 << 30, ..sample() },
            ContainerHeader { directory: place(1 << 20, 1), ..sample() },
            ContainerHeader { directory: place(4096, 1), ..sample() },
            ContainerHeader { directory: place(65536, u64::MAX), ..sample() },
            ContainerHeader { custody_since: 1, ..sample() },
            ContainerHeader { state: ContainerState::Custody, ..sample() },
        ] {
            let bytes = impossible.encode(&STORE);
            assert_eq!(ContainerHeader::decode(&bytes, &STORE, 2, 77).unwrap_err().kind(), Kind::Corrupt);
        }
    }
}
