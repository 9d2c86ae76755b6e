//! The bytes of the warm level: devices, container headers, extents, images, directories. `docs/format-container.md` is
//! the specification; everything is little-endian.
//!
//! ```text
//! container: header copy 0 | header copy 1 | extent | extent | … | directory
//! extent:    head 64 | image | image | … | zeros to the block
//! image:     head 48 | primary key | table: one entry per fragment | payload | payload | …
//! ```
//!
//! *Invariants*: checksums of extents, images and directories are seeded with store, device, container, generation and
//! position, so that one of another place or an earlier filling never verifies (test `verifies_only_in_its_place`).
//!
//! *Not here*: I/O, and when which of this is durable (`warm` of this crate).

mod device;
mod directory;
mod extent;
mod header;
mod image;

pub use device::DeviceSuperblock;
pub use directory::{Directory, DirectoryBuilder, DirectoryIter};
pub use extent::{ExtentHead, ExtentKind};
pub use header::{ContainerHeader, ContainerKind, ContainerState, DirectoryPlace};
pub use image::{EntryMeta, Image, ImageHead, ImageLayout, ImageMarks, ImageRecord, ImageState, TableIter};

use forebay_core::{crc32c, crc32c_append};
use std::fmt;

/// Every extent, every header copy and the directory begin at a multiple of this, in bytes.
pub const CONTAINER_BLOCK_BYTES: u64 = 4096;
/// Where the first extent of a container begins, in bytes: after the two copies of its header.
pub const CONTAINER_DATA_OFFSET: u64 = 2 * CONTAINER_BLOCK_BYTES;
/// Images begin at multiples of this, in bytes, so that 28 bits name a place in a container.
pub const IMAGE_ALIGN: u64 = 16;
/// Smallest container, in bytes.
pub const CONTAINER_BYTES_MIN: u64 = 64 << 10;
/// Largest container, in bytes.
pub const CONTAINER_BYTES_MAX: u64 = 4 << 30;
/// Most containers of one store, over all its devices.
pub const CONTAINERS_MAX: u32 = 1 << 20;

// Whole blocks, so that extents, header copies and directories can begin at each; images align within them.
const _: () =
    assert!(CONTAINER_BYTES_MIN.is_multiple_of(CONTAINER_BLOCK_BYTES) && CONTAINER_BYTES_MIN > CONTAINER_DATA_OFFSET);
const _: () = assert!(CONTAINER_BLOCK_BYTES.is_multiple_of(IMAGE_ALIGN));
// A place in the largest container fits into 28 bits of image alignments.
const _: () = assert!(CONTAINER_BYTES_MAX / IMAGE_ALIGN <= 1 << 28);

/// What a container holds of a run. One run and one stream each, or it says that they share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// Events that nobody has decided yet.
    Undecided,
    /// Events of the debug stream.
    Debug,
    /// Several runs or streams.
    Shared,
    /// Events accepted into the stream of this number.
    Accepted(u8),
    /// Continuous data of this group of links, at most [`Stream::RECORDING_MAX`].
    Recording(u16),
}

impl Stream {
    /// Highest number of a group of links.
    pub const RECORDING_MAX: u16 = 0x7FFF;
    const ACCEPTED: u16 = 0x100;
    const RECORDING: u16 = 0x8000;

    /// Whether accepted events, or those of the debug stream, may be in it.
    pub fn is_decided(self) -> bool {
        matches!(self, Stream::Accepted(_) | Stream::Debug | Stream::Shared)
    }

    /// The stream as 16 bits.
    pub fn code(self) -> u16 {
        match self {
            Stream::Undecided => 0,
            Stream::Debug => 1,
            Stream::Shared => 2,
            Stream::Accepted(stream) => Stream::ACCEPTED | u16::from(stream),
            Stream::Recording(group) => Stream::RECORDING | group & Stream::RECORDING_MAX,
        }
    }

    /// The stream of a code; `None` where no stream has it.
    pub fn from_code(code: u16) -> Option<Stream> {
        match code {
            0 => Some(Stream::Undecided),
            1 => Some(Stream::Debug),
            2 => Some(Stream::Shared),
            _ if code & Stream::RECORDING != 0 => Some(Stream::Recording(code & Stream::RECORDING_MAX)),
            _ if code & 0xFF00 == Stream::ACCEPTED => Some(Stream::Accepted(code as u8)),
            _ => None,
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stream::Undecided => out.write_str("undecided"),
            Stream::Debug => out.write_str("debug"),
            Stream::Shared => out.write_str("shared"),
            Stream::Accepted(stream) => write!(out, "accepted {stream}"),
            Stream::Recording(group) => write!(out, "recording {group}"),
        }
    }
}

/// Seed of every checksum in one filling of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerSeed(u32);

impl ContainerSeed {
    /// The seed for a container's generation on this device of the store with this id.
    pub fn new(store: &[u8; 16], device: u32, container: u32, generation: u32) -> ContainerSeed {
        let mut bytes = [0; 28];
        bytes[..16].copy_from_slice(store);
        bytes[16..20].copy_from_slice(&device.to_le_bytes());
        bytes[20..24].copy_from_slice(&container.to_le_bytes());
        bytes[24..].copy_from_slice(&generation.to_le_bytes());
        ContainerSeed(crc32c(&bytes))
    }

    /// Checksum of bytes at `position` from the container's start.
    pub fn checksum(self, position: u64, bytes: &[u8]) -> u32 {
        // The position is in it: a write that lands elsewhere in the container, as disks do rarely, does not verify there.
        crc32c_append(crc32c_append(self.0, &position.to_le_bytes()), bytes)
    }
}

/// Reads little-endian integers at offsets that the caller has checked.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Writes integers at offsets of an array of fixed size.
fn set<const N: usize>(out: &mut [u8], at: usize, value: [u8; N]) {
    out[at..at + N].copy_from_slice(&value);
}

fn zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_one_stream_or_none() {
        let mut streams = 0;
        for code in 0..=u16::MAX {
            if let Some(stream) = Stream::from_code(code) {
                assert_eq!(stream.code(), code);
                streams += 1;
            }
        }
        assert_eq!(streams, 3 + 256 + 0x8000);
        assert_eq!(Stream::Accepted(3).to_string(), "accepted 3");
    }

    #[test]
    fn every_part_of_a_seed_matters() {
        let seed = ContainerSeed::new(&[1; 16], 2, 3, 4);
        for other in [
            ContainerSeed::new(&[9; 16], 2, 3, 4),
            ContainerSeed::new(&[1; 16], 9, 3, 4),
            ContainerSeed::new(&[1; 16], 2, 9, 4),
            ContainerSeed::new(&[1; 16], 2, 3, 9),
        ] {
            assert_ne!(seed, other);
        }
        assert_ne!(seed.checksum(16, b"x"), seed.checksum(32, b"x"));
    }
}
