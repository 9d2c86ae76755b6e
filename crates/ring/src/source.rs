//! One source: its chunks by arrival, the one that is written, what it knows of ticks, and its account.
//!
//! *Invariants*: only the last chunk is written; a chunk in the list holds one live count of its segment, so that the
//! segment is not freed under it (`hot/segment.rs`); guards are taken under the source's lock.

use super::Refusals;
use super::account::Accounts;
use super::chunk::{Chunk, Item};
use super::coverage::Knowledge;
use super::relation::{Known, Vote};
use forebay_core::{GapCause, RingStamp, SourceId};
use forebay_media::hot::{Hot, Location, Place, WriteCursor};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;

/// `Cell::idle_since_ns` without an open chunk.
pub(super) const NO_OPEN_CHUNK: u64 = u64::MAX;

/// A source behind its lock, and what others read of it without one.
// Lines of their own: 48 links that put side by side would otherwise pass their cache lines around.
#[repr(align(128))]
pub(super) struct Cell {
    pub(super) id: SourceId,
    pub(super) number: u32,
    pub(super) vote: Vote,
    /// When the newest fragment of its open chunk arrived.
    pub(super) idle_since_ns: AtomicU64,
    pub(super) source: Mutex<Source>,
    /// Waits for the head to pass the lowest tick of `Source::waiters`.
    pub(super) arrived: Condvar,
}

/// A reservation that is out.
#[derive(Clone, Copy)]
pub(super) struct Reserved {
    pub(super) timestamp: u64,
    pub(super) end: u64,
}

/// What was refused of a source, in this life of the ring.
#[derive(Default)]
pub(super) struct Refused {
    pub(super) counts: Refusals,
    /// Timestamp and cause of the last one.
    pub(super) last: Option<(u64, GapCause)>,
}

impl Refused {
    pub(super) fn enter(&mut self, timestamp: u64, cause: GapCause) {
        self.last = Some((timestamp, cause));
        match cause {
            GapCause::NoSpace => self.counts.no_space += 1,
            GapCause::Skew => self.counts.skew += 1,
            _ => self.counts.too_late += 1,
        }
    }
}

/// Readers that wait for a source.
#[derive(Default)]
pub(super) struct Waiters {
    count: u32,
    /// The lowest tick that one of them waits for.
    lowest: u64,
}

impl Waiters {
    pub(super) fn enter(&mut self, tick: u64) {
        // The lowest of all: a put wakes them once it is reached, not at every fragment.
        self.lowest = if self.count == 0 { tick } else { self.lowest.min(tick) };
        self.count += 1;
    }

    pub(super) fn leave(&mut self) {
        debug_assert!(self.count > 0, "a reader ends a wait that it did not begin");
        self.count -= 1;
    }

    pub(super) fn any(&self) -> bool {
        self.count > 0
    }
}

/// State behind the lock.
#[derive(Default)]
pub(super) struct Source {
    pub(super) chunks: VecDeque<Chunk>,
    /// Where the open chunk is written.
    pub(super) cursor: Option<WriteCursor>,
    pub(super) known: Knowledge,
    /// Highest timestamp of all chunks: what comes after it cannot be a repeat.
    pub(super) newest: Option<u64>,
    /// Raised where the source's clock started again.
    pub(super) era: u32,
    pub(super) relation: Known,
    pub(super) reserved: Vec<Reserved>,
    /// Counted since the last round of maintenance.
    pub(super) accounts: Accounts,
    pub(super) refused: Refused,
    pub(super) last_put_ns: Option<u64>,
    pub(super) last_run: u32,
    pub(super) waiters: Waiters,
    /// The ring closes: nothing is put any more, nobody waits any more.
    pub(super) closed: bool,
    /// It is closed: no guard is taken any more.
    pub(super) shut: bool,
    /// Fragments of the last chunk that was full: room for as many is made at once.
    fragments_expected: usize,
}

