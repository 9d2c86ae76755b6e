//! Ready events of one stage in the order in which they go out: by arrival, or by an attribute.

use super::event::Event;
use super::list::List;
use crate::index::Slab;
use std::collections::BTreeSet;

/// Ready events of one stage.
#[derive(Debug)]
pub(crate) struct Ready {
    /// In order of arrival: about, or strictly where a policy asks for it.
    pub(crate) list: List,
    strict: bool,
    /// By rank, arrival, event; only where a policy asks for it.
    ranked: Option<BTreeSet<(u128, u64, u32)>>,
}

impl Ready {
    pub(crate) fn new(strict: bool, ranked: bool) -> Ready {
        Ready { list: List::new(), strict, ranked: ranked.then(BTreeSet::new) }
    }

    pub(crate) fn push(&mut self, events: &mut Slab<Event>, event: u32, rank: u128, to_front: bool) {
        if self.strict {
            self.list.insert_by_arrival(events, event);
        } else if to_front {
            self.list.push_front(events, event);
        } else {
            self.list.push_back(events, event);
        }
        if let Some(ranked) = &mut self.ranked {
            ranked.insert((rank, events[event].arrival_ns, event));
        }
    }

    pub(crate) fn unlink(&mut self, events: &mut Slab<Event>, event: u32, rank: u128) {
        self.list.unlink(events, event);
        if let Some(ranked) = &mut self.ranked {
            ranked.remove(&(rank, events[event].arrival_ns, event));
        }
    }

    /// A waiting event has another rank now; its place in order of arrival stays.
    pub(crate) fn rerank(&mut self, events: &Slab<Event>, event: u32, from: u128, to: u128) {
        if let Some(ranked) = &mut self.ranked {
            let arrival = events[event].arrival_ns;
            ranked.remove(&(from, arrival, event));
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

    pub(crate) fn heap_bytes(&self) -> usize {
        self.ranked.as_ref().map_or(0, |ranked| ranked.len() * 48)
    }
}
