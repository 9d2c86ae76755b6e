//! An event in memory: 40 bytes of state; beside it, in the same cache line, its table and a byte of flags that `placement`
//! reads.

use super::slot::Table;
use crate::index::{Block, Slab};
use forebay_core::LiveState;
use forebay_core::limits::{DELIVERIES_MAX, STAGES_MAX};
use forebay_media::bytes::{Mark, StateWord};
use std::ops::{Index, IndexMut};

/// No event, no lease.
pub(crate) const NIL: u32 = u32::MAX;

/// The state of an event; the live states are the ledger's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// The place is free.
    #[default]
    Vacant,
    Live(LiveState),
    /// Its home is another node: fragments are kept here, and nothing is listed, leased or booked.
    Foreign,
    /// Decided or removed while records were in flight; ends when the last of them reports.
    Gone,
}

impl State {
    /// Accepted, or in the debug stream: kept for the archive.
    pub(crate) fn is_kept(self) -> bool {
        matches!(self, State::Live(LiveState::Accepted | LiveState::Debug))
    }
}

/// One event. Lists link through `previous` and `next`.
#[derive(Debug, Default)]
pub(crate) struct Event {
    pub(crate) arrival_ns: u64,
    pub(crate) bytes: u64,
    pub(crate) previous: u32,
    pub(crate) next: u32,
    /// The number of its lease while it is leased; of an accepted event the number of its output (`decisions/outputs.rs`); of a
    /// foreign one its home.
    link: u32,
    pub(crate) run: u16,
    /// Fragments that can be read.
    pub(crate) present: u16,
    /// Fragments that completeness counts, removed ones included.
    pub(crate) arrived: u16,
    /// Records and versions in flight.
    pub(crate) pending: u16,
    pub(crate) state: State,
    /// What is durable beside its first fragment: deliveries (4 bits), stage (3), ready (1). Packed so that an event with
    /// its table fills 48 bytes.
    marks: u8,
    /// Its completeness rule: 0 the run's, [`RULE_OWN`] its own, else that of its class.
    pub(crate) rule: u8,
    flags: u8,
}

const STAGE_SHIFT: u32 = 4;
const READY: u8 = 1 << 7;
// Deliveries have 4 bits, stages 3.
const _: () = assert!((DELIVERIES_MAX as usize) < 1 << STAGE_SHIFT && STAGES_MAX <= 1 << 3);
// The last stage must not reach the bit that says ready: an event that passed far would become ready by its stage.
const _: () = assert!((STAGES_MAX as u8 - 1) << STAGE_SHIFT & READY == 0);

/// An event, its table, and what `placement` notes of it.
#[derive(Debug, Default)]
pub(crate) struct Leaf {
    event: Event,
    block: Block,
    slots: u16,
    /// Flags whose meaning is `placement`'s (`placement/places.rs`).
    pub(crate) placed: u8,
}

const _: () = assert!(size_of::<Event>() <= 40 && size_of::<Leaf>() <= 48);

/// The events of a shard, by number. An index gives the event alone.
pub(crate) struct EventSlab(Slab<Leaf>);

impl EventSlab {
    pub(crate) fn new() -> EventSlab {
        EventSlab(Slab::new())
    }

    pub(crate) fn insert(&mut self, event: Event, table: Table) -> u32 {
        self.0.insert(Leaf { event, block: table.block, slots: table.slots, placed: 0 })
    }

    /// Takes an event out; answers its table, which the caller frees.
    pub(crate) fn remove(&mut self, event: u32) -> Table {
        let leaf = self.0.remove(event);
        Table { block: leaf.block, slots: leaf.slots }
    }

    #[inline]
    pub(crate) fn leaf(&self, event: u32) -> &Leaf {
        &self.0[event]
    }

    #[inline]
    pub(crate) fn leaf_mut(&mut self, event: u32) -> &mut Leaf {
        &mut self.0[event]
    }

    #[inline]
    pub(crate) fn table(&self, event: u32) -> Table {
        let leaf = &self.0[event];
        Table { block: leaf.block, slots: leaf.slots }
    }

    pub(crate) fn set_table(&mut self, event: u32, table: Table) {
        let leaf = &mut self.0[event];
        (leaf.block, leaf.slots) = (table.block, table.slots);
    }

    /// Numbers that were ever given: events are below.
    pub(crate) fn used(&self) -> u32 {
        self.0.used()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
}

impl Index<u32> for EventSlab {
    type Output = Event;

    #[inline]
    fn index(&self, event: u32) -> &Event {
        &self.0[event].event
    }
}

impl IndexMut<u32> for EventSlab {
    #[inline]
    fn index_mut(&mut self, event: u32) -> &mut Event {
        &mut self.0[event].event
    }
}

/// The event was announced with its sources.
pub(crate) const RULE_OWN: u8 = u8::MAX;

/// Yes-or-no facts of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Flag {
    /// The ledger counts it as an event. Of a foreign one: its home knows all that is here.
    Counted = 1,
    /// It has every source that it waits for.
    Complete = 2,
    /// It was announced: it exists without fragments.
    Announced = 4,
    /// It is in the list of those held back from delivery. Of a foreign one: its home has ended it, and is still to be told of what
    /// came before.
    Held = 8,
    /// The ledger counts it as complete or incomplete. Of a foreign one: its home is told at once of what it does not know.
    Booked = 16,
    /// It is complete although it lacks sources: they are masked.
    LacksMasked = 32,
    /// Nothing of it is near: where near events go out first, it waits in a list of its own. `placement` says so.
    Far = 64,
    /// It is in the list of ready events that are far.
    ListedFar = 128,
}

