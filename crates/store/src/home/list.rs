//! Lists of events in order of arrival, linked through the events themselves: no memory of their own, O(1) at both
//! ends and in the middle. An event stands in at most one list.

use super::event::{Event, NIL};
use crate::index::Slab;

/// One list.
#[derive(Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u64,
}

impl List {
    pub(crate) const fn new() -> List {
        List { head: NIL, tail: NIL, len: 0 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn first(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    pub(crate) fn last(&self) -> Option<u32> {
        (self.tail != NIL).then_some(self.tail)
    }

    pub(crate) fn before(events: &Slab<Event>, at: u32) -> Option<u32> {
        let previous = events[at].previous;
        (previous != NIL).then_some(previous)
    }

    pub(crate) fn after(events: &Slab<Event>, at: u32) -> Option<u32> {
        let next = events[at].next;
        (next != NIL).then_some(next)
    }

    pub(crate) fn push_back(&mut self, events: &mut Slab<Event>, at: u32) {
        events[at].previous = self.tail;
        events[at].next = NIL;
        if self.tail == NIL {
            self.head = at;
        } else {
            events[self.tail].next = at;
        }
        self.tail = at;
        self.len += 1;
    }

    /// Back to the front: an event that was taken and given back goes before younger ones.
    pub(crate) fn push_front(&mut self, events: &mut Slab<Event>, at: u32) {
        events[at].previous = NIL;
        events[at].next = self.head;
        if self.head == NIL {
            self.tail = at;
        } else {
            events[self.head].previous = at;
        }
        self.head = at;
        self.len += 1;
    }

    /// In its place by arrival, sought from both ends at once: it mostly belongs near one of them.
    pub(crate) fn insert_by_arrival(&mut self, events: &mut Slab<Event>, at: u32) {
        let arrival = events[at].arrival_ns;
        let (mut young, mut old) = (self.tail, self.head);
        while young != NIL && old != NIL {
            if events[young].arrival_ns <= arrival {
                return self.insert_after(events, young, at);
            }
            if events[old].arrival_ns > arrival {
                let previous = events[old].previous;
                if previous == NIL {
                    break;
                }
                return self.insert_after(events, previous, at);
            }
            (young, old) = (events[young].previous, events[old].next);
        }
        self.push_front(events, at);
    }

    fn insert_after(&mut self, events: &mut Slab<Event>, before: u32, at: u32) {
        let next = events[before].next;
        if next == NIL {
            return self.push_back(events, at);
        }
        (events[at].previous, events[at].next) = (before, next);
        events[before].next = at;
        events[next].previous = at;
        self.len += 1;
    }

    pub(crate) fn unlink(&mut self, events: &mut Slab<Event>, at: u32) {
        let (previous, next) = (events[at].previous, events[at].next);
        if previous == NIL {
            self.head = next;
        } else {
            events[previous].next = next;
        }
        if next == NIL {
            self.tail = previous;
        } else {
            events[next].previous = previous;
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_by_arrival_are_those_of_a_stable_sort(arrivals in prop::collection::vec((0_u64..8, any::<bool>()), 0..60)) {
            let (mut events, mut list, mut sorted) = (Slab::new(), List::new(), Vec::new());
            for (arrival_ns, leaves) in arrivals {
                let at = events.insert(Event { arrival_ns, ..Event::default() });
                list.insert_by_arrival(&mut events, at);
                sorted.push((arrival_ns, at));
                if leaves {
                    let (_, at) = sorted.remove(sorted.len() / 2);
                    list.unlink(&mut events, at);
                }
            }
            sorted.sort_by_key(|(arrival_ns, _)| *arrival_ns);
            let listed = std::iter::successors(list.first(), |&at| List::after(&events, at));
            let backwards = std::iter::successors((list.tail != NIL).then_some(list.tail), |&at| {
                Some(events[at].previous).filter(|&at| at != NIL)
            });
            let arrivals = |ats: Vec<u32>| ats.into_iter().map(|at| events[at].arrival_ns).collect::<Vec<_>>();
            let expected: Vec<u64> = sorted.iter().map(|(arrival_ns, _)| *arrival_ns).collect();
            prop_assert_eq!(arrivals(listed.collect()), expected.clone());
            prop_assert_eq!(arrivals(backwards.collect()), expected.into_iter().rev().collect::<Vec<_>>());
            prop_assert_eq!(list.len(), sorted.len() as u64);
        }
    }
}
