//! The owners of one store together, and what takes several of them.
//!
//! ```text
//! Store (handle, holder name) ─▶ Engine ─▶ life        one opening of the store: holders, losses, closed
//!                                      ├─▶ runs        runs, holds, samplers, watched sources
//!                                      ├─▶ shards      events and their places, behind one lock per shard
//!                                      ├─▶ events      leases, last verdicts, threads that wait for ready events
//!                                      ├─▶ placement   hot and warm level
//!                                      ├─▶ decisions   log, names of streams, outputs, effects under way
//!                                      ├─▶ inhibit     latches and what they say
//!                                      └─▶ upkeep      when the next round of maintenance is due
//! ```
//!
//! *Lock order*: `locks.rs`, which asserts it. No thread waits for a device or for another call while it holds a ranked
//! lock. Some locks without a rank are held over such waits: `life.maintaining`, `decisions.snapshotting`, `runs.closing`
//! here, others in the warm level (list: ARCHITECTURE.md, *Lock order*). A call that must not wait (`try_put`, `try_reserve`) takes none
//! of them.

mod life;
mod marks;

use life::Life;
pub(crate) use marks::mark_detail;

use crate::config::Config;
use crate::decisions::Decisions;
use crate::events::{DecidedForm, Departed, Ended, Events, Flag, Form, Recent, Run, RunPlan, Shape};
use crate::inhibit::Inhibition;
use crate::limits::{INCIDENT_BYTES, SHARDS, VERDICT_BYTES, endings_bytes, incidents_kept, verdicts_kept};
use crate::locks::{self, Owner, Ranked};
use crate::placement::{Claims, Placement};
use crate::rounds::Upkeep;
use crate::runs::Runs;
use crate::shards::{Shard, Shards};
use crate::time;
use forebay_core::map::{Role, Seat};
use forebay_core::mutants::is_planted;
use forebay_core::{AttributeKind, Error, Key, Keyspace, Order, Result, RunConfig, SeededHasher, Signature, Timer};
use forebay_media::bytes::{DecisionKind, Superblock};
use forebay_media::hot::{Class, Hot, Kept};
use forebay_media::named::Named;
use forebay_media::sync::deadline_after;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Somebody who holds guards, by name.
pub(crate) struct Holder {
    pub(crate) engine: Arc<Engine>,
    pub(crate) name: String,
    pub(crate) guards: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Reservations out.
    pub(crate) reservations: AtomicU64,
}

/// One store: its owners, each with its own state and locks, and what all of them read.
pub(crate) struct Engine {
    pub(crate) keyspace: Keyspace,
    pub(crate) config: Config,
    pub(crate) roles: Roles,
    /// Of all ranked locks.
    pub(crate) locks: Owner,
    pub(crate) life: Life,
    pub(crate) runs: Runs,
    pub(crate) events: Events,
    pub(crate) shards: Shards,
    pub(crate) placement: Placement,
    pub(crate) decisions: Decisions,
    pub(crate) inhibit: Inhibition,
    pub(crate) upkeep: Upkeep,
    /// Held for moments, and before no other lock.
    pub(crate) claims: parking_lot::Mutex<Claims>,
}

/// Positions of attributes that mean something to the store.
pub(crate) struct Roles {
    /// The event's class.
    pub(crate) class: Option<usize>,
    /// The attribute that orders delivery.
    pub(crate) order: Option<usize>,
    /// The attribute that splits the ledger.
    pub(crate) ledger: Option<usize>,
}

