//! Configuration of a MiniDAQ.

use crate::limits::THREADS_MAX;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// A length of detector time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// In ticks of the detector's clock.
    Ticks(u64),
    /// In time of the detector, regardless of the rate scale.
    Time(Duration),
}

impl Reach {
    /// In ticks, rounded down.
    pub fn ticks(self, ticks_per_second: u64) -> u64 {
        match self {
            Reach::Ticks(ticks) => ticks,
            Reach::Time(time) => {
                u64::try_from(time.as_nanos() * u128::from(ticks_per_second) / 1_000_000_000).unwrap_or(u64::MAX)
            }
        }
    }
}

/// A link that sends nothing for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// Which link.
    pub link: u32,
    /// When, in detector time from the first frame.
    pub from: Duration,
    /// How long.
    pub length: Duration,
}

/// What goes wrong on purpose, to see what the rest makes of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// Links that pause.
    pub pauses: Vec<Pause>,
    /// Links whose request handler answers nothing, as if it were dead.
    pub unanswered: Vec<u32>,
    /// Triggers fire from the start, although their windows begin before the first frame.
    pub early: bool,
}

/// Choices of one MiniDAQ. The default is whole; change what should differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MiniDaqConfig {
    /// Data taking, in seconds; draining comes on top.
    pub seconds: f64,
    /// Links; 0 takes what two cores carry: four of WIBEth, one of WIB1. A readout unit has 48.
    pub links: u32,
    /// Detector time per time: 1 is the detector's own rate, 0 as fast as it goes.
    pub rate_scale: f64,
    /// Threads that feed links into the ring.
    pub readout_threads: usize,
    /// How long the latency buffer keeps data at the chosen rate.
    pub history: Duration,
    /// Triggers per second; each is one burst.
    pub triggers_per_second: f64,
    /// Triggers that come close together, an eighth of a window apart.
    pub burst: u32,
    /// Window before the trigger.
    pub window_before: Reach,
    /// Window from the trigger on.
    pub window_after: Reach,
    /// How old a trigger is, in detector time, when its data is asked for.
    pub trigger_delay: Reach,
    /// How long a request waits for data that has not arrived.
    pub request_timeout: Duration,
    /// Time after which a trigger record goes to the filters without the fragments that it misses.
    pub record_timeout: Duration,
    /// Trigger records in flight at which the trigger is inhibited.
    pub busy_at: u32,
    /// Trigger records in flight below which it is free again.
    pub free_below: u32,
    /// Threads that take trigger records and decide.
    pub filter_threads: usize,
    /// Time that the selection of one trigger record takes, beside checking its bytes.
    pub filter_time: Duration,
    /// Part of the trigger records that is accepted, 0 to 1.
    pub accept: f64,
    /// Directory for ring and store, which stay there afterwards; must hold neither yet. `None` makes one in shared
    /// memory, or in the temporary directory where that has no room, and removes it at the end.
    pub dir: Option<PathBuf>,
    /// Bytes of the hot level of the trigger records; `None` takes what those in flight need.
    pub hot_bytes: Option<u64>,
    /// Bytes of the ring; `None` takes what its history needs.
    pub ring_bytes: Option<u64>,
    /// Recorded frames to replay; `None` emulates WIBEth frames.
    pub input: Option<PathBuf>,
    /// Seed of emulated frames and of the decisions.
    pub seed: u64,
    /// What goes wrong on purpose.
    pub faults: Faults,
}

impl Default for MiniDaqConfig {
    /// Four WIBEth links at the detector's rate for ten seconds, 30 triggers a second of 3 ms.
    fn default() -> MiniDaqConfig {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        MiniDaqConfig {
            seconds: 10.0,
            links: 0,
            rate_scale: 1.0,
            readout_threads: (threads / 2).clamp(1, THREADS_MAX),
            history: Duration::from_millis(500),
            triggers_per_second: 30.0,
            burst: 1,
            window_before: Reach::Time(Duration::from_millis(1)),
            window_after: Reach::Time(Duration::from_millis(2)),
            trigger_delay: Reach::Time(Duration::from_millis(5)),
            request_timeout: Duration::from_millis(250),
            record_timeout: Duration::from_secs(2),
            busy_at: 24,
            free_below: 12,
            filter_threads: (threads / 2).clamp(1, THREADS_MAX),
            filter_time: Duration::ZERO,
            accept: 0.5,
            dir: None,
            hot_bytes: None,
            ring_bytes: None,
            input: None,
            seed: 1,
            faults: Faults::default(),
        }
    }
}
