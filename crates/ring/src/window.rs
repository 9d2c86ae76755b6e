//! A window of a ring: fragments in place, and how far they cover it.
//!
//! *Invariants*: a window holds a guard on each chunk that it shows, taken under the source's lock: its bytes stay where
//! they are until it is dropped, also when the ring is closed meanwhile (tests/ring/races.rs).

use super::engine::Holder;
use forebay_core::limits::RING_KEY_TAIL_BYTES;
use forebay_core::{Coverage, Error, Result, RingStamp, SourceId, Stretch};
use forebay_media::hot::{Hot, Location, checksum};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// All fragments that overlap `[begin, end)`, by source. Keeps their chunks in place until it is dropped.
#[derive(Debug)]
pub struct Window {
    /// First tick.
    pub begin: u64,
    /// Tick after the last one.
    pub end: u64,
    /// One per source that was asked for, in that order; of `RingSources::All` in the order of sources.
    pub sources: Vec<SourceWindow>,
}

/// One source's part of a window.
pub struct SourceWindow {
    /// The source.
    pub source: SourceId,
    /// What is known of the window, in order and without anything in between.
    pub coverage: Vec<Stretch>,
    /// The first tick that the source ever had, where nothing of it was evicted.
    pub(super) first: Option<u64>,
    pub(super) pieces: Vec<Piece>,
    pub(super) guards: Guards,
}

/// One fragment, by its place.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) timestamp: u64,
    pub(super) span: u32,
    pub(super) location: Location,
}

/// Guards on chunks.
pub(super) struct Guards {
    pub(super) holder: Arc<Holder>,
    pub(super) segments: Vec<u32>,
}

impl Guards {
    pub(super) fn new(holder: &Arc<Holder>) -> Guards {
        Guards { holder: holder.clone(), segments: Vec::new() }
    }

    /// Takes a guard. Under the source's lock.
    #[inline]
    pub(super) fn add(&mut self, segment: u32) {
        let hot = &self.holder.engine.hot;
        hot.segment(segment).pin();
        self.holder.guards.fetch_add(1, Ordering::Relaxed);
        self.holder.bytes.fetch_add(hot.geometry.segment_bytes, Ordering::Relaxed);
        self.segments.push(segment);
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        let engine = &self.holder.engine;
        let count = self.segments.len() as u64;
        self.holder.guards.fetch_sub(count, Ordering::Relaxed);
        self.holder.bytes.fetch_sub(count * engine.hot.geometry.segment_bytes, Ordering::Relaxed);
        // Last, after the figures: what has a guard and is not in them is a call in flight.
        for &segment in &self.segments {
            engine.hot.unpin(segment);
        }
    }
}

/// One fragment of a window, its bytes in place.
#[derive(Clone, Copy)]
pub struct RingFragment<'a> {
    /// First tick.
    pub timestamp: u64,
    /// Ticks covered.
    pub span: u32,
    /// Run number.
    pub run: u32,
    /// The producer's status bits.
    pub status: u32,
    /// CRC-32C of the bytes, as the entry has it.
    pub checksum: u32,
    /// The bytes.
    pub bytes: &'a [u8],
    window: &'a SourceWindow,
    location: Location,
}

impl RingFragment<'_> {
    /// Reads every byte and compares with the stored checksums, those of the entry and of the bytes.
    ///
    /// # Errors
    /// `Corrupt` where they differ.
    pub fn verify(&self) -> Result<()> {
        let engine = &self.window.guards.holder.engine;
        let wrong = |what: String| {
            Error::corrupt(format!("source {} timestamp {}: {what}", self.window.source, self.timestamp))
        };
        let entry =
            engine.hot.read_entry(self.location).ok_or_else(|| wrong("its entry does not verify".to_owned()))?;
        let stamp = RingStamp { timestamp: self.timestamp, span: self.span, run: self.run };
        if engine.keyspace.source.decode(entry.key.as_bytes()) != Some((self.window.source, stamp)) {
            return Err(wrong("its entry is that of another fragment".to_owned()));
        }
        let found = checksum(self.bytes);
        if found == entry.payload_crc && self.bytes.len() == entry.length as usize {
            return Ok(());
        }
        Err(wrong(format!(
            "{} bytes have checksum {found:08x}, stored is {:08x} for {}",
            self.bytes.len(),
            entry.payload_crc,
            entry.length
        )))
    }
}

impl fmt::Debug for RingFragment<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RingFragment { timestamp, span, run, status, bytes, .. } = self;
        write!(out, "RingFragment({timestamp} + {span}, run {run}, status {status:#x}, {} bytes)", bytes.len())
    }
}

/// The fields of an entry that readers need, as the medium has them.
struct Fields {
    offset: u64,
    length: u32,
    checksum: u32,
    status: u32,
    run: u32,
}

/// Reads an entry without its checksum: that is `verify`'s work. What does not fit its chunk reads as empty.
#[inline]
fn fields(hot: &Hot, location: Location) -> Fields {
    let key_bytes = hot.geometry.key_bytes as usize;
    let raw = hot.region.bytes(hot.entry_offset(location), 24 + key_bytes);
    let little = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
    let run = 24 + key_bytes - 4;
    let run = u32::from_be_bytes([raw[run], raw[run + 1], raw[run + 2], raw[run + 3]]);
    let offset = u64::from(little(8)) * forebay_media::limits::PAYLOAD_ALIGN as u64;
    let fits = offset + u64::from(little(12)) <= hot.geometry.segment_bytes;
    let (offset, length) = if fits { (offset, little(12)) } else { (0, 0) };
    Fields { offset, length, checksum: little(16), status: little(20), run }
}

// The run is the last part of the key.
const _: () = assert!(RING_KEY_TAIL_BYTES == 8 + 4 + 4);

impl SourceWindow {
    /// Fragments in time order, each once, those included that only reach into the window.
    pub fn fragments(&self) -> impl ExactSizeIterator<Item = RingFragment<'_>> {
        self.pieces.iter().map(|piece| self.fragment_of(piece))
    }

    /// One of them, by its place in that order.
    pub fn fragment(&self, at: usize) -> Option<RingFragment<'_>> {
        self.pieces.get(at).map(|piece| self.fragment_of(piece))
    }

    #[inline]
    fn fragment_of(&self, piece: &Piece) -> RingFragment<'_> {
        let hot = &self.guards.holder.engine.hot;
        let Fields { offset, length, checksum, status, run } = fields(hot, piece.location);
        let offset = hot.payload_offset(piece.location.segment, offset);
        let bytes = hot.region.bytes(offset, length as usize);
        let &Piece { timestamp, span, location } = piece;
        RingFragment { timestamp, span, run, status, checksum, bytes, window: self, location }
    }

    /// Payload bytes of all fragments.
    pub fn bytes_total(&self) -> u64 {
        let hot = &self.guards.holder.engine.hot;
        self.pieces.iter().map(|piece| u64::from(fields(hot, piece.location).length)).sum()
    }

    /// Whether fragments cover the whole window.
    pub fn is_complete(&self) -> bool {
        self.coverage.iter().all(|stretch| stretch.state == Coverage::Complete)
    }
}

impl fmt::Debug for SourceWindow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SourceWindow({}, {} fragments, {:?})", self.source, self.pieces.len(), self.coverage)
    }
}

impl Window {
    /// Whether every source's fragments cover the whole window.
    pub fn is_complete(&self) -> bool {
        self.sources.iter().all(SourceWindow::is_complete)
    }
}
