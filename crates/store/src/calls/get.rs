//! Reading: one fragment, many, or a whole event, as guards on the bytes in place.
//!
//! *Invariants*: a pin is taken under the lock that shows the record live, so that what a guard shows is never reused
//! (hot/segment.rs, loom models).

use crate::engine::Engine;
use crate::events::{Flag, State};
use crate::levels::{ONE_FRAGMENT, Reading};
use crate::shards::Shard;
use crate::{Event, Fragment, SourceStates, Sources, Store};
use forebay_core::{Attributes, Error, Key, LiveState, Primary, Result};
use forebay_media::hot::Location;

impl Store {
    /// The fragment of a key; `None` if there is none.
    ///
    /// # Errors
    /// `Invalid` for a key of another schema, `Corrupt` where its entry does not verify, `Closed`.
    #[inline]
    pub fn get(&self, key: &Key) -> Result<Option<Fragment>> {
        let engine = self.engine();
        engine.check_key(key)?;
        let (primary, rest) = key.as_bytes().split_at(engine.keyspace.schema.primary_bytes());
        let location = {
            let shard = engine.shards.cell_of(primary).lock();
            if shard.closed {
                return Err(crate::engine::closed());
            }
            let found = match engine.find_held(&shard, primary, rest) {
                Some(word) => Some(word),
                None => match engine.find(&shard, primary)? {
                    Some(event) => shard.events.slot(event, rest).ok().map(|(_, word)| word),
                    None => None,
                },
            };
            let Some(word) = found.filter(|word| word.is_present()) else { return Ok(None) };
            // Under the lock that shows it live: after it the segment could be reclaimed and filled with something else.
            engine.pin(word.location());
            word.location()
        };
        Reading::new(self, ONE_FRAGMENT).guard(location).map(Some)
    }

    /// The fragments of several keys, in the order of the keys.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Fragment>>> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    /// A live event with the fragments of the given sources; `None` where there is no such event.
    ///
    /// # Errors
    /// `Invalid` for a key of another schema, `Corrupt`, `Closed`.
    pub fn get_event(&self, primary: &Primary, sources: &Sources) -> Result<Option<Event>> {
        let engine = self.engine();
        engine.check_primary(primary)?;
        let (state, stage, attributes, output, missing, states, bytes, locations) = {
            let shard = engine.shards.cell_of(primary.as_bytes()).lock();
            if shard.closed {
                return Err(crate::engine::closed());
            }
            let Some(event) = engine.find(&shard, primary.as_bytes())? else { return Ok(None) };
            let State::Live(state) = shard.events[event].state else { return Ok(None) };
            // A reservation under way is no event yet.
            let leaf = &shard.events[event];
            if !leaf.is(Flag::Counted) && !leaf.is(Flag::Announced) {
                return Ok(None);
            }
            // Only an accepted event has one; in other states the word is a lease.
            let output = if state == LiveState::Accepted { leaf.output() } else { 0 };
            let stage = leaf.stage();
            let missing = engine.missing_keys(&shard, event);
            let attributes = engine.attributes(&shard, event)?;
            let states = engine.source_states(&shard, event);
            let bytes = shard.events[event].bytes;
            (state, stage, attributes, output, missing, states, bytes, engine.pin_fragments(&shard, event, sources))
        };
        let fragments = self.guards(locations, bytes)?;
        let streams = engine.stream_names(output);
        let stage = engine.stage_name(stage);
        Ok(Some(Event { primary: *primary, state, stage, attributes, streams, fragments, missing, sources: states }))
    }

    /// Turns pinned locations of an event, which has `event_bytes` payload bytes, into guards; on an error no pin is left behind.
    pub(crate) fn guards(&self, locations: Vec<Location>, event_bytes: u64) -> Result<Vec<Fragment>> {
        // No lock is held: an image on the warm level is read from its device here.
        let mut fragments = Vec::with_capacity(locations.len());
        let mut locations = locations.into_iter();
        let mut reading = Reading::new(self, event_bytes);
        for location in locations.by_ref() {
            match reading.guard(location) {
                Ok(fragment) => fragments.push(fragment),
                Err(error) => {
                    locations.for_each(|rest| self.engine().unpin(rest));
                    return Err(error);
                }
            }
        }
        Ok(fragments)
    }
}

impl Engine {
    pub(crate) fn check_primary(&self, primary: &Primary) -> Result<()> {
        if primary.as_bytes().len() == self.keyspace.schema.primary_bytes() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a primary key of {} bytes; this keyspace has {}",
            primary.as_bytes().len(),
            self.keyspace.schema.primary_bytes()
        )))
    }

    /// Pins the chosen fragments of an event, under its lock.
    pub(crate) fn pin_fragments(&self, shard: &Shard, event: u32, sources: &Sources) -> Vec<Location> {
        let chosen = shard.fragments(event, |rest| sources.takes(rest));
        chosen.map(|(_, location)| location).inspect(|&location| self.pin(location)).collect()
    }

    pub(crate) fn missing_keys(&self, shard: &Shard, event: u32) -> Vec<Key> {
        let primary = shard.events.primary(event);
        shard.events.missing(event).iter().map(|rest| self.keyspace.schema.join(&primary, rest)).collect()
    }

    pub(crate) fn source_states(&self, shard: &Shard, event: u32) -> SourceStates {
        SourceStates::new(shard.events.source_states(event), self.keyspace.schema.rest_bytes())
    }

    pub(crate) fn stage_name(&self, stage: u8) -> String {
        self.keyspace.stages.get(usize::from(stage)).cloned().unwrap_or_default()
    }

    /// Attributes for a reader outside of the home's own decisions.
    pub(crate) fn attributes_or_none(&self, shard: &Shard, event: u32) -> Attributes {
        self.attributes(shard, event).unwrap_or_default()
    }
}
