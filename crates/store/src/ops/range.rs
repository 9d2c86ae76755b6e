//! Walking in key order: each shard's next event is known, the lowest of them is next; sub-key bounds are answered by
//! seeking, not by filtering everything in between.
//!
//! A walk is not a snapshot: events that come or go behind it are not seen, those ahead of it are.

use crate::engine::Engine;
use crate::home::State;
use crate::limits::SHARDS;
use crate::{EventInfo, Fragment, Store};
use forebay_core::{Bounds, Primary, Result, Seek};
use std::collections::VecDeque;

/// The events inside the primary part of bounds, in key order.
pub(crate) struct Walk {
    bounds: Bounds,
    next: Vec<Option<Primary>>,
}

impl Walk {
    pub(crate) fn new(engine: &Engine, bounds: &Bounds) -> Walk {
        let schema = &engine.keyspace.schema;
        let first = schema.primary(&bounds.lower()[..schema.primary_len()]).ok();
        let mut walk = Walk { bounds: bounds.clone(), next: vec![None; SHARDS] };
        for shard in 0..SHARDS {
            walk.next[shard] = first.and_then(|first| walk.seek(engine, shard, first));
        }
        walk
    }

    /// The first event of a shard that is not below `from` and inside.
    fn seek(&self, engine: &Engine, shard: usize, mut from: Primary) -> Option<Primary> {
        let schema = &engine.keyspace.schema;
        let shard = engine.cells[shard].lock();
        loop {
            let found = shard.primary(shard.seek(from.as_bytes())?);
            match self.bounds.seek(&schema.values(found.as_bytes())) {
                Seek::Inside => return Some(found),
                Seek::To(values) => from = schema.primary(&values).ok()?,
                Seek::End => return None,
            }
        }
    }

    pub(crate) fn next(&mut self, engine: &Engine) -> Option<Primary> {
        let shards = self.next.iter().enumerate();
        let (shard, primary) = shards.filter_map(|(at, next)| Some((at, (*next)?))).min_by_key(|(_, next)| *next)?;
        self.next[shard] = primary.successor().and_then(|from| self.seek(engine, shard, from));
        Some(primary)
    }
}

/// Fragments inside bounds, in key order.
pub struct Range {
    store: Store,
    walk: Walk,
    bounds: Bounds,
    here: VecDeque<Fragment>,
    ended: bool,
}

impl Iterator for Range {
    type Item = Result<Fragment>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(fragment) = self.here.pop_front() {
                return Some(Ok(fragment));
            }
            let engine = self.store.engine();
            if let Err(error) = engine.check_open() {
                return (!std::mem::replace(&mut self.ended, true)).then_some(Err(error));
            }
            let primary = self.walk.next(engine)?;
            let schema = &engine.keyspace.schema;
            let inside = |rest: &[u8]| self.bounds.contains(&schema.values(schema.join(&primary, rest).as_bytes()));
            let locations: Vec<_> = {
                let shard = engine.cell_of(primary.as_bytes()).lock();
                let Some(event) = shard.find(primary.as_bytes()) else { continue };
                let chosen = shard.fragments(event, inside);
                chosen.map(|(_, location)| location).inspect(|at| engine.hot.segment(at.segment).pin()).collect()
            };
            match self.store.guards(locations) {
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
        Range { store: self.clone(), walk, bounds: bounds.clone(), here: VecDeque::new(), ended: false }
    }

    /// Live events inside the primary part of the bounds, in key order, without their payloads.
    ///
    /// # Errors
    /// `Closed`.
    pub fn events(&self, bounds: &Bounds) -> Result<Vec<EventInfo>> {
        let engine = self.engine();
        engine.check_open()?;
        let mut walk = Walk::new(engine, bounds);
        let mut events = Vec::new();
        while let Some(primary) = walk.next(engine) {
            let shard = engine.cell_of(primary.as_bytes()).lock();
            let Some(event) = shard.find(primary.as_bytes()) else { continue };
            let leaf = &shard.events[event];
            if let State::Live(state) = leaf.state {
                let (fragments, bytes, deliveries) = (u32::from(leaf.present), leaf.bytes, leaf.deliveries);
                events.push(EventInfo { primary, state, fragments, bytes, deliveries });
            }
        }
        Ok(events)
    }
}
