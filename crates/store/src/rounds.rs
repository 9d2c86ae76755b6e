//! The state of rounds of maintenance: when the last one was, what it left, and the bell that wakes the thread for the next.
//!
//! *Not here*: when the next round is due (`upkeep/due.rs`).

use crate::limits::MAINTENANCE_MS;
use forebay_media::sync::Bell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Pause after a round at least: what a busy store has to do comes in batches.
pub(crate) const MAINTENANCE: Duration = Duration::from_millis(MAINTENANCE_MS);
/// The longest sleep of the thread of the store: after it a cause that nothing rings for is seen.
pub(crate) const CAP: Duration = Duration::from_secs(1);
/// The same with a warm level, whose state is looked at this often: its own rounds look for custody as often.
pub(crate) const LEVEL_CAP: Duration = Duration::from_millis(100);

/// What rounds of maintenance know of each other, and who rings for the next one.
pub(crate) struct Upkeep {
    /// The hot level's: what it finds out wakes the same thread.
    pub(crate) bell: Arc<Bell>,
    /// The moment to which the thread of the store sleeps; 0 while it is awake, `u64::MAX` while it looks for that moment.
    pub(crate) sleeps_to_ns: AtomicU64,
    /// When the last round began.
    pub(crate) last_ns: AtomicU64,
    /// The last round has left something, or space is short.
    pub(crate) again: AtomicBool,
    /// The warm level had something to do when it was looked at last.
    pub(crate) level_works: AtomicBool,
    rounds: AtomicU64,
}

impl Upkeep {
    pub(crate) fn new(bell: Arc<Bell>) -> Upkeep {
        Upkeep {
            bell,
            sleeps_to_ns: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            again: AtomicBool::new(true),
            level_works: AtomicBool::new(true),
            rounds: AtomicU64::new(0),
        }
    }

    /// Something is due at this moment: rings where the thread would sleep past it. Called under the lock of the cell that
    /// has the deadline.
    #[inline]
    pub(crate) fn due_at(&self, at_ns: u64) {
        // Relaxed: the thread has written before it took this cell's lock, or it takes the lock after this and sees the deadline.
        if at_ns < self.sleeps_to_ns.load(Ordering::Relaxed) {
            self.bell.ring();
        }
    }

    /// A round begins: what happens from here on rings again.
    pub(crate) fn begins(&self, now_ns: u64) {
        self.sleeps_to_ns.store(0, Ordering::Relaxed);
        self.bell.take();
        self.last_ns.store(now_ns, Ordering::Relaxed);
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// A look found inhibit, and only another look ends it: rounds follow each other from now on, until one finds nothing
    /// left to do.
    pub(crate) fn follow(&self) {
        if !self.again.swap(true, Ordering::Relaxed) {
            self.bell.ring();
        }
    }

    /// A round is over; whether the next one follows after the shortest pause.
    pub(crate) fn ends(&self, again: bool) {
        self.again.store(again, Ordering::Relaxed);
    }

    /// The warm level was looked at; whether it had something to do. Where it has, its fill is another.
    pub(crate) fn level_worked(&self, any: bool) {
        if self.level_works.swap(any, Ordering::Relaxed) || any {
            self.bell.ring();
        }
    }

    /// Rounds since opening.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }
}
