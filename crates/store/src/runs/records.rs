//! What was done to a run, in order: the last changes, and how many there were before them.

/// Most changes of one kind that a run keeps.
pub(crate) const RECORDS_MAX: usize = 1000;

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
    /// Adds a change; drops the oldest one where there are too many.
    pub(crate) fn add(&mut self, record: T) {
        // A run that masks forever must not fill the log with them.
        if self.kept.len() >= RECORDS_MAX {
            self.kept.remove(0);
            self.dropped += 1;
        }
        self.kept.push(record);
        debug_assert!(self.kept.len() <= RECORDS_MAX, "a snapshot has room for so many");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay_and_the_others_are_counted() {
        let mut records = Records::default();
        (0..RECORDS_MAX as u64 + 3).for_each(|number| records.add(number));
        assert_eq!((records.kept.len(), records.dropped), (RECORDS_MAX, 3));
        assert_eq!((records.kept.first(), records.kept.last()), (Some(&3), Some(&(RECORDS_MAX as u64 + 2))));
    }
}
