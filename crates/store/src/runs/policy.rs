//! The policy that masks the sources of a run, by counting: its own store's events, or those of all nodes of a cluster.
//!
//! *Not here*: what a store counts, and how a mask comes into force (`calls/policy.rs`); when it is asked.

use forebay_core::Misses;
use std::collections::BTreeMap;

/// What is known of the sources of a run that events lack, and of those that the policy has masked.
#[derive(Default)]
pub(crate) struct Policy {
    sources: BTreeMap<Vec<u8>, Suspect>,
}

#[derive(Default)]
struct Suspect {
    /// Misses in a row.
    row: u32,
    /// Fragments that have come since it is a suspect.
    come: u64,
    /// What each store had of it when it was asked last.
    had: BTreeMap<u16, u64>,
    /// Of `come`, when the policy masked it.
    masked_at: Option<u64>,
}

impl Policy {
    /// Sources of which it has to know what comes.
    pub(crate) fn suspects(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.sources.keys()
    }

    /// Whether any source is looked at.
    pub(crate) fn is_idle(&self) -> bool {
        self.sources.is_empty()
    }

    /// Takes what stores have counted, each with its number, since they were asked last; answers sources to mask, and those to
    /// unmask. `masked` are those that the policy has masked.
    pub(crate) fn judge(&mut self, most: u32, masked: &[Vec<u8>], told: &[(u16, Vec<Misses>)]) -> Vec<(Vec<u8>, bool)> {
        for (source, suspect) in &mut self.sources {
            suspect.masked_at = suspect.masked_at.filter(|_| masked.contains(source));
        }
        for source in masked {
            // Also one that was masked in an earlier life.
            let suspect = self.sources.entry(source.clone()).or_default();
            suspect.masked_at.get_or_insert(suspect.come);
        }
        let mut by_source: BTreeMap<&[u8], Vec<(u16, &Misses)>> = BTreeMap::new();
        for (store, all) in told {
            all.iter().for_each(|misses| by_source.entry(&misses.source).or_default().push((*store, misses)));
        }
        for (source, told) in by_source {
            let suspect = self.sources.entry(source.to_vec()).or_default();
            let (mut all, mut in_a_row, mut came, mut unknown) = (0_u32, 0, false, false);
            for (store, misses) in told {
                match suspect.had.insert(store, misses.fragments) {
                    Some(had) => {
                        came |= misses.fragments != had;
                        suspect.come = suspect.come.saturating_add(misses.fragments.saturating_sub(had));
                    }
                    None => unknown |= misses.fragments > 0,
                }
                all = all.saturating_add(misses.all);
                in_a_row = misses.in_a_row.max(in_a_row);
            }
            suspect.row = match (came, unknown) {
                // They may lie between the misses of two parts, not between those of one.
                (true, _) => in_a_row,
                // A store that was not asked before had some, at a time that nobody knows: what is in a row is not taken back for that.
                (false, true) => suspect.row.max(in_a_row),
                (false, false) => suspect.row.saturating_add(all),
            };
        }
        let mut changes = Vec::new();
        self.sources.retain(|source, suspect| {
            match suspect.masked_at {
                Some(at) if suspect.come - at >= u64::from(most) => {
                    (suspect.row, suspect.masked_at) = (0, None);
                    changes.push((source.clone(), false));
                }
                Some(_) => suspect.row = 0,
                None if suspect.row >= most => changes.push((source.clone(), true)),
                None => {}
            }
            suspect.row > 0 || suspect.masked_at.is_some()
        });
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Source;

    const A: [u8; 1] = [7];

    fn told(store: u16, [all, in_a_row]: [u32; 2], fragments: u64) -> (u16, Vec<Misses>) {
        (store, vec![Misses { source: Source::from_packed(&A), all, in_a_row, fragments }])
    }

    #[test]
    fn misses_of_several_stores_are_in_a_row_while_nothing_comes_to_any() {
        let mut policy = Policy::default();
        let mask = vec![(A.to_vec(), true)];
        assert!(policy.judge(6, &[], &[told(1, [2, 1], 0)]).is_empty());
        assert!(policy.suspects().eq([&A.to_vec()]), "the others are asked for it from now on");
        assert!(policy.judge(6, &[], &[told(1, [1, 1], 0), told(2, [2, 1], 0)]).is_empty());
        assert_eq!(policy.judge(6, &[], &[told(1, [0, 0], 0), told(2, [1, 1], 0)]), mask);
        assert_eq!(policy.judge(6, &[], &[]), mask, "for as long as it is not in force");
        // One store had some before it was asked, at a time that nobody knows: what is in a row is that of one part.
        let mut policy = Policy::default();
        assert!(policy.judge(6, &[], &[told(1, [5, 3], 0), told(2, [5, 2], 9)]).is_empty());
        assert!(policy.judge(6, &[], &[told(1, [2, 1], 0), told(2, [0, 0], 9)]).is_empty());
        assert_eq!(policy.judge(6, &[], &[told(1, [1, 1], 0), told(2, [0, 0], 9)]), mask);
        // One miss now and then, of a source that has come to all before.
        let mut policy = Policy::default();
        for row in 1..6 {
            assert!(policy.judge(6, &[], &[told(1, [1, 1], 7)]).is_empty(), "{row}");
            assert!(policy.judge(6, &[], &[told(1, [0, 0], 7), told(2, [0, 0], 9)]).is_empty() && !policy.is_idle());
        }
        assert_eq!(policy.judge(6, &[], &[told(1, [0, 0], 7), told(2, [1, 1], 9)]), mask);
        // It comes to one store: no longer a suspect, whatever others lack.
        let mut policy = Policy::default();
        assert!(policy.judge(6, &[], &[told(1, [5, 5], 0), told(2, [0, 0], 4)]).is_empty());
        assert!(policy.judge(6, &[], &[told(1, [0, 0], 0), told(2, [0, 0], 5)]).is_empty());
        assert!(policy.is_idle());
    }

    #[test]
    fn a_masked_source_is_unmasked_after_as_many_fragments_wherever_they_come() {
        let mut policy = Policy::default();
        let masked = [A.to_vec()];
        assert!(policy.judge(6, &masked, &[]).is_empty());
        assert!(policy.judge(6, &masked, &[told(1, [0, 0], 100), told(2, [0, 0], 50)]).is_empty());
        assert!(policy.judge(6, &masked, &[told(1, [0, 0], 103), told(2, [0, 0], 52)]).is_empty());
        // Opened again, it begins to count from what it has left.
        assert!(policy.judge(6, &masked, &[told(1, [0, 0], 40), told(2, [9, 9], 52)]).is_empty());
        assert_eq!(policy.judge(6, &masked, &[told(1, [0, 0], 41)]), [(A.to_vec(), false)]);
        assert!(policy.judge(6, &[], &[]).is_empty() && policy.is_idle());
        // A person's word replaced the policy's: nothing is to be lifted.
        let mut policy = Policy::default();
        assert!(policy.judge(6, &masked, &[told(1, [0, 0], 1)]).is_empty());
        assert!(policy.judge(6, &[], &[told(1, [0, 0], 20)]).is_empty());
    }
}
