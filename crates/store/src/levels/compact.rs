//! Getting containers back: those with nothing live are reclaimed, mostly dead ones emptied when space is short, and
//! those whose device failed them rescued.
//!
//! *Invariants*: what is live is written elsewhere, durably, before the container is used again; what cannot be read any
//! more is reported lost by name.

use super::demote::BATCH_BYTES;
use super::plan::Which;
use crate::decisions::LOST;
use crate::engine::Engine;
use crate::events::{Incident, IncidentKind};
use crate::placement::{Compacting, Demoter, Level};
use crate::shards::Shard;
use forebay_core::limits::LOSSES_LISTED_MAX;
use forebay_core::{Error, Key, Kind, Primary, Result, Tally};
use forebay_media::bytes::{Decision, DecisionKind, ExtentKind};
use forebay_media::hot::Location;
use std::collections::BTreeSet;
use std::time::Duration;

/// Events emptied out of a container in one round.
const BATCH_EVENTS: usize = 1024;
/// Pause after a container could not be read, or nothing took what lives in it.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause before containers of devices that leave are tried again, in which there were only copies.
const RETRY: Duration = Duration::from_secs(1);
/// Reads of a fragment that no other one has, before it is given up.
const READS_MAX: u32 = 3;

impl Engine {
    /// Empties one container that is worth it; `true` where something was moved.
    pub(crate) fn compact(&self, level: &Level, demoter: &mut Demoter) -> bool {
        // A device that cannot be read now is left alone for a while: each try may take as long as it may stall.
        let Compacting { again, spared, retried } = &mut demoter.compacting;
        if again.is_some_and(|again| self.timer().now() < again) {
            return false;
        }
        *again = None;
        let leaves = |container: u32| level.warm.is_leaving(level.warm.device_of(container));
        let now = self.timer().now();
        if retried.is_none_or(|retried| now >= retried) {
            spared.retain(|container, _| !leaves(*container));
            *retried = Some(self.deadline_after(RETRY));
        }
        // Moves off a device that leaves give no container back: without room they wait, and those that do go on.
        let moves = !level.is_refused(now);
        let victim = level.warm.victim(self.config.warm_high, moves, spared);
        let Some((victim, live)) = victim.or_else(|| self.stays_in_custody(level, spared).filter(|_| moves)) else {
            return false;
        };
        let leaving = leaves(victim);
        let events = match self.events_of_container(level, victim) {
            Ok(events) => events,
            Err(error) => {
                level.note(error.to_string());
                *again = Some(self.deadline_after(PAUSE));
                return false;
            }
        };
        // Its live fragments are copies: moving nothing, it would be chosen again and again.
        if events.is_empty() {
            spared.insert(victim, live);
            return leaving && self.move_copies(level, demoter, victim);
        }
        let (mut batch, mut planned) = (Vec::new(), 0);
        for primary in events.into_iter().take(BATCH_EVENTS) {
            if planned >= BATCH_BYTES {
                break;
            }
            let mut shard = self.shards.cell_of(primary.as_bytes()).lock();
            if shard.closed {
                return false;
            }
            let Some(event) = shard.events.find(primary.as_bytes()) else { continue };
            let record_there = shard.events.attribute_word(event).map(crate::events::Word::location);
            let record_there = record_there.is_some_and(|at| at.is_warm() && at.container() == victim);
            if record_there && !shard.fragments(event, |_| true).any(|(_, at)| at.is_warm() && at.container() == victim)
            {
                // Its record alone: it goes back to the hot level, and down again with the rest.
                if let Err(error) = self.bring_record_up(&mut shard, event) {
                    level.note(error.to_string());
                }
                continue;
            }
            if let Some(mut moving) = self.plan_event(&mut shard, event, Which::Out(victim)) {
                drop(shard);
                // Read before the batch is written, without the lock: one bad fragment must not keep its container from being
                // emptied.
                moving.parts.retain(|part| match self.readable_there(level, part.from) {
                    Ok(()) => true,
                    Err((error, lost)) => {
                        level.note(error.to_string());
                        if lost {
                            self.lose(&primary, part.from, &error);
                        } else {
                            *again = Some(self.deadline_after(PAUSE));
                        }
                        self.unpin(part.from);
                        false
                    }
                });
                planned += moving.event_bytes;
                batch.push(moving);
            }
        }
        let any = !batch.is_empty();
        // Moves off a device that leaves only end for a moment, and those that give containers back go on.
        if !self.write_batch(level, demoter, batch, ExtentKind::Moved, !leaving) && !leaving {
            demoter.compacting.again = Some(self.deadline_after(PAUSE));
        }
        // To the end: the container is for new images only once all that was live in it is durable elsewhere.
        self.settle_durable(level, demoter, 0);
        debug_assert!(!demoter.is_pending(), "moves are durable before their container is reclaimed");
        any
    }

