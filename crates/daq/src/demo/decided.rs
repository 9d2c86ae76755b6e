//! The report of a filter thread at its end: figures by stage and stream.

use crate::meter::Latency;
use forebay_core::{Result, Tally};
use forebay_store::Lease;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Figures of one stage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StageReport {
    pub(crate) taken: Tally,
    pub(crate) rejected: u64,
    pub(crate) passed: u64,
    pub(crate) accepted: u64,
    /// Events without all of the sources that they wait for.
    pub(crate) incomplete: u64,
    /// Events that another worker had before.
    pub(crate) redelivered: u64,
    /// Verdicts that came too late.
    pub(crate) fenced: u64,
}

impl StageReport {
    /// An event was given out, with this many bytes of it.
    pub(crate) fn book(&mut self, lease: &Lease, bytes: u64) {
        self.taken += Tally::event(lease.fragments.len() as u64, bytes);
        self.incomplete += u64::from(!lease.missing.is_empty());
        self.redelivered += u64::from(lease.delivery > 1);
    }
}

impl AddAssign for StageReport {
    fn add_assign(&mut self, other: StageReport) {
        self.taken += other.taken;
        self.rejected += other.rejected;
        self.passed += other.passed;
        self.accepted += other.accepted;
        self.incomplete += other.incomplete;
        self.redelivered += other.redelivered;
        self.fenced += other.fenced;
    }
}

/// All of it.
pub(crate) struct FilterReport {
    /// Calls that gave at least one event at once.
    pub(crate) get_any: Latency,
    /// All fragments of an event, every byte verified.
    pub(crate) event_read: Latency,
    /// Accept, pass or reject.
    pub(crate) verdict: Latency,
    pub(crate) fast: StageReport,
    pub(crate) last: StageReport,
    /// What streams were given.
    pub(crate) streams: BTreeMap<&'static str, Tally>,
    /// Fragments that the last stage wrote.
    pub(crate) results: Tally,
    /// Results that found no space.
    pub(crate) left_out: u64,
    /// Events in whose fast sources a signal was found.
    pub(crate) with_signal: u64,
}

impl FilterReport {
    pub(crate) fn new() -> Result<FilterReport> {
        Ok(FilterReport {
            get_any: Latency::new()?,
            event_read: Latency::new()?,
            verdict: Latency::new()?,
            fast: StageReport::default(),
            last: StageReport::default(),
            streams: BTreeMap::new(),
            results: Tally::default(),
            left_out: 0,
            with_signal: 0,
        })
    }

    /// A stream was given an event.
    pub(crate) fn stream(&mut self, stream: &'static str, tally: Tally) {
        *self.streams.entry(stream).or_default() += tally;
    }
}
