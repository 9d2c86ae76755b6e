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