    /// Events whose persisted copies are in a container that has nothing else go down whole: their copies end with that. Those that
    /// are not complete are tried again later. `true` where something was moved.
    fn move_copies(&self, level: &Level, demoter: &mut Demoter, container: u32) -> bool {
        let (mut batch, mut planned) = (Vec::new(), 0);
        for cell in &self.shards.cells {
            let mut shard = cell.lock();
            let here = |copies: &[(Location, u32)]| copies.iter().any(|(at, _)| at.container() == container);
            let events: Vec<u32> =
                shard.places.copies.iter().filter(|(_, copies)| here(copies)).map(|(event, _)| *event).collect();
            for event in events {
                if planned >= BATCH_BYTES || batch.len() >= BATCH_EVENTS {
                    break;
                }
                if let Some(moving) = self.plan_event(&mut shard, event, Which::Whole) {
                    planned += moving.event_bytes;
                    batch.push(moving);
                }
            }
        }
        let any = !batch.is_empty();
        self.write_batch(level, demoter, batch, ExtentKind::Demoted, false);
        self.settle_durable(level, demoter, 0);
        any
    }

    /// Writes the record of an event on the warm level to the hot one. One that cannot be read stays where it is: what would
    /// be written in its place has no attributes, and is the one that counts from then on.
    fn bring_record_up(&self, shard: &mut Shard, event: u32) -> Result<()> {
        let attributes = self.attributes(shard, event)?;
        self.write_event_record(shard, event, &attributes, false)
    }

    /// Whether a fragment can be read; otherwise why not, and whether that is for good: its bytes are wrong, or they cannot
    /// be read on a device that answers.
    fn readable_there(&self, level: &Level, at: Location) -> std::result::Result<(), (Error, bool)> {
        let mut tries = 1;
        loop {
            let Err(error) = self.verify_there(at) else { return Ok(()) };
            // More than once: a device that recovers must not have cost a fragment.
            if tries == READS_MAX {
                let lost = error.kind() == Kind::Corrupt || level.warm.answers(at.container());
                return Err((error, lost));
            }
            tries += 1;
        }
    }

    /// Events with a live fragment in the container.
    fn events_of_container(&self, level: &Level, container: u32) -> Result<BTreeSet<Primary>> {
        let mut events = BTreeSet::new();
        // By what the container has, not by what the index has: that would be a walk over all events.
        level.warm.images_of(container, &mut |_, image| {
            let primary = Primary::from_packed(image.primary);
            let shard = self.shards.cell_of(image.primary).lock();
            let here = |event: u32| {
                let record = shard.events.attribute_word(event).map(crate::events::Word::location);
                let all = shard.fragments(event, |_| true).map(|(_, at)| at).chain(record);
                all.into_iter().any(|at| at.is_warm() && at.container() == container)
            };
            if shard.events.find(image.primary).is_some_and(here) {
                events.insert(primary);
            }
            Ok(())
        })?;
        Ok(events)
    }

