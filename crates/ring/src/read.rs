//! Reading windows and gaps.
//!
//! ```text
//! wait, source by source, to one deadline ─▶ each source's lock: chunks that overlap ─▶ guards, places, coverage
//! ```

use super::engine::Holder;
use super::source::{Cell, Source};
use super::window::{Guards, Piece, SourceWindow, Window};
use super::{Coverage, Gap, Ring, RingSources, Stretch, engine::RingEngine, engine::closed};
use forebay_core::{Error, Result, SourceId};
use forebay_media::hot::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest wait for a window; longer ones are cut to it.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

impl Ring {
    /// All fragments that overlap `[begin, end)`, by source, with what is known of the rest. Waits until no source is
    /// `NotYet` in it, at most `wait`; a ring that closes ends the wait. A source that was never seen is all `NotYet`.
    ///
    /// # Errors
    /// `Invalid` for an empty or inverted window, a source of another schema, one that is named twice, or more of them than
    /// the ring can have; `Closed`.
    pub fn window(&self, begin: u64, end: u64, sources: &RingSources, wait: Duration) -> Result<Window> {
        let engine = self.engine();
        engine.check_window(begin, end)?;
        let names = engine.names(sources)?;
        let _waiting = (!wait.is_zero()).then(|| Waiting::new(&self.holder));
        engine.check_open()?;
        // Real time, also where a test moves the ring's clock by hand.
        let deadline = (!wait.is_zero()).then(|| Instant::now() + wait.min(WAIT_MAX));
        // One deadline for all: the sources arrive side by side, whichever of them is waited for first.
        if let Some(deadline) = deadline {
            names.iter().for_each(|source| engine.wait_for(source, begin, end, deadline));
        }
        let read = |source: &SourceId| match engine.table.find(source) {
            Some(cell) => read_source(&self.holder, cell, begin, end),
            None => Ok(SourceWindow {
                source: *source,
                coverage: vec![Stretch { begin, end, state: Coverage::NotYet }],
                first: None,
                pieces: Vec::new(),
                guards: Guards::new(&self.holder),
            }),
        };
        Ok(Window { begin, end, sources: names.iter().map(read).collect::<Result<_>>()? })
    }

    /// Whether no source is `NotYet` in `[begin, end)`: a window of it would wait for nothing.
    ///
    /// # Errors
    /// As for [`Ring::window`].
    pub fn has_window(&self, begin: u64, end: u64, sources: &RingSources) -> Result<bool> {
        let engine = self.engine();
        engine.check_window(begin, end)?;
        engine.check_open()?;
        let has = |cell: &Cell| cell.source.lock().has_reached(begin, end);
        if *sources == RingSources::All {
            return Ok(engine.table.iter().all(has));
        }
        let names = engine.names(sources)?;
        Ok(names.iter().all(|source| engine.table.find(source).is_some_and(has)))
    }

    /// Every source that the ring has seen, in order.
    pub fn source_ids(&self) -> Vec<SourceId> {
        let mut names: Vec<SourceId> = self.engine().table.iter().map(|cell| cell.id).collect();
        names.sort_unstable();
        names
    }

    /// The gaps of a source in `[begin, end)`, in order. A source that was never seen has none.
    ///
    /// # Errors
    /// `Invalid` as for [`Ring::window`]; `Closed`.
    pub fn gaps(&self, source: &SourceId, begin: u64, end: u64) -> Result<Vec<Gap>> {
        let engine = self.engine();
        engine.check_window(begin, end)?;
        engine.check_source(source)?;
        engine.check_open()?;
        let Some(cell) = engine.table.find(source) else { return Ok(Vec::new()) };
        let read = read_source(&self.holder, cell, begin, end)?;
        let gap = |stretch: &Stretch| match stretch.state {
            Coverage::Gap(cause) => Some(Gap { begin: stretch.begin, end: stretch.end, cause }),
            _ => None,
        };
        Ok(read.coverage.iter().filter_map(gap).collect())
    }
}

