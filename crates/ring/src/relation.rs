//! Which timestamps are sane: the relation of ticks and arrival time, learned from what the sources offer.
//!
//! ```text
//! offset = timestamp − ticks of the clock at arrival        (wrapping; one per put)
//! relation of a run = one offset; |offset − relation| ≤ max_skew is sane, the rest is refused
//! ```
//!
//! *Rule*: The first put of a run gives its relation, or confirms that of the run before. Each source has one vote, its
//! last offset. The relation follows the median of the votes that are sane. A put that is not sane is refused, unless
//! more than half of the run's sources have each said, three times in a row, what it says: then the first was insane, or
//! the timing system was started again, and the relation moves there. Where it is half and half, the relation of the run before
//! decides, then the first. So one source can never move the relation of several; the source of a ring with one moves
//! it by insisting; a change of run lets a new relation in at once.
//!
//! *Invariants*: a refused put changes nothing but its source's vote; a source is sane again with its first sane put
//! (tests/ring/skew.rs).

use super::limits::{RELATIONS_MAX, STREAK_MIN};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bits after the point of a number of ticks per nanosecond: 7 before it and 64 of time leave room for one more.
const TICK_BITS: u32 = 56;

/// What a source said last. Written under the source's lock.
#[derive(Debug, Default)]
pub(super) struct Vote {
    offset: AtomicU64,
    /// Run, and how often in a row it said about the same; 0 before its first word.
    run: AtomicU32,
    streak: AtomicU32,
}

/// A relation as a source remembers it, to see without a lock that nothing changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    version: u32,
    run: u32,
    offset: u64,
}

#[derive(Clone, Copy, Debug)]
struct Relation {
    run: u32,
    offset: u64,
}

/// The relations of the last runs, newest first.
#[derive(Debug)]
pub(super) struct Relations {
    /// Ticks per nanosecond, with 56 bits after the point: exact to a second in two years also of a clock of 1 Hz.
    ticks_per_ns: u128,
    skew_max: u64,
    version: AtomicU32,
    list: Mutex<Vec<Relation>>,
}

#[inline]
fn apart(one: u64, other: u64) -> u64 {
    (one.wrapping_sub(other) as i64).unsigned_abs()
}

impl Vote {
    #[inline]
    fn cast(&self, run: u32, offset: u64, skew_max: u64) {
        debug_assert!(self.streak.load(Ordering::Relaxed) <= STREAK_MIN, "a streak is counted to its minimum only");
        // Relaxed: a vote is written under its source's lock, and one that is read a moment late is counted with the next put.
        let streak = self.streak.load(Ordering::Relaxed);
        let before = self.offset.load(Ordering::Relaxed);
        let same = streak > 0 && self.run.load(Ordering::Relaxed) == run && apart(before, offset) <= skew_max;
        self.offset.store(offset, Ordering::Relaxed);
        if !same {
            self.run.store(run, Ordering::Relaxed);
            self.streak.store(1, Ordering::Relaxed);
        } else if streak < STREAK_MIN {
            self.streak.store(streak + 1, Ordering::Relaxed);
        }
    }

    fn said(&self, run: u32) -> Option<(u64, u32)> {
        let streak = self.streak.load(Ordering::Relaxed);
        (streak > 0 && self.run.load(Ordering::Relaxed) == run).then(|| (self.offset.load(Ordering::Relaxed), streak))
    }
}

impl Relations {
    pub(super) fn new(ticks_per_second: u64, skew_max: u64) -> Relations {
        Relations {
            ticks_per_ns: (u128::from(ticks_per_second) << TICK_BITS) / 1_000_000_000,
            skew_max,
            version: AtomicU32::new(1),
            list: Mutex::new(Vec::with_capacity(RELATIONS_MAX + 1)),
        }
    }

    /// Ticks that the detector's clock makes in this time.
    #[inline]
    pub(super) fn ticks(&self, ns: u64) -> u64 {
        ((u128::from(ns) * self.ticks_per_ns) >> TICK_BITS) as u64
    }

    /// Whether a timestamp is sane; its source has said it in either case. Under the source's lock.
    #[inline]
    pub(super) fn judge<'a, V: Iterator<Item = &'a Vote>>(
        &self,
        known: &mut Known,
        vote: &Vote,
        votes: impl Fn() -> V,
        run: u32,
        timestamp: u64,
        now_ns: u64,
    ) -> bool {
        // Wrapping throughout: only differences of offsets mean anything, and clocks may begin anywhere in 64 bits.
        let offset = timestamp.wrapping_sub(self.ticks(now_ns));
        // Without the lock of the list, as long as the relation is the one that this source knows: nearly every put.
        let fresh = known.version == self.version.load(Ordering::Acquire) && known.run == run;
        if fresh && apart(known.offset, offset) <= self.skew_max {
            vote.cast(run, offset, self.skew_max);
            return true;
        }
        self.judge_slowly(known, vote, votes, run, offset)
    }

