//! The account of ticks that no fragment covers.
//!
//! ```text
//!        low               head
//! ── Gone ─┼─ gaps, holes ───┼── NotYet ──▶
//! ```
//!
//! *Invariants*: stretches tile the window; neighbours differ (tests/ring/edges.rs, tests/ring/model.rs).

use super::limits::{GAPS_MAX, HOLES_MAX};
use super::{Coverage, Gap, Stretch};
use forebay_core::GapCause;

/// What a source knows of ticks, beside its fragments. It knows nothing again where its clock was started again (`restart`).
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    /// First tick that the source keeps or knows of.
    pub(super) low: u64,
    /// Tick after the newest one that arrived; `None` before the first.
    pub(super) head: Option<u64>,
    /// What became of ticks between the head and what arrives next.
    pub(super) pending: Option<GapCause>,
    /// Below this everything was evicted.
    gone: u64,
    /// Something was evicted, or left out with the last process: what lay before `low` is not known.
    has_evicted: bool,
    /// Evicted stretches above `low`: chunks before them are pinned. Sorted.
    holes: Vec<(u64, u64)>,
    /// Gaps whose cause is known, by their begin.
    gaps: Vec<Gap>,
}

impl Knowledge {
    /// Something arrived for these ticks, stored or refused.
    #[inline]
    pub(super) fn arrived(&mut self, begin: u64, end: u64) {
        match self.head {
            Some(head) => {
                if begin >= head
                    && let Some(cause) = self.pending.take()
                    && begin > head
                {
                    // Only now are both ends known: what was refused for its timestamp has none of its own.
                    self.enter(Gap { begin: head, end: begin, cause });
                }
                if end > head {
                    self.head = Some(end);
                }
                self.low = self.low.min(begin);
            }
            None => {
                self.head = Some(end);
                self.low = begin;
                self.pending = None;
            }
        }
    }

    /// Enters a gap with its cause.
    pub(super) fn enter(&mut self, gap: Gap) {
        if let Some(last) = self.gaps.last_mut()
            && last.cause == gap.cause
            && last.begin <= gap.begin
            && gap.begin <= last.end
        {
            last.end = last.end.max(gap.end);
            return;
        }
        // Bounded: a link that is refused for hours must not fill memory. The oldest loses its cause, not its place.
        if self.gaps.len() == GAPS_MAX {
            self.gaps.remove(0);
        }
        let at = self.gaps.partition_point(|other| other.begin <= gap.begin);
        self.gaps.insert(at, gap);
    }

    /// Whether these ticks were evicted: what comes for them now is too late.
    #[inline]
    pub(super) fn is_gone(&self, tick: u64) -> bool {
        tick < self.gone || self.hole_at(tick).is_some()
    }

    /// A chunk was evicted: these stretches, which its fragments covered; `kept` is the first tick of those that stay.
    /// What lies between the stretches never was there, however far apart a frame with a wrong time puts them.
    pub(super) fn evicted(&mut self, stretches: impl Iterator<Item = (u64, u64)>, kept: Option<u64>) {
        self.has_evicted = true;
        stretches.for_each(|(begin, end)| self.hole(begin, end));
        self.low = self.low.max(kept.or(self.head).unwrap_or(0));
        // Below the first tick that is kept everything is gone: holes there need no list.
        let low = self.low;
        let below = self.holes.partition_point(|hole| hole.1 <= low);
        if let Some(last) = self.holes.drain(..below).next_back() {
            self.gone = self.gone.max(last.1);
        }
        self.gaps.retain(|gap| gap.end > low);
    }

    /// Enters an evicted stretch.
    fn hole(&mut self, begin: u64, end: u64) {
        let at = self.holes.partition_point(|hole| hole.1 < begin);
        let mut joined = (begin, end);
        while let Some(&hole) = self.holes.get(at)
            && hole.0 <= joined.1
        {
            joined = (joined.0.min(hole.0), joined.1.max(hole.1));
            self.holes.remove(at);
        }
        self.holes.insert(at, joined);
        debug_assert!(self.holes.windows(2).all(|pair| pair[0].1 < pair[1].0), "holes meet or are out of order");
        // Past the bound the two closest are joined: ticks between them then read as gone, which costs the fewest.
        if self.holes.len() > HOLES_MAX {
            let apart = |at: &usize| self.holes[at + 1].0 - self.holes[*at].1;
            if let Some(closest) = (0..HOLES_MAX).min_by_key(apart) {
                let next = self.holes.remove(closest + 1);
                self.holes[closest].1 = next.1;
            }
        }
    }

