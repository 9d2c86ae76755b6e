//! The warm level as people see it: devices, containers, what went down and what went wrong.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// One container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// Its number, over all devices.
    pub container: u32,
    /// Number of its device.
    pub device: u32,
    /// `empty`, `filling`, `full`, `draining`, `custody`, `poisoned`, `recycling` or `lost`.
    pub state: Cow<'static, str>,
    /// What is in it: `undecided`, `debug`, a stream's name, `shared`, or `recording` with a number; empty where
    /// nothing does.
    pub stream: String,
    /// The run; `None` where it is empty or shared by several.
    pub run: Option<u64>,
    /// How often it was filled.
    pub generation: u32,
    /// Bytes of the container.
    pub bytes: u64,
    /// Bytes written to it in this filling.
    pub used_bytes: u64,
    /// Fragments written to it in this filling.
    pub fragments: u64,
    /// Those of them that count.
    pub live_fragments: u32,
    /// Reads under way.
    pub pins: u32,
}

/// One device of the warm level. Bytes and counts are since the opening.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its directory.
    pub name: String,
    /// How it is written: `io_uring, direct` and similar; `missing` where it is not there.
    pub method: String,
    /// It does not answer for longer than `device_stall`.
    pub stalled: bool,
    /// Containers in which a write failed.
    pub poisoned: u32,
    /// Containers that movers have claimed.
    pub draining: u32,
    /// Containers that are empty.
    pub free: u32,
    /// It is being drained: it takes no data, and what lives on it moves to others.
    #[serde(default)]
    pub leaving: bool,
    /// It was drained: nothing is on it any more.
    #[serde(default)]
    pub drained: bool,
    /// The directory that has its place from the next opening of the store on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchanged: Option<String>,
    /// Payload bytes that were written.
    pub payload_bytes: u64,
    /// All bytes that were written: payload, tables, padding, directories, headers.
    pub written_bytes: u64,
    /// Syncs that made data durable.
    pub commits: u64,
    /// Reads of data.
    pub reads: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Share of its decision log that is taken, 0 to 1000.
    pub log_permille: u32,
    /// Commits of its decision log.
    pub log_commits: u64,
}

/// The warm level at a glance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WarmStats {
    /// Occupied share of the containers, 0 to 1.
    pub fill: f64,
    /// Containers in all, and empty ones.
    pub containers: u32,
    /// Containers that are empty.
    pub free: u32,
    /// Bytes of one container.
    pub container_bytes: u64,
    /// Moves of events, or parts of them, since the opening.
    pub demoted_events: u64,
    /// Payload bytes that went down since the opening.
    pub demoted_bytes: u64,
    /// Payload bytes of fragments that were to go down, and whose events were rejected before.
    pub saved_bytes: u64,
    /// Payload bytes that are being written.
    pub in_flight_bytes: u64,
    /// Full containers with something for the archive that no mover has claimed.
    pub to_archive: u32,
    /// Containers that the archive was proved to have.
    pub in_custody: u32,
    /// How many of them were let go early since the opening, because the level was above `custody_high`.
    pub custody_shortened: u64,
    /// Claims of movers that ended without a proof since the opening: given back, or by time.
    pub unproved_claims: u64,
    /// When a mover last proved something since the opening, in milliseconds since 1970; 0 for never.
    pub proved_ms: u64,
    /// Devices.
    pub devices: Vec<DeviceStatus>,
    /// Directories that were added: devices from the next opening of the store on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// What went wrong, the first thousand.
    pub notes: Vec<String>,
}

impl WarmStats {
    /// Bytes written for each payload byte; 0 where nothing was.
    pub fn write_amplification(&self) -> f64 {
        let payload: u64 = self.devices.iter().map(|device| device.payload_bytes).sum();
        let written: u64 = self.devices.iter().map(|device| device.written_bytes).sum();
        if payload == 0 { 0.0 } else { written as f64 / payload as f64 }
    }
}
