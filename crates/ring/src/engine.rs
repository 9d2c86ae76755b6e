//! The parts of one ring, and how a source gets a chunk.
//!
//! ```text
//! free segment ──────────────────────────────▶ new generation (durable) ─▶ open chunk of one source
//! oldest chunk that nobody keeps ─▶ note: its fragments are expired (durable) ─▶ ┘
//! ```
//!
//! *Invariants*: one thread at a time takes (`taking`), so that a note names the one chunk that is evicted and whose segment
//! has no new generation yet; a chunk under a guard, a reservation or a pin is not evicted (asserted in `evict`).

use super::config::RingConfig;
use super::limits::CANDIDATES;
use super::relation::Relations;
use super::source::{Cell, NO_OPEN_CHUNK, Source};
use super::space::{Closed, Space};
use super::table::Table;
use crate::limits::{RING_NOTE_BYTES_MAX, RING_NOTE_OFFSET};
use forebay_core::{Error, Result, RingKeyspace, SourceId};
use forebay_media::bytes::{SegmentKind, Superblock};
use forebay_media::hot::{Class, Hot, Kept, KeptBy};
use forebay_media::limits::SUPERBLOCK_AREA_BYTES;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Somebody who holds windows, by name.
pub(super) struct Holder {
    pub(super) engine: Arc<RingEngine>,
    pub(super) name: Arc<str>,
    pub(super) guards: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Reservations out.
    pub(super) reservations: AtomicU64,
    /// Windows that wait, or read after they have waited.
    pub(super) waiting: AtomicU64,
}

/// Whether this node takes what a source puts in a run: the error says which one does.
pub type Placement = Arc<dyn Fn(&SourceId, u32) -> Result<()> + Send + Sync>;

/// One ring.
pub(super) struct RingEngine {
    pub(super) hot: Hot,
    pub(super) keyspace: RingKeyspace,
    pub(super) config: RingConfig,
    pub(super) table: Table,
    pub(super) relations: Relations,
    /// Held by a thread that takes a segment, evicts, seals, pins, or reads the whole account.
    pub(super) taking: Mutex<()>,
    pub(super) space: Mutex<Space>,
    pub(super) superblock: Mutex<Superblock>,
    pub(super) boot: u32,
    pub(super) losses: Mutex<Vec<String>>,
    pub(super) holders: Mutex<Vec<Weak<Holder>>>,
    pub(super) handles: AtomicU64,
    pub(super) closed: AtomicBool,
    pub(super) rounds: AtomicU64,
    /// Who knows which sources are this node's.
    pub(super) placement: OnceLock<Placement>,
    /// Longest payload that a fragment can have.
    pub(super) length_max: usize,
}

impl RingEngine {
    pub(super) fn new(hot: Hot, keyspace: RingKeyspace, config: RingConfig, superblock: Superblock) -> RingEngine {
        let skew_max = keyspace.ticks(keyspace.max_skew);
        RingEngine {
            length_max: keyspace.fragment_bytes_max.min(hot.payload_bytes_max() as usize),
            table: Table::new(keyspace.sources_max),
            relations: Relations::new(keyspace.ticks_per_second, skew_max),
            taking: Mutex::new(()),
            space: Mutex::new(Space::default()),
            boot: superblock.boot,
            superblock: Mutex::new(superblock),
            losses: Mutex::new(Vec::new()),
            holders: Mutex::new(Vec::new()),
            handles: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            placement: OnceLock::new(),
            hot,
            keyspace,
            config,
        }
    }

    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.config.clock.now_ns()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// What still uses the region: calls in flight, and what holders have of it. Users first: a user who lets go in between
    /// counts as a call, never as nobody.
    pub(super) fn kept(&self) -> Kept {
        // In this order, see above: the other way round a guard that is dropped in between would be in neither count.
        let users = self.hot.users();
        let holders = self.holders.lock();
        let of = |holder: Arc<Holder>| KeptBy {
            holder: holder.name.to_string(),
            guards: holder.guards.load(Ordering::Acquire),
            reservations: holder.reservations.load(Ordering::Acquire),
        };
        let all = holders.iter().filter_map(Weak::upgrade).map(of);
        Kept::new(users, all.filter(|holder| holder.guards + holder.reservations > 0).collect())
    }

    pub(super) fn windows_waiting(&self) -> u64 {
        let holders = self.holders.lock();
        holders.iter().filter_map(Weak::upgrade).map(|holder| holder.waiting.load(Ordering::SeqCst)).sum()
    }

