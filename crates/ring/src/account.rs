//! The account of a ring by run: what sources have counted since the last round, and what is durable in notes.
//!
//! *Invariants*: a fragment moves from *live* to *expired* under the locks of its source and of the books, and readers
//! of the whole account hold evictions off (`RingEngine::taking`): both sums are exact at any moment (tests/ring/races.rs).

use crate::note::{RingNote, RingTerms};
use forebay_core::Ledger;

/// Accounts by run, few.
#[derive(Debug, Default)]
pub(super) struct Accounts(Vec<(u32, Ledger)>);

impl Accounts {
    /// The account of a run, started if there is none.
    #[inline]
    pub(super) fn of(&mut self, run: u32) -> &mut Ledger {
        // The run of the last put is most often that of this one.
        let at = match self.0.iter().rposition(|known| known.0 == run) {
            Some(at) => at,
            None => {
                // One by one: a source has one run at a time.
                self.0.reserve_exact(1);
                self.0.push((run, Ledger::default()));
                self.0.len() - 1
            }
        };
        &mut self.0[at].1
    }

    pub(super) fn get(&self, run: u32) -> Ledger {
        self.0.iter().find(|known| known.0 == run).map_or_else(Ledger::default, |known| known.1)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &(u32, Ledger)> {
        self.0.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Moves everything into another account.
    pub(super) fn give(&mut self, other: &mut Accounts) {
        // Moved, never copied: what a source has counted is in its own account or in the books, not in both.
        for (run, ledger) in self.0.drain(..) {
            other.of(run).add(&ledger);
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u32, Ledger)>()
    }
}

/// What notes say: accounts without what is live.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) accounts: Accounts,
    /// Runs that are no longer kept apart.
    pub(super) earlier: Ledger,
    pub(super) sequence: u64,
    /// Something was counted since the last note.
    pub(super) changed: bool,
}

impl Books {
    /// Adds runs that have nothing live to `earlier`, oldest first, until a note has room for the others.
    pub(super) fn merge_earlier(&mut self, is_live: impl Fn(u32) -> bool) {
        let Accounts(list) = &mut self.accounts;
        let mut over = list.len().saturating_sub(RingNote::RUNS_MAX);
        let earlier = &mut self.earlier;
        // The newest run stays even if it has nothing: its sources may be about to put.
        let newest = list.last().map(|known| known.0);
        list.retain(|(run, ledger)| {
            let is_earlier = over > 0 && Some(*run) != newest && !is_live(*run);
            if is_earlier {
                earlier.add(ledger);
                over -= 1;
            }
            !is_earlier
        });
    }

    /// Whether anything was ever evicted.
    pub(super) fn has_evicted(&self) -> bool {
        self.earlier.expired.fragments > 0 || self.accounts.all().any(|(_, ledger)| ledger.expired.fragments > 0)
    }

    /// Runs that are kept apart.
    pub(super) fn runs(&self) -> usize {
        self.accounts.0.len()
    }

    /// The note of this moment.
    pub(super) fn note(&mut self, evicted: Option<(u32, u32)>, clean: bool) -> RingNote {
        self.sequence += 1;
        // Under the lock of the books: what is counted from here on goes into the next note.
        self.changed = false;
        let list = &self.accounts.0;
        // Runs with live data beyond the note's room are summed in the note only; in memory they stay apart.
        let kept = list.len().saturating_sub(RingNote::RUNS_MAX);
        let mut earlier = self.earlier;
        list[..kept].iter().for_each(|(_, ledger)| earlier.add(ledger));
        RingNote {
            sequence: self.sequence,
            evicted,
            clean,
            earlier: terms(&earlier),
            runs: list[kept..].iter().map(|(run, ledger)| (*run, terms(ledger))).collect(),
        }
    }

    /// The books as a note left them; what was stored is counted again, from the entries.
    pub(super) fn from_note(note: &RingNote) -> Books {
        let mut books = Books { earlier: ledger(&note.earlier), sequence: note.sequence, ..Books::default() };
        for (run, terms) in &note.runs {
            books.accounts.of(*run).add(&ledger(terms));
        }
        books
    }
}

fn terms(ledger: &Ledger) -> RingTerms {
    RingTerms {
        stored: ledger.stored,
        duplicate: ledger.duplicate,
        conflict: ledger.conflict,
        late: ledger.late,
        refused: ledger.refused,
        expired: ledger.expired,
        lost: ledger.lost,
    }
}

/// Everything of a note but what was stored and offered.
fn ledger(terms: &RingTerms) -> Ledger {
    let mut ledger = Ledger {
        duplicate: terms.duplicate,
        conflict: terms.conflict,
        late: terms.late,
        refused: terms.refused,
        expired: terms.expired,
        lost: terms.lost,
        ..Ledger::default()
    };
    complete(&mut ledger);
    ledger
}

/// Books as stored and offered what the other terms say. Without live data: that is added where it is found.
fn complete(ledger: &mut Ledger) {
    for term in [ledger.expired, ledger.lost] {
        ledger.stored += term;
    }
    for term in [ledger.stored, ledger.duplicate, ledger.conflict, ledger.late, ledger.refused] {
        ledger.offered += term;
    }
}

/// Adds live fragments to an account.
pub(super) fn add_live(ledger: &mut Ledger, tally: forebay_core::Tally) {
    ledger.live.ready += tally;
}