/// Where a fragment is stored.
#[derive(Clone, Copy)]
pub(super) struct Standing {
    pub(super) location: Location,
    pub(super) item: Item,
}

impl Cell {
    pub(super) fn new(id: SourceId, number: u32) -> Cell {
        Cell {
            id,
            number,
            vote: Vote::default(),
            idle_since_ns: AtomicU64::new(NO_OPEN_CHUNK),
            source: Mutex::new(Source::default()),
            arrived: Condvar::new(),
        }
    }
}

impl Source {
    /// A place in the open chunk; `None` without an open chunk or without room in it.
    #[inline]
    pub(super) fn place(&mut self, hot: &Hot, run: u32, length: u32) -> Option<Place> {
        let cursor = self.cursor.as_mut()?;
        let open = self.chunks.back();
        debug_assert!(open.is_some_and(|chunk| chunk.segment == cursor.segment()), "written is the last chunk only");
        // A chunk keeps a tally for each of its runs, because an eviction books what it takes by run.
        let runs = open.map_or(&[][..], |chunk| &chunk.runs);
        if runs.len() >= super::limits::CHUNK_RUNS_MAX && !runs.iter().any(|known| known.run == run) {
            return None;
        }
        cursor.place(hot, length)
    }

    /// Begins a chunk on a segment that was just taken.
    pub(super) fn open(&mut self, hot: &Hot, segment: u32) {
        debug_assert!(self.cursor.is_none(), "two chunks of a source are written at once");
        // One live count for the whole chunk, where events count each record: its fragments leave together.
        hot.segment(segment).adopt();
        let cursor = WriteCursor::new(hot, segment);
        self.add(Chunk::new(segment, cursor.generation(), self.era, self.fragments_expected));
        self.cursor = Some(cursor);
    }

    /// Takes a chunk into the list, as the newest.
    pub(super) fn add(&mut self, mut chunk: Chunk) {
        // Never falls from one chunk to the next, so that a window finds its first chunk by halving.
        chunk.end_before = self.chunks.back().map_or(0, |last| last.end_before.max(last.end));
        self.chunks.push_back(chunk);
    }

    /// Chunks that may overlap what begins at `begin`, in their order.
    #[inline]
    pub(super) fn chunks_from(&self, begin: u64) -> impl DoubleEndedIterator<Item = &Chunk> {
        debug_assert!(self.chunks.iter().is_sorted_by_key(|chunk| chunk.end_before), "the search by halving is void");
        let after = self.chunks.partition_point(|chunk| chunk.end_before <= begin);
        self.chunks.range(after.saturating_sub(1)..)
    }

    /// Ends the open chunk; its segment and number of entries.
    pub(super) fn close(&mut self, hot: &Hot) -> Option<u32> {
        let cursor = self.cursor.take()?;
        if let Some(chunk) = self.chunks.back_mut() {
            // Links send frames of one size: the next chunk will hold about as many, and grows in one step.
            self.fragments_expected = chunk.items.len();
            chunk.shrink();
        }
        let segment = cursor.segment();
        cursor.close(hot);
        Some(segment)
    }

    /// Whether its open chunk is on this segment.
    pub(super) fn writes(&self, segment: u32) -> bool {
        self.cursor.as_ref().is_some_and(|cursor| cursor.segment() == segment)
    }

    /// The chunk on this segment.
    pub(super) fn chunk_on(&mut self, segment: u32) -> Option<&mut Chunk> {
        self.chunks.iter_mut().rev().find(|chunk| chunk.segment == segment)
    }

