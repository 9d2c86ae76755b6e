//! A ring of this process as [`RingStore`], for what is written for rings on servers as well.

use super::{Ring, RingPin, RingSources, Window};
use forebay_core::{
    Error, KeepsTicks, Ledger, Result, RingChunkInfo, RingKeyspace, RingPinStatus, RingSourceStatus, RingStats,
    RingStore, RingView, RingWindow, SourceId, Stretch,
};
use std::time::Duration;

/// What is answered where a pin would end with the process that makes it.
pub(super) fn nobody_has_it() -> Error {
    Error::invalid("nobody serves this ring: pins last as long as the process that has it")
}

impl RingStore for Ring {
    type Window = Window;
    type Pin = RingPin;

    fn keyspace(&self) -> &RingKeyspace {
        Ring::keyspace(self)
    }
    fn window(&self, begin: u64, end: u64, sources: &RingSources, wait: Duration) -> Result<Window> {
        Ring::window(self, begin, end, sources, wait)
    }
    fn pin(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<RingPin> {
        Ring::pin(self, begin, end, sources, duration)
    }
    fn keep(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<Vec<RingPinStatus>> {
        Ok(vec![Ring::pin(self, begin, end, sources, duration)?.keep()?])
    }
    fn unpin(&self, id: u64) -> Result<bool> {
        Ring::unpin(self, id)
    }
    fn sources(&self) -> Result<Vec<RingSourceStatus>> {
        Ok(Ring::sources(self))
    }
    fn chunks(&self) -> Result<Vec<RingChunkInfo>> {
        Ok(Ring::chunks(self))
    }
    fn stats(&self) -> Result<RingStats> {
        Ok(Ring::stats(self))
    }
    fn ledger_of(&self, run: u32) -> Result<Ledger> {
        Ok(Ring::ledger_of(self, run))
    }
    fn losses(&self) -> Result<Vec<String>> {
        Ok(Ring::losses(self))
    }
    fn now(&self) -> Result<Option<u64>> {
        Ok(Ring::now(self))
    }
}

impl KeepsTicks for RingPin {
    fn id(&self) -> u64 {
        RingPin::id(self)
    }
    fn move_to(&mut self, begin: u64, end: u64, duration: Duration) -> Result<()> {
        RingPin::move_to(self, begin, end, duration)
    }
}

impl RingWindow for Window {
    fn sources(&self) -> usize {
        self.sources.len()
    }
    fn source(&self, at: usize) -> SourceId {
        self.sources[at].source
    }
    fn coverage(&self, at: usize) -> &[Stretch] {
        &self.sources[at].coverage
    }
    fn first(&self, at: usize) -> Option<u64> {
        self.sources[at].first
    }
    fn fragment(&self, at: usize, number: usize) -> Option<RingView<'_>> {
        let fragment = self.sources[at].fragment(number)?;
        let super::RingFragment { timestamp, span, run, status, checksum, bytes, .. } = fragment;
        Some(RingView { timestamp, span, run, status, checksum, bytes })
    }
    fn verify(&self, at: usize, number: usize) -> Result<()> {
        self.sources[at].fragment(number).map_or(Ok(()), |fragment| fragment.verify())
    }
}
