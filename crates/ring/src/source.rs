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
use forebay_media::bytes::RecordSeed;
use forebay_media::hot::{Hot, Location, Place};
use forebay_media::limits::{PAYLOAD_ALIGN, SEGMENT_HEADER_BYTES};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;

/// `Cell::idle_since_ns` without an open chunk.
pub(super) const NO_OPEN_CHUNK: u64 = u64::MAX;

/// A source behind its lock, and what others read of it without one.
#[repr(align(128))]
pub(super) struct Cell {
    pub(super) id: SourceId,
    pub(super) number: u32,
    pub(super) vote: Vote,
    /// When the newest fragment of its open chunk arrived.
    pub(super) idle_since_ns: AtomicU64,
    pub(super) source: Mutex<Source>,
    /// Waits for the head to pass `Source::wanted`.
    pub(super) arrived: Condvar,
}

/// Where the open chunk is written.
pub(super) struct Head {
    pub(super) segment: u32,
    pub(super) entries: u32,
    pub(super) payload_end: u64,
    pub(super) seed: RecordSeed,
}

/// A reservation that is out.
#[derive(Clone, Copy)]
pub(super) struct Reserved {
    pub(super) timestamp: u64,
    pub(super) end: u64,
}

/// What the lock protects.
#[derive(Default)]
pub(super) struct Source {
    pub(super) chunks: VecDeque<Chunk>,
    pub(super) head: Option<Head>,
    pub(super) known: Knowledge,
    /// Highest timestamp of all chunks: what comes after it cannot be a repeat.
    pub(super) newest: Option<u64>,
    /// Raised where the source's clock began anew.
    pub(super) era: u32,
    pub(super) relation: Known,
    pub(super) reserved: Vec<Reserved>,
    /// Counted since the last round of maintenance.
    pub(super) accounts: Accounts,
    pub(super) refused: Refusals,
    pub(super) last_refused: Option<(u64, GapCause)>,
    pub(super) last_put_ns: Option<u64>,
    pub(super) last_run: u32,
    /// Readers that wait, and the lowest tick that one of them waits for.
    pub(super) waiting: u32,
    pub(super) wanted: u64,
    /// The ring closes: nothing is put any more, nobody waits any more.
    pub(super) closed: bool,
    /// It is closed: no guard is taken any more.
    pub(super) shut: bool,
    /// Fragments of the last chunk that was full: room for as many is made at once.
    fragments_expected: usize,
}

/// Where a fragment stands.
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
    /// A place in the open chunk; `None` where there is none, or no room in it.
    #[inline]
    pub(super) fn place(&mut self, hot: &Hot, run: u32, length: u32) -> Option<Place> {
        let head = self.head.as_mut()?;
        let entry_bytes = hot.layout.entry_bytes() as u64;
        let end = head.payload_end + u64::from(length).next_multiple_of(PAYLOAD_ALIGN as u64);
        let full = end + (u64::from(head.entries) + 1) * entry_bytes > hot.geometry.segment_bytes;
        if full || head.entries == forebay_media::hot::ENTRIES_MAX {
            return None;
        }
        let runs = self.chunks.back().map_or(&[][..], |chunk| &chunk.runs);
        if runs.len() >= super::limits::CHUNK_RUNS_MAX && !runs.iter().any(|known| known.run == run) {
            return None;
        }
        let location = Location { segment: head.segment, entry: head.entries };
        let place = Place { location, offset: head.payload_end, seed: head.seed };
        head.entries += 1;
        head.payload_end = end;
        Some(place)
    }

    /// Begins a chunk on a segment that was just taken.
    pub(super) fn open(&mut self, hot: &Hot, segment: u32) {
        let seed = hot.seed(segment);
        hot.segment(segment).adopt();
        self.head = Some(Head { segment, entries: 0, payload_end: SEGMENT_HEADER_BYTES as u64, seed });
        self.add(Chunk::new(segment, seed.generation(), self.era, self.fragments_expected));
    }

    /// Takes a chunk into the list, as the newest.
    pub(super) fn add(&mut self, mut chunk: Chunk) {
        chunk.end_before = self.chunks.back().map_or(0, |last| last.end_before.max(last.end));
        self.chunks.push_back(chunk);
    }

    /// Chunks that may overlap what begins at `begin`, in their order.
    #[inline]
    pub(super) fn chunks_from(&self, begin: u64) -> impl DoubleEndedIterator<Item = &Chunk> {
        let after = self.chunks.partition_point(|chunk| chunk.end_before <= begin);
        self.chunks.range(after.saturating_sub(1)..)
    }

    /// Ends the open chunk; its segment and number of entries.
    pub(super) fn close(&mut self, hot: &Hot) -> Option<u32> {
        let head = self.head.take()?;
        if let Some(chunk) = self.chunks.back_mut() {
            self.fragments_expected = chunk.items.len();
            chunk.shrink();
        }
        hot.close(head.segment, head.entries, head.payload_end);
        Some(head.segment)
    }

    /// The chunk on this segment.
    pub(super) fn chunk_on(&mut self, segment: u32) -> Option<&mut Chunk> {
        self.chunks.iter_mut().rev().find(|chunk| chunk.segment == segment)
    }

    /// A fragment is whole: it shows from now on.
    #[inline]
    pub(super) fn show(&mut self, stamp: &RingStamp, location: Location, length: u32) {
        let end = stamp.timestamp + u64::from(stamp.span);
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
        let at = self.chunks.iter().position(|chunk| chunk.segment == segment)?;
        let chunk = self.chunks.remove(at)?;
        if chunk.era == self.era && !chunk.items.is_empty() {
            let kept = self.chunks.iter().filter(|kept| kept.era == self.era && !kept.items.is_empty());
            self.known.evicted(chunk.covered(), kept.map(|kept| kept.begin).min());
        }
        self.newest = self.chunks.iter().filter_map(|chunk| chunk.items.last()).map(|item| item.timestamp).max();
        Some(chunk)
    }

    /// The source's clock began anew: what it has stays, what it knows of ticks does not.
    pub(super) fn restart(&mut self) {
        self.era = self.era.wrapping_add(1);
        self.known.restart();
    }

    pub(super) fn refuse(&mut self, timestamp: u64, cause: GapCause) {
        self.last_refused = Some((timestamp, cause));
        match cause {
            GapCause::NoSpace => self.refused.no_space += 1,
            GapCause::Skew => self.refused.skew += 1,
            _ => self.refused.too_late += 1,
        }
    }

    /// Whether someone waits for what has just arrived.
    #[inline]
    pub(super) fn wakes(&self) -> bool {
        self.waiting > 0 && self.known.head.is_some_and(|head| head >= self.wanted)
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
