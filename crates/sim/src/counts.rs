//! What a run's account may have in each of its terms beside *stored*, by what producers were answered and what was sent.
//!
//! ```text
//! answered with a term, in the lives that all nodes are in ≤ the ledger's term ≤ all that were answered with it + puts without such an answer
//! ```
//!
//! *Invariants*: a put that is answered with a term is counted in it once, and each try of which the answer was lost at most once in one of them
//! (`books.rs` compares). Where no fault was, no answer was lost: both bounds are one figure, but for puts under way.
//!
//! *Not here*: what is counted where only a holder knows. Its home counts nothing of a put that a holder refuses, and what a holder
//! tells is answered to nobody here: such puts are in no lower bound.

use crate::books::{Put, PutEnd};
use forebay_core::{Ledger, Tally};

/// A term of the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    Duplicate,
    Conflict,
    Late,
    Refused,
}

const TERMS: usize = 4;

impl Term {
    pub(crate) fn of(self, ledger: &Ledger) -> Tally {
        match self {
            Term::Duplicate => ledger.duplicate,
            Term::Conflict => ledger.conflict,
            Term::Late => ledger.late,
            Term::Refused => ledger.refused,
        }
    }
}

/// The puts of one run.
#[derive(Default)]
pub(crate) struct Counts {
    /// Requests that the home of their event may count.
    pub(crate) sent: u64,
    /// Requests of producers.
    pub(crate) tries: u64,
    /// Of those that are counted, the ones whose answer says where they are counted.
    settled: u64,
    /// Answers with each term.
    answered: [u64; TERMS],
    /// Of these, those that the account has for sure.
    sure: [u64; TERMS],
    /// Puts that began, but for those that were not taken.
    begun: u64,
    /// Puts that are under way, or whose outcome is not known.
    open: u64,
    /// Puts that holders took and tell.
    held: u64,
}

impl Counts {
    /// A put begins.
    pub(crate) fn begins(&mut self) {
        (self.begun, self.open) = (self.begun + 1, self.open + 1);
    }

    /// It ended like this; `is_new`: nobody was told before that its fragment is stored; `is_kept`: no node has died since it began.
    pub(crate) fn answered(&mut self, put: &Put<'_>, end: PutEnd, is_new: bool, is_kept: bool) {
        // Of a put to a holder its home alone says that it is stored, and the holder alone that it is in conflict with what it has. A
        // duplicate after a try that was lost is answered as stored, also where the wire has seen nothing of that try.
        let (term, is_settled, is_sure) = match end {
            PutEnd::Stored => (None, is_new, false),
            PutEnd::Duplicate => (Some(Term::Duplicate), true, true),
            PutEnd::Conflict => (Some(Term::Conflict), !put.is_apart, true),
            PutEnd::Late => (Some(Term::Late), !put.is_apart, !put.is_apart),
            PutEnd::Refused => (Some(Term::Refused), !put.is_apart && put.is_known, !put.is_apart && put.is_known),
            PutEnd::Held => {
                self.held += 1;
                (None, false, false)
            }
            PutEnd::NotTaken => {
                self.begun -= 1;
                (None, false, false)
            }
            PutEnd::Unknown => return,
        };
        self.open -= 1;
        self.settled += u64::from(is_settled);
        if let Some(term) = term {
            self.answered[term as usize] += 1;
            self.sure[term as usize] += u64::from(is_sure && is_kept);
        }
    }

    /// A node has lost what it counted.
    pub(crate) fn forget(&mut self) {
        self.sure = [0; TERMS];
    }

    /// Least that the account has.
    pub(crate) fn least(&self, term: Term) -> u64 {
        self.sure[term as usize]
    }

    /// Most that it has; `is_calm`: no fault was there since before the run.
    pub(crate) fn most(&self, term: Term, is_calm: bool) -> u64 {
        let unsettled = self.sent.saturating_sub(self.settled);
        // A client that learns of a later map puts what it had put by an earlier one again, also where nothing is wrong.
        let again = self.tries.saturating_sub(self.begun);
        let told = if term == Term::Late { self.held } else { 0 };
        let unsettled = if is_calm { unsettled.min(self.open + again + told) } else { unsettled };
        self.answered[term as usize] + unsettled
    }

    /// Nobody was answered what was not asked.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Counts { sent, settled, .. } = *self;
        if settled > sent {
            return Err(format!("{settled} puts were answered, and {sent} sent"));
        }
        Ok(())
    }
}
