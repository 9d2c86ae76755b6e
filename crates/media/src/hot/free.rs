//! Free segments: which one is taken next, how many there are, and the threads that wait for one.
//!
//! *Invariants*: no segment is in the list twice (asserted in `add`); the count is that of the list after each change.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest sleep of a thread that waits for space.
const LOOK: Duration = Duration::from_millis(10);

/// See the module.
pub(super) struct FreeSegments {
    /// Guards nothing but itself; no other lock is taken under it.
    list: Mutex<VecDeque<u32>>,
    /// Length of the list, for those who ask without its lock.
    count: AtomicU32,
    waiters: AtomicU32,
    freed: Condvar,
    /// The order that the next taken segment gets.
    next_order: AtomicU64,
}

impl FreeSegments {
    pub(super) fn new() -> FreeSegments {
        FreeSegments {
            list: Mutex::new(VecDeque::new()),
            count: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            freed: Condvar::new(),
            // 0 is the order of a segment that was never taken.
            next_order: AtomicU64::new(1),
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes the segment that has been free for longest, where more than `reserve` are; its number, and its order.
    pub(super) fn take(&self, reserve: u32) -> Option<(u32, u64)> {
        // The reserve is computed before the lock: the counters that it comes from change meanwhile in any case.
        let mut list = self.list.lock();
        if list.len() <= reserve as usize {
            return None;
        }
        let number = list.pop_front()?;
        self.count.store(list.len() as u32, Ordering::Relaxed);
        Some((number, self.next_order.fetch_add(1, Ordering::Relaxed)))
    }

    pub(super) fn add(&self, number: u32) {
        let mut list = self.list.lock();
        debug_assert!(!list.contains(&number), "segment {number} is freed twice");
        list.push_back(number);
        self.count.store(list.len() as u32, Ordering::Relaxed);
        // Counted under the same lock: a waiter is seen here, or it has not looked at the list yet.
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.freed.notify_all();
        }
    }

    /// Waits until more than `reserve` segments are free, at most to `deadline`; `false` at the deadline.
    pub(super) fn wait(&self, reserve: impl Fn() -> u32, deadline: Instant) -> bool {
        let mut list = self.list.lock();
        self.waiters.fetch_add(1, Ordering::SeqCst);
        // Reserves shrink without a notice as events are decided: look again now and then.
        let admitted = loop {
            if list.len() as u32 > reserve() {
                break true;
            }
            let now = Instant::now();
            if now >= deadline {
                break false;
            }
            self.freed.wait_for(&mut list, (deadline - now).min(LOOK));
        };
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        admitted
    }

    /// The next taken segment gets the order after this one.
    pub(super) fn continue_order(&self, after: u64) {
        self.next_order.store(after.saturating_add(1), Ordering::Relaxed);
    }
}
