//! What goes down: which events, in which order, with which of their fragments.
//!
//! ```text
//! accepted and debug events, promptly ─▶ fragments of warm groups, after their delay ─▶ ready events, youngest first,
//! while the hot level is above its mark
//! ```
//!
//! *Invariants*: what is planned is pinned; an event is on its way once at a time (`At::Moving`, asserted where it is set).

use crate::engine::Engine;
use crate::events::{Flag, State};
use crate::limits::SHARDS;
use crate::placement::{At, Level, Moving, Part};
use crate::shards::Shard;
use forebay_core::{Key, LiveState, Result};
use forebay_media::bytes::{ContainerKind, Entry, ImageMarks, ImageState, Mark, Stream};
use forebay_media::hot::Location;
use forebay_media::warm::ReadImage;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Which fragments of an event go.
#[derive(Clone, Copy)]
pub(crate) enum Which<'a> {
    /// Those on the hot level, and all others with them.
    Whole,
    /// Those of these sources that are on the hot level.
    Keys(&'a [Key]),
    /// Those that are in a container.
    Out(u32),
}

impl Engine {
    /// An accepted or debug event is to go down promptly. Under its lock.
    #[inline]
    pub(crate) fn queue_demotion(&self, shard: &mut Shard, event: u32) {
        // A round compares the debug stream with its quota.
        if shard.events[event].state == State::Live(LiveState::Debug) {
            self.upkeep.bell.ring();
        }
        if self.placement.level.is_some() {
            let primary = shard.events.primary(event);
            shard.places.to_demote.push_back(primary);
        }
    }

    /// What the image of an event says of it.
    pub(crate) fn image_marks(&self, shard: &Shard, event: u32) -> ImageMarks {
        let leaf = &shard.events[event];
        let (state, detail) = match leaf.state {
            State::Live(LiveState::Accepted) => (ImageState::Accepted, leaf.output()),
            State::Live(LiveState::Debug) => {
                (ImageState::Debug, u32::from(shard.events.lists.reasons.get(&event).copied().unwrap_or_default()))
            }
            _ => (ImageState::Undecided, 0),
        };
        let marks = leaf.marks();
        debug_assert_eq!(marks.mark, Mark::Live);
        let (stage, deliveries) = (marks.stage, marks.deliveries);
        ImageMarks { state, stage, deliveries, ready: marks.ready, masked: marks.masked, detail }
    }

    /// After recovery: an event that is not where decided events go, whole, is on its way again.
    pub(crate) fn queue_again(&self, shard: &mut Shard, event: u32) {
        let leaf = &shard.events[event];
        if !shard.events.slab.at(event, At::SettledThere) || !leaf.is(Flag::Far) {
            self.queue_demotion(shard, event);
        }
    }

    fn stream_of(&self, marks: &ImageMarks) -> Stream {
        match marks.state {
            ImageState::Undecided => Stream::Undecided,
            ImageState::Debug => Stream::Debug,
            ImageState::Accepted => {
                let first = self.streams_of(marks.detail).into_iter().map(|(stream, _)| stream).min();
                Stream::Accepted(first.unwrap_or_default())
            }
        }
    }

    /// Pins fragments of an event for their way; `None` where it cannot go now. Under its lock.
    pub(crate) fn plan_event(&self, shard: &mut Shard, event: u32, which: Which<'_>) -> Option<Moving> {
        let leaf = &shard.events[event];
        let State::Live(state) = leaf.state else { return None };
        if shard.closed {
            return None;
        }
        let whole = matches!(which, Which::Whole);
        if shard.events.slab.at(event, At::Moving) || whole && (state == LiveState::Open || leaf.pending > 0) {
            return None;
        }
        let primary = shard.events.primary(event);
        let table = shard.events.table(event);
        let mut parts = Vec::new();
        for slot in 0..shard.events.slots(event) {
            let word = shard.events.shape.form.word_of(table, slot);
            if !word.is_present() || word.is_busy() {
                continue;
            }
            let from = word.location();
            let wanted = match which {
                Which::Whole => true,
                Which::Out(container) => from.is_warm() && from.container() == container,
                Which::Keys(keys) => {
                    let rest = shard.events.shape.form.rest_of(table, slot);
                    !from.is_warm() && keys.iter().any(|key| self.keyspace.schema.rest_of(key) == rest)
                }
            };
            // Pinned under the lock that shows it live; read without the lock.
            if wanted {
                self.pin(from);
                parts.push(Part { from, entry: NO_ENTRY, image: None });
            }
        }
        let record = if whole || matches!(which, Which::Out(_)) { self.record_bytes_of(shard, event) } else { None };
        let nothing_hot = whole && shard.events[event].is(Flag::Far) && shard.events.slab.at(event, At::SettledThere);
        if parts.is_empty() || nothing_hot {
            parts.iter().for_each(|part| self.unpin(part.from));
            return None;
        }
        if state != LiveState::Open {
            // Ready stays ready: its image says so.
            shard.events[event].mark_ready();
        }
        let marks = self.image_marks(shard, event);
        debug_assert!(
            marks.state == ImageState::Undecided || state != LiveState::Open,
            "an open event has no decision for its image"
        );
        shard.events.slab.set_at(event, At::Moving);
        // From here on the shadows are told; what they were told before must be durable where the image goes.
        shard.sets_out(event);
        self.shadow_removed(shard, event);
        // Under the event's lock: every decision about it so far is before this position.
        let needs = self.placement.level.as_ref().map_or(0, |level| level.log.end());
        let leaf = &shard.events[event];
        let run = shard.events.runs[leaf.run as usize].run;
        let (stream, event_bytes) = (self.stream_of(&marks), leaf.bytes);
        Some(Moving { primary, run, stream, marks, parts, record, needs, bytes: 0, event_bytes })
    }

