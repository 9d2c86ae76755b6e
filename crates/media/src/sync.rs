//! Tools for threads that wait: deadlines, and the atomics of the protocol that pins and reclaims segments (loom's
//! where its model checker runs).

#[cfg(not(feature = "loom"))]
pub use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(feature = "loom"))]
pub use std::thread::yield_now;

#[cfg(feature = "loom")]
pub use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(feature = "loom")]
pub use loom::thread::yield_now;

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Wakes the one thread that keeps a store, where something happened that it has to see.
///
/// *Invariants*: a ring is never lost: it stays until the thread takes it, also one that comes while the thread is at work.
#[derive(Debug, Default)]
pub struct Bell {
    // Not loom's: the bell is no part of the protocol that loom checks, and its models make one for each level.
    rung: std::sync::atomic::AtomicBool,
    /// Held by the thread between its look at the flag and its wait. No other lock is taken under it.
    lock: Mutex<()>,
    notice: Condvar,
}

impl Bell {
    /// Something happened. Costs one load where it rang before and nobody has come yet.
    #[inline]
    pub fn ring(&self) {
        // SeqCst: what happened is written before, and who takes the ring sees it.
        if !self.rung.load(Ordering::SeqCst) {
            self.ring_now();
        }
    }

    #[cold]
    fn ring_now(&self) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            // The thread has not looked at the flag yet, or it waits: the notice does not fall in between.
            drop(self.lock.lock());
            self.notice.notify_one();
        }
    }

    /// Whether it rang since the last [`Bell::take`].
    pub fn is_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    /// The thread comes: what happens from here on rings again. Called before it looks at anything.
    pub fn take(&self) {
        self.rung.swap(false, Ordering::SeqCst);
    }

    /// Blocks until it rings, at most so long; whether it rang.
    pub fn wait(&self, most: Duration) -> bool {
        let mut guard = self.lock.lock();
        if !self.is_rung() {
            self.notice.wait_for(&mut guard, most);
        }
        self.is_rung()
    }
}

/// A deadline on the machine's clock: hardware is waited for in real time, also where a test moves the store's time by hand.
pub fn deadline_after(wait: Duration) -> Instant {
    after(Instant::now(), wait)
}

/// The moment so long after another one.
pub fn after(moment: Instant, wait: Duration) -> Instant {
    // A wait of "for ever" overflows the clock: a year is as long, and every wait has a deadline.
    moment.checked_add(wait).unwrap_or_else(|| moment + Duration::from_secs(365 * 24 * 3600))
}

/// Whether a deadline on the machine's clock is over.
pub fn is_over(deadline: Instant) -> bool {
    Instant::now() >= deadline
}

/// Waits for a notice about a device; whether the deadline, on the machine's clock, is over.
pub fn wait_for_device<T>(notice: &Condvar, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> bool {
    notice.wait_until(guard, deadline).timed_out()
}

/// Parks the thread that keeps a device, until it is woken or the pause is over.
pub fn park_keeper(pause: Duration) {
    std::thread::park_timeout(pause);
}
