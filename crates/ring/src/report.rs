//! The state of a ring, gathered for people and monitors.

use super::account::add_live;
use super::chunk::Chunk;
use super::engine::{Holder, RingEngine};
use super::source::{Cell, Source};
use super::space::Closed;
use super::{Refusals, Ring, RingChunkInfo, RingMemory, RingSourceStatus, RingStats};
use forebay_core::{HolderStats, Ledger, Tally};
use forebay_media::hot::{SEALED, Segment};
use std::sync::Weak;
use std::sync::atomic::Ordering;

impl Ring {
    /// Every source that the ring has seen, in order.
    pub fn sources(&self) -> Vec<RingSourceStatus> {
        let engine = self.engine();
        let mut statuses: Vec<_> = engine.table.iter().map(|cell| engine.status(cell)).collect();
        statuses.sort_by_key(|status| status.source);
        statuses
    }

    /// The account of all runs.
    pub fn ledger(&self) -> Ledger {
        self.engine().ledger(None)
    }

    /// The account of one run; empty where the ring does not know it, or no longer keeps it apart: that is for runs
    /// without data in the ring, once about 24 others have come after them.
    pub fn ledger_of(&self, run: u32) -> Ledger {
        self.engine().ledger(Some(run))
    }

    /// Every chunk, by source and in the order of arrival.
    pub fn chunks(&self) -> Vec<RingChunkInfo> {
        let engine = self.engine();
        let mut chunks = Vec::new();
        for cell in engine.table.iter() {
            let source = cell.source.lock();
            chunks.extend(source.chunks.iter().map(|chunk| engine.chunk_info(cell, &source, chunk)));
        }
        // Stable: the chunks of a source stay in their order.
        chunks.sort_by_key(|chunk| chunk.source);
        chunks
    }

    /// The tick that the ring expects to arrive now; `None` before the first put since its opening.
    pub fn now(&self) -> Option<u64> {
        self.engine().relations.expected(self.engine().now_ns())
    }

    /// The ring at a glance.
    pub fn stats(&self) -> RingStats {
        let engine = self.engine();
        let ledger = engine.ledger(None);
        let (mut kept, mut refused) = (Tally::default(), Refusals::default());
        for cell in engine.table.iter() {
            let source = cell.source.lock();
            kept += sum(&source);
            refused.no_space += source.refused.counts.no_space;
            refused.skew += source.refused.counts.skew;
            refused.too_late += source.refused.counts.too_late;
        }
        let memory = engine.memory();
        let now_ns = engine.now_ns();
        let segment_bytes = engine.hot.geometry.segment_bytes;
        let mut space = engine.space.lock();
        space.expire(now_ns);
        RingStats {
            segments: engine.hot.geometry.segments,
            segments_free: engine.hot.free_segments(),
            segment_bytes,
            fill: engine.hot.fill(),
            fragments: kept.fragments,
            bytes: kept.bytes,
            pinned_bytes: u64::from(space.granted()) * segment_bytes,
            pin_quota_bytes: u64::from(engine.pin_quota()) * segment_bytes,
            pins: space.pin_statuses(now_ns, segment_bytes),
            evicted: space.evicted,
            refused,
            holders: engine.holder_stats(),
            memory,
            ledger,
            boot: engine.boot,
        }
    }
}

fn sum(source: &Source) -> Tally {
    let mut sum = Tally::default();
    source.chunks.iter().for_each(|chunk| sum += chunk.tally());
    sum
}

impl RingEngine {
    fn status(&self, cell: &Cell) -> RingSourceStatus {
        let skew_ticks = self.relations.skew(&cell.vote);
        let now_ns = self.now_ns();
        let source = cell.source.lock();
        let kept = sum(&source);
        let of_era = |chunk: &&Chunk| chunk.era == source.era && !chunk.items.is_empty();
        RingSourceStatus {
            source: cell.id,
            first: source.known.first(),
            oldest: source.chunks.iter().filter(of_era).map(|chunk| chunk.begin).min(),
            newest: source.known.head,
            silent_ns: source.last_put_ns.map(|at_ns| now_ns.saturating_sub(at_ns)),
            run: source.last_run,
            fragments: kept.fragments,
            bytes: kept.bytes,
            chunks: source.chunks.len() as u32,
            refused: source.refused.counts,
            last_refused: source.refused.last,
            skew_ticks,
        }
    }

    fn chunk_info(&self, cell: &Cell, source: &Source, chunk: &Chunk) -> RingChunkInfo {
        let (segment, tally) = (self.hot.segment(chunk.segment), chunk.tally());
        let state = match segment.state() {
            _ if source.writes(chunk.segment) => "open",
            SEALED => "sealed",
            _ => "closed",
        };
        RingChunkInfo {
            source: cell.id,
            segment: chunk.segment,
            generation: chunk.generation,
            state: state.into(),
            // An open chunk without a fragment has no ticks yet.
            begin: if chunk.items.is_empty() { 0 } else { chunk.begin },
            end: chunk.end,
            fragments: tally.fragments,
            bytes: tally.bytes,
            guards: segment.pins(),
            pinned: self.space.lock().is_pinned(&cell.id, chunk.begin, chunk.end),
        }
    }

    /// The account of one run or of all. Holds evictions off, so that nothing is counted twice.
    fn ledger(&self, run: Option<u32>) -> Ledger {
        // Sources and books are read one after the other: an eviction in between would move a chunk from one to the other.
        let _taking = self.taking.lock();
        let is_meant = |one: u32| run.is_none_or(|run| run == one);
        let mut sum = Ledger::default();
        for cell in self.table.iter() {
            let source = cell.source.lock();
            source.accounts.all().filter(|known| is_meant(known.0)).for_each(|known| sum.add(&known.1));
            for of_run in source.chunks.iter().flat_map(|chunk| &chunk.runs).filter(|of_run| is_meant(of_run.run)) {
                add_live(&mut sum, of_run.tally);
            }
        }
        let space = self.space.lock();
        match run {
            Some(run) => sum.add(&space.books.accounts.get(run)),
            None => {
                sum.add(&space.books.earlier);
                space.books.accounts.all().for_each(|known| sum.add(&known.1));
            }
        }
        sum
    }

    fn memory(&self) -> RingMemory {
        let (mut index, mut books) = (0, 0);
        for cell in self.table.iter() {
            let (of_index, of_books) = cell.source.lock().heap_bytes();
            index += of_index;
            books += of_books;
        }
        let segments = self.hot.segments.len();
        // Each segment's number is in the list of free ones or among the closed ones.
        let fixed = segments * (size_of::<Segment>() + size_of::<u32>()) + self.table.bytes();
        let space = self.space.lock();
        let closed = space.closed.capacity() * size_of::<Closed>();
        RingMemory {
            index: (index + closed) as u64,
            books: (books + space.heap_bytes() - closed) as u64,
            fixed: fixed as u64,
        }
    }

    fn holder_stats(&self) -> Vec<HolderStats> {
        let mut holders = self.holders.lock();
        holders.retain(|holder| holder.strong_count() > 0);
        let one = |holder: std::sync::Arc<Holder>| HolderStats {
            holder: holder.name.to_string(),
            guards: holder.guards.load(Ordering::Relaxed),
            bytes: holder.bytes.load(Ordering::Relaxed),
        };
        let all = holders.iter().filter_map(Weak::upgrade).map(one);
        let mut stats: Vec<HolderStats> = all.filter(|holder| holder.guards > 0).collect();
        stats.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        stats
    }
}
