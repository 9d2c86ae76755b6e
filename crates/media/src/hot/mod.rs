//! The hot level: segments of mapped memory, their records, and the space that they take.
//!
//! ```text
//! claim in the index ─▶ place (write cursor) ─▶ copy + checksum ─▶ entry ─▶ flush, fence ─▶ visible in the index
//! ```
//!
//! *Not here*: which event a record belongs to and how it is found: the store's index knows both.

mod closing;
mod copy;
mod cursors;
mod free;
mod log;
mod region;
mod segment;
mod space;

pub use closing::{CALLS_WAIT, Closing, outlasted, wait_for_none};
pub use closing::{Kept, KeptBy};
pub use copy::{checksum, copy_checksum_append, will_copy, will_look};
pub use cursors::WriteCursor;
pub use log::{Boundary, Log};
pub use region::{FlushPolicy, Medium, Region};
pub use segment::{CLOSED, ENTRIES_MAX, FREE, LOG, OPEN, SEALED, Segment};
pub use space::{Class, Hot, Location, Place};
