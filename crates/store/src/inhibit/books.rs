//! Dead time by level, owner and cause since the store was opened. Runs read it where they begin and end.
//!
//! ```text
//! look ─▶ charge ─▶ rows ─▶ balance, up to now ─▶ a run: what was charged between two balances
//! ```
//!
//! *Invariants*: rows only grow and keep their places, so that two balances differ row by row; what a balance has seen is charged
//! to what was found before it (`charge`).
//!
//! *Lock order*: taken last, for moments: under the lock of runs, and under that of a look.

use forebay_core::limits::NAME_BYTES_MAX;
use forebay_core::{Clock, DeadTimeRow, Inhibit, InhibitClass};
use parking_lot::Mutex;
use std::sync::Arc;

/// Most causes that are told apart; others are summed up by class.
const CAUSES_MAX: usize = 64;
const OTHERS: &str = "others";

/// Dead time by cause.
#[derive(Default)]
pub(crate) struct Books(Mutex<Rows>);

#[derive(Default)]
struct Rows {
    rows: Vec<DeadTimeRow>,
    /// The row that is charged now.
    charged: Option<usize>,
    /// Up to when.
    charged_ns: u64,
}

/// The books at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Balance {
    pub(crate) now_ns: u64,
    pub(crate) rows: Vec<DeadTimeRow>,
}

impl Books {
    /// Charges what ran up to now, and goes on with this inhibit.
    pub(super) fn charge(&self, inhibit: Option<&Inhibit>, clock: &dyn Clock) {
        let mut books = self.0.lock();
        books.bring_up_to(clock.now_ns());
        books.charged = inhibit.map(|inhibit| row_of(&mut books.rows, &inhibit.scope, &inhibit.owner, inhibit.class));
    }

    /// The books now.
    pub(crate) fn balance(&self, clock: &dyn Clock) -> Arc<Balance> {
        let mut books = self.0.lock();
        // Read under the lock: a later balance never has less.
        let now_ns = clock.now_ns();
        books.bring_up_to(now_ns);
        Arc::new(Balance { now_ns, rows: books.rows.clone() })
    }
}

impl Rows {
    fn bring_up_to(&mut self, now: u64) {
        if let Some(at) = self.charged {
            self.rows[at].ns += now.saturating_sub(self.charged_ns);
        }
        self.charged_ns = now;
    }
}

/// The place of a cause among these rows, where it is added if it is new.
pub(crate) fn row_of(rows: &mut Vec<DeadTimeRow>, level: &str, owner: &str, cause: InhibitClass) -> usize {
    // Devices and holders may have long names, and rows are journaled.
    let cut = |name: &str| name.floor_char_boundary(NAME_BYTES_MAX);
    let (level, owner) = (&level[..cut(level)], &owner[..cut(owner)]);
    let find = |rows: &[DeadTimeRow], level: &str, owner: &str| {
        rows.iter().position(|row| (&*row.level, &*row.owner, row.cause) == (level, owner, cause))
    };
    if let Some(at) = find(rows, level, owner) {
        return at;
    }
    // Holders of guards have any names: a run's account of them must not grow without end.
    let (level, owner) = if rows.len() < CAUSES_MAX { (level, owner) } else { (OTHERS, OTHERS) };
    find(rows, level, owner).unwrap_or_else(|| {
        rows.push(DeadTimeRow { level: level.to_owned(), owner: owner.to_owned(), cause, ns: 0 });
        debug_assert!(rows.len() <= CAUSES_MAX + InhibitClass::ALL.len(), "one row of others for each class");
        rows.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ManualClock;

    #[test]
    fn each_moment_is_charged_to_one_cause_and_causes_are_bounded() {
        let (books, clock) = (Books::default(), ManualClock::default());
        let inhibit = |owner: &str| Inhibit {
            class: InhibitClass::HotFull,
            scope: "hot level".to_owned(),
            cause: String::new(),
            owner: owner.to_owned(),
            ends: String::new(),
        };
        clock.advance_ns(5);
        books.charge(Some(&inhibit("selection")), &clock);
        clock.advance_ns(7);
        assert_eq!(books.balance(&clock).rows[0].ns, 7);
        clock.advance_ns(1);
        books.charge(Some(&inhibit("archive")), &clock);
        clock.advance_ns(2);
        books.charge(None, &clock);
        clock.advance_ns(100);
        let rows = &books.balance(&clock).rows;
        assert_eq!(
            rows.iter().map(|row| (&*row.owner, row.ns)).collect::<Vec<_>>(),
            [("selection", 8), ("archive", 2)]
        );
        for holder in 0..200 {
            let long = format!("{holder} {}", "x".repeat(500));
            books.charge(Some(&inhibit(&long)), &clock);
            clock.advance_ns(1);
        }
        let balance = books.balance(&clock);
        assert_eq!((balance.rows.len(), &*balance.rows[CAUSES_MAX].owner), (CAUSES_MAX + 1, OTHERS));
        assert_eq!(balance.rows.iter().map(|row| row.ns).sum::<u64>(), 210);
        assert!(balance.rows.iter().all(|row| row.owner.len() <= NAME_BYTES_MAX));
    }
}