    /// Chunks that pins may keep.
    pub(super) fn pin_quota(&self) -> u32 {
        (u64::from(self.hot.geometry.segments) * u64::from(self.keyspace.pin_percent) / 100) as u32
    }

    /// Ends a source's open chunk: from now on it can be evicted.
    pub(super) fn close_chunk(&self, cell: &Cell, source: &mut Source) {
        let Some(segment) = source.close(&self.hot) else { return };
        // Relaxed: read without the source's lock only to choose a candidate, which is looked at again under it.
        let at_ns = cell.idle_since_ns.swap(NO_OPEN_CHUNK, Ordering::Relaxed);
        let Some(chunk) = source.chunk_on(segment) else { return };
        // A reservation in it may still be committed: `stretch_closed` then moves these ticks.
        let closed = Closed { segment, cell: cell.number, source: cell.id, begin: chunk.begin, end: chunk.end, at_ns };
        self.space.lock().closed.push_back(closed);
    }

    /// Begins a chunk for a source.
    pub(super) fn open_chunk(&self, cell: &Cell, source: &mut Source, segment: u32, now_ns: u64) {
        source.open(&self.hot, segment);
        cell.idle_since_ns.store(now_ns, Ordering::Relaxed);
    }

    /// A segment for a new chunk, its generation durable; `None` where nothing is free and nothing may be evicted, or
    /// the ring is closed. Without any source's lock.
    pub(super) fn take_segment(&self) -> Option<u32> {
        // The first lock of the order: no source's lock is held here, and eviction takes those of others.
        let taking = self.taking.lock();
        // The close may have come first: then the account is final, and another process may have the region.
        if self.is_closed() {
            return None;
        }
        loop {
            if let Some(segment) = self.hot.take(Class::Chunk, SegmentKind::Data) {
                return Some(segment);
            }
            if !self.evict_oldest(&taking) {
                return None;
            }
        }
    }

    /// Gives back a segment that was taken and is not needed.
    pub(super) fn give_back(&self, segment: u32) {
        // Closed without an entry: nobody needs it, so it is free at once, one generation older.
        self.hot.close(segment, 0, 0);
    }

    /// Evicts one chunk; `false` where none may go. Pins are made under `taking`: none comes meanwhile.
    fn evict_oldest(&self, taking: &MutexGuard<'_, ()>) -> bool {
        let now_ns = self.now_ns();
        // Chosen under the lock of the space, evicted without it: a source's lock comes before it in the order. What has come
        // into use meanwhile is passed over, so there are several candidates.
        let candidates = {
            let mut space = self.space.lock();
            space.expire(now_ns);
            let mut idle = self.idle_chunk(&space, now_ns);
            let (mut candidates, in_line) = (Vec::new(), space.free_to_go().map(|at| space.closed[at]));
            for chunk in in_line.filter(|chunk| self.is_unused(chunk.segment)) {
                // A silent source's chunk is in the order of eviction as if it had been closed when its last fragment came.
                candidates.extend(idle.take_if(|silent| silent.at_ns < chunk.at_ns));
                candidates.push(chunk);
                // The first one goes, unless a guard comes at this very moment.
                if candidates.len() >= CANDIDATES {
                    break;
                }
            }
            candidates.extend(idle);
            candidates
        };
        candidates.iter().any(|candidate| self.evict(taking, candidate))
    }

    /// The open chunk of the source that has been silent for longest, and for longer than the history.
    fn idle_chunk(&self, space: &Space, now_ns: u64) -> Option<Closed> {
        let since = |cell: &&Cell| cell.idle_since_ns.load(Ordering::Relaxed);
        let cell = self.table.iter().min_by_key(since)?;
        let at_ns = since(&cell);
        let history_ns = u64::try_from(self.keyspace.history.as_nanos()).unwrap_or(u64::MAX);
        if at_ns == NO_OPEN_CHUNK || now_ns.saturating_sub(at_ns) <= history_ns {
            return None;
        }
        // Its owner may be at work at this moment: then it is not silent.
        let source = cell.source.try_lock()?;
        let chunk = source.cursor.as_ref().and(source.chunks.back())?;
        let (segment, begin, end) = (chunk.segment, chunk.begin, chunk.end);
        drop(source);
        let silent = Closed { segment, cell: cell.number, source: cell.id, begin, end, at_ns };
        // Whole pins, not grants: an open chunk is not in the line in which grants are counted.
        (!space.is_pinned(&cell.id, begin, end) && self.is_unused(segment)).then_some(silent)
    }

    fn is_unused(&self, segment: u32) -> bool {
        !self.hot.segment(segment).is_used()
    }

