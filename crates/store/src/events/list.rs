//! Lists of events in order of arrival, linked through the events themselves: no memory of their own, O(1) at both
//! ends and in the middle. An event is linked in at most one list.
//!
//! *Invariants*: neighbours name each other, the ends name nobody beyond them, and the length is that of the chain (asserted at
//! each change, and by the tests below).

use super::event::{EventSlab, NIL};

/// One list.
#[derive(Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    /// Where one was placed by arrival last: the next one mostly belongs beside it.
    placed: u32,
    len: u64,
}

impl List {
    pub(crate) const fn new() -> List {
        List { head: NIL, tail: NIL, placed: NIL, len: 0 }
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

    pub(crate) fn before(events: &EventSlab, at: u32) -> Option<u32> {
        let previous = events[at].previous;
        (previous != NIL).then_some(previous)
    }

    pub(crate) fn after(events: &EventSlab, at: u32) -> Option<u32> {
        let next = events[at].next;
        (next != NIL).then_some(next)
    }

    pub(crate) fn push_back(&mut self, events: &mut EventSlab, at: u32) {
        // Linked twice, its own links would be overwritten and everything behind its first place would be lost.
        debug_assert!(self.head != at && self.tail != at, "event {at} is in this list already");
        debug_assert!((self.tail == NIL) == (self.len == 0), "an empty list has no end");
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
    pub(crate) fn push_front(&mut self, events: &mut EventSlab, at: u32) {
        debug_assert!(self.head != at && self.tail != at, "event {at} is in this list already");
        debug_assert!((self.head == NIL) == (self.len == 0), "an empty list has no beginning");
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

    /// In its place by arrival, sought from both ends and from where the last one was placed, all at once.
    pub(crate) fn insert_by_arrival(&mut self, events: &mut EventSlab, at: u32) {
        let (place, _) = self.place_of(events, events[at].arrival_ns);
        if place == NIL {
            self.push_front(events, at)
        } else {
            self.insert_after(events, place, at)
        }
        // Equal arrivals stay in the order in which they came, so the next one is younger, never as old.
        debug_assert!(
            List::after(events, at).is_none_or(|next| events[next].arrival_ns > events[at].arrival_ns)
                && List::before(events, at).is_none_or(|before| events[before].arrival_ns <= events[at].arrival_ns),
            "event {at} is out of order"
        );
        // Events that go down together arrived together: the next search begins here.
        self.placed = at;
    }

    /// Behind which event one of this arrival belongs ([`NIL`] for the front), and the steps that it took to find out.
    fn place_of(&self, events: &EventSlab, arrival: u64) -> (u32, usize) {
        let before = |here: u32| here == NIL || events[here].arrival_ns <= arrival;
        let mut steps = 0;
        // From both ends, because most are young (they arrive) or old (their leases ran out); the search that ends first wins,
        // so that each case costs at most three times its own search.
        let (mut young, mut old) = (self.tail, self.head);
        let mut near = self.placed;
        let onwards = near != NIL && before(near);
        loop {
            if before(young) {
                return (young, steps);
            }
            if !before(old) {
                return (events[old].previous, steps);
            }
            if near != NIL {
                let next = events[near].next;
                match onwards {
                    true if next == NIL || !before(next) => return (near, steps),
                    true => near = next,
                    false if before(events[near].previous) => return (events[near].previous, steps),
                    false => near = events[near].previous,
                }
            }
            (young, old) = (events[young].previous, events[old].next);
            steps += 1;
        }
    }

    fn insert_after(&mut self, events: &mut EventSlab, before: u32, at: u32) {
        let next = events[before].next;
        if next == NIL {
            return self.push_back(events, at);
        }
        (events[at].previous, events[at].next) = (before, next);
        events[before].next = at;
        events[next].previous = at;
        self.len += 1;
    }

    pub(crate) fn unlink(&mut self, events: &mut EventSlab, at: u32) {
        let (previous, next) = (events[at].previous, events[at].next);
        // Taken out of a list in which it is not, an event would cut that list at its neighbours in another one.
        debug_assert!(
            if previous == NIL { self.head == at } else { events[previous].next == at },
            "event {at} is not in this list"
        );
        debug_assert!(
            if next == NIL { self.tail == at } else { events[next].previous == at },
            "event {at} is not in this list"
        );
        // The place of the last search must not outlive its event: the number may be given to another one.
        if self.placed == at {
            self.placed = if previous == NIL { next } else { previous };
        }
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
        debug_assert!(
            (self.head == NIL) == (self.len == 0) && (self.tail == NIL) == (self.len == 0),
            "len {}",
            self.len
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{Event, State};
    use super::super::slot::Table;
    use super::*;
    use forebay_core::LiveState;
    use proptest::prelude::*;

    /// The order in which a full level goes down: the youngest first, batch by batch, while others arrive.
    #[test]
    fn one_that_is_placed_beside_the_last_one_is_placed_at_once() {
        let (mut events, mut list, mut steps) = (EventSlab::new(), List::new(), 0);
        let mut waiting: Vec<u64> = Vec::new();
        for batch in 0..40 {
            waiting.extend(batch * 300..(batch + 1) * 300);
            for arrival_ns in waiting.split_off(waiting.len() - 100).into_iter().rev() {
                let at = events.insert(Event::new(0, State::Live(LiveState::Open), arrival_ns), Table::default());
                steps += list.place_of(&events, arrival_ns).1;
                list.insert_by_arrival(&mut events, at);
            }
        }
        let filled = list.len();
        while let Some(arrival_ns) = waiting.pop() {
            let at = events.insert(Event::new(0, State::Live(LiveState::Open), arrival_ns), Table::default());
            steps += list.place_of(&events, arrival_ns).1;
            list.insert_by_arrival(&mut events, at);
        }
        assert_eq!((filled, list.len()), (4000, 12_000));
        // Sought from the ends alone it would be some 1000 each.
        assert!(steps < 12_000, "{steps} steps");
    }

    proptest! {
        #[test]
        fn places_by_arrival_are_those_of_a_stable_sort(arrivals in prop::collection::vec((0_u64..8, any::<bool>()), 0..60)) {
            let (mut events, mut list, mut sorted) = (EventSlab::new(), List::new(), Vec::new());
            for (arrival_ns, leaves) in arrivals {
                let at = events.insert(Event::new(0, State::Live(LiveState::Open), arrival_ns), Table::default());
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
