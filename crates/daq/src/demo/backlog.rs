//! Events that nobody has decided yet, while the beam comes and goes: the most, and what each gap leaves.
//!
//! *Invariants*: what a gap leaves is the last look before its end.

use super::duty::Beam;
use crate::limits::GAPS_KEPT;
use forebay_core::Tally;
use serde::Serialize;

/// A period of the beam, with the gap at its end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gap {
    /// When it ended, in seconds of data taking.
    pub end_s: f64,
    /// Most undecided events in the period.
    pub most_events: u64,
    /// Undecided events at its end.
    pub left_events: u64,
}

/// Follows the backlog.
#[derive(Default)]
pub(super) struct Backlog {
    /// Period of the last look, and what it saw.
    last: Option<(u64, u64)>,
    most_in_period: u64,
    /// Most bytes, with their events, and when.
    most: Tally,
    most_at_s: f64,
    gaps: Vec<Gap>,
    periods: u64,
}

impl Backlog {
    /// A look: what is undecided `now` nanoseconds into data taking.
    pub(super) fn look(&mut self, beam: Beam, now: u64, undecided: Tally) {
        let period = beam.periods(now);
        debug_assert!(self.last.is_none_or(|last| last.0 <= period), "a look at a period that is over");
        let (before, left) = self.last.unwrap_or((period, 0));
        // On a busy machine whole periods pass between two looks: of these only what was left before them is known.
        for ended in before..period {
            self.periods += 1;
            // Bounded, because a demo may run for days; the totals go on.
            if self.gaps.len() < GAPS_KEPT {
                let end_s = beam.end_of(ended) as f64 / 1e9;
                self.gaps.push(Gap { end_s, most_events: self.most_in_period, left_events: left });
            }
            self.most_in_period = left;
        }
        if before < period {
            self.most_in_period = 0;
        }
        self.last = Some((period, undecided.events));
        self.most_in_period = self.most_in_period.max(undecided.events);
        if undecided.bytes > self.most.bytes {
            (self.most, self.most_at_s) = (undecided, now as f64 / 1e9);
        }
    }

    /// Most bytes that were undecided at once, with their events, and when.
    pub(super) fn most(&self) -> (Tally, f64) {
        (self.most, self.most_at_s)
    }

    /// Periods that ended, and the first of them in detail.
    pub(super) fn gaps(&self) -> (u64, &[Gap]) {
        (self.periods, &self.gaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{DemoConfig, Duty, duty};

    #[test]
    fn a_gap_leaves_what_was_last_seen_before_its_end() {
        let duty = Some(Duty { share: 0.5, period_s: 2.0 });
        let beam = duty::size(&mut DemoConfig { duty, ..DemoConfig::default() }, 1000).unwrap().unwrap();
        let mut backlog = Backlog::default();
        for (ms, events) in [(0, 0), (900, 40), (1100, 50), (1990, 3), (2005, 7), (3100, 30), (3990, 0), (4000, 0)] {
            backlog.look(beam, ms * 1_000_000, Tally { events, fragments: events * 2, bytes: events * 100 });
        }
        let gap = |end_s, most_events, left_events| Gap { end_s, most_events, left_events };
        assert_eq!(backlog.gaps(), (2, &[gap(2.0, 50, 3), gap(4.0, 30, 0)][..]));
        let (most, at_s) = backlog.most();
        assert_eq!((most.events, most.bytes, at_s), (50, 5000, 1.1));
        // No look in two periods.
        backlog.look(beam, 8_100_000_000, Tally { events: 2, fragments: 4, bytes: 200 });
        assert_eq!((backlog.gaps().0, &backlog.gaps().1[2..]), (4, &[gap(6.0, 0, 0), gap(8.0, 0, 0)][..]));
    }
}
