//! State for people and monitors.

use crate::map::Hex128;
use crate::{Key, Ledger, Live, LiveState, Primary, Source, Tally, WarmStats};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// The state of a run in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Takes fragments.
    Open,
    /// Takes no new events; what is there gets decided.
    Stopped,
    /// Every put answers `Closed`.
    Closed,
    /// Takes what still comes; the waiting time of open events does not run.
    Paused,
}

impl RunState {
    /// Name in lower case.
    pub fn name(self) -> &'static str {
        ["open", "stopped", "closed", "paused"][self as usize]
    }

    /// Whether new events are taken.
    pub fn takes_events(self) -> bool {
        matches!(self, RunState::Open | RunState::Paused)
    }
}

/// One run as `watch` and `runs` show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStatus {
    /// Run number.
    pub run: u64,
    /// Its state.
    pub state: RunState,
    /// Its account.
    pub ledger: Ledger,
    /// Its producers, by their own reports.
    pub producers: Vec<ProducerStatus>,
    /// Sources masked now.
    pub masked: Vec<String>,
    /// Set while the trigger should pause, regardless of the run. Its figures are those of its last change.
    pub inhibit: Option<Inhibit>,
}

/// The report of one producer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerStatus {
    /// Its name.
    pub name: String,
    /// It ended with a report: its figures are final. Otherwise it is at work, or `unknown` says that it died.
    pub finished: bool,
    /// It went without its last report: what it offered after the figures here is not known.
    pub unknown: bool,
    /// Events that it announced.
    pub announced: u64,
    /// Fragments that it offered.
    pub fragments: u64,
    /// Payload bytes that it offered.
    pub bytes: u64,
}

/// By what a ledger is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LedgerBy {
    /// By accepted stream; an event may be in several.
    Stream,
    /// By source.
    Source,
    /// By the attribute that the keyspace names (`ledger_by`), such as a lumi section.
    Attribute,
}

/// One row of a split ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// Stream, source or attribute value; `unknown` for what cannot be attributed after a crash.
    pub name: String,
    /// Live data.
    pub live: Tally,
    /// Rejected.
    pub rejected: Tally,
    /// Released by the archive. By stream only its events are known.
    pub released: Tally,
    /// Removed.
    pub removed: Tally,
    /// By source: all that is not live any more, however it ended.
    pub ended: Tally,
    /// Events that became ready with all their sources.
    pub complete: u64,
    /// Events that became ready without some.
    pub incomplete: u64,
}

/// The state of one source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceState {
    /// Its fragment is there.
    Present = 0,
    /// Its fragment is there and has no bytes.
    Empty = 1,
    /// It is waited for, or has not come in time.
    Missing = 2,
    /// It is not waited for, by decision of a person or of the run's policy.
    Masked = 3,
    /// Its fragment came after the event was ready.
    Late = 4,
    /// The event does not wait for it.
    NotExpected = 5,
    /// Its fragment was removed.
    Removed = 6,
}

impl SourceState {
    /// Name in lower case.
    pub fn name(self) -> &'static str {
        ["present", "empty", "missing", "masked", "late", "not expected", "removed"][self as usize]
    }
}

/// One source of a run: figures since the store was opened, over what the last snapshot had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// The source, as text.
    pub source: String,
    /// Fragments stored.
    pub fragments: u64,
    /// Payload bytes stored.
    pub bytes: u64,
    /// Fragments a second over the last second or so.
    pub rate_hz: f64,
    /// Event of its highest key, as text; `None` where nothing came since the opening.
    pub last_key: Option<String>,
    /// Time since its last fragment; `None` where nothing came since the opening.
    pub age: Option<Duration>,
    /// Events that became ready without it.
    pub missing: u64,
    /// Fragments that came after their event was ready, attached or refused.
    pub late: u64,
    /// Whether it is masked, and by person or policy.
    pub masked: Option<String>,
    /// Other bytes under a taken key.
    pub conflicts: u64,
}

/// Why a fragment is, or is not, in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// One word: `present`, `in-flight`, `missing`, `masked`, `removed`, `not-expected`, `never-announced`, `rejected`,
    /// `moved`, `removed-event`, `never-seen`, `decided`, `run-closed`, `run-unknown`, `lost`; `elsewhere` on a node that is not the
    /// event's home.
    pub answer: Cow<'static, str>,
    /// The same in a sentence, with figures.
    pub because: String,
    /// What is remembered of puts of this key that were not stored: refused, late, conflict; newest last.
    pub incidents: Vec<String>,
}

/// One event of the debug stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebugInfo {
    /// The event's name.
    pub primary: Primary,
    /// Why it is there: `worker failed`, `worker silent`, `held too long`, `process died`.
    pub reason: Cow<'static, str>,
    /// What the last worker said that failed; empty where none did since the store was opened.
    #[serde(default)]
    pub said: String,
    /// Stage in which it failed, by name.
    pub stage: String,
    /// Failed deliveries.
    pub deliveries: u8,
    /// Its fragments and bytes.
    pub tally: Tally,
}

