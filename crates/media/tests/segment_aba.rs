//! A stall inside `Segment::try_free` between its look at `needs` and its swap frees a later life of the segment.
#![allow(dead_code, unreachable_pub, reason = "only a part of the included module is used, and only here")]

#[path = "../src/hot/segment.rs"]
mod segment;
mod sync {
    use std::cell::RefCell;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    thread_local! { pub(crate) static BEFORE_SWAP: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) }; }
    #[derive(Debug)]
    pub(crate) struct AtomicU8(std::sync::atomic::AtomicU8);
    impl AtomicU8 {
        pub(crate) fn new(v: u8) -> Self {
            AtomicU8(std::sync::atomic::AtomicU8::new(v))
        }
        pub(crate) fn load(&self, o: Ordering) -> u8 {
            self.0.load(o)
        }
        pub(crate) fn store(&self, v: u8, o: Ordering) {
            self.0.store(v, o)
        }
        pub(crate) fn compare_exchange(&self, a: u8, b: u8, x: Ordering, y: Ordering) -> Result<u8, u8> {
            if let Some(hook) = BEFORE_SWAP.with(|h| h.borrow_mut().take()) {
                hook();
            }
            self.0.compare_exchange(a, b, x, y)
        }
    }
}
use segment::*;

fn closed_with_one() -> &'static Segment {
    let s: &'static Segment = Box::leak(Box::new(Segment::default()));
    s.set_state(OPEN);
    s.begin();
    s.written();
    s.set_state(CLOSED);
    s
}

#[test]
fn try_free_frees_a_later_life() {
    let s = closed_with_one();
    assert!(s.ended(1).nobody());
    sync::BEFORE_SWAP.with(|h| {
        *h.borrow_mut() = Some(Box::new(move || {
            // Meanwhile, others: maintenance seals and frees it, a writer takes it, fills it, closes it.
            assert!(s.begin_seal());
            s.sealed();
            assert!(s.try_free());
            s.set_state(OPEN);
            s.begin();
            s.written();
            s.set_state(CLOSED);
        }))
    });
    assert!(!s.try_free(), "freed with {} live record(s)", s.live());
}

#[test]
fn begin_seal_seals_a_later_life_with_records_in_flight() {
    let s = closed_with_one();
    sync::BEFORE_SWAP.with(|h| {
        *h.borrow_mut() = Some(Box::new(move || {
            assert!(s.ended(1).nobody() && s.try_free());
            s.set_state(OPEN);
            s.begin();
            s.set_state(CLOSED);
        }))
    });
    assert!(!s.begin_seal(), "sealing with {} record(s) in flight", s.in_flight());
}
