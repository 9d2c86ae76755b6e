//! The parts of one store and what all operations need of them.
//!
//! ```text
//! Store (handle, holder name) ─▶ Engine ─▶ cells: events + index, one lock each
//!                                      ├─▶ hot: segments, records, space
//!                                      ├─▶ log: decisions
//!                                      └─▶ runs, streams, inhibit, waiters
//! ```
//!
//! *Lock order*: `locks.rs`, which asserts it. No thread waits for a device or for another call while it holds a ranked
//! lock. Some locks without a rank are held over such waits: `maintaining`, `snapshotting`, `closing_run` here, others in
//! the warm level (list: ARCHITECTURE.md, *Lock order*). A call that must not wait (`ops/now.rs`) takes none of them.

use crate::config::Config;
use crate::decisions::{Absent, Effects, Outputs};
use crate::events::{Cell, DecidedForm, Ended, Flag, Form, Plan, Recent, Run, Shard, ShardGuard, shard_of};
use crate::inhibit::Inhibition;
use crate::limits::{INCIDENT_BYTES, SHARDS, VERDICT_BYTES, endings_bytes, incidents_kept, verdicts_kept};
use crate::locks::{self, Owner, Ranked, RankedRw};
use crate::placement::Level;
use crate::runs::{Hold, KnownRun, Samplers, Watched};
use forebay_core::{AttributeKind, Error, HolderStats, Key, Keyspace, Order, Result, RunConfig};
use forebay_media::bytes::{DecisionKind, Superblock};
use forebay_media::hot::{Hot, Kept, KeptBy, Log};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

/// Somebody who holds guards, by name.
pub(crate) struct Holder {
    pub(crate) engine: Arc<Engine>,
    pub(crate) name: String,
    pub(crate) guards: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Reservations out.
    pub(crate) reservations: AtomicU64,
}

/// One store.
pub(crate) struct Engine {
    pub(crate) hot: Hot,
    pub(crate) log: Log,
    /// The warm level, if the store has one.
    pub(crate) level: Option<Level>,
    pub(crate) cells: Box<[Cell]>,
    /// Of all ranked locks.
    pub(crate) locks: Owner,
    pub(crate) decided_form: DecidedForm,
    pub(crate) keyspace: Keyspace,
    pub(crate) config: Config,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) boot: u32,
    /// Devices that the store was made with.
    devices: u32,
    /// Calls between a decision's record and the last of its effects.
    pub(crate) effects: Effects,
    pub(crate) runs: Ranked<Vec<KnownRun>>,
    pub(crate) streams: RankedRw<Vec<String>>,
    pub(crate) outputs: RankedRw<Outputs>,
    pub(crate) holds: RankedRw<Vec<Hold>>,
    /// What the log says of events on devices that are not there.
    pub(crate) absent: OnceLock<Absent>,
    /// Number of holds: asked for every event that is given out.
    pub(crate) holds_set: AtomicU32,
    pub(crate) next_hold: AtomicU32,
    pub(crate) samplers: Samplers,
    /// What maintenance knows of sources, by run.
    pub(crate) watched: Ranked<BTreeMap<u64, Watched>>,
    /// Positions of attributes that mean something to the store: the class, what orders delivery, what splits the ledger.
    pub(crate) class_attribute: Option<usize>,
    pub(crate) order_attribute: Option<usize>,
    pub(crate) ledger_attribute: Option<usize>,
    /// The store's directory; `None` on a simulated medium.
    pub(crate) dir: Option<PathBuf>,
    pub(crate) leases: AtomicU64,
    /// Leases that ended by time: without heartbeat, and past `max_hold`.
    pub(crate) workers_silent: AtomicU64,
    pub(crate) held_too_long: AtomicU64,
    pub(crate) conflict_bytes: AtomicU64,
    pub(crate) evacuated: AtomicU64,
    /// What opening found missing and the operator accepted, bounded.
    pub(crate) losses: Mutex<Vec<String>>,
    pub(crate) inhibit: Inhibition,
    pub(crate) holders: Mutex<Vec<Weak<Holder>>>,
    pub(crate) handles: AtomicU64,
    pub(crate) closed: AtomicBool,
    ready_waiters: AtomicU32,
    /// Tasks of event loops that wait for ready events.
    pub(crate) ready_tasks: AtomicU32,
    pub(crate) ready_wakers: Mutex<VecDeque<Waker>>,
    ready_lock: Mutex<()>,
    ready: Condvar,
    /// The last verdicts.
    pub(crate) recent: Ranked<Recent>,
    pub(crate) snapshotting: Mutex<()>,
    /// Held by a round of maintenance: closing waits for it.
    pub(crate) maintaining: Mutex<()>,
    /// Held by whoever closes a run, before anything else.
    pub(crate) closing_run: Mutex<()>,
}

