//! The clock of a simulated node: the simulator's time, at a rate of its own; a calendar that jumps.
//!
//! *Invariant*: nothing waits by it: a call that would block is told that its deadline is over.

use forebay_core::{Clock, Timer};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// The calendar at the beginning of each simulation, in milliseconds since 1970.
const BEGIN_MS: i64 = 1_700_000_000_000;

/// Time as one node sees it.
pub(crate) struct NodeClock {
    start: tokio::time::Instant,
    /// How much faster it goes than the simulator's, in millionths.
    rate_ppm: i64,
    /// Steps of the calendar so far, in milliseconds.
    stepped_ms: AtomicI64,
}

impl NodeClock {
    pub(crate) fn new(rate_ppm: i64) -> NodeClock {
        NodeClock { start: tokio::time::Instant::now(), rate_ppm, stepped_ms: 0.into() }
    }

    /// The calendar jumps.
    pub(crate) fn step(&self, by_ms: i64) {
        self.stepped_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    fn passed_ns(&self) -> u64 {
        let passed = self.start.elapsed().as_nanos() as i128;
        (passed + passed * i128::from(self.rate_ppm) / 1_000_000) as u64
    }
}

impl Clock for NodeClock {
    fn now_ns(&self) -> u64 {
        self.passed_ns()
    }

    fn timer(&self) -> &dyn Timer {
        self
    }

    fn wall_ms(&self) -> u64 {
        (BEGIN_MS + (self.passed_ns() / 1_000_000) as i64 + self.stepped_ms.load(Ordering::Relaxed)) as u64
    }
}

impl Timer for NodeClock {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn block_at_most(&self, _: Instant) -> Option<Duration> {
        None
    }
}
