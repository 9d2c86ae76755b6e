//! Readiness without all sources: by seal and by time.

use crate::Store;
use crate::engine::{Engine, closed};
use crate::events::{Ended, Flag, State};
use crate::placement::Ticket;
use crate::shards::Shard;
use forebay_core::{Error, LiveState, Primary, Result};
use forebay_media::bytes::DecisionKind;

impl Store {
    /// The event is ready now, with what it has. `false` where there is no such event; sealing a ready one is a success.
    ///
    /// # Errors
    /// `Invalid` for a key of another schema, `Closed`, `Full` without space in the log, `OutcomeUnknown` where a device does
    /// not make it durable: only for an event that has nothing left, which ends.
    pub fn seal(&self, primary: &Primary) -> Result<bool> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        engine.relieve_log();
        let effects = engine.decisions.effects.begin();
        let cell = engine.shards.cell_of(primary.as_bytes());
        let mut shard = cell.lock();
        if shard.closed {
            return Err(closed());
        }
        let exists = |event: &u32| shard.events[*event].is(Flag::Counted) || shard.events[*event].is(Flag::Announced);
        let Some(event) = engine.find(&shard, primary.as_bytes())?.filter(exists) else {
            return Ok(false);
        };
        let mut ticket = Ticket::default();
        if shard.events[event].state == State::Live(LiveState::Open) {
            if shard.events[event].present > 0 && !engine.mark_ready(&mut shard, event) {
                drop((shard, effects));
                return engine.explained(Err(Error::full("no space to log that the event is ready")));
            }
            ticket = engine.make_ready(&mut shard, event)?;
            // Ready is monotone for the caller too: durable before it is answered.
            engine.placement.hot.region.fence();
            cell.publish_ready(&shard);
        }
        // Before the wait for devices, the guard too: a snapshot would wait with this call.
        drop(shard);
        drop(effects);
        engine.events.waiting.notify();
        engine.settle(ticket).map(|()| true)
    }
}

impl Engine {
    /// Marks an open event as ready (flushed, not fenced); `false` where the log had no space for it: it is not, then.
    fn mark_ready(&self, shard: &mut Shard, event: u32) -> bool {
        // The mark is written from the event's state, so that first; back again where the log refuses.
        shard.events[event].mark_ready();
        let is_marked = self.mark_event(shard, event);
        if !is_marked {
            shard.events[event].unmark_ready();
        }
        is_marked
    }

    /// Moves an open event to ready and marks that (flushed, not fenced). One without a readable fragment has nothing
    /// to process: it waits on for what is in flight, or, all of it removed or nothing seen, it ends. Within an effects
    /// guard.
    pub(crate) fn make_ready(&self, shard: &mut Shard, event: u32) -> Result<Ticket> {
        let leaf = &shard.events[event];
        debug_assert_eq!(leaf.state, State::Live(LiveState::Open), "only an open event becomes ready");
        let (present, pending) = (leaf.present, leaf.pending);
        if present > 0 {
            if !shard.events[event].is_marked_ready() {
                shard.events[event].mark_ready();
                self.mark_event(shard, event);
            }
            if !shard.events[event].is(Flag::Complete) {
                shard.events.note_misses(event);
                // The run's policy counts them.
                self.upkeep.bell.ring();
            }
            shard.events.move_to(event, LiveState::Ready);
        } else if pending > 0 {
            // Its turn comes again at the end of the list.
            // With a new arrival: by the old one its time would be over again in the next round.
            shard.events[event].arrival_ns = self.now_ns();
            shard.events.move_to(event, LiveState::Open);
        } else if !leaf.is(Flag::Counted) && !leaf.is(Flag::Announced) {
            if let Some(attributes) = self.withdraw_unborn(shard, event) {
                self.end_attributes(attributes);
            }
        } else {
            let seen = leaf.is(Flag::Counted);
            let kind = if seen { DecisionKind::RemoveEvent } else { DecisionKind::NeverSeen };
            if !seen {
                shard.events.note_misses(event);
                self.upkeep.bell.ring();
            }
            let group = self.group_of(shard, event);
            let ticket = self.record(shard, event, &shard.events.decision(event, kind, group))?;
            let mut ended = Ended::new();
            self.end(shard, event, kind, group, &mut ended);
            self.finish(&ended);
            return Ok(ticket);
        }
        Ok(Ticket::default())
    }
}
