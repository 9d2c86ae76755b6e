//! An event in memory: 48 bytes of state, and a table from remaining sub-keys to locations.
//!
//! ```text
//! table block:  primary key | attribute record's word (8, with attributes only) | slot | slot | …   sorted by sub-key
//! slot:         remaining sub-keys | word 8
//! word:         where (58, `hot::Location`; bit 56 of a hot place: persisted) | result 58 | empty 59 | late 60 | busy 61 | removed 62 | pending 63
//! ```
//!
//! *Invariants*: slots are sorted; a pending slot has a record in flight, a busy one a version in flight; a removed slot
//! stays as long as the event lives, so that a removed key cannot come back.

use crate::SourceState;
use crate::index::{Arena, BLOCK_BYTES_MAX, Block};
use forebay_core::LiveState;
use forebay_media::bytes::{Mark, StateWord};
use forebay_media::hot::Location;

/// No event, no lease.
pub(crate) const NIL: u32 = u32::MAX;

/// Where an event stands; the live states are the ledger's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// The place is free.
    #[default]
    Vacant,
    Live(LiveState),
    /// Decided or removed while records were in flight; ends when the last of them reports.
    Gone,
}

/// One event. Lists link through `previous` and `next`.
#[derive(Debug, Default)]
pub(crate) struct Event {
    pub(crate) arrival_ns: u64,
    pub(crate) bytes: u64,
    pub(crate) block: Block,
    pub(crate) previous: u32,
    pub(crate) next: u32,
    pub(crate) lease: u32,
    pub(crate) run: u16,
    pub(crate) slots: u16,
    /// Fragments that can be read.
    pub(crate) present: u16,
    /// Fragments that completeness counts, removed ones included.
    pub(crate) arrived: u16,
    /// Records and versions in flight.
    pub(crate) pending: u16,
    pub(crate) state: State,
    /// Grants of this stage that have not ended well, with the one under way.
    pub(crate) deliveries: u8,
    /// Stage of the selection that it has reached.
    pub(crate) stage: u8,
    /// What completes it: 0 the run's rule, [`RULE_OWN`] its own, else that of its class.
    pub(crate) rule: u8,
    pub(crate) flags: u16,
}

/// The event was announced with its sources.
pub(crate) const RULE_OWN: u8 = u8::MAX;

/// Yes-or-no facts of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Flag {
    /// Ready by time, seal, mask or grant: stays so after recovery.
    ReadyMarked = 1,
    /// The ledger counts it as an event.
    Counted = 2,
    /// It has every source that it waits for.
    Complete = 4,
    /// It was announced: it exists without fragments.
    Announced = 8,
    /// It stands in the list of those held back from delivery.
    Held = 16,
    /// The ledger counts it as complete or incomplete.
    Booked = 32,
    /// It is complete although it lacks sources: they are masked.
    LacksMasked = 64,
    /// Some of its fragments are on the warm level: its marks are logged, and decisions about it are shadowed.
    Warm = 128,
    /// It stands in the list of ready events that the warm level has.
    Cold = 256,
    /// The log has marks of it that its image does not have.
    MarksLogged = 512,
    /// Somebody moves it to the warm level.
    Moving = 1024,
    /// Its images say that it is accepted, or in the debug stream: it stands where such events go.
    SettledThere = 2048,
    /// All of it is on the warm level: the hot level reserves nothing for it.
    AllWarm = 4096,
    /// Versions of its fragments are known to be superseded.
    Superseded = 8192,
}

impl Event {
    #[inline]
    pub(crate) fn is(&self, flag: Flag) -> bool {
        self.flags & flag as u16 != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flag: Flag) {
        self.flags |= flag as u16;
    }

    #[inline]
    pub(crate) fn clear(&mut self, flag: Flag) {
        self.flags &= !(flag as u16);
    }

