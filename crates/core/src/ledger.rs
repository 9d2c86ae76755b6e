//! The account per run. Every term is disjoint, the sums are exact:
//!
//! ```text
//! offered = stored + duplicate + conflict + late + refused
//! stored  = live (open, ready, leased, debug, accepted) + rejected + released + removed + superseded + expired + lost
//! ```

use serde::{Deserialize, Serialize};
use std::ops::{AddAssign, SubAssign};

/// Events, fragments and bytes of one term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Events; 0 for terms that count fragments only (duplicates, removed fragments of live events, …).
    pub events: u64,
    /// Fragments.
    pub fragments: u64,
    /// Payload bytes.
    pub bytes: u64,
}

impl Tally {
    /// One fragment of `bytes`.
    pub fn fragment(bytes: u64) -> Tally {
        Tally { events: 0, fragments: 1, bytes }
    }

    /// One event with its fragments.
    pub fn event(fragments: u64, bytes: u64) -> Tally {
        Tally { events: 1, fragments, bytes }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        // Wrapping, as for subtraction: figures from a medium may be hostile.
        self.events = self.events.wrapping_add(other.events);
        self.fragments = self.fragments.wrapping_add(other.fragments);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

impl SubAssign for Tally {
    fn sub_assign(&mut self, other: Tally) {
        // Wrapping: a wrong booking shows as an absurd figure and an imbalance, not as a panic on the data path.
        self.events = self.events.wrapping_sub(other.events);
        self.fragments = self.fragments.wrapping_sub(other.fragments);
        self.bytes = self.bytes.wrapping_sub(other.bytes);
    }
}

/// The states in which an event's data is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum LiveState {
    /// Still waiting for fragments.
    Open = 0,
    /// Waiting for a worker.
    Ready = 1,
    /// A worker holds it.
    Leased = 2,
    /// Nobody could process it; waits for a person or the archive.
    Debug = 3,
    /// Accepted, until the archive has it.
    Accepted = 4,
}

/// The live states in ledger order.
pub const LIVE_STATES: [LiveState; 5] =
    [LiveState::Open, LiveState::Ready, LiveState::Leased, LiveState::Debug, LiveState::Accepted];

impl LiveState {
    /// Name in lower case.
    pub fn name(self) -> &'static str {
        ["open", "ready", "leased", "debug", "accepted"][self as usize]
    }
}

/// All terms of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Fragments that were put, regardless of the answer.
    pub offered: Tally,
    /// Fragments taken in (update versions count, each once).
    pub stored: Tally,
    /// The same bytes again.
    pub duplicate: Tally,
    /// Other bytes under a taken key.
    pub conflict: Tally,
    /// After the event was leased, decided or removed.
    pub late: Tally,
    /// Not taken in: full, or the run takes no more. Calls that can never succeed (`Invalid`) are not offers.
    pub refused: Tally,
    /// Live data by state, in the order of [`LIVE_STATES`].
    pub live: [Tally; 5],
    /// Decided: not kept.
    pub rejected: Tally,
    /// Accepted or debug data that its archive has taken over (archived-and-released).
    pub released: Tally,
    /// Removed by an administrator, whole events or single fragments.
    pub removed: Tally,
    /// Earlier versions that an update replaced.
    pub superseded: Tally,
    /// Left a ring by age.
    pub expired: Tally,
    /// Acknowledged and gone, each reported by name.
    pub lost: Tally,
    /// Events that became ready with every source they wait for, or have got the rest since.
    pub complete: u64,
    /// Events that became ready, or were removed, without some of their sources.
    pub incomplete: u64,
    /// Announced events of which nothing arrived in time.
    pub never_seen: u64,
    /// Announced events of which nothing has arrived yet.
    pub awaited: u64,
}

impl Ledger {
    /// The live term of one state.
    pub fn live(&mut self, state: LiveState) -> &mut Tally {
        &mut self.live[state as usize]
    }

