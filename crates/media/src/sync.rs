//! Tools for threads that wait: deadlines, and the atomics of the protocol that pins and reclaims segments (loom's
//! where its model checker runs).

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::thread::yield_now;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::thread::yield_now;

use parking_lot::{Condvar, MutexGuard};
use std::time::{Duration, Instant};

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
