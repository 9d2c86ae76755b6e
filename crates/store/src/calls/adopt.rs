//! Adopting the map of a cluster: from then on the store is one of its nodes, and goes by that map.
//!
//! ```text
//! may it follow the present map? ─▶ runs that begin under it wait ─▶ durable ─▶ all cells: events change roles ─▶ in force
//! ```
//!
//! *Invariants*: what is answered under an epoch was done before a later one was adopted, because both happen under the
//! cells' locks; a run that has begun here stays where it is, also if it began beside the adoption (loom model below).
//!
//! *On failure*: where it is not known whether the map is durable, runs that begin under it wait until the same adoption is
//! tried again: the next opening may go by it.

use crate::Store;
use crate::engine::Engine;
use crate::events::{KeptForeign, State};
use crate::map_file;
use crate::runs::RunHome;
use crate::shards::Shard;
use forebay_core::map::{ClusterMap, Hex128, Role, Seat, Succession};
use forebay_core::{Error, LiveState, Result};
use forebay_media::region_file::write_superblock_durably;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Store {
    /// Adopts a map of the cluster: its first one, or a later one. The node is the one that the map admits with this store.
    /// Events whose home it is not any more are kept and not served; those of which it is the home now are ready or open
    /// as after an opening.
    ///
    /// # Errors
    /// `Invalid` for a map that may not follow the present one, that does not admit this store or has not its keyspace, that has a
    /// look-up table where the store has a warm level, or, as the first one, that places a run elsewhere that has begun here;
    /// `Fenced` for an earlier epoch; `Conflict` for another map of the same epoch; `Unavailable` or `Corrupt` where it is not known whether it is durable: to be tried again; `Closed`.
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

    /// Who is asked for runs that this node does not know. Told once, before anything is served.
    pub fn set_run_home(&self, home: Arc<dyn RunHome>) {
        let told = self.engine().runs.home.set(home);
        debug_assert!(told.is_ok(), "a store is told once who knows the homes of runs");
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
        if self.placement.level.is_some() && !seat.keyspace().tables().is_empty() {
            return Err(Error::invalid(format!(
                "the map has a look-up table for keyspace `{}`, and this store has a warm level, where what other nodes hold \
                 cannot go: open it without containers",
                self.keyspace.name
            )));
        }
        {
            let runs = self.runs.known.lock();
            let last = runs.iter().map(|known| known.run).max().unwrap_or(0);
            let from = match &present {
                Some(present) => match present.map().succeeds(map, Some(last))? {
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
                    let home = self.home_of(shard, shard.events.primary(event).as_bytes());
                    shard.events.demote(event, home, self.now_ns(), |place| self.hot_length(place));
                    if state == LiveState::Leased {
                        self.events.lease_ends();
                    }
                }
                State::Foreign if home => {
                    let kept = shard.events.promote(event, now, |place| self.hot_length(place));
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
        debug_assert!(shard.events.foreign_adds_up(), "what is here of foreign events is in their runs' sums");
        self.take_out_failed(shard);
    }
}

/// What adoption promises to calls beside it, in its own steps: two cells stand for all, and a run that is not known yet begins
/// under the map in force or under the one that is adopted, never under both.
#[cfg(all(test, feature = "loom"))]
mod models {
    use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// A cell: epoch of its map, whether it knows the run, fragments stored in it. The node leads all slots of the run under
    /// epoch 1 and none under epoch 2.
    #[derive(Default)]
    struct Cell {
        epoch: u32,
        knows: bool,
        stored: u32,
    }

    struct Node {
        /// Whether the run was opened: what `Runs::known` says.
        runs: Mutex<bool>,
        closed_from: AtomicU64,
        cells: [Mutex<Cell>; 2],
        durable: AtomicBool,
    }

    const RUN: u64 = 5;

    impl Node {
        fn new() -> Node {
            let cell = || Mutex::new(Cell { epoch: 1, ..Cell::default() });
            let closed_from = AtomicU64::new(u64::MAX);
            Node { runs: Mutex::new(false), closed_from, cells: [cell(), cell()], durable: AtomicBool::new(false) }
        }

        /// As `open_run`; `false` where the run waits for an adoption.
        fn open(&self) -> bool {
            let mut opened = self.runs.lock().unwrap();
            if RUN >= self.closed_from.load(Ordering::Relaxed) {
                return false;
            }
            self.cells.iter().for_each(|cell| cell.lock().unwrap().knows = true);
            *opened = true;
            true
        }

        /// As `put`: claims under one hold, publishes under another. The epoch under which it was answered; `None` where it was
        /// refused.
        fn put(&self, at: usize) -> Option<u32> {
            let leads = |cell: &Cell| cell.epoch == 1;
            if !self.cells[at].lock().unwrap().knows && !self.open() {
                return None;
            }
            let claimed = self.cells[at].lock().map(|cell| cell.knows && leads(&cell)).unwrap();
            let mut cell = self.cells[at].lock().unwrap();
            (claimed && leads(&cell)).then(|| {
                cell.stored += 1;
                cell.epoch
            })
        }

        /// As `adopt_map`; `false` where the run has begun.
        fn adopt(&self, closes: bool) -> bool {
            {
                let opened = self.runs.lock().unwrap();
                if *opened {
                    return false;
                }
                self.closed_from.store(if closes { RUN } else { u64::MAX }, Ordering::Relaxed);
            }
            self.durable.store(true, Ordering::SeqCst);
            let mut cells: Vec<_> = self.cells.iter().map(|cell| cell.lock().unwrap()).collect();
            cells.iter_mut().for_each(|cell| cell.epoch = 2);
            drop(cells);
            let _opened = self.runs.lock().unwrap();
            self.closed_from.store(u64::MAX, Ordering::Relaxed);
            true
        }
    }

    fn puts_beside_an_adoption(closes: bool) {
        loom::model(move || {
            let node = Arc::new(Node::new());
            let puts = {
                let node = node.clone();
                thread::spawn(move || {
                    let answered = node.put(0);
                    // Answered under an epoch: the later one was not in force.
                    assert!(answered.is_none_or(|epoch| epoch == 1));
                    let second = node.put(1);
                    assert!(answered.is_some() || second.is_none(), "one map in one cell, and another one in the next");
                })
            };
            let adopted = node.adopt(closes);
            puts.join().unwrap();
            let stored: u32 = node.cells.iter().map(|cell| cell.lock().unwrap().stored).sum();
            assert!(!adopted || stored == 0, "a run that began here has moved");
            assert_eq!(adopted, node.durable.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn loom_a_run_begins_under_one_map() {
        puts_beside_an_adoption(true);
    }

    #[test]
    #[should_panic(expected = "a run that began here has moved")]
    fn loom_without_the_wait_a_run_moves() {
        puts_beside_an_adoption(false);
    }
}
