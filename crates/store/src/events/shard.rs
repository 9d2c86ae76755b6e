//! One shard: events, their lists, leases and accounts, behind one lock.
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
//!
//! *Invariants*: the ledger changes in the same hold of the lock as what it counts (checked after every test); an event
//! is in the radix tree exactly while it is live; `oldest_ready` is what the head of `ready` says.

use super::event::{Event, Flag, Form, NIL, State, Word};
use super::incidents::Incidents;
use super::list::List;
use super::ready::Ready;
use super::rule::{Plan, Rule};
use super::run::{DecidedForm, Run};
use super::timers::Timers;
use super::verdicts::Verdicts;
use crate::index::{Arena, Art, Leaves, Path, Reached, Slab};
use crate::limits::{SHARD_BLOCK_BITS, SHARDS};
use crate::locks::{self, Locked, Owner, Ranked};
use forebay_core::limits::{FRAGMENTS_PER_EVENT_MAX, STAGES_MAX};
use forebay_core::{Key, LiveState, Primary};
use forebay_media::hot::{Location, will_look};
use parking_lot::MutexGuard;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ready events looked at in one search for some to put down.
const LOOKED_AT_MAX: usize = 2048;

/// A lease that is out.
#[derive(Debug, Default)]
pub(crate) struct LeaseState {
    pub(crate) event: u32,
    pub(crate) counter: u64,
    pub(crate) granted_ns: u64,
    pub(crate) deadline_ns: u64,
}

/// A conflicting copy that is kept for a person.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) key: Key,
    pub(crate) location: Location,
    pub(crate) length: u32,
    pub(crate) checksum: u32,
}

/// An event's record, whole, of an event on the warm level.
#[derive(Clone, Debug)]
pub(crate) struct WarmRecord {
    pub(crate) status: u32,
    pub(crate) version: u16,
    pub(crate) bytes: Box<[u8]>,
}

/// What of an event is between the hot level and a device.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// How many carry some of it, and how many of these for a put that is to be persisted.
    pub(crate) carriers: u32,
    pub(crate) persisting: u32,
    /// Devices that an image was given up on: it may be found there all the same.
    pub(crate) doubted: Vec<u32>,
}

/// The highest version of a fragment that ended on the warm level.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Superseded {
    pub(crate) version: u16,
    /// No device has the version that replaced it: without the hot level this one is the last.
    pub(crate) on_hot_only: bool,
}

/// Records that ended with an event: their words are still to be marked.
pub(crate) type Ended = Vec<Location>;

/// What the lock guards.
pub(crate) struct Shard {
    pub(crate) form: Form,
    pub(crate) decided_form: DecidedForm,
    pub(super) art: Art,
    pub(crate) events: Slab<Event>,
    pub(crate) tables: Arena,
    pub(crate) runs: Vec<Run>,
    /// By stage.
    pub(crate) ready: Vec<Ready>,
    /// Ready events that a hold keeps from delivery.
    pub(crate) held: List,
    pub(crate) debug: List,
    pub(crate) accepted: List,
    pub(crate) leases: Slab<LeaseState>,
    pub(crate) timers: Timers,
    pub(crate) verdicts: Verdicts,
    pub(crate) kept: Vec<Kept>,
    /// Rules of events that were announced with their sources.
    pub(crate) own_rules: HashMap<u32, Arc<Rule>>,
    /// Ranks of events, where an attribute orders delivery and the event has it.
    pub(crate) ranks: HashMap<u32, u128>,
    /// Payload bytes of the debug stream.
    pub(crate) debug_bytes: u64,
    /// Why the last events went to the debug stream.
    pub(crate) reasons: HashMap<u32, u8>,
    pub(crate) incidents: Incidents,
    /// Bytes for remembering how events of a run ended, per way to end.
    pub(crate) endings_bytes: usize,
    /// Closed runs keep the memory of the decided, as long as containers have images of theirs.
    pub(crate) keeps_decided: bool,
    /// Records are still being found: nothing becomes ready yet.
    pub(crate) recovering: bool,
    /// Event records of events on the warm level, which are asked for without reading it.
    pub(crate) warm_records: HashMap<u32, WarmRecord>,
    /// Copies on the warm level of fragments that stand on the hot one: container and position of images, with counts.
    pub(crate) copies: HashMap<u32, Vec<(Location, u32)>>,
    /// Versions that ended on the warm level, where no mark says so: the highest of each key of a live event.
    pub(crate) superseded: HashMap<Key, Superseded>,
    /// Where the last look for events to put down ended, by stage.
    looked_at: [Option<u32>; STAGES_MAX],
    /// Live events of which something is on its way to a device, or may have come there unnoticed.
    pub(crate) on_the_way: HashMap<Primary, Way>,
    /// Events with anything on the hot level, over all shards (`Hot::events`).
    pub(crate) hot_events: Arc<AtomicU64>,
    /// Events that are to go to the warm level, in the order in which they were decided.
    pub(crate) to_demote: VecDeque<Primary>,
    /// Removed slots of live events.
    pub(crate) removed_slots: u64,
    /// Grants of this shard in this life.
    pub(crate) grants: u64,
    pub(crate) closed: bool,
}

