//! A run as one shard sees it: what completes its events, which are open, its account, and the memory of the decided.

use super::list::List;
use crate::RunState;
use forebay_core::{Completeness, IntervalSet, KeySchema, Ledger, RunConfig};
use std::sync::Arc;

/// What a run's events wait for, ready to be asked on every arrival.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) config: RunConfig,
    pub(crate) within_ns: u64,
    /// First code and number of sources where their codes are consecutive: membership is one subtraction.
    dense: Option<(u64, u64)>,
}

impl Plan {
    pub(crate) fn new(config: &RunConfig) -> Plan {
        let mut dense = None;
        if let Completeness::Sources(sources) = &config.completeness
            && let (Some(first), Some(last)) = (sources.first().and_then(code), sources.last().and_then(code))
            && last - first == sources.len() as u64 - 1
        {
            dense = Some((first, sources.len() as u64));
        }
        let within_ns = u64::try_from(config.complete_within.as_nanos()).unwrap_or(u64::MAX);
        Plan { config: config.clone(), within_ns, dense }
    }

    /// Whether completeness counts a fragment of this source.
    #[inline]
    pub(crate) fn counts(&self, rest: &[u8]) -> bool {
        let Completeness::Sources(sources) = &self.config.completeness else { return true };
        if let Some((first, len)) = self.dense {
            return code(rest).is_some_and(|code| code.wrapping_sub(first) < len);
        }
        sources.binary_search_by(|source| source.as_slice().cmp(rest)).is_ok()
    }

    /// How many counted fragments complete an event; `None` where only a seal does.
    #[inline]
    pub(crate) fn wanted(&self) -> Option<usize> {
        match &self.config.completeness {
            Completeness::Sources(sources) => Some(sources.len()),
            Completeness::Count(count) => Some(*count as usize),
            Completeness::Seal => None,
        }
    }
}

fn code(rest: impl AsRef<[u8]>) -> Option<u64> {
    let rest = rest.as_ref();
    (rest.len() <= 8).then(|| rest.iter().fold(0, |code, &byte| code << 8 | u64::from(byte)))
}

/// Splits a packed primary key into what groups decided events and what is counted in intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecidedForm {
    primary: usize,
    padding: u32,
}

impl DecidedForm {
    pub(crate) fn new(schema: &KeySchema) -> DecidedForm {
        let bits: u32 = schema.sub_keys()[..schema.primary_len()].iter().map(|part| part.bits).sum();
        DecidedForm { primary: schema.primary_bytes(), padding: schema.primary_bytes() as u32 * 8 - bits }
    }

    /// The leading bytes, and the last 8 (or fewer) as a number without padding: dense events are consecutive.
    #[inline]
    pub(crate) fn split(self, primary: &[u8]) -> (&[u8], u64) {
        let (high, low) = primary.split_at(self.primary.saturating_sub(8));
        (high, low.iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte)) >> self.padding)
    }
}

/// The decided events of one run in one shard, by the leading bytes of their keys.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    groups: Vec<(Box<[u8]>, IntervalSet)>,
}

impl Decided {
    #[inline]
    pub(crate) fn contains(&self, form: DecidedForm, primary: &[u8]) -> bool {
        let (high, low) = form.split(primary);
        self.groups.binary_search_by(|group| (*group.0).cmp(high)).is_ok_and(|at| self.groups[at].1.contains(low))
    }

    pub(crate) fn insert(&mut self, form: DecidedForm, primary: &[u8]) {
        let (high, low) = form.split(primary);
        let at = self.groups.binary_search_by(|group| (*group.0).cmp(high)).unwrap_or_else(|at| {
            self.groups.insert(at, (high.into(), IntervalSet::default()));
            at
        });
        self.groups[at].1.insert(low);
    }

    pub(crate) fn set(&mut self, high: &[u8], set: IntervalSet) {
        match self.groups.binary_search_by(|group| (*group.0).cmp(high)) {
            Ok(at) => self.groups[at].1 = set,
            Err(at) => self.groups.insert(at, (high.into(), set)),
        }
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = (&[u8], &IntervalSet)> {
        self.groups.iter().map(|(high, set)| (&**high, set))
    }

    pub(crate) fn len(&self) -> u64 {
        self.groups.iter().map(|group| group.1.len()).sum()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.groups.iter().map(|(high, set)| high.len() + set.heap_bytes() + 64).sum()
    }
}

/// One run in one shard.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) run: u64,
    pub(crate) state: RunState,
    pub(crate) plan: Arc<Plan>,
    /// Events that still wait, oldest first.
    pub(crate) open: List,
    pub(crate) ledger: Ledger,
    pub(crate) decided: Decided,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn source_lists_count_members_only() {
        let schema = KeySchema::run_event_source();
        for sources in [vec![3, 4, 5, 6], vec![3, 5, 9, 4_000_000_000]] {
            let list: Vec<Vec<u64>> = sources.iter().map(|&source| vec![source]).collect();
            let completeness = Completeness::sources(&schema, &list).unwrap();
            let plan = Plan::new(&RunConfig { completeness, complete_within: Duration::from_secs(1) });
            for source in [0_u32, 2, 3, 4, 5, 6, 7, 9, 4_000_000_000, u32::MAX] {
                assert_eq!(plan.counts(&source.to_be_bytes()), sources.contains(&u64::from(source)), "{source}");
            }
            assert_eq!(plan.wanted(), Some(4));
        }
    }

    #[test]
    fn padded_primary_keys_stay_dense() {
        let schema = KeySchema::parse(&["run:u5", "event:u21", "source:u8"], &["run", "event"]).unwrap();
        let form = DecidedForm::new(&schema);
        let mut decided = Decided::default();
        for event in 0..100_000 {
            decided.insert(form, schema.primary(&[3, event]).unwrap().as_bytes());
        }
        assert!(decided.contains(form, schema.primary(&[3, 99_999]).unwrap().as_bytes()));
        assert!(!decided.contains(form, schema.primary(&[4, 7]).unwrap().as_bytes()));
        assert_eq!(decided.len(), 100_000);
        assert!(decided.heap_bytes() < 1000);
    }
}
