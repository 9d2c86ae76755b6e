//! The debug stream: events that could not be processed, for a person to look at, give to workers again, or let go.
//!
//! *Invariants*: it is part of the ledger like any other state; past its quota it inhibits instead of losing
//! (`inhibit/`, tests/semantics/debug.rs).

use crate::engine::{Engine, closed};
use crate::events::{Reason, State};
use crate::placement::At;
use crate::{ConflictInfo, DebugInfo, DebugStats, Store};
use forebay_core::{Error, LiveState, Primary, Result, Tally};
use forebay_media::bytes::DecisionKind;

impl Store {
    /// The events of the debug stream; read them with [`Store::get_event`], end them with [`Store::release`] or
    /// [`Store::remove_event`], give them to workers again with [`Store::replay`].
    pub fn debug_events(&self) -> Vec<DebugInfo> {
        let engine = self.engine();
        let mut events = Vec::new();
        for cell in &engine.shards.cells {
            let shard = cell.lock();
            for event in shard.events.listed(LiveState::Debug) {
                let leaf = &shard.events[event];
                events.push(DebugInfo {
                    primary: shard.events.primary(event),
                    said: shard.events.lists.failures.get(&event).map(ToString::to_string).unwrap_or_default(),
                    reason: Reason::words(shard.events.lists.reasons.get(&event).copied().unwrap_or_default()).into(),
                    stage: engine.stage_name(leaf.stage()),
                    deliveries: leaf.deliveries(),
                    tally: shard.events.tally(event),
                });
            }
        }
        events.sort_unstable_by_key(|info| info.primary);
        events
    }

    /// Conflicting copies that are kept.
    pub fn conflicts(&self) -> Vec<ConflictInfo> {
        let mut conflicts = Vec::new();
        for cell in &self.engine().shards.cells {
            let shard = cell.lock();
            let info = shard.places.kept.iter();
            conflicts.extend(info.map(|kept| ConflictInfo {
                key: kept.key,
                bytes: kept.length,
                checksum: kept.checksum,
            }));
        }
        conflicts.sort_unstable_by_key(|info| info.key);
        conflicts
    }

    /// Gives an event of the debug stream to workers again, in the stage in which it failed, with a clean record.
    /// `false` where it is not in the debug stream.
    ///
    /// # Errors
    /// `Invalid` for a key of another schema, `Closed` also for an event of a closed run, `Unavailable` while it is being
    /// closed, `OutcomeUnknown` where a device does not make it durable.
    pub fn replay(&self, primary: &Primary) -> Result<bool> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        engine.relieve_log();
        let effects = engine.decisions.effects.begin();
        let cell = engine.shards.cell_of(primary.as_bytes());
        let mut shard = cell.lock();
        if shard.closed {
            return Err(closed());
        }
        let debug = |event: &u32| shard.events[*event].state == State::Live(LiveState::Debug);
        let Some(event) = engine.find(&shard, primary.as_bytes())?.filter(debug) else {
            // Locks and guard go before a wait for devices.
            drop((shard, effects));
            return engine.settle_again(primary.as_bytes()).map(|()| false);
        };
        let of_run = &shard.events.runs[shard.events[event].run as usize];
        if of_run.is_closing() {
            return Err(Error::unavailable(format!("run {} is being closed", of_run.run)));
        }
        if of_run.is_over() {
            return Err(Error::closed(format!("run {} is closed: its account is final", of_run.run)));
        }
        // First the record of failures, then the decision: a crash in between leaves it in the debug stream.
        shard.events[event].set_deliveries(0);
        shard.events.lists.failures.remove(&event);
        // Its images say that it is in the debug stream: from here on the log has to say more than they do.
        shard.events.slab.clear_at(event, At::SettledThere);
        shard.leave_custody(event);
        engine.lower_marks(&mut shard, event);
        engine.placement.hot.region.fence();
        let group = engine.group_of(&shard, event);
        let ticket = engine.record(&shard, event, &shard.events.decision(event, DecisionKind::Replay, group))?;
        debug_assert_eq!(shard.events[event].deliveries(), 0, "it goes out with a clean record");
        shard.events.move_to(event, LiveState::Ready);
        cell.publish_ready(&shard);
        drop((shard, effects));
        engine.events.waiting.notify();
        engine.settle(ticket).map(|()| true)
    }
}

impl Engine {
    pub(crate) fn debug_quota(&self) -> u64 {
        (self.config.debug_share * self.placement.hot.geometry.region_bytes() as f64) as u64
    }

    /// The debug stream at a glance, from the live figures of all runs.
    pub(crate) fn debug_stats(&self, tally: Tally, conflicts: u64) -> DebugStats {
        let quota_bytes = self.debug_quota();
        let alarm = (tally.events > 0 || conflicts > 0).then(|| {
            let over = if tally.bytes > quota_bytes { ", past its quota: the store inhibits" } else { "" };
            format!(
                "debug stream: {} events with {} bytes of {quota_bytes}, {conflicts} conflicting copies{over}; look at \
                 them, then replay, release or remove them",
                tally.events, tally.bytes
            )
        });
        DebugStats { tally, conflicts, quota_bytes, alarm }
    }
}
