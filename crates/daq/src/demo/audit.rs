//! The audit at the end of a demo: compares the ledger with what the threads counted themselves.

use super::summary::{DeadTime, Decided, DutySummary};
use crate::account::Problems;
use crate::figures::bytes;
use forebay_core::{Ledger, Tally};
use forebay_mover::Contents;
use forebay_store::ProducerStatus;

/// What the threads of a demo counted, independently of the store.
pub(crate) struct Counted<'c> {
    pub(crate) events: Decided,
    pub(crate) producers: &'c [ProducerStatus],
    /// Fragments that the last stage wrote.
    pub(crate) results: Tally,
    /// Puts that were answered `Full`.
    pub(crate) refused: u64,
    /// What the archive has, every byte of it verified.
    pub(crate) archived: Contents,
}

/// Why an account is not that of a run in which every announced event was decided; empty where it is.
pub(crate) fn problems(ledger: &Ledger, counted: &Counted<'_>) -> Vec<String> {
    let mut problems = Problems::of("", ledger);
    problems.expect_nothing_left(ledger);
    let events = &counted.events;
    let mut expect = |what: &str, found, expected| problems.expect(what, found, expected);
    let said = |of: fn(&ProducerStatus) -> u64| counted.producers.iter().map(of).sum::<u64>();
    expect("events announced by the trigger", said(|producer| producer.announced), events.produced);
    expect("events known to the store", ledger.announced(), events.produced);
    expect("fragments offered", ledger.offered.fragments, said(|p| p.fragments) + counted.results.fragments);
    expect("bytes offered", ledger.offered.bytes, said(|p| p.bytes) + counted.results.bytes);
    expect("fragments refused", ledger.refused.fragments, counted.refused);
    expect("late fragments", ledger.late.fragments, 0);
    expect("events decided", events.accepted + events.rejected, events.produced);
    expect("events rejected in the ledger", ledger.rejected.events, events.rejected);
    expect("events released in the ledger", ledger.released.events, events.accepted);
    expect("fragments in the archive", counted.archived.fragments, ledger.released.fragments);
    expect("bytes in the archive", counted.archived.payload_bytes, ledger.released.bytes);
    expect("removed fragments", ledger.removed.fragments, 0);
    expect("events without all sources", ledger.incomplete + events.incomplete, 0);
    expect("events never seen", ledger.never_seen, 0);
    problems.0
}

/// Gaps that are named one by one where they left too much.
const GAPS_NAMED: usize = 3;

