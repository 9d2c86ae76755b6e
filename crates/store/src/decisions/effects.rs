//! Calls between the record of a decision and the last of its effects, and the wait for those that had begun.
//!
//! ```text
//! begin ─▶ record ─▶ effects ─▶ (guard dropped)          settled: two turns of the page, each waits for the one before
//! ```
//!
//! *Invariants*: `settled` returns only after every guard that was there when it was called is dropped; nobody waits to
//! begin (loom model below; test `who_begins_later_is_not_waited_for`).
//!
//! *Not here*: what is decided (`calls`), what waits (`upkeep/snapshot.rs`).

use forebay_media::sync::{AtomicU64, Ordering, yield_now};
use parking_lot::Mutex;

/// Counters of two pages: calls enter on the current one, and a turn makes the other one current.
pub(crate) struct Effects {
    page: AtomicU64,
    under_way: [AtomicU64; 2],
    /// One waits at a time.
    waiting: Mutex<()>,
}

/// Effects under way, until it is dropped.
pub(crate) struct EffectsGuard<'a> {
    counter: &'a AtomicU64,
}

impl Effects {
    pub(crate) fn new() -> Effects {
        Effects { page: AtomicU64::new(0), under_way: [AtomicU64::new(0), AtomicU64::new(0)], waiting: Mutex::new(()) }
    }

    /// A call begins; never waits. Calls may be nested.
    #[inline]
    pub(crate) fn begin(&self) -> EffectsGuard<'_> {
        // SeqCst: a record that a snapshot saw was entered here before it. With weaker orderings this count could become visible
        // after the record, and `settled` would miss it.
        let page = self.page.load(Ordering::SeqCst) as usize % 2;
        let counter = &self.under_way[page];
        counter.fetch_add(1, Ordering::SeqCst);
        EffectsGuard { counter }
    }

    /// Returns once all calls that had begun have ended. A caller that has a guard itself would wait forever.
    pub(crate) fn settled(&self) {
        // Two that turned pages at once would each wait on a page that the other keeps busy.
        let _one_at_a_time = self.waiting.lock();
        // One that read the page just before a turn may enter after it: the second turn waits for those.
        for _ in 0..2 {
            let page = self.page.fetch_add(1, Ordering::SeqCst) as usize % 2;
            // New calls enter on the other page: this one empties, however many of them come.
            while self.under_way[page].load(Ordering::SeqCst) != 0 {
                yield_now();
            }
        }
    }
}

impl Drop for EffectsGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: the thread that sees the counter at zero sees the effects too, and may free the slot that recorded them.
        let before = self.counter.fetch_sub(1, Ordering::Release);
        debug_assert!(before > 0, "what ends has begun");
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn who_begins_later_is_not_waited_for() {
        let effects = Effects::new();
        drop(effects.begin());
        effects.settled();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                // There is always one under way, on one page or the other.
                scope.spawn(|| {
                    let mut held = effects.begin();
                    while !stop.load(Ordering::Relaxed) {
                        held = effects.begin();
                    }
                    drop(held);
                });
            }
            (0..1000).for_each(|_| effects.settled());
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[cfg(all(test, feature = "loom"))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn loom_effects_that_had_begun_are_over() {
        loom::model(|| {
            let effects = Arc::new(Effects::new());
            let recorded = Arc::new(AtomicU64::new(0));
            let done = Arc::new(AtomicU64::new(0));
            let caller = {
                let (effects, recorded, done) = (effects.clone(), recorded.clone(), done.clone());
                thread::spawn(move || {
                    let guard = effects.begin();
                    recorded.store(1, Ordering::SeqCst);
                    done.store(1, Ordering::Relaxed);
                    drop(guard);
                })
            };
            let seen = recorded.load(Ordering::SeqCst);
            effects.settled();
            assert!(seen == 0 || done.load(Ordering::Acquire) == 1, "a record that was seen has its effects");
            caller.join().unwrap();
        });
    }
}
