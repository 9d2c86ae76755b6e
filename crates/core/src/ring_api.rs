//! What operators and recordings ask of a ring, in this process or on a server: one trait for both.
//!
//! *Not here*: puts, which a readout makes on the type that it has.

use crate::{
    Ledger, Result, RingChunkInfo, RingKeyspace, RingPinStatus, RingSourceStatus, RingSources, RingStats, SourceId,
    Stretch,
};
use std::time::Duration;

/// A ring: cheap to clone, used from any number of threads.
pub trait RingStore: Clone + Send + Sync + 'static {
    /// What it answers to a window.
    type Window: RingWindow;
    /// A stretch of ticks that it keeps.
    type Pin: KeepsTicks + Send;

    /// The keyspace.
    fn keyspace(&self) -> &RingKeyspace;

    /// All fragments that overlap `[begin, end)`, by source, with what is known of the rest. Waits until no source is
    /// `NotYet` in it, at most `wait`.
    ///
    /// # Errors
    /// `Invalid` for an empty or inverted window and for wrong sources; `Closed`; `Unavailable` without an answer.
    fn window(&self, begin: u64, end: u64, sources: &RingSources, wait: Duration) -> Result<Self::Window>;

    /// Keeps `[begin, end)` from being evicted for `duration`, until the pin is dropped.
    ///
    /// # Errors
    /// `Full` beyond the quota, naming who holds it; `Invalid` as for a window, or for no duration; `Closed`; `Unavailable`.
    fn pin(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<Self::Pin>;

    /// Keeps `[begin, end)` from being evicted until `duration` is over or [`RingStore::unpin`] ends it: nobody holds this pin. On several
    /// nodes it is a pin on each of them that may have something of it.
    ///
    /// # Errors
    /// As [`RingStore::pin`]; `OutcomeUnknown` where an answer was lost.
    fn keep(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<Vec<RingPinStatus>>;

    /// Ends a pin that nobody holds; answers whether there was one.
    ///
    /// # Errors
    /// `Conflict` for a pin that somebody holds; `Closed`; `Unavailable`.
    fn unpin(&self, id: u64) -> Result<bool>;

    /// Every source that the ring has seen, in order.
    ///
    /// # Errors
    /// `Unavailable` without an answer.
    fn sources(&self) -> Result<Vec<RingSourceStatus>>;

    /// Every chunk, by source and in the order of arrival.
    ///
    /// # Errors
    /// `Unavailable` without an answer.
    fn chunks(&self) -> Result<Vec<RingChunkInfo>>;

    /// The ring at a glance.
    ///
    /// # Errors
    /// `Unavailable` without an answer.
    fn stats(&self) -> Result<RingStats>;

    /// The account of one run.
    ///
    /// # Errors
    /// `Unavailable` without an answer.
    fn ledger_of(&self, run: u32) -> Result<Ledger>;

    /// What its opening found missing and was accepted.
    ///
    /// # Errors
    /// `Unavailable` without an answer.
    fn losses(&self) -> Result<Vec<String>>;

    /// The tick that the ring expects to arrive now; `None` before the first put since its opening.
    ///
    /// # Errors
    /// `Unavailable` without an answer.
    fn now(&self) -> Result<Option<u64>>;

    /// Whether ticks before `end` that are not there may still come, given this patience beyond their time.
    ///
    /// # Errors
    /// As [`RingStore::now`].
    fn may_come(&self, end: u64, patience: Duration) -> Result<bool> {
        let patience = self.keyspace().ticks(patience);
        Ok(self.now()?.is_none_or(|now| now.saturating_sub(patience) < end))
    }
}

/// A pin that ends when it is dropped.
pub trait KeepsTicks {
    /// Number of the pin, as `stats` lists it.
    fn id(&self) -> u64;

    /// Moves the pin to other ticks of its sources, and its deadline to `duration` from now, in one step.
    ///
    /// # Errors
    /// `Full` beyond the quota; then the pin keeps what it did. `Fenced` where it has expired, or a source has moved to another node.
    fn move_to(&mut self, begin: u64, end: u64, duration: Duration) -> Result<()>;
}

/// The answer to a window. Sources are named by their position in it.
pub trait RingWindow {
    /// Number of sources.
    fn sources(&self) -> usize;

    /// One of them.
    fn source(&self, at: usize) -> SourceId;

    /// What is known of its ticks, in order and without anything in between.
    fn coverage(&self, at: usize) -> &[Stretch];

    /// The first tick that the source ever had, where nothing of it was evicted and something is gone from the window.
    fn first(&self, at: usize) -> Option<u64>;

    /// One of its fragments, by its place in the order of time; `None` past the last one.
    fn fragment(&self, at: usize, number: usize) -> Option<RingView<'_>>;

    /// Reads every byte of that fragment and compares with the checksum that is stored.
    ///
    /// # Errors
    /// `Corrupt` where they differ.
    fn verify(&self, at: usize, number: usize) -> Result<()>;
}

/// One fragment of a window.
#[derive(Clone, Copy, Debug)]
pub struct RingView<'a> {
    /// First tick.
    pub timestamp: u64,
    /// Ticks covered.
    pub span: u32,
    /// Run number.
    pub run: u32,
    /// The producer's status bits.
    pub status: u32,
    /// CRC-32C of the bytes, as it is stored.
    pub checksum: u32,
    /// The bytes.
    pub bytes: &'a [u8],
}