    /// A fragment that no medium has any more: its event goes on without it, the ledger says so, and so does its name.
    fn lose(&self, primary: &Primary, from: Location, why: &Error) {
        // Where its entry cannot be read either, its bytes stay in the event's account.
        let length = self.entry_of(from).map_or(0, |entry| entry.length);
        // A decision as any other: recorded before it is carried out, so that no later life looks for this fragment.
        let _effects = self.decisions.effects.begin();
        let mut shard = self.shards.cell_of(primary.as_bytes()).lock();
        let Some(event) = shard.events.find(primary.as_bytes()) else { return };
        let found = shard.fragments(event, |_| true).find(|found| found.1 == from).map(|(rest, _)| rest.to_vec());
        let Some(rest) = found else { return };
        let Ok((slot, word)) = shard.events.slot(event, &rest) else { return };
        let key: Key = self.keyspace.schema.join(primary, &rest);
        let record = Decision {
            fragments: 1,
            bytes: u64::from(length),
            detail: LOST | u32::from(word.is_result()),
            ..Decision::about(DecisionKind::RemoveKey, key.as_bytes())
        };
        let Ok(ticket) = self.record(&shard, event, &record) else { return };
        ticket.unanswered();
        shard.leave_custody(event);
        shard.events.remove_slot_for_good(event, slot);
        let leaf = &mut shard.events[event];
        debug_assert!(leaf.present > 0, "what is lost was present");
        leaf.present -= 1;
        // Saturating: of a fragment without a readable entry the length is not known, here as when it was recovered.
        leaf.bytes = leaf.bytes.saturating_sub(u64::from(length));
        let (run, state) = (leaf.run as usize, leaf.state);
        let tally = Tally::fragment(u64::from(length));
        let run = &mut shard.events.runs[run];
        if let Some(here) = run.here(state) {
            *here -= tally;
        }
        run.ledger.lost += tally;
        let at_ns = self.now_ns();
        shard.events.incidents.note(Incident { key, kind: IncidentKind::Lost, at_ns, length });
        let mut losses = self.life.losses.lock();
        if losses.len() < LOSSES_LISTED_MAX {
            losses.push(format!("{}: {why}", self.keyspace.schema.text(key.as_bytes())));
        }
        drop(losses);
        drop(shard);
        self.placement.hot.removed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.end_record(from, 0);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, PutOptions, PutOutcome, Store, WarmDevice};
    use forebay_core::{AttributeSchema, Attributes, Keyspace, Kind};
    use forebay_testkit::media::{SimDevice, SimMedium};

    /// Compaction brings a record up that has its container alone. One that cannot be read is left there: without its
    /// attributes it would be a newer version, and the one that counts.
    #[test]
    fn a_record_that_cannot_be_read_is_not_written_again_as_an_empty_one() {
        let config = Config {
            hot_bytes: 16 << 20,
            maintenance: false,
            demote_high: 0.001,
            demote_low: 0.0,
            container_bytes: 256 << 10,
            device_log_bytes: 256 << 10,
            warm: vec![WarmDevice::device(SimDevice::new("warm", 16 << 20), 5 << 20)],
            ..Config::default()
        };
        let attributes = AttributeSchema::parse(&["lumi:u32"], &[]).unwrap();
        let keyspace = Keyspace { attributes, ..Keyspace::events("record", 1).opening_runs() };
        let store = Store::create_on(SimMedium::new(config.hot_bytes), &keyspace, config).unwrap();
        let key = store.schema().key(&[1, 1, 0]).unwrap();
        let primary = store.schema().primary_of(&key);
        let lumi = Attributes::parse(&store.keyspace().attributes, &["lumi=5"]).unwrap();
        let options = PutOptions { attributes: Some(&lumi), ..PutOptions::default() };
        assert_eq!(store.put(&key, &[7; 3000], &options).unwrap(), PutOutcome::Stored);
        store.tick();
        let engine = store.engine();
        let mut shard = engine.shards.cell_of(primary.as_bytes()).lock();
        let event = shard.events.find(primary.as_bytes()).unwrap();
        let word = shard.events.attribute_word(event).unwrap();
        assert!(word.is_warm(), "it went down with its event");
        let whole = shard.places.warm_records[&event].clone();
        shard.places.warm_records.get_mut(&event).unwrap().bytes = Box::default();
        assert_eq!(engine.bring_record_up(&mut shard, event).unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(shard.events.attribute_word(event), Some(word), "it stays where it is");
        shard.places.warm_records.insert(event, whole);
        engine.bring_record_up(&mut shard, event).unwrap();
        assert!(!shard.events.attribute_word(event).unwrap().is_warm());
        assert_eq!(engine.attributes(&shard, event).unwrap(), lumi);
    }
}
