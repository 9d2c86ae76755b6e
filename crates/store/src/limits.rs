//! Limits of the engine and how they relate.

use forebay_core::limits::{FRAGMENTS_PER_EVENT_MAX, KEY_BYTES_MAX};

/// Shards of the index: one lock each.
pub(crate) const SHARDS: usize = 16;
/// Consecutive primary keys that share a shard, as a power of two: dense events stay dense in the radix tree and in
/// the memory of the decided, neighbours still spread over shards.
pub(crate) const SHARD_BLOCK_BITS: u32 = 6;
/// Verdicts remembered per shard, for repeats.
pub(crate) const VERDICTS_REMEMBERED: usize = 1 << 14;
/// Bytes of one incident in a snapshot, the longest key included.
pub(crate) const INCIDENT_BYTES: usize = 48;
/// Incidents that survive a restart: fewest, most, and one per this many bytes of the region.
const INCIDENTS_KEPT_MIN: usize = 64;
const INCIDENTS_KEPT_MAX: usize = 4096;
const REGION_BYTES_PER_INCIDENT: u64 = 64 << 10;
/// Bytes of one verdict in a snapshot.
pub(crate) const VERDICT_BYTES: usize = 20;
/// Verdicts that survive a restart: fewest, most, and one per this many bytes of the region.
const VERDICTS_KEPT_MIN: usize = 1024;
const VERDICTS_KEPT_MAX: usize = 1 << 16;
const REGION_BYTES_PER_VERDICT: u64 = 32 << 10;
/// Changes of masks, and of prescales, that a run keeps: fewest, most, and one per this many bytes of the region.
const RECORDS_KEPT_MIN: usize = 64;
pub(crate) const RECORDS_MAX: usize = 1000;
const REGION_BYTES_PER_RECORD: u64 = 16 << 10;
/// Sparse endings that a run remembers: fewest, most, and one per this many bytes of the region.
const ENDINGS_KEPT_MIN: usize = 4096;
const ENDINGS_KEPT_MAX: usize = 1 << 20;
const REGION_BYTES_PER_ENDING: u64 = 16 << 10;
/// Events handled in one hold of a shard lock by the maintenance round and by listings.
pub(crate) const BATCH_EVENTS: usize = 256;
/// Runs whose accounts are read in one hold of a shard lock.
pub(crate) const BATCH_RUNS: usize = 256;
/// Shortest pause between maintenance rounds, in milliseconds.
pub(crate) const MAINTENANCE_MS: u64 = 5;
/// Pause between two looks at the rates of sources, in nanoseconds.
pub(crate) const SOURCES_LOOK_NS: u64 = 250_000_000;
/// Pause between two looks at whether the store's files still have their names, in nanoseconds.
pub(crate) const NAMES_LOOK_NS: u64 = 1_000_000_000;
/// Sealed segments with less than this share of live bytes (in percent) are evacuated when space gets short.
pub(crate) const EVACUATE_LIVE_PERCENT: u64 = 60;
/// Most runs that one store knows, closed ones included.
pub(crate) const RUNS_MAX: usize = 60_000;
/// Most runs of which nobody knows, and of which it is remembered what came.
pub(crate) const UNKNOWN_RUNS_MAX: usize = 1024;
/// How far above the highest known run one may open by itself.
pub(crate) const RUNS_AHEAD_MAX: u64 = 1000;
/// Most runs that opened by themselves and take events.
pub(crate) const AUTO_OPENED_MAX: usize = 64;

/// Verdicts that survive a restart in a region of this size.
pub(crate) fn verdicts_kept(region_bytes: u64) -> usize {
    ((region_bytes / REGION_BYTES_PER_VERDICT) as usize).clamp(VERDICTS_KEPT_MIN, VERDICTS_KEPT_MAX)
}

/// Bytes for remembering how events of one run ended, per way to end and shard, in a region of this size.
pub(crate) fn endings_bytes(region_bytes: u64) -> usize {
    ((region_bytes / REGION_BYTES_PER_ENDING) as usize).clamp(ENDINGS_KEPT_MIN, ENDINGS_KEPT_MAX) * 12 / SHARDS
}

/// Changes of masks, and of prescales, that a run keeps in a region of this size.
pub(crate) fn records_kept(region_bytes: u64) -> usize {
    ((region_bytes / REGION_BYTES_PER_RECORD) as usize).clamp(RECORDS_KEPT_MIN, RECORDS_MAX)
}

/// Incidents that survive a restart in a region of this size.
pub(crate) fn incidents_kept(region_bytes: u64) -> usize {
    ((region_bytes / REGION_BYTES_PER_INCIDENT) as usize).clamp(INCIDENTS_KEPT_MIN, INCIDENTS_KEPT_MAX)
}

// An event's table: primary key, attribute location, and the widest slot (remaining key and location) per fragment.
const _: () = assert!(KEY_BYTES_MAX + 8 + FRAGMENTS_PER_EVENT_MAX as usize * (KEY_BYTES_MAX - 1 + 8) < 1 << 20);
// Of each prescale the newest change is kept: some other one can always be dropped.
const _: () = assert!(forebay_core::limits::PRESCALES_MAX < RECORDS_MAX);
// What survives a restart is remembered before it as well.
const _: () = assert!(VERDICTS_KEPT_MAX <= VERDICTS_REMEMBERED * SHARDS);
