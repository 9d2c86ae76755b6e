//! A clock that jumps: the machine's monotonic one, moved forward where the chaos wants to see what time does.

use forebay_core::{Clock, MonotonicClock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The machine's monotonic clock, and the jumps so far.
#[derive(Debug, Default)]
pub(super) struct JumpingClock {
    machine: MonotonicClock,
    jumped_ns: AtomicU64,
}

impl JumpingClock {
    /// Moves the clock forward at once.
    pub(super) fn jump(&self, by: Duration) {
        self.jumped_ns.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for JumpingClock {
    fn now_ns(&self) -> u64 {
        self.machine.now_ns().saturating_add(self.jumped_ns.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_and_jumps() {
        let clock = JumpingClock::default();
        let before = clock.now_ns();
        clock.jump(Duration::from_secs(5));
        let after = clock.now_ns();
        assert!(after - before >= 5_000_000_000 && clock.now_ns() >= after);
    }
}
