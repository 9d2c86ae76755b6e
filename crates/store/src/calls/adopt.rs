//! Adopting the map of a cluster: from then on the store is one of its nodes, and goes by that map.
//!
//! ```text
//! may it follow the present map? ─▶ runs that begin under it wait ─▶ durable ─▶ all cells: events change roles ─▶ in force
//! ```
//!
//! *Invariants*: what is answered under an epoch was done before a later one was adopted, because both happen under the
//! cells' locks (tests/loom.rs; CLUSTER.md, E4); a slot of a run that has begun here moves only to another of its members.
//!
//! *On failure*: where it is not known whether the map is durable, runs that begin under it wait until the same adoption is
//! tried again: the next opening may go by it.

use crate::Store;
use crate::engine::Engine;
use crate::events::{KeptForeign, State};
use crate::map_file;
use crate::shards::Shard;
use forebay_core::map::{ClusterMap, Hex128, Role, Seat, Succession};
use forebay_core::{Error, LiveState, Result};
use forebay_media::region_file::write_superblock_durably;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Store {
    /// Adopts a map of the cluster: its first one, or a later one. The node is the one that the map admits with this store.
    /// Events whose home it is not any more are kept and not served; those of which it is the home now are ready or open
    /// as after an opening.
    ///
    /// # Errors
    /// `Invalid` for a map that may not follow the present one, that does not admit this store or has not its keyspace, or, as
    /// the first one, that places a run elsewhere that has begun here; `Fenced` for an earlier epoch; `Conflict` for another map of
    /// the same epoch; `Unavailable` or `Corrupt` where it is not known whether it is durable: to be tried again; `Closed`.
    pub fn adopt_map(&self, map: &Arc<ClusterMap>) -> Result<Succession> {
        self.engine().adopt_map(map)
    }

    /// The map that the node goes by, and its number there; `None` outside of a cluster.
    pub fn adopted_map(&self) -> Option<(Arc<ClusterMap>, u16)> {
        self.engine().life.seat.lock().as_ref().map(|seat| (seat.map().clone(), seat.node()))
    }

    /// Epoch of the map that the node goes by; 0 outside of a cluster.
    #[inline]
    pub fn epoch(&self) -> u32 {
        // Acquire pairs with the store in `adopt_map`: who sees an epoch sees its map in the cells.
        self.engine().life.epoch.load(Ordering::Acquire)
    }

    /// What a map must admit this store as: its identity, and the boot generation in which it accepted a loss last.
    pub fn holding(&self) -> (Hex128, u32) {
        map_file::holding(&self.engine().life.superblock.lock())
    }
}

impl Engine {
    fn adopt_map(&self, map: &Arc<ClusterMap>) -> Result<Succession> {
        let _only_one = self.life.adopting.lock();
        self.check_open()?;
        let present = self.life.seat.lock().clone();
        let holding = map_file::holding(&self.life.superblock.lock());
        let seat = Arc::new(Seat::new(map.clone(), &self.keyspace.name, holding)?);
        {
            let runs = self.runs.known.lock();
            let last = runs.iter().map(|known| known.run).max();
            let from = match &present {
                Some(present) => match present.map().succeeds(map, last)? {
                    Succession::Same => return Ok(Succession::Same),
                    Succession::Later => present.first_run_moved(&seat),
                },
                None => match runs.iter().find(|known| !seat.leads_all(known.run)) {
                    Some(known) => {
                        return Err(Error::invalid(format!(
                            "run {} has begun in this store, and the map places events of it elsewhere: give node {} \
                             all slots up to that run, and others from a later one on",
                            known.run,
                            seat.node()
                        )));
                    }
                    None => Some(0),
                },
            };
            // A run that begins meanwhile would begin under the earlier map.
            self.runs.closed_from.store(from.unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        self.make_durable(&seat)?;
        self.take_seat(&seat, present.is_some_and(|present| present.rehomes(&seat)));
        Ok(Succession::Later)
    }

    fn make_durable(&self, seat: &Seat) -> Result<()> {
        self.locks.assert_free();
        if let Some(dir) = &self.life.dir {
            map_file::write(dir, seat.map())?;
        }
        let mut superblock = self.life.superblock.lock();
        let before = superblock.member.replace(map_file::membership(seat));
        let region = &self.placement.hot.region;
        // Over both copies the first time: a build that knows no maps would go on with the other one.
        let copies = if before.is_none() { 2 } else { 1 };
        (0..copies).try_for_each(|_| write_superblock_durably(region, &mut superblock))
    }

    /// The map is in force: every cell has it, with the roles of its events. All cells at once, so that no call finds one
    /// map in one cell and another in the next.
    fn take_seat(&self, seat: &Arc<Seat>, rehomes: bool) {
        let effects = self.decisions.effects.begin();
        let mut shards = self.shards.lock_all();
        for (shard, cell) in shards.iter_mut().zip(&self.shards.cells) {
            shard.seat = Some(seat.clone());
            if rehomes {
                self.change_roles(shard);
                cell.publish_ready(shard);
            }
        }
        self.placement.hot.region.fence();
        *self.life.seat.lock() = Some(seat.clone());
        self.life.epoch.store(seat.map().epoch(), Ordering::Release);
        drop((shards, effects));
        let _runs = self.runs.known.lock();
        self.runs.closed_from.store(u64::MAX, Ordering::Relaxed);
        self.events.waiting.notify();
        self.upkeep.bell.ring();
    }

    fn change_roles(&self, shard: &mut Shard) {
        let now = self.now_ns();
        for event in shard.events.every_event() {
            let home = self.role(shard, shard.events.primary(event).as_bytes()) == Role::Home;
            match shard.events[event].state {
                State::Live(state) if !home => {
                    shard.events.demote(event);
                    if state == LiveState::Leased {
                        self.events.lease_ends();
                    }
                }
                State::Foreign if home => {
                    let kept = shard.events.promote(event, now);
                    if shard.events[event].present > 0 {
                        self.settle_found(shard, event);
                    }
                    match kept {
                        Some(KeptForeign::Accepted(output)) => self.settle_accepted(shard, event, output),
                        Some(KeptForeign::Debug(reason)) => self.settle_debug(shard, event, reason),
                        None => {}
                    }
                }
                _ => {}
            }
        }
        self.take_out_failed(shard);
    }

    /// Whether a run that is not known waits for the adoption of a map.
    pub(crate) fn is_adopting(&self, run: u64) -> bool {
        run >= self.runs.closed_from.load(Ordering::Relaxed)
    }

    /// A moment for the adoption of the map under which a run begins.
    ///
    /// # Errors
    /// `Unavailable` past the deadline.
    #[cold]
    pub(crate) fn await_adoption(&self, run: u64, deadline: Instant) -> Result<()> {
        if self.poll(Duration::from_micros(100), deadline) {
            return Ok(());
        }
        Err(Error::unavailable(format!("run {run} begins under a map whose adoption did not end in time")))
    }
}
