//! A ring on a server as [`RingStore`], for what is written for rings of this process as well.

use crate::ring::{RingClient, RingPin, Window};
use forebay_core::{
    KeepsTicks, Ledger, Result, RingChunkInfo, RingKeyspace, RingPinStatus, RingSourceStatus, RingSources, RingStats,
    RingStore, RingView, RingWindow, SourceId, Stretch,
};
use std::time::Duration;

impl RingStore for RingClient {
    type Window = Window;
    type Pin = RingPin;

    fn keyspace(&self) -> &RingKeyspace {
        RingClient::keyspace(self)
    }
    fn window(&self, begin: u64, end: u64, sources: &RingSources, wait: Duration) -> Result<Window> {
        RingClient::window(self, begin, end, sources, wait)
    }
    fn pin(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<RingPin> {
        RingClient::pin(self, begin, end, sources, duration)
    }
    fn keep(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<Vec<RingPinStatus>> {
        Ok(vec![RingClient::keep(self, begin, end, sources, duration)?])
    }
    fn unpin(&self, id: u64) -> Result<bool> {
        RingClient::unpin(self, id)
    }
    fn sources(&self) -> Result<Vec<RingSourceStatus>> {
        RingClient::sources(self)
    }
    fn chunks(&self) -> Result<Vec<RingChunkInfo>> {
        RingClient::chunks(self)
    }
    fn stats(&self) -> Result<RingStats> {
        RingClient::stats(self)
    }
    fn ledger_of(&self, run: u32) -> Result<Ledger> {
        RingClient::ledger_of(self, run)
    }
    fn losses(&self) -> Result<Vec<String>> {
        RingClient::losses(self)
    }
    fn now(&self) -> Result<Option<u64>> {
        RingClient::now(self)
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
        let fragment = self.sources[at].fragments().get(number)?;
        Some(RingView {
            timestamp: fragment.timestamp(),
            span: fragment.span(),
            run: fragment.run(),
            status: fragment.status(),
            checksum: fragment.checksum(),
            bytes: fragment.bytes(),
        })
    }
    fn verify(&self, at: usize, number: usize) -> Result<()> {
        self.sources[at].fragments().get(number).map_or(Ok(()), crate::RingFragment::verify)
    }
}
