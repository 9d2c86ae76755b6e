//! What Forebay's data stands on, and the bytes of it: memory that is mapped, and files on devices.
//!
//! ```text
//! hot           a region of segments: records, space, what closes it           seam: Medium
//! warm          containers on devices, written front to back, and their logs   seam: Device
//! region_file   the file of a region, and which life of it this is
//! bytes         what is at which place of both, without I/O
//! ```
//!
//! *Not here*: events, and anything that says what a record is for. Stores, rings and recordings stand on this.

pub mod bytes;
pub mod hot;
pub mod limits;
pub mod region_file;
// The crate under test is another one than the one that the kit is built with: it takes the kit's source.
#[cfg(test)]
extern crate self as forebay_media;
#[cfg(test)]
#[path = "../../testkit/src/media/mod.rs"]
#[doc(hidden)]
pub mod sim;
pub mod sync;
pub mod warm;