impl Roles {
    fn of(keyspace: &Keyspace) -> Roles {
        let is_class = |(_, kind): &(String, AttributeKind)| *kind == AttributeKind::Class;
        Roles {
            class: keyspace.attributes.fields().iter().position(is_class),
            order: match &keyspace.delivery.order {
                Order::Lowest(name) | Order::Highest(name) => keyspace.attributes.index(name),
                Order::HotFirst | Order::OldestFirst => None,
            },
            ledger: keyspace.ledger_by.as_ref().and_then(|name| keyspace.attributes.index(name)),
        }
    }
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
        let region_bytes = hot.geometry.region_bytes();
        // Kept free from the beginning: a snapshot must always find room for what every snapshot has.
        let bounded = verdicts_kept(region_bytes) * VERDICT_BYTES + incidents_kept(region_bytes) * INCIDENT_BYTES;
        hot.snapshot_floor = bounded.div_ceil(hot.slots.blob_bytes()) as u64;
        hot.stages = keyspace.stages.len() as u64;
        let roles = Roles::of(&keyspace);
        let owner = Owner::new();
        let shape = Shape {
            form: Form {
                primary: schema.primary_bytes(),
                rest: schema.rest_bytes(),
                attributes: !keyspace.attributes.is_empty() || keyspace.announced,
            },
            decided_form: DecidedForm::new(schema),
            stages: keyspace.stages.len(),
            strict: keyspace.delivery.order != Order::HotFirst,
            ranked: roles.order.is_some(),
            endings_bytes: endings_bytes(region_bytes),
            // Images on devices outlive the memory of a closed run: without it they would come back.
            keeps_decided: superblock.devices > 0,
        };
        let upkeep = Upkeep::new(hot.bell.clone());
        let hasher = SeededHasher::new(config.random.next());
        let recent = Ranked::new(owner, locks::RECENT, Recent::default());
        Engine {
            shards: Shards::new(owner, SHARDS as u32, shape, &hot.events, hasher),
            events: Events::new(recent),
            placement: Placement::new(hot),
            decisions: Decisions::new(owner, &keyspace),
            runs: Runs::new(owner),
            inhibit: Inhibition::default(),
            upkeep,
            claims: parking_lot::Mutex::default(),
            life: Life::new(dir, superblock),
            locks: owner,
            roles,
            keyspace,
            config,
        }
    }

    /// At an opening, before anything is found: what is recovered is put by the node's roles (`recover`).
    pub(crate) fn begin_in(&self, seat: Option<Arc<Seat>>) {
        if let Some(seat) = &seat {
            self.life.epoch.store(seat.map().epoch(), Ordering::Release);
            self.shards.lock_all().iter_mut().for_each(|shard| shard.seat = Some(seat.clone()));
        }
        *self.life.seat.lock() = seat;
    }

    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.config.clock.now_ns()
    }

    /// What the store does to a run by itself is signed so.
    pub(crate) fn signed_by_itself(&self) -> Signature {
        Signature::new(Signature::AUTO, self.config.clock.wall_ms())
    }

    /// What the waits of calls end by.
    pub(crate) fn timer(&self) -> &dyn Timer {
        self.config.clock.timer()
    }

    pub(crate) fn deadline_after(&self, wait: Duration) -> Instant {
        time::deadline_after(self.timer(), wait)
    }

    /// A moment for another thread, before it is looked at again; `false` if the deadline is over.
    pub(crate) fn poll(&self, every: Duration, deadline: Instant) -> bool {
        time::poll(self.timer(), every, deadline)
    }

    /// Waits until a class has space; `false` if it has none when the deadline is over.
    pub(crate) fn wait_for_space(&self, class: Class, deadline: Instant) -> bool {
        while let Some(most) = self.timer().block_at_most(deadline) {
            if self.placement.hot.wait_for_space(class, deadline_after(most)) {
                return true;
            }
        }
        self.placement.hot.wait_for_space(class, deadline_after(Duration::ZERO))
    }

    /// Looks whether the store and its devices still have their names.
    pub(crate) fn look_at_names(&self) -> Option<String> {
        let device = || self.placement.level.as_ref()?.warm.present().iter().find_map(|device| device.gone());
        // Without the lock: a file system may take its time.
        let gone = self.life.named.iter().find_map(Named::gone).or_else(device);
        *self.life.gone.lock() = (self.now_ns(), gone.clone());
        gone
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Acquire pairs with the store in `close`: a call that sees it set sees all that was closed before.
        self.life.closed.load(Ordering::Acquire)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// A device that the store was made with is not there in this life.
    pub(crate) fn lacks_devices(&self) -> bool {
        self.placement.level.as_ref().map_or(0, |level| level.present().count()) < self.life.devices as usize
    }

    /// Whether an event is decided, here or on a device that is not there.
    pub(crate) fn is_decided(&self, run: &Run, primary: &[u8]) -> bool {
        run.decided.contains(self.shards.decided_form, primary)
            || self.decisions.absent.get().is_some_and(|absent| absent.is_decided(primary))
    }

    /// The version of a fragment that is put. Above 0 where the ones before it went with the hot level, or a device that is
    /// not there may have one.
    #[inline]
    pub(crate) fn first_version(&self, shard: &mut Shard, event: u32, key: &Key) -> u16 {
        // Nearly always 0: only after the loss of a level can a version of a new fragment exist.
        let known = shard.first_version(event, key);
        self.decisions.absent.get().map_or(known, |absent| absent.first_version(key.as_bytes(), known))
    }

    /// Whether a key was removed from an event of a device that is not there.
    pub(crate) fn is_removed_elsewhere(&self, key: &[u8]) -> bool {
        self.decisions.absent.get().is_some_and(|absent| absent.is_removed(key))
    }

    /// What this node is for an event; its home, where there is no cluster.
    #[inline]
    pub(crate) fn role(&self, shard: &Shard, primary: &[u8]) -> Role {
        let seat = shard.seat.as_ref().filter(|_| !is_planted("all-lead"));
        seat.map_or(Role::Home, |seat| seat.role(self.keyspace.schema.run_of(primary), primary))
    }

    /// The epoch of an event's slot; 0 outside of a cluster.
    #[inline]
    pub(crate) fn slot_epoch(&self, shard: &Shard, primary: &[u8]) -> u32 {
        shard.seat.as_ref().map_or(0, |seat| seat.since(self.keyspace.schema.run_of(primary), primary))
    }

    /// The live event of a key; `None` if there is none, which only its home can say.
    ///
    /// # Errors
    /// `Fenced` where its home is another node.
    #[inline]
    pub(crate) fn find(&self, shard: &Shard, primary: &[u8]) -> Result<Option<u32>> {
        match shard.events.find_live(primary) {
            None if self.role(shard, primary) != Role::Home => Err(self.elsewhere(shard, primary)),
            found => Ok(found),
        }
    }

    #[cold]
    pub(crate) fn elsewhere(&self, shard: &Shard, primary: &[u8]) -> Error {
        let schema = &self.keyspace.schema;
        let says = |seat: &Arc<Seat>| seat.elsewhere(schema.run_of(primary), primary, &schema.text(primary));
        shard.seat.as_ref().map_or_else(|| Error::internal("an event elsewhere, without a cluster"), says)
    }

    /// Takes a live event out for good (`Shard::end`) and gives its reserves back.
    pub(crate) fn end(&self, shard: &mut Shard, event: u32, kind: DecisionKind, group: u64, ended: &mut Ended) {
        let run = shard.events.runs[shard.events[event].run as usize].run;
        self.note_departure(shard, run, |shard| Departed::Event(shard.events.primary(event)));
        self.take_out(shard, event, |shard| shard.end(event, kind, group, ended));
    }

    /// Takes a foreign event out for good, as [`Engine::end`].
    pub(crate) fn end_foreign(&self, shard: &mut Shard, event: u32, ended: &mut Ended) {
        self.take_out(shard, event, |shard| shard.end_foreign(event, ended));
    }

    fn take_out(&self, shard: &mut Shard, event: u32, take: impl FnOnce(&mut Shard)) {
        let before = shard.events.removed_slots;
        let reserved = !shard.events[event].is(Flag::Far);
        take(shard);
        // Reserves are given back under the lock, after the record: until then they are what its slot is taken from.
        let removed = before - shard.events.removed_slots;
        let all_removed = self.placement.hot.removed.fetch_sub(removed, Ordering::Relaxed);
        debug_assert!(all_removed >= removed, "{removed} of {all_removed} removed fragments reserve a slot");
        let all_events = self.placement.hot.events.fetch_sub(u64::from(reserved), Ordering::Relaxed);
        debug_assert!(all_events >= u64::from(reserved), "an event on the hot level reserves a slot");
    }

    /// Marks ended records and gives their space back. Within the effects guard of the decision that ended them.
    pub(crate) fn finish(&self, ended: &Ended) {
        for place in ended {
            let location = place.location();
            let length = if location.is_warm() { 0 } else { self.placement.hot.length_of(location) };
            self.end_record(location, length);
        }
        // One fence for all: the decision says already that they are dead, the marks save recovery the search.
        if !ended.is_empty() {
            self.placement.hot.region.fence();
        }
    }

    /// What still uses the region: calls in flight, and what holders have of it. Users first: a thread that lets go in between
    /// counts as a call, and is never left out.
    pub(crate) fn kept(&self) -> Kept {
        let users = self.placement.hot.users();
        self.life.kept(users)
    }

    pub(crate) fn plan(&self, config: &RunConfig) -> Arc<RunPlan> {
        RunPlan::new(config, &self.keyspace)
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
    let mut holders = engine.life.holders.lock();
    holders.retain(|known| known.strong_count() > 0);
    holders.push(Arc::downgrade(&holder));
    holder
}

/// Every handle's answer after `close`.
#[cold]
pub(crate) fn closed() -> Error {
    Error::closed("the store is closed; open it again")
}
