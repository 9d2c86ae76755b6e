//! Requests to the warm level and its answers: sizes, targets, images to write, places.

use crate::bytes::{ContainerKind, EntryFlags, EntryMeta, ImageMarks, ImageRecord, Stream};
use std::time::Duration;

/// How the warm level is cut and driven.
#[derive(Clone, Copy, Debug)]
pub struct WarmShape {
    /// Bytes of a container: a multiple of the block, 64 KiB to 4 GiB. Fixed at creation.
    pub container_bytes: u64,
    /// Bytes of each of the two files of a device's decision log. Fixed at creation.
    pub log_bytes: u64,
    /// Bytes of one write; a multiple of the block.
    pub io_bytes: usize,
    /// Writes under way per writer.
    pub depth: usize,
    /// A device that answers nothing for this long is reported stalled; after `STALLS_MAX` times that its containers
    /// under way are given up.
    pub stall: Duration,
    /// Containers being filled per device, from which on runs and streams share one.
    pub open_max: usize,
}

/// A writer gives up after this many times `WarmShape::stall` without an answer.
// Long enough for a disk that retries a bad sector by itself; given up too early, a container is poisoned for nothing.
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
pub struct Target {
    /// Run of its events.
    pub run: u64,
    /// Stream of its events.
    pub stream: Stream,
    /// What kind of data it holds.
    pub kind: ContainerKind,
    /// Only this device; without, the one that is written and drained least.
    pub device: Option<u32>,
    /// May take the last free container: what it writes empties others.
    pub moving: bool,
}

/// Where an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImagePlace {
    /// The container's number, over all devices.
    pub container: u32,
    /// Bytes from the container's start; a multiple of 16.
    pub position: u64,
}

/// An event, or some of its fragments, to be written in one piece.
#[derive(Clone, Debug)]
pub struct ImageDraft<'a> {
    /// The event's packed primary key.
    pub primary: &'a [u8],
    /// What the image says of the event.
    pub marks: ImageMarks,
    /// Its fragments.
    pub entries: Vec<EntryDraft<'a>>,
    /// The event's own record, which is in its first image.
    pub record: Option<ImageRecord<'a>>,
}

impl ImageDraft<'_> {
    pub(super) fn record_bytes(&self) -> usize {
        self.record.map_or(0, |record| record.bytes.len())
    }
}

/// One fragment to be written.
#[derive(Clone, Copy, Debug)]
pub struct EntryDraft<'a> {
    /// The fragment's packed source.
    pub rest: &'a [u8],
    /// Its bytes.
    pub payload: &'a [u8],
    /// CRC-32C that the payload must have.
    pub crc: u32,
    /// Its status word.
    pub status: u32,
    /// Its version.
    pub version: u16,
    /// What kind of fragment it is.
    pub flags: EntryFlags,
}

impl<'a> EntryDraft<'a> {
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
pub enum Placed {
    /// Written here. Its fragments count as live in the container from now on: a caller that does not adopt the place calls
    /// `Warm::ended`. Durable, and readable, once a commit that was asked for afterwards is durable.
    At(ImagePlace),
    /// The bytes of these entries do not have their checksums. Nothing of the image counts.
    Rotten(Vec<usize>),
    /// It fits no container; split it by fragments.
    TooLarge,
}

/// A commit of one writer; later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);