    /// Names and values of the terms on the right of `stored =`.
    pub fn stored_terms(&self) -> Vec<(&'static str, Tally)> {
        let mut terms: Vec<_> = LIVE_STATES.iter().map(|state| (state.name(), self.live[*state as usize])).collect();
        terms.extend([
            ("rejected", self.rejected),
            ("released", self.released),
            ("removed", self.removed),
            ("superseded", self.superseded),
            ("expired", self.expired),
            ("lost", self.lost),
        ]);
        terms
    }

    /// Adds another account of the same run, such as another shard's.
    pub fn add(&mut self, other: &Ledger) {
        let both = [
            (&mut self.offered, other.offered),
            (&mut self.stored, other.stored),
            (&mut self.duplicate, other.duplicate),
            (&mut self.conflict, other.conflict),
            (&mut self.late, other.late),
            (&mut self.refused, other.refused),
            (&mut self.rejected, other.rejected),
            (&mut self.released, other.released),
            (&mut self.removed, other.removed),
            (&mut self.superseded, other.superseded),
            (&mut self.expired, other.expired),
            (&mut self.lost, other.lost),
        ];
        for (mine, theirs) in both {
            *mine += theirs;
        }
        for (mine, theirs) in self.live.iter_mut().zip(other.live) {
            *mine += theirs;
        }
        let counts = [
            (&mut self.complete, other.complete),
            (&mut self.incomplete, other.incomplete),
            (&mut self.never_seen, other.never_seen),
            (&mut self.awaited, other.awaited),
        ];
        for (mine, theirs) in counts {
            *mine = mine.wrapping_add(theirs);
        }
    }

    /// Events that the run knows, by announcement or by a fragment: complete + incomplete + never seen + still open.
    pub fn announced(&self) -> u64 {
        let open = self.live[LiveState::Open as usize].events.wrapping_add(self.awaited);
        self.complete.wrapping_add(self.incomplete).wrapping_add(self.never_seen).wrapping_add(open)
    }

    /// What does not add up, in words; `None` where both sums are exact in fragments and bytes.
    pub fn imbalance(&self) -> Option<String> {
        let sum = |terms: &[Tally]| {
            terms.iter().fold((0_u64, 0_u64), |(fragments, bytes), term| {
                (fragments.wrapping_add(term.fragments), bytes.wrapping_add(term.bytes))
            })
        };
        let outcomes = sum(&[self.stored, self.duplicate, self.conflict, self.late, self.refused]);
        if outcomes != (self.offered.fragments, self.offered.bytes) {
            return Some(format!(
                "offered {} fragments, {} bytes; outcomes sum to {} and {}",
                self.offered.fragments, self.offered.bytes, outcomes.0, outcomes.1
            ));
        }
        let terms: Vec<Tally> = self.stored_terms().into_iter().map(|term| term.1).collect();
        let accounted = sum(&terms);
        if accounted != (self.stored.fragments, self.stored.bytes) {
            return Some(format!(
                "stored {} fragments, {} bytes; terms sum to {} and {}",
                self.stored.fragments, self.stored.bytes, accounted.0, accounted.1
            ));
        }
        let went = terms.iter().skip(1).take(7).fold(0_u64, |sum, term| sum.wrapping_add(term.events));
        let ready = self.complete.wrapping_add(self.incomplete);
        if went != ready {
            return Some(format!(
                "{} events became ready complete, {} incomplete; ready, decided or removed are {went}",
                self.complete, self.incomplete
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_imbalance_is_found_in_each_sum() {
        let mut ledger = Ledger::default();
        ledger.offered += Tally::fragment(10);
        assert!(ledger.imbalance().unwrap().contains("outcomes"));
        ledger.stored += Tally::fragment(10);
        assert!(ledger.imbalance().unwrap().contains("terms"));
        *ledger.live(LiveState::Open) += Tally::event(1, 10);
        assert_eq!(ledger.imbalance(), None);
        *ledger.live(LiveState::Open) -= Tally::event(1, 9);
        assert!(ledger.imbalance().is_some());
    }
}