impl RingEngine {
    pub(super) fn check_window(&self, begin: u64, end: u64) -> Result<()> {
        if begin < end {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the window [{begin}, {end}) is {}",
            if begin == end { "empty" } else { "inverted" }
        )))
    }

    /// The sources that are meant; all of them in their order.
    pub(super) fn names(&self, sources: &RingSources) -> Result<Vec<SourceId>> {
        match sources {
            RingSources::All => {
                let mut names: Vec<SourceId> = self.table.iter().map(|cell| cell.id).collect();
                names.sort_unstable();
                Ok(names)
            }
            RingSources::Only(names) if names.len() > self.keyspace.sources_max as usize => Err(Error::invalid(
                format!("{} sources are named, and this ring has at most {}", names.len(), self.keyspace.sources_max),
            )),
            RingSources::Only(names) => {
                names.iter().try_for_each(|source| self.check_source(source))?;
                let mut sorted = names.clone();
                sorted.sort_unstable();
                match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                    Some(pair) => Err(Error::invalid(format!("source {} is named twice", pair[0]))),
                    None => Ok(names.clone()),
                }
            }
        }
    }

    /// Waits until a source has reached the end of a window, to the deadline.
    fn wait_for(&self, source: &SourceId, begin: u64, end: u64, deadline: Instant) {
        let Some(cell) = self.table.wait_for(source, deadline, || self.is_closed()) else { return };
        let mut source = cell.source.lock();
        while !source.has_reached(begin, end) && !source.closed {
            source.waiters.enter(end);
            let over = cell.arrived.wait_until(&mut source, deadline).timed_out();
            source.waiters.leave();
            if over {
                return;
            }
        }
    }
}

/// A window that waits, as the closing of the ring sees it.
struct Waiting<'a>(&'a Holder);

impl<'a> Waiting<'a> {
    fn new(holder: &'a Holder) -> Waiting<'a> {
        holder.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(holder)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One source's part of a window, under its lock.
///
/// # Errors
/// `Closed` where the ring is: its memory may be another life's.
fn read_source(holder: &Arc<Holder>, cell: &Cell, begin: u64, end: u64) -> Result<SourceWindow> {
    let mut guards = Guards::new(holder);
    // Guards are taken under the lock under which evictions look for them: of a chunk that is found here none comes too late.
    let source = cell.source.lock();
    if source.shut {
        return Err(closed());
    }
    let pieces = collect(&source, &mut guards, begin, end);
    let reserved: Vec<(u64, u64)> = source.reserved.iter().map(|one| (one.timestamp, one.end)).collect();
    let covered = pieces.iter().map(|piece| (piece.timestamp, piece.timestamp + u64::from(piece.span)));
    let coverage = source.known.tile(begin, end, covered, &reserved);
    let first = source.known.first();
    drop(source);
    Ok(SourceWindow { source: cell.id, coverage, first, pieces, guards })
}

fn collect(source: &Source, guards: &mut Guards, begin: u64, end: u64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for chunk in source.chunks_from(begin).filter(|chunk| chunk.overlaps(begin, end)) {
        let before = pieces.len();
        let (most, items) = chunk.overlapping(begin, end);
        pieces.reserve(most);
        pieces.extend(items.map(|item| Piece {
            timestamp: item.timestamp,
            span: item.span,
            location: Location { segment: chunk.segment, entry: item.entry },
        }));
        if pieces.len() > before {
            guards.add(chunk.segment);
        }
    }
    // Chunks follow each other in time, except for disorder at their edges and clocks that were started again.
    if !pieces.is_sorted_by_key(|piece| piece.timestamp) {
        pieces.sort_by_key(|piece| piece.timestamp);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use crate::{Ring, RingConfig, RingPut, RingSources};
    use forebay_core::{Kind, RingKeyspace};
    use forebay_testkit::media::SimMedium;
    use std::sync::Barrier;
    use std::time::Duration;

    /// A window that found the ring open, and is held up before it takes its guards, takes none.
    #[test]
    fn a_window_asks_under_the_lock_whether_its_ring_is_closed() {
        let keyspace =
            RingKeyspace { history: Duration::from_millis(1), ..RingKeyspace::wibeth("closing", 1).unwrap() };
        let config = RingConfig { hot_bytes: 64 << 20, maintenance: false, ..RingConfig::default() };
        let ring = Ring::create_on(SimMedium::new(config.hot_bytes), &keyspace, config).unwrap();
        let source = keyspace.source(&[1]).unwrap();
        let put = ring.put(&source, 1 << 40, 2048, &[7; 7200], &RingPut::default());
        assert_eq!(put.unwrap(), crate::RingOutcome::Stored);
        let cell = ring.engine().table.find(&source).unwrap();
        let mut locked = cell.source.lock();
        let begins = Barrier::new(2);
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| {
                begins.wait();
                ring.window(1 << 40, (1 << 40) + 10, &RingSources::Only(vec![source]), Duration::ZERO)
            });
            begins.wait();
            std::thread::sleep(Duration::from_millis(50));
            (locked.closed, locked.shut) = (true, true);
            drop(locked);
            assert_eq!(reads.join().unwrap().unwrap_err().kind(), Kind::Closed);
        });
        assert!(ring.kept().is_empty());
    }
}
