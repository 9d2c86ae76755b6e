//! State for people and monitors.

use forebay_core::{Ledger, LiveState, Tally};
use serde::Serialize;

/// Where a run stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Takes fragments.
    Open,
    /// Takes no new events; what is there gets decided.
    Stopped,
    /// Every put answers `Closed`.
    Closed,
}

/// One run as `watch` and `runs` show it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunStatus {
    /// Run number.
    pub run: u64,
    /// Where it stands.
    pub state: RunState,
    /// Its account.
    pub ledger: Ledger,
}

/// Why the trigger must pause: always with what fills the store, who can change that, and what ends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inhibit {
    /// What fills the level, such as `hot fill 92 % (mark 90 %): 71 % ready`.
    pub cause: String,
    /// Who can change that: `readout`, `selection`, `archive`, `debug stream`, or the holder of guards by name.
    pub owner: String,
    /// What will end it.
    pub ends: String,
}

/// One holder of guards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HolderStats {
    /// Name given by `Store::named`.
    pub holder: String,
    /// Guards held now.
    pub guards: u64,
    /// Bytes under them.
    pub bytes: u64,
}

/// Memory beyond the region, in bytes, everything counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryStats {
    /// Radix tree nodes, slack included.
    pub nodes: u64,
    /// Event leaves, slack included.
    pub leaves: u64,
    /// Fragment tables, primary keys and attributes, slack included.
    pub tables: u64,
    /// Leases and their timers.
    pub leases: u64,
    /// Memory of decided events.
    pub decided: u64,
    /// Segment table, verdict memory, buffers: does not grow with the data.
    pub fixed: u64,
}

/// The store at a glance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stats {
    /// Segments in the region.
    pub segments: u32,
    /// Segments that are free.
    pub segments_free: u32,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Occupied share of the hot level, 0 to 1.
    pub fill: f64,
    /// Live events by state: open, ready, leased, debug, accepted.
    pub events: [Tally; 5],
    /// Leases out.
    pub leases: u64,
    /// Events in the memory of the decided.
    pub decided_events: u64,
    /// Segments without live records that guards keep from being used again.
    pub segments_pinned: u32,
    /// Holders with guards out.
    pub holders: Vec<HolderStats>,
    /// Conflicting copies kept for a person.
    pub conflicts_kept: u64,
    /// Segments that evacuation has emptied since opening.
    pub evacuated: u64,
    /// Set while the trigger should pause.
    pub inhibit: Option<Inhibit>,
    /// Nanoseconds since opening during which inhibit was set.
    pub inhibited_ns: u64,
    /// Memory beyond the region.
    pub memory: MemoryStats,
    /// Boot generation of this opening.
    pub boot: u32,
}

/// One segment, for `inspect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentInfo {
    /// Position in the region.
    pub segment: u32,
    /// `free`, `open`, `sealed` or `log`.
    pub state: &'static str,
    /// Generation.
    pub generation: u32,
    /// Entries or slots written.
    pub entries: u32,
    /// Entries that are live or in flight.
    pub live: u32,
    /// Bytes of payload and directory in use.
    pub used_bytes: u64,
    /// Guards that pin it.
    pub pins: u32,
}

/// One live event without its payload, for `inspect` and listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventInfo {
    /// The event's name.
    pub primary: forebay_core::Primary,
    /// Where it stands.
    pub state: LiveState,
    /// Fragments present.
    pub fragments: u32,
    /// Payload bytes.
    pub bytes: u64,
    /// Grants that have not ended well.
    pub deliveries: u8,
}
