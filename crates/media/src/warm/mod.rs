//! The warm level: containers on devices, written front to back, drained and reclaimed whole.
//!
//! ```text
//! device (directory) ─▶ containers: header | extent | extent | … | directory
//!                    └▶ decision log: the device's shadow of what was decided
//! ```
//!
//! *Not here*: which event a fragment belongs to (the store's events), when it is demoted (the store's levels).

mod absent;
mod buffer;
mod choose;
mod container;
mod control;
mod counters;
mod create;
mod device;
mod directory;
mod files;
mod forward;
mod grow;
mod leave;
mod log;
mod pipeline;
mod pool;
mod pwrite;
mod read;
mod reclaim;
mod recover;
mod request;
mod rest;
mod scan;
mod space;
#[cfg(test)]
mod tests;
mod uring;
mod verify;
mod writer;

pub use absent::{AbsentDevice, RefusingQueue};
pub use buffer::Buffer;
pub use container::Phase;
pub use create::remove_all;
pub use device::check_aligned;
pub use device::{BLOCK_BYTES, Device, Done, FileId, Queue};
pub use directory::{DirectoryDevice, IoMethod};
pub use log::{DeviceLog, LogSlots};
pub use read::ReadImage;
pub use recover::Found;
pub use request::{EntryDraft, ImageDraft, ImagePlace, Placed, Target, Ticket, WarmShape};
pub use space::{ContainerInfo, DeviceInfo, Warm};
pub use writer::Writer;

/// Reads the bytes of a decision log's file, for the fuzzer.
pub fn decode_device_log(bytes: &[u8], store: [u8; 16], key_bytes: usize) {
    log::decode(bytes, store, key_bytes);
}
