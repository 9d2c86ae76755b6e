//! The order of the store's locks, asserted where debug assertions are on.
//!
//! ```text
//! runs 1 ─▶ watched 2 ─▶ cells 3 (ascending) ─▶ holds, streams, outputs 4 ─▶ recent verdicts 5 ─▶ logs, space
//! ```
//!
//! *Invariants*: a thread takes a lock only where it holds none of the same or a higher rank (cells: none of a higher
//! number); it waits for a device, or for another call, only where it holds none (`assert_free`).
//!
//! *Not here*: locks that are taken last and hold nothing up: the tail of a log, free segments, space of the warm level.

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::ops::{Deref, DerefMut};

/// Ranks, in the order in which locks are taken.
pub(crate) const RUNS: u32 = 1 << 16;
pub(crate) const WATCHED: u32 = 2 << 16;
/// The cell's number is added.
pub(crate) const CELL: u32 = 3 << 16;
pub(crate) const NAMES: u32 = 4 << 16;
pub(crate) const RECENT: u32 = 5 << 16;

#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    }

    /// One lock that this thread holds.
    pub(crate) struct Held(u32);

    impl Held {
        pub(crate) fn take(rank: u32) -> Held {
            HELD.with_borrow_mut(|held| {
                let highest = held.iter().max().copied().unwrap_or(0);
                assert!(highest < rank, "a lock of rank {rank:#x} under one of {highest:#x}: see locks.rs");
                held.push(rank);
            });
            Held(rank)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // A thread that ends may have dropped its list already.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|rank| *rank == self.0) {
                    held.remove(at);
                }
            });
        }
    }

    pub(crate) fn assert_free() {
        HELD.with_borrow(|held| assert!(held.is_empty(), "waits under locks {held:x?}: see locks.rs"));
    }
}

#[cfg(not(debug_assertions))]
mod held {
    pub(crate) struct Held;

    impl Held {
        #[inline]
        pub(crate) fn take(_rank: u32) -> Held {
            Held
        }
    }

    #[inline]
    pub(crate) fn assert_free() {}
}

use held::Held;
pub(crate) use held::assert_free;

/// A guard with its place in the order.
pub(crate) struct Locked<G> {
    guard: G,
    _held: Held,
}

impl<G: Deref> Deref for Locked<G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Locked<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// A mutex with a rank.
pub(crate) struct Ranked<T> {
    rank: u32,
    inner: Mutex<T>,
}

impl<T> Ranked<T> {
    pub(crate) fn new(rank: u32, value: T) -> Ranked<T> {
        Ranked { rank, inner: Mutex::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Locked<MutexGuard<'_, T>> {
        let held = Held::take(self.rank);
        Locked { guard: self.inner.lock(), _held: held }
    }
}

/// A lock for many readers with a rank.
pub(crate) struct RankedRw<T> {
    rank: u32,
    inner: RwLock<T>,
}

impl<T> RankedRw<T> {
    pub(crate) fn new(rank: u32, value: T) -> RankedRw<T> {
        RankedRw { rank, inner: RwLock::new(value) }
    }

    #[inline]
    pub(crate) fn read(&self) -> Locked<RwLockReadGuard<'_, T>> {
        let held = Held::take(self.rank);
        Locked { guard: self.inner.read(), _held: held }
    }

    #[inline]
    pub(crate) fn write(&self) -> Locked<RwLockWriteGuard<'_, T>> {
        let held = Held::take(self.rank);
        Locked { guard: self.inner.write(), _held: held }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "under one of")]
    fn a_lock_out_of_order_is_found() {
        let (first, second) = (Ranked::new(RUNS, ()), Ranked::new(RECENT, ()));
        let _late = second.lock();
        let _early = first.lock();
    }

    #[test]
    #[should_panic(expected = "waits under locks")]
    fn waiting_under_a_lock_is_found() {
        let lock = Ranked::new(RUNS, ());
        let _held = lock.lock();
        assert_free();
    }
}
