//! Recording links straight to containers, with an account of every tick that is missing.
//!
//! *Not here*: where frames come from (`forebay-daq`), containers and devices (`warm`).

mod books;
mod cause;
mod config;
mod files;
mod image;
mod json;
mod lane;
mod limits;
mod link;
mod manifest;
mod pool;
mod recording;
mod shared;
#[cfg(test)]
mod tests;

pub use cause::GapReason;
pub use config::{LinkPlan, RecordConfig, WarmDir};
pub use link::{Pushed, RecordLink};
pub use manifest::{DeviceManifest, Era, GapManifest, LinkManifest, ManifestGap, Totals};
pub use recording::{Recording, RecordingDevice, RecordingProgress};