    /// Everything that the last process left is there. Which ticks were evicted is not recorded: where anything was,
    /// nothing older than what is kept comes back, neither as a gap nor as data that is counted twice.
    pub(super) fn found_again(&mut self, has_evicted: bool) {
        // From the newest tick that was found up to the first that arrives: only then is the end of the gap known.
        self.pending = Some(GapCause::Restart);
        self.has_evicted |= has_evicted;
        // Fail closed: a late frame of evicted ticks would be taken in and counted although it had been counted as expired.
        if has_evicted {
            self.gone = self.low;
        }
    }

    /// The source's clock was started again: what it knew of ticks holds no longer.
    pub(super) fn restart(&mut self) {
        *self = Knowledge { has_evicted: self.has_evicted, ..Knowledge::default() };
    }

    /// The first tick that the source ever had; `None` before that, and where anything of it was evicted.
    pub(super) fn first(&self) -> Option<u64> {
        self.head.and((!self.has_evicted).then_some(self.low))
    }

    fn hole_at(&self, tick: u64) -> Option<u64> {
        let at = self.holes.partition_point(|hole| hole.1 <= tick);
        self.holes.get(at).filter(|hole| hole.0 <= tick).map(|hole| hole.1)
    }

    /// What is known of `tick`, which nothing covers, and up to where that holds.
    fn state_at(&self, tick: u64, reserved: &[(u64, u64)]) -> (Coverage, u64) {
        // Past the head nobody knows: what has not come may still be on its way, so it is no gap.
        let Some(head) = self.head.filter(|&head| tick < head) else { return (Coverage::NotYet, u64::MAX) };
        if tick < self.low {
            return (Coverage::Gone, self.low.min(head));
        }
        if let Some(end) = self.hole_at(tick) {
            return (Coverage::Gone, end.min(head));
        }
        // A reservation may be committed or given up: its ticks are neither there nor missing.
        if let Some(end) = reserved.iter().filter(|one| one.0 <= tick && tick < one.1).map(|one| one.1).max() {
            return (Coverage::NotYet, end.min(head));
        }
        let next_hole = self.holes.get(self.holes.partition_point(|hole| hole.1 <= tick)).map(|hole| hole.0);
        let next_reserved = reserved.iter().map(|one| one.0).filter(|&begin| begin > tick).min();
        let next = head.min(next_hole.unwrap_or(head)).min(next_reserved.unwrap_or(head));
        match self.gaps.iter().find(|gap| gap.begin <= tick && tick < gap.end) {
            Some(gap) => (Coverage::Gap(gap.cause), next.min(gap.end)),
            None => {
                let begins = self.gaps.iter().map(|gap| gap.begin).filter(|&begin| begin > tick);
                (Coverage::Gap(GapCause::NeverArrived), begins.min().unwrap_or(next).min(next))
            }
        }
    }

    /// Tiles `[begin, end)`: `covered` are the fragments in it, in time order.
    pub(super) fn tile(
        &self,
        begin: u64,
        end: u64,
        covered: impl Iterator<Item = (u64, u64)>,
        reserved: &[(u64, u64)],
    ) -> Vec<Stretch> {
        let mut stretches = Vec::with_capacity(4);
        let mut at = begin;
        for (from, to) in covered {
            self.uncovered(&mut at, from.min(end), reserved, &mut stretches);
            if to.min(end) > at {
                push(&mut stretches, at, to.min(end), Coverage::Complete);
                at = to.min(end);
            }
        }
        self.uncovered(&mut at, end, reserved, &mut stretches);
        debug_assert!(
            stretches.first().map(|first| first.begin) == Some(begin)
                && stretches.last().map(|last| last.end) == Some(end),
            "the stretches do not tile the window"
        );
        debug_assert!(
            stretches.windows(2).all(|pair| pair[0].end == pair[1].begin && pair[0].state != pair[1].state),
            "stretches leave a hole, overlap, or could be one"
        );
        stretches
    }