/// The debug stream at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebugStats {
    /// Events, fragments and bytes in it.
    pub tally: Tally,
    /// Conflicting copies kept.
    pub conflicts: u64,
    /// Bytes that it may take before it inhibits.
    pub quota_bytes: u64,
    /// Set while there is something for a person to look at.
    pub alarm: Option<String>,
}

/// What one store has counted of a source since it was asked last, for the policy that masks sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misses {
    /// The source.
    pub source: Source,
    /// Events that became ready without it and without a fragment of it in between, in each part of the store; their sum.
    pub all: u32,
    /// The most of one part: those are in a row, whatever came to the others.
    pub in_a_row: u32,
    /// Fragments of it that the store has had, in this life.
    pub fragments: u64,
}

/// Events that are held back from delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldInfo {
    /// Number of the hold, for releasing it.
    pub id: u32,
    /// Run; `None` for every run.
    pub run: Option<u64>,
    /// Conditions on attributes, as text; none hold everything.
    pub conditions: Vec<String>,
    /// Events that it, alone or with others, holds back now, as far as delivery has met them.
    pub events: u64,
}

/// A kept conflicting copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictInfo {
    /// The key.
    pub key: Key,
    /// Payload bytes of the copy.
    pub bytes: u32,
    /// CRC-32C of the copy.
    pub checksum: u32,
}

/// The account to which the time of an inhibit goes: its first cause. Where several hold at once, the earlier in
/// [`InhibitClass::ALL`] is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InhibitClass {
    /// A device of the warm level answers nothing, or refuses what is written, and a level has filled up meanwhile.
    DeviceStalled,
    /// The warm level is past its mark, or has no container for what the hot level must hand down.
    WarmFull,
    /// The hot level is past its mark.
    HotFull,
    /// New events find no space before the hot level reaches its mark: what is free is kept for decisions, evacuation
    /// and events that are there already.
    Reserves,
    /// The debug stream is past its quota.
    DebugStream,
    /// The store's directory, or that of a device, is not there any more, or something else is in its place: what is put goes
    /// with the process.
    StoreGone,
}

impl InhibitClass {
    /// All of them.
    pub const ALL: [InhibitClass; 6] = [
        InhibitClass::DeviceStalled,
        InhibitClass::WarmFull,
        InhibitClass::HotFull,
        InhibitClass::Reserves,
        InhibitClass::DebugStream,
        InhibitClass::StoreGone,
    ];

    /// Name in lower case.
    pub fn name(self) -> &'static str {
        ["device stalled", "warm full", "hot full", "reserves", "debug stream", "store gone"][self as usize]
    }
}

/// Why the trigger must pause: always with where, what fills the store, who can change that, and what ends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inhibit {
    /// The account that is charged.
    pub class: InhibitClass,
    /// Where: `hot level`, `warm level`, `device` and its name, or `debug stream`.
    pub scope: String,
    /// What fills the level, such as `hot fill 92 % (marks 90 and 75 %): 71 % ready`.
    pub cause: String,
    /// The role that can change that: `readout`, `selection`, `archive`, `operator`, `warm level`, `debug stream`,
    /// `homes` (of a cluster: the nodes that own the events whose bytes are held here), a device, or the holder of guards by
    /// name.
    pub owner: String,
    /// The condition that ends it.
    pub ends: String,
}

impl fmt::Display for Inhibit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}; owner: {}; ends when {}", self.scope, self.cause, self.owner, self.ends)
    }
}

/// How long inhibit was set since the store was opened, by class, in nanoseconds of the store's clock. Each instant is
/// charged to exactly one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadTime {
    /// [`InhibitClass::DeviceStalled`].
    pub device_stalled_ns: u64,
    /// [`InhibitClass::WarmFull`].
    pub warm_full_ns: u64,
    /// [`InhibitClass::HotFull`].
    pub hot_full_ns: u64,
    /// [`InhibitClass::Reserves`].
    pub reserves_ns: u64,
    /// [`InhibitClass::DebugStream`].
    pub debug_stream_ns: u64,
    /// [`InhibitClass::StoreGone`].
    #[serde(default)]
    pub store_gone_ns: u64,
}

impl DeadTime {
    /// Time of one class.
    pub fn of(&self, class: InhibitClass) -> Duration {
        let mut copy = *self;
        Duration::from_nanos(*copy.account(class))
    }

    /// Time of all classes.
    pub fn total(&self) -> Duration {
        InhibitClass::ALL.into_iter().map(|class| self.of(class)).sum()
    }

