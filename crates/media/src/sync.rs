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

use std::time::{Duration, Instant};

/// A deadline on the machine's clock: waits for space or other threads are real time even where a test moves the
/// store's clock by hand.
pub fn deadline_after(wait: Duration) -> Instant {
    let now = Instant::now();
    // A wait of "for ever" overflows the clock: a year is as long, and every wait has a deadline.
    now.checked_add(wait).unwrap_or_else(|| now + Duration::from_secs(365 * 24 * 3600))
}
