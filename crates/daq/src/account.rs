//! Questions to the account of a run that several scenarios ask.

use forebay_core::{Ledger, Tally};

/// Events that nobody has decided.
pub(crate) fn undecided(ledger: &Ledger) -> Tally {
    let mut sum = ledger.live.open;
    sum += ledger.live.ready;
    sum += ledger.live.leased;
    sum
}

/// What does not agree, one sentence each.
#[derive(Default)]
pub(crate) struct Problems(pub(crate) Vec<String>);

impl Problems {
    /// With what the account says of itself.
    pub(crate) fn of(name: &str, ledger: &Ledger) -> Problems {
        Problems(ledger.imbalance().into_iter().map(|what| format!("{name}{what}")).collect())
    }

    pub(crate) fn expect(&mut self, what: &str, found: u64, expected: u64) {
        if found != expected {
            self.0.push(format!("{what}: {found}, expected {expected}"));
        }
    }

    /// Everything was decided, and what was decided is gone.
    pub(crate) fn expect_nothing_left(&mut self, ledger: &Ledger) {
        for (state, tally) in ledger.live.iter() {
            self.expect(&format!("fragments still {} at the end", state.name()), tally.fragments, 0);
        }
        self.expect("duplicate fragments", ledger.duplicate.fragments, 0);
        self.expect("conflicting fragments", ledger.conflict.fragments, 0);
        self.expect("lost fragments", ledger.lost.fragments, 0);
    }
}
