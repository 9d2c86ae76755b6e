//! Waits of the store: each asks the timer of the store's clock, and blocks here and nowhere else.
//!
//! *Invariants*: nothing in this crate reads the machine's time or blocks for a time by itself: `clippy.toml` forbids it.
//! Who waits looks again after each return: a timer that somebody moves is asked every millisecond.
//!
//! *Not here*: waits for devices, which are of hardware and go by the machine's time (`forebay_media::sync`).

use forebay_core::{Clock, Timer};
use forebay_media::sync::{Bell, after};
use parking_lot::{Condvar, MutexGuard};
use std::time::{Duration, Instant};

/// A deadline so long from now on.
pub(crate) fn deadline_after(timer: &dyn Timer, wait: Duration) -> Instant {
    after(timer.now(), wait)
}

/// Waits for a notice; whether the deadline is over. It may return earlier, without either.
pub(crate) fn wait<T>(timer: &dyn Timer, notice: &Condvar, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> bool {
    let Some(most) = timer.block_at_most(deadline) else { return true };
    block(notice, guard, most);
    timer.now() >= deadline
}

/// Blocks until a notice, at most so long.
#[expect(clippy::disallowed_methods, reason = "the one place: its callers have asked the timer")]
pub(crate) fn block<T>(notice: &Condvar, guard: &mut MutexGuard<'_, T>, most: Duration) {
    notice.wait_for(guard, most);
}

/// A moment for another thread, whose work a caller looks at again and again; `false` if the deadline is over. What others do
/// goes on where the timer stands still, so the moment is of the machine's time.
pub(crate) fn poll(timer: &dyn Timer, every: Duration, deadline: Instant) -> bool {
    let most = timer.block_at_most(deadline);
    most.into_iter().for_each(|most| nap(most.min(every)));
    most.is_some()
}

/// Sleeps to the deadline.
pub(crate) fn sleep(timer: &dyn Timer, deadline: Instant) {
    while let Some(most) = timer.block_at_most(deadline) {
        nap(most);
    }
}

/// Sleeps to a moment of the clock, or until somebody rings.
pub(crate) fn sleep_to_ring(clock: &dyn Clock, to_ns: u64, bell: &Bell) {
    while let Some(most) = clock.block_at_most(to_ns)
        && !bell.wait(most)
    {}
}

/// A pause of a thread of the store, which ends early where `goes_on` says so: the time may stand still.
pub(crate) fn pause(clock: &dyn Clock, pause: Duration, goes_on: impl Fn() -> bool) {
    let timer = clock.timer();
    let deadline = deadline_after(timer, pause);
    while let Some(most) = timer.block_at_most(deadline)
        && goes_on()
    {
        nap(most);
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place: its callers have asked the timer")]
fn nap(most: Duration) {
    std::thread::sleep(most);
}
