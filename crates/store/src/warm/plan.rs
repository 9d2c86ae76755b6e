//! What callers of the warm level say and are told: sizes, targets, images to write, places.

use forebay_core::{ContainerKind, EntryFlags, EntryMeta, ImageMarks, ImageRecord, Stream};
use std::time::Duration;

/// How the warm level is cut and driven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WarmShape {
    /// Bytes of a container: a multiple of the block, 64 KiB to 4 GiB. Fixed at creation.
    pub(crate) container_bytes: u64,
    /// Bytes of each of the two files of a device's decision log. Fixed at creation.
    pub(crate) log_bytes: u64,
    /// Bytes of one write; a multiple of the block.
    pub(crate) io_bytes: usize,
    /// Writes under way per writer.
    pub(crate) depth: usize,
    /// A device that answers nothing for so long is reported stalled; after [`STALLS_MAX`] times that its containers
    /// under way are given up.
    pub(crate) stall: Duration,
    /// Containers being filled per device, from which on runs and streams share one.
    pub(crate) open_max: usize,
}

/// After so many times `WarmShape::stall` without an answer a writer gives up.
pub(crate) const STALLS_MAX: u32 = 6;

impl Default for WarmShape {
    fn default() -> WarmShape {
        WarmShape {
            container_bytes: 1 << 30,
            log_bytes: 64 << 20,
            io_bytes: 1 << 20,
            depth: 8,
            stall: Duration::from_secs(5),
            open_max: 4,
        }
    }
}

/// Where a writer's images go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) run: u64,
    pub(crate) stream: Stream,
    pub(crate) kind: ContainerKind,
    /// Only this device; without, the one that is written and drained least.
    pub(crate) device: Option<u32>,
    /// May take the last free container: what it writes empties others.
    pub(crate) moving: bool,
}

/// Where an image stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ImagePlace {
    /// The container's number, over all devices.
    pub(crate) container: u32,
    /// Bytes from the container's start; a multiple of 16.
    pub(crate) position: u64,
}

/// An event, or some of its fragments, to be written in one piece.
#[derive(Clone, Debug)]
pub(crate) struct ImagePlan<'a> {
    pub(crate) primary: &'a [u8],
    pub(crate) marks: ImageMarks,
    pub(crate) entries: Vec<EntryPlan<'a>>,
    /// The event's own record, which stands with its first image.
    pub(crate) record: Option<ImageRecord<'a>>,
}

impl ImagePlan<'_> {
    pub(super) fn record_bytes(&self) -> usize {
        self.record.map_or(0, |record| record.bytes.len())
    }
}

/// One fragment to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlan<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) payload: &'a [u8],
    /// CRC-32C that the payload must have.
    pub(crate) crc: u32,
    pub(crate) status: u32,
    pub(crate) version: u16,
    pub(crate) flags: EntryFlags,
}

impl<'a> EntryPlan<'a> {
    pub(super) fn meta(&self) -> EntryMeta<'a> {
        EntryMeta {
            rest: self.rest,
            length: self.payload.len() as u32,
            crc: self.crc,
            status: self.status,
            version: self.version,
            flags: self.flags,
        }
    }
}

/// What became of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// Written here. Its fragments count as live in the container from now on: whoever does not adopt the place says so
    /// with `Warm::ended`. Durable, and readable, once a commit that was asked for afterwards is durable.
    At(ImagePlace),
    /// The bytes of these entries do not have their checksums. Nothing of the image counts.
    Rotten(Vec<usize>),
    /// It fits no container; split it by fragments.
    TooLarge,
}

/// A commit of one writer; later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub(crate) u64);
