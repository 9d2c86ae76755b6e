//! The bytes on a medium, without the medium: what is at which place, and what is checked before it is believed.
//!
//! ```text
//! superblock ─▶ geometry of a region      record, decision ─▶ what a segment holds (docs/format-hot.md)
//! container  ─▶ headers, images and directories of a container (docs/format-container.md)
//! ```

mod container;
mod decision;
mod record;
mod superblock;

pub use container::{
    CONTAINER_BLOCK_BYTES, CONTAINER_BYTES_MAX, CONTAINER_BYTES_MIN, CONTAINER_DATA_OFFSET, CONTAINERS_MAX,
    ContainerHeader, ContainerKind, ContainerSeed, ContainerState, DeviceSuperblock, Directory, DirectoryBuilder,
    DirectoryIter, DirectoryPlace, EntryMeta, ExtentHead, ExtentKind, IMAGE_ALIGN, Image, ImageHead, ImageLayout,
    ImageMarks, ImageRecord, ImageState, Stream, TableIter,
};
pub use decision::{Blob, BlobChunk, Decision, DecisionKind, Reader, Slot, SlotLayout};
pub use record::{
    Entry, EntryFlags, EntryLayout, Mark, RecordSeed, SegmentHeader, SegmentKind, SegmentState, StateWord,
};
pub use superblock::{Geometry, Membership, Superblock};
