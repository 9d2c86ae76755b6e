//! The memory of verdicts: a repeated verdict gets its first answer again, another one is fenced. Bounded: two bits per
//! token of this life, the last ones of earlier lives by name.

use crate::limits::VERDICTS_REMEMBERED;
use forebay_core::{DecisionKind, Token};
use std::collections::{HashMap, VecDeque};

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Verdict {
    Accepted = 1,
    Rejected = 2,
    Requeued = 3,
}

impl Verdict {
    pub(crate) fn of(kind: DecisionKind) -> Option<Verdict> {
        match kind {
            DecisionKind::Accept => Some(Verdict::Accepted),
            DecisionKind::Reject => Some(Verdict::Rejected),
            _ => None,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Verdict> {
        [Verdict::Accepted, Verdict::Rejected, Verdict::Requeued].into_iter().find(|verdict| *verdict as u8 == code)
    }
}

/// One shard's memory.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// Four codes a byte, by grant number modulo the size; made at the first verdict.
    codes: Vec<u8>,
    /// Highest grant number noted.
    latest: u64,
    earlier: HashMap<(u32, u64), Verdict>,
    order: VecDeque<(u32, u64)>,
}

impl Verdicts {
    /// Notes how grant `number` (of this shard, in this life) ended.
    pub(crate) fn note(&mut self, number: u64, verdict: Verdict) {
        if self.codes.is_empty() {
            self.codes = vec![0; VERDICTS_REMEMBERED / 4];
        }
        // Numbers in between that nobody noted forget what stood in their places.
        let skipped = (self.latest + 1..number).rev().take(VERDICTS_REMEMBERED);
        skipped.for_each(|between| self.set(between, 0));
        self.latest = self.latest.max(number);
        self.set(number, verdict as u8);
    }

    fn set(&mut self, number: u64, code: u8) {
        let at = number as usize % VERDICTS_REMEMBERED;
        let shift = at % 4 * 2;
        self.codes[at / 4] = self.codes[at / 4] & !(3 << shift) | code << shift;
    }

    /// How grant `number` of this life ended, if it is remembered.
    pub(crate) fn get(&self, number: u64) -> Option<Verdict> {
        if self.codes.is_empty() || number > self.latest || number + (VERDICTS_REMEMBERED as u64) <= self.latest {
            return None;
        }
        let at = number as usize % VERDICTS_REMEMBERED;
        Verdict::from_code(self.codes[at / 4] >> (at % 4 * 2) & 3)
    }

    /// Notes a verdict of an earlier life; keeps the last `bound`.
    pub(crate) fn note_earlier(&mut self, token: Token, verdict: Verdict, bound: usize) {
        let name = (token.boot, token.counter);
        if self.earlier.insert(name, verdict).is_none() {
            self.order.push_back(name);
        }
        while self.order.len() > bound {
            if let Some(oldest) = self.order.pop_front() {
                self.earlier.remove(&oldest);
            }
        }
    }

    /// How a lease of an earlier life ended, if it is remembered.
    pub(crate) fn get_earlier(&self, token: Token) -> Option<Verdict> {
        self.earlier.get(&(token.boot, token.counter)).copied()
    }

    /// The last `bound` verdicts, oldest first: (boot, counter, verdict). `counter_of` makes a counter of a number.
    pub(crate) fn last(&self, boot: u32, bound: usize, counter_of: impl Fn(u64) -> u64) -> Vec<(u32, u64, Verdict)> {
        let numbers = (self.latest.saturating_sub(bound as u64 - 1)..=self.latest).rev();
        let this_life = numbers.filter_map(|number| Some((boot, counter_of(number), self.get(number)?)));
        let before = self.order.iter().rev().filter_map(|name| Some((name.0, name.1, *self.earlier.get(name)?)));
        let mut last: Vec<_> = this_life.chain(before).take(bound).collect();
        last.reverse();
        last
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.codes.capacity() + self.order.capacity() * 16 + self.earlier.capacity() * 25
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_last_ones_and_nothing_else() {
        let mut verdicts = Verdicts::default();
        assert_eq!(verdicts.get(0), None);
        verdicts.note(1, Verdict::Accepted);
        verdicts.note(5, Verdict::Rejected);
        assert_eq!(
            [0, 1, 2, 5, 6].map(|number| verdicts.get(number)),
            [None, Some(Verdict::Accepted), None, Some(Verdict::Rejected), None]
        );
        let far = VERDICTS_REMEMBERED as u64 + 3;
        verdicts.note(far, Verdict::Requeued);
        assert_eq!([1, 5, far].map(|n| verdicts.get(n)), [None, Some(Verdict::Rejected), Some(Verdict::Requeued)]);
        assert_eq!(verdicts.get(far - 1), None);
        let token = |counter| Token { epoch: 0, boot: 1, counter };
        for counter in 0..10 {
            verdicts.note_earlier(token(counter), Verdict::Accepted, 4);
        }
        assert_eq!(verdicts.get_earlier(token(5)), None);
        assert_eq!(verdicts.get_earlier(token(6)), Some(Verdict::Accepted));
        let last = verdicts.last(2, 3, |number| number);
        assert_eq!(last.last(), Some(&(2, far, Verdict::Requeued)));
        assert_eq!(last.len(), 3);
    }
}
