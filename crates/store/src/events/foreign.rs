//! Foreign events: their home is another node, and fragments of theirs are kept here.
//!
//! ```text
//!            the node leads the slot: promote
//! foreign ─────────────────────────────────▶ open, and on from there as recovery has it
//!         ◀─────────────────────────────────
//!            another node leads it: demote      out of lists, leases and the account
//! ```
//!
//! *Invariants*: nothing of a foreign event is in the ledger, in a list or under a lease; an event that was demoted and is
//! promoted again is what recovery makes of the same records (tests/cluster.rs).

use super::event::{Flag, State};
use super::shard::ShardEvents;
use forebay_core::{LiveState, Tally};

/// Where an event had gone before its home became another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Accepted, with the number of its output.
    Accepted(u32),
    /// In the debug stream, with the reason.
    Debug(u8),
}

impl ShardEvents {
    /// Another node leads the event's slot: its lease is void, and the account counts it no more.
    pub(crate) fn demote(&mut self, event: u32) {
        let State::Live(state) = self.slab[event].state else { return };
        let kept = match state {
            LiveState::Accepted => Some(Kept::Accepted(self.slab[event].output())),
            LiveState::Debug => Some(Kept::Debug(self.lists.reasons.get(&event).copied().unwrap_or_default())),
            LiveState::Open | LiveState::Ready | LiveState::Leased => None,
        };
        self.unlink(event, state);
        let tally = self.tally(event);
        let leaf = &mut self.slab[event];
        let run = &mut self.runs[leaf.run as usize];
        let ledger = &mut run.ledger;
        ledger.live[state] -= tally;
        for term in [&mut ledger.offered, &mut ledger.stored] {
            *term -= Tally { events: 0, ..tally };
        }
        if leaf.is(Flag::Announced) && !leaf.is(Flag::Counted) {
            ledger.awaited = ledger.awaited.wrapping_sub(1);
        }
        if leaf.is(Flag::Booked) {
            let count = if leaf.is(Flag::Complete) { &mut ledger.complete } else { &mut ledger.incomplete };
            *count = count.wrapping_sub(1);
        }
        // What recovery would find out again; that masks made it complete, the mark beside its record says.
        if !(leaf.is_marked_ready() && leaf.is(Flag::LacksMasked)) {
            leaf.clear(Flag::Complete);
            leaf.clear(Flag::LacksMasked);
        }
        leaf.clear(Flag::Counted);
        leaf.clear(Flag::Booked);
        leaf.state = State::Foreign;
        run.foreign += 1;
        if let Some(kept) = kept {
            self.lists.foreign.insert(event, kept);
        }
    }

    /// This node leads the event's slot: the account counts it, and it is open. Answers where it had gone before. As after
    /// recovery, the caller looks what it is by its marks.
    pub(crate) fn promote(&mut self, event: u32, now_ns: u64) -> Option<Kept> {
        debug_assert_eq!(self.slab[event].state, State::Foreign, "only a foreign event is promoted");
        let seen = (0..self.slots(event)).any(|slot| !self.shape.form.word_of(self.table(event), slot).is_pending());
        let leaf = &mut self.slab[event];
        leaf.state = State::Live(LiveState::Open);
        leaf.arrival_ns = now_ns;
        let run = &mut self.runs[leaf.run as usize];
        run.foreign -= 1;
        if seen {
            leaf.set(Flag::Counted);
            let tally = Tally { events: 1, fragments: u64::from(leaf.present), bytes: leaf.bytes };
            for term in [&mut run.ledger.offered, &mut run.ledger.stored] {
                *term += Tally { events: 0, ..tally };
            }
            run.ledger.live[LiveState::Open] += tally;
        } else if leaf.is(Flag::Announced) {
            run.ledger.awaited += 1;
        }
        run.open.push_back(&mut self.slab, event);
        self.lists.foreign.remove(&event)
    }

    /// Where a foreign event had gone.
    pub(crate) fn kept_foreign(&self, event: u32) -> Option<Kept> {
        self.lists.foreign.get(&event).copied()
    }

    /// Every event, foreign ones too, in no order that matters.
    pub(crate) fn every_event(&self) -> Vec<u32> {
        (0..self.slab.used())
            .filter(|&event| matches!(self.slab[event].state, State::Live(_) | State::Foreign))
            .collect()
    }
}
