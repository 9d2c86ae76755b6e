//! State of a ring for people and monitors.

use crate::{GapCause, HolderStats, Ledger, SourceId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Fragments refused, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// Nothing could be evicted.
    pub no_space: u64,
    /// Timestamps too far from the ring's relation of ticks and time.
    pub skew: u64,
    /// Their ticks had been evicted.
    pub too_late: u64,
}

/// One source of a ring. Counts of refusals are since opening.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingSourceStatus {
    /// The source.
    pub source: SourceId,
    /// First tick that it still keeps; `None` where it keeps nothing.
    pub oldest: Option<u64>,
    /// The first tick that it ever had, where nothing of it was evicted.
    #[serde(default)]
    pub first: Option<u64>,
    /// The tick after the newest one that arrived; `None` before its first fragment.
    pub newest: Option<u64>,
    /// Nanoseconds since its last put, regardless of the answer; `None` without a put since opening.
    pub silent_ns: Option<u64>,
    /// Run of its last put, or of its newest fragment after opening.
    pub run: u32,
    /// Fragments kept.
    pub fragments: u64,
    /// Payload bytes kept.
    pub bytes: u64,
    /// Chunks that hold them.
    pub chunks: u32,
    /// Fragments refused since opening.
    pub refused: Refusals,
    /// The last refusal: timestamp and cause.
    pub last_refused: Option<(u64, GapCause)>,
    /// How far its last put lay from the ring's relation of ticks and time, in ticks.
    pub skew_ticks: i64,
}

/// A stretch of ticks that nothing covers although later data has arrived. Half-open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// First tick.
    pub begin: u64,
    /// Tick after the last one.
    pub end: u64,
    /// Why.
    pub cause: GapCause,
}

/// Memory of a ring beyond its region, in bytes, everything counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingMemory {
    /// The index: lists of chunks and their fragments, slack included.
    pub index: u64,
    /// Accounts, gaps and pins.
    pub books: u64,
    /// Segment table and source table: does not grow with the data.
    pub fixed: u64,
}

/// One pin, as `stats` lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingPinStatus {
    /// Number of the pin.
    pub id: u64,
    /// The holder that made it (`Ring::named`).
    pub holder: String,
    /// Nobody holds it: it ends at its deadline, or when somebody removes it.
    #[serde(default)]
    pub kept: bool,
    /// First tick.
    pub begin: u64,
    /// Tick after the last one.
    pub end: u64,
    /// Bytes of the region that it holds or has reserved, whole chunks.
    pub bytes: u64,
    /// Nanoseconds until it expires.
    pub remaining_ns: u64,
}

/// One chunk, for `inspect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingChunkInfo {
    /// The source that writes it, or has written it.
    pub source: SourceId,
    /// Position in the region.
    pub segment: u32,
    /// Generation.
    pub generation: u32,
    /// `open`, `closed` or `sealed`.
    pub state: Cow<'static, str>,
    /// First tick.
    pub begin: u64,
    /// Tick after the last one.
    pub end: u64,
    /// Fragments.
    pub fragments: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Guards of windows that keep it in place.
    pub guards: u32,
    /// A pin names its ticks.
    pub pinned: bool,
}

/// The ring at a glance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RingStats {
    /// Chunks in the region.
    pub segments: u32,
    /// Chunks that are free.
    pub segments_free: u32,
    /// Bytes of one chunk.
    pub segment_bytes: u64,
    /// Occupied share of the region, 0 to 1: near 1 once the ring has come round.
    pub fill: f64,
    /// Fragments kept.
    pub fragments: u64,
    /// Payload bytes kept.
    pub bytes: u64,
    /// Bytes of the region that pins hold or have reserved, whole chunks.
    pub pinned_bytes: u64,
    /// Bytes of the region that pins may hold.
    pub pin_quota_bytes: u64,
    /// Pins in force.
    pub pins: Vec<RingPinStatus>,
    /// Chunks evicted since opening.
    pub evicted: u64,
    /// Fragments refused since opening.
    pub refused: Refusals,
    /// Holders with windows out.
    pub holders: Vec<HolderStats>,
    /// Memory beyond the region.
    pub memory: RingMemory,
    /// The account of all runs.
    pub ledger: Ledger,
    /// Boot generation of this opening.
    pub boot: u32,
}

impl Refusals {
    fn add(&mut self, other: &Refusals) {
        self.no_space += other.no_space;
        self.skew += other.skew;
        self.too_late += other.too_late;
    }
}

impl RingSourceStatus {
    /// What two nodes have of a source that moved from one to the other: sums, and the last word of the one that was put to last.
    #[must_use]
    pub fn joined(self, other: RingSourceStatus) -> RingSourceStatus {
        let silence = |row: &RingSourceStatus| row.silent_ns.unwrap_or(u64::MAX);
        let (last, before) = if silence(&self) <= silence(&other) { (self, other) } else { (other, self) };
        let mut refused = last.refused;
        refused.add(&before.refused);
        RingSourceStatus {
            oldest: last.oldest.into_iter().chain(before.oldest).min(),
            first: last.first.zip(before.first).map(|(one, other)| one.min(other)),
            newest: last.newest.max(before.newest),
            fragments: last.fragments + before.fragments,
            bytes: last.bytes + before.bytes,
            chunks: last.chunks + before.chunks,
            last_refused: last.last_refused.or(before.last_refused),
            refused,
            ..last
        }
    }
}

impl RingStats {
    /// The figures of two nodes as one: sums; the share that is occupied, of all chunks; the larger chunk and boot generation.
    #[must_use]
    pub fn joined(mut self, other: RingStats) -> RingStats {
        let (own, its) = (f64::from(self.segments), f64::from(other.segments));
        self.fill = (self.fill * own + other.fill * its) / (own + its).max(1.0);
        self.segments += other.segments;
        self.segments_free += other.segments_free;
        self.segment_bytes = self.segment_bytes.max(other.segment_bytes);
        self.fragments += other.fragments;
        self.bytes += other.bytes;
        self.pinned_bytes += other.pinned_bytes;
        self.pin_quota_bytes += other.pin_quota_bytes;
        self.pins.extend(other.pins);
        self.evicted += other.evicted;
        self.refused.add(&other.refused);
        self.holders.extend(other.holders);
        self.memory.index += other.memory.index;
        self.memory.books += other.memory.books;
        self.memory.fixed += other.memory.fixed;
        self.ledger.add(&other.ledger);
        self.boot = self.boot.max(other.boot);
        self
    }
}
