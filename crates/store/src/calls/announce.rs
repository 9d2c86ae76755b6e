//! Announcing events: a trigger decision names an event, and the sources that it must have, before their fragments come.
//!
//! *Invariants*: an announced event exists without fragments, also after a restart; if none comes in time it is counted
//! as never seen, and stays closed (tests/semantics/announce.rs).

use crate::engine::{Engine, closed};
use crate::events::Flag;
use crate::shards::Shard;
use crate::{OpenEvent, PutOutcome, RUN_OPENS, Store};
use forebay_core::{Attributes, Error, Primary, Result, Source};
use forebay_media::hot::Class;
use std::sync::atomic::Ordering;

/// Why an announcement must be tried again.
enum Again {
    Full(Error),
    UnknownRun(u64),
    Closing(u64),
}

impl Store {
    /// Announces an event. `Stored` says that it waits now for its sources, `Duplicate` that it was announced like that
    /// before, `Late` that it is leased or decided already. The wait for its fragments begins here.
    ///
    /// # Errors
    /// `Invalid` for sources of another schema, an empty list, or a keyspace that has neither attributes nor
    /// `announced = true`; `Conflict` where it was announced with other sources or attributes; `Full` at the store's
    /// `put_deadline`; `Closed` for a run that takes no new events.
    pub fn open_event(&self, primary: &Primary, how: &OpenEvent<'_>) -> Result<PutOutcome> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        let sources = engine.check_announcement(how)?;
        let deadline = engine.deadline_after(engine.config.put_deadline);
        let run_opens = deadline.max(engine.deadline_after(RUN_OPENS));
        loop {
            match engine.try_announce(primary, sources.as_deref(), how.attributes)? {
                Ok(outcome) => return Ok(outcome),
                Err(Again::UnknownRun(run)) => engine.begin_run(run, primary.as_bytes(), run_opens)?,
                Err(Again::Closing(run)) => engine.await_close(run, deadline)?,
                Err(Again::Full(error)) => {
                    // The log may hold what a snapshot would free, and only this thread knows that somebody waits for it.
                    engine.relieve_log();
                    if !engine.wait_for_space(Class::NewEvent, deadline) || engine.timer().now() >= deadline {
                        return engine.explained(Err(error));
                    }
                }
            }
        }
    }
}

impl Engine {
    fn check_announcement(&self, how: &OpenEvent<'_>) -> Result<Option<Vec<Source>>> {
        if !self.has_event_records() {
            return Err(Error::invalid(
                "events cannot be announced in this keyspace: it has no attributes and not `announced = true`",
            ));
        }
        let Some(sources) = how.sources else { return Ok(None) };
        let width = self.keyspace.schema.rest_bytes();
        if let Some(wrong) = sources.iter().find(|source| source.len() != width) {
            return Err(Error::invalid(format!("a source of {} bytes; this keyspace has {width}", wrong.len())));
        }
        // Membership is asked by binary search on each arrival, and a repeat is compared with what was announced.
        let mut sorted = sources.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let most = forebay_core::limits::FRAGMENTS_PER_EVENT_MAX as usize;
        if sorted.is_empty() || sorted.len() > most {
            return Err(Error::invalid(format!("an event waits for 1 to {most} sources, not {}", sorted.len())));
        }
        Ok(Some(sorted))
    }

