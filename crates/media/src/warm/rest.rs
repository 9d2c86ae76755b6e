//! The rest of a device that fails whatever is begun on it.
//!
//! A container that failed takes nothing before the next life (decision 0011). A device that is away for a few seconds would use up
//! all of its containers like that, one after the other, and with them the level: so it is given time.

use std::time::{Duration, Instant};

/// How often in a row a device failed containers in which nothing was durable yet, and until when nothing is begun on it.
#[derive(Debug, Default)]
pub(super) struct Rest {
    failed: u32,
    until: Option<Instant>,
}

impl Rest {
    /// The first one, doubled with each failure, up to the longest.
    const FIRST: Duration = Duration::from_secs(1);
    pub(super) const LONGEST: Duration = Duration::from_secs(64);

    /// A container failed in which nothing was durable. The first one in a row may be a bad place on a good device.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.failed > 0 {
            let time = Rest::FIRST.saturating_mul(1 << (self.failed - 1).min(31)).min(Rest::LONGEST);
            self.until = Some(now + time);
        }
        self.failed += 1;
    }

    /// Something became durable.
    pub(super) fn end(&mut self) {
        *self = Rest::default();
    }

    pub(super) fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}
