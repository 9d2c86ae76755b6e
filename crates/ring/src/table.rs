//! All sources of a ring, found without a lock; a source that was seen stays.

use super::source::Cell;
use forebay_core::{Error, Result, SourceId};
use parking_lot::{Condvar, Mutex};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// The table: cells by number, and a hash table with linear probing from names to numbers.
pub(super) struct Table {
    cells: Box<[OnceLock<Box<Cell>>]>,
    /// Number + 1 of a cell; 0 is free.
    slots: Box<[AtomicU32]>,
    count: AtomicU32,
    adding: Mutex<()>,
    added: Condvar,
}

impl Table {
    pub(super) fn new(sources_max: u32) -> Table {
        // At most half full, a power of two: probes stay short, and one always ends at a free slot.
        let slots = (sources_max as usize * 2).next_power_of_two();
        Table {
            cells: (0..sources_max).map(|_| OnceLock::new()).collect(),
            slots: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            count: AtomicU32::new(0),
            adding: Mutex::new(()),
            added: Condvar::new(),
        }
    }

    /// The slot of a source: the cell that is there, or where it would be.
    #[inline]
    fn probe(&self, id: &SourceId) -> (usize, Option<&Cell>) {
        let number = id.number();
        // Fibonacci hashing of both halves.
        // Numbers of links follow each other; without mixing they would fill neighbouring slots and make probes long.
        let mixed = (number as u64 ^ (number >> 64) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mask = self.slots.len() - 1;
        let mut at = (mixed >> 32) as usize & mask;
        loop {
            match self.slots[at].load(Ordering::Acquire) {
                0 => return (at, None),
                number => {
                    let cell = self.cells[number as usize - 1].get();
                    if let Some(cell) = cell.filter(|cell| cell.id == *id) {
                        return (at, Some(cell));
                    }
                }
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    pub(super) fn find(&self, id: &SourceId) -> Option<&Cell> {
        self.probe(id).1
    }

    /// The cell of a source, made where it is new.
    #[inline]
    pub(super) fn find_or_add(&self, id: &SourceId) -> Result<&Cell> {
        match self.find(id) {
            Some(cell) => Ok(cell),
            None => self.add(id),
        }
    }

    #[cold]
    fn add(&self, id: &SourceId) -> Result<&Cell> {
        // Adding is rare and alone; looking never takes the lock. Looked again under it, as two threads may bring one source.
        let _adding = self.adding.lock();
        let (slot, found) = self.probe(id);
        if let Some(cell) = found {
            return Ok(cell);
        }
        debug_assert!(self.slots[slot].load(Ordering::Relaxed) == 0, "a slot has two sources");
        let number = self.count.load(Ordering::Relaxed);
        let Some(place) = self.cells.get(number as usize) else {
            return Err(Error::invalid(format!("source {id}: the ring has its sources_max of {number} already")));
        };
        let cell = place.get_or_init(|| Box::new(Cell::new(*id, number)));
        // The cell first: a reader that finds the number without the lock finds the cell behind it.
        self.slots[slot].store(number + 1, Ordering::Release);
        self.count.store(number + 1, Ordering::Release);
        self.added.notify_all();
        Ok(cell)
    }

    /// Waits until a source is seen, to the deadline.
    pub(super) fn wait_for(&self, id: &SourceId, deadline: Instant, give_up: impl Fn() -> bool) -> Option<&Cell> {
        let mut adding = self.adding.lock();
        loop {
            if let Some(cell) = self.find(id) {
                return Some(cell);
            }
            if give_up() || self.added.wait_until(&mut adding, deadline).timed_out() {
                return self.find(id);
            }
        }
    }

    /// Wakes threads that wait for a source: the ring closes.
    pub(super) fn wake(&self) {
        // Taken and let go: a waiter that has looked and not yet slept would miss the wake-up otherwise.
        drop(self.adding.lock());
        self.added.notify_all();
    }

    pub(super) fn len(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    pub(super) fn by_number(&self, number: u32) -> Option<&Cell> {
        self.cells.get(number as usize)?.get().map(|cell| &**cell)
    }

    /// All cells in the order in which they were seen.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Cell> + Clone {
        self.cells[..self.len() as usize].iter().filter_map(|cell| cell.get().map(|cell| &**cell))
    }

    pub(super) fn bytes(&self) -> usize {
        self.cells.len() * size_of::<OnceLock<Box<Cell>>>()
            + self.slots.len() * 4
            + self.len() as usize * size_of::<Cell>()
    }
}
