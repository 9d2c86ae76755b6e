//! Taking data out by hand: one fragment, one event, a range. A removal is a decision: durable before it is answered,
//! never undone by recovery, and what is removed stays closed.

use crate::Store;
use crate::calls::range::Walk;
use crate::engine::{Engine, closed};
use crate::events::{Departed, Ended, Flag, State};
use crate::placement::Ticket;
use crate::shards::{Shard, ShardGuard};
use forebay_core::{Bounds, Key, Kind, LiveState, Primary, Result, Tally};
use forebay_media::bytes::{Decision, DecisionKind};
use std::sync::atomic::Ordering;

impl Store {
    /// Removes one fragment; `false` if there is none. The key stays closed while its event lives.
    ///
    /// # Errors
    /// `Invalid` for a key of another schema, `Closed`, `Full` without space in the log beyond what live events reserve,
    /// `OutcomeUnknown` where a device does not make it durable.
    pub fn remove(&self, key: &Key) -> Result<bool> {
        let engine = self.engine();
        engine.check_key(key)?;
        engine.explained(engine.remove_key(key))
    }

    /// Removes an event in any state; a lease on it is fenced. `false` if there is none.
    ///
    /// # Errors
    /// `Invalid` for a key of another schema, `Closed`, `OutcomeUnknown` where a device does not make it durable.
    pub fn remove_event(&self, primary: &Primary) -> Result<bool> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        Ok(engine.end_event(primary, DecisionKind::RemoveEvent, |_, _| true)?.is_some())
    }

    /// Removes everything inside the bounds, event by event: whole events where every further sub-key is unbounded,
    /// single fragments otherwise. Each removal is durable by itself. Answers how many fragments were removed.
    ///
    /// # Errors
    /// `Invalid` for bounds of another schema, `Closed`, `Full` as [`Store::remove`] for single fragments, `OutcomeUnknown`
    /// where a device does not make it durable; what was removed before stays removed.
    pub fn remove_range(&self, bounds: &Bounds) -> Result<u64> {
        let engine = self.engine();
        let schema = &engine.keyspace.schema;
        let mut walk = Walk::new(engine, bounds)?;
        let whole = bounds.covers_whole_events(schema);
        let mut removed = 0;
        while let Some(primary) = walk.next(engine) {
            if whole {
                match engine.end_event(&primary, DecisionKind::RemoveEvent, |_, _| true) {
                    // Kept for another node, which removes it.
                    Err(error) if error.kind() == Kind::Fenced => {}
                    ended => removed += ended?.map_or(0, |tally| tally.fragments),
                }
                continue;
            }
            // Collected under the lock, removed one by one without it: each removal is a decision of its own.
            let keys: Vec<Key> = {
                let shard = engine.shards.cell_of(primary.as_bytes()).lock();
                let Some(event) = shard.events.find_live(primary.as_bytes()) else { continue };
                let all = shard.fragments(event, |_| true).map(|(rest, _)| schema.join(&primary, rest));
                all.filter(|key| bounds.contains(&schema.values(key.as_bytes()))).collect()
            };
            for key in keys {
                removed += u64::from(engine.remove_key(&key)?);
            }
        }
        Ok(removed)
    }
}

impl Engine {
    /// Ends an event by decision, if `allowed` says so of it: the record first, then its effects. Answers what it weighed.
    pub(crate) fn end_event(
        &self,
        primary: &Primary,
        kind: DecisionKind,
        allowed: impl Fn(&Shard, u32) -> bool,
    ) -> Result<Option<Tally>> {
        match self.end_event_now(primary, kind, allowed)? {
            Some((tally, ticket)) => self.settle(ticket).map(|()| Some(tally)),
            None => self.settle_again(primary.as_bytes()).map(|()| None),
        }
    }

    /// The same without waiting for devices.
    pub(crate) fn end_event_now(
        &self,
        primary: &Primary,
        kind: DecisionKind,
        allowed: impl Fn(&Shard, u32) -> bool,
    ) -> Result<Option<(Tally, Ticket)>> {
        // Before the guard: a snapshot waits for effects that have begun, and would wait for this call.
        self.relieve_log();
        let _effects = self.decisions.effects.begin();
        let shard = self.shards.cell_of(primary.as_bytes()).lock();
        if shard.closed {
            return Err(closed());
        }
        let there = self.find(&shard, primary.as_bytes())?.filter(|&event| {
            let leaf = &shard.events[event];
            // An event that is only a reservation under way has nothing to end.
            let counted = leaf.is(Flag::Counted) || leaf.is(Flag::Announced);
            counted && matches!(leaf.state, State::Live(_)) && allowed(&shard, event)
        });
        let Some(event) = there else { return Ok(None) };
        // Announced and never seen, it is counted as such, not as removed.
        let kind = if shard.events[event].is(Flag::Counted) { kind } else { DecisionKind::NeverSeen };
        self.end_locked(shard, event, kind).map(Some)
    }

