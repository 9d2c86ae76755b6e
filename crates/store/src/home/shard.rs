//! One shard of the home: events, their lists, leases and accounts, behind one lock.
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

use super::event::{Event, Form, NIL, State, Word};
use super::list::List;
use super::run::{DecidedForm, Plan, Run};
use super::verdicts::Verdicts;
use crate::hot::Location;
use crate::index::{Arena, Art, Leaves, Slab};
use crate::limits::{SHARD_BLOCK_BITS, SHARDS};
use forebay_core::limits::FRAGMENTS_PER_EVENT_MAX;
use forebay_core::{Completeness, Key, LiveState, Primary, Tally};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// Records that ended with an event: their words are still to be marked.
pub(crate) type Ended = Vec<Location>;

/// What the lock guards.
pub(crate) struct Shard {
    pub(crate) form: Form,
    pub(crate) decided_form: DecidedForm,
    art: Art,
    pub(crate) events: Slab<Event>,
    pub(crate) tables: Arena,
    pub(crate) runs: Vec<Run>,
    pub(crate) ready: List,
    pub(crate) debug: List,
    pub(crate) accepted: List,
    pub(crate) leases: Slab<LeaseState>,
    pub(crate) timers: BTreeSet<(u64, u32)>,
    pub(crate) verdicts: Verdicts,
    pub(crate) kept: Vec<Kept>,
    /// Removed slots of live events.
    pub(crate) removed_slots: u64,
    /// Grants of this shard in this life.
    pub(crate) grants: u64,
    pub(crate) closed: bool,
}

/// A shard and what is read without its lock.
#[repr(align(128))]
pub(crate) struct Cell {
    shard: Mutex<Shard>,
    /// Arrival of the first ready event; `u64::MAX` without one.
    pub(crate) oldest_ready_ns: AtomicU64,
}

struct Keys<'a> {
    form: Form,
    events: &'a Slab<Event>,
    tables: &'a Arena,
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
        let word = chunk.iter().fold(0_u64, |word, &byte| word << 8 | u64::from(byte));
        hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
    (hash.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32) as usize % SHARDS
}

