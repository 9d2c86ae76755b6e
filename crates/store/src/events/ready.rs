//! Ready events of one stage in the order in which they go out: by arrival, or by an attribute. Where the hot level goes
//! first, those on the warm level have a list of their own.
//!
//! *Invariants*: only ready events are listed, and none that a hold keeps back; an event is marked as listed far only while it
//! is far; ranks and lists have the same events (asserted where an event comes and goes).

use super::event::{EventSlab, Flag, State};
use super::list::List;
use forebay_core::LiveState;
use std::collections::BTreeSet;

/// Ready events of one stage.
#[derive(Debug)]
pub(crate) struct Ready {
    /// In order of arrival: about, or strictly where a policy asks for it.
    pub(crate) list: List,
    /// On the warm level, in order of arrival; empty where the hot level does not go first.
    pub(crate) far: List,
    strict: bool,
    /// By rank, arrival, event; only where a policy asks for it.
    ranked: Option<BTreeSet<(u128, u64, u32)>>,
}

impl Ready {
    pub(crate) fn new(strict: bool, ranked: bool) -> Ready {
        // Ranks know one order for both levels: a list apart for those that are far would contradict it.
        debug_assert!(strict || !ranked, "an order by attribute is strict");
        Ready { list: List::new(), far: List::new(), strict, ranked: ranked.then(BTreeSet::new) }
    }

    pub(crate) fn push(&mut self, events: &mut EventSlab, event: u32, rank: u128, to_front: bool) {
        debug_assert_eq!(events[event].state, State::Live(LiveState::Ready), "only ready events go out");
        debug_assert!(!events[event].is(Flag::Held), "a held event goes to nobody");
        debug_assert!(!events[event].is(Flag::ListedFar), "event {event} is listed already");
        let far = !self.strict && events[event].is(Flag::Far);
        if far {
            // Noted apart from `Far`, which changes while the event is listed: it says which list to take the event out of.
            events[event].set(Flag::ListedFar);
            self.far.insert_by_arrival(events, event);
        } else if self.strict {
            self.list.insert_by_arrival(events, event);
        } else if to_front {
            self.list.push_front(events, event);
        } else {
            self.list.push_back(events, event);
        }
        if let Some(ranked) = &mut self.ranked {
            let is_new = ranked.insert((rank, events[event].arrival_ns, event));
            debug_assert!(is_new && ranked.len() as u64 == self.list.len(), "ranks and list have the same events");
        }
    }

    pub(crate) fn unlink(&mut self, events: &mut EventSlab, event: u32, rank: u128) {
        if events[event].is(Flag::ListedFar) {
            debug_assert!(events[event].is(Flag::Far), "event {event} came back and was not listed again");
            events[event].clear(Flag::ListedFar);
            self.far.unlink(events, event);
        } else {
            self.list.unlink(events, event);
        }
        if let Some(ranked) = &mut self.ranked {
            let was_there = ranked.remove(&(rank, events[event].arrival_ns, event));
            // An entry that stays behind is offered for as long as the store lives, and shifts what goes down last.
            debug_assert!(was_there && ranked.len() as u64 == self.list.len(), "event {event} was not ranked {rank}");
        }
    }

    /// A waiting event has another rank now; its place in order of arrival stays.
    pub(crate) fn rerank(&mut self, events: &EventSlab, event: u32, from: u128, to: u128) {
        if let Some(ranked) = &mut self.ranked {
            let arrival = events[event].arrival_ns;
            let was_there = ranked.remove(&(from, arrival, event));
            debug_assert!(was_there, "event {event} was not ranked {from}");
            ranked.insert((to, arrival, event));
        }
    }

    /// The first by rank after a place: rank, arrival and event.
    pub(crate) fn ranked_after(&self, after: Option<(u128, u64, u32)>) -> Option<(u128, u64, u32)> {
        let ranked = self.ranked.as_ref()?;
        match after {
            None => ranked.first().copied(),
            Some(after) => {
                use std::ops::Bound::{Excluded, Unbounded};
                ranked.range((Excluded(after), Unbounded)).next().copied()
            }
        }
    }

    /// The hot level's, last first: by rank if the event has one, else by arrival.
    pub(crate) fn last_first<'a>(&'a self, events: &'a EventSlab) -> Box<dyn Iterator<Item = u32> + 'a> {
        match &self.ranked {
            Some(ranked) => Box::new(ranked.iter().rev().map(|place| place.2)),
            None => Box::new(std::iter::successors(self.list.last(), |&at| List::before(events, at))),
        }
    }

    /// Up to `most` events of the list before a place, or before its end, and where that ended: `None` at the beginning.
    pub(crate) fn before(&self, events: &EventSlab, from: Option<u32>, most: usize) -> (Vec<u32>, Option<u32>) {
        // From where the last look ended: what lies behind has gone down already.
        let first = from.map_or_else(|| self.list.last(), |at| List::before(events, at));
        let found: Vec<u32> = std::iter::successors(first, |&at| List::before(events, at)).take(most).collect();
        let end = if found.len() < most { None } else { found.last().copied() };
        (found, end)
    }

    /// All of them, in no order that matters.
    pub(crate) fn all<'a>(&'a self, events: &'a EventSlab) -> impl Iterator<Item = u32> + 'a {
        let heads = [self.list.first(), self.far.first()];
        heads.into_iter().flat_map(|first| std::iter::successors(first, |&at| List::after(events, at)))
    }

    pub(crate) fn len(&self) -> u64 {
        self.list.len() + self.far.len()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.ranked.as_ref().map_or(0, |ranked| ranked.len() * 48)
    }
}
