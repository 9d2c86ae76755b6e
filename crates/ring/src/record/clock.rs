//! What time it is for the ticks of a recording.
//!
//! A ring knows its time from the puts of this life: not before the first one, and another one after a timing system was
//! started again. The ticks of a recording are of the clock that it began with, so their time goes on by itself.
//!
//! *Invariants*: a tick that is due once is due for good; the wait for any tick ends (tests below).

use forebay_core::{Result, RingKeyspace, RingStore};
use std::time::{Duration, Instant};

/// A bound for sums of time.
pub(super) const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A tick, and when it was there.
pub(super) struct TickClock {
    tick: u64,
    at: Instant,
    ticks_per_second: u64,
    skew: u64,
}

impl TickClock {
    /// Begins with the ring's time; where nothing was put since its opening, with the newest tick that it has. What it has of
    /// `[begin, end)` is over as well: those ticks may be of an earlier clock than the one that it goes by now.
    pub(super) fn of<R: RingStore>(ring: &R, begin: u64, end: u64) -> Result<TickClock> {
        let said = match ring.now()? {
            Some(now) => Some(now),
            None => ring.sources()?.into_iter().filter_map(|status| status.newest).max(),
        };
        let chunks = ring.chunks()?.into_iter().filter(|chunk| chunk.begin < end && begin < chunk.end);
        let there = chunks.map(|chunk| chunk.end.min(end)).max();
        Ok(TickClock::new(ring.keyspace(), said.max(there).unwrap_or(begin), Instant::now()))
    }

    fn new(keyspace: &RingKeyspace, tick: u64, at: Instant) -> TickClock {
        let (ticks_per_second, skew) = (keyspace.ticks_per_second.max(1), keyspace.ticks(keyspace.max_skew));
        TickClock { tick, at, ticks_per_second, skew }
    }

    /// What the ring says. Followed as long as it is the same clock: two that run side by side drift apart.
    pub(super) fn follow(&mut self, said: Option<u64>, at: Instant) {
        if let Some(tick) = said.filter(|&tick| self.since(tick, at).unsigned_abs() <= u128::from(self.skew)) {
            (self.tick, self.at) = (tick, at);
        }
    }

    /// Whether a tick, and this time beyond it, are over.
    pub(super) fn is_past(&self, tick: u64, patience: Duration, at: Instant) -> bool {
        self.since(tick, at) >= self.ticks(patience)
    }

    /// When a tick will be over.
    pub(super) fn due(&self, tick: u64) -> Instant {
        let ns = u128::from(tick.saturating_sub(self.tick)) * 1_000_000_000 / u128::from(self.ticks_per_second);
        self.at + Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)).min(YEAR)
    }

    /// Ticks from `tick` to this moment. Wider than a tick: the time after the last of 64 bits comes as well.
    fn since(&self, tick: u64, at: Instant) -> i128 {
        i128::from(self.tick) - i128::from(tick) + self.ticks(at.saturating_duration_since(self.at))
    }

    fn ticks(&self, time: Duration) -> i128 {
        let ticks = time.min(YEAR).as_nanos() * u128::from(self.ticks_per_second) / 1_000_000_000;
        i128::try_from(ticks).unwrap_or(i128::MAX / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const TICKS: u64 = 62_500_000;

    fn clock(tick: u64) -> TickClock {
        let keyspace = RingKeyspace { max_skew: SECOND, ..RingKeyspace::wibeth("clock", 1).unwrap() };
        TickClock::new(&keyspace, tick, Instant::now())
    }

    #[test]
    fn ticks_become_due_without_a_word_of_the_ring() {
        let clock = clock(1 << 40);
        let end = (1 << 40) + 90 * TICKS;
        assert_eq!(clock.due(end), clock.at + 90 * SECOND);
        assert!(!clock.is_past(end, SECOND, clock.at + 90 * SECOND));
        assert!(clock.is_past(end, SECOND, clock.at + 91 * SECOND));
        assert!(clock.is_past(1 << 40, Duration::ZERO, clock.at));
    }

    #[test]
    fn a_ring_is_followed_until_its_clock_is_another_one() {
        let (mut slow, mut jumps) = (clock(1 << 40), clock(1 << 40));
        for second in 1..=10 {
            let at = slow.at + SECOND;
            // A tenth slower than declared, ten seconds long: more than the skew in all, less from one look to the next.
            slow.follow(Some((1 << 40) + second * TICKS * 9 / 10), at);
        }
        assert_eq!(slow.tick, (1 << 40) + 9 * TICKS);
        let start = jumps.at;
        for said in [None, Some(5), Some(u64::MAX), Some((1 << 40) - 3600 * TICKS)] {
            jumps.follow(said, start + 10 * SECOND);
            assert!(jumps.is_past((1 << 40) + 10 * TICKS, Duration::ZERO, start + 10 * SECOND), "{said:?}");
        }
    }

    #[test]
    fn the_last_ticks_before_a_wrap_are_over_after_it() {
        let mut clock = clock(u64::MAX - TICKS);
        let after = clock.at + 3 * SECOND;
        clock.follow(Some(2 * TICKS), after);
        assert!(clock.is_past(u64::MAX, SECOND, after));
        assert!(!clock.is_past(u64::MAX, Duration::MAX, after));
    }
}
