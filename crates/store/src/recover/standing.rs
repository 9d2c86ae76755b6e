//! What a log says of events: a number each, out of a snapshot's intervals and what came after it.
//!
//! *Invariants*: what was said last counts; what a snapshot says takes no memory beyond its intervals.

use crate::decisions::KeyTable;
use crate::events::DecidedForm;
use forebay_core::{SeededHasher, SeededMap};
use std::collections::BTreeMap;

/// Events with a number each.
pub(super) struct Standing {
    form: DecidedForm,
    primary_bytes: usize,
    /// By leading bytes of the key: intervals in order, with their numbers.
    folded: BTreeMap<Vec<u8>, Vec<(u64, u64, u64)>>,
    /// What was said since; `None` takes back what the snapshot says.
    since: SeededMap<Vec<u8>, Option<u64>>,
}

impl Standing {
    pub(super) fn new(form: DecidedForm, primary_bytes: usize, hasher: SeededHasher) -> Standing {
        Standing { form, primary_bytes, folded: BTreeMap::new(), since: SeededMap::with_hasher(hasher) }
    }

    /// Begins with what a snapshot says.
    pub(super) fn adopt(&mut self, table: KeyTable) {
        // Nothing that was said before this snapshot counts: the snapshot has all of it.
        self.since.clear();
        self.folded.clear();
        for (number, high, intervals) in table.groups {
            let of_high = self.folded.entry(high).or_default();
            of_high.extend(intervals.iter().map(|i| (i.start, i.start + u64::from(i.length), number)));
        }
        self.folded.values_mut().for_each(|of_high| of_high.sort_unstable());
    }

    pub(super) fn get(&self, primary: &[u8]) -> Option<u64> {
        debug_assert!(primary.len() == self.primary_bytes, "a key of another length is never found");
        // What was said last counts, also where it takes back what the snapshot says.
        if !self.since.is_empty()
            && let Some(said) = self.since.get(primary)
        {
            return *said;
        }
        if self.folded.is_empty() {
            return None;
        }
        let (high, low) = self.form.split(primary);
        let of_high = self.folded.get(high)?;
        let at = of_high.partition_point(|interval| interval.0 <= low).checked_sub(1)?;
        let (_, last, number) = of_high[at];
        (low <= last).then_some(number)
    }

    pub(super) fn contains(&self, primary: &[u8]) -> bool {
        self.get(primary).is_some()
    }

    pub(super) fn insert(&mut self, primary: &[u8], number: u64) {
        debug_assert!(primary.len() == self.primary_bytes, "a whole key is no event's");
        self.since.insert(primary.to_vec(), Some(number));
    }

    pub(super) fn remove(&mut self, primary: &[u8]) {
        // Without this the memory of all rejected events would be kept here as well.
        if self.contains(primary) {
            self.since.insert(primary.to_vec(), None);
        }
    }

    /// Every event with its number.
    pub(super) fn each(&self, mut each: impl FnMut(&[u8], u64)) {
        for (high, of_high) in &self.folded {
            for &(first, last, number) in of_high {
                for low in first..=last {
                    let primary = self.form.join(high, low, self.primary_bytes);
                    if !self.since.contains_key(&primary) {
                        each(&primary, number);
                    }
                }
            }
        }
        for (primary, number) in &self.since {
            if let Some(number) = number {
                each(primary, *number);
            }
        }
    }
}
