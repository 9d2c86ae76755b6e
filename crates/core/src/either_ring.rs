//! A ring that is in this process or on a server, chosen while the program runs.

use crate::Either::{self, Here, There};
use crate::{
    KeepsTicks, Ledger, Result, RingChunkInfo, RingKeyspace, RingPinStatus, RingSourceStatus, RingSources, RingStats,
    RingStore, RingView, RingWindow, SourceId, Stretch,
};
use std::time::Duration;

/// Does the same with whichever it is.
macro_rules! with {
    ($self:ident, $one:ident => $what:expr) => {
        match $self {
            Here($one) => $what,
            There($one) => $what,
        }
    };
}

impl<H: RingStore, T: RingStore> RingStore for Either<H, T> {
    type Window = Either<H::Window, T::Window>;
    type Pin = Either<H::Pin, T::Pin>;

    fn keyspace(&self) -> &RingKeyspace {
        with!(self, one => one.keyspace())
    }
    fn window(&self, begin: u64, end: u64, sources: &RingSources, wait: Duration) -> Result<Self::Window> {
        match self {
            Here(one) => one.window(begin, end, sources, wait).map(Here),
            There(one) => one.window(begin, end, sources, wait).map(There),
        }
    }
    fn pin(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<Self::Pin> {
        match self {
            Here(one) => one.pin(begin, end, sources, duration).map(Here),
            There(one) => one.pin(begin, end, sources, duration).map(There),
        }
    }
    fn keep(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<Vec<RingPinStatus>> {
        with!(self, one => one.keep(begin, end, sources, duration))
    }
    fn unpin(&self, id: u64) -> Result<bool> {
        with!(self, one => one.unpin(id))
    }
    fn sources(&self) -> Result<Vec<RingSourceStatus>> {
        with!(self, one => one.sources())
    }
    fn chunks(&self) -> Result<Vec<RingChunkInfo>> {
        with!(self, one => one.chunks())
    }
    fn stats(&self) -> Result<RingStats> {
        with!(self, one => one.stats())
    }
    fn ledger_of(&self, run: u32) -> Result<Ledger> {
        with!(self, one => one.ledger_of(run))
    }
    fn losses(&self) -> Result<Vec<String>> {
        with!(self, one => one.losses())
    }
    fn now(&self) -> Result<Option<u64>> {
        with!(self, one => one.now())
    }
    fn may_come(&self, end: u64, patience: Duration) -> Result<bool> {
        with!(self, one => one.may_come(end, patience))
    }
}

impl<H: KeepsTicks, T: KeepsTicks> KeepsTicks for Either<H, T> {
    fn id(&self) -> u64 {
        with!(self, one => one.id())
    }
    fn move_to(&mut self, begin: u64, end: u64, duration: Duration) -> Result<()> {
        with!(self, one => one.move_to(begin, end, duration))
    }
}

impl<H: RingWindow, T: RingWindow> RingWindow for Either<H, T> {
    fn sources(&self) -> usize {
        with!(self, one => one.sources())
    }
    fn source(&self, at: usize) -> SourceId {
        with!(self, one => one.source(at))
    }
    fn coverage(&self, at: usize) -> &[Stretch] {
        with!(self, one => one.coverage(at))
    }
    fn first(&self, at: usize) -> Option<u64> {
        with!(self, one => one.first(at))
    }
    fn fragment(&self, at: usize, number: usize) -> Option<RingView<'_>> {
        with!(self, one => one.fragment(at, number))
    }
    fn verify(&self, at: usize, number: usize) -> Result<()> {
        with!(self, one => one.verify(at, number))
    }
}
