//! What a session reports to the counters: consecutive commands of the same call count as one answer of several things.

use crate::metrics::Metrics;
use forebay_core::{Call, Kind};
use std::time::Instant;

/// What was done since the counters were told.
#[derive(Default)]
pub(super) struct Account {
    /// The call under way, how many things it was asked for, and since when.
    running: Option<(Call, u64, Instant)>,
    received: u64,
    sent: u64,
}

impl Account {
    /// A command of this call begins.
    #[inline]
    pub(super) fn begin(&mut self, call: Option<Call>, metrics: &Metrics) {
        // The clock is read where the call changes: for a pipeline of one call that is once, not once for each command.
        if self.running.map(|(running, ..)| running) != call {
            self.change(call, metrics);
        }
    }

    #[cold]
    fn change(&mut self, call: Option<Call>, metrics: &Metrics) {
        self.settle(metrics);
        self.running = call.map(|call| (call, 0, Instant::now()));
    }

    /// A command asked for this many things; bytes came or went for them.
    #[inline]
    pub(super) fn done(&mut self, things: u64, received: u64, sent: u64) {
        if let Some((_, so_far, _)) = &mut self.running {
            *so_far += things;
        }
        self.received += received;
        self.sent += sent;
    }

    /// It failed.
    #[cold]
    pub(super) fn failed(&mut self, call: Option<Call>, kind: Kind, metrics: &Metrics) {
        if let Some(call) = call {
            metrics.failed(call, kind);
        }
    }

    /// Tells the counters.
    pub(super) fn settle(&mut self, metrics: &Metrics) {
        if let Some((call, things, since)) = self.running.take().filter(|(_, things, _)| *things > 0) {
            metrics.answered(call, things, None, since.elapsed());
        }
        if self.received + self.sent > 0 {
            metrics.bytes(std::mem::take(&mut self.received), std::mem::take(&mut self.sent));
        }
    }
}
