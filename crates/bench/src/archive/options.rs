//! Options of the benchmark of movers: the command line, and the plan that follows from it.

use crate::child;
use clap::{Args, ValueEnum};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Where the data challenge moves to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum To {
    /// A directory.
    Dir,
    /// A real Ceph on this machine.
    Ceph,
    /// Both, one after the other.
    Both,
}

/// Options of `cargo xtask bench archive`.
#[derive(Args)]
pub(crate) struct Options {
    /// Directory for the warm level and for the archive, on the device to measure; default: the build directory.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Directory for the hot level: memory, not a disk.
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// Repetitions; figures are medians over them. Of readout beside a mover there are at least nine pairs.
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// MiB that are moved in each repetition.
    #[arg(long, default_value_t = 1024)]
    move_mib: u64,
    /// Seconds for which the fill level is followed, without the outage, which takes a third of it more, at most a minute.
    #[arg(long, value_name = "N", default_value_t = 30)]
    seconds: u32,
    /// The data challenge instead of all that: one minute, into a directory and into a Ceph.
    #[arg(long)]
    challenge: bool,
    /// Hours of the data challenge, without the outage; default: one minute.
    #[arg(long, value_name = "H", requires = "challenge")]
    hours: Option<f64>,
    /// Where the data challenge moves to.
    #[arg(long, value_enum, default_value = "both", requires = "challenge")]
    to: To,
    /// MB that are taken in each second; default: 40 % of what the mover reached just before.
    #[arg(long, value_name = "MB")]
    intake_mb: Option<f64>,
    /// Only these parts (may be given several times): speed, s3, filling, order, streams, beside, outage.
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Directory of the report, from the workspace root.
    #[arg(long, default_value = "results")]
    pub(super) out: PathBuf,
    /// Everything in small, in well under a minute: tests the benchmark itself; its figures have no meaning.
    #[arg(long, visible_alias = "small")]
    smoke: bool,
}

/// Sizes and times of one run.
pub(super) struct Plan {
    pub(super) dir: PathBuf,
    pub(super) memory: PathBuf,
    pub(super) repetitions: usize,
    /// Pairs of readout beside a mover and alone.
    pub(super) pairs: usize,
    pub(super) hot_bytes: u64,
    pub(super) container_bytes: u64,
    /// Payload of one measurement.
    pub(super) move_bytes: u64,
    /// Bytes at which a mover ends an object.
    pub(super) object_bytes: usize,
    pub(super) streams: Vec<usize>,
    /// Of each request to the stand-in.
    pub(super) delay: Duration,
    /// How long the fill level is followed, and how long the archive is away meanwhile.
    pub(super) followed: Duration,
    pub(super) outage: Duration,
    /// Bytes per second that are taken in.
    pub(super) intake: Option<f64>,
    pub(super) challenge: bool,
    pub(super) to_dir: bool,
    pub(super) to_ceph: bool,
    pub(super) smoke: bool,
}

impl Options {
    /// Whether a part is wanted.
    pub(super) fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == part)
    }

    pub(super) fn plan(&self) -> Plan {
        let seconds = match (self.challenge, self.hours) {
            (true, Some(hours)) => hours.clamp(0.001, 10_000.0) * 3600.0,
            (true, None) => 60.0,
            (false, _) => f64::from(self.seconds.max(3)),
        };
        let followed = Duration::from_secs_f64(if self.smoke { seconds.min(3.0) } else { seconds });
        let full = Plan {
            dir: self.dir.clone().unwrap_or_else(child::target_dir),
            memory: self.memory.clone(),
            repetitions: self.repetitions.max(1),
            pairs: self.repetitions.max(9),
            hot_bytes: 1024 * MIB,
            container_bytes: 32 * MIB,
            move_bytes: self.move_mib.clamp(256, 1 << 16) * MIB,
            object_bytes: (128 * MIB) as usize,
            streams: vec![1, 2, 4, 8, 16],
            delay: Duration::from_millis(5),
            followed,
            outage: (followed / 3).min(Duration::from_secs(60)),
            intake: self.intake_mb.map(|rate| rate.max(0.001) * 1e6),
            challenge: self.challenge,
            to_dir: self.to != To::Ceph,
            to_ceph: self.to != To::Dir,
            smoke: self.smoke,
        };
        if !self.smoke {
            return full;
        }
        Plan {
            repetitions: 1,
            pairs: 2,
            hot_bytes: 64 * MIB,
            container_bytes: 4 * MIB,
            move_bytes: 24 * MIB,
            object_bytes: (3 * MIB) as usize,
            streams: vec![1, 4],
            delay: Duration::from_millis(1),
            ..full
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.smoke {
            write!(out, "SMOKE, these figures mean nothing; ")?;
        }
        write!(
            out,
            "{} repetition(s) of {} MiB, {} pairs, containers of {} MiB, objects of at most {} MiB, the fill level followed for {} s and \
             an outage of {} s",
            self.repetitions,
            self.move_bytes / MIB,
            self.pairs,
            self.container_bytes / MIB,
            self.object_bytes as u64 / MIB,
            self.followed.as_secs(),
            self.outage.as_secs()
        )
    }
}
