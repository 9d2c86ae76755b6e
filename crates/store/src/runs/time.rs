//! How long a run was open, and how much of that was dead time.

use crate::inhibit::{Balance, row_of};
use forebay_core::DeadTimeRow;
use std::sync::Arc;

/// Time after which what ran is journaled: what a crash may lose.
const JOURNAL_NS: u64 = 60_000_000_000;

/// The time of one run, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunTime {
    pub(crate) ran_ns: u64,
    pub(crate) dead: Vec<DeadTimeRow>,
    /// The books when the figures above were taken, while the run is open.
    since: Option<Arc<Balance>>,
}

impl RunTime {
    /// From an earlier life.
    pub(crate) fn recovered(ran_ns: u64, dead: Vec<DeadTimeRow>) -> RunTime {
        RunTime { ran_ns, dead, since: None }
    }

    /// Goes on from now, or rests.
    pub(crate) fn enter(&mut self, open: bool, now: &Arc<Balance>) {
        self.settle(now);
        self.since = open.then(|| now.clone());
    }

    /// Books what ran up to now.
    pub(crate) fn settle(&mut self, now: &Arc<Balance>) {
        let Some(since) = &mut self.since else { return };
        debug_assert!(since.now_ns <= now.now_ns && since.rows.len() <= now.rows.len(), "books only grow");
        self.ran_ns += now.now_ns.saturating_sub(since.now_ns);
        for (at, row) in now.rows.iter().enumerate() {
            let ns = row.ns - since.rows.get(at).map_or(0, |before| before.ns).min(row.ns);
            if ns > 0 {
                let at = row_of(&mut self.dead, &row.level, &row.owner, row.cause);
                self.dead[at].ns += ns;
            }
        }
        *since = now.clone();
    }

    /// When what runs is worth a record; `u64::MAX` while nothing runs.
    pub(crate) fn due_ns(&self) -> u64 {
        self.since.as_ref().map_or(u64::MAX, |since| since.now_ns.saturating_add(JOURNAL_NS))
    }

    /// Whether what ran since it was settled last is worth a record.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns()
    }
}
