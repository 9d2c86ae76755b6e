//! The account per run. Every term is disjoint, the sums are exact:
//!
//! ```text
//! offered = stored + duplicate + conflict + late + refused
//! stored  = live (open, ready, leased, debug, accepted) + rejected + released + removed + superseded + expired + lost
//! ```

use serde::{Deserialize, Serialize};
use std::ops::{AddAssign, Index, IndexMut, SubAssign};

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

/// A figure for each live state, by the state's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live<T = Tally> {
    /// [`LiveState::Open`].
    pub open: T,
    /// [`LiveState::Ready`].
    pub ready: T,
    /// [`LiveState::Leased`].
    pub leased: T,
    /// [`LiveState::Debug`].
    pub debug: T,
    /// [`LiveState::Accepted`].
    pub accepted: T,
}

impl<T> Live<T> {
    /// The figures with their states, in ledger order.
    pub fn iter(&self) -> impl Iterator<Item = (LiveState, &T)> {
        LIVE_STATES.into_iter().map(|state| (state, &self[state]))
    }
}

impl Live {
    /// Of all states together.
    pub fn total(&self) -> Tally {
        self.iter().fold(Tally::default(), |mut sum, (_, tally)| {
            sum += *tally;
            sum
        })
    }
}

impl<T> Index<LiveState> for Live<T> {
    type Output = T;

    #[inline]
    fn index(&self, state: LiveState) -> &T {
        match state {
            LiveState::Open => &self.open,
            LiveState::Ready => &self.ready,
            LiveState::Leased => &self.leased,
            LiveState::Debug => &self.debug,
            LiveState::Accepted => &self.accepted,
        }
    }
}

impl<T> IndexMut<LiveState> for Live<T> {
    #[inline]
    fn index_mut(&mut self, state: LiveState) -> &mut T {
        match state {
            LiveState::Open => &mut self.open,
            LiveState::Ready => &mut self.ready,
            LiveState::Leased => &mut self.leased,
            LiveState::Debug => &mut self.debug,
            LiveState::Accepted => &mut self.accepted,
        }
    }
}

impl AddAssign for Live {
    fn add_assign(&mut self, other: Live) {
        for state in LIVE_STATES {
            self[state] += other[state];
        }
    }
}

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
    /// Live data by state.
    pub live: Live,
    /// Part of `accepted` and `debug`: the archive was proved to have it, and the store still has it as well.
    #[serde(default)]
    pub in_custody: Tally,
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
    /// Names and values of the terms on the right of `stored =`.
    pub fn stored_terms(&self) -> Vec<(&'static str, Tally)> {
        let mut terms: Vec<_> = self.live.iter().map(|(state, tally)| (state.name(), *tally)).collect();
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
            (&mut self.in_custody, other.in_custody),
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
        self.live += other.live;
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
        let open = self.live.open.events.wrapping_add(self.awaited);
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
        let Live { open: _, ready, leased, debug, accepted } = self.live;
        let kept = sum(&[debug, accepted]);
        if self.in_custody.fragments > kept.0 || self.in_custody.bytes > kept.1 {
            let Tally { fragments, bytes, .. } = self.in_custody;
            return Some(format!("{fragments} fragments, {bytes} bytes in custody, of {} and {}", kept.0, kept.1));
        }
        let past_open = [ready, leased, debug, accepted, self.rejected, self.released, self.removed];
        let went = past_open.iter().fold(0_u64, |sum, term| sum.wrapping_add(term.events));
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
        ledger.live.open += Tally::event(1, 10);
        assert_eq!(ledger.imbalance(), None);
        ledger.live.open -= Tally::event(1, 9);
        assert!(ledger.imbalance().is_some());
    }
}