impl DutySummary {
    /// Why a farm that is sized for the mean did not do; empty where it did.
    pub(crate) fn problems(&self, dead: &[DeadTime], dead_s: f64, full_answers: u64, interrupted: bool) -> Vec<String> {
        let mut problems = Vec::new();
        if dead_s > 0.0 || full_answers > 0 {
            let cause = dead.first().map_or("puts without space", |dead| dead.cause);
            problems.push(format!(
                "dead time {dead_s:.3} s, most of it {cause}, expected none: the backlog came to {} events with {}",
                self.backlog_most_events,
                bytes(self.backlog_most_bytes)
            ));
        }
        let wrong: Vec<_> = self.gaps.iter().filter(|gap| gap.left_events > self.left_allowed).collect();
        for gap in wrong.iter().take(GAPS_NAMED) {
            problems.push(format!(
                "the gap until {:.1} s left {} events undecided, at most {} may be: the farm begins {:.0} a second, the \
                 mean is {:.0}",
                gap.end_s, gap.left_events, self.left_allowed, self.farm_events_per_second, self.mean_events_per_second
            ));
        }
        if wrong.len() > GAPS_NAMED {
            problems.push(format!("so did {} more gaps", wrong.len() - GAPS_NAMED));
        }
        if self.periods == 0 && !interrupted {
            problems.push("no gap of the beam was seen".to_owned());
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::Gap;

    #[test]
    fn whatever_is_left_or_lost_is_named() {
        let events = Decided { produced: 2, accepted: 1, rejected: 1, ..Decided::default() };
        let mut ledger = Ledger { complete: 2, ..Ledger::default() };
        let event = Tally::event(3, 30);
        (ledger.rejected, ledger.released) = (event, event);
        for _ in 0..2 {
            ledger.offered += Tally { events: 0, ..event };
            ledger.stored += Tally { events: 0, ..event };
        }
        let producer = |name: &str, announced, fragments, bytes| ProducerStatus {
            name: name.to_owned(),
            finished: true,
            unknown: false,
            announced,
            fragments,
            bytes,
        };
        let producers = [producer("trigger", 2, 0, 0), producer("readout-0", 0, 5, 50)];
        let archived = Contents { events: 1, fragments: 3, payload_bytes: 30 };
        let counted =
            |events| Counted { events, producers: &producers, results: Tally::fragment(10), refused: 0, archived };
        assert_eq!(problems(&ledger, &counted(events)), Vec::<String>::new());
        let mut left = ledger;
        (left.live.ready, left.rejected) = (event, Tally::default());
        let found = problems(&left, &counted(Decided { rejected: 0, ..events }));
        assert_eq!(found, ["fragments still ready at the end: 3, expected 0", "events decided: 1, expected 2"]);
        let mut short = ledger;
        short.released = Tally::event(3, 29);
        assert!(problems(&short, &counted(events))[0].contains("60 bytes; terms sum to 6 and 59"));
        let more = Counted { refused: 1, ..counted(events) };
        assert_eq!(problems(&ledger, &more), ["fragments refused: 0, expected 1"]);
        let mut lacking = counted(events);
        lacking.archived.fragments = 2;
        assert_eq!(problems(&ledger, &lacking), ["fragments in the archive: 2, expected 3"]);
        let mut incomplete = ledger;
        (incomplete.complete, incomplete.incomplete) = (1, 1);
        assert_eq!(problems(&incomplete, &counted(events)), ["events without all sources: 1, expected 0"]);
    }

    #[test]
    fn a_gap_that_leaves_events_and_dead_time_are_named() {
        let gap = |end_s, left_events| Gap { end_s, most_events: 300, left_events };
        let duty = DutySummary {
            share: 0.5,
            period_s: 4.0,
            beam_events_per_second: 1000,
            mean_events_per_second: 500.0,
            farm_events_per_second: 480.0,
            backlog_most_events: 1100,
            backlog_most_bytes: 300 << 20,
            backlog_most_at_s: 2.0,
            left_allowed: 20,
            periods: 2,
            gaps: vec![gap(4.0, 20), gap(8.0, 0)],
        };
        assert_eq!(duty.problems(&[], 0.0, 0, false), Vec::<String>::new());
        let more = DutySummary { gaps: vec![gap(4.0, 21), gap(8.0, 40)], ..duty.clone() };
        let found = more.problems(&[], 0.0, 0, false);
        let expected = "the gap until 8.0 s left 40 events undecided, at most 20 may be: the farm begins 480 a second, the \
                        mean is 500";
        assert_eq!((found.len(), &*found[1]), (2, expected));
        let dead = DeadTime {
            cause: "hot full",
            owner: "selection".into(),
            detail: "hot fill 91 %".into(),
            seconds: 0.5,
            share: 0.05,
        };
        let found = duty.problems(&[dead], 0.5, 0, false);
        assert!(
            found[0].contains("dead time 0.500 s, most of it hot full") && found[0].contains("300 MiB"),
            "{found:?}"
        );
        assert_eq!(duty.problems(&[], 0.0, 3, false).len(), 1);
        let none = DutySummary { periods: 0, gaps: Vec::new(), ..duty };
        assert_eq!((none.problems(&[], 0.0, 0, false).len(), none.problems(&[], 0.0, 0, true).len()), (1, 0));
    }
}