    fn uncovered(&self, at: &mut u64, end: u64, reserved: &[(u64, u64)], stretches: &mut Vec<Stretch>) {
        while *at < end {
            let (state, until) = self.state_at(*at, reserved);
            debug_assert!(until > *at, "no progress at tick {at}");
            let until = until.min(end);
            push(stretches, *at, until, state);
            *at = until;
        }
    }

    /// Bytes of memory behind the struct itself.
    pub(super) fn heap_bytes(&self) -> usize {
        self.holes.capacity() * size_of::<(u64, u64)>() + self.gaps.capacity() * size_of::<Gap>()
    }
}

fn push(stretches: &mut Vec<Stretch>, begin: u64, end: u64, state: Coverage) {
    match stretches.last_mut() {
        Some(last) if last.state == state => last.end = end,
        _ => stretches.push(Stretch { begin, end, state }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use GapCause::{NeverArrived, NoSpace, Restart};

    fn states(knowledge: &Knowledge, begin: u64, end: u64) -> Vec<(u64, u64, Coverage)> {
        let tiled = knowledge.tile(begin, end, std::iter::empty(), &[]);
        tiled.iter().map(|stretch| (stretch.begin, stretch.end, stretch.state)).collect()
    }

    #[test]
    fn ticks_pass_from_not_yet_over_gaps_to_gone() {
        let mut known = Knowledge::default();
        assert_eq!(states(&known, 0, 10), [(0, 10, Coverage::NotYet)]);
        assert_eq!(known.first(), None);
        known.arrived(100, 110);
        known.pending = Some(Restart);
        known.arrived(120, 130);
        known.arrived(140, 150);
        known.enter(Gap { begin: 140, end: 150, cause: NoSpace });
        assert_eq!(
            states(&known, 90, 160),
            [
                (90, 100, Coverage::Gone),
                (100, 110, Coverage::Gap(NeverArrived)),
                (110, 120, Coverage::Gap(Restart)),
                (120, 140, Coverage::Gap(NeverArrived)),
                (140, 150, Coverage::Gap(NoSpace)),
                (150, 160, Coverage::NotYet),
            ]
        );
        assert_eq!(known.first(), Some(100));
        // A chunk in the middle goes first: the one before it is pinned.
        known.evicted([(112, 125)].into_iter(), Some(100));
        assert!(known.is_gone(112) && known.is_gone(124) && !known.is_gone(111) && !known.is_gone(125));
        assert_eq!(known.first(), None, "what was before the ticks that are kept is not known any more");
        assert_eq!(states(&known, 111, 126)[1], (112, 125, Coverage::Gone));
        known.evicted([(100, 111)].into_iter(), Some(140));
        assert!(known.is_gone(0) && known.is_gone(124) && !known.is_gone(125));
        assert_eq!(states(&known, 100, 145), [(100, 140, Coverage::Gone), (140, 145, Coverage::Gap(NoSpace))]);
        known.evicted([(140, 150)].into_iter(), None);
        assert_eq!(states(&known, 100, 160), [(100, 150, Coverage::Gone), (150, 160, Coverage::NotYet)]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut known = Knowledge::default();
        known.arrived(0, 1_000_000);
        for at in 0..3 * GAPS_MAX as u64 {
            known.enter(Gap { begin: at * 10, end: at * 10 + 5, cause: NoSpace });
        }
        assert_eq!(known.gaps.len(), GAPS_MAX);
        for at in 0..3 * HOLES_MAX as u64 {
            known.evicted([(at * 10 + 1, at * 10 + 6)].into_iter(), Some(0));
        }
        assert!(known.holes.len() <= HOLES_MAX && known.holes.is_sorted());
    }
}
