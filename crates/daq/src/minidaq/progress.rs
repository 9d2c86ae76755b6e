//! How a MiniDAQ is going, for a live line: rates since the last report, and who holds the trigger.

use super::shared::Shared;
use crate::demo::Phase;
use crate::demo::meter::{Reading, read};
use crate::limits::PROGRESS_EVERY;
use serde::Serialize;
use std::time::Instant;

/// A report on the way. Rates are those since the report before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MiniDaqProgress {
    /// Where it stands.
    pub phase: Phase,
    /// Seconds since data taking began.
    pub elapsed_s: f64,
    /// Frames that went into the ring, per second.
    pub frames_per_second: f64,
    /// Bytes that went into the ring, in 10⁹ per second.
    pub ring_gb_per_second: f64,
    /// Occupied share of the ring, 0 to 1: near 1 once it has come round.
    pub ring_fill: f64,
    /// Triggers issued, per second.
    pub triggers_per_second: f64,
    /// Bytes of fragments that went into the store, in 10⁹ per second.
    pub built_gb_per_second: f64,
    /// Trigger records decided, per second.
    pub decided_per_second: f64,
    /// Trigger records in flight.
    pub in_flight: u32,
    /// Set while the trigger is inhibited: cause and detail.
    pub inhibit: Option<String>,
}

impl MiniDaqProgress {
    /// One line of less than 120 characters, unless the inhibit's cause is long.
    pub fn line(&self) -> String {
        let phase = match self.phase {
            Phase::Taking => "taking",
            Phase::Draining => "draining",
        };
        let mut line = format!(
            "{:6.1} s {phase}  ring {:.2} GB/s {:.1} kHz fill {:.0} %  triggers {:.1}/s  built {:.2} GB/s  out {:.1}/s  \
             in flight {}",
            self.elapsed_s,
            self.ring_gb_per_second,
            self.frames_per_second / 1e3,
            self.ring_fill * 100.0,
            self.triggers_per_second,
            self.built_gb_per_second,
            self.decided_per_second,
            self.in_flight,
        );
        match &self.inhibit {
            Some(inhibit) => line.push_str(&format!("  BUSY by {inhibit}")),
            None => line.push_str("  free"),
        }
        line
    }
}

/// Reports at even intervals.
pub(super) struct Reporter<'p> {
    report: &'p mut dyn FnMut(&MiniDaqProgress),
    start: Instant,
    last: Instant,
    before: [Reading; 4],
}

impl<'p> Reporter<'p> {
    pub(super) fn new(report: &'p mut dyn FnMut(&MiniDaqProgress)) -> Reporter<'p> {
        let now = Instant::now();
        Reporter { report, start: now, last: now, before: [Reading::default(); 4] }
    }

    /// Reports if it is time.
    pub(super) fn tick(&mut self, shared: &Shared<'_>, phase: Phase) {
        let seconds = self.last.elapsed().as_secs_f64();
        if seconds < PROGRESS_EVERY.as_secs_f64() {
            return;
        }
        self.last = Instant::now();
        let issued = read(std::slice::from_ref(&shared.issued));
        let now = [read(&shared.put), issued, read(&shared.built), read(&shared.taken)];
        let before = std::mem::replace(&mut self.before, now);
        let rate = |of: fn(&Reading) -> u64, at: usize| of(&now[at]).saturating_sub(of(&before[at])) as f64 / seconds;
        (self.report)(&MiniDaqProgress {
            phase,
            elapsed_s: self.start.elapsed().as_secs_f64(),
            frames_per_second: rate(|reading| reading.fragments, 0),
            ring_gb_per_second: rate(|reading| reading.bytes, 0) / 1e9,
            ring_fill: shared.ring.stats().fill,
            triggers_per_second: rate(|reading| reading.events, 1),
            built_gb_per_second: rate(|reading| reading.bytes, 2) / 1e9,
            decided_per_second: rate(|reading| reading.events, 3),
            in_flight: shared.inhibit.in_flight(),
            inhibit: shared.inhibit.running(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_who_holds_the_trigger() {
        let mut progress = MiniDaqProgress {
            phase: Phase::Taking,
            elapsed_s: 3.25,
            frames_per_second: 122_070.0,
            ring_gb_per_second: 0.88,
            ring_fill: 0.97,
            triggers_per_second: 30.0,
            built_gb_per_second: 0.08,
            decided_per_second: 29.5,
            in_flight: 3,
            inhibit: None,
        };
        let expected = "   3.2 s taking  ring 0.88 GB/s 122.1 kHz fill 97 %  triggers 30.0/s  built 0.08 GB/s  \
                        out 29.5/s  in flight 3  free";
        assert_eq!(progress.line(), expected);
        progress.inhibit = Some("records in flight: 24 trigger records in flight".into());
        assert!(progress.line().ends_with("BUSY by records in flight: 24 trigger records in flight"));
    }
}
