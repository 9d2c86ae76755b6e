//! Recording links straight to containers, with an account of every tick that is missing.
//!
//! *Not here*: where frames come from (`forebay-daq`), containers and devices (`warm`).

mod cause;
mod config;
mod json;
mod limits;
mod manifest;

pub use cause::GapReason;
pub use config::{LinkPlan, RecordConfig, WarmDir};
pub use manifest::{DeviceManifest, Era, GapManifest, LinkManifest, ManifestGap, Totals};
