//! The events of one shard: their lists, leases and accounts. One lock guards them and their places (`shards`).
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

use super::event::{Event, EventSlab, State};
use super::foreign::Kept;
use super::incidents::Incidents;
use super::list::List;
use super::ready::Ready;
use super::rule::{Rule, RunPlan};
use super::run::{DecidedForm, Run};
use super::slot::{Form, PlaceBits, Table, Word};
use super::timers::Timers;
use super::verdicts::Verdicts;
use crate::index::{Arena, Art, Leaves, Path, Reached, Slab};
use crate::limits::{RUNS_MAX, SHARD_BLOCK_BITS, SHARDS};
use forebay_core::limits::FRAGMENTS_PER_EVENT_MAX;
use forebay_core::{FixedMap, LiveState, Primary};
use forebay_media::hot::will_look;
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

// An event has the index of its run in 16 bits.
const _: () = assert!(RUNS_MAX <= u16::MAX as usize);
// Blocks of neighbours are cut off the number by a shift.
const _: () = assert!(SHARD_BLOCK_BITS < u64::BITS);

/// A lease that is out.
#[derive(Debug, Default)]
pub(crate) struct LeaseState {
    pub(crate) event: u32,
    /// The epoch of the event's slot when it was granted; 0 outside of a cluster.
    pub(crate) epoch: u32,
    pub(crate) counter: u64,
    pub(crate) granted_ns: u64,
    pub(crate) deadline_ns: u64,
}

/// Places of records that ended with an event: their words are still to be marked.
pub(crate) type Ended = Vec<PlaceBits>;

/// How the events of a store look and are kept: follows from the keyspace and the region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) form: Form,
    pub(crate) decided_form: DecidedForm,
    pub(crate) stages: usize,
    /// Delivery is in order of arrival, wherever events are.
    pub(crate) strict: bool,
    /// An attribute orders delivery.
    pub(crate) ranked: bool,
    /// Bytes for remembering how events of a run ended, per way to end.
    pub(crate) endings_bytes: usize,
    /// Closed runs keep the memory of the decided, as long as containers have images of theirs.
    pub(crate) keeps_decided: bool,
}

/// The lists that events are in, except for those that wait for fragments (`Run::open`).
pub(crate) struct Lists {
    /// By stage.
    pub(crate) ready: Vec<Ready>,
    /// Ready events that a hold keeps from delivery.
    pub(crate) held: List,
    pub(crate) debug: List,
    pub(crate) accepted: List,
    /// Payload bytes of the debug stream.
    pub(crate) debug_bytes: u64,
    /// Why the events of the debug stream went there.
    pub(crate) reasons: FixedMap<u32, u8>,
    /// What the last worker said that failed on a live event.
    pub(crate) failures: FixedMap<u32, Box<str>>,
    /// Where foreign events had gone that were accepted, or in the debug stream.
    pub(crate) foreign: FixedMap<u32, Kept>,
    /// Foreign events of which their homes may not know all that is here: by home, and whether they are told at once.
    pub(super) untold: BTreeMap<(u16, bool), List>,
    /// Of those, the fragments that their homes know, by their sub-keys one after another.
    pub(super) known_at_home: FixedMap<u32, Vec<u8>>,
}

/// Leases that are out, and what was answered under those that ended.
pub(crate) struct Leases {
    pub(crate) out: Slab<LeaseState>,
    pub(crate) timers: Timers,
    pub(crate) verdicts: Verdicts,
    /// Leases that this shard granted in this life.
    pub(crate) granted: u64,
}

