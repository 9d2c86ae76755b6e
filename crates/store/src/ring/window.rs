//! What a window shows: fragments in place, and how far they cover it.

use forebay_core::{GapCause, Result, SourceId};

/// A stretch of one source's window. Half-open; the stretches of a source tile its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// First tick.
    pub begin: u64,
    /// Tick after the last one.
    pub end: u64,
    /// What is known of it.
    pub state: Coverage,
}

/// What is known of a stretch of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Fragments cover it.
    Complete,
    /// Later data has arrived and nothing covers it.
    Gap(GapCause),
    /// Beyond the newest tick that the source has.
    NotYet,
    /// Before the oldest tick that the source still keeps.
    Gone,
}

/// All fragments that overlap `[begin, end)`, by source. Keeps their chunks in place until it is dropped.
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
    /// The bytes.
    pub bytes: &'a [u8],
}

impl RingFragment<'_> {
    /// Reads every byte and compares with the stored checksums.
    ///
    /// # Errors
    /// `Corrupt` where they differ.
    pub fn verify(&self) -> Result<()> {
        unimplemented!()
    }
}

impl SourceWindow {
    /// Fragments in time order.
    pub fn fragments(&self) -> impl ExactSizeIterator<Item = RingFragment<'_>> {
        unimplemented!();
        #[expect(unreachable_code, reason = "gives the type")]
        std::iter::empty()
    }

    /// Payload bytes of all fragments.
    pub fn bytes_total(&self) -> u64 {
        unimplemented!()
    }

    /// Whether fragments cover the whole window.
    pub fn is_complete(&self) -> bool {
        unimplemented!()
    }
}

impl Window {
    /// Whether every source's fragments cover the whole window.
    pub fn is_complete(&self) -> bool {
        self.sources.iter().all(SourceWindow::is_complete)
    }
}
