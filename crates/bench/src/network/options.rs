//! Options of the network benchmark: the command line, and the plan that follows from it.

use clap::Args;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `cargo xtask bench network`.
#[derive(Args)]
pub(crate) struct Options {
    /// Repetitions; figures are medians over them.
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Directory for the regions: memory, not a disk.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Bytes of the hot region, in MiB.
    #[arg(long, default_value_t = 2048)]
    hot_mib: u64,
    /// Only these parts (may be given several times): moving, tls, redis, runtimes, latency, selection, cluster, connections.
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Where the report goes, from the workspace root.
    #[arg(long, default_value = "results")]
    pub(super) out: PathBuf,
    /// Everything in small, in well under a minute: tries the benchmark itself, its figures mean nothing.
    #[arg(long)]
    smoke: bool,
}

/// Sizes and times of one run.
pub(super) struct Plan {
    pub(super) dir: PathBuf,
    pub(super) repetitions: usize,
    pub(super) hot_bytes: u64,
    /// Payload of one pass of long fragments.
    pub(super) pass_bytes: u64,
    /// Fragments of one pass of short ones.
    pub(super) pass_fragments: u64,
    /// Round trips of one measurement of latency.
    pub(super) round_trips: usize,
    /// Events leased and decided in one pass.
    pub(super) events: u64,
    /// Requests of one run of `redis-benchmark`.
    pub(super) redis_requests: u64,
    /// Idle connections.
    pub(super) idle: usize,
    /// Active connections, few and many.
    pub(super) active: [usize; 2],
    /// Time for which active connections are measured.
    pub(super) active_for: Duration,
    pub(super) smoke: bool,
}

impl Options {
    /// Whether a part is wanted.
    pub(super) fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == part)
    }

    pub(super) fn plan(&self) -> Plan {
        let full = Plan {
            dir: self.dir.clone(),
            repetitions: self.repetitions.max(1),
            hot_bytes: self.hot_mib << 20,
            pass_bytes: 512 << 20,
            pass_fragments: 1_000_000,
            round_trips: 20_000,
            events: 200_000,
            redis_requests: 500_000,
            idle: 10_000,
            active: [10, 1000],
            active_for: Duration::from_secs(3),
            smoke: false,
        };
        if !self.smoke {
            return full;
        }
        Plan {
            repetitions: 1,
            hot_bytes: 256 << 20,
            pass_bytes: 32 << 20,
            pass_fragments: 20_000,
            round_trips: 500,
            events: 2_000,
            redis_requests: 10_000,
            idle: 100,
            active: [2, 20],
            active_for: Duration::from_millis(300),
            smoke: true,
            ..full
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} repetitions, {} MiB of long fragments and {} short ones in a pass, hot level of {} MiB, {} round trips, {} events, \
             {} idle connections",
            self.repetitions,
            self.pass_bytes >> 20,
            self.pass_fragments,
            self.hot_bytes >> 20,
            self.round_trips,
            self.events,
            self.idle
        )
    }
}