    #[cold]
    fn judge_slowly<'a, V: Iterator<Item = &'a Vote>>(
        &self,
        known: &mut Known,
        vote: &Vote,
        votes: impl Fn() -> V,
        run: u32,
        offset: u64,
    ) -> bool {
        // The last lock of the order: held by a put under its source's lock, a few times in the life of a run.
        let mut list = self.list.lock();
        let at = match list.iter().position(|relation| relation.run == run) {
            Some(at) => at,
            None => {
                let confirmed = list.first().filter(|before| apart(before.offset, offset) <= self.skew_max);
                let offset = confirmed.map_or(offset, |before| before.offset);
                // Newest first: the relation of the run before is the next one, and decides where votes are half and half.
                list.insert(0, Relation { run, offset });
                list.truncate(RELATIONS_MAX);
                self.version.fetch_add(1, Ordering::Release);
                0
            }
        };
        let mut sane = apart(list[at].offset, offset) <= self.skew_max;
        if !sane && let Some(median) = self.median(&list[at], votes()) {
            // What all of them said before, this source included: a steady drift is not a jump.
            list[at].offset = median;
            self.version.fetch_add(1, Ordering::Release);
            sane = apart(median, offset) <= self.skew_max;
        }
        // Cast before the votes are counted: this source is one of the majority that it may complete.
        vote.cast(run, offset, self.skew_max);
        if !sane && self.outvoted(&list, at, votes(), offset) {
            list[at].offset = offset;
            self.version.fetch_add(1, Ordering::Release);
            sane = true;
        }
        *known = Known { version: self.version.load(Ordering::Acquire), run, offset: list[at].offset };
        sane
    }

    /// Whether this offset has the majority of the run's sources behind it.
    fn outvoted<'a>(&self, list: &[Relation], at: usize, votes: impl Iterator<Item = &'a Vote>, offset: u64) -> bool {
        let (mut voters, mut agree) = (0, 0);
        for (said, streak) in votes.filter_map(|vote| vote.said(list[at].run)) {
            voters += 1;
            agree += usize::from(streak >= STREAK_MIN && apart(said, offset) <= self.skew_max);
        }
        let before = list.get(at + 1).is_some_and(|before| apart(before.offset, offset) <= self.skew_max);
        // More than half, or exactly half with the run before: two clocks of equal following would otherwise move the relation
        // back and forth with every put.
        agree > 0 && agree * 2 + usize::from(before) > voters
    }

    /// The median of the sane votes, where it is another than the relation.
    fn median<'a>(&self, relation: &Relation, votes: impl Iterator<Item = &'a Vote>) -> Option<u64> {
        let said = votes.filter_map(|vote| vote.said(relation.run)).map(|(offset, _)| offset);
        let near = said.filter(|offset| apart(*offset, relation.offset) <= self.skew_max);
        let mut drifts: Vec<i64> = near.map(|offset| offset.wrapping_sub(relation.offset) as i64).collect();
        let middle = drifts.len().checked_sub(1)? / 2;
        // The median, not the mean: one source that is off by nearly `max_skew` moves it by nothing.
        let drift = *drifts.select_nth_unstable(middle).1;
        (drift != 0).then(|| relation.offset.wrapping_add(drift as u64))
    }

    /// Follows the slow drift of two clocks; from maintenance. Small steps wait: each one costs every source a look.
    pub(super) fn drift<'a>(&self, votes: impl Iterator<Item = &'a Vote>) {
        let mut list = self.list.lock();
        let Some(newest) = list.first_mut() else { return };
        if let Some(median) = self.median(newest, votes)
            // A sixteenth: far from refusing anybody, and rare enough that sources seldom take the lock for it.
            && apart(median, newest.offset) > self.skew_max / 16
        {
            newest.offset = median;
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// The tick that is expected now, once there is a relation.
    pub(super) fn expected(&self, now_ns: u64) -> Option<u64> {
        self.list.lock().first().map(|relation| relation.offset.wrapping_add(self.ticks(now_ns)))
    }

    /// Whether a tick lies further ahead than any sane timestamp of this moment. For a source that was just judged.
    #[inline]
    pub(super) fn is_ahead(&self, known: &Known, tick: u64, now_ns: u64) -> bool {
        let expected = known.offset.wrapping_add(self.ticks(now_ns));
        tick > expected && tick - expected > self.skew_max
    }

    /// How far a source's last word lies from the relation of its run.
    pub(super) fn skew(&self, vote: &Vote) -> i64 {
        let run = vote.run.load(Ordering::Relaxed);
        let list = self.list.lock();
        let relation = list.iter().find(|relation| relation.run == run);
        match (relation, vote.said(run)) {
            (Some(relation), Some((offset, _))) => offset.wrapping_sub(relation.offset) as i64,
            _ => 0,
        }
    }
}
