//! Media and devices for tests: they forget, fail, stall, shift and shorten, the same way each time for the same seed.
//!
//! ```text
//! SimMedium        memory that loses what was not flushed            the hot level
//! SimDevice        files that lose what was not synced               the warm level
//! FaultyDevice     any device, with faults where a test wants them
//! ShiftingDevice   any device, with other bytes at rest and short transfers
//! ```

mod device;
mod faulty;
mod faulty_queue;
mod medium;
mod random;
mod shifting;
mod unsynced;

pub use device::SimDevice;
pub use faulty::{Fault, FaultyDevice, Operation};
pub use medium::SimMedium;
pub use shifting::ShiftingDevice;
