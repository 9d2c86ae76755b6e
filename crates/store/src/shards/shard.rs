//! One shard: what changes events and places together.
//!
//! ```text
//!          first fragment        complete, sealed, in time        get_any, lease
//! (nothing) ──────────▶ open ─────────────────────────▶ ready ───────────────────▶ leased
//!                                                         ▲  requeue, expiry          │
//!                                                         └───────────────────────────┤
//!            decided, remembered ◀── release ── accepted ◀────────── accept ──────────┤
//!                    ▲     ▲──────── release ── debug ◀── too many failures ──────────┤
//!                    └──────────────────────────────────────────── reject ────────────┘
//! ```

use crate::decisions::Superseded;
use crate::events::{Departures, Ended, Flag, Shape, ShardEvents, State, Word};
use crate::placement::{At, Places};
use forebay_core::map::Seat;
use forebay_core::{Key, LiveState, SeededHasher};
use forebay_media::bytes::DecisionKind;
use forebay_media::hot::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ready events looked at in one search for some to put down.
const LOOKED_AT_MAX: usize = 2048;

/// State behind the lock of a cell.
pub(crate) struct Shard {
    pub(crate) events: ShardEvents,
    pub(crate) places: Places,
    pub(crate) closed: bool,
    /// What the node is in its cluster; `None` outside of one.
    pub(crate) seat: Option<Arc<Seat>>,
    /// What ended here and may be held by other nodes.
    pub(crate) departures: Departures,
}

impl Shard {
    pub(super) fn new(shape: Shape, hot_events: Arc<AtomicU64>, hasher: SeededHasher) -> Shard {
        Shard {
            events: ShardEvents::new(shape),
            places: Places::new(hot_events, hasher),
            closed: false,
            seat: None,
            departures: Departures::default(),
        }
    }

    /// A fragment, a removed key or a place for one joins the event's table.
    pub(crate) fn insert_slot(&mut self, event: u32, slot: usize, rest: &[u8], word: Word) {
        self.events.insert_slot(event, slot, rest, word);
        if !word.is_warm() && !word.is_removed() {
            self.leave_warm(event);
        }
    }

    /// The archive has the event, whole, and so has the store.
    pub(crate) fn enter_custody(&mut self, event: u32) {
        self.leave_custody(event);
        let (run, tally) = (self.events[event].run as usize, self.events.tally(event));
        self.events.runs[run].ledger.in_custody += tally;
        self.places.custody.insert(event, tally);
    }

    /// The event changes or ends: the archive does not have it as it is, or the store has it no more.
    #[inline]
    pub(crate) fn leave_custody(&mut self, event: u32) {
        if !self.places.custody.is_empty()
            && let Some(tally) = self.places.custody.remove(&event)
        {
            let run = self.events[event].run as usize;
            self.events.runs[run].ledger.in_custody -= tally;
        }
    }

    /// Something of the event is on the hot level from now on; `true` where it changed its list of ready events, which the
    /// caller publishes.
    pub(crate) fn leave_warm(&mut self, event: u32) -> bool {
        let relist = self.events[event].is(Flag::ListedFar);
        debug_assert!(!relist || self.events[event].is(Flag::Far), "listed as far, and it is not");
        // Out of its list while the flag still says which one that is.
        if relist {
            self.events.unlist_ready(event);
        }
        // It reserves space for its decision again, as every event does of which anything is on the hot level.
        if self.events[event].is(Flag::Far) {
            self.places.hot_events.fetch_add(1, Ordering::Relaxed);
            if matches!(self.events[event].state, State::Live(LiveState::Accepted | LiveState::Debug)) {
                // It goes down again with what is new: movers take what is on the warm level.
                self.places.to_demote.push_back(self.events.primary(event));
            }
        }
        self.leave_custody(event);
        self.events[event].clear(Flag::Far);
        if relist {
            self.events.list_ready(event);
        }
        debug_assert!(!self.events[event].is(Flag::ListedFar), "an event on the hot level is listed there");
        relist
    }

    /// This version of one of the event's fragments, and those before it, are superseded.
    pub(crate) fn note_superseded(&mut self, event: u32, key: Key, version: u16) {
        let known = self.places.superseded.entry(key).or_default();
        // Only upwards: a version that comes back after a loss of the hot level must stay below the next one.
        let before = known.version;
        if version >= known.version {
            *known = Superseded { version, ..Superseded::default() };
        }
        debug_assert!(known.version >= before.max(version), "version {before} was superseded already");
        self.events.slab.set_at(event, At::Superseded);
    }

    /// The version of a fragment that is put: 0, or, where its last one went with the hot level, the one after those that
    /// are known to be superseded.
    #[inline]
    pub(crate) fn first_version(&mut self, event: u32, key: &Key) -> u16 {
        if self.places.superseded.is_empty() {
            return 0;
        }
        let Some(ended) = self.places.superseded.get(key) else { return 0 };
        self.events.slab.set_at(event, At::Superseded);
        ended.version.saturating_add(1)
    }

