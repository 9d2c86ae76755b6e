//! Options of the warm-level benchmark: the command line, and the plan that follows from it.

use crate::child;
use clap::Args;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Options of `cargo xtask bench warm`.
#[derive(Args)]
pub(crate) struct Options {
    /// Repetitions; figures are medians over them.
    #[arg(long, default_value_t = 7)]
    repetitions: usize,
    /// Directory on the device to measure; by default the build directory.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// MiB written in one pass; twelve times as much must be free.
    #[arg(long, default_value_t = 1024)]
    write_mib: u64,
    /// MiB of payload after which the writer asks for durability.
    #[arg(long, default_value_t = 64)]
    commit_mib: u64,
    /// Demoted events with which a store is opened again, in millions.
    #[arg(long, default_value_t = 10.0)]
    reopen_millions: f64,
    /// Only these parts (may be given several times): writing, sizes, reading, mixed, persisted, profiles,
    /// reopening, undecided.
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Directory of the report, from the workspace root.
    #[arg(long, default_value = "results")]
    pub(super) out: PathBuf,
    /// Everything in small, in some seconds: tests the benchmark itself; its figures have no meaning.
    #[arg(long)]
    smoke: bool,
}

/// Sizes and times of one run.
pub(super) struct Plan {
    pub(super) dir: PathBuf,
    pub(super) repetitions: usize,
    /// Fragment sizes of the tables.
    pub(super) sizes: Vec<usize>,
    /// Sizes of one device operation in the plot of one thread.
    pub(super) operation_sizes: Vec<usize>,
    /// Bytes of one device operation elsewhere.
    pub(super) operation_bytes: usize,
    /// Operations in flight per writing thread.
    pub(super) depth: usize,
    /// Payload after which the writer asks for durability.
    pub(super) commit_bytes: u64,
    pub(super) container_bytes: u64,
    /// Payload of one writing pass, all threads together.
    pub(super) write_bytes: u64,
    /// Payload of one pass of the tables over sizes.
    pub(super) table_bytes: u64,
    /// Bytes of the source that is read cold: more than any cache.
    pub(super) source_bytes: usize,
    /// Most time of one job of fio in the tables.
    pub(super) fio: Duration,
    /// Threads that read whole events at the same time.
    pub(super) readers: Vec<usize>,
    /// Threads that drain while one writes.
    pub(super) drainers: usize,
    /// Events put as `persisted`.
    pub(super) persisted_events: u64,
    /// Demoted events in the measurements of reopening: a tenth, and all.
    pub(super) reopen_events: u64,
    pub(super) smoke: bool,
}

impl Options {
    /// Whether a part is wanted.
    pub(super) fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == part)
    }

    pub(super) fn plan(&self) -> Plan {
        let dir = self.dir.clone().unwrap_or_else(child::target_dir);
        let full = Plan {
            dir,
            repetitions: self.repetitions.max(1),
            sizes: [1, 2, 4, 10, 32, 128, 512, 1024].map(|kib| kib * KIB).to_vec(),
            operation_sizes: [4, 16, 64, 256, 1024, 4096].map(|kib| kib * KIB).to_vec(),
            operation_bytes: MIB,
            depth: 8,
            commit_bytes: self.commit_mib.min(1 << 20) << 20,
            container_bytes: 256 << 20,
            write_bytes: self.write_mib.clamp(256, 4096) << 20,
            table_bytes: (self.write_mib.clamp(256, 4096) << 20) / 4,
            source_bytes: 1280 << 20,
            fio: Duration::from_millis(700),
            readers: vec![1, 4],
            drainers: 2,
            persisted_events: 4000,
            reopen_events: (self.reopen_millions.clamp(0.01, 100.0) * 1e6) as u64,
            smoke: self.smoke,
        };
        if !self.smoke {
            return full;
        }
        Plan {
            repetitions: 1,
            sizes: [1, 10, 1024].map(|kib| kib * KIB).to_vec(),
            operation_sizes: [64, 1024].map(|kib| kib * KIB).to_vec(),
            container_bytes: 24 << 20,
            write_bytes: 48 << 20,
            table_bytes: 24 << 20,
            source_bytes: 32 << 20,
            fio: Duration::from_millis(50),
            persisted_events: 50,
            reopen_events: 20_000,
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
            "{} repetition(s) of {} MiB, operations of {} KiB, {} in flight, a commit each {} MiB, containers of {} MiB, {} \
             demoted events",
            self.repetitions,
            self.write_bytes >> 20,
            self.operation_bytes >> 10,
            self.depth,
            self.commit_bytes >> 20,
            self.container_bytes >> 20,
            self.reopen_events
        )
    }
}