    /// Marks that recovery found: the latest stage counts, and in it the most deliveries, wherever they stand.
    pub(crate) fn adopt_marks(&mut self, found: StateWord) {
        (self.stage, self.deliveries) = (self.stage, self.deliveries).max((found.stage, found.deliveries));
        if found.ready || found.deliveries > 0 || found.stage > 0 {
            self.set(Flag::ReadyMarked);
        }
        if found.masked {
            self.set(Flag::Complete);
            self.set(Flag::LacksMasked);
        }
    }

    /// Whether what changes of its marks goes to the log: no word beside a record is read for it.
    pub(crate) fn is_logged(&self) -> bool {
        self.is(Flag::Warm) || self.is(Flag::MarksLogged)
    }

    /// The marks that stand beside its first fragment.
    pub(crate) fn marks(&self) -> StateWord {
        let (deliveries, stage) = (self.deliveries, self.stage);
        let ready = self.is(Flag::ReadyMarked);
        StateWord { mark: Mark::Live, deliveries, ready, masked: ready && self.is(Flag::LacksMasked), stage }
    }
}

const _: () = assert!(size_of::<Event>() <= 48);

/// A slot's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    const PENDING: u64 = 1 << 63;
    const REMOVED: u64 = 1 << 62;
    const BUSY: u64 = 1 << 61;
    const LATE: u64 = 1 << 60;
    const EMPTY: u64 = 1 << 59;
    const RESULT: u64 = 1 << 58;
    /// Beside a place on the hot level, which leaves this bit free.
    const PERSISTED: u64 = 1 << 56;
    pub(crate) const REMOVED_KEY: Word = Word(Self::REMOVED);

    pub(crate) fn at(location: Location) -> Word {
        Word(location.bits())
    }

    pub(crate) fn pending(self) -> Word {
        Word(self.0 | Self::PENDING)
    }

    pub(crate) fn busy(self) -> Word {
        Word(self.0 | Self::BUSY)
    }

    /// The same facts about a record that stands elsewhere now.
    pub(crate) fn moved_to(self, location: Location) -> Word {
        let copied = if self.is_persisted() && !location.is_warm() { Self::PERSISTED } else { 0 };
        Word(self.0 & (Self::LATE | Self::EMPTY | Self::RESULT) | Word::at(location).0 | copied)
    }

    /// A device has a copy of it.
    pub(crate) fn persisted(self) -> Word {
        Word(self.0 | Self::PERSISTED)
    }

    /// No device has a copy of it.
    pub(crate) fn not_persisted(self) -> Word {
        if self.is_persisted() { Word(self.0 & !Self::PERSISTED) } else { self }
    }

    pub(crate) fn is_persisted(self) -> bool {
        !self.is_warm() && self.0 & Self::PERSISTED != 0
    }

    /// With what is known of the fragment: whether it came late, whether it has no bytes.
    pub(crate) fn of_fragment(self, late: bool, length: u32) -> Word {
        let empty = if length == 0 { Self::EMPTY } else { 0 };
        Word(self.0 & !Self::EMPTY | empty | if late { Self::LATE } else { 0 })
    }

    /// Readable, came in time, has bytes: like almost all.
    #[inline]
    pub(crate) fn is_plain(self) -> bool {
        self.0 & (Self::PENDING | Self::REMOVED | Self::LATE | Self::EMPTY) == 0
    }

    /// How the source of a slot that is not pending stands.
    pub(crate) fn source_state(self) -> SourceState {
        match () {
            () if self.is_removed() => SourceState::Removed,
            () if self.is_late() => SourceState::Late,
            () if self.is_empty() => SourceState::Empty,
            () => SourceState::Present,
        }
    }

    /// A worker added it: nothing that completeness counts.
    pub(crate) fn of_result(self) -> Word {
        Word(self.0 | Self::RESULT)
    }

    /// The fragment is removed; whether it was a result stays known, because completeness goes on not to count it.
    pub(crate) fn removed(self) -> Word {
        Word(self.0 & Self::RESULT | Self::REMOVED)
    }

    pub(crate) fn is_warm(self) -> bool {
        self.location().is_warm()
    }

    pub(crate) fn is_result(self) -> bool {
        self.0 & Self::RESULT != 0
    }

    pub(crate) fn is_late(self) -> bool {
        self.0 & Self::LATE != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 & Self::EMPTY != 0
    }

    pub(crate) fn settled(self) -> Word {
        Word(self.0 & !(Self::PENDING | Self::BUSY))
    }

    pub(crate) fn location(self) -> Location {
        Location::from_bits(self.0)
    }

    pub(crate) fn is_pending(self) -> bool {
        self.0 & Self::PENDING != 0
    }

    pub(crate) fn is_busy(self) -> bool {
        self.0 & Self::BUSY != 0
    }

    pub(crate) fn is_removed(self) -> bool {
        self.0 & Self::REMOVED != 0
    }

    /// A record stands behind it that can be read.
    pub(crate) fn is_present(self) -> bool {
        self.0 & (Self::PENDING | Self::REMOVED) == 0
    }
}

