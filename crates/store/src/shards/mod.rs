//! Shards: the events of each, and their places, behind one lock.
//!
//! ```text
//! primary key ─▶ Shards ─▶ Cell (lock, what is read without it) ─▶ Shard ─▶ events   what each event is
//!                                                                       └▶ places   where its fragments are
//! ```
//!
//! Both share a lock because a decision changes both at once, and a cache line (`events/event.rs`) because a put touches both.

mod shard;

pub(crate) use shard::Shard;

use crate::events::{DecidedForm, Shape, shard_of};
use crate::limits::SHARDS;
use crate::locks::{self, Locked, Owner, Ranked};
use forebay_core::SeededHasher;
use forebay_core::limits::STAGES_MAX;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A shard whose lock is held.
pub(crate) type ShardGuard<'a> = Locked<MutexGuard<'a, Shard>>;

/// A shard and what is read without its lock.
// Two cache lines each: the processor fetches lines in pairs, and two locks in one pair would slow each other down.
#[repr(align(128))]
pub(crate) struct Cell {
    shard: Ranked<Shard>,
    /// Arrival of the first ready event of each stage, and of the first that is far where those wait apart;
    /// `u64::MAX` without one.
    oldest_ready_ns: [[AtomicU64; STAGES_MAX]; 2],
}

impl Cell {
    fn new((owner, number): (Owner, u32), shard: Shard) -> Cell {
        debug_assert!(locks::CELL + number < locks::NAMES, "cell {number} has a rank of its own");
        Cell {
            shard: Ranked::new(owner, locks::CELL + number, shard),
            oldest_ready_ns: [const { [const { AtomicU64::new(u64::MAX) }; STAGES_MAX] }; 2],
        }
    }

    /// Arrival of the first ready event of a stage (of those on the warm level, if `far`); `u64::MAX` without one.
    #[inline]
    pub(crate) fn oldest_ready_ns(&self, stage: u8, far: bool) -> u64 {
        // A hint, read to choose a shard: what it promises is looked at again under the lock.
        self.oldest_ready_ns[usize::from(far)][stage as usize % STAGES_MAX].load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn lock(&self) -> ShardGuard<'_> {
        self.shard.lock()
    }

    /// Publishes what the heads of the ready lists say. Called before the lock is let go where a list changed.
    pub(crate) fn publish_ready(&self, shard: &Shard) {
        // Under the lock, so that values are published in the order in which the lists changed: an older one that came last
        // would hide ready events from all workers until the next change.
        for (stage, ready) in shard.events.lists.ready.iter().enumerate() {
            for (list, published) in [&ready.list, &ready.far].into_iter().zip(&self.oldest_ready_ns) {
                let oldest = list.first().map_or(u64::MAX, |event| shard.events[event].arrival_ns);
                published[stage].store(oldest, Ordering::Release);
            }
        }
    }
}

/// All shards of a store.
pub(crate) struct Shards {
    pub(crate) cells: Box<[Cell]>,
    pub(crate) decided_form: DecidedForm,
    /// Of a home, and of what is told at once or not: the shard with which the next walk over untold events begins.
    pub(crate) untold_from: Mutex<BTreeMap<(u16, bool), usize>>,
}

impl Shards {
    pub(crate) fn new(
        owner: Owner,
        number: u32,
        shape: Shape,
        hot_events: &Arc<AtomicU64>,
        hasher: SeededHasher,
    ) -> Shards {
        // `shard_of` answers numbers below this constant, and so do the counters of tokens.
        debug_assert_eq!(number as usize, SHARDS, "every key has its shard");
        let cell = |at| Cell::new((owner, at), Shard::new(shape, hot_events.clone(), hasher));
        let cells = (0..number).map(cell).collect();
        Shards { cells, decided_form: shape.decided_form, untold_from: Mutex::default() }
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
        // Ascending, as `locks.rs` asks: two threads that do this cannot wait for each other.
        self.cells.iter().map(Cell::lock).collect()
    }
}
