//! The yardstick: `fio` on files of the same directory, preallocated alike, with the same sizes, depths and direct I/O.
//!
//! *Invariants*: a small job first finds out whether fio may use io_uring and direct I/O, and the report names the result;
//! files are removed with their scratch directory.

use super::super::engine::Scratch;
use crate::{Result, child};
use rustix::fs::FallocateFlags;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What the directory allows, best first: io_uring can be forbidden in containers, direct I/O is unknown to some file
/// systems.
const WAYS: [(&str, bool); 4] = [("io_uring", true), ("libaio", true), ("psync", true), ("psync", false)];

/// fio, as it can be used in one directory.
pub(crate) struct Fio {
    engine: &'static str,
    direct: bool,
    version: String,
}

/// What a job does to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Writes from front to back.
    Write,
    /// Reads from front to back.
    Read,
    /// Reads blocks in random order.
    RandomRead,
}

/// One job, on one file, by as many processes as said.
pub(crate) struct Job<'a> {
    pub(crate) pattern: Pattern,
    pub(crate) file: &'a Path,
    /// Bytes of one operation.
    pub(crate) block_bytes: usize,
    /// Operations in flight.
    pub(crate) depth: usize,
    /// Processes that do the same side by side, each on its own part of the file.
    pub(crate) processes: u64,
    /// Bytes of the file that are touched, all processes together.
    pub(crate) bytes: u64,
    /// Writes of each process between two syncs; 0 leaves syncing to the file system.
    pub(crate) synced_every: u32,
    /// Loops over the file for this time; `None` passes over it once.
    pub(crate) time: Option<Duration>,
}

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moved {
    /// Bytes written or read per second.
    pub(crate) rate: f64,
    /// Bytes written or read.
    pub(crate) bytes: f64,
    /// CPU time of its processes, in seconds.
    pub(crate) core_seconds: f64,
}

impl<'a> Job<'a> {
    /// Once through the file, by one process, nothing made durable.
    pub(crate) fn once(pattern: Pattern, file: &'a Path, bytes: u64, block_bytes: usize, depth: usize) -> Job<'a> {
        Job { pattern, file, block_bytes, depth, processes: 1, bytes, synced_every: 0, time: None }
    }

    fn arguments(&self, at: usize) -> Vec<String> {
        let rw = match self.pattern {
            Pattern::Write => "write",
            Pattern::Read => "read",
            Pattern::RandomRead => "randread",
        };
        let each = self.bytes / self.processes / self.block_bytes as u64 * self.block_bytes as u64;
        let mut arguments = vec![
            format!("--name=job{at}"),
            format!("--filename={}", self.file.display()),
            format!("--rw={rw}"),
            format!("--bs={}", self.block_bytes),
            format!("--iodepth={}", self.depth),
            format!("--numjobs={}", self.processes),
            format!("--size={each}"),
            format!("--offset_increment={each}"),
            "--group_reporting".to_owned(),
            "--new_group".to_owned(),
        ];
        if self.synced_every > 0 {
            arguments.push(format!("--fdatasync={}", self.synced_every));
        }
        if let Some(time) = self.time {
            arguments.push("--time_based".to_owned());
            arguments.push(format!("--runtime={}ms", time.as_millis()));
        }
        arguments
    }
}

impl Fio {
    /// Finds out what fio may use in this directory.
    pub(crate) fn find(dir: &Path) -> Result<Fio> {
        let version = child::output(Command::new("fio").arg("--version"))?;
        let scratch = Scratch::new(dir)?;
        let file = preallocated(&scratch.path().join("probe"), 1 << 20)?;
        let mut refused = Vec::new();
        for (engine, direct) in WAYS {
            let fio = Fio { engine, direct, version: version.clone() };
            match fio.run(&[Job::once(Pattern::Write, &file, 1 << 20, 1 << 16, 2)]) {
                Ok(_) => return Ok(fio),
                Err(error) => refused.push(error.to_string()),
            }
        }
        Err(format!("fio can write nothing in {}: {}", dir.display(), refused.join("; ")).into())
    }

    /// What it is and how it does its I/O.
    pub(crate) fn describe(&self) -> String {
        let direct = if self.direct { "direct" } else { "buffered" };
        format!("{}, {}, {direct}", self.version, self.engine)
    }

