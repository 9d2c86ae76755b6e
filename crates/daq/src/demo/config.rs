//! Configuration of a demo.

use super::Profile;
use crate::limits::{THREADS_MAX, WARM_BYTES_DEFAULT, WARM_EVENTS_MIN};
use serde::Serialize;
use std::path::PathBuf;

/// A beam that comes and goes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Duty {
    /// Part of each period with beam, between 0 and 1; each period begins with it.
    pub share: f64,
    /// Length of a period, in seconds.
    pub period_s: f64,
}

/// A directory that is one device of the warm level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DemoDevice {
    /// The directory; made if need be.
    pub path: PathBuf,
    /// Bytes to take there.
    pub bytes: u64,
}

/// Choices of one demo. [`DemoConfig::default`] and [`DemoConfig::for_profile`] are whole; change what should differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DemoConfig {
    /// Data taking, in seconds; draining comes on top.
    pub seconds: f64,
    /// The profile that the numbers come from, for the summary; [`DemoConfig::for_profile`] sets the numbers.
    pub profile: Option<Profile>,
    /// Sources of an event.
    pub sources: u32,
    /// Bytes of one fragment; 0 takes one frame (7200 for WIBEth, 464 for WIB1).
    pub fragment_bytes: usize,
    /// Trigger rate, in events per second while there is beam; 0 is as fast as it goes, or with `duty` a rate whose backlog
    /// takes a quarter of the hot level.
    pub events_per_second: u64,
    /// The beam comes and goes; `None` is always on. The demo then fails where there was dead time, or where a gap did not
    /// empty the backlog.
    pub duty: Option<Duty>,
    /// Most events per second that the selection begins; 0 is without a limit, or with `duty` a little more than the mean
    /// rate.
    pub farm_events_per_second: f64,
    /// Threads that produce; each owns a share of the sources.
    pub readout_threads: usize,
    /// Threads that select.
    pub filter_threads: usize,
    /// Part of the events that is accepted, 0 to 1.
    pub accept: f64,
    /// Part of the sources that the selection reads before it decides, 0 to 1; at least one source.
    pub fast_fraction: f64,
    /// Directory for the store, which stays there afterwards; must hold no store yet. `None` makes one in shared memory,
    /// or in the temporary directory where that has no room, and removes it at the end.
    pub dir: Option<PathBuf>,
    /// Bytes of the hot level.
    pub hot_bytes: u64,
    /// Devices of the warm level, each of which holds no store yet. Where the store's directory is not kept, what is made
    /// in them goes away with it. Empty: one in the store's directory.
    pub warm: Vec<DemoDevice>,
    /// Bytes of the warm level in the store's directory, where `warm` is empty; 0 is a store of one level.
    pub warm_bytes: u64,
    /// Recorded frames to replay; `None` emulates WIBEth frames.
    pub input: Option<PathBuf>,
    /// Seed of emulated frames and of the decisions.
    pub seed: u64,
}

impl Default for DemoConfig {
    /// One readout unit of DUNE: 48 links, one WIBEth frame each, as fast as it goes for ten seconds.
    fn default() -> DemoConfig {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        DemoConfig {
            seconds: 10.0,
            profile: None,
            sources: 48,
            fragment_bytes: 0,
            events_per_second: 0,
            duty: None,
            farm_events_per_second: 0.0,
            readout_threads: (threads / 2).clamp(1, THREADS_MAX),
            filter_threads: (threads / 2).clamp(1, THREADS_MAX),
            accept: 0.1,
            fast_fraction: 0.1,
            dir: None,
            hot_bytes: 1 << 30,
            warm: Vec::new(),
            warm_bytes: WARM_BYTES_DEFAULT,
            input: None,
            seed: 1,
        }
    }
}

impl DemoConfig {
    /// The default with the numbers of a profile: sources, fragment bytes, hot bytes and accepted part.
    pub fn for_profile(profile: Profile) -> DemoConfig {
        let shape = profile.shape();
        let mut config = DemoConfig {
            profile: Some(profile),
            sources: shape.sources,
            fragment_bytes: shape.fragment_bytes,
            hot_bytes: shape.hot_bytes,
            warm_bytes: WARM_BYTES_DEFAULT
                .max(WARM_EVENTS_MIN * u64::from(shape.sources) * shape.fragment_bytes as u64)
                .next_multiple_of(1 << 20),
            accept: shape.accept,
            ..DemoConfig::default()
        };
        // A machine with many cores has fewer sources than threads only in profiles of few large sources.
        config.readout_threads = config.readout_threads.min(shape.sources as usize);
        config
    }
}
