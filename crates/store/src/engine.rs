//! The parts of one store and what all operations need of them.
//!
//! ```text
//! Store (handle, holder name) ─▶ Engine ─▶ cells: home + index, one lock each
//!                                      ├─▶ hot: segments, records, space
//!                                      ├─▶ log: decisions
//!                                      └─▶ runs, streams, inhibit, waiters
//! ```
//!
//! *Lock order*: `quiesce` → one cell (several only in ascending order) → log → space. Nothing waits for a deadline
//! under a lock.

use crate::config::Config;
use crate::home::{Cell, DecidedForm, Ended, Form, Plan, Recent, Shard, shard_of};
use crate::hot::{Hot, Log};
use crate::limits::{SHARDS, VERDICT_BYTES, verdicts_kept};
use crate::pressure::Pressure;
use crate::{HolderStats, RunState};
use forebay_core::{Error, Keyspace, Result, RunConfig, Superblock, Tally};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A run as the whole store knows it.
#[derive(Clone)]
pub(crate) struct KnownRun {
    pub(crate) run: u64,
    pub(crate) state: RunState,
    pub(crate) config: RunConfig,
}

/// Somebody who holds guards, by name.
pub(crate) struct Holder {
    pub(crate) engine: Arc<Engine>,
    pub(crate) name: String,
    pub(crate) guards: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// One store.
pub(crate) struct Engine {
    pub(crate) hot: Hot,
    pub(crate) log: Log,
    pub(crate) cells: Box<[Cell]>,
    pub(crate) decided_form: DecidedForm,
    pub(crate) keyspace: Keyspace,
    pub(crate) config: Config,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) boot: u32,
    /// Held for reading from a decision's record to the last of its effects; for writing by a snapshot.
    pub(crate) quiesce: RwLock<()>,
    pub(crate) runs: Mutex<Vec<KnownRun>>,
    pub(crate) streams: RwLock<Vec<String>>,
    pub(crate) leases: AtomicU64,
    pub(crate) conflict_bytes: AtomicU64,
    pub(crate) evacuated: AtomicU64,
    /// What opening found missing and the operator accepted, bounded.
    pub(crate) losses: Mutex<Vec<String>>,
    pub(crate) pressure: Pressure,
    pub(crate) holders: Mutex<Vec<Weak<Holder>>>,
    pub(crate) handles: AtomicU64,
    pub(crate) closed: AtomicBool,
    ready_waiters: AtomicU32,
    ready_lock: Mutex<()>,
    ready: Condvar,
    /// The last verdicts. Locked after a cell.
    pub(crate) recent: Mutex<Recent>,
    pub(crate) snapshotting: Mutex<()>,
    /// Held by a round of maintenance: closing waits for it.
    pub(crate) maintaining: Mutex<()>,
}

impl Engine {
    pub(crate) fn new(mut hot: Hot, keyspace: Keyspace, config: Config, superblock: Superblock) -> Engine {
        let schema = &keyspace.schema;
        let form = Form {
            primary: schema.primary_bytes(),
            rest: schema.rest_bytes(),
            attributes: !keyspace.attributes.is_empty(),
        };
        let decided_form = DecidedForm::new(schema);
        hot.snapshot_floor =
            (verdicts_kept(hot.geometry.region_bytes()) * VERDICT_BYTES).div_ceil(hot.slots.blob_bytes()) as u64;
        Engine {
            cells: (0..SHARDS).map(|_| Cell::new(form, decided_form)).collect(),
            log: Log::default(),
            decided_form,
            boot: superblock.boot,
            superblock: Mutex::new(superblock),
            quiesce: RwLock::new(()),
            runs: Mutex::new(Vec::new()),
            streams: RwLock::new(Vec::new()),
            leases: AtomicU64::new(0),
            conflict_bytes: AtomicU64::new(0),
            evacuated: AtomicU64::new(0),
            losses: Mutex::new(Vec::new()),
            pressure: Pressure::default(),
            holders: Mutex::new(Vec::new()),
            handles: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            ready_waiters: AtomicU32::new(0),
            ready_lock: Mutex::new(()),
            ready: Condvar::new(),
            recent: Mutex::new(Recent::default()),
            snapshotting: Mutex::new(()),
            maintaining: Mutex::new(()),
            hot,
            keyspace,
            config,
        }
    }

    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.config.clock.now_ns()
    }

    #[inline]
    pub(crate) fn shard_of(&self, primary: &[u8]) -> usize {
        shard_of(self.decided_form, primary)
    }

    #[inline]
    pub(crate) fn cell_of(&self, primary: &[u8]) -> &Cell {
        &self.cells[self.shard_of(primary)]
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// All cells at once, in order.
    pub(crate) fn lock_all(&self) -> Vec<MutexGuard<'_, Shard>> {
        self.cells.iter().map(Cell::lock).collect()
    }

    /// Takes a live event out for good (`Shard::end`) and gives its reserves back.
    pub(crate) fn end(&self, shard: &mut Shard, event: u32, ended: &mut Ended) -> Tally {
        let before = shard.removed_slots;
        let tally = shard.end(event, ended);
        self.hot.removed.fetch_sub(before - shard.removed_slots, Ordering::Relaxed);
        self.hot.events.fetch_sub(1, Ordering::Relaxed);
        tally
    }

    /// Marks ended records and gives their space back. Within the quiesce guard of the decision that ended them.
    pub(crate) fn finish(&self, ended: &Ended) {
        for &location in ended {
            let length = self.hot.length_of(location);
            self.hot.end_record(location, length);
        }
        if !ended.is_empty() {
            self.hot.region.fence();
        }
    }

    /// Wakes who waits for ready events.
    #[inline]
    pub(crate) fn notify_ready(&self) {
        if self.ready_waiters.load(Ordering::SeqCst) > 0 {
            drop(self.ready_lock.lock());
            self.ready.notify_all();
        }
    }

    /// Waits for a notice of ready events, at most `pause`, unless `there` already holds.
    pub(crate) fn wait_ready(&self, pause: Duration, there: impl Fn() -> bool) {
        let mut guard = self.ready_lock.lock();
        self.ready_waiters.fetch_add(1, Ordering::SeqCst);
        if !there() {
            self.ready.wait_for(&mut guard, pause);
        }
        self.ready_waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Guards out, by holder.
    pub(crate) fn holder_stats(&self) -> Vec<HolderStats> {
        let mut holders = self.holders.lock();
        holders.retain(|holder| holder.strong_count() > 0);
        let all = holders.iter().filter_map(Weak::upgrade);
        let mut stats: Vec<HolderStats> = all
            .map(|holder| HolderStats {
                holder: holder.name.clone(),
                guards: holder.guards.load(Ordering::Relaxed),
                bytes: holder.bytes.load(Ordering::Relaxed),
            })
            .filter(|holder| holder.guards > 0)
            .collect();
        stats.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        stats
    }

    pub(crate) fn plan(config: &RunConfig) -> Arc<Plan> {
        Arc::new(Plan::new(config))
    }
}

/// Every handle's answer after `close`.
#[cold]
pub(crate) fn closed() -> Error {
    Error::closed("the store is closed; open it again")
}

/// A deadline on the machine's clock: waits for space or other threads are real time even where a test moves the
/// store's clock by hand.
pub(crate) fn deadline_after(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait).unwrap_or_else(|| now + Duration::from_secs(365 * 24 * 3600))
}