    /// Reads entries, and images of what is on the warm level already. On an error the event stays where it is.
    pub(crate) fn read_parts(&self, moving: &mut Moving) -> Result<()> {
        let mut last: Option<(Location, Arc<ReadImage>)> = None;
        for part in &mut moving.parts {
            if part.from.is_warm() {
                let same = |known: &&(Location, Arc<ReadImage>)| {
                    (known.0.container(), known.0.entry) == (part.from.container(), part.from.entry)
                };
                let image = match last.as_ref().filter(same) {
                    Some(known) => known.1.clone(),
                    None => self.image_of(part.from, moving.event_bytes)?,
                };
                last = Some((part.from, image.clone()));
                part.entry = image.entry(part.from.index())?;
                part.image = Some(image);
            } else {
                part.entry = self.entry_of(part.from)?;
            }
            moving.bytes += u64::from(part.entry.length);
        }
        Ok(())
    }

    /// The next events to go down, about `bytes` of them; none where nothing has to.
    pub(crate) fn next_to_demote(&self, level: &Level, bytes: u64) -> Vec<Moving> {
        let mut batch = Vec::new();
        let mut planned = 0;
        let mut take = |moving: Option<Moving>, shard_bytes: u64| {
            if let Some(moving) = moving {
                planned += shard_bytes;
                batch.push(moving);
            }
            planned < bytes && batch.len() < BATCH_EVENTS_MAX
        };
        // Shards in turn: a batch that is full before the last one would leave the same events behind each time.
        let first = level.turn.fetch_add(1, Ordering::Relaxed) as usize;
        'decided: for at in 0..SHARDS {
            let cell = &self.shards.cells[(first + at) % SHARDS];
            let mut shard = cell.lock();
            // Only as many as the queue has now: those that cannot go yet are put back at the end, and would be met again.
            for _ in 0..shard.places.to_demote.len() {
                if shard.closed {
                    break;
                }
                let Some(primary) = shard.places.to_demote.pop_front() else { break };
                let Some(event) = shard.events.find(primary.as_bytes()) else { continue };
                let decided = matches!(shard.events[event].state, State::Live(LiveState::Accepted | LiveState::Debug));
                // Replayed since: it waits for workers again.
                if !decided {
                    continue;
                }
                if shard.events.slab.at(event, At::Moving) || shard.events[event].pending > 0 {
                    shard.places.to_demote.push_back(primary);
                    continue;
                }
                // By memory, not by payload: an event on the warm level is read whole, however small.
                let weight = memory_of(&shard, event);
                let moving = self.plan_event(&mut shard, event, Which::Whole);
                if !take(moving, weight) {
                    break 'decided;
                }
            }
        }
        let flushed = self.next_to_flush(level);
        for keys in flushed {
            let primary = self.keyspace.schema.primary_of(&keys[0]);
            let mut shard = self.shards.cell_of(primary.as_bytes()).lock();
            let Some(event) = shard.events.find(primary.as_bytes()) else { continue };
            if shard.events.slab.at(event, At::Moving) {
                level.flush_later(keys);
                continue;
            }
            let moving = self.plan_event(&mut shard, event, Which::Keys(&keys));
            take(moving, 0);
        }
        if level.must_relieve(&self.placement.hot, &self.config) {
            let wanted = level.bytes_to_relieve(&self.placement.hot, &self.config);
            let mut relieved = 0;
            'ready: for at in 0..SHARDS {
                let cell = &self.shards.cells[(first + at) % SHARDS];
                let mut shard = cell.lock();
                if shard.closed {
                    break;
                }
                // An equal share of each shard, so that those furthest from delivery in all of them go.
                let share = wanted / SHARDS as u64 + 1;
                let mut of_shard = 0;
                for event in shard.furthest_from_delivery(BATCH_EVENTS_MAX / SHARDS) {
                    if of_shard >= share || relieved >= wanted {
                        break;
                    }
                    let weight = shard.events[event].bytes;
                    let moving = self.plan_event(&mut shard, event, Which::Whole);
                    let went = moving.is_some();
                    (of_shard, relieved) = (of_shard + u64::from(went) * weight, relieved + u64::from(went) * weight);
                    if !take(moving, weight) {
                        break 'ready;
                    }
                }
            }
        }
        batch
    }
}

/// Events of one batch at most.
const BATCH_EVENTS_MAX: usize = 8192;

/// What an image takes in memory at least, while it moves.
const IMAGE_MEMORY_MIN: u64 = 16 << 10;

/// What an event takes in memory while it moves.
fn memory_of(shard: &Shard, event: u32) -> u64 {
    let leaf = &shard.events[event];
    if shard.events.slab.at(event, At::Warm) { leaf.bytes.max(IMAGE_MEMORY_MIN) } else { leaf.bytes }
}

/// In place of an entry that is not read yet.
const NO_ENTRY: Entry = Entry::EMPTY;

/// Every container of events holds events.
pub(crate) const KIND: ContainerKind = ContainerKind::Events;
