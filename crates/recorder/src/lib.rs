//! Recording links straight to containers, with an account of every tick that is missing.
//!
//! ```text
//! RecordingLink ─▶ image of frames ─▶ lane: one device's thread ─▶ containers (`forebay_media::warm`)
//!     └ missed ─▶ books of the link ─▶ gap manifest beside the containers ─▶ Playback: frames, and whether both fit
//! ```
//!
//! *Not here*: where frames come from (`forebay-daq`), containers and devices (`forebay_media::warm`).

mod books;
mod cause;
mod config;
mod create;
mod files;
mod image;
mod index;
mod json;
mod lane;
mod limits;
mod link;
mod manifest;
mod measure;
mod playback;
mod pool;
mod recorder;
mod recording;
mod sink;
#[cfg(test)]
mod tests;
mod verify;
mod window;

pub use cause::GapReason;
pub use config::{LinkConfig, RecordingConfig, WarmDir};
pub use link::{Pushed, RecordingLink};
pub use manifest::{DeviceManifest, Era, GapManifest, LinkManifest, ManifestGap, Totals};
pub use playback::Playback;
pub use recording::{Recording, RecordingDevice, RecordingProgress};
pub use verify::Continuity;
pub use window::{RecordedFrame, RecordedFrames};
