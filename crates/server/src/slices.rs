//! A window of a ring, read source by source and slice by slice: so a reader of a large window pins little of it at a time.
//!
//! *Invariants*: one slice is of one source, and of about [`SLICE_BYTES`] at its declared rate; where nothing is stored
//! slices grow, so that any window takes few of them; each fragment is in one slice (tests/session/ring.rs).
//!
//! *Not here*: one moment for all of it. What is evicted before its turn is gone; who needs it pins it first.

use forebay_core::{Result, RingSources, SourceId, Stretch};
use forebay_ring::{Ring, Window};
use std::time::Duration;

/// Payload of a slice, at the declared rate of a source.
const SLICE_BYTES: u64 = 4 << 20;

/// The rest of a window.
pub(crate) struct Slices {
    ring: Ring,
    begin: u64,
    end: u64,
    names: std::vec::IntoIter<SourceId>,
    /// The source under way, and where its next slice begins.
    under_way: Option<(SourceId, u64)>,
    /// Ticks of a slice, and of the next one.
    ticks: u64,
    next_ticks: u64,
}

/// One slice: a window of one source, of which what begins before it belongs to the slice before.
pub(crate) struct Slice {
    pub(crate) window: Window,
    first: usize,
}

impl Slice {
    /// The source.
    pub(crate) fn source(&self) -> SourceId {
        self.window.sources[0].source
    }

    /// What is known of it.
    pub(crate) fn coverage(&self) -> &[Stretch] {
        &self.window.sources[0].coverage
    }

    /// Places of its fragments in the window.
    pub(crate) fn fragments(&self) -> std::ops::Range<usize> {
        self.first..self.window.sources[0].fragments().len()
    }
}

impl Slices {
    /// The slices of a window.
    pub(crate) fn new(ring: &Ring, begin: u64, end: u64, sources: &RingSources) -> Slices {
        let names = match sources {
            RingSources::All => ring.source_ids(),
            RingSources::Only(names) => names.clone(),
        };
        let keyspace = ring.keyspace();
        let seconds = SLICE_BYTES as f64 / keyspace.source_bytes_per_second as f64;
        let ticks = ((seconds * keyspace.ticks_per_second as f64) as u64).max(1);
        let names = names.into_iter();
        Slices { ring: ring.clone(), begin, end, names, under_way: None, ticks, next_ticks: ticks }
    }

    /// The next one; `None` after the last.
    ///
    /// # Errors
    /// Those of a window.
    pub(crate) fn next(&mut self) -> Result<Option<Slice>> {
        let (source, from) = match self.under_way.take() {
            Some(under_way) => under_way,
            None => match self.names.next() {
                Some(source) => (source, self.begin),
                None => return Ok(None),
            },
        };
        let to = from.saturating_add(self.next_ticks).min(self.end);
        let window = self.ring.window(from, to, &RingSources::Only(vec![source]), Duration::ZERO)?;
        let fragments = || window.sources[0].fragments();
        // A fragment that reaches over the cut is in both slices of the ring: it was given with the first.
        let first = if from == self.begin { 0 } else { fragments().take_while(|one| one.timestamp < from).count() };
        // Over empty stretches slices double: a window of hours with little data takes few steps. The first data brings
        // the size back, so that a slice never pins much.
        self.next_ticks = if fragments().len() == 0 { self.next_ticks.saturating_mul(2) } else { self.ticks };
        if to < self.end {
            self.under_way = Some((source, to));
        } else {
            self.next_ticks = self.ticks;
        }
        Ok(Some(Slice { window, first }))
    }
}

/// Adds stretches of a slice behind those of the slices before.
pub(crate) fn join(coverage: &mut Vec<Stretch>, more: &[Stretch]) {
    for stretch in more {
        match coverage.last_mut() {
            Some(last) if last.state == stretch.state && last.end == stretch.begin => last.end = stretch.end,
            _ => coverage.push(*stretch),
        }
    }
}
