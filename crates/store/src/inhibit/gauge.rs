//! The warm level as inhibit sees it: how full it is, and what it holds by kind.
//!
//! *Not here*: who knows it (`placement/gauge.rs`).

use super::Largest;

/// How full the warm level is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WarmFill {
    /// Occupied part, 0 to 1.
    pub(crate) fill: f64,
    /// Containers that a writer could begin.
    pub(crate) free_containers: u32,
    /// The name of a device that answers nothing, or fails all that is begun on it.
    pub(crate) stalled: Option<String>,
}

/// Bytes of the warm level by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct WarmBytes {
    /// Of all containers.
    pub(crate) all: u64,
    /// What is live, estimated from the fragments that are: accepted events, those of the debug stream, recordings, and
    /// all others, which are undecided or were when they were written.
    pub(crate) accepted: u64,
    pub(crate) debug: u64,
    pub(crate) recorded: u64,
    pub(crate) undecided: u64,
    /// What nobody needs any more, in containers that are not empty yet.
    pub(crate) dead: u64,
}

impl WarmBytes {
    /// The largest part of it.
    pub(crate) fn largest(&self) -> Largest {
        let kinds = [
            (self.accepted, "accepted"),
            (self.undecided, "ready"),
            (self.debug, "debug"),
            (self.recorded, "recorded"),
            (self.dead, "dead"),
        ];
        let (bytes, what) = kinds.into_iter().max_by_key(|kind| kind.0).unwrap_or_default();
        Largest { share: bytes as f64 / self.all.max(1) as f64, what }
    }
}

/// A source of the warm level's fill. No I/O, no wait, no lock of a cell.
pub(crate) trait WarmGauge: Send + Sync {
    /// Asked in every look.
    fn warm_fill(&self) -> WarmFill;
    /// Asked while inhibit is set, for its words.
    fn warm_bytes(&self) -> WarmBytes;
}
