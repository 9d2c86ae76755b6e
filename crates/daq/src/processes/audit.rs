//! Compares the ledger with what readouts, filters and archive counted themselves.
//!
//! ```text
//! made   = stored + late + unknown                              (readouts)
//! stored ≤ stored in the ledger ≤ stored + unknown
//! ```
//!
//! A fragment is *unknown* where an answer to its put was lost and the repeat came too late to find out (`PutOutcome::
//! LateUnknown`, `Error::earlier_try_unknown`): the ledger has it as stored, or only as late, in conflict or refused.
//!
//! *Invariants*: without unknown fragments every interval is one number (test `without_unknown_fragments_all_is_exact`).

use super::{AllConfig, AllSummary, FilterReport, ReadoutReport};
use forebay_core::Ledger;
use std::ops::RangeInclusive;

fn within(problems: &mut Vec<String>, what: &str, counted: RangeInclusive<u64>, account: u64) {
    if counted.contains(&account) {
        return;
    }
    let (least, most) = (counted.start(), counted.end());
    let counted = if least == most { least.to_string() } else { format!("{least} to {most}") };
    problems.push(format!("{what}: {counted} by its own count, {account} in the ledger"));
}

/// What does not agree between readouts and the ledger of a run into which only they put; empty where all does. The answers
/// to puts that stored nothing are held against it as well where the server was not killed: a crash loses the newest of
/// those counts.
pub fn audit_readouts(readouts: &[ReadoutReport], ledger: &Ledger, was_killed: bool) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(imbalance) = ledger.imbalance() {
        problems.push(format!("the ledger does not balance: {imbalance}"));
    }
    let sum = |of: fn(&ReadoutReport) -> u64| readouts.iter().map(of).sum::<u64>();
    let (fragments, unknown) = (sum(|one| one.fragments), sum(|one| one.unknown));
    within(&mut problems, "fragments stored", fragments..=fragments + unknown, ledger.stored.fragments);
    let (bytes, unknown_bytes) = (sum(|one| one.bytes), sum(|one| one.unknown_bytes));
    within(&mut problems, "bytes stored", bytes..=bytes + unknown_bytes, ledger.stored.bytes);
    // Each of these was answered at least once that nothing was stored by that try.
    let (answered, late) =
        (ledger.late.fragments + ledger.conflict.fragments + ledger.refused.fragments, sum(|one| one.late));
    if !was_killed && answered < late + unknown {
        let not_stored = late + unknown;
        problems.push(format!("fragments late or unknown: {not_stored} by its own count, {answered} answers that stored nothing in the ledger"));
    }
    problems
}

impl AllSummary {
    /// Everybody's own count against the ledger.
    pub(super) fn audit(&mut self, config: &AllConfig) {
        let ledger = &self.ledger;
        let mut problems = audit_readouts(&self.readouts, ledger, self.server_killed > 0);
        let sum = |of: fn(&ReadoutReport) -> u64| self.readouts.iter().map(of).sum::<u64>();
        let (late, unknown) = (sum(|one| one.late), sum(|one| one.unknown));
        let mut agree = |what: &str, counted: u64, account: u64| {
            within(&mut problems, what, counted..=counted, account);
        };
        let made = config.events * u64::from(config.sources);
        agree("fragments made", sum(|one| one.fragments) + late + unknown, made);
        // An event waits for its sources longer than any of them takes.
        agree("fragments late", late, 0);
        // What is in custody is still counted as accepted; nothing else is live.
        let mut archived = ledger.released;
        archived += ledger.in_custody;
        agree("fragments live beside those in custody", ledger.live.total().fragments, ledger.in_custody.fragments);
        agree("fragments archived", self.archive.contents.fragments, archived.fragments);
        agree("bytes archived", self.archive.contents.payload_bytes, archived.bytes);
        agree("events decided", ledger.rejected.events + archived.events, config.events);
        if self.filters_killed == 0 && self.server_killed == 0 {
            let sum = |of: fn(&FilterReport) -> u64| self.filters.iter().map(of).sum::<u64>();
            agree("events rejected", sum(|filter| filter.rejected), ledger.rejected.events);
            agree("events accepted", sum(|filter| filter.accepted), archived.events);
        }
        let corrupt: u64 = self.filters.iter().map(|filter| filter.corrupt).sum();
        agree("fragments that did not verify", corrupt, 0);
        // An unknown fragment that was not stored leaves its event without it.
        let complete = config.events.saturating_sub(unknown)..=config.events;
        within(&mut problems, "events complete", complete, ledger.complete);
        self.problems.append(&mut problems);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Tally;

    fn ledger(stored: u64, late: u64) -> Ledger {
        let tally = |events, fragments| Tally { events, fragments, bytes: 10 * fragments };
        Ledger {
            offered: tally(0, stored + late),
            stored: tally(0, stored),
            late: tally(0, late),
            rejected: tally(1, stored),
            complete: 1,
            ..Ledger::default()
        }
    }

    fn readout(fragments: u64, late: u64, unknown: u64) -> ReadoutReport {
        let (bytes, unknown_bytes) = (10 * fragments, 10 * unknown);
        ReadoutReport { fragments, bytes, late, unknown, unknown_bytes, ..ReadoutReport::default() }
    }

    #[test]
    fn without_unknown_fragments_all_is_exact() {
        let one = [readout(3, 0, 0), readout(2, 1, 0)];
        assert_eq!(audit_readouts(&one, &ledger(5, 1), false), Vec::<String>::new());
        let found = audit_readouts(&one, &ledger(6, 1), false);
        assert_eq!(found[0], "fragments stored: 5 by its own count, 6 in the ledger");
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn an_unknown_fragment_is_stored_or_not_and_never_hidden() {
        let two = [readout(3, 0, 2)];
        for stored in 3..=5 {
            assert_eq!(audit_readouts(&two, &ledger(stored, 2), false), Vec::<String>::new());
        }
        let found = audit_readouts(&two, &ledger(6, 2), false);
        assert_eq!(found[0], "fragments stored: 3 to 5 by its own count, 6 in the ledger");
        assert_eq!(audit_readouts(&two, &ledger(2, 2), false).len(), 2);
        // Each was answered that it is late, of which a crash may lose the count.
        assert_eq!(audit_readouts(&two, &ledger(5, 1), false).len(), 1);
        assert_eq!(audit_readouts(&two, &ledger(5, 1), true), Vec::<String>::new());
    }
}
