//! How a recording is going, for a live line once a second.

use forebay_recorder::{RecordingDevice, RecordingProgress};
use serde::Serialize;
use std::time::{Duration, Instant};

/// From one report to the next.
const EVERY: Duration = Duration::from_secs(1);

/// A report on the way. The rate is that since the report before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordProgress {
    /// Seconds since the first frame.
    pub elapsed_s: f64,
    /// Payload that became durable, in 10⁶ bytes per second.
    pub mb_per_second: f64,
    /// Payload bytes that are durable.
    pub recorded_bytes: u64,
    /// Frames that are durable.
    pub recorded: u64,
    /// Frames that were missed, for whatever reason.
    pub missed: u64,
    /// How the devices are written, each once.
    pub methods: Vec<String>,
    /// Devices that stand still or take nothing any more, and why.
    pub troubles: Vec<String>,
}

impl RecordProgress {
    /// One line.
    pub fn line(&self) -> String {
        let mut line = format!(
            "{:6.1} s  {:7.1} MB/s  {:.2} GB written  {} frames missed  ({})",
            self.elapsed_s,
            self.mb_per_second,
            self.recorded_bytes as f64 / 1e9,
            self.missed,
            self.methods.join("; ")
        );
        self.troubles.iter().for_each(|trouble| line.push_str(&format!("  {trouble}")));
        line
    }
}

/// Reports at even intervals.
pub(super) struct Reporter<'p> {
    report: &'p mut dyn FnMut(&RecordProgress),
    start: Instant,
    last: Instant,
    before: u64,
}

impl<'p> Reporter<'p> {
    pub(super) fn new(report: &'p mut dyn FnMut(&RecordProgress), start: Instant) -> Reporter<'p> {
        Reporter { report, start, last: start, before: 0 }
    }

    /// Reports if it is time.
    pub(super) fn tick(&mut self, progress: impl FnOnce() -> (RecordingProgress, Option<String>)) {
        let seconds = self.last.elapsed().as_secs_f64();
        if seconds < EVERY.as_secs_f64() {
            return;
        }
        self.last = Instant::now();
        let (progress, trouble) = progress();
        let written = progress.recorded_bytes.saturating_sub(self.before);
        self.before = progress.recorded_bytes;
        (self.report)(&RecordProgress {
            elapsed_s: self.start.elapsed().as_secs_f64(),
            mb_per_second: written as f64 / seconds / 1e6,
            recorded_bytes: progress.recorded_bytes,
            recorded: progress.recorded,
            missed: progress.missed,
            methods: methods(progress.devices.iter().map(|device| device.method.as_str())),
            troubles: progress.devices.iter().filter_map(of_device).chain(trouble).collect(),
        });
    }
}

/// Each method once, in their order.
pub(super) fn methods<'a>(all: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut methods: Vec<String> = Vec::new();
    for method in all {
        if !methods.iter().any(|known| known == method) {
            methods.push(method.to_owned());
        }
    }
    methods
}

fn of_device(device: &RecordingDevice) -> Option<String> {
    match &device.failure {
        Some(failure) => Some(format!("{}: {failure}", device.directory)),
        None if device.stalled => Some(format!("{}: stalled", device.directory)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_rate_missed_and_how_it_is_written() {
        let mut progress = RecordProgress {
            elapsed_s: 2.0,
            mb_per_second: 439.4,
            recorded_bytes: 878_906_250,
            recorded: 122_070,
            missed: 0,
            methods: methods(["io_uring, direct", "io_uring, direct"].into_iter()),
            troubles: vec![],
        };
        let expected = "   2.0 s    439.4 MB/s  0.88 GB written  0 frames missed  (io_uring, direct)";
        assert_eq!(progress.line(), expected);
        progress.troubles.push("/a: stalled".into());
        assert!(progress.line().ends_with("  /a: stalled"));
    }
}