    /// Runs these jobs at the same time, from one start; answers what each moved.
    pub(crate) fn run(&self, jobs: &[Job<'_>]) -> Result<Vec<Moved>> {
        self.start(jobs, &[])
    }

    /// As [`Fio::run`], but all end as soon as one has ended.
    pub(super) fn race(&self, jobs: &[Job<'_>]) -> Result<Vec<Moved>> {
        self.start(jobs, &["--exitall", "--exit_what=all"])
    }

    fn start(&self, jobs: &[Job<'_>], more: &[&str]) -> Result<Vec<Moved>> {
        let mut command = Command::new("fio");
        command.args(["--output-format=json", "--fallocate=none", "--overwrite=0", "--end_fsync=0", "--thread"]);
        command.args(more);
        command.arg(format!("--ioengine={}", self.engine)).arg(format!("--direct={}", u8::from(self.direct)));
        for (at, job) in jobs.iter().enumerate() {
            command.args(job.arguments(at));
        }
        let said = child::output(&mut command)?;
        // Warnings precede the JSON.
        let json = said.find('{').map_or("", |from| &said[from..]);
        moved(&serde_json::from_str(json)?, jobs)
    }
}

/// Reads what fio said about each job.
fn moved(said: &Value, jobs: &[Job<'_>]) -> Result<Vec<Moved>> {
    let of = |(at, job): (usize, &Job<'_>)| -> Result<Moved> {
        let told = &said["jobs"][at];
        let error = told["error"].as_i64();
        if error != Some(0) {
            return Err(format!("fio's job {at} on {} ended with error {error:?}", job.file.display()).into());
        }
        let side = if job.pattern == Pattern::Write { "write" } else { "read" };
        let figure = |value: &Value| value.as_f64().ok_or("fio's answer lacks a figure");
        let bytes = figure(&told[side]["io_bytes"])?;
        let micros = figure(&told[side]["runtime"])? * 1e3;
        if bytes <= 0.0 || micros <= 0.0 || (job.time.is_none() && (bytes as u64) < job.bytes / 2) {
            return Err(format!("fio's job {at} moved {bytes} bytes in {micros} µs").into());
        }
        let busy = (figure(&told["usr_cpu"])? + figure(&told["sys_cpu"])?) / 100.0;
        let core_seconds = busy * figure(&told["job_runtime"])? / 1e3;
        Ok(Moved { rate: bytes / (micros / 1e6), bytes, core_seconds })
    };
    jobs.iter().enumerate().map(of).collect()
}

/// Makes a file of allocated, never written bytes, as containers are at their creation.
pub(crate) fn preallocated(path: &Path, bytes: u64) -> Result<PathBuf> {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)
        .map_err(|error| format!("{bytes} bytes for {}: {error}", path.display()))?;
    file.sync_all()?;
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_are_read_and_failures_noticed() {
        let file = Path::new("/x/file");
        let job = Job::once(Pattern::Write, file, 1_000_000, 4096, 8);
        let side = json!({"io_bytes": 1_000_000, "runtime": 500});
        let told = json!({"error": 0, "write": side, "usr_cpu": 10.0, "sys_cpu": 30.0, "job_runtime": 500});
        let found = moved(&json!({"jobs": [told]}), std::slice::from_ref(&job)).unwrap();
        assert_eq!(found, [Moved { rate: 2e6, bytes: 1e6, core_seconds: 0.2 }]);
        let mut failed = told.clone();
        failed["error"] = json!(5);
        assert!(moved(&json!({"jobs": [failed]}), std::slice::from_ref(&job)).is_err());
        assert!(moved(&json!({"jobs": []}), &[job]).is_err());
    }

    #[test]
    fn processes_share_the_bytes() {
        let job = Job { processes: 2, ..Job::once(Pattern::RandomRead, Path::new("/x"), 100_000, 4096, 1) };
        let arguments = job.arguments(0);
        assert!(arguments.contains(&"--size=49152".to_owned()) && arguments.contains(&"--numjobs=2".to_owned()));
        assert!(!arguments.iter().any(|argument| argument.contains("runtime")));
    }
}
