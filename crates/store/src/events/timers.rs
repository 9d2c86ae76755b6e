//! When leases run out: mostly in the order in which they were granted, so a queue does; what comes out of order is
//! kept in a tree.
//!
//! *Invariants*: an entry counts while its lease has the same number and deadline; ended ones are dropped when they come
//! to the front, or all at once when they are the greater part: each operation takes constant time on average.

use super::shard::LeaseState;
use crate::index::Slab;
use std::collections::{BTreeSet, VecDeque};

/// Ended entries that the queue may hold beside as many that count.
const SLACK: usize = 1024;

/// Deadlines of leases.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    queue: VecDeque<(u64, u32, u64)>,
    stragglers: BTreeSet<(u64, u32)>,
    /// Leases that count, in the queue and in the tree.
    counting: usize,
}

fn counts(leases: &Slab<LeaseState>, &(deadline, lease, number): &(u64, u32, u64)) -> bool {
    (leases[lease].deadline_ns, leases[lease].counter) == (deadline, number)
}

impl Timers {
    /// Notes the deadline that a lease has now.
    #[inline]
    pub(crate) fn insert(&mut self, leases: &Slab<LeaseState>, lease: u32) {
        let LeaseState { deadline_ns, counter, .. } = leases[lease];
        self.counting += 1;
        if self.queue.back().is_some_and(|last| last.0 > deadline_ns) {
            let is_new = self.stragglers.insert((deadline_ns, lease));
            debug_assert!(is_new, "lease {lease} has one deadline");
            return;
        }
        self.queue.push_back((deadline_ns, lease, counter));
        // A lease that is extended leaves its old entry: without this the queue would grow with every heartbeat.
        if self.queue.len() > 2 * self.counting + SLACK {
            self.queue.retain(|entry| counts(leases, entry));
        }
    }

    /// The deadline of a lease is of no meaning any more: to be called before, or after, the lease itself changes.
    #[inline]
    pub(crate) fn remove(&mut self, deadline_ns: u64, lease: u32) {
        self.counting -= 1;
        if !self.stragglers.is_empty() {
            self.stragglers.remove(&(deadline_ns, lease));
        }
    }

    /// The next lease to run out: deadline and lease.
    pub(crate) fn first(&mut self, leases: &Slab<LeaseState>) -> Option<(u64, u32)> {
        while self.queue.front().is_some_and(|entry| !counts(leases, entry)) {
            self.queue.pop_front();
        }
        let queued = self.queue.front().map(|&(deadline, lease, _)| (deadline, lease));
        let first = match (queued, self.stragglers.first().copied()) {
            (Some(queued), Some(straggler)) => Some(queued.min(straggler)),
            (queued, straggler) => queued.or(straggler),
        };
        // One that is missing would never run out: its event would be leased forever.
        debug_assert_eq!(first.is_some(), self.counting > 0, "{} leases count", self.counting);
        debug_assert!(
            first.is_none_or(|(deadline, lease)| leases[lease].deadline_ns == deadline),
            "an entry of no lease"
        );
        first
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.queue.capacity() * size_of::<(u64, u32, u64)>() + self.stragglers.len() * 24
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_next_deadline_is_that_of_a_plain_map() {
        let (mut timers, mut leases) = (Timers::default(), Slab::<LeaseState>::new());
        let mut model: BTreeMap<(u64, u32), ()> = BTreeMap::new();
        let mut state = 7_u64;
        for step in 1..200_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let random = state >> 33;
            if random % 3 < 2 || model.is_empty() {
                let deadline_ns = if random.is_multiple_of(7) { random % 1_000_000 } else { step * 10 };
                let lease = leases.insert(LeaseState { counter: step, deadline_ns, ..LeaseState::default() });
                timers.insert(&leases, lease);
                model.insert((deadline_ns, lease), ());
            } else {
                // Mostly the oldest, sometimes any: as workers end.
                let at = if random.is_multiple_of(5) { random as usize % model.len() } else { 0 };
                let Some(&(deadline_ns, lease)) = model.keys().nth(at) else { continue };
                model.remove(&(deadline_ns, lease));
                leases.remove(lease);
                timers.remove(deadline_ns, lease);
            }
            assert_eq!(timers.first(&leases), model.keys().next().copied());
            assert!(timers.queue.len() <= 2 * model.len() + SLACK + 1);
            if model.len() > 3000 {
                for (deadline_ns, lease) in std::mem::take(&mut model).into_keys() {
                    leases.remove(lease);
                    timers.remove(deadline_ns, lease);
                }
            }
        }
    }
}