impl Engine {
    pub(crate) fn new(
        mut hot: Hot,
        keyspace: Keyspace,
        config: Config,
        superblock: Superblock,
        dir: Option<PathBuf>,
    ) -> Engine {
        let schema = &keyspace.schema;
        let form = Form {
            primary: schema.primary_bytes(),
            rest: schema.rest_bytes(),
            attributes: !keyspace.attributes.is_empty() || keyspace.announced,
        };
        let decided_form = DecidedForm::new(schema);
        let region_bytes = hot.geometry.region_bytes();
        let bounded = verdicts_kept(region_bytes) * VERDICT_BYTES + incidents_kept(region_bytes) * INCIDENT_BYTES;
        hot.snapshot_floor = bounded.div_ceil(hot.slots.blob_bytes()) as u64;
        hot.stages = keyspace.stages.len() as u64;
        let order_attribute = match &keyspace.delivery.order {
            Order::Lowest(name) | Order::Highest(name) => keyspace.attributes.index(name),
            Order::HotFirst | Order::OldestFirst => None,
        };
        let strict = keyspace.delivery.order != Order::HotFirst;
        let endings = endings_bytes(region_bytes);
        let owner = Owner::new();
        let cell = |number| {
            let stages = keyspace.stages.len();
            let cell = Cell::new(
                (owner, number),
                hot.events.clone(),
                form,
                decided_form,
                stages,
                strict,
                order_attribute.is_some(),
            );
            let mut shard = cell.lock();
            (shard.endings_bytes, shard.keeps_decided) = (endings, superblock.devices > 0);
            drop(shard);
            cell
        };
        Engine {
            cells: (0..SHARDS as u32).map(cell).collect(),
            locks: owner,
            class_attribute: class_position(&keyspace),
            order_attribute,
            ledger_attribute: keyspace.ledger_by.as_ref().and_then(|name| keyspace.attributes.index(name)),
            outputs: RankedRw::new(owner, locks::OUTPUTS, Outputs::default()),
            holds: RankedRw::new(owner, locks::NAMES, Vec::new()),
            absent: OnceLock::new(),
            holds_set: AtomicU32::new(0),
            next_hold: AtomicU32::new(1),
            samplers: Samplers::default(),
            watched: Ranked::new(owner, locks::WATCHED, BTreeMap::new()),
            dir,
            log: Log::default(),
            level: None,
            decided_form,
            boot: superblock.boot,
            devices: superblock.devices,
            superblock: Mutex::new(superblock),
            effects: Effects::new(),
            runs: Ranked::new(owner, locks::RUNS, Vec::new()),
            streams: RankedRw::new(owner, locks::NAMES, Vec::new()),
            leases: AtomicU64::new(0),
            workers_silent: AtomicU64::new(0),
            held_too_long: AtomicU64::new(0),
            conflict_bytes: AtomicU64::new(0),
            evacuated: AtomicU64::new(0),
            losses: Mutex::new(Vec::new()),
            inhibit: Inhibition::default(),
            holders: Mutex::new(Vec::new()),
            handles: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            ready_waiters: AtomicU32::new(0),
            ready_tasks: AtomicU32::new(0),
            ready_wakers: Mutex::default(),
            ready_lock: Mutex::new(()),
            ready: Condvar::new(),
            recent: Ranked::new(owner, locks::RECENT, Recent::default()),
            snapshotting: Mutex::new(()),
            maintaining: Mutex::new(()),
            closing_run: Mutex::new(()),
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

    /// A device that the store was made with is not there in this life.
    pub(crate) fn lacks_devices(&self) -> bool {
        self.level.as_ref().map_or(0, |level| level.present().count()) < self.devices as usize
    }

    /// Whether an event is decided, or stands decided on a device that is not there.
    pub(crate) fn is_decided(&self, run: &Run, primary: &[u8]) -> bool {
        run.decided.contains(self.decided_form, primary)
            || self.absent.get().is_some_and(|absent| absent.is_decided(primary))
    }

    /// The version of a fragment that is put. Above 0 where the ones before it went with the hot level, or a device that is
    /// not there may have one.
    #[inline]
    pub(crate) fn first_version(&self, shard: &mut Shard, event: u32, key: &Key) -> u16 {
        let known = shard.first_version(event, key);
        self.absent.get().map_or(known, |absent| absent.first_version(key.as_bytes(), known))
    }

    /// Whether a key was removed from an event that stands on a device that is not there.
    pub(crate) fn is_removed_elsewhere(&self, key: &[u8]) -> bool {
        self.absent.get().is_some_and(|absent| absent.is_removed(key))
    }

    /// All cells at once, in order.
    pub(crate) fn lock_all(&self) -> Vec<ShardGuard<'_>> {
        self.cells.iter().map(Cell::lock).collect()
    }

    /// Takes a live event out for good (`Shard::end`) and gives its reserves back.
    pub(crate) fn end(&self, shard: &mut Shard, event: u32, kind: DecisionKind, group: u64, ended: &mut Ended) {
        let before = shard.removed_slots;
        let reserved = !shard.events[event].is(Flag::AllWarm);
        shard.end(event, kind, group, ended);
        self.hot.removed.fetch_sub(before - shard.removed_slots, Ordering::Relaxed);
        self.hot.events.fetch_sub(u64::from(reserved), Ordering::Relaxed);
    }

    /// Marks ended records and gives their space back. Within the effects guard of the decision that ended them.
    pub(crate) fn finish(&self, ended: &Ended) {
        for &location in ended {
            let length = if location.is_warm() { 0 } else { self.hot.length_of(location) };
            self.end_record(location, length);
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
        if self.ready_tasks.load(Ordering::SeqCst) > 0 {
            self.wake_ready_task();
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

    /// What still uses the region: calls in flight, and what holders have of it. Users first: who lets go in between
    /// counts as a call, never as nobody.
    pub(crate) fn kept(&self) -> Kept {
        let users = self.hot.users();
        let holders = self.holders.lock();
        let of = |holder: Arc<Holder>| KeptBy {
            holder: holder.name.clone(),
            guards: holder.guards.load(Ordering::Acquire),
            reservations: holder.reservations.load(Ordering::Acquire),
        };
        let all = holders.iter().filter_map(Weak::upgrade).map(of);
        Kept::new(users, all.filter(|holder| holder.guards + holder.reservations > 0).collect())
    }

    pub(crate) fn plan(&self, config: &RunConfig) -> Arc<Plan> {
        Plan::new(config, &self.keyspace.attributes)
    }

    /// Whether events have records of their own.
    pub(crate) fn has_event_records(&self) -> bool {
        !self.keyspace.attributes.is_empty() || self.keyspace.announced
    }
}

/// A new holder of this name.
pub(crate) fn new_holder(engine: &Arc<Engine>, name: &str) -> Arc<Holder> {
    let (guards, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let reservations = AtomicU64::new(0);
    let holder = Arc::new(Holder { engine: engine.clone(), name: name.to_owned(), guards, bytes, reservations });
    let mut holders = engine.holders.lock();
    holders.retain(|known| known.strong_count() > 0);
    holders.push(Arc::downgrade(&holder));
    holder
}

/// Every handle's answer after `close`.
#[cold]
pub(crate) fn closed() -> Error {
    Error::closed("the store is closed; open it again")
}

/// Position of the attribute that holds the class.
fn class_position(keyspace: &Keyspace) -> Option<usize> {
    keyspace.attributes.fields().iter().position(|(_, kind)| *kind == AttributeKind::Class)
}