    /// A device has this version of a fragment.
    pub(crate) fn superseded_is_told(&mut self, event: u32, key: &Key, version: u16) {
        if self.events.slab.at(event, At::Superseded)
            && let Some(known) = self.places.superseded.get_mut(key)
            && version > known.version
        {
            known.on_hot_only = false;
        }
    }

    /// Something of the event is on its way to a device: decisions about it go to all of them until it arrives.
    pub(crate) fn sets_out(&mut self, event: u32) {
        self.places.sets_out(self.events.primary(event));
    }

    /// Whether a put of a fragment of the event may be answered as persisted at any moment.
    pub(crate) fn is_being_persisted(&self, event: u32) -> bool {
        !self.places.on_the_way.is_empty() && self.places.is_being_persisted(&self.events.primary(event))
    }

    /// The record that carries the event's durable marks: its first readable fragment.
    pub(crate) fn anchor(&self, event: u32) -> Option<Location> {
        self.fragments(event, |_| true).next().map(|(_, location)| location)
    }

    /// Readable fragments: sub-key and location, those that `takes` wants.
    pub(crate) fn fragments<'a>(
        &'a self,
        event: u32,
        takes: impl Fn(&[u8]) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a [u8], Location)> + 'a {
        self.events.fragments(event, takes).map(|(rest, place)| (rest, place.location()))
    }

    /// Takes a live event out for good (`ShardEvents::end`), with what is known of its places. What ended goes to `ended`.
    pub(crate) fn end(&mut self, event: u32, kind: DecisionKind, group: u64, ended: &mut Ended) {
        if let State::Live(_) = self.events[event].state {
            // Places first: they are kept by key, and the table that has the keys goes with the event.
            ended.extend(self.forget_places(event));
            self.events.end(event, kind, group, ended);
        }
    }

    /// Takes a foreign event out for good: its home has ended it.
    pub(crate) fn end_foreign(&mut self, event: u32, ended: &mut Ended) {
        ended.extend(self.forget_places(event));
        self.events.end_foreign(event, ended);
    }

    /// Takes out an open event of which nothing was ever acknowledged.
    pub(crate) fn withdraw(&mut self, event: u32) {
        let copies = self.forget_places(event);
        debug_assert!(copies.is_empty(), "nothing of it was acknowledged");
        self.events.withdraw(event);
    }

    fn forget_places(&mut self, event: u32) -> Ended {
        self.leave_custody(event);
        let primary = self.events.primary(event);
        if self.events.slab.at(event, At::Superseded) {
            for slot in 0..self.events.slots(event) {
                let rest = self.events.shape.form.rest_of(self.events.table(event), slot);
                self.places.superseded.remove(&Key::from_packed(&[primary.as_bytes(), rest].concat()));
            }
        }
        self.places.forget(event, primary.as_bytes())
    }

    /// Ready events that will go out last, last first.
    pub(crate) fn furthest_from_delivery(&mut self, most: usize) -> Vec<u32> {
        let mut last = Vec::new();
        for (stage, ready) in self.events.lists.ready.iter().enumerate() {
            let movable = |event: &u32| {
                let leaf = &self.events[*event];
                !self.events.slab.at(*event, At::Moving)
                    && !leaf.is(Flag::Far)
                    && leaf.state == State::Live(LiveState::Ready)
            };
            let room = most - last.len();
            let found: Vec<u32> =
                ready.last_first(&self.events.slab).take(LOOKED_AT_MAX).filter(movable).take(room).collect();
            // The last ones may all be on the warm level already: looked at again and again, they would cost a full search in
            // every batch and give nothing.
            let nothing = found.is_empty();
            last.extend(found);
            if nothing && ready.len() > LOOKED_AT_MAX as u64 {
                // All at the end went down before: on from where the last look ended.
                let here = |event: &u32| {
                    let leaf = &self.events[*event];
                    leaf.state == State::Live(LiveState::Ready)
                        && !leaf.is(Flag::Held)
                        && usize::from(leaf.stage()) == stage
                };
                let from = self.places.looked_at[stage].filter(here);
                let (found, end) = ready.before(&self.events.slab, from, LOOKED_AT_MAX);
                self.places.looked_at[stage] = end;
                last.extend(found.into_iter().filter(movable).take(room));
            }
        }
        debug_assert!(last.len() <= most, "{} of {most}", last.len());
        last
    }

    /// Heap bytes: nodes, leaves, tables, leases, decided, others.
    pub(crate) fn heap_bytes(&self) -> [usize; 6] {
        let mut bytes = self.events.heap_bytes();
        bytes[5] += self.places.heap_bytes();
        bytes
    }
}