    /// A fragment is whole: it shows from now on.
    #[inline]
    pub(super) fn show(&mut self, stamp: &RingStamp, location: Location, length: u32) {
        let end = stamp.timestamp + u64::from(stamp.span);
        // Nearly always the open chunk. A reservation may be committed when its chunk is long full.
        let era = match self.chunks.back_mut() {
            Some(last) if last.segment == location.segment => {
                last.insert(stamp, location.entry, length);
                last.era
            }
            _ => self.show_late(stamp, location, length),
        };
        self.newest = Some(self.newest.map_or(stamp.timestamp, |newest| newest.max(stamp.timestamp)));
        // A reservation may be older than the source's clock: it says nothing of the ticks of this one.
        if era == self.era {
            self.known.arrived(stamp.timestamp, end);
        }
    }

    /// A reservation is committed after its chunk was full; the chunk's era.
    #[cold]
    fn show_late(&mut self, stamp: &RingStamp, location: Location, length: u32) -> u32 {
        // The chunk may have grown past its neighbours: every bound behind it is computed again.
        let (mut end_before, mut era) = (0, self.era);
        for chunk in &mut self.chunks {
            chunk.end_before = chunk.end_before.max(end_before);
            if chunk.segment == location.segment {
                chunk.insert(stamp, location.entry, length);
                era = chunk.era;
            }
            end_before = chunk.end_before.max(chunk.end);
        }
        era
    }

    /// The fragment with this very timestamp.
    #[inline]
    pub(super) fn find(&self, timestamp: u64) -> Option<Standing> {
        // In order, so nearly every put ends here without a look at any chunk.
        if self.newest.is_none_or(|newest| timestamp > newest) {
            return None;
        }
        let holding = |chunk: &&Chunk| chunk.overlaps(timestamp, timestamp.saturating_add(1));
        self.chunks_from(timestamp)
            .filter(holding)
            .filter_map(|chunk| Some((chunk.segment, *chunk.find(timestamp)?)))
            .next()
            .map(|(segment, item)| Standing { location: Location { segment, entry: item.entry }, item })
    }

    /// Takes a chunk out: its data is over. The caller ends the segment's live count.
    pub(super) fn evict(&mut self, segment: u32) -> Option<Chunk> {
        debug_assert!(!self.writes(segment), "evicted while written");
        let at = self.chunks.iter().position(|chunk| chunk.segment == segment)?;
        let chunk = self.chunks.remove(at)?;
        // A chunk of an earlier era tells nothing of the ticks of this one: the clock may pass them a second time.
        if chunk.era == self.era && !chunk.items.is_empty() {
            let kept = self.chunks.iter().filter(|kept| kept.era == self.era && !kept.items.is_empty());
            self.known.evicted(chunk.covered(), kept.map(|kept| kept.begin).min());
        }
        self.newest = self.chunks.iter().filter_map(|chunk| chunk.items.last()).map(|item| item.timestamp).max();
        Some(chunk)
    }

    /// The source's clock started again: what it has stays, what it knows of ticks does not.
    pub(super) fn restart(&mut self) {
        // Fragments of the era before stay readable under their ticks; what they cover says nothing of the new clock.
        self.era = self.era.wrapping_add(1);
        self.known.restart();
    }

    /// Whether someone waits for what has just arrived.
    #[inline]
    pub(super) fn wakes(&self) -> bool {
        self.waiters.any() && self.known.head.is_some_and(|head| head >= self.waiters.lowest)
    }

    /// Whether `[.., end)` has nothing that may still arrive in order.
    pub(super) fn has_reached(&self, begin: u64, end: u64) -> bool {
        self.known.head.is_some_and(|head| head >= end)
            && !self.reserved.iter().any(|one| one.timestamp < end && one.end > begin)
    }

    /// Memory of the index and of the books.
    pub(super) fn heap_bytes(&self) -> (usize, usize) {
        let chunks = self.chunks.iter().map(Chunk::heap_bytes).sum::<usize>();
        let books =
            self.known.heap_bytes() + self.accounts.heap_bytes() + self.reserved.capacity() * size_of::<Reserved>();
        (chunks + self.chunks.capacity() * size_of::<Chunk>(), books)
    }
}
