//! Foreign events: their home is another node, and fragments of theirs are kept here.
//!
//! ```text
//!            the node leads the slot: promote
//! foreign ─────────────────────────────────▶ open, and on from there as recovery has it
//!         ◀─────────────────────────────────
//!            another node leads it: demote      out of lists, leases and the account
//! ```
//!
//! *Invariants*: nothing of a foreign event is in the ledger or in the figures of its sources (tests/holder.rs), in a list of
//! events that wait, or under a lease; an event that was demoted and is promoted again is what recovery makes of the same
//! records (tests/cluster.rs); a foreign event is in a list of those to be told exactly while its home may not know all that
//! is here (`is_told`, asserted); `Run::foreign` is the sum of what is here (`foreign_adds_up`, asserted where roles change
//! and where all is compared).

use super::event::{Flag, State};
use super::list::List;
use super::shard::{Ended, ShardEvents};
use super::slot::PlaceBits;
use super::sources::SourceCounts;
use forebay_core::{Key, LiveState, Primary, Report, Tally};

/// Where an event had gone before its home became another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Accepted, with the number of its output.
    Accepted(u32),
    /// In the debug stream, with the reason.
    Debug(u8),
}

/// Departures that a shard keeps for other nodes.
pub(crate) const DEPARTURES_MAX: usize = 1 << 14;

/// What ended at the home, and may be held by other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departed {
    /// An event, with all of it.
    Event(Primary),
    /// A fragment.
    Fragment(Key),
}

/// Departures since they were taken last.
#[derive(Debug, Default)]
pub struct Departures {
    /// What ended.
    pub names: Vec<Departed>,
    /// More ended than is kept here: other nodes are to compare all that they hold.
    pub missed: bool,
}

impl ShardEvents {
    /// Another node leads the event's slot: its lease is void, and the account counts it no more. `hot_length` is what counts as
    /// the length of a fragment on the hot level, `None` for one on the warm level.
    pub(crate) fn demote(&mut self, event: u32, home: u16, now_ns: u64, hot_length: impl Fn(PlaceBits) -> Option<u32>) {
        let State::Live(state) = self.slab[event].state else { return };
        let kept = match state {
            LiveState::Accepted => Some(Kept::Accepted(self.slab[event].output())),
            LiveState::Debug => Some(Kept::Debug(self.lists.reasons.get(&event).copied().unwrap_or_default())),
            LiveState::Open | LiveState::Ready | LiveState::Leased => None,
        };
        self.unlink(event, state);
        self.move_figures(event, |sources, _, rest, place| {
            if let Some(length) = hot_length(place) {
                sources.left(rest, length);
            }
        });
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
        self.enter_foreign(event, home, now_ns);
        if let Some(kept) = kept {
            self.lists.foreign.insert(event, kept);
        }
    }

    /// Its fragments enter or leave the figures of their sources, as the account counts it or not. Those on the warm level do
    /// neither: a snapshot has their figures (`Sum::add`). A store with a warm level takes no look-up table.
    fn move_figures(&mut self, event: u32, each: impl Fn(&mut SourceCounts, &[u8], &[u8], PlaceBits)) {
        let run = self.slab[event].run as usize;
        let mut sources = std::mem::take(&mut self.runs[run].sources);
        let primary = self.primary(event);
        for (rest, place) in self.fragments(event, |_| true) {
            each(&mut sources, primary.as_bytes(), rest, place);
        }
        self.runs[run].sources = sources;
    }

    /// An event is foreign from now on: what its home knows of it is still to be found out.
    pub(super) fn enter_foreign(&mut self, event: u32, home: u16, now_ns: u64) {
        let tally = self.held_of(event);
        let leaf = &mut self.slab[event];
        leaf.set_home(Some(home));
        self.runs[leaf.run as usize].foreign += tally;
        self.list_untold(event, Report::Later, now_ns);
    }

    /// An event is foreign no more.
    pub(super) fn leave_foreign(&mut self, event: u32) {
        if !self.is_told(event) {
            self.unlist_untold(event);
        }
        self.lists.known_at_home.remove(&event);
        let tally = self.held_of(event);
        let leaf = &mut self.slab[event];
        self.runs[leaf.run as usize].foreign -= tally;
        leaf.clear(Flag::Counted);
        leaf.clear(Flag::Booked);
        leaf.clear(Flag::Held);
        leaf.set_home(None);
    }

    /// What is here of a foreign event: as an event its home counts it.
    fn held_of(&self, event: u32) -> Tally {
        Tally { events: 0, ..self.tally(event) }
    }

    /// Whether the runs' sums of what is here of foreign events are those of the events.
    pub(crate) fn foreign_adds_up(&self) -> bool {
        let mut sums = vec![Tally::default(); self.runs.len()];
        for event in self.every_event() {
            if self.slab[event].state == State::Foreign {
                sums[self.slab[event].run as usize] += self.held_of(event);
            }
        }
        self.runs.iter().map(|run| run.foreign).eq(sums)
    }

    /// Whether the home of a foreign event knows all of it that is here.
    pub(crate) fn is_told(&self, event: u32) -> bool {
        self.slab[event].is(Flag::Counted)
    }

    /// Whether the home of a foreign event is to be told at once of something that is here.
    pub(crate) fn is_told_at_once(&self, event: u32) -> bool {
        !self.is_told(event) && self.slab[event].is(Flag::Booked)
    }

