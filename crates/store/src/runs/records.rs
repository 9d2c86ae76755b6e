//! What was done to a run, in order: the last changes, and how many there were before them.

use crate::limits::RECORDS_MAX;

/// The last changes of one kind, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Records<T> {
    pub(crate) kept: Vec<T>,
    /// Earlier ones.
    pub(crate) dropped: u64,
}

impl<T> Default for Records<T> {
    fn default() -> Records<T> {
        Records { kept: Vec::new(), dropped: 0 }
    }
}

impl<T> Records<T> {
    /// Adds a change; where there are too many it drops the oldest one that a later one replaces.
    pub(crate) fn add(&mut self, record: T, replaces: impl Fn(&T, &T) -> bool) {
        self.kept.push(record);
        self.keep(RECORDS_MAX, replaces);
        debug_assert!(self.kept.len() <= RECORDS_MAX, "some one can always be dropped");
    }

    /// Keeps at most `most` changes: drops the oldest ones that later ones replace, until none is left that could go. A run
    /// that masks forever must not fill the log with them.
    pub(crate) fn keep(&mut self, most: usize, replaces: impl Fn(&T, &T) -> bool) {
        while self.kept.len() > most {
            let replaced = |at: &usize| self.kept[at + 1..].iter().any(|later| replaces(later, &self.kept[*at]));
            let Some(oldest) = (0..self.kept.len()).find(replaced) else { return };
            self.kept.remove(oldest);
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay_and_the_others_are_counted() {
        let mut records = Records::default();
        (0..RECORDS_MAX as u64 + 3).for_each(|number| records.add(number, |_, _| true));
        assert_eq!((records.kept.len(), records.dropped), (RECORDS_MAX, 3));
        assert_eq!((records.kept.first(), records.kept.last()), (Some(&3), Some(&(RECORDS_MAX as u64 + 2))));
        // The newest of each kind, regardless of its age.
        let mut records = Records::default();
        records.add(('a', 0), |_, _| true);
        (0..5000).for_each(|number| records.add(('b', number), |one, other| one.0 == other.0));
        assert_eq!((records.kept[0], records.kept[1], records.dropped), (('a', 0), ('b', 4001), 4001));
    }
}
