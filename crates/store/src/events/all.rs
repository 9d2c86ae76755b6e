//! All events of a store: its shards, and what is counted over them.

use super::run::DecidedForm;
use super::shard::{Cell, ShardGuard, shard_of};
use super::verdicts::Recent;
use super::waiting::Waiting;
use crate::locks::Ranked;
use std::sync::atomic::AtomicU64;

/// The events of one store. Locks: one per cell, and that of the last verdicts (ranks: `locks.rs`).
pub(crate) struct Events {
    pub(crate) cells: Box<[Cell]>,
    pub(crate) decided_form: DecidedForm,
    /// The last verdicts.
    pub(crate) recent: Ranked<Recent>,
    pub(crate) waiting: Waiting,
    /// Leases that are out.
    pub(crate) leases: AtomicU64,
    /// Leases that ended by time: without heartbeat, and past `max_hold`.
    pub(crate) workers_silent: AtomicU64,
    pub(crate) held_too_long: AtomicU64,
    /// Bytes of copies that are kept for a person, because they differ from what was stored first.
    pub(crate) conflict_bytes: AtomicU64,
}

impl Events {
    pub(crate) fn new(cells: Box<[Cell]>, decided_form: DecidedForm, recent: Ranked<Recent>) -> Events {
        Events {
            cells,
            decided_form,
            recent,
            waiting: Waiting::default(),
            leases: AtomicU64::new(0),
            workers_silent: AtomicU64::new(0),
            held_too_long: AtomicU64::new(0),
            conflict_bytes: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn shard_of(&self, primary: &[u8]) -> usize {
        shard_of(self.decided_form, primary)
    }

    #[inline]
    pub(crate) fn cell_of(&self, primary: &[u8]) -> &Cell {
        &self.cells[self.shard_of(primary)]
    }

    /// All cells at once, in order.
    pub(crate) fn lock_all(&self) -> Vec<ShardGuard<'_>> {
        self.cells.iter().map(Cell::lock).collect()
    }
}
