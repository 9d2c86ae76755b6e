//! The report of a chaos: the ledger beside the driver's own books, term by term.

use super::books::{Books, Expected, RunBook};
use super::ring::RingBooks;
use forebay_core::{Ledger, Tally};
use std::collections::BTreeMap;
use std::fmt::Write;

/// One term of all runs together.
pub(super) struct Term {
    /// Its name.
    pub(super) term: &'static str,
    /// What the ledger says.
    pub(super) ledger: Tally,
    /// What restarts without a close forgot of it, as documented: counts of what was never stored.
    pub(super) forgotten: Tally,
    /// What the driver's own books say.
    pub(super) counted: Tally,
}

/// The result of a chaos.
pub(super) struct Report {
    /// The seed: the same one does the same again, as far as threads and clocks let it.
    pub(super) seed: u64,
    /// Seconds that it took.
    pub(super) seconds: f64,
    /// Openings of the store.
    pub(super) lives: u64,
    /// Of which ended without a close.
    pub(super) crashes: u64,
    /// Runs that were opened, all of them closed in the end.
    pub(super) runs: usize,
    /// What was done, and what the store answered that was meant to happen.
    pub(super) faults: BTreeMap<&'static str, u64>,
    /// Every term, over all runs.
    pub(super) terms: Vec<Term>,
    /// The same of the ring.
    pub(super) ring: Vec<Term>,
    /// Events that became known, complete, incomplete, never seen.
    pub(super) events: [u64; 4],
    /// What does not, one sentence each.
    pub(super) problems: Vec<String>,
}

/// Terms of one run: name, ledger, books.
pub(super) fn terms(ledger: &Ledger, expected: &Expected) -> Vec<(&'static str, Tally, Tally)> {
    let RunBook { offered, stored, duplicate, conflict, late, refused, removed, superseded } = expected.book;
    let mut all = vec![
        ("offered", ledger.offered, offered),
        ("stored", ledger.stored, stored),
        ("duplicate", ledger.duplicate, duplicate),
        ("conflict", ledger.conflict, conflict),
        ("late", ledger.late, late),
        ("refused", ledger.refused, refused),
    ];
    for (name, tally) in ledger.stored_terms() {
        let counted = match name {
            "rejected" => expected.rejected,
            "released" => expected.released,
            "removed" => removed,
            "superseded" => superseded,
            _ => Tally::default(),
        };
        all.push((name, tally, counted));
    }
    all
}

/// The outcomes that a restart without a close may forget, and the offers with them.
pub(super) fn forgettable(ledger: &Ledger) -> [Tally; 5] {
    [ledger.offered, ledger.duplicate, ledger.conflict, ledger.late, ledger.refused]
}

/// What was forgotten of a term.
pub(super) fn forgotten_of(term: &str, forgotten: &[Tally; 5]) -> Tally {
    let at = ["offered", "duplicate", "conflict", "late", "refused"].iter().position(|name| *name == term);
    at.map_or(Tally::default(), |at| forgotten[at])
}

/// Terms of the ring, and what is wrong with them.
pub(super) fn ring_terms(ledger: &Ledger, books: &RingBooks) -> (Vec<Term>, Vec<String>) {
    let mut problems: Vec<String> = ledger.imbalance().map(|what| format!("ring: {what}")).into_iter().collect();
    let mut gone = ledger.late;
    gone += ledger.refused;
    let term = |term, ledger, counted| Term { term, ledger, counted, forgotten: Tally::default() };
    let mut live = ledger.expired;
    live += Tally { events: 0, ..ledger.live.total() };
    let terms = vec![
        term("offered", ledger.offered, books.offered),
        term("stored", ledger.stored, books.stored),
        term("duplicate", ledger.duplicate, books.duplicate),
        term("conflict", ledger.conflict, books.conflict),
        term("late, refused", gone, books.refused),
        term("live, expired", live, books.stored),
    ];
    for term in &terms {
        if (term.ledger.fragments, term.ledger.bytes) != (term.counted.fragments, term.counted.bytes) {
            problems.push(format!("ring, {}: ledger {:?}, counted {:?}", term.term, term.ledger, term.counted));
        }
    }
    if ledger.expired.fragments == 0 {
        problems.push("ring: it never became full".to_owned());
    }
    (terms, problems)
}

impl Report {
    pub(super) fn of_books(seed: u64, books: Books) -> Report {
        Report {
            seed,
            seconds: 0.0,
            lives: 0,
            crashes: 0,
            runs: 0,
            faults: books.faults,
            terms: Vec::new(),
            ring: Vec::new(),
            events: [0; 4],
            problems: books.problems,
        }
    }

    /// Whether everything adds up.
    pub(super) fn balanced(&self) -> bool {
        self.problems.is_empty()
    }

    /// The report as text, without a final line break.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut out);
        out.truncate(out.trim_end().len());
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "chaos with seed {}: {:.1} s, {} openings of the store, {} of them ended without a close, {} runs\n",
            self.seed, self.seconds, self.lives, self.crashes, self.runs
        )?;
        for (fault, count) in &self.faults {
            writeln!(out, "{fault:<44} {count:>10}")?;
        }
        for (name, terms) in [("events", &self.terms), ("ring", &self.ring)] {
            let head = "counted by driver";
            writeln!(out, "\n{name:<14} {:>12} {:>16} {head:>18} {:>10}", "fragments", "bytes", "forgotten")?;
            for term in terms {
                let same = if agrees(term) { "" } else { "   WRONG" };
                writeln!(
                    out,
                    "{:<14} {:>12} {:>16} {:>18} {:>10}{same}",
                    term.term,
                    term.ledger.fragments,
                    term.ledger.bytes,
                    term.counted.fragments,
                    term.forgotten.fragments
                )?;
            }
        }
        let [known, complete, incomplete, never_seen] = self.events;
        writeln!(
            out,
            "\n{known} events known = {complete} complete + {incomplete} incomplete + {never_seen} never seen"
        )?;
        if self.balanced() {
            return writeln!(out, "balanced: every term of every run is what the driver counted itself");
        }
        writeln!(
            out,
            "NOT BALANCED; FOREBAY_CHAOS_SEED={} does it again, as far as threads and clocks let it",
            self.seed
        )?;
        self.problems.iter().try_for_each(|problem| writeln!(out, "  {problem}"))
    }
}

fn agrees(term: &Term) -> bool {
    let mut ledger = term.ledger;
    ledger += term.forgotten;
    (ledger.fragments, ledger.bytes) == (term.counted.fragments, term.counted.bytes)
}