/// The events of one shard. An index gives an event.
pub(crate) struct ShardEvents {
    pub(crate) shape: Shape,
    pub(super) art: Art,
    pub(crate) slab: EventSlab,
    pub(crate) tables: Arena,
    pub(crate) runs: Vec<Run>,
    pub(crate) lists: Lists,
    pub(crate) leases: Leases,
    /// Rules of events that were announced with their sources.
    pub(crate) own_rules: FixedMap<u32, Arc<Rule>>,
    /// Ranks of events, where an attribute orders delivery and the event has it.
    pub(crate) ranks: FixedMap<u32, u128>,
    pub(crate) incidents: Incidents,
    /// Removed slots of live events.
    pub(crate) removed_slots: u64,
    /// Records are still being found: nothing becomes ready yet.
    pub(crate) recovering: bool,
}

impl Index<u32> for ShardEvents {
    type Output = Event;

    #[inline]
    fn index(&self, event: u32) -> &Event {
        &self.slab[event]
    }
}

impl IndexMut<u32> for ShardEvents {
    #[inline]
    fn index_mut(&mut self, event: u32) -> &mut Event {
        &mut self.slab[event]
    }
}

pub(super) struct Keys<'a> {
    pub(super) form: Form,
    pub(super) events: &'a EventSlab,
    pub(super) tables: &'a Arena,
}