    fn try_announce(
        &self,
        primary: &Primary,
        sources: Option<&[Source]>,
        attributes: Option<&Attributes>,
    ) -> Result<std::result::Result<PutOutcome, Again>> {
        let mut shard = self.shards.cell_of(primary.as_bytes()).lock();
        if shard.closed {
            return Err(closed());
        }
        let full = |error: Error| {
            if error.kind() == forebay_core::Kind::Full { Ok(Err(Again::Full(error))) } else { Err(error) }
        };
        // Fragments may be faster than the trigger's announcement: then the event is there already.
        if let Some(event) = self.find(&shard, primary.as_bytes())? {
            if !shard.events[event].waits() {
                return Ok(Ok(PutOutcome::Late));
            }
            return match self.announce(&mut shard, event, sources, attributes) {
                Ok(outcome) => Ok(Ok(outcome)),
                Err(error) => full(error),
            };
        }
        let number = self.keyspace.schema.run_of(primary.as_bytes());
        let room = self.placement.hot.admits(Class::NewEvent);
        let no_room = || Error::full(format!("no space for an event, fill {:.0} %", self.placement.hot.fill() * 100.0));
        let Some(run) = shard.events.run_index(number) else {
            return Ok(Err(if room { Again::UnknownRun(number) } else { Again::Full(no_room()) }));
        };
        let known = &shard.events.runs[run as usize];
        if known.is_closing() {
            return Ok(Err(Again::Closing(number)));
        }
        if !known.is_over() && self.is_decided(known, primary.as_bytes()) {
            return Ok(Ok(PutOutcome::Late));
        }
        if known.is_over() || !known.state.takes_events() {
            return Err(Error::closed(format!("run {number} is {}: it takes no new events", known.state.name())));
        }
        if !room {
            return Ok(Err(Again::Full(no_room())));
        }
        let event = shard.events.create(primary.as_bytes(), run, self.now_ns());
        self.placement.hot.events.fetch_add(1, Ordering::Relaxed);
        self.opened(&shard, event);
        match self.announce(&mut shard, event, sources, attributes) {
            Ok(outcome) => Ok(Ok(outcome)),
            Err(error) => {
                self.withdraw_unborn(&mut shard, event);
                full(error)
            }
        }
    }

    /// Announces an event that waits, under its lock.
    fn announce(
        &self,
        shard: &mut Shard,
        event: u32,
        sources: Option<&[Source]>,
        attributes: Option<&Attributes>,
    ) -> Result<PutOutcome> {
        // All that may be refused comes before anything is changed.
        let earlier = self.attributes(shard, event)?;
        let merged = match attributes {
            Some(attributes) if self.keyspace.attributes.is_empty() && !attributes.is_empty() => {
                return Err(Error::invalid("this keyspace has no attributes"));
            }
            Some(attributes) => self.merged(shard, event, attributes, &earlier, true)?,
            None => earlier.clone(),
        };
        let own = shard.events.own_rules.get(&event).map(|rule| rule.sources().to_vec());
        if let (Some(own), Some(sources)) = (&own, sources)
            && own != sources
        {
            let name = self.keyspace.schema.text(shard.events.primary(event).as_bytes());
            return Err(Error::conflict(format!("{name}: it was announced with other sources")));
        }
        let was_announced = shard.events[event].is(Flag::Announced);
        if was_announced && merged == earlier && (sources.is_none() || own.is_some()) {
            return Ok(PutOutcome::Duplicate);
        }
        // The record is written from what the shard knows: so that first, and back again where there is no space.
        let rule_before = shard.events[event].rule;
        if let (Some(sources), None) = (sources, &own) {
            shard.events.set_own_rule(event, sources.to_vec());
        }
        shard.events[event].set(Flag::Announced);
        let announces = sources.is_some() && own.is_none();
        if let Err(error) = self.write_event_record(shard, event, &merged, announces) {
            // Nothing is durable: the event is as it was.
            if own.is_none() {
                shard.events.own_rules.remove(&event);
                shard.events[event].rule = rule_before;
            }
            if !was_announced {
                shard.events[event].clear(Flag::Announced);
            }
            return Err(error);
        }
        let leaf = &shard.events[event];
        let run = leaf.run as usize;
        // One of which a fragment came before is an event of the account already.
        if !was_announced && !leaf.is(Flag::Counted) {
            shard.events.runs[run].ledger.awaited += 1;
        }
        debug_assert!(shard.events.attribute_word(event).is_some(), "an announced event has its record");
        self.follow_attributes(shard, event, &merged);
        if announces {
            self.reconsider(shard, event);
        }
        Ok(PutOutcome::Stored)
    }
}
