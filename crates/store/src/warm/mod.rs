//! The warm level: containers on devices, written front to back, drained and recycled whole.
//!
//! ```text
//! device (directory) ─▶ containers: header | extent | extent | … | directory
//!                    └▶ decision log of what stands on this device
//! ```
//!
//! *Not here*: which event a fragment belongs to (`home`), when it goes here (`ops/demote.rs`).

mod buffer;
mod device;
mod directory;
mod files;
mod pwrite;
mod uring;

pub use buffer::Buffer;
pub use device::{BLOCK_BYTES, Device, Done, FileId, Queue};
pub use directory::{DirectoryDevice, IoMethod};