impl Cell {
    pub(crate) fn new(form: Form, decided_form: DecidedForm) -> Cell {
        let shard = Shard {
            form,
            decided_form,
            art: Art::new(),
            events: Slab::new(),
            tables: Arena::new(),
            runs: Vec::new(),
            ready: List::new(),
            debug: List::new(),
            accepted: List::new(),
            leases: Slab::new(),
            timers: BTreeSet::new(),
            verdicts: Verdicts::default(),
            kept: Vec::new(),
            removed_slots: 0,
            grants: 0,
            closed: false,
        };
        Cell { shard: Mutex::new(shard), oldest_ready_ns: AtomicU64::new(u64::MAX) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Shard> {
        self.shard.lock()
    }

    /// Publishes what the head of the ready list says. Called before the lock is let go where the list changed.
    pub(crate) fn publish_ready(&self, shard: &Shard) {
        let oldest = shard.ready.first().map_or(u64::MAX, |event| shard.events[event].arrival_ns);
        self.oldest_ready_ns.store(oldest, Ordering::Release);
    }
}

impl Shard {
    #[inline]
    pub(crate) fn find(&self, primary: &[u8]) -> Option<u32> {
        self.art.get(&self.keys(), primary)
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

    pub(crate) fn add_run(&mut self, run: u64, plan: Arc<Plan>, state: crate::RunState) {
        let open = List::new();
        self.runs.push(Run { run, state, plan, open, ledger: Default::default(), decided: Default::default() });
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
        let wanted = self.runs[run as usize].plan.wanted().unwrap_or(1);
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
        let expected = self.runs[self.events[event].run as usize].plan.wanted().unwrap_or(0);
        let form = self.form;
        form.insert(&mut self.tables, &mut self.events[event], slot, rest, word, expected);
    }

    /// Takes out the slot of a reservation that was given up.
    pub(crate) fn remove_slot(&mut self, event: u32, rest: &[u8]) {
        if let Ok((slot, _)) = self.slot(event, rest) {
            let form = self.form;
            form.remove(&mut self.tables, &mut self.events[event], slot);
        }
    }

    /// What the event weighs in the ledger.
    pub(crate) fn tally(&self, event: u32) -> Tally {
        let event = &self.events[event];
        Tally { events: u64::from(event.counted), fragments: u64::from(event.present), bytes: event.bytes }
    }

    /// A fragment became readable: it is booked, and may complete the event.
    pub(crate) fn arrived(&mut self, event: u32, rest: &[u8], length: u32) {
        let State::Live(state) = self.events[event].state else { return };
        let run = &mut self.runs[self.events[event].run as usize];
        let fragment = Tally::fragment(u64::from(length));
        run.ledger.stored += fragment;
        let leaf = &mut self.events[event];
        let first = !std::mem::replace(&mut leaf.counted, true);
        *run.ledger.live(state) += Tally { events: u64::from(first), ..fragment };
        leaf.present += 1;
        leaf.bytes += u64::from(length);
        if run.plan.counts(rest) {
            leaf.arrived += 1;
        }
        let complete = run.plan.wanted().is_some_and(|wanted| usize::from(leaf.arrived) >= wanted);
        if complete && state == LiveState::Open {
            self.move_to(event, LiveState::Ready);
        }
    }

    /// Moves a live event to another state, with its list and its booking.
    pub(crate) fn move_to(&mut self, event: u32, to: LiveState) {
        let State::Live(from) = self.events[event].state else { return };
        self.unlink(event, from);
        let tally = self.tally(event);
        let ledger = &mut self.runs[self.events[event].run as usize].ledger;
        *ledger.live(from) -= tally;
        *ledger.live(to) += tally;
        self.events[event].state = State::Live(to);
        let given_back = from == LiveState::Leased;
        match to {
            LiveState::Open => self.runs[self.events[event].run as usize].open.push_back(&mut self.events, event),
            LiveState::Ready if given_back => self.ready.push_front(&mut self.events, event),
            LiveState::Ready => self.ready.push_back(&mut self.events, event),
            LiveState::Leased => {}
            LiveState::Debug => self.debug.push_back(&mut self.events, event),
            LiveState::Accepted => self.accepted.push_back(&mut self.events, event),
        }
    }

    fn unlink(&mut self, event: u32, state: LiveState) {
        match state {
            LiveState::Open => self.runs[self.events[event].run as usize].open.unlink(&mut self.events, event),
            LiveState::Ready => self.ready.unlink(&mut self.events, event),
            LiveState::Leased => self.end_lease(event),
            LiveState::Debug => self.debug.unlink(&mut self.events, event),
            LiveState::Accepted => self.accepted.unlink(&mut self.events, event),
        }
    }

    fn end_lease(&mut self, event: u32) {
        let lease = std::mem::replace(&mut self.events[event].lease, NIL);
        if lease != NIL {
            let ended = self.leases.remove(lease);
            self.timers.remove(&(ended.deadline_ns, lease));
        }
    }

    /// Takes a live event out for good and remembers it as decided. Its records' locations go to `ended`; what is
    /// booked elsewhere is the caller's to say. Records in flight keep the leaf until they report.
    pub(crate) fn end(&mut self, event: u32, ended: &mut Ended) -> Tally {
        let State::Live(state) = self.events[event].state else { return Tally::default() };
        self.unlink(event, state);
        let tally = self.tally(event);
        let primary = self.primary(event);
        let run = &mut self.runs[self.events[event].run as usize];
        *run.ledger.live(state) -= tally;
        // A closed run needs no memory: it answers for all its events.
        if run.state != crate::RunState::Closed {
            run.decided.insert(self.decided_form, primary.as_bytes());
        }
        let keys = Keys { form: self.form, events: &self.events, tables: &self.tables };
        self.art.remove(&keys, primary.as_bytes());
        let table = self.table(event);
        let mut removed = 0;
        for slot in 0..self.events[event].slots as usize {
            let word = self.form.word_of(table, slot);
            if word.is_present() {
                ended.push(word.location());
            }
            removed += u64::from(word.is_removed());
        }
        self.removed_slots -= removed;
        ended.extend(self.attribute_word(event).map(Word::location));
        if self.events[event].pending == 0 {
            self.forget(event);
        } else {
            self.events[event].state = State::Gone;
        }
        tally
    }

    /// A record in flight has reported; the last one of an event that is gone frees its place.
    pub(crate) fn settle(&mut self, event: u32) {
        self.events[event].pending -= 1;
        if self.events[event].pending == 0 && self.events[event].state == State::Gone {
            self.forget(event);
        }
    }

    /// Takes out an open event of which nothing was ever acknowledged.
    pub(crate) fn withdraw(&mut self, event: u32) {
        self.unlink(event, LiveState::Open);
        let primary = self.primary(event);
        let keys = Keys { form: self.form, events: &self.events, tables: &self.tables };
        self.art.remove(&keys, primary.as_bytes());
        self.forget(event);
    }

    fn forget(&mut self, event: u32) {
        let leaf = self.events.remove(event);
        self.tables.free(leaf.block);
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

    /// Expected sources that are not there: neither readable nor removed.
    pub(crate) fn missing(&self, event: u32) -> Vec<Vec<u8>> {
        let Completeness::Sources(sources) = &self.runs[self.events[event].run as usize].plan.config.completeness
        else {
            return Vec::new();
        };
        if usize::from(self.events[event].arrived) >= sources.len() {
            return Vec::new();
        }
        let there = |source: &[u8]| self.slot(event, source).is_ok_and(|(_, word)| !word.is_pending());
        sources.iter().filter(|source| !there(source)).cloned().collect()
    }

    /// The events of a list, in its order.
    pub(crate) fn listed(&self, state: LiveState) -> impl Iterator<Item = u32> + '_ {
        let first = match state {
            LiveState::Accepted => self.accepted.first(),
            LiveState::Debug => self.debug.first(),
            LiveState::Ready => self.ready.first(),
            LiveState::Open | LiveState::Leased => None,
        };
        std::iter::successors(first, |&event| List::after(&self.events, event))
    }

    /// A fragment is removed: its slot stays, closed, while the event lives.
    pub(crate) fn remove_slot_for_good(&mut self, event: u32, slot: usize) {
        self.set_word(event, slot, Word::REMOVED_KEY);
        self.removed_slots += 1;
    }

    /// Removed keys of live events: event and remaining sub-keys.
    pub(crate) fn removed_keys(&self) -> Vec<(u32, Vec<u8>)> {
        let mut removed = Vec::new();
        if self.removed_slots == 0 {
            return removed;
        }
        let mut next = self.seek(&vec![0; self.form.primary]);
        while let Some(event) = next {
            let table = self.table(event);
            for slot in 0..self.events[event].slots as usize {
                if self.form.word_of(table, slot).is_removed() {
                    removed.push((event, self.form.rest_of(table, slot).to_vec()));
                }
            }
            next = self.primary(event).successor().and_then(|from| self.seek(from.as_bytes()));
        }
        removed
    }

    /// Heap bytes: nodes, leaves, tables, leases, decided.
    pub(crate) fn heap_bytes(&self) -> [usize; 6] {
        [
            self.art.heap_bytes(),
            self.events.heap_bytes(),
            self.tables.heap_bytes(),
            self.leases.heap_bytes() + self.timers.len() * 24,
            self.runs.iter().map(|run| run.decided.heap_bytes()).sum(),
            self.verdicts.heap_bytes() + self.kept.capacity() * size_of::<Kept>(),
        ]
    }
}
