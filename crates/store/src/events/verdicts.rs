//! The memory of verdicts: a repeated verdict gets its first answer again, another one is fenced. Bounded: a code per
//! token of this life, and the last verdicts in the order in which they were given, which survive a restart.

use crate::limits::VERDICTS_REMEMBERED;
use forebay_core::{FixedMap, Token, crc32c, crc32c_append};
use forebay_media::bytes::DecisionKind;
use std::collections::VecDeque;

/// The kind of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Verdict {
    Accepted = 1,
    Rejected = 2,
    Passed = 3,
}

impl Verdict {
    pub(crate) fn of(kind: DecisionKind) -> Option<Verdict> {
        match kind {
            DecisionKind::Accept => Some(Verdict::Accepted),
            DecisionKind::Reject => Some(Verdict::Rejected),
            DecisionKind::Pass => Some(Verdict::Passed),
            _ => None,
        }
    }
}

// Two bits for the verdict, and 0 is no code at all: a place that was never noted.
const _: () = assert!(Verdict::Accepted as u16 > 0 && (Verdict::Passed as u16) < 1 << 2);

/// A verdict and 14 bits that tie it to its event and its output or next stage; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u16);

impl Code {
    pub(crate) fn new(verdict: Verdict, primary: &[u8], detail: u32) -> Code {
        Code((crc32c_append(crc32c(primary), &detail.to_le_bytes()) as u16) << 2 | verdict as u16)
    }
}

/// A verdict as it is kept over a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) token: Token,
    pub(crate) code: Code,
}

/// One shard's memory of this life.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// By grant number modulo the size; made at the first verdict.
    codes: Vec<u16>,
    /// Highest grant number noted.
    latest: u64,
}

impl Verdicts {
    /// Notes how grant `number` (of this shard, in this life) ended; `false` for a lease held for so long that its place
    /// belongs to a newer one.
    pub(crate) fn note(&mut self, number: u64, code: Code) -> bool {
        // Made at the first verdict: most of the shards of a small store never have one.
        if self.codes.is_empty() {
            self.codes = vec![0; VERDICTS_REMEMBERED];
        }
        if number + VERDICTS_REMEMBERED as u64 <= self.latest {
            return false;
        }
        // Places in between still have codes of older grants: cleared, or a verdict on one of these numbers would be answered
        // with another lease's.
        for between in (self.latest + 1..number).rev().take(VERDICTS_REMEMBERED) {
            self.codes[between as usize % VERDICTS_REMEMBERED] = 0;
        }
        debug_assert_eq!(self.get(number), None, "grant {number} ends by one verdict");
        self.latest = self.latest.max(number);
        self.codes[number as usize % VERDICTS_REMEMBERED] = code.0;
        true
    }

    /// How grant `number` of this life ended, if it is remembered.
    pub(crate) fn get(&self, number: u64) -> Option<Code> {
        if self.codes.is_empty() || number > self.latest || number + (VERDICTS_REMEMBERED as u64) <= self.latest {
            return None;
        }
        Some(Code(self.codes[number as usize % VERDICTS_REMEMBERED])).filter(|code| code.0 != 0)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.codes.capacity() * 2
    }
}

/// The store's last verdicts in the order in which they were given: they survive a restart.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    last: VecDeque<Given>,
    /// Those that no shard's own memory has: of earlier lives, and of leases held for long.
    by_name: FixedMap<Token, Code>,
}

impl Recent {
    /// Keeps a verdict among the last `bound`; `named` where a repeat must find it here.
    pub(crate) fn keep(&mut self, given: Given, named: bool, bound: usize) {
        // A replay of the log says again what a snapshot said: kept once.
        if named && self.by_name.insert(given.token, given.code).is_some() {
            return;
        }
        self.last.push_back(given);
        while self.last.len() > bound {
            if let Some(oldest) = self.last.pop_front() {
                self.by_name.remove(&oldest.token);
            }
        }
        debug_assert!(
            self.by_name.len() <= self.last.len(),
            "what is named is among the last: else it is never forgotten"
        );
    }

    /// How a lease ended that is kept by name.
    pub(crate) fn get(&self, token: Token) -> Option<Code> {
        self.by_name.get(&token).copied()
    }

    /// As [`Recent::get`], and among all that are kept: for a lease of this life whose slot has another epoch since.
    pub(crate) fn find(&self, token: Token) -> Option<Code> {
        self.last.iter().rfind(|given| given.token == token).map(|given| given.code)
    }

    /// The verdicts that a restart must know, oldest first.
    pub(crate) fn last(&self) -> impl Iterator<Item = Given> + '_ {
        self.last.iter().copied()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.last.capacity() * size_of::<Given>() + self.by_name.capacity() * size_of::<(Token, Code)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_last_ones_and_nothing_else() {
        let code = |verdict| Code::new(verdict, b"event", 0);
        let (accepted, rejected) = (code(Verdict::Accepted), code(Verdict::Rejected));
        assert_ne!(accepted, Code::new(Verdict::Accepted, b"other", 0));
        let mut verdicts = Verdicts::default();
        assert_eq!(verdicts.get(0), None);
        assert!(verdicts.note(1, accepted) && verdicts.note(5, rejected));
        assert_eq!([0, 1, 2, 5, 6].map(|n| verdicts.get(n)), [None, Some(accepted), None, Some(rejected), None]);
        let far = VERDICTS_REMEMBERED as u64 + 3;
        assert!(verdicts.note(far, accepted) && !verdicts.note(2, accepted));
        assert_eq!([1, 5, far].map(|n| verdicts.get(n)), [None, Some(rejected), Some(accepted)]);
        assert_eq!(verdicts.get(far - 1), None);
        let token = |counter| Token { epoch: 0, boot: 1, counter };
        let mut recent = Recent::default();
        for counter in 0..10 {
            recent.keep(Given { token: token(counter), code: accepted }, true, 4);
        }
        assert_eq!(recent.find(token(6)), Some(accepted));
        assert_eq!(recent.get(Token { epoch: 2, ..token(6) }), None, "another epoch, another lease");
        assert_eq!([5, 6].map(|counter| recent.get(token(counter))), [None, Some(accepted)]);
        assert_eq!(recent.last().count(), 4);
    }
}