impl Leaves for Keys<'_> {
    #[inline]
    fn key(&self, leaf: u32) -> &[u8] {
        self.form.primary_of(self.tables, self.events.table(leaf))
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
    // The lowest bits are left out, so that neighbours share a shard: they stay dense in its tree and in its memory of the
    // decided. Blocks of them are spread by the hash, so that a run that counts up uses all locks.
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

impl ShardEvents {
    pub(crate) fn new(shape: Shape) -> ShardEvents {
        ShardEvents {
            shape,
            art: Art::new(),
            slab: EventSlab::new(),
            tables: Arena::new(),
            runs: Vec::new(),
            lists: Lists {
                ready: (0..shape.stages).map(|_| Ready::new(shape.strict, shape.ranked)).collect(),
                held: List::new(),
                debug: List::new(),
                accepted: List::new(),
                debug_bytes: 0,
                reasons: FixedMap::default(),
                failures: FixedMap::default(),
                foreign: FixedMap::default(),
                untold: BTreeMap::new(),
                known_at_home: FixedMap::default(),
            },
            leases: Leases { out: Slab::new(), timers: Timers::default(), verdicts: Verdicts::default(), granted: 0 },
            own_rules: FixedMap::default(),
            ranks: FixedMap::default(),
            incidents: Incidents::default(),
            removed_slots: 0,
            recovering: false,
        }
    }

    #[inline]
    pub(crate) fn find(&self, primary: &[u8]) -> Option<u32> {
        let found = self.art.get(&self.keys(), primary);
        debug_assert!(
            found.is_none_or(|event| matches!(self.slab[event].state, State::Live(_) | State::Foreign)),
            "an event is in the tree exactly while it is live, or foreign"
        );
        found
    }

    /// As [`ShardEvents::find`], of events that have their home here.
    #[inline]
    pub(crate) fn find_live(&self, primary: &[u8]) -> Option<u32> {
        self.find(primary).filter(|&event| self.slab[event].state != State::Foreign)
    }

    /// One step of a lookup on its way to an event; a hint, as that of `index/prefetch.rs`.
    #[inline]
    pub(crate) fn step(&self, path: &mut Path, primary: &[u8]) -> Reached {
        let reached = self.art.step(path, primary);
        if let Reached::Leaf(event) = reached {
            will_look(&self.slab[event]);
        }
        reached
    }

    /// Asks for the table of what was an event a moment ago.
    #[inline]
    pub(crate) fn will_look_at_table(&self, event: u32) {
        if self.slab[event].state != State::Vacant {
            will_look(self.table(event).first().unwrap_or(&0));
        }
    }

    /// The first live event whose primary key is not below.
    pub(crate) fn seek(&self, primary: &[u8]) -> Option<u32> {
        self.art.seek(&self.keys(), primary)
    }

    fn keys(&self) -> Keys<'_> {
        Keys { form: self.shape.form, events: &self.slab, tables: &self.tables }
    }

    pub(crate) fn run_index(&self, run: u64) -> Option<u16> {
        // Newest first: the run that is being taken.
        self.runs.iter().rposition(|known| known.run == run).map(|at| at as u16)
    }

    /// `shadowed`: position of its opening in the shadows.
    pub(crate) fn add_run(&mut self, run: u64, plan: Arc<RunPlan>, state: crate::RunState, now_ns: u64, shadowed: u64) {
        debug_assert!(self.runs.last().is_none_or(|last| last.run != run), "run {run} is added once");
        let fresh = Run::new(run, plan, state, now_ns, self.shape.keeps_decided);
        self.runs.push(Run { shadowed, ..fresh });
    }

    pub(crate) fn primary(&self, event: u32) -> Primary {
        Primary::from_packed(self.shape.form.primary_of(&self.tables, self.slab.table(event)))
    }

    pub(crate) fn table(&self, event: u32) -> &[u8] {
        self.tables.bytes(self.slab.table(event).block)
    }

    /// Slots of an event's table.
    #[inline]
    pub(crate) fn slots(&self, event: u32) -> usize {
        usize::from(self.slab.table(event).slots)
    }

    /// The slot of a sub-key and its word.
    #[inline]
    pub(crate) fn slot(&self, event: u32, rest: &[u8]) -> Result<(usize, Word), usize> {
        let table = self.table(event);
        let slot = self.shape.form.find(table, self.slots(event), rest)?;
        Ok((slot, self.shape.form.word_of(table, slot)))
    }

    pub(crate) fn set_word(&mut self, event: u32, slot: usize, word: Word) {
        let block = self.slab.table(event).block;
        debug_assert!(
            word.is_removed() || !self.shape.form.word_of(self.tables.bytes(block), slot).is_removed(),
            "a removed key stays removed while its event lives"
        );
        self.shape.form.set_word(self.tables.bytes_mut(block), slot, word);
    }

    pub(crate) fn attribute_word(&self, event: u32) -> Option<Word> {
        self.shape.form.attribute_word(self.table(event))
    }

    pub(crate) fn set_attribute_word(&mut self, event: u32, word: Word) {
        let block = self.slab.table(event).block;
        self.shape.form.set_attribute_word(self.tables.bytes_mut(block), word);
    }

    /// A new open event, linked in its run's open list.
    pub(crate) fn create(&mut self, primary: &[u8], run: u16, now_ns: u64) -> u32 {
        let event = self.create_as(State::Live(LiveState::Open), primary, run, now_ns);
        self.runs[run as usize].open.push_back(&mut self.slab, event);
        event
    }

    /// A new event whose home is another node.
    pub(crate) fn create_foreign(&mut self, primary: &[u8], run: u16, now_ns: u64, home: u16) -> u32 {
        let event = self.create_as(State::Foreign, primary, run, now_ns);
        self.enter_foreign(event, home, now_ns);
        event
    }

    fn create_as(&mut self, state: State, primary: &[u8], run: u16, now_ns: u64) -> u32 {
        debug_assert!(self.find(primary).is_none(), "a primary key has one event");
        // Sized for the event that the run's rule expects, up to a point: an event that stays small must not hold the table of
        // a large one.
        let wanted = self.runs[run as usize].plan.rules[0].wanted().unwrap_or(1);
        let block = self.tables.allocate(self.shape.form.bytes(if wanted <= 64 { wanted } else { 16 }));
        self.tables.bytes_mut(block)[..primary.len()].copy_from_slice(primary);
        let event = self.slab.insert(Event::new(run, state, now_ns), Table { block, slots: 0 });
        let first = self.first_stage(event);
        self.slab[event].set_progress(first, 0);
        let keys = Keys { form: self.shape.form, events: &self.slab, tables: &self.tables };
        self.art.insert(&keys, primary, event);
        event
    }

    /// The stage in which events of its run begin.
    pub(crate) fn first_stage(&self, event: u32) -> u8 {
        self.runs[self.slab[event].run as usize].plan.stage
    }

    /// Whether an event can take another slot.
    pub(crate) fn has_room(&self, event: u32) -> bool {
        u32::from(self.slab.table(event).slots) < FRAGMENTS_PER_EVENT_MAX
    }

    /// Takes out the slot of a reservation that was given up.
    pub(crate) fn remove_slot(&mut self, event: u32, rest: &[u8]) {
        if let Ok((slot, word)) = self.slot(event, rest) {
            // Any other slot stays while the event lives: taken out, its key could come back.
            debug_assert!(word.is_pending(), "only a reservation gives its slot up");
            let form = self.shape.form;
            let mut table = self.slab.table(event);
            form.remove(&mut self.tables, &mut table, slot);
            self.slab.set_table(event, table);
        }
    }

    /// The accepted or debug events, in order.
    pub(crate) fn listed(&self, state: LiveState) -> impl Iterator<Item = u32> + '_ {
        let first = match state {
            LiveState::Accepted => self.lists.accepted.first(),
            LiveState::Debug => self.lists.debug.first(),
            LiveState::Open | LiveState::Ready | LiveState::Leased => None,
        };
        std::iter::successors(first, |&event| List::after(&self.slab, event))
    }

    /// A fragment is removed: its slot stays, closed, while the event lives.
    pub(crate) fn remove_slot_for_good(&mut self, event: u32, slot: usize) {
        let word = self.shape.form.word_of(self.table(event), slot);
        self.set_word(event, slot, word.removed());
        // Counted, so that events without a removal, nearly all of them, are never searched for one.
        self.removed_slots += 1;
    }

    /// Removed keys of a live event: remaining sub-keys, and whether each was a result.
    pub(crate) fn removed_of(&self, event: u32) -> impl Iterator<Item = (&[u8], bool)> + '_ {
        let table = self.table(event);
        let slots = 0..self.slots(event);
        let words = slots.map(move |slot| (self.shape.form.rest_of(table, slot), self.shape.form.word_of(table, slot)));
        words.filter(|(_, word)| word.is_removed()).map(|(rest, word)| (rest, word.is_result()))
    }

    /// A fragment, a removed key or a place for one joins the event's table.
    #[inline]
    pub(crate) fn insert_slot(&mut self, event: u32, slot: usize, rest: &[u8], word: Word) {
        // The rule says how many slots the table will have in the end.
        let expected = self.rule(event).wanted().unwrap_or(0);
        let form = self.shape.form;
        let mut table = self.slab.table(event);
        form.insert(&mut self.tables, &mut table, slot, rest, word, expected);
        self.slab.set_table(event, table);
    }

    /// Readable fragments: sub-key and place, those that `takes` wants.
    pub(crate) fn fragments<'a>(
        &'a self,
        event: u32,
        takes: impl Fn(&[u8]) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a [u8], PlaceBits)> + 'a {
        let table = self.table(event);
        (0..self.slots(event)).filter_map(move |slot| {
            let word = self.shape.form.word_of(table, slot);
            let rest = self.shape.form.rest_of(table, slot);
            (word.is_present() && takes(rest)).then(|| (rest, word.place()))
        })
    }

    /// Heap bytes: nodes, leaves, tables, leases, decided, others.
    pub(crate) fn heap_bytes(&self) -> [usize; 6] {
        [
            self.art.heap_bytes(),
            self.slab.heap_bytes(),
            self.tables.heap_bytes(),
            self.leases.out.heap_bytes()
                + self.leases.timers.heap_bytes()
                + self.lists.ready.iter().map(Ready::heap_bytes).sum::<usize>(),
            self.runs.iter().map(Run::decided_bytes).sum(),
            self.leases.verdicts.heap_bytes()
                + self.runs.iter().map(|run| run.sources.heap_bytes()).sum::<usize>()
                + (self.own_rules.capacity() + self.ranks.capacity()) * 32,
        ]
    }
}
