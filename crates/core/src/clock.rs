//! Time as the engine sees it, from traits so that a test or a simulator can be the time.
//!
//! ```text
//! Clock   how old things are: leases, events, holds          nanoseconds, read by many calls
//! Timer   when a thread that waits gives up, and pauses       read by calls that wait, and by nobody else
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A monotonic clock. The token decides, never the clock: clocks only end waits and expire leases.
pub trait Clock: Send + Sync {
    /// Nanoseconds since a fixed but arbitrary start.
    fn now_ns(&self) -> u64;

    /// What waits end by: the machine's time, also where a test moves the ages of things by hand.
    fn timer(&self) -> &dyn Timer {
        &MachineTimer
    }

    /// How long a thread that waits for `until_ns` of this clock may block before it asks again; `None` once that moment is
    /// over. A thread blocks on the machine's time, so a clock that somebody else moves answers with little.
    fn block_at_most(&self, until_ns: u64) -> Option<Duration> {
        let left_ns = until_ns.saturating_sub(self.now_ns());
        (left_ns > 0).then(|| Duration::from_nanos(left_ns))
    }

    /// Milliseconds since 1970 by the machine's calendar: for what goes on over restarts, such as custody. May jump.
    fn wall_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_millis().max(1) as u64)
    }
}

/// What waits end by.
pub trait Timer: Send + Sync {
    /// Now, for deadlines.
    fn now(&self) -> Instant;

    /// How long a thread that waits to `deadline` may block before it asks again; `None` once the deadline is over. A thread
    /// blocks on the machine's time, so a timer that somebody else moves answers with little.
    fn block_at_most(&self, deadline: Instant) -> Option<Duration>;
}

/// The machine's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineTimer;

impl Timer for MachineTimer {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn block_at_most(&self, deadline: Instant) -> Option<Duration> {
        Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }
}

/// The machine's monotonic clock.
#[derive(Debug)]
pub struct MonotonicClock {
    start: Instant,
}

impl Default for MonotonicClock {
    fn default() -> Self {
        MonotonicClock { start: Instant::now() }
    }
}

impl Clock for MonotonicClock {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// How long a thread blocks before it looks whether the time was moved.
const LOOK: Duration = Duration::from_millis(1);

/// A clock that a test moves by hand. Waits end by the machine's time: see [`ManualTime`].
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ns: AtomicU64,
}

impl ManualClock {
    /// Moves the clock forward by `ns`.
    pub fn advance_ns(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }

    fn block_at_most(&self, until_ns: u64) -> Option<Duration> {
        (self.now_ns() < until_ns).then_some(LOOK)
    }
}

/// Time of which nothing passes by itself: ages, deadlines and pauses are over once somebody moves it there.
#[derive(Debug)]
pub struct ManualTime {
    start: Instant,
    clock: ManualClock,
}

impl Default for ManualTime {
    fn default() -> Self {
        ManualTime { start: Instant::now(), clock: ManualClock::default() }
    }
}

impl ManualTime {
    /// Moves the time forward.
    pub fn advance(&self, by: Duration) {
        self.clock.advance_ns(nanoseconds(by));
    }
}

impl Clock for ManualTime {
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn block_at_most(&self, until_ns: u64) -> Option<Duration> {
        self.clock.block_at_most(until_ns)
    }

    fn timer(&self) -> &dyn Timer {
        self
    }
}

impl Timer for ManualTime {
    fn now(&self) -> Instant {
        self.start + Duration::from_nanos(self.clock.now_ns())
    }

    fn block_at_most(&self, deadline: Instant) -> Option<Duration> {
        (self.now() < deadline).then_some(LOOK)
    }
}

/// A duration in nanoseconds, at most what 64 bits hold.
pub fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
