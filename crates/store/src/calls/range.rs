//! Walking in key order: each shard's next event is known, the lowest of them is next; sub-key bounds are answered by
//! seeking, not by filtering everything in between.
//!
//! A walk is not a snapshot: events that come or go behind it are not seen, those ahead of it are.

use crate::engine::{Engine, closed};
use crate::events::State;
use crate::limits::SHARDS;
use crate::{EventInfo, Fragment, Store};
use forebay_core::{Bounds, Error, Primary, Result, Seek};
use std::collections::VecDeque;

/// The events inside the primary part of bounds, in key order.
pub(crate) struct Walk {
    bounds: Bounds,
    next: Vec<Option<Primary>>,
}

impl Walk {
    /// # Errors
    /// `Invalid` for bounds of another schema, `Closed`.
    pub(crate) fn new(engine: &Engine, bounds: &Bounds) -> Result<Walk> {
        Walk::after(engine, bounds, None)
    }

    /// The same, but only what comes after this event.
    ///
    /// # Errors
    /// Those of [`Walk::new`].
    pub(crate) fn after(engine: &Engine, bounds: &Bounds, after: Option<&Primary>) -> Result<Walk> {
        engine.check_open()?;
        let schema = &engine.keyspace.schema;
        let limits = bounds.upper().iter().zip(schema.sub_keys());
        if bounds.upper().len() != schema.sub_keys().len()
            || limits.into_iter().any(|(&upper, part)| upper > part.max())
        {
            return Err(Error::invalid(format!("bounds of another key than {}", schema.describe().join(", "))));
        }
        let mut first = schema.primary(&bounds.lower()[..schema.primary_len()]).ok();
        if let Some(after) = after {
            first = after.successor().zip(first).map(|(next, first)| next.max(first));
        }
        // One candidate per shard, each found under its own lock: a walk holds no lock between two events.
        let mut walk = Walk { bounds: bounds.clone(), next: vec![None; SHARDS] };
        for shard in 0..SHARDS {
            walk.next[shard] = first.and_then(|first| walk.seek(engine, shard, first));
        }
        Ok(walk)
    }

    /// The first event of a shard that is not below `from` and inside.
    fn seek(&self, engine: &Engine, shard: usize, mut from: Primary) -> Option<Primary> {
        let schema = &engine.keyspace.schema;
        let shard = engine.shards.cells[shard].lock();
        loop {
            let found = shard.events.primary(shard.events.seek(from.as_bytes())?);
            match self.bounds.seek(&schema.values(found.as_bytes())) {
                Seek::Inside => return Some(found),
                // Jumps over what the bounds leave out: a range of one source over many events reads only those.
                Seek::To(values) => from = schema.primary(&values).ok()?,
                Seek::End => return None,
            }
        }
    }

    pub(crate) fn next(&mut self, engine: &Engine) -> Option<Primary> {
        let shards = self.next.iter().enumerate();
        let (shard, primary) = shards.filter_map(|(at, next)| Some((at, (*next)?))).min_by_key(|(_, next)| *next)?;
        self.next[shard] = primary.successor().and_then(|from| self.seek(engine, shard, from));
        debug_assert!(self.next[shard].is_none_or(|next| next > primary), "a walk goes on, in the order of keys");
        Some(primary)
    }
}

/// Fragments inside bounds, in key order.
pub struct Range {
    store: Store,
    /// `None` after an error.
    walk: Option<Result<Walk>>,
    bounds: Bounds,
    here: VecDeque<Fragment>,
}

impl Iterator for Range {
    type Item = Result<Fragment>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(fragment) = self.here.pop_front() {
                return Some(Ok(fragment));
            }
            let engine = self.store.engine();
            let walk = match (self.walk.take()?, engine.check_open()) {
                (Ok(walk), Ok(())) => self.walk.insert(Ok(walk)),
                (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
            };
            let primary = walk.as_mut().ok()?.next(engine)?;
            let schema = &engine.keyspace.schema;
            let inside = |rest: &[u8]| self.bounds.contains(&schema.values(schema.join(&primary, rest).as_bytes()));
            let (bytes, locations) = {
                let shard = engine.shards.cell_of(primary.as_bytes()).lock();
                // Asked under the lock that the pins are taken under: a closed store gives out no guards.
                if shard.closed {
                    self.walk = None;
                    return Some(Err(closed()));
                }
                let Some(event) = shard.events.find_live(primary.as_bytes()) else { continue };
                let chosen = shard.fragments(event, inside);
                let pinned = chosen.map(|(_, location)| location).inspect(|&location| engine.pin(location));
                (shard.events[event].bytes, pinned.collect())
            };
            match self.store.guards(locations, bytes) {
                Ok(fragments) => self.here = fragments.into(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Store {
    /// Fragments inside the bounds, streamed in key order; one event's guards are held at a time.
    pub fn range(&self, bounds: &Bounds) -> Range {
        let walk = Walk::new(self.engine(), bounds);
        Range { store: self.clone(), walk: Some(walk), bounds: bounds.clone(), here: VecDeque::new() }
    }

    /// Live events inside the primary part of the bounds, in key order, without their payloads.
    ///
    /// # Errors
    /// `Invalid` for bounds of another schema, `Closed`.
    pub fn events(&self, bounds: &Bounds) -> Result<Vec<EventInfo>> {
        let engine = self.engine();
        let mut walk = Walk::new(engine, bounds)?;
        let mut events = Vec::new();
        while let Some(primary) = walk.next(engine) {
            let shard = engine.shards.cell_of(primary.as_bytes()).lock();
            let Some(event) = shard.events.find(primary.as_bytes()) else { continue };
            let leaf = &shard.events[event];
            if let State::Live(state) = leaf.state {
                let (fragments, bytes, deliveries) = (u32::from(leaf.present), leaf.bytes, leaf.deliveries());
                events.push(EventInfo { primary, state, stage: leaf.stage(), fragments, bytes, deliveries });
            }
        }
        Ok(events)
    }
}
