//! Limits of the scenarios and their relations, asserted at compile time.

use std::time::Duration;

/// Longest file of recorded frames, in bytes: it is held in memory as a whole.
pub const INPUT_BYTES_MAX: u64 = 4 << 30;
/// Fewest frames of a recording: one frame alone cannot show its tick step.
pub const INPUT_FRAMES_MIN: usize = 2;
/// Frames that the emulator prepares; 460,800 bytes of WIBEth stay in a core's second-level cache.
pub const POOL_FRAMES: usize = 64;
/// Most sources of an event: crate, slot and stream of a WIBEth header have 22 bits.
pub const SOURCES_MAX: u32 = 1 << 22;
/// Most threads of one role.
pub const THREADS_MAX: usize = 256;
/// Fewest events that the hot level must hold, so that readout and selection work side by side.
pub const EVENTS_IN_HOT_MIN: u64 = 12;
/// Fewest segments of the hot level.
pub const SEGMENTS_MIN: u64 = 32;
/// Smallest hot level of a demo, in bytes.
pub const HOT_BYTES_MIN: u64 = 16 << 20;
/// Most events that the fastest readout thread is ahead of the slowest one.
pub const WINDOW_EVENTS_MAX: u64 = 256;
/// Part of the hot level, as a divisor, that events in the window may occupy.
pub const WINDOW_SHARE: u64 = 8;
/// Most events that a filter thread leases at once.
pub const BATCH_EVENTS_MAX: u64 = 32;
/// Bytes of whole events that a filter thread leases at once, if that is at least one event.
pub const BATCH_BYTES: u64 = 4 << 20;
/// Longest sleep of a MiniDAQ's trigger between two looks whether the store inhibits.
pub const INHIBIT_POLL: Duration = Duration::from_millis(2);
/// Shortest period of a beam.
pub const DUTY_PERIOD_MIN: Duration = Duration::from_millis(100);
/// Longest period of a beam.
pub const DUTY_PERIOD_MAX: Duration = Duration::from_secs(3600);
/// What a farm that is sized for the mean takes, in parts of the mean: it must empty the backlog within the gap.
pub const FARM_HEADROOM: f64 = 1.15;
/// What a farm did not begin is made up for within this time, and lost after it.
pub const FARM_BURST: Duration = Duration::from_millis(50);
/// Longest sleep of a filter thread whose farm may not begin an event yet.
pub const FARM_WAIT: Duration = Duration::from_millis(1);
/// Where a beam is given no rate: most bytes per second, which a small machine reads and writes with ease.
pub const BEAM_BYTES_PER_SECOND: f64 = 300e6;
/// Where a beam is given no rate: part of the hot level that the backlog of one beam takes.
pub const BEAM_HOT_SHARE: f64 = 0.25;
/// Gaps of a beam that are kept one by one.
pub const GAPS_KEPT: usize = 1000;
/// Part of the events of a period, as a divisor, that a gap may leave undecided.
pub const GAP_LEFT_SHARE: u64 = 100;
/// How far behind its schedule the trigger catches up; what is due for longer counts as lost triggers.
pub const CATCH_UP: Duration = Duration::from_millis(10);
/// Longest sleep of a thread that waits for the trigger.
pub const TRIGGER_WAIT: Duration = Duration::from_micros(500);
/// How long a filter thread waits for a ready event before it looks whether the run is over.
pub const GET_ANY_WAIT: Duration = Duration::from_millis(20);
/// How long a put waits for space before the readout looks whether to go on.
pub const PUT_WAIT: Duration = Duration::from_millis(250);
/// Lease of a filter thread: generous, because a busy machine may stop a thread for seconds.
pub const LEASE: Duration = Duration::from_secs(30);
/// Time after which an event without all sources is given to the filters: no readout thread is ever that late.
pub const COMPLETE_WITHIN: Duration = Duration::from_secs(600);
/// Longest time after the end of data taking in which everything must be decided.
pub const DRAIN: Duration = Duration::from_secs(120);
/// How often a scenario's main thread looks how things are going.
pub const LOOK: Duration = Duration::from_millis(5);
/// How often progress is reported.
pub const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// The warm level of a demo, in bytes, by default.
pub const WARM_BYTES_DEFAULT: u64 = 128 << 20;
/// Events that the warm level of a profile holds at least.
pub const WARM_EVENTS_MIN: u64 = 4;
/// Containers into which a device of a demo is cut, and the fewest that will do.
pub const WARM_CONTAINERS: u64 = 16;
/// See [`WARM_CONTAINERS`].
pub const WARM_CONTAINERS_MIN: u64 = 6;
/// How long what the archive has stays on the warm level, where that has the space.
pub const CUSTODY_MIN: Duration = Duration::from_secs(1);
/// How long the archive's thread sleeps where there is nothing to move.
pub const ARCHIVE_WAIT: Duration = Duration::from_millis(5);
/// Most links of a MiniDAQ: each has a request handler of its own.
pub const LINKS_MAX: u32 = THREADS_MAX as u32;
/// Most links of a recording: four readout units.
pub const LINKS_RECORDED_MAX: u32 = 192;
/// Containers of each directory beside those that a recording's payload fills: the last one of each stays partly empty.
pub const RECORD_CONTAINERS_SPARE: u64 = 2;
/// Highest rate of triggers or bursts, per second: the DUNE far detector has less than one.
pub const TRIGGERS_PER_SECOND_MAX: f64 = 100_000.0;
/// How long a readout thread sleeps between two looks at what is due.
pub const READOUT_STEP: Duration = Duration::from_micros(500);
/// How far behind the detector a readout thread catches up; frames that are due for longer are lost at the link.
pub const READOUT_CATCH_UP: Duration = Duration::from_millis(100);
/// The same for links that are recorded: what a receiver with a quarter of a second of buffers bears.
pub const RECORD_CATCH_UP: Duration = Duration::from_millis(250);
/// Furthest that a timestamp may lie from its arrival: a busy machine may stop a thread for seconds.
pub const SKEW_MAX: Duration = Duration::from_secs(20);
/// Hot level of a MiniDAQ's trigger records, in bytes, where they do not need more.
pub const HOT_BYTES_DEFAULT: u64 = 256 << 20;
/// Bytes of the ring per link, and for the ring itself, that are not payload.
pub const RING_OVERHEAD_BYTES: u64 = 512 << 10;
/// Part of the history, as a divisor, that the fastest readout thread is ahead of the slowest where there is no rate.
pub const FREE_RUNNING_SHARE: u64 = 16;

// What is put late is not taken for an insane clock.
const _: () = assert!(READOUT_CATCH_UP.as_millis() * 10 < SKEW_MAX.as_millis());
// The backlog of a beam without a rate stays below the mark at which inhibit starts, beside the window.
const _: () = assert!(BEAM_HOT_SHARE + 1.0 / WINDOW_SHARE as f64 + 0.1 < 0.75);
// A farm without work for a moment makes that up within the shortest period.
const _: () = assert!(FARM_BURST.as_millis() * 2 <= DUTY_PERIOD_MIN.as_millis());
// The window, the leases of a few threads and the mark at which inhibit starts fit into the smallest hot level.
const _: () = assert!(WINDOW_SHARE <= EVENTS_IN_HOT_MIN);
// An event is complete or the run has failed before the store seals it without some of its sources.
const _: () = assert!(COMPLETE_WITHIN.as_secs() > DRAIN.as_secs() + LEASE.as_secs());
// The readout looks at the end of the run more often than the drain takes.
const _: () = assert!(PUT_WAIT.as_millis() * 10 < DRAIN.as_millis());
