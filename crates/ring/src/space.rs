//! Which chunk goes next: closed chunks by arrival, and the pins that keep some of them.
//!
//! *Invariants*: a pin keeps at most as many chunks as it was granted, the oldest ones; the grants of all pins stay
//! within the quota (tests/ring/pins.rs).

use super::RingPinStatus;
use super::account::Books;
use super::limits::PINS_MAX;
use forebay_core::{Error, Result, SourceId};
use std::collections::VecDeque;
use std::sync::Arc;

/// A chunk that is written no more. Its ticks only grow where a reservation in it is committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    pub(super) segment: u32,
    pub(super) cell: u32,
    pub(super) source: SourceId,
    pub(super) begin: u64,
    pub(super) end: u64,
    /// When its newest fragment arrived.
    pub(super) at_ns: u64,
}

/// A pin: a rule, not a list. What it names is kept, also what comes.
#[derive(Clone, Debug)]
pub(super) struct Pin {
    pub(super) id: u64,
    pub(super) holder: Arc<str>,
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Sorted; `None` is every source.
    pub(super) sources: Option<Vec<SourceId>>,
    pub(super) deadline_ns: u64,
    /// Chunks that it may keep.
    pub(super) granted: u32,
    /// Nobody holds it.
    pub(super) kept: bool,
}

impl Pin {
    fn names(&self, source: &SourceId, begin: u64, end: u64) -> bool {
        begin < self.end
            && end > self.begin
            && self.sources.as_ref().is_none_or(|sources| sources.binary_search(source).is_ok())
    }
}

/// State behind the space lock.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// By arrival, oldest first.
    pub(super) closed: VecDeque<Closed>,
    pub(super) pins: Vec<Pin>,
    next_pin: u64,
    /// Segment and generation of the chunk that was evicted last.
    pub(super) leaving: Option<(u32, u32)>,
    pub(super) books: Books,
    pub(super) evicted: u64,
}

impl Space {
    /// Forgets pins that are over.
    pub(super) fn expire(&mut self, now_ns: u64) {
        self.pins.retain(|pin| pin.deadline_ns > now_ns);
    }

    /// Positions of closed chunks that no pin keeps, oldest first.
    pub(super) fn free_to_go(&self) -> impl Iterator<Item = usize> {
        // Counted while the chunks pass by, oldest first: what a pin keeps beyond its grant is free to go, newest first, so that
        // a source faster than declared loses what came last and not what the pin was made for.
        let mut kept = vec![0_u32; self.pins.len()];
        self.closed.iter().enumerate().filter_map(move |(at, chunk)| {
            let mut pinned = false;
            for (pin, kept) in self.pins.iter().zip(&mut kept) {
                if pin.names(&chunk.source, chunk.begin, chunk.end) && *kept < pin.granted {
                    *kept += 1;
                    pinned = true;
                }
            }
            (!pinned).then_some(at)
        })
    }

    /// Whether a pin names an open chunk with these ticks.
    pub(super) fn is_pinned(&self, source: &SourceId, begin: u64, end: u64) -> bool {
        self.pins.iter().any(|pin| pin.names(source, begin, end))
    }

    pub(super) fn granted(&self) -> u32 {
        self.pins.iter().map(|pin| pin.granted).sum()
    }

    /// Enters a pin.
    pub(super) fn pin(&mut self, mut pin: Pin, quota: u32, segment_bytes: u64) -> Result<u64> {
        let granted = self.granted();
        if pin.granted > quota.saturating_sub(granted) || self.pins.len() == PINS_MAX {
            let mut holders: Vec<String> = Vec::new();
            for other in self.pins.iter().take(8) {
                let bytes = u64::from(other.granted) * segment_bytes;
                holders
                    .push(format!("{} (pin {}) {bytes} of [{}, {})", other.holder, other.id, other.begin, other.end));
            }
            let held = if holders.is_empty() { "nobody".to_owned() } else { holders.join(", ") };
            let cause = format!(
                "a pin of {} bytes: the quota is {} bytes in at most {PINS_MAX} pins, {} are held: {held}",
                u64::from(pin.granted) * segment_bytes,
                u64::from(quota) * segment_bytes,
                u64::from(granted) * segment_bytes,
            );
            // The first one in the list: without any it is the quota alone, which the ring's owner has set.
            let owner = self.pins.first().map_or("operator".to_owned(), |other| other.holder.to_string());
            return Err(Error::full_of("pins", owner, cause));
        }
        // Ids are not used again: a handle whose pin has expired must not move another one's.
        self.next_pin += 1;
        pin.id = self.next_pin;
        self.pins.push(pin);
        debug_assert!(self.granted() <= quota, "the grants pass the quota");
        Ok(self.next_pin)
    }

    /// Moves a pin; one that would pass the quota stays as it is.
    pub(super) fn move_pin(
        &mut self,
        id: u64,
        (begin, end): (u64, u64),
        deadline_ns: u64,
        granted: u32,
        quota: u32,
    ) -> Result<()> {
        // Its own grant is given up and granted again in one step: a pin may move within a quota that is full.
        let held: u32 = self.pins.iter().filter(|pin| pin.id != id).map(|pin| pin.granted).sum();
        let pin = self.pins.iter_mut().find(|pin| pin.id == id);
        let pin = pin.ok_or_else(|| Error::fenced(format!("pin {id}: its deadline has passed")))?;
        if granted > quota.saturating_sub(held) {
            let cause = format!(
                "pin {id} on [{begin}, {end}) needs {granted} chunks: the quota is {quota}, other pins have {held}"
            );
            let owner =
                self.pins.iter().find(|pin| pin.id != id).map_or("operator".to_owned(), |pin| pin.holder.to_string());
            return Err(Error::full_of("pins", owner, cause));
        }
        (pin.begin, pin.end, pin.deadline_ns, pin.granted) = (begin, end, deadline_ns, granted);
        debug_assert!(held + granted <= quota, "the grants pass the quota");
        Ok(())
    }

    pub(super) fn pin_statuses(&self, now_ns: u64, segment_bytes: u64) -> Vec<RingPinStatus> {
        let one = |pin: &Pin| RingPinStatus {
            id: pin.id,
            holder: pin.holder.to_string(),
            kept: pin.kept,
            begin: pin.begin,
            end: pin.end,
            bytes: u64::from(pin.granted) * segment_bytes,
            remaining_ns: pin.deadline_ns.saturating_sub(now_ns),
        };
        self.pins.iter().filter(|pin| pin.deadline_ns > now_ns).map(one).collect()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let sources = |pin: &Pin| pin.sources.as_ref().map_or(0, Vec::capacity) * size_of::<SourceId>();
        self.closed.capacity() * size_of::<Closed>()
            + self.pins.capacity() * size_of::<Pin>()
            + self.pins.iter().map(sources).sum::<usize>()
            + self.books.accounts.heap_bytes()
    }
}
