//! The machine and the code revision behind the figures.

use crate::Result;
use crate::child;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// The machine, the code and the command of one run.
#[derive(Serialize)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) processors: usize,
    pub(super) memory_gib: u64,
    pub(super) kernel: String,
    pub(super) stream_instructions: &'static str,
    /// What it is measured beside, by name: the other program's version, the medium.
    pub(super) beside: BTreeMap<&'static str, String>,
    pub(super) commit: String,
    pub(super) command: String,
    pub(super) load_before: String,
}

/// A build with assertions tries the benchmark; its figures mean nothing.
const BUILD: &str = if cfg!(debug_assertions) { ", built with assertions: the figures mean nothing" } else { "" };

impl Machine {
    /// Looks around.
    pub(super) fn look(beside: BTreeMap<&'static str, String>) -> Result<Machine> {
        let field = |file: &str, name: &str| -> Result<String> {
            let text = std::fs::read_to_string(file)?;
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            Ok(line.split_once(':').map_or("unknown", |(_, value)| value.trim()).to_owned())
        };
        let memory = field("/proc/meminfo", "MemTotal")?;
        let memory_kib: u64 = memory.split(' ').next().unwrap_or_default().parse().unwrap_or(0);
        let git = |arguments: &[&str]| child::output(Command::new("git").args(arguments).current_dir(child::root()));
        let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_ok_and(|text| !text.is_empty());
        let commit = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|_| "unknown".to_owned());
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        Ok(Machine {
            processor: field("/proc/cpuinfo", "model name")?,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: memory_kib.div_ceil(1 << 20),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            stream_instructions: super::copy_limit::stream_instructions(),
            beside,
            commit: commit + if changed { " with changes" } else { "" } + BUILD,
            command: format!("cargo xtask bench {}", arguments.join(" ")),
            load_before: std::fs::read_to_string("/proc/loadavg")?.trim().to_owned(),
        })
    }
}

/// The file system of a directory: device, kind and mount point.
pub(super) fn medium(dir: &Path) -> Result<String> {
    let dir = dir.canonicalize()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let split = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?, words.next()?, words.next()?))
    });
    let around = split.filter(|(_, mount, _)| dir.starts_with(mount)).max_by_key(|(_, mount, _)| mount.len());
    let (device, mount, kind) = around.ok_or("the directory lies on no file system")?;
    Ok(format!("{device}, {kind}, mounted on {mount}"))
}

impl fmt::Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "- command: `{}`", self.command)?;
        writeln!(out, "- commit: {}", self.commit)?;
        writeln!(out, "- machine: {}, {} processors, {} GiB", self.processor, self.processors, self.memory_gib)?;
        writeln!(out, "- kernel: {}; load before: {}", self.kernel, self.load_before)?;
        write!(out, "- non-temporal stores: {}", self.stream_instructions)?;
        for (name, text) in &self.beside {
            write!(out, "\n- {name}: {text}")?;
        }
        Ok(())
    }
}
