//! The books that the driver keeps itself: what it offered, what each call answered, and how each event ended.
//!
//! *Invariants*: nothing here is read from the store; figures of events that ended come from the answers to the puts of
//! their fragments, not from what a lease says of them.

use forebay_core::{Primary, Result, Tally, Token};
use std::collections::{BTreeMap, HashMap, HashSet};

/// An event: run and number.
pub(super) type EventName = (u64, u64);

/// How an event ended, by an answer that the driver got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Rejected,
    Released,
}

/// Answers that name no event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RunBook {
    pub(super) offered: Tally,
    pub(super) stored: Tally,
    pub(super) duplicate: Tally,
    pub(super) conflict: Tally,
    pub(super) late: Tally,
    pub(super) refused: Tally,
    pub(super) removed: Tally,
    pub(super) superseded: Tally,
}

/// What one producer said of itself when it ended in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finished {
    pub(super) run: u64,
    pub(super) name: String,
    pub(super) fragments: u64,
    pub(super) bytes: u64,
}

/// Everything that one thread, or all of them, wrote down.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) runs: BTreeMap<u64, RunBook>,
    /// Fragments and bytes of events that are left to workers.
    pub(super) contents: HashMap<EventName, Tally>,
    pub(super) announced: HashSet<EventName>,
    /// Events that only the operator touches, and removes again.
    pub(super) by_hand: HashSet<EventName>,
    pub(super) endings: Vec<(EventName, Ending)>,
    pub(super) finished: Vec<Finished>,
    /// Producers by the summaries of closed runs: those who ended in order, and whether the run says so.
    pub(super) summaries: HashMap<(u64, String), (u64, u64, bool)>,
    /// Tokens that decided nothing, for lies in a later life.
    pub(super) stale: Vec<(Primary, Token)>,
    /// What was done to the store, and what it answered that was meant to happen, by name.
    pub(super) faults: BTreeMap<&'static str, u64>,
    pub(super) problems: Vec<String>,
}

/// Most problems that are kept: the first ones tell.
const PROBLEMS_MAX: usize = 50;

impl Books {
    pub(super) fn run(&mut self, run: u64) -> &mut RunBook {
        self.runs.entry(run).or_default()
    }

    pub(super) fn count(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub(super) fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    /// Writes a call down that must succeed; its answer, if it did.
    pub(super) fn expect<T>(&mut self, what: &str, answer: Result<T>) -> Option<T> {
        answer.inspect_err(|error| self.problem(format!("{what}: {error}"))).ok()
    }

    /// Takes over what a thread wrote.
    pub(super) fn merge(&mut self, other: Books) {
        for (run, book) in other.runs {
            let mine = self.run(run);
            mine.offered += book.offered;
            mine.stored += book.stored;
            mine.duplicate += book.duplicate;
            mine.conflict += book.conflict;
            mine.late += book.late;
            mine.refused += book.refused;
            mine.removed += book.removed;
            mine.superseded += book.superseded;
        }
        for (event, tally) in other.contents {
            *self.contents.entry(event).or_default() += tally;
        }
        self.announced.extend(other.announced);
        self.by_hand.extend(other.by_hand);
        self.endings.extend(other.endings);
        self.finished.extend(other.finished);
        self.summaries.extend(other.summaries);
        self.stale.extend(other.stale);
        for (fault, count) in other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        other.problems.into_iter().for_each(|problem| self.problem(problem));
    }
}

/// The books of one run, added up: what its ledger must say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) book: RunBook,
    pub(super) rejected: Tally,
    pub(super) released: Tally,
    pub(super) known: u64,
    pub(super) never_seen: u64,
}

impl Books {
    /// Adds up, and finds events that ended twice or not at all.
    pub(super) fn expected(&self) -> (BTreeMap<u64, Expected>, Vec<String>) {
        let mut all: BTreeMap<u64, Expected> = BTreeMap::new();
        let mut problems = Vec::new();
        for (run, book) in &self.runs {
            all.entry(*run).or_default().book = *book;
        }
        let mut ended = HashMap::new();
        for (event, ending) in &self.endings {
            if let Some(before) = ended.insert(*event, *ending) {
                problems.push(format!("event {}/{} ended twice: {before:?}, then {ending:?}", event.0, event.1));
            }
        }
        for (event, contents) in &self.contents {
            let expected = all.entry(event.0).or_default();
            expected.known += 1;
            let term = match ended.get(event) {
                Some(Ending::Rejected) => &mut expected.rejected,
                Some(Ending::Released) => &mut expected.released,
                None => {
                    problems.push(format!("event {}/{} was stored and never decided", event.0, event.1));
                    continue;
                }
            };
            *term += Tally { events: 1, ..*contents };
        }
        for event in self.announced.iter().filter(|event| !self.contents.contains_key(event)) {
            let expected = all.entry(event.0).or_default();
            expected.known += 1;
            expected.never_seen += 1;
        }
        for event in &self.by_hand {
            all.entry(event.0).or_default().known += 1;
        }
        problems.truncate(PROBLEMS_MAX);
        (all, problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn books_add_up_by_event() {
        let mut books = Books::default();
        books.contents.insert((1, 7), Tally::fragment(10));
        books.announced.extend([(1, 7), (1, 8)]);
        books.endings.push(((1, 7), Ending::Released));
        let mut other = Books::default();
        other.contents.insert((1, 7), Tally::fragment(5));
        other.by_hand.insert((1, 9));
        books.merge(other);
        let (expected, problems) = books.expected();
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(expected[&1].released, Tally::event(2, 15));
        assert_eq!((expected[&1].known, expected[&1].never_seen), (3, 1));
        books.endings.push(((1, 7), Ending::Rejected));
        books.contents.insert((2, 1), Tally::fragment(1));
        let (_, problems) = books.expected();
        assert!(problems[0].contains("ended twice") && problems[1].contains("never decided"), "{problems:?}");
    }
}
