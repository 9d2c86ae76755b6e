//! The order of the store's locks, asserted where debug assertions are on.
//!
//! ```text
//! runs 1 ─▶ watched 2 ─▶ cells 3 (ascending) ─▶ holds, streams 4 ─▶ outputs 5 ─▶ recent verdicts 6 ─▶ logs, space
//! ```
//!
//! *Invariants*: a thread takes a lock only where it holds none of the same or a higher rank (cells: none of a higher
//! number); it waits for a device, or for another call, only where it holds none (`Owner::assert_free`).
//!
//! *Not here*: locks that are taken last and hold nothing up: the tail of a log, free segments, space of the warm level;
//! locks that come before all of these and are held over waits (list: ARCHITECTURE.md, *Lock order*).

use crate::limits::SHARDS;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

/// Ranks, in the order in which locks are taken.
pub(crate) const RUNS: u32 = 1 << 16;
pub(crate) const WATCHED: u32 = 2 << 16;
/// The cell's number is added.
pub(crate) const CELL: u32 = 3 << 16;
pub(crate) const NAMES: u32 = 4 << 16;
pub(crate) const OUTPUTS: u32 = 5 << 16;
pub(crate) const RECENT: u32 = 6 << 16;

// A thread takes them in this order, and there is room for the number of each cell between two ranks.
const _: () = assert!(RUNS < WATCHED && WATCHED < CELL && NAMES < OUTPUTS && OUTPUTS < RECENT);
const _: () = assert!(CELL + SHARDS as u32 <= NAMES, "the last cell comes before names");

/// The owner of locks: locks of several stores have no order among each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u32);

impl Owner {
    pub(crate) fn new() -> Owner {
        // Relaxed: nothing but the number's being its own matters.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Owner(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(debug_assertions)]
mod held {
    use super::Owner;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<(Owner, u32)>> = const { RefCell::new(Vec::new()) };
    }

    /// A thread that ends may have dropped its list already, and close a store after that: nothing is checked then.
    fn with(look: impl FnOnce(&mut Vec<(Owner, u32)>)) {
        let _ = HELD.try_with(|held| look(&mut held.borrow_mut()));
    }

    /// One lock that this thread holds.
    pub(crate) struct Held(Owner, u32);

    impl Held {
        pub(crate) fn take(owner: Owner, rank: u32) -> Held {
            with(|held| {
                let highest = held.iter().filter(|held| held.0 == owner).map(|held| held.1).max().unwrap_or(0);
                assert!(highest < rank, "a lock of rank {rank:#x} under one of {highest:#x}: see locks.rs");
                held.push((owner, rank));
            });
            Held(owner, rank)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            with(|held| {
                // Not always the last one taken: guards may be dropped in any order, only taking has one.
                let at = held.iter().rposition(|held| *held == (self.0, self.1));
                debug_assert!(at.is_some() || std::thread::panicking(), "a lock is let go by the thread that took it");
                if let Some(at) = at {
                    held.remove(at);
                }
            });
        }
    }

    impl Owner {
        pub(crate) fn assert_free(self) {
            with(|held| {
                assert!(held.iter().all(|held| held.0 != self), "waits under locks {held:x?}: see locks.rs");
            });
        }
    }
}

#[cfg(not(debug_assertions))]
mod held {
    use super::Owner;

    pub(crate) struct Held;

    impl Held {
        #[inline]
        pub(crate) fn take(_owner: Owner, _rank: u32) -> Held {
            Held
        }
    }

    impl Owner {
        #[inline]
        pub(crate) fn assert_free(self) {}
    }
}

use held::Held;

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

impl<T> Locked<MutexGuard<'_, T>> {
    /// Hands the lock directly to a waiting thread, if there is one. For loops that take the lock again at once.
    pub(crate) fn unlock_fair(self) {
        // An ordinary unlock lets the same thread win again: a snapshot would keep every verdict waiting until its end.
        MutexGuard::unlock_fair(self.guard);
    }
}

/// A mutex with a rank.
pub(crate) struct Ranked<T> {
    owner: Owner,
    rank: u32,
    inner: Mutex<T>,
}

impl<T> Ranked<T> {
    pub(crate) fn new(owner: Owner, rank: u32, value: T) -> Ranked<T> {
        Ranked { owner, rank, inner: Mutex::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Locked<MutexGuard<'_, T>> {
        // Checked before the wait: a wrong order is reported where it would otherwise be a deadlock.
        let held = Held::take(self.owner, self.rank);
        Locked { guard: self.inner.lock(), _held: held }
    }
}

/// A lock for many readers with a rank.
pub(crate) struct RankedRw<T> {
    owner: Owner,
    rank: u32,
    inner: RwLock<T>,
}

impl<T> RankedRw<T> {
    pub(crate) fn new(owner: Owner, rank: u32, value: T) -> RankedRw<T> {
        RankedRw { owner, rank, inner: RwLock::new(value) }
    }

    #[inline]
    pub(crate) fn read(&self) -> Locked<RwLockReadGuard<'_, T>> {
        let held = Held::take(self.owner, self.rank);
        Locked { guard: self.inner.read(), _held: held }
    }

    #[inline]
    pub(crate) fn write(&self) -> Locked<RwLockWriteGuard<'_, T>> {
        let held = Held::take(self.owner, self.rank);
        Locked { guard: self.inner.write(), _held: held }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "under one of")]
    fn a_lock_out_of_order_is_found() {
        let owner = Owner::new();
        let (first, second) = (Ranked::new(owner, RUNS, ()), Ranked::new(owner, RECENT, ()));
        let _late = second.lock();
        let _early = first.lock();
    }

    #[test]
    #[should_panic(expected = "waits under locks")]
    fn waiting_under_a_lock_is_found() {
        let owner = Owner::new();
        let lock = Ranked::new(owner, RUNS, ());
        let _held = lock.lock();
        owner.assert_free();
    }

    #[test]
    fn a_store_of_a_thread_local_closes_when_its_thread_ends() {
        struct Last(Ranked<()>);
        impl Drop for Last {
            fn drop(&mut self) {
                drop(self.0.lock());
                self.0.owner.assert_free();
            }
        }
        thread_local! { static LAST: Last = Last(Ranked::new(Owner::new(), RUNS, ())); }
        // Which of the two is dropped first depends on which was touched first.
        for held_first in [false, true] {
            std::thread::spawn(move || {
                if held_first {
                    Owner::new().assert_free();
                }
                LAST.with(|_| ());
                Owner::new().assert_free();
            })
            .join()
            .expect("no panic while the thread ends");
        }
    }
}
