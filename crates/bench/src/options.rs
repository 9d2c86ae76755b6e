//! Options of the benchmark: the command line, and the plan that follows from it.

use clap::Args;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `cargo xtask bench embedded`.
#[derive(Args)]
pub(crate) struct Options {
    /// Repetitions; figures are medians over them.
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Seconds of the concurrent test, for each size and repetition.
    #[arg(long, default_value_t = 30.0)]
    seconds_concurrent: f64,
    /// Seconds for which 1 % of the events are held under lease (120 in full).
    #[arg(long, default_value_t = 10.0)]
    seconds_held: f64,
    /// Directory for the regions: memory, not a disk.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Bytes of the hot region, in MiB.
    #[arg(long, default_value_t = 4096)]
    hot_mib: u64,
    /// Directory of the report, from the workspace root.
    #[arg(long, default_value = "results")]
    pub(super) out: PathBuf,
    /// Everything in small, in well under a minute: tests the benchmark itself; its figures have no meaning.
    #[arg(long)]
    smoke: bool,
    /// Leave Redis out; goals relative to it are not judged.
    #[arg(long)]
    without_redis: bool,
}

/// Sizes and times of one run.
pub(super) struct Plan {
    pub(super) dir: PathBuf,
    pub(super) sizes: Vec<usize>,
    pub(super) repetitions: usize,
    pub(super) hot_bytes: u64,
    /// Bytes of the source that is read cold: more than any cache.
    pub(super) source_bytes: usize,
    /// Most fragments of one timed pass.
    pub(super) fragments_max: u64,
    /// Time of one copy or read measurement.
    pub(super) copy: Duration,
    pub(super) concurrent: Duration,
    pub(super) hold: Duration,
    /// Fragments in each measurement of memory.
    pub(super) probe_fragments: u64,
    /// Densely numbered events in the measurement of the memory of the decided.
    pub(super) decided_events: u64,
    /// Rounds of filling and removing.
    pub(super) refills: usize,
    pub(super) redis: RedisPlan,
    pub(super) without_redis: bool,
    pub(super) smoke: bool,
}

/// How Redis is driven.
pub(super) struct RedisPlan {
    /// Most keys per size.
    pub(super) keys_max: u64,
    /// Most bytes of values per size.
    pub(super) value_bytes_max: u64,
    /// Requests of one measurement without a pipeline.
    pub(super) requests_single: u64,
    /// Aim for one measurement with a pipeline.
    pub(super) pipelined: Duration,
}

impl Options {
    pub(super) fn plan(&self) -> Plan {
        let seconds = Duration::from_secs_f64;
        let full = Plan {
            dir: self.dir.clone(),
            sizes: vec![64, 1024, 2048, 4096, 10_240],
            repetitions: self.repetitions.max(1),
            hot_bytes: self.hot_mib.max(128) << 20,
            source_bytes: 1280 << 20,
            fragments_max: 4_000_000,
            copy: seconds(0.5),
            concurrent: seconds(self.seconds_concurrent.clamp(0.1, 3600.0)),
            hold: seconds(self.seconds_held.clamp(0.1, 500.0)),
            probe_fragments: 4_000_000,
            decided_events: 1_000_000_000,
            refills: 20,
            redis: RedisPlan {
                keys_max: 500_000,
                value_bytes_max: 512 << 20,
                requests_single: 20_000,
                pipelined: seconds(1.0),
            },
            without_redis: self.without_redis,
            smoke: self.smoke,
        };
        if !self.smoke {
            return full;
        }
        Plan {
            repetitions: 1,
            hot_bytes: 256 << 20,
            source_bytes: 64 << 20,
            fragments_max: 100_000,
            copy: seconds(0.02),
            concurrent: seconds(0.3),
            hold: seconds(0.5),
            probe_fragments: 320_000,
            decided_events: 10_000_000,
            refills: 5,
            redis: RedisPlan {
                keys_max: 10_000,
                value_bytes_max: 16 << 20,
                requests_single: 1000,
                pipelined: seconds(0.1),
            },
            ..full
        }
    }
}

impl Plan {
    /// Fragments that fill the region to about 70 %, at most `fragments_max`, in whole events for two threads.
    pub(super) fn fragments(&self, bytes: usize) -> u64 {
        // Payload is aligned to cache lines; a directory entry takes 48 B at 16-byte keys.
        let each = bytes.next_multiple_of(64) as u64 + 48;
        let fit = self.hot_bytes * 7 / 10 / each;
        (fit.min(self.fragments_max) / 32 * 32).max(32)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.smoke {
            write!(out, "SMOKE, these figures mean nothing; ")?;
        }
        write!(
            out,
            "{} repetition(s), region {} MiB, cold source {} MiB, concurrent test {:.1} s, leases held {:.1} s",
            self.repetitions,
            self.hot_bytes >> 20,
            self.source_bytes >> 20,
            self.concurrent.as_secs_f64(),
            self.hold.as_secs_f64()
        )
    }
}
