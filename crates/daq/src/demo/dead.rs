//! Dead time of a trigger: by cause and owner, and in total.
//!
//! *Invariants*: time does not go back, regardless of the order in which threads that looked at the clock come here;
//! one cause runs at a time; the causes sum to the total, which is measured on its own (test
//! `causes_follow_each_other_without_a_hole`).

/// A cause of dead time: what holds the trigger, who can change that, and why in the words of the last time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    pub(crate) cause: &'static str,
    pub(crate) owner: String,
    pub(crate) detail: String,
    pub(crate) ns: u64,
}

/// The account. Times are nanoseconds of the trigger's clock.
#[derive(Default)]
pub(crate) struct DeadAccount {
    rows: Vec<Dead>,
    /// The cause that runs now, as its place in `rows`, and since when.
    running: Option<(usize, u64)>,
    /// When the trigger was held, for any cause.
    held: Option<u64>,
    total_ns: u64,
    /// The latest time that was told.
    latest: u64,
}

impl DeadAccount {
    /// The time that was told, or a later one that was told before it.
    fn not_before(&mut self, now: u64) -> u64 {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// The trigger is held, by this cause from now on.
    pub(crate) fn hold(&mut self, now: u64, cause: &'static str, owner: &str, detail: &str) {
        let now = self.not_before(now);
        // Measured apart from the causes: a hole between two of them would show as a difference of the sums.
        self.held.get_or_insert(now);
        let known = self.rows.iter().position(|dead| dead.cause == cause && dead.owner == owner);
        let place = known.unwrap_or_else(|| {
            self.rows.push(Dead { cause, owner: owner.to_owned(), detail: String::new(), ns: 0 });
            self.rows.len() - 1
        });
        // The same cause goes on: its words are those of its beginning.
        if self.running.is_none_or(|running| running.0 != place) {
            self.end_cause(now);
            self.rows[place].detail = detail.to_owned();
            self.running = Some((place, now));
        }
    }

    /// The trigger is free.
    pub(crate) fn free(&mut self, now: u64) {
        let now = self.not_before(now);
        self.end_cause(now);
        if let Some(since) = self.held.take() {
            self.total_ns += now.saturating_sub(since);
        }
    }

    fn end_cause(&mut self, now: u64) {
        if let Some((place, since)) = self.running.take() {
            debug_assert!(since <= now, "time does not go back");
            self.rows[place].ns += now.saturating_sub(since);
        }
    }

    /// Time in which the trigger was held, up to when it was last free.
    pub(crate) fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// The same by cause and owner, longest first.
    pub(crate) fn rows(&self) -> Vec<Dead> {
        let mut rows: Vec<Dead> = self.rows.iter().filter(|dead| dead.ns > 0).cloned().collect();
        rows.sort_by_key(|dead| std::cmp::Reverse(dead.ns));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_follow_each_other_without_a_hole() {
        let mut account = DeadAccount::default();
        account.hold(10, "hot full", "selection", "hot fill 91 %");
        account.hold(15, "hot full", "selection", "hot fill 92 %");
        account.hold(20, "hot full", "archive", "hot fill 93 %");
        account.hold(50, "warm full", "archive", "warm fill 90 %");
        account.free(57);
        account.free(90);
        account.hold(100, "hot full", "selection", "hot fill 95 %");
        account.free(101);
        let rows = account.rows();
        let figures: Vec<_> = rows.iter().map(|dead| (dead.cause, &*dead.owner, dead.ns)).collect();
        assert_eq!(figures, [("hot full", "archive", 30), ("hot full", "selection", 11), ("warm full", "archive", 7)]);
        assert_eq!(rows[1].detail, "hot fill 95 %");
        assert_eq!(account.total_ns(), rows.iter().map(|dead| dead.ns).sum::<u64>());
    }

    #[test]
    fn threads_that_come_late_do_not_turn_time_back() {
        let mut account = DeadAccount::default();
        account.hold(10, "hot full", "selection", "");
        account.hold(20, "warm full", "archive", "");
        account.hold(15, "hot full", "selection", "");
        account.free(30);
        account.free(25);
        let rows = account.rows();
        assert_eq!(rows.iter().map(|dead| dead.ns).sum::<u64>(), account.total_ns());
        assert_eq!(account.total_ns(), 20);
    }
}
