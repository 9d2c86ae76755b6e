//! The slot of each source of an event, and the table of slots: a table from remaining sub-keys to words.
//!
//! ```text
//! table block:  primary key | attribute record's word (8, with attributes only) | slot | slot | …   sorted by sub-key
//! slot:         remaining sub-keys | word 8
//! word:         place (58 bits) | result 58 | empty 59 | late 60 | busy 61 | removed 62 | pending 63
//! ```
//!
//! *Invariants*: slots are sorted; a pending slot has a record in flight, a busy one a version in flight; a removed slot
//! stays as long as the event lives, so that a removed key cannot come back.
//!
//! *Not here*: what a place means (`placement/location.rs`).

use crate::SourceState;
use crate::index::{Arena, BLOCK_BYTES_MAX, Block};
use forebay_core::limits::FRAGMENTS_PER_EVENT_MAX;

/// Where a fragment is, as 58 bits that only `placement` reads. Whether an event is complete or decided does not depend
/// on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceBits(pub(crate) u64);

/// An event's table: its block, and how many of its slots are taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Table {
    pub(crate) block: Block,
    pub(crate) slots: u16,
}

// A count of slots is 16 bits wide.
const _: () = assert!(FRAGMENTS_PER_EVENT_MAX <= u16::MAX as u32);
// Facts and place share a word: each bit says one thing.
const _: () = assert!(Word::FACTS & Word::PLACE == 0 && Word::FACTS.count_ones() == 6);

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
    const PLACE: u64 = (1 << 58) - 1;
    const FACTS: u64 = Self::PENDING | Self::REMOVED | Self::BUSY | Self::LATE | Self::EMPTY | Self::RESULT;
    pub(crate) const REMOVED_KEY: Word = Word(Self::REMOVED);

    pub(crate) fn at(place: PlaceBits) -> Word {
        debug_assert!(place.0 & !Self::PLACE == 0, "a place has 58 bits");
        Word(place.0)
    }

    pub(crate) fn place(self) -> PlaceBits {
        PlaceBits(self.0 & Self::PLACE)
    }

    pub(crate) fn pending(self) -> Word {
        debug_assert!(!self.is_removed(), "a removed key is never put again");
        Word(self.0 | Self::PENDING)
    }

    pub(crate) fn busy(self) -> Word {
        // Two versions in flight would both be numbered after the same one, and the later record would win by chance.
        debug_assert!(!self.is_busy() && !self.is_removed(), "one version in flight at a time");
        Word(self.0 | Self::BUSY)
    }

    /// The same facts about a fragment that is at another place now; nothing is in flight.
    pub(crate) fn moved_to(self, place: PlaceBits) -> Word {
        debug_assert!(!self.is_removed(), "what is removed has no record to move");
        Word(self.0 & (Self::LATE | Self::EMPTY | Self::RESULT) | Word::at(place).0)
    }

    /// The same fragment, with something else noted in its place.
    pub(crate) fn with_place(self, place: PlaceBits) -> Word {
        Word(self.0 & !Self::PLACE | Word::at(place).0)
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

    /// The state of the source of a slot that is not pending.
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
        // Its put is not answered yet: it ends late, and takes its slot out itself.
        debug_assert!(!self.is_pending(), "a fragment in flight cannot be removed");
        // The place goes: nothing may read a record that is being ended.
        Word(self.0 & Self::RESULT | Self::REMOVED)
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

    pub(crate) fn is_pending(self) -> bool {
        self.0 & Self::PENDING != 0
    }

    pub(crate) fn is_busy(self) -> bool {
        self.0 & Self::BUSY != 0
    }

    pub(crate) fn is_removed(self) -> bool {
        self.0 & Self::REMOVED != 0
    }

    /// It has a record that can be read.
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

    /// Bytes of a table with this number of slots.
    pub(crate) fn bytes(self, slots: usize) -> usize {
        self.first() + slots * self.stride()
    }

    pub(crate) fn primary_of(self, tables: &Arena, table: Table) -> &[u8] {
        &tables.bytes(table.block)[..self.primary]
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
        // Without this column the first slot's key begins here.
        debug_assert!(self.attributes, "the keyspace has no event records");
        debug_assert!(word.0 & Word::FACTS == 0, "an event's record has a place and no facts");
        table[self.primary..self.primary + 8].copy_from_slice(&(word.0 + 1).to_le_bytes());
    }

    /// The slot of a sub-key, or the one that it would have.
    #[inline]
    pub(crate) fn find(self, table: &[u8], slots: usize, rest: &[u8]) -> Result<usize, usize> {
        let Some(last) = slots.checked_sub(1) else { return Err(0) };
        // Fragments of an event mostly arrive in the order of their sources.
        match self.rest_of(table, last).cmp(rest) {
            std::cmp::Ordering::Less => return Err(slots),
            std::cmp::Ordering::Equal => return Ok(last),
            std::cmp::Ordering::Greater => {}
        }
        // Below `last`, which is known to be above.
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
    #[inline]
    pub(crate) fn insert(
        self,
        tables: &mut Arena,
        known: &mut Table,
        slot: usize,
        rest: &[u8],
        word: Word,
        expected: usize,
    ) {
        let slots = known.slots as usize;
        let needed = self.bytes(slots + 1);
        {
            // A slot out of order is one that a binary search may miss: its key could be put a second time.
            let table = tables.bytes(known.block);
            debug_assert!(slot <= slots, "slot {slot} of {slots}");
            debug_assert!(slot == 0 || self.rest_of(table, slot - 1) < rest, "slots are sorted");
            debug_assert!(slot >= slots || rest < self.rest_of(table, slot), "slots are sorted");
        }
        if needed > tables.bytes(known.block).len() {
            // Rules by count or list say how large the table gets: exactly that where it is near, so that most tables are
            // allocated once; else a quarter more, because each growth copies the table under the shard's lock.
            let generous = self.bytes((slots + 1) * 5 / 4 + 2).min(BLOCK_BYTES_MAX);
            let exact = self.bytes(expected);
            let bytes = if exact >= needed && exact < generous * 2 { exact } else { generous };
            known.block = tables.grow(known.block, bytes);
        }
        let table = tables.bytes_mut(known.block);
        let (from, stride) = (self.first() + slot * self.stride(), self.stride());
        table.copy_within(from..self.bytes(slots), from + stride);
        table[from..from + self.rest].copy_from_slice(rest);
        known.slots += 1;
        self.set_word(table, slot, word);
    }

    /// Takes a slot out.
    pub(crate) fn remove(self, tables: &mut Arena, known: &mut Table, slot: usize) {
        let slots = known.slots as usize;
        debug_assert!(slot < slots, "slot {slot} of {slots}");
        let table = tables.bytes_mut(known.block);
        let from = self.first() + slot * self.stride();
        table.copy_within(from + self.stride()..self.bytes(slots), from);
        known.slots -= 1;
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
            let mut known = Table { block: tables.allocate(form.bytes(1)), slots: 0 };
            let mut sources: Vec<u32> = (0..200).map(|i| i * 7919 % 211).collect();
            for (at, source) in sources.iter().enumerate() {
                let rest = source.to_be_bytes();
                let slot = form.find(tables.bytes(known.block), known.slots as usize, &rest).unwrap_err();
                let word = Word::at(PlaceBits(5 << 32 | at as u64));
                form.insert(&mut tables, &mut known, slot, &rest, word, 16);
            }
            assert_eq!(form.attribute_word(tables.bytes(known.block)), None);
            if attributes {
                let word = Word::at(PlaceBits(0));
                form.set_attribute_word(tables.bytes_mut(known.block), word);
                assert_eq!(form.attribute_word(tables.bytes(known.block)), Some(word));
            }
            for (at, source) in sources.iter().enumerate() {
                let table = tables.bytes(known.block);
                let slot = form.find(table, 200, &source.to_be_bytes()).unwrap();
                assert_eq!(form.word_of(table, slot).place(), PlaceBits(5 << 32 | at as u64));
            }
            let slot = form.find(tables.bytes(known.block), 200, &sources[17].to_be_bytes()).unwrap();
            form.remove(&mut tables, &mut known, slot);
            sources.remove(17);
            sources.sort_unstable();
            let table = tables.bytes(known.block);
            let there: Vec<&[u8]> = (0..199).map(|slot| form.rest_of(table, slot)).collect();
            assert_eq!(there, sources.iter().map(|s| s.to_be_bytes()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn words_keep_place_and_facts_apart() {
        let place = PlaceBits((1 << 58) - 2);
        let word = Word::at(place).pending().busy();
        assert_eq!(word.place(), place);
        let there = Word::at(place).of_fragment(true, 0).of_result().busy();
        assert_eq!(there.place(), place);
        assert!(there.is_late() && there.is_empty() && there.is_result() && !there.is_pending());
        assert!(word.is_pending() && word.is_busy() && !word.is_removed() && !word.is_present());
        assert!(word.settled().is_present());
        assert!(Word::REMOVED_KEY.is_removed() && !Word::REMOVED_KEY.is_present());
        let moved = there.moved_to(PlaceBits(3));
        assert!(moved.is_late() && moved.is_empty() && moved.is_result() && !moved.is_busy());
    }
}
