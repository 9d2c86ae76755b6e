//! Fragments whose level is warm by their group or by their put: they go down after a delay, so that what is rejected
//! before it never reaches a device.
//!
//! *Invariants*: a fragment waits at most once; what is gone before its turn is counted as saved.

use crate::engine::Engine;
use crate::events::State;
use crate::placement::{Level, Turn};
use forebay_core::{Key, Level as Role, LiveState, Result};
use std::sync::atomic::Ordering;

/// Fragments of one batch at most.
const BATCH_FRAGMENTS_MAX: usize = 8192;

impl Engine {
    /// The level to which a fragment of this source goes by its group.
    pub(crate) fn level_of(&self, rest: &[u8]) -> Role {
        let warm = |group: &&forebay_core::SourceGroup| group.level == Role::Warm;
        let groups = self.keyspace.groups.iter().filter(warm);
        let named = |group: &forebay_core::SourceGroup| {
            group.sources.binary_search_by(|source| source.as_bytes().cmp(rest)).is_ok()
        };
        if groups.into_iter().any(named) { Role::Warm } else { Role::Hot }
    }

    /// Where a fragment that is stored goes from there: to a device before its put returns, or after a delay.
    #[inline]
    pub(crate) fn send_down(&self, key: &Key, length: u32, options: &crate::PutOptions<'_>) -> Result<()> {
        let grouped = self.placement.level.as_ref().is_some_and(|level| level.warm_groups);
        let by_group = || if grouped { self.level_of(self.keyspace.schema.rest_of(key)) } else { Role::Hot };
        let role = options.level.unwrap_or_else(by_group);
        if role == Role::Warm {
            self.queue_flush(key, length);
        }
        // Last: it waits for a device, with nothing held.
        if options.persisted {
            return self.persist(key);
        }
        Ok(())
    }

    /// A stored fragment goes down after its delay.
    #[cold]
    pub(crate) fn queue_flush(&self, key: &Key, length: u32) {
        if let Some(level) = &self.placement.level {
            let due_ns = self.now_ns().saturating_add(forebay_core::nanoseconds(self.config.flush_delay));
            level.flushing.turns.lock().push_back(Turn { due_ns, key: *key, length });
        }
    }

    /// Fragments whose turn has come, those of an event together.
    pub(super) fn next_to_flush(&self, level: &Level) -> Vec<Vec<Key>> {
        let now = self.now_ns();
        let mut due = Vec::new();
        {
            // Released before any cell is locked: puts take it under nothing, and must not wait for a batch to be planned.
            let mut turns = level.flushing.turns.lock();
            while let Some(turn) = turns.front().filter(|turn| turn.due_ns <= now && due.len() < BATCH_FRAGMENTS_MAX) {
                due.push((turn.key, turn.length));
                turns.pop_front();
            }
        }
        let schema = &self.keyspace.schema;
        due.retain(|(key, length)| {
            let primary = schema.primary_of(key);
            let shard = self.shards.cell_of(primary.as_bytes()).lock();
            let undecided = shard.events.find(primary.as_bytes()).is_some_and(|event| {
                // Accepted and debug events go down whole anyway.
                matches!(shard.events[event].state, State::Live(LiveState::Open | LiveState::Ready | LiveState::Leased))
            });
            let gone = shard.events.find(primary.as_bytes()).is_none();
            drop(shard);
            // The figure that the delay is judged by: bytes that no device had to take.
            level.saved_bytes.fetch_add(if gone { u64::from(*length) } else { 0 }, Ordering::Relaxed);
            undecided
        });
        // By key, so that fragments of one event are neighbours and become one image.
        due.sort_unstable_by_key(|(key, _)| *key);
        let keys: Vec<Key> = due.into_iter().map(|(key, _)| key).collect();
        keys.chunk_by(|a, b| schema.primary_of(a) == schema.primary_of(b)).map(<[Key]>::to_vec).collect()
    }
}
