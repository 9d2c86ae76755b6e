//! The ring keyspace: a latency buffer of continuous readout.

mod config;
mod status;
mod window;

pub use config::{RingConfig, RingOutcome, RingPut, RingSources};
pub use status::{Gap, Refusals, RingMemory, RingPinStatus, RingSourceStatus, RingStats};
pub use window::{Coverage, RingFragment, SourceWindow, Stretch, Window};

use crate::sim::SimMedium;
use forebay_core::{Ledger, Result, RingKeyspace, SourceId};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// One ring: a cheap handle, cloned freely, used from any number of threads. The ring closes with its last handle;
/// windows may live on.
#[derive(Clone)]
pub struct Ring {}

impl Ring {
    /// Makes a new ring in `dir`, which is made if need be and holds none yet; it may hold an events store.
    ///
    /// # Errors
    /// `Invalid` for a keyspace or sizes that cannot be, or capacity below the declared history; `Full` without space
    /// for the region.
    pub fn create(dir: &Path, keyspace: &RingKeyspace, config: RingConfig) -> Result<Ring> {
        unimplemented!("{dir:?} {keyspace:?} {}", config.hot_bytes)
    }

    /// Opens a ring: everything that was acknowledged and not evicted is there; pins are void.
    ///
    /// # Errors
    /// `Invalid` where there is no ring, `Unavailable` where another process has it, `Corrupt` for what cannot be
    /// accounted for.
    pub fn open(dir: &Path, config: RingConfig) -> Result<Ring> {
        unimplemented!("{dir:?} {}", config.hot_bytes)
    }

    /// [`Ring::create`] on a simulated medium.
    ///
    /// # Errors
    /// As [`Ring::create`].
    pub fn create_on(medium: Arc<SimMedium>, keyspace: &RingKeyspace, config: RingConfig) -> Result<Ring> {
        unimplemented!("{} {keyspace:?} {}", medium.steps(), config.hot_bytes)
    }

    /// [`Ring::open`] on a simulated medium.
    ///
    /// # Errors
    /// As [`Ring::open`].
    pub fn open_on(medium: Arc<SimMedium>, keyspace: &RingKeyspace, config: RingConfig) -> Result<Ring> {
        unimplemented!("{} {keyspace:?} {}", medium.steps(), config.hot_bytes)
    }

    /// Flushes the ring and marks it clean; calls on any handle answer `Closed`.
    ///
    /// # Errors
    /// `Corrupt` where the medium refuses its pages.
    pub fn close(&self) -> Result<()> {
        unimplemented!()
    }

    /// One round of maintenance, for rings without their own thread.
    pub fn tick(&self) {
        unimplemented!()
    }

    /// The same ring under a holder name: windows and pins are listed under it.
    #[must_use]
    pub fn named(&self, holder: &str) -> Ring {
        unimplemented!("{holder}")
    }

    /// The keyspace.
    pub fn keyspace(&self) -> &RingKeyspace {
        unimplemented!()
    }

    /// What this opening found missing and the operator accepted, at most 10,000 lines.
    pub fn losses(&self) -> Vec<String> {
        unimplemented!()
    }

    /// Puts a fragment that covers `[timestamp, timestamp + span)`. When this returns `Stored`, it survives the death of
    /// this process.
    ///
    /// # Errors
    /// `Conflict` where other bytes stand under this timestamp, `Invalid` for a source of another schema, one more than
    /// `sources_max`, no span, ticks past the end or a value past the limit, `Unavailable` while a reservation holds the
    /// timestamp, `Closed`.
    pub fn put(
        &self,
        source: &SourceId,
        timestamp: u64,
        span: u32,
        value: &[u8],
        options: &RingPut,
    ) -> Result<RingOutcome> {
        unimplemented!("{source} {timestamp} {span} {} {options:?}", value.len())
    }

    /// Reserves memory of the ring for a fragment of `length` bytes: filled in place, then committed.
    ///
    /// # Errors
    /// As [`Ring::put`].
    pub fn reserve(
        &self,
        source: &SourceId,
        timestamp: u64,
        span: u32,
        length: usize,
        options: &RingPut,
    ) -> Result<RingReservation> {
        unimplemented!("{source} {timestamp} {span} {length} {options:?}")
    }

    /// All fragments that overlap `[begin, end)`, by source, with what is known of the rest. Waits until no source is
    /// `NotYet` in it, at most `wait`.
    ///
    /// # Errors
    /// `Invalid` for an empty or inverted window, a source of another schema or one that is named twice; `Closed`.
    pub fn window(&self, begin: u64, end: u64, sources: &RingSources, wait: Duration) -> Result<Window> {
        unimplemented!("{begin} {end} {sources:?} {wait:?}")
    }

    /// Keeps `[begin, end)` from being evicted for `duration`. It may lie in the future: a recording.
    ///
    /// # Errors
    /// `Full` beyond the quota, naming who holds it; `Invalid` as for [`Ring::window`]; `Closed`.
    pub fn pin(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<RingPin> {
        unimplemented!("{begin} {end} {sources:?} {duration:?}")
    }

    /// Every source that the ring has seen, in order.
    pub fn sources(&self) -> Vec<RingSourceStatus> {
        unimplemented!()
    }

    /// The gaps of a source in `[begin, end)`, in order. A source that was never seen has none.
    ///
    /// # Errors
    /// `Invalid` as for [`Ring::window`].
    pub fn gaps(&self, source: &SourceId, begin: u64, end: u64) -> Result<Vec<Gap>> {
        unimplemented!("{source} {begin} {end}")
    }

    /// The ring at a glance.
    pub fn stats(&self) -> RingStats {
        unimplemented!()
    }

    /// The account of all runs.
    pub fn ledger(&self) -> Ledger {
        unimplemented!()
    }

    /// The account of one run; empty where the ring does not know it.
    pub fn ledger_of(&self, run: u32) -> Ledger {
        unimplemented!("{run}")
    }
}

/// Memory of the ring for one fragment. Dropping it gives it up.
pub struct RingReservation {}

impl RingReservation {
    /// Makes the fragment visible; the answers are those of [`Ring::put`].
    ///
    /// # Errors
    /// As [`Ring::put`].
    pub fn commit(self) -> Result<RingOutcome> {
        unimplemented!()
    }

    /// Gives the memory up.
    pub fn abort(self) {}
}

impl Deref for RingReservation {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        unimplemented!()
    }
}

impl DerefMut for RingReservation {
    fn deref_mut(&mut self) -> &mut [u8] {
        unimplemented!()
    }
}

/// A stretch of ticks that is kept from being evicted until the pin is dropped, released or over.
pub struct RingPin {}

impl RingPin {
    /// Number of the pin, as `stats` lists it.
    pub fn id(&self) -> u64 {
        unimplemented!()
    }

    /// Bytes of the region that it holds or has reserved, whole chunks.
    pub fn bytes(&self) -> u64 {
        unimplemented!()
    }

    /// Whether its deadline has passed.
    pub fn expired(&self) -> bool {
        unimplemented!()
    }

    /// Moves the deadline to `duration` from now.
    ///
    /// # Errors
    /// `Fenced` where it has expired: what it kept may be gone.
    pub fn extend(&self, duration: Duration) -> Result<()> {
        unimplemented!("{duration:?}")
    }

    /// Gives the pin up.
    pub fn release(self) {}
}
