//! The hot level: segments of mapped memory, their records, and the space that they take.
//!
//! ```text
//! claim in the index ─▶ reserve (heads) ─▶ copy + checksum ─▶ entry ─▶ flush, fence ─▶ visible in the index
//! ```
//!
//! *Not here*: which event a record belongs to (`home`), how it is found (`index`).

mod closing;
mod copy;
mod heads;
mod log;
mod region;
mod segment;
mod space;

pub(crate) use closing::{CALLS_WAIT, Closing, outlasted, wait_for_none};
pub use closing::{Kept, KeptBy};
pub(crate) use copy::{checksum, copy_checksum_append, will_copy, will_look};
pub(crate) use log::{Boundary, Log};
pub(crate) use region::Region;
pub(crate) use segment::{CLOSED, ENTRIES_MAX, FREE, LOG, OPEN, SEALED, Segment};
pub(crate) use space::{Class, Hot, Location, Place};