impl Event {
    #[inline]
    pub(crate) fn is(&self, flag: Flag) -> bool {
        self.flags & flag as u8 != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flag: Flag) {
        self.flags |= flag as u8;
    }

    #[inline]
    pub(crate) fn clear(&mut self, flag: Flag) {
        self.flags &= !(flag as u8);
    }

    /// A new event of a run, which waits for fragments.
    pub(crate) fn new(run: u16, state: State, now_ns: u64) -> Event {
        Event { arrival_ns: now_ns, link: NIL, run, state, ..Event::default() }
    }

    /// The number of its lease; [`NIL`] where it has none.
    #[inline]
    pub(crate) fn lease(&self) -> u32 {
        debug_assert!(self.state != State::Live(LiveState::Accepted), "an accepted event has no lease");
        self.link
    }

    pub(crate) fn set_lease(&mut self, lease: u32) {
        // Lease and output share a word: a lease noted in another state would be read as an output by the next snapshot.
        debug_assert_eq!(self.state, State::Live(LiveState::Leased), "only a leased event has a lease");
        self.link = lease;
    }

    /// The number of the output of an event that is accepted, or that recovery finds to be.
    pub(crate) fn output(&self) -> u32 {
        debug_assert!(self.state != State::Live(LiveState::Leased), "a leased event has no output");
        self.link
    }

    pub(crate) fn set_output(&mut self, output: u32) {
        debug_assert!(self.state != State::Live(LiveState::Leased), "a leased event has no output");
        self.link = output;
    }

    /// The node that leads it, of a foreign event.
    pub(crate) fn home(&self) -> u16 {
        debug_assert_eq!(self.state, State::Foreign, "only a foreign event names its home");
        self.link as u16
    }

    pub(super) fn set_home(&mut self, home: Option<u16>) {
        self.link = home.map_or(NIL, u32::from);
    }

    /// Grants of this stage that have not ended well, with the one under way.
    #[inline]
    pub(crate) fn deliveries(&self) -> u8 {
        self.marks & ((1 << STAGE_SHIFT) - 1)
    }

    /// Stage of the selection that it has reached.
    #[inline]
    pub(crate) fn stage(&self) -> u8 {
        (self.marks & !READY) >> STAGE_SHIFT
    }

    /// Ready by time, seal, mask or grant: stays so after recovery.
    #[inline]
    pub(crate) fn is_marked_ready(&self) -> bool {
        self.marks & READY != 0
    }

    pub(crate) fn mark_ready(&mut self) {
        self.marks |= READY;
    }

    pub(crate) fn unmark_ready(&mut self) {
        self.marks &= !READY;
    }

    pub(crate) fn set_deliveries(&mut self, deliveries: u8) {
        self.set_progress(self.stage(), deliveries);
    }

    /// The stage that it has reached, and its deliveries there; at most [`DELIVERIES_MAX`] are counted.
    pub(crate) fn set_progress(&mut self, stage: u8, deliveries: u8) {
        debug_assert!(usize::from(stage) < STAGES_MAX, "stage {stage}");
        // Capped, not wrapped: an event that fails forever has to stay past `deliveries_max`, or it would never reach the
        // debug stream.
        self.marks = self.marks & READY | stage << STAGE_SHIFT | deliveries.min(DELIVERIES_MAX);
        debug_assert_eq!(self.stage(), stage, "a stage keeps within its bits");
    }

    /// Marks that recovery found: the latest stage counts, and in it the most deliveries, wherever they were found.
    #[inline]
    pub(crate) fn adopt_marks(&mut self, found: StateWord) {
        let (stage, deliveries) = (self.stage(), self.deliveries()).max((found.stage, found.deliveries));
        self.set_progress(stage, deliveries);
        // A delivery or a later stage proves that it was ready once, and ready is monotone.
        if found.ready || found.deliveries > 0 || found.stage > 0 {
            self.mark_ready();
        }
        // The masks of that time may be lifted by now: the mark alone knows that it was complete with them.
        if found.masked {
            self.set(Flag::Complete);
            self.set(Flag::LacksMasked);
        }
    }

    /// What is to be durable beside its first fragment.
    pub(crate) fn marks(&self) -> StateWord {
        // Masked counts with ready only: as long as an event waits, the masks of now decide.
        // So does the stage: events of a run may begin in a later one, and a stage says that an event was ready.
        let (deliveries, stage, ready) = (self.deliveries(), self.stage(), self.is_marked_ready());
        let stage = if ready { stage } else { 0 };
        StateWord { mark: Mark::Live, deliveries, ready, masked: ready && self.is(Flag::LacksMasked), stage }
    }
}