    fn list_untold(&mut self, event: u32, report: Report, now_ns: u64) {
        let prompt = report == Report::Prompt;
        let leaf = &mut self.slab[event];
        leaf.clear(Flag::Counted);
        if prompt {
            leaf.set(Flag::Booked);
        }
        // Of a foreign event the time since when it is listed.
        leaf.arrival_ns = now_ns;
        let key = (leaf.home(), prompt);
        self.runs[leaf.run as usize].untold += 1;
        self.lists.untold.entry(key).or_insert_with(List::new).push_back(&mut self.slab, event);
    }

    fn unlist_untold(&mut self, event: u32) {
        let leaf = &mut self.slab[event];
        debug_assert!(!leaf.is(Flag::Counted), "what its home knows is in no list");
        let key = (leaf.home(), leaf.is(Flag::Booked));
        leaf.clear(Flag::Booked);
        self.runs[leaf.run as usize].untold -= 1;
        if let Some(list) = self.lists.untold.get_mut(&key) {
            list.unlink(&mut self.slab, event);
        }
    }

    /// Something of a foreign event will be here: until that is known its run is not closed.
    pub(crate) fn is_to_come(&mut self, event: u32, report: Report, now_ns: impl FnOnce() -> u64) {
        if self.is_told(event) {
            let known = self.fragments(event, |_| true).flat_map(|(rest, _)| rest).copied().collect();
            self.lists.known_at_home.insert(event, known);
            self.list_untold(event, report, now_ns());
        }
    }

    /// Something of a foreign event is here that its home may not know.
    pub(crate) fn is_to_be_told(&mut self, event: u32, report: Report, now_ns: impl FnOnce() -> u64) {
        debug_assert!(!self.is_told(event), "what comes is waited for");
        if !self.slab[event].is(Flag::Booked) {
            self.list_again(event, report, now_ns());
        }
    }

    /// A foreign event that is to be told waits behind the others, from now on.
    pub(crate) fn list_again(&mut self, event: u32, report: Report, now_ns: u64) {
        if !self.is_told(event) {
            self.unlist_untold(event);
            self.list_untold(event, report, now_ns);
        }
    }

    /// All that is here of a foreign event is to be asked about, also what its home knew.
    pub(crate) fn is_to_be_compared(&mut self, event: u32, now_ns: u64) {
        if !self.is_told(event) {
            self.unlist_untold(event);
        }
        self.list_untold(event, Report::Later, now_ns);
        self.lists.known_at_home.remove(&event);
    }

    /// The home of a foreign event, of which it may not know all, knows this fragment.
    pub(crate) fn is_known(&mut self, event: u32, rest: &[u8]) {
        debug_assert!(!self.is_told(event), "of what is told all is known");
        if !self.is_known_at_home(event, rest) {
            self.lists.known_at_home.entry(event).or_default().extend_from_slice(rest);
        }
    }

    /// Whether the home of a foreign event, of which it may not know all, knows this fragment.
    pub(crate) fn is_known_at_home(&self, event: u32, rest: &[u8]) -> bool {
        let known = self.lists.known_at_home.get(&event);
        known.is_some_and(|known| known.chunks(rest.len().max(1)).any(|known| known == rest))
    }

    /// The home of a foreign event knows all of it that is here.
    pub(crate) fn set_told(&mut self, event: u32) {
        self.unlist_untold(event);
        self.lists.known_at_home.remove(&event);
        self.slab[event].set(Flag::Counted);
    }

    /// The first foreign event of a home that is to be told, or the one behind another.
    pub(crate) fn next_untold(&self, home: u16, report: Report, after: Option<u32>) -> Option<u32> {
        match after {
            Some(event) => List::after(&self.slab, event),
            None => self.lists.untold.get(&(home, report == Report::Prompt))?.first(),
        }
    }

    /// Takes a foreign event out for good: its home has ended it. Its records' locations go to `ended`.
    pub(crate) fn end_foreign(&mut self, event: u32, ended: &mut Ended) {
        debug_assert_eq!(self.slab[event].state, State::Foreign, "an event that is live here is decided here");
        self.leave_foreign(event);
        self.lists.foreign.remove(&event);
        let primary = self.primary(event);
        self.take_out(event, primary.as_bytes(), ended);
    }

    /// This node leads the event's slot: the account counts it, and it is open. Answers where it had gone before. As after
    /// recovery, the caller looks what it is by its marks.
    pub(crate) fn promote(
        &mut self,
        event: u32,
        now_ns: u64,
        hot_length: impl Fn(PlaceBits) -> Option<u32>,
    ) -> Option<Kept> {
        debug_assert_eq!(self.slab[event].state, State::Foreign, "only a foreign event is promoted");
        self.move_figures(event, |sources, primary, rest, place| {
            if let Some(length) = hot_length(place) {
                sources.arrived(rest, length, primary);
            }
        });
        let seen = (0..self.slots(event)).any(|slot| !self.shape.form.word_of(self.table(event), slot).is_pending());
        self.leave_foreign(event);
        let leaf = &mut self.slab[event];
        leaf.state = State::Live(LiveState::Open);
        leaf.arrival_ns = now_ns;
        let run = &mut self.runs[leaf.run as usize];
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
