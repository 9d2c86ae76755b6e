//! How a demo is going, for a live line: rates since the last report, and the state of the store.

use super::meter::{Reading, read};
use super::shared::Shared;
use crate::limits::PROGRESS_EVERY;
use forebay_core::LiveState;
use forebay_store::Inhibit;
use serde::Serialize;
use std::time::Instant;

/// Where a demo stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The readout produces.
    Taking,
    /// The readout has ended; what is there gets decided.
    Draining,
}

/// A report on the way. Rates are those since the report before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    /// Where the demo stands.
    pub phase: Phase,
    /// Seconds since data taking began.
    pub elapsed_s: f64,
    /// Events that the readout has put, per second.
    pub put_events_per_second: f64,
    /// Bytes that the readout has put, in 10⁹ per second.
    pub put_gb_per_second: f64,
    /// Events that the filters have taken, per second.
    pub taken_events_per_second: f64,
    /// Bytes that the filters have read (chosen sources and whole events), in 10⁹ per second.
    pub read_gb_per_second: f64,
    /// Events accepted, per second.
    pub accepted_events_per_second: f64,
    /// Occupied share of the hot level, 0 to 1.
    pub fill: f64,
    /// Occupied share of the warm level, 0 to 1; `None` without one.
    pub warm_fill: Option<f64>,
    /// Events that wait for a filter.
    pub ready: u64,
    /// Events under lease.
    pub leased: u64,
    /// Set while the store holds the trigger.
    pub inhibit: Option<Inhibit>,
    /// What happened since the report before, and events that are shown: lines of their own, above that of the rates.
    pub notices: Vec<String>,
}

impl Progress {
    /// One line of less than 120 characters, unless the inhibit's cause is long.
    pub fn line(&self) -> String {
        let phase = match self.phase {
            Phase::Taking => "taking",
            Phase::Draining => "draining",
        };
        let warm = self.warm_fill.map_or_else(String::new, |fill| format!(" warm {:.0} %", fill * 100.0));
        let mut line = format!(
            "{:6.1} s {phase}  in {:.2} GB/s {:.0} ev/s  out {:.2} GB/s {:.0} ev/s  fill {:.0} %{warm}  ready {}  leased {}",
            self.elapsed_s,
            self.put_gb_per_second,
            self.put_events_per_second,
            self.read_gb_per_second,
            self.taken_events_per_second,
            self.fill * 100.0,
            self.ready,
            self.leased,
        );
        match &self.inhibit {
            Some(inhibit) => line.push_str(&format!("  INHIBIT by {}: {}", inhibit.owner, inhibit.cause)),
            None => line.push_str("  inhibit no"),
        }
        line
    }
}

/// Reports at even intervals.
pub(super) struct Reporter<'p> {
    report: &'p mut dyn FnMut(&Progress),
    start: Instant,
    last: Instant,
    before: [Reading; 3],
    warm_fill_most: f64,
}

impl<'p> Reporter<'p> {
    pub(super) fn new(report: &'p mut dyn FnMut(&Progress)) -> Reporter<'p> {
        let now = Instant::now();
        Reporter { report, start: now, last: now, before: [Reading::default(); 3], warm_fill_most: 0.0 }
    }

    /// Highest fill of the warm level that a report had, 0 to 1.
    pub(super) fn warm_fill_most(&self) -> f64 {
        self.warm_fill_most
    }

    /// Reports if it is time, or if there is something to notice.
    pub(super) fn tick(&mut self, shared: &Shared<'_>, phase: Phase, notices: Vec<String>) {
        let seconds = self.last.elapsed().as_secs_f64();
        if seconds < PROGRESS_EVERY.as_secs_f64() && notices.is_empty() {
            return;
        }
        self.last = Instant::now();
        let now = [read(&shared.put), read(&shared.taken), read(&shared.read)];
        let [put, taken, whole] = now;
        let [put_before, taken_before, whole_before] = std::mem::replace(&mut self.before, now);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds.max(1e-3);
        let read_bytes = rate(taken.bytes, taken_before.bytes) + rate(whole.bytes, whole_before.bytes);
        let stats = shared.store.stats();
        let warm_fill = stats.warm.as_ref().map(|warm| warm.fill);
        self.warm_fill_most = self.warm_fill_most.max(warm_fill.unwrap_or_default());
        (self.report)(&Progress {
            phase,
            elapsed_s: self.start.elapsed().as_secs_f64(),
            put_events_per_second: rate(put.events, put_before.events),
            put_gb_per_second: rate(put.bytes, put_before.bytes) / 1e9,
            taken_events_per_second: rate(taken.events, taken_before.events),
            read_gb_per_second: read_bytes / 1e9,
            accepted_events_per_second: rate(taken.accepted, taken_before.accepted),
            fill: stats.fill,
            warm_fill,
            ready: stats.events[LiveState::Ready as usize].events,
            leased: stats.events[LiveState::Leased as usize].events,
            inhibit: stats.inhibit,
            notices,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_store::InhibitClass;

    #[test]
    fn a_line_names_who_holds_the_trigger() {
        let mut progress = Progress {
            phase: Phase::Taking,
            elapsed_s: 3.25,
            put_events_per_second: 1234.4,
            put_gb_per_second: 6.3,
            taken_events_per_second: 1230.0,
            read_gb_per_second: 1.2,
            accepted_events_per_second: 123.0,
            fill: 0.314,
            warm_fill: None,
            ready: 12,
            leased: 4,
            inhibit: None,
            notices: Vec::new(),
        };
        let expected = "   3.2 s taking  in 6.30 GB/s 1234 ev/s  out 1.20 GB/s 1230 ev/s  fill 31 %  ready 12  leased 4  \
                        inhibit no";
        assert_eq!(progress.line(), expected);
        progress.warm_fill = Some(0.126);
        assert!(progress.line().contains("fill 31 % warm 13 %  ready 12"));
        let inhibit = Inhibit {
            class: InhibitClass::HotFull,
            scope: "hot level".into(),
            cause: "hot fill 92 %".into(),
            owner: "selection".into(),
            ends: "fill 75 %".into(),
        };
        progress.inhibit = Some(inhibit);
        assert!(progress.line().ends_with("INHIBIT by selection: hot fill 92 %"));
    }
}
