//! When the next round of maintenance has something to do.
//!
//! ```text
//! by time   first deadline of leases, of open events, of stopped runs; looks at sources, journals of run times, ...
//! by notice a segment is taken, a run changes its state, an event goes to the debug stream, the warm level works
//! again     the last round did not finish, or space is short
//! ```
//!
//! *Invariants*: what is due before the thread of the store would wake rings (`Upkeep::due_at`): the thread says how long it
//! sleeps before it looks at the deadlines, and who sets one under a cell's lock asks after that, or is seen by the look
//! (`tests/due.rs`).
//!
//! *Not here*: what a round does (`maintain.rs`), the state of rounds (`rounds.rs`). The warm level's thread has its own pace (`levels/mod.rs`).

use crate::Store;
use crate::engine::Engine;
use crate::limits::SOURCES_LOOK_NS;
use crate::placement::Level;
use crate::rounds::{CAP, LEVEL_CAP, MAINTENANCE};
use crate::shards::Shard;
use forebay_core::nanoseconds;
use std::sync::atomic::Ordering;

impl Store {
    /// The earliest moment, in nanoseconds of the store's clock, at which a round of maintenance has something to do; `None`
    /// where nothing is due, whatever the time. A store without a thread of its own is to be ticked then ([`Store::tick`]),
    /// and need not be ticked before, unless it is called: a call may bring the moment forward.
    ///
    /// It is exact for leases, `complete_within` and `stop_grace`. Where a round has left something, for lack of space or
    /// because records are still written, it is the time of the last round and 5 ms. With a warm level it is at most 100 ms
    /// after the last round.
    pub fn next_due_ns(&self) -> Option<u64> {
        Some(self.engine().next_due_ns()).filter(|due| *due != u64::MAX)
    }

    /// Rounds of maintenance since opening, for tests and benchmarks.
    #[doc(hidden)]
    pub fn maintenance_rounds(&self) -> u64 {
        self.engine().upkeep.rounds()
    }
}

impl Engine {
    /// An event waits from now on: it may be the first that is due.
    #[inline]
    pub(crate) fn opened(&self, shard: &Shard, event: u32) {
        let leaf = &shard.events[event];
        let run = &shard.events.runs[leaf.run as usize];
        // Behind another one of its run it is not the first: all of them wait for the same time.
        if run.open.first() == Some(event) {
            self.upkeep.due_at(run.due_ns(leaf.arrival_ns));
        }
    }

    /// The moment of the next round; `u64::MAX` without one.
    pub(crate) fn next_due_ns(&self) -> u64 {
        let upkeep = &self.upkeep;
        let last = upkeep.last_ns.load(Ordering::Relaxed);
        let soon = last.saturating_add(nanoseconds(MAINTENANCE));
        let something = upkeep.again.load(Ordering::Relaxed) || upkeep.bell.is_rung();
        let of_level = self.placement.level.as_ref().map_or(u64::MAX, |level| self.level_due_ns(level, last));
        let of_shards = self.shards.cells.iter().map(|cell| self.shard_due_ns(&mut cell.lock())).min();
        let due = of_level.min(of_shards.unwrap_or(u64::MAX)).min(self.runs_due_ns());
        // The last round has met what was due then, and could not do it: it is tried again at the pace of rounds.
        let due = if due <= last { soon } else { due };
        if something { due.min(soon) } else { due }
    }

    /// As [`Engine::next_due_ns`] for the thread of the store, which sleeps to the answer at the latest.
    pub(super) fn sleep_to_ns(&self) -> u64 {
        // Before the look: a deadline that a cell gets after it was looked at rings.
        self.upkeep.sleeps_to_ns.store(u64::MAX, Ordering::Relaxed);
        // A cause that this module does not know is seen after the cap. It costs a store without an open run a round each
        // second; one with an open run looks at its sources four times as often.
        let cap = self.now_ns().saturating_add(nanoseconds(CAP));
        let to = self.next_due_ns().min(cap);
        // The thread has paused for that long since the last round, by its timer: where a test moves the clock, it may stand still.
        let soon = self.upkeep.last_ns.load(Ordering::Relaxed).saturating_add(nanoseconds(MAINTENANCE));
        let to = if to <= soon { 0 } else { to };
        self.upkeep.sleeps_to_ns.store(to, Ordering::Relaxed);
        to
    }

    /// Leases that run out, open events whose time is over, and stopped runs whose grace is.
    fn shard_due_ns(&self, shard: &mut Shard) -> u64 {
        let leases = &mut shard.events.leases;
        let lease = leases.timers.first(&leases.out).map_or(u64::MAX, |(deadline, _)| deadline);
        let open = shard.events.runs.iter().filter_map(|run| {
            let first = run.open.first()?;
            Some(run.due_ns(shard.events[first].arrival_ns))
        });
        open.fold(lease, u64::min)
    }

    /// Looks at sources, and journals of how long runs were open.
    fn runs_due_ns(&self) -> u64 {
        let soon = self.upkeep.last_ns.load(Ordering::Relaxed).saturating_add(nanoseconds(MAINTENANCE));
        let in_cluster = self.life.epoch.load(Ordering::Relaxed) > 0;
        let runs: Vec<(u64, u64)> = {
            let runs = self.runs.known.lock();
            let alive = runs.iter().filter(|known| known.state != crate::RunState::Closed);
            let due = alive.map(|known| {
                // What a masked source sends again is counted by the round alone, and ends its mask.
                let policy = known.config.auto_mask.is_some() && !known.masked_by(true).is_empty() && !in_cluster;
                (known.run, known.time.due_ns().min(if policy { soon } else { u64::MAX }))
            });
            due.collect()
        };
        let watched = self.runs.watched.lock();
        let of_run = |(run, due): &(u64, u64)| {
            let looked = watched.get(run).and_then(|watched| watched.looked_ns);
            looked.map_or(0, |looked| looked.saturating_add(SOURCES_LOOK_NS)).min(*due)
        };
        runs.iter().map(of_run).min().unwrap_or(u64::MAX)
    }

    /// What the warm level does by itself, for stores whose rounds include it.
    fn level_due_ns(&self, level: &Level, last: u64) -> u64 {
        let soon = last.saturating_add(nanoseconds(MAINTENANCE));
        let queued = || self.shards.cells.iter().any(|cell| !cell.lock().places.to_demote.is_empty());
        if !self.config.maintenance && (self.upkeep.level_works.load(Ordering::Relaxed) || queued()) {
            return soon;
        }
        // Custody, containers to empty, devices that come and go, claims that end: none of them is urgent.
        let cap = last.saturating_add(nanoseconds(LEVEL_CAP));
        level.flushing.turns.lock().front().map_or(cap, |turn| turn.due_ns.min(cap))
    }
}