    /// Ends a live event whose lock is held, within an effects guard.
    fn end_locked(&self, mut shard: ShardGuard<'_>, event: u32, kind: DecisionKind) -> Result<(Tally, Ticket)> {
        let primary = shard.events.primary(event);
        let cell = self.shards.cell_of(primary.as_bytes());
        let leaf = &shard.events[event];
        let leased = leaf.state == State::Live(LiveState::Leased);
        let output = if leaf.state == State::Live(LiveState::Accepted) { leaf.output() } else { 0 };
        let run = leaf.run as usize;
        let group = self.group_of(&shard, event);
        let tally = shard.events.tally(event);
        let record = Decision { detail: output, ..shard.events.decision(event, kind, group) };
        // From here on it has ended, no matter what follows: the record is durable, effects are done again by recovery.
        let ticket = self.record(&shard, event, &record)?;
        if leased {
            self.events.lease_ends();
        }
        if kind == DecisionKind::Release {
            self.book_released(&mut shard.events.runs[run], output);
        }
        let mut ended = Ended::new();
        self.end(&mut shard, event, kind, group, &mut ended);
        cell.publish_ready(&shard);
        drop(shard);
        // Without the lock: nobody finds these records any more, and marking them takes a flush each.
        self.finish(&ended);
        Ok((tally, ticket))
    }

    fn remove_key(&self, key: &Key) -> Result<bool> {
        self.relieve_log();
        match self.remove_key_now(key)? {
            Some(ticket) => self.settle(ticket).map(|()| true),
            None => {
                // Its event may have gone with it.
                self.settle_again(self.keyspace.schema.primary_of(key).as_bytes())?;
                self.settle_again(key.as_bytes()).map(|()| false)
            }
        }
    }

    fn remove_key_now(&self, key: &Key) -> Result<Option<Ticket>> {
        let (primary, rest) = key.as_bytes().split_at(self.keyspace.schema.primary_bytes());
        let mut known = None;
        let (mut shard, event, slot, word) = loop {
            let shard = self.shards.cell_of(primary).lock();
            if shard.closed {
                return Err(closed());
            }
            let Some(event) = self.find(&shard, primary)? else { return Ok(None) };
            let Ok((slot, word)) = shard.events.slot(event, rest) else { return Ok(None) };
            if !word.is_present() {
                return Ok(None);
            }
            let location = word.location();
            if !location.is_warm() || known.is_some_and(|(at, _)| at == location) {
                break (shard, event, slot, word);
            }
            // Its length is on a device: read without the lock, then looked at again.
            known = Some((location, self.length_there(shard, location)?));
        };
        let _effects = self.decisions.effects.begin();
        let leaf = &shard.events[event];
        let decided = leaf.state != State::Live(LiveState::Open);
        if decided && leaf.present == 1 && leaf.pending == 0 {
            // The last fragment of an event that waits for no more: the event goes with it.
            return self.end_locked(shard, event, DecisionKind::RemoveEvent).map(|(_, ticket)| Some(ticket));
        }
        let location = word.location();
        let known = known.filter(|_| location.is_warm()).map(|(_, length)| length);
        let length = known.unwrap_or_else(|| self.counted_at(location));
        // Ready stays ready, also after recovery, although the event may not be complete any more: its marks have a home
        // elsewhere before this fragment goes, also where the only other one is still being put.
        if decided {
            shard.events[event].mark_ready();
        }
        let stays = shard.fragments(event, |other| other != rest).map(|(_, location)| location).next();
        self.keep_marks(&mut shard, event, stays);
        self.placement.hot.region.fence();
        let ticket = self.record(
            &shard,
            event,
            &Decision {
                fragments: 1,
                bytes: u64::from(length),
                detail: u32::from(word.is_result()),
                ..Decision::about(DecisionKind::RemoveKey, key.as_bytes())
            },
        )?;
        shard.leave_custody(event);
        let run = self.keyspace.schema.run_of(primary);
        self.note_departure(&mut shard, run, |_| Departed::Fragment(*key));
        // The slot stays, closed, as long as the event lives: a late repeat of the put is answered `Late`.
        shard.events.remove_slot_for_good(event, slot);
        let tally = Tally::fragment(u64::from(length));
        let leaf = &mut shard.events[event];
        debug_assert!(leaf.present > 0 && leaf.bytes >= u64::from(length), "what is removed was booked");
        leaf.present -= 1;
        leaf.bytes -= u64::from(length);
        let (run, state) = (leaf.run as usize, leaf.state);
        let run = &mut shard.events.runs[run];
        if let Some(here) = run.here(state) {
            *here -= tally;
        }
        run.ledger.removed += tally;
        if state == State::Live(LiveState::Debug) {
            shard.events.lists.debug_bytes -= u64::from(length);
        }
        self.placement.hot.removed.fetch_add(1, Ordering::Relaxed);
        debug_assert!(self.marks_have_a_home(&shard, event), "marks of event {event} went with a fragment");
        drop(shard);
        // After the record: a mark without it would be a fragment that is gone without a reason.
        self.finish(&vec![word.place()]);
        Ok(Some(ticket))
    }
}
