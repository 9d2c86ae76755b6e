//! Options of the dataset benchmark: the command line, and the plan that follows from it.

use crate::child;
use clap::Args;
use std::fmt;
use std::path::PathBuf;

/// Files of the data folder, in the order of the report.
const FILES: [&str; 4] =
    ["NanoAODv5_sample.root", "nanoAOD_2015_CMS_Open_Data_ttbar.root", "uproot-HZZ.root", "PHYSLITE_example.root"];

/// Options of `cargo xtask bench dataset`.
#[derive(Args)]
pub(crate) struct Options {
    /// ROOT files (any NanoAOD or PHYSLITE); default: the four of the folder that FOREBAY_DATA names, else `../shared/data`.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Events of the measurement of times, drawn from the first file in shuffled order.
    #[arg(long, default_value_t = 100_000)]
    events: u64,
    /// Repetitions; figures are medians over them.
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Measures against a real Ceph on this machine instead: stripe sizes, threads, clients, processor time by process.
    #[arg(long)]
    ceph: bool,
    /// Only these parts (may be given several times): sizes, times, latency.
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Directory of the report, from the workspace root.
    #[arg(long, default_value = "results")]
    pub(super) out: PathBuf,
    /// Files and relations without figures of time, in well under half a minute, without ROOT's own package.
    #[arg(long, visible_alias = "smoke")]
    quick: bool,
}

/// Sizes and times of one run.
pub(super) struct Plan {
    pub(super) files: Vec<PathBuf>,
    pub(super) events: u64,
    pub(super) repetitions: usize,
    /// Answers of the stand-in take this long.
    pub(super) delay_ms: u64,
    /// Batches that are written to the stand-in and to Ceph.
    pub(super) batches: u64,
    /// Settings of ROOT's own RNTuple: ZSTD-5, ZSTD-9, LZMA-9.
    pub(super) settings: &'static [&'static str],
    pub(super) ceph: bool,
    pub(super) quick: bool,
}

impl Options {
    /// Whether a part is wanted.
    pub(super) fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == part)
    }

    pub(super) fn plan(&self) -> Plan {
        let folder =
            std::env::var_os("FOREBAY_DATA").map_or_else(|| child::root().join("../shared/data"), PathBuf::from);
        let files = match self.files.is_empty() {
            true => FILES.iter().map(|name| folder.join(name)).collect(),
            false => self.files.clone(),
        };
        let full = Plan {
            files,
            events: self.events.max(1),
            repetitions: self.repetitions.max(1),
            delay_ms: 5,
            batches: 64,
            settings: if self.wants("sizes") { &["505", "509", "209"] } else { &[] },
            ceph: self.ceph,
            quick: self.quick,
        };
        if !self.quick {
            return full;
        }
        // The smallest of the four has all that relations need.
        let files = if self.files.is_empty() { vec![folder.join(FILES[2])] } else { full.files };
        Plan { files, events: 2000, repetitions: 1, delay_ms: 1, batches: 4, settings: &[], ..full }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.quick {
            write!(out, "QUICK, figures of time mean nothing; ")?;
        }
        write!(
            out,
            "{} files, {} repetition(s), {} events in shuffled order, {} ms a request, {} batches",
            self.files.len(),
            self.repetitions,
            self.events,
            self.delay_ms,
            self.batches
        )
    }
}