    /// Evicts this chunk; `false` where it came into use.
    fn evict(&self, _taking: &MutexGuard<'_, ()>, candidate: &Closed) -> bool {
        let Some(cell) = self.table.by_number(candidate.cell) else { return false };
        let mut source = cell.source.lock();
        // Guards and reservations are made under this lock: none can come any more.
        if !self.is_unused(candidate.segment) {
            return false;
        }
        if source.writes(candidate.segment) {
            // It has put since it was chosen: it is not silent, and its chunk is not the oldest.
            if cell.idle_since_ns.load(Ordering::Relaxed) != candidate.at_ns {
                return false;
            }
            self.close_chunk(cell, &mut source);
        }
        let mut space = self.space.lock();
        let Some(at) = space.closed.iter().position(|closed| closed.segment == candidate.segment) else { return false };
        let Some(chunk) = source.evict(candidate.segment) else { return false };
        space.closed.remove(at);
        space.evicted += 1;
        // From live to expired in one hold of both locks: no reader of the account finds a fragment in both terms or in none.
        for of_run in &chunk.runs {
            space.books.accounts.of(of_run.run).expired += of_run.tally;
        }
        space.leaving = Some((chunk.segment, chunk.generation));
        debug_assert_eq!(self.hot.segment(chunk.segment).generation.load(Ordering::Relaxed), chunk.generation);
        debug_assert!(self.is_unused(chunk.segment), "a chunk in use is evicted");
        // Durable before the segment is free: whichever of note and next generation a crash leaves, each fragment is either
        // there or counted as expired. Under both locks, so that no reader finds it in neither or in both.
        self.write_note(&mut space, false);
        drop(space);
        drop(source);
        if self.hot.segment(chunk.segment).ended(0).nobody() {
            self.hot.free_if_idle(chunk.segment);
        }
        true
    }

    /// Makes the account durable. It names the chunk that was evicted last until its segment has its next generation, which
    /// is durable then: the next eviction comes only when nothing is free.
    pub(super) fn write_note(&self, space: &mut Space, clean: bool) {
        let generation = |segment| self.hot.segment(segment).generation.load(Ordering::Relaxed);
        space.leaving = space.leaving.filter(|leaving| generation(leaving.0) == leaving.1);
        let note = space.books.note(space.leaving, clean);
        // Copies alternate: a note that is cut off leaves the one before.
        let copy = note.sequence % 2 * (SUPERBLOCK_AREA_BYTES as u64 / 2);
        let bytes = note.encode(&self.hot.store);
        debug_assert!(bytes.len() <= RING_NOTE_BYTES_MAX, "the note reaches into the next page");
        let offset = copy + RING_NOTE_OFFSET as u64;
        self.hot.region.write(offset, &bytes);
        self.hot.region.flush(offset, bytes.len());
        self.hot.region.fence();
    }
}

/// Every handle's answer after `close`.
#[cold]
pub(super) fn closed() -> Error {
    Error::closed("the ring is closed; open it again")
}

#[cfg(test)]
mod tests {
    use crate::{Ring, RingConfig, RingOutcome, RingPut};
    use forebay_core::RingKeyspace;
    use forebay_testkit::media::SimMedium;
    use std::time::Duration;

    #[test]
    fn a_put_that_meets_the_close_takes_nothing_from_the_ring() {
        let keyspace = RingKeyspace {
            history: Duration::from_millis(1),
            source_bytes_per_second: 1_000_000,
            max_skew: Duration::from_secs(3600),
            ..RingKeyspace::wibeth("closing", 1).unwrap()
        };
        let config = RingConfig {
            hot_bytes: 8192 + (16 << 14),
            segment_bytes: Some(16 << 10),
            maintenance: false,
            ..RingConfig::default()
        };
        let medium = SimMedium::new(config.hot_bytes);
        let ring = Ring::create_on(medium, &keyspace, config).unwrap();
        let source = keyspace.source(&[1]).unwrap();
        for number in 0..40 {
            let put = ring.put(&source, 1 << 40 | number << 11, 2048, &[7; 7200], &RingPut::default()).unwrap();
            assert_eq!(put, RingOutcome::Stored);
        }
        let (ledger, evicted) = (ring.ledger(), ring.stats().evicted);
        assert!(evicted > 0, "the next chunk must come from an eviction");
        ring.close().unwrap();
        // A put that was on its way to a chunk comes here; by now another process may serve this ring.
        assert_eq!(ring.engine().take_segment(), None);
        assert_eq!((ring.ledger(), ring.stats().evicted), (ledger, evicted));
    }
}