/// A shard whose lock is held.
pub(crate) type ShardGuard<'a> = Locked<MutexGuard<'a, Shard>>;

/// A shard and what is read without its lock.
#[repr(align(128))]
pub(crate) struct Cell {
    shard: Ranked<Shard>,
    /// Arrival of the first ready event of each stage, and of the first on the warm level where those wait apart;
    /// `u64::MAX` without one.
    oldest_ready_ns: [[AtomicU64; STAGES_MAX]; 2],
}

pub(super) struct Keys<'a> {
    pub(super) form: Form,
    pub(super) events: &'a Slab<Event>,
    pub(super) tables: &'a Arena,
}

impl Leaves for Keys<'_> {
    #[inline]
    fn key(&self, leaf: u32) -> &[u8] {
        self.form.primary_of(self.tables, &self.events[leaf])
    }
}

/// Which shard a primary key belongs to: neighbours in blocks, blocks spread.
#[inline]
pub(crate) fn shard_of(form: DecidedForm, primary: &[u8]) -> usize {
    let (high, low) = form.split(primary);
    shard_of_parts(high, low)
}

/// The same for a key that is split already.
#[inline]
pub(crate) fn shard_of_parts(high: &[u8], low: u64) -> usize {
    let mut hash = low >> SHARD_BLOCK_BITS;
    for chunk in high.chunks(8) {
        let word = match *chunk {
            [a, b, c, d] => u64::from(u32::from_be_bytes([a, b, c, d])),
            _ => chunk.iter().fold(0_u64, |word, &byte| word << 8 | u64::from(byte)),
        };
        hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
    (hash.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32) as usize % SHARDS
}

impl Cell {
    pub(crate) fn new(
        (owner, number): (Owner, u32),
        hot_events: Arc<AtomicU64>,
        form: Form,
        decided_form: DecidedForm,
        stages: usize,
        strict: bool,
        ranked: bool,
    ) -> Cell {
        let shard = Shard {
            form,
            decided_form,
            art: Art::new(),
            events: Slab::new(),
            tables: Arena::new(),
            runs: Vec::new(),
            ready: (0..stages).map(|_| Ready::new(strict, ranked)).collect(),
            held: List::new(),
            debug: List::new(),
            accepted: List::new(),
            leases: Slab::new(),
            timers: Timers::default(),
            verdicts: Verdicts::default(),
            kept: Vec::new(),
            own_rules: HashMap::new(),
            ranks: HashMap::new(),
            debug_bytes: 0,
            reasons: HashMap::new(),
            incidents: Incidents::default(),
            warm_records: HashMap::new(),
            copies: HashMap::new(),
            superseded: HashMap::new(),
            looked_at: [None; STAGES_MAX],
            on_the_way: HashMap::new(),
            hot_events,
            to_demote: VecDeque::new(),
            endings_bytes: 0,
            keeps_decided: false,
            recovering: false,
            removed_slots: 0,
            grants: 0,
            closed: false,
        };
        Cell {
            shard: Ranked::new(owner, locks::CELL + number, shard),
            oldest_ready_ns: [const { [const { AtomicU64::new(u64::MAX) }; STAGES_MAX] }; 2],
        }
    }

    /// Arrival of the first ready event of a stage (of those on the warm level, if `cold`); `u64::MAX` without one.
    #[inline]
    pub(crate) fn oldest_ready_ns(&self, stage: u8, cold: bool) -> u64 {
        self.oldest_ready_ns[usize::from(cold)][stage as usize % STAGES_MAX].load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn lock(&self) -> ShardGuard<'_> {
        self.shard.lock()
    }

    /// Publishes what the heads of the ready lists say. Called before the lock is let go where a list changed.
    pub(crate) fn publish_ready(&self, shard: &Shard) {
        for (stage, ready) in shard.ready.iter().enumerate() {
            for (list, published) in [&ready.list, &ready.cold].into_iter().zip(&self.oldest_ready_ns) {
                let oldest = list.first().map_or(u64::MAX, |event| shard.events[event].arrival_ns);
                published[stage].store(oldest, Ordering::Release);
            }
        }
    }
}

impl Shard {
    #[inline]
    pub(crate) fn find(&self, primary: &[u8]) -> Option<u32> {
        self.art.get(&self.keys(), primary)
    }

    /// One step of a lookup on its way to an event; a hint, as that of `index/ahead.rs`.
    #[inline]
    pub(crate) fn step(&self, path: &mut Path, primary: &[u8]) -> Reached {
        let reached = self.art.step(path, primary);
        if let Reached::Leaf(event) = reached {
            will_look(&self.events[event]);
        }
        reached
    }

    /// Asks for the table of what was an event a moment ago.
    #[inline]
    pub(crate) fn will_look_at_table(&self, event: u32) {
        if self.events[event].state != State::Vacant {
            will_look(self.table(event).first().unwrap_or(&0));
        }
    }

    /// The first live event whose primary key is not below.
    pub(crate) fn seek(&self, primary: &[u8]) -> Option<u32> {
        self.art.seek(&self.keys(), primary)
    }

    fn keys(&self) -> Keys<'_> {
        Keys { form: self.form, events: &self.events, tables: &self.tables }
    }

    pub(crate) fn run_index(&self, run: u64) -> Option<u16> {
        // Newest first: the run that is being taken.
        self.runs.iter().rposition(|known| known.run == run).map(|at| at as u16)
    }

    /// `shadowed`: position of its opening in the shadows.
    pub(crate) fn add_run(&mut self, run: u64, plan: Arc<Plan>, state: crate::RunState, now_ns: u64, shadowed: u64) {
        let fresh = Run::new(run, plan, state, now_ns, self.keeps_decided);
        self.runs.push(Run { shadowed, ..fresh });
    }

    pub(crate) fn primary(&self, event: u32) -> Primary {
        Primary::from_packed(self.form.primary_of(&self.tables, &self.events[event]))
    }

    pub(crate) fn table(&self, event: u32) -> &[u8] {
        self.tables.bytes(self.events[event].block)
    }

    /// The slot of a sub-key and its word.
    #[inline]
    pub(crate) fn slot(&self, event: u32, rest: &[u8]) -> Result<(usize, Word), usize> {
        let table = self.table(event);
        let slot = self.form.find(table, self.events[event].slots as usize, rest)?;
        Ok((slot, self.form.word_of(table, slot)))
    }

    pub(crate) fn set_word(&mut self, event: u32, slot: usize, word: Word) {
        let block = self.events[event].block;
        self.form.set_word(self.tables.bytes_mut(block), slot, word);
    }

    pub(crate) fn attribute_word(&self, event: u32) -> Option<Word> {
        self.form.attribute_word(self.table(event))
    }

    pub(crate) fn set_attribute_word(&mut self, event: u32, word: Word) {
        let block = self.events[event].block;
        self.form.set_attribute_word(self.tables.bytes_mut(block), word);
    }

    /// A new open event. It stands in its run's open list.
    pub(crate) fn create(&mut self, primary: &[u8], run: u16, now_ns: u64) -> u32 {
        let wanted = self.runs[run as usize].plan.rules[0].wanted().unwrap_or(1);
        let block = self.tables.allocate(self.form.bytes(if wanted <= 64 { wanted } else { 16 }));
        self.tables.bytes_mut(block)[..primary.len()].copy_from_slice(primary);
        let state = State::Live(LiveState::Open);
        let fresh = Event { arrival_ns: now_ns, block, lease: NIL, run, state, ..Event::default() };
        let event = self.events.insert(fresh);
        let keys = Keys { form: self.form, events: &self.events, tables: &self.tables };
        self.art.insert(&keys, primary, event);
        self.runs[run as usize].open.push_back(&mut self.events, event);
        event
    }

    /// Whether an event can take another slot.
    pub(crate) fn has_room(&self, event: u32) -> bool {
        u32::from(self.events[event].slots) < FRAGMENTS_PER_EVENT_MAX
    }

    pub(crate) fn insert_slot(&mut self, event: u32, slot: usize, rest: &[u8], word: Word) {
        let expected = self.rule(event).wanted().unwrap_or(0);
        let form = self.form;
        form.insert(&mut self.tables, &mut self.events[event], slot, rest, word, expected);
        if !word.is_warm() && !word.is_removed() {
            self.leave_warm(event);
        }
    }

    /// Something of the event stands on the hot level from now on; `true` where it changed its list of ready events, which
    /// the caller publishes.
    pub(crate) fn leave_warm(&mut self, event: u32) -> bool {
        let relist = self.events[event].is(Flag::Cold);
        if relist {
            self.unlist_ready(event);
        }
        if self.events[event].is(Flag::AllWarm) {
            self.hot_events.fetch_add(1, Ordering::Relaxed);
        }
        self.events[event].clear(Flag::AllWarm);
        if relist {
            self.list_ready(event);
        }
        relist
    }

    /// This version of one of the event's fragments, and those before it, are superseded.
    pub(crate) fn note_superseded(&mut self, event: u32, key: Key, version: u16) {
        let known = self.superseded.entry(key).or_default();
        if version >= known.version {
            *known = Superseded { version, on_hot_only: false };
        }
        self.events[event].set(Flag::Superseded);
    }

    /// The version of a fragment that is put: 0, or, where its last one went with the hot level, the one after those that
    /// are known to be superseded.
    #[inline]
    pub(crate) fn first_version(&mut self, event: u32, key: &Key) -> u16 {
        if self.superseded.is_empty() {
            return 0;
        }
        let Some(ended) = self.superseded.get(key) else { return 0 };
        self.events[event].set(Flag::Superseded);
        ended.version.saturating_add(1)
    }

    /// Only the hot level has the next version: the shadows must not record that this one ended.
    pub(crate) fn keep_superseded_back(&mut self, key: &Key) {
        if let Some(known) = self.superseded.get_mut(key) {
            known.on_hot_only = true;
        }
    }

    /// A device has this version of a fragment.
    pub(crate) fn superseded_is_told(&mut self, event: u32, key: &Key, version: u16) {
        if self.events[event].is(Flag::Superseded)
            && let Some(known) = self.superseded.get_mut(key)
            && version > known.version
        {
            known.on_hot_only = false;
        }
    }

    /// The event ends, and with it what is known of versions of its fragments.
    pub(crate) fn forget_superseded(&mut self, event: u32, primary: &[u8]) {
        if !self.events[event].is(Flag::Superseded) {
            return;
        }
        let table = self.tables.bytes(self.events[event].block);
        for slot in 0..self.events[event].slots as usize {
            self.superseded.remove(&Key::from_packed(&[primary, self.form.rest_of(table, slot)].concat()));
        }
    }

    /// Something of the event is on its way to a device: decisions about it go to all of them until it arrives.
    pub(crate) fn sets_out(&mut self, event: u32) {
        let primary = self.primary(event);
        self.on_the_way.entry(primary).or_default().carriers += 1;
    }

    /// The same for a put that is to be persisted; ended by [`Shard::is_persisted`], then by [`Shard::arrives`].
    pub(crate) fn sets_out_persisting(&mut self, event: u32) {
        self.sets_out(event);
        let primary = self.primary(event);
        self.on_the_way.entry(primary).or_default().persisting += 1;
    }

    /// Nobody will be answered any more that this fragment of the event is persisted. The event may be gone since.
    pub(crate) fn is_persisted(&mut self, primary: &[u8]) {
        if let Some(way) = self.on_the_way.get_mut(&Primary::from_packed(primary)) {
            way.persisting -= 1;
        }
    }

    /// Whether a put of a fragment of the event may be answered as persisted at any moment.
    pub(crate) fn is_being_persisted(&self, event: u32) -> bool {
        !self.on_the_way.is_empty() && self.on_the_way.get(&self.primary(event)).is_some_and(|way| way.persisting > 0)
    }

    /// A carrier has ended. An image on a `doubted` device counts for nothing and may still be found there: decisions about
    /// the event go to that device for as long as the event lives. The event may have ended already.
    pub(crate) fn arrives(&mut self, primary: &[u8], doubted: &[u32]) {
        let primary = Primary::from_packed(primary);
        let Some(way) = self.on_the_way.get_mut(&primary) else { return };
        way.carriers -= 1;
        way.doubted.extend(doubted);
        way.doubted.sort_unstable();
        way.doubted.dedup();
        if way.carriers == 0 && way.doubted.is_empty() {
            self.on_the_way.remove(&primary);
        }
    }

    /// Takes out the slot of a reservation that was given up.
    pub(crate) fn remove_slot(&mut self, event: u32, rest: &[u8]) {
        if let Ok((slot, _)) = self.slot(event, rest) {
            let form = self.form;
            form.remove(&mut self.tables, &mut self.events[event], slot);
        }
    }

    /// The record that carries the event's durable marks: its first readable fragment.
    pub(crate) fn anchor(&self, event: u32) -> Option<Location> {
        let table = self.table(event);
        let words = (0..self.events[event].slots as usize).map(|slot| self.form.word_of(table, slot));
        words.into_iter().find(|word| word.is_present()).map(Word::location)
    }

    /// Readable fragments: sub-key and location, those that `takes` wants.
    pub(crate) fn fragments<'a>(
        &'a self,
        event: u32,
        takes: impl Fn(&[u8]) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a [u8], Location)> + 'a {
        let table = self.table(event);
        (0..self.events[event].slots as usize).filter_map(move |slot| {
            let word = self.form.word_of(table, slot);
            let rest = self.form.rest_of(table, slot);
            (word.is_present() && takes(rest)).then(|| (rest, word.location()))
        })
    }

    /// The accepted or debug events, in order.
    pub(crate) fn listed(&self, state: LiveState) -> impl Iterator<Item = u32> + '_ {
        let first = match state {
            LiveState::Accepted => self.accepted.first(),
            LiveState::Debug => self.debug.first(),
            LiveState::Open | LiveState::Ready | LiveState::Leased => None,
        };
        std::iter::successors(first, |&event| List::after(&self.events, event))
    }

    /// A fragment is removed: its slot stays, closed, while the event lives.
    pub(crate) fn remove_slot_for_good(&mut self, event: u32, slot: usize) {
        let word = self.form.word_of(self.table(event), slot);
        self.set_word(event, slot, word.removed());
        self.removed_slots += 1;
    }

    /// Removed keys of a live event: remaining sub-keys, and whether each was a result.
    pub(crate) fn removed_of(&self, event: u32) -> impl Iterator<Item = (&[u8], bool)> + '_ {
        let table = self.table(event);
        let slots = 0..self.events[event].slots as usize;
        let words = slots.map(move |slot| (self.form.rest_of(table, slot), self.form.word_of(table, slot)));
        words.filter(|(_, word)| word.is_removed()).map(|(rest, word)| (rest, word.is_result()))
    }

    /// Ready events that will go out last, last first.
    pub(crate) fn furthest_from_delivery(&mut self, most: usize) -> Vec<u32> {
        let mut last = Vec::new();
        for (stage, ready) in self.ready.iter().enumerate() {
            let movable = |event: &u32| {
                let leaf = &self.events[*event];
                !leaf.is(Flag::Moving) && !leaf.is(Flag::AllWarm) && leaf.state == State::Live(LiveState::Ready)
            };
            let room = most - last.len();
            let found: Vec<u32> =
                ready.last_first(&self.events).take(LOOKED_AT_MAX).filter(movable).take(room).collect();
            let nothing = found.is_empty();
            last.extend(found);
            if nothing && ready.len() > LOOKED_AT_MAX as u64 {
                // All at the end went down before: on from where the last look ended.
                let here = |event: &u32| {
                    let leaf = &self.events[*event];
                    leaf.state == State::Live(LiveState::Ready)
                        && !leaf.is(Flag::Held)
                        && usize::from(leaf.stage) == stage
                };
                let from = self.looked_at[stage].filter(here);
                let (found, end) = ready.before(&self.events, from, LOOKED_AT_MAX);
                self.looked_at[stage] = end;
                last.extend(found.into_iter().filter(movable).take(room));
            }
        }
        last
    }

    /// Heap bytes: nodes, leaves, tables, leases, decided.
    pub(crate) fn heap_bytes(&self) -> [usize; 6] {
        [
            self.art.heap_bytes(),
            self.events.heap_bytes(),
            self.tables.heap_bytes(),
            self.leases.heap_bytes()
                + self.timers.heap_bytes()
                + self.ready.iter().map(Ready::heap_bytes).sum::<usize>(),
            self.runs.iter().map(Run::decided_bytes).sum(),
            self.verdicts.heap_bytes()
                + self.kept.capacity() * size_of::<Kept>()
                + self.runs.iter().map(|run| run.sources.heap_bytes()).sum::<usize>()
                + (self.own_rules.capacity() + self.ranks.capacity()) * 32,
        ]
    }
}
