//! The memory of verdicts: a repeated verdict gets its first answer again, another one is fenced. Bounded: a code per
//! token of this life, and the last verdicts in the order in which they were given, which survive a restart.

use crate::limits::VERDICTS_REMEMBERED;
use forebay_core::{DecisionKind, Token, crc32c};
use std::collections::{HashMap, VecDeque};

/// What a lease holder decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Verdict {
    Accepted = 1,
    Rejected = 2,
}

impl Verdict {
    pub(crate) fn of(kind: DecisionKind) -> Option<Verdict> {
        match kind {
            DecisionKind::Accept => Some(Verdict::Accepted),
            DecisionKind::Reject => Some(Verdict::Rejected),
            _ => None,
        }
    }
}

/// A verdict and 14 bits that tie it to its event; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u16);

impl Code {
    pub(crate) fn new(verdict: Verdict, primary: &[u8]) -> Code {
        Code((crc32c(primary) as u16) << 2 | verdict as u16)
    }
}

/// A verdict as it is kept over a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) boot: u32,
    pub(crate) code: Code,
    pub(crate) counter: u64,
}

/// One shard's memory.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// By grant number modulo the size; made at the first verdict.
    codes: Vec<u16>,
    /// Highest grant number noted.
    latest: u64,
    earlier: HashMap<(u32, u64), Code>,
    /// The last ones, oldest first, of this life and earlier ones.
    last: VecDeque<Given>,
}

impl Verdicts {
    /// Notes how grant `number` (of this shard, in this life, with this counter) ended; keeps the last `bound` for a
    /// restart.
    pub(crate) fn note(&mut self, number: u64, given: Given, bound: usize) {
        if self.codes.is_empty() {
            self.codes = vec![0; VERDICTS_REMEMBERED];
        }
        // Numbers in between that nobody noted forget what stood in their places.
        for between in (self.latest + 1..number).rev().take(VERDICTS_REMEMBERED) {
            self.codes[between as usize % VERDICTS_REMEMBERED] = 0;
        }
        self.latest = self.latest.max(number);
        self.codes[number as usize % VERDICTS_REMEMBERED] = given.code.0;
        self.keep(given, bound);
    }

    /// How grant `number` of this life ended, if it is remembered.
    pub(crate) fn get(&self, number: u64) -> Option<Code> {
        if self.codes.is_empty() || number > self.latest || number + (VERDICTS_REMEMBERED as u64) <= self.latest {
            return None;
        }
        Some(Code(self.codes[number as usize % VERDICTS_REMEMBERED])).filter(|code| code.0 != 0)
    }

    /// Notes a verdict of an earlier life; keeps the last `bound`.
    pub(crate) fn note_earlier(&mut self, given: Given, bound: usize) {
        if self.earlier.insert((given.boot, given.counter), given.code).is_none() {
            self.keep(given, bound);
        }
    }

    fn keep(&mut self, given: Given, bound: usize) {
        self.last.push_back(given);
        while self.last.len() > bound {
            if let Some(oldest) = self.last.pop_front() {
                self.earlier.remove(&(oldest.boot, oldest.counter));
            }
        }
    }

    /// How a lease of an earlier life ended, if it is remembered.
    pub(crate) fn get_earlier(&self, token: Token) -> Option<Code> {
        self.earlier.get(&(token.boot, token.counter)).copied()
    }

    /// What a restart must know, oldest first.
    pub(crate) fn last(&self) -> impl Iterator<Item = Given> + '_ {
        self.last.iter().copied()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.codes.capacity() * 2 + self.last.capacity() * size_of::<Given>() + self.earlier.capacity() * 24
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_last_ones_and_nothing_else() {
        let code = |verdict| Code::new(verdict, b"event");
        let (accepted, rejected) = (code(Verdict::Accepted), code(Verdict::Rejected));
        assert_ne!(accepted, Code::new(Verdict::Accepted, b"other"));
        let given = |counter, code| Given { boot: 2, code, counter };
        let mut verdicts = Verdicts::default();
        assert_eq!(verdicts.get(0), None);
        verdicts.note(1, given(1, accepted), 3);
        verdicts.note(5, given(5, rejected), 3);
        assert_eq!([0, 1, 2, 5, 6].map(|n| verdicts.get(n)), [None, Some(accepted), None, Some(rejected), None]);
        let far = VERDICTS_REMEMBERED as u64 + 3;
        verdicts.note(far, given(far, accepted), 3);
        assert_eq!([1, 5, far].map(|n| verdicts.get(n)), [None, Some(rejected), Some(accepted)]);
        assert_eq!(verdicts.get(far - 1), None);
        for counter in 0..10 {
            verdicts.note_earlier(Given { boot: 1, code: accepted, counter }, 4);
        }
        let token = |counter| Token { epoch: 0, boot: 1, counter };
        assert_eq!(verdicts.get_earlier(token(5)), None);
        assert_eq!(verdicts.get_earlier(token(6)), Some(accepted));
        assert_eq!(verdicts.last().count(), 4);
    }
}
