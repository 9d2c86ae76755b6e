//! All events of a store: what is counted and waited for over its shards.

use super::verdicts::Recent;
use super::waiting::Waiting;
use crate::locks::Ranked;
use std::sync::atomic::{AtomicU64, Ordering};

/// The events of one store. Lock: that of the last verdicts (rank: `locks.rs`).
pub(crate) struct Events {
    /// The last verdicts.
    pub(crate) recent: Ranked<Recent>,
    pub(crate) waiting: Waiting,
    /// Leases that are out.
    pub(crate) leases: AtomicU64,
    /// Leases that ended by time: without heartbeat, and past `max_hold`.
    pub(crate) workers_silent: AtomicU64,
    pub(crate) workers_failed: AtomicU64,
    pub(crate) held_too_long: AtomicU64,
    /// Bytes of copies that are kept for a person, because they differ from what was stored first.
    pub(crate) conflict_bytes: AtomicU64,
}

impl Events {
    pub(crate) fn new(recent: Ranked<Recent>) -> Events {
        Events {
            recent,
            waiting: Waiting::default(),
            leases: AtomicU64::new(0),
            workers_silent: AtomicU64::new(0),
            workers_failed: AtomicU64::new(0),
            held_too_long: AtomicU64::new(0),
            conflict_bytes: AtomicU64::new(0),
        }
    }

    /// A lease is out no more.
    pub(crate) fn lease_ends(&self) {
        // Relaxed: a limit that is looked at before each grant, not an order between leases.
        let before = self.leases.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "each lease that ends was granted");
    }

    /// A conflicting copy is kept no longer, or not at all.
    pub(crate) fn forget_conflict(&self, bytes: u64) {
        let before = self.conflict_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{bytes} of {before} bytes of conflicts");
    }
}