    /// Adds to one class.
    pub fn charge(&mut self, class: InhibitClass, ns: u64) {
        *self.account(class) += ns;
    }

    fn account(&mut self, class: InhibitClass) -> &mut u64 {
        match class {
            InhibitClass::DeviceStalled => &mut self.device_stalled_ns,
            InhibitClass::WarmFull => &mut self.warm_full_ns,
            InhibitClass::HotFull => &mut self.hot_full_ns,
            InhibitClass::Reserves => &mut self.reserves_ns,
            InhibitClass::DebugStream => &mut self.debug_stream_ns,
            InhibitClass::StoreGone => &mut self.store_gone_ns,
        }
    }
}

/// One holder of guards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderStats {
    /// Name given by `Store::named`.
    pub holder: String,
    /// Guards held now.
    pub guards: u64,
    /// Bytes under them.
    pub bytes: u64,
}

/// Memory beyond the region, in bytes, everything counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Segments in the region.
    pub segments: u32,
    /// Segments that are free.
    pub segments_free: u32,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Occupied share of the hot level, 0 to 1.
    pub fill: f64,
    /// Live events by state.
    pub events: Live,
    /// Leases out.
    pub leases: u64,
    /// Leases since opening that ended because their holders said that they failed.
    #[serde(default)]
    pub workers_failed: u64,
    /// Leases since opening that ended because their holders went silent.
    pub workers_silent: u64,
    /// Leases since opening that ended because they were held past `max_hold`, heartbeats or not.
    pub held_too_long: u64,
    /// Events in the memory of the decided.
    pub decided_events: u64,
    /// Segments without live records that guards keep from being used again.
    pub segments_pinned: u32,
    /// Holders with guards out.
    pub holders: Vec<HolderStats>,
    /// Conflicting copies kept for a person.
    pub conflicts_kept: u64,
    /// The debug stream.
    pub debug: DebugStats,
    /// Ready events by stage, without those held back.
    pub ready: Vec<u64>,
    /// Events held back from delivery, as far as delivery has met them.
    pub held: u64,
    /// Segments that evacuation has emptied since opening.
    pub evacuated: u64,
    /// Set while the trigger should pause.
    pub inhibit: Option<Inhibit>,
    /// Nanoseconds since opening during which inhibit was set.
    pub inhibited_ns: u64,
    /// The warm level; `None` if there is none.
    pub warm: Option<WarmStats>,
    /// The same by class: sums to `inhibited_ns`.
    pub dead_time: DeadTime,
    /// Memory beyond the region.
    pub memory: MemoryStats,
    /// Boot generation of this opening.
    pub boot: u32,
    /// The store's identity; over several nodes that of each.
    #[serde(default)]
    pub stores: Vec<Hex128>,
    /// The archive of the last proof; `None` where nothing was archived.
    #[serde(default)]
    pub archive: Option<Hex128>,
}

/// Fills (0 to 1) at which inhibit and demotion start and stop. What concerns the warm level is idle without one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marks {
    /// Fill of the hot level at which inhibit starts.
    pub hot_high: f64,
    /// Fill of the hot level at which it stops.
    pub hot_low: f64,
    /// Fill of the hot level at which demotion starts.
    pub demote_high: f64,
    /// Fill of the hot level at which it stops.
    pub demote_low: f64,
    /// Fill of the warm level at which inhibit starts.
    pub warm_high: f64,
    /// Fill of the warm level at which it stops.
    pub warm_low: f64,
}

/// One segment, for `inspect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentInfo {
    /// Position in the region.
    pub segment: u32,
    /// `free`, `open`, `sealed` or `log`.
    pub state: Cow<'static, str>,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventInfo {
    /// The event's name.
    pub primary: Primary,
    /// Its state.
    pub state: LiveState,
    /// Stage that it has reached.
    pub stage: u8,
    /// Fragments present.
    pub fragments: u32,
    /// Payload bytes.
    pub bytes: u64,
    /// Grants that have not ended well.
    pub deliveries: u8,
}

/// What one call released.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// Events that it released.
    pub events: u64,
    /// The event after which to go on, with another call; `None` where nothing is left.
    pub after: Option<Primary>,
}

/// Inhibit as it is after a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct InhibitState {
    /// Number of this change since the store was opened; 0 before the first.
    pub change: u64,
    /// Set while the trigger should pause. Its figures are those of the change.
    pub inhibit: Option<Inhibit>,
    /// When the change was noticed, in nanoseconds of the store's clock.
    pub since_ns: u64,
    /// Dead time by class, up to the change.
    pub dead_time: DeadTime,
}

/// A listener to every change of inhibit, such as the code that stops a trigger.
pub trait InhibitListener: Send + Sync {
    /// Called once per change, in order, on the thread that noticed it and with no lock of the store held; it may call
    /// the store. Must not block.
    fn changed(&self, state: &InhibitState);
}
