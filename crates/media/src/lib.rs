//! The media that hold Forebay's data, mapped memory and files on devices, and the bytes on them.
//!
//! ```text
//! hot           a region of segments: records, space, what closes it           seam: Medium
//! warm          containers on devices, written front to back, and their logs   seam: Device
//! region_file   the file of a region, and which life of it this is
//! named         whether what is open still has its name
//! bytes         what is at which place of both, without I/O
//! ```
//!
//! *Not here*: events, and what a record means. The store, the ring and the recorder are built on this crate and say so.

pub mod bytes;
pub mod hot;
pub mod limits;
mod locked;
pub mod named;
pub mod region_file;
// Cargo builds the kit with this crate as a library, whose traits are not those of the crate under test: so unit tests
// compile the kit's source as a module of their own.
#[cfg(test)]
extern crate self as forebay_media;
#[cfg(test)]
#[path = "../../testkit/src/media/mod.rs"]
#[doc(hidden)]
pub mod sim;
pub mod sync;
pub mod warm;