/// How tables are laid out: follows from the keyspace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) primary: usize,
    pub(crate) rest: usize,
    pub(crate) attributes: bool,
}

impl Form {
    fn first(self) -> usize {
        self.primary + if self.attributes { 8 } else { 0 }
    }

    fn stride(self) -> usize {
        self.rest + 8
    }

    /// Bytes of a table with so many slots.
    pub(crate) fn bytes(self, slots: usize) -> usize {
        self.first() + slots * self.stride()
    }

    pub(crate) fn primary_of<'a>(self, tables: &'a Arena, event: &Event) -> &'a [u8] {
        &tables.bytes(event.block)[..self.primary]
    }

    pub(crate) fn rest_of(self, table: &[u8], slot: usize) -> &[u8] {
        let at = self.first() + slot * self.stride();
        &table[at..at + self.rest]
    }

    pub(crate) fn word_of(self, table: &[u8], slot: usize) -> Word {
        Word(u64_at(table, self.first() + slot * self.stride() + self.rest))
    }

    pub(crate) fn set_word(self, table: &mut [u8], slot: usize, word: Word) {
        let at = self.first() + slot * self.stride() + self.rest;
        table[at..at + 8].copy_from_slice(&word.0.to_le_bytes());
    }

    /// Word of the attribute record; `None` without one.
    pub(crate) fn attribute_word(self, table: &[u8]) -> Option<Word> {
        let word = if self.attributes { u64_at(table, self.primary) } else { 0 };
        // Stored with one added, so that a zeroed table has none.
        word.checked_sub(1).map(Word)
    }

    pub(crate) fn set_attribute_word(self, table: &mut [u8], word: Word) {
        table[self.primary..self.primary + 8].copy_from_slice(&(word.0 + 1).to_le_bytes());
    }

    /// Where a sub-key stands, or would stand.
    #[inline]
    pub(crate) fn find(self, table: &[u8], slots: usize, rest: &[u8]) -> Result<usize, usize> {
        let Some(last) = slots.checked_sub(1) else { return Err(0) };
        // Fragments of an event mostly arrive in the order of their sources.
        match self.rest_of(table, last).cmp(rest) {
            std::cmp::Ordering::Less => return Err(slots),
            std::cmp::Ordering::Equal => return Ok(last),
            std::cmp::Ordering::Greater => {}
        }
        let (mut low, mut high) = (0, last);
        while low < high {
            let middle = (low + high) / 2;
            match self.rest_of(table, middle).cmp(rest) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Puts a slot at a place that [`Form::find`] gave; the table grows where it must, to `expected` slots if that helps.
    pub(crate) fn insert(
        self,
        tables: &mut Arena,
        event: &mut Event,
        slot: usize,
        rest: &[u8],
        word: Word,
        expected: usize,
    ) {
        let slots = event.slots as usize;
        let needed = self.bytes(slots + 1);
        if needed > tables.bytes(event.block).len() {
            let generous = self.bytes((slots + 1) * 5 / 4 + 2).min(BLOCK_BYTES_MAX);
            let exact = self.bytes(expected);
            let bytes = if exact >= needed && exact < generous * 2 { exact } else { generous };
            event.block = tables.grow(event.block, bytes);
        }
        let table = tables.bytes_mut(event.block);
        let (from, stride) = (self.first() + slot * self.stride(), self.stride());
        table.copy_within(from..self.bytes(slots), from + stride);
        table[from..from + self.rest].copy_from_slice(rest);
        event.slots += 1;
        self.set_word(table, slot, word);
    }

    /// Takes a slot out.
    pub(crate) fn remove(self, tables: &mut Arena, event: &mut Event, slot: usize) {
        let slots = event.slots as usize;
        let table = tables.bytes_mut(event.block);
        let from = self.first() + slot * self.stride();
        table.copy_within(from + self.stride()..self.bytes(slots), from);
        event.slots -= 1;
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_stay_sorted_in_any_order_of_arrival() {
        for attributes in [false, true] {
            let form = Form { primary: 12, rest: 4, attributes };
            let mut tables = Arena::new();
            let mut event = Event { block: tables.allocate(form.bytes(1)), ..Event::default() };
            let mut sources: Vec<u32> = (0..200).map(|i| i * 7919 % 211).collect();
            for (at, source) in sources.iter().enumerate() {
                let rest = source.to_be_bytes();
                let slot = form.find(tables.bytes(event.block), event.slots as usize, &rest).unwrap_err();
                let word = Word::at(Location { segment: 5, entry: at as u32 });
                form.insert(&mut tables, &mut event, slot, &rest, word, 16);
            }
            assert_eq!(form.attribute_word(tables.bytes(event.block)), None);
            if attributes {
                let word = Word::at(Location { segment: 0, entry: 0 });
                form.set_attribute_word(tables.bytes_mut(event.block), word);
                assert_eq!(form.attribute_word(tables.bytes(event.block)), Some(word));
            }
            for (at, source) in sources.iter().enumerate() {
                let table = tables.bytes(event.block);
                let slot = form.find(table, 200, &source.to_be_bytes()).unwrap();
                assert_eq!(form.word_of(table, slot).location(), Location { segment: 5, entry: at as u32 });
            }
            let slot = form.find(tables.bytes(event.block), 200, &sources[17].to_be_bytes()).unwrap();
            form.remove(&mut tables, &mut event, slot);
            sources.remove(17);
            sources.sort_unstable();
            let table = tables.bytes(event.block);
            let there: Vec<&[u8]> = (0..199).map(|slot| form.rest_of(table, slot)).collect();
            assert_eq!(there, sources.iter().map(|s| s.to_be_bytes()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn words_keep_location_and_flags_apart() {
        let location = Location { segment: 0xFF_FFFF, entry: 0xFF_FFFE };
        let word = Word::at(location).pending().busy();
        assert_eq!(word.location(), location);
        let warm = Location::warm(0x3FFF, 0xFFF_FFFE, 0x7FFE);
        let there = Word::at(warm).of_fragment(true, 0).of_result().busy();
        assert_eq!((there.location(), there.is_warm(), word.is_warm()), (warm, true, false));
        let parts = (warm.container(), warm.entry, warm.index());
        assert_eq!(parts, (0x3FFF, 0xFFF_FFFE, 0x7FFE));
        assert!(there.is_late() && there.is_empty() && there.is_result() && !there.is_pending());
        assert!(word.is_pending() && word.is_busy() && !word.is_removed() && !word.is_present());
        assert!(word.settled().is_present());
        assert!(Word::REMOVED_KEY.is_removed() && !Word::REMOVED_KEY.is_present());
    }
}
