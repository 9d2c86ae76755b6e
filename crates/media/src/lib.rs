//! What Forebay's data stands on, and the bytes of it: memory that is mapped, and files on devices.
//!
//! ```text
//! hot           a region of segments: records, space, what closes it           seam: Medium
//! warm          containers on devices, written front to back, and their logs   seam: Device
//! region_file   the file of a region, and which life of it this is
//! sim           media and devices that forget, fail and stall: for tests (feature `sim`)
//! ```
//!
//! *Not here*: events, and anything that says what a record is for. Stores, rings and recordings stand on this.

pub mod bytes;
pub mod hot;
pub mod limits;
pub mod region_file;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod sync;
pub mod warm;
