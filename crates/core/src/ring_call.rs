//! Options and answers of the calls of a ring.

use crate::{GapCause, SourceId};

/// Options of a put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingPut {
    /// Run number.
    pub run: u32,
    /// The producer's status bits.
    pub status: u32,
}

/// The outcome of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingOutcome {
    /// Stored: it survives the death of this process.
    Stored,
    /// The same bytes are there already: a success.
    Duplicate,
    /// Not stored, entered as a gap with this cause. Final: a ring never blocks.
    Refused(GapCause),
}

/// Which sources a window or a pin is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RingSources {
    /// Every source that the ring has seen; of a pin, also those that come.
    #[default]
    All,
    /// These, in this order.
    Only(Vec<SourceId>),
}

/// A stretch of one source's window. Half-open; the stretches of a source tile its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// First tick.
    pub begin: u64,
    /// Tick after the last one.
    pub end: u64,
    /// Its state.
    pub state: Coverage,
}

/// The state of a stretch of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Fragments cover it.
    Complete,
    /// Later data has arrived and nothing covers it.
    Gap(GapCause),
    /// Beyond the newest tick that the source has, or reserved and not yet committed.
    NotYet,
    /// Before the oldest tick that the source still keeps: evicted, or before its first data.
    Gone,
}
