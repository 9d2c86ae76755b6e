//! The store as a server sees it: each method of the traits is the store's own method of the same name.
//!
//! Those on the way of each fragment are inlined: a session over the trait calls what it would call without it.

use crate::{
    ConflictInfo, DebugInfo, EventInfo, Fragment, HoldInfo, LedgerBy, LedgerRow, Marks, Producer, PutOptions,
    PutOutcome, Reservation, RunStatus, Sample, Sampler, Sampling, SegmentInfo, SourceStatus, Sources, Store, Watch,
    Why,
};
use forebay_core::{
    Attributes, Bounds, ContainerStatus, FollowRun, Key, Level, OperatedStore, Primary, ReportingProducer,
    ReserveFragment, Result, SampleEvents, ServedStore, Token,
};
use std::task::Waker;
use std::time::Duration;

impl ReserveFragment for Reservation {
    #[inline]
    fn commit_may_wait(&self) -> bool {
        self.commit_may_wait()
    }
    #[inline]
    fn commit(self) -> Result<PutOutcome> {
        self.commit()
    }
    #[inline]
    fn commit_checked(self, checksum: u32) -> Result<PutOutcome> {
        self.commit_checked(checksum)
    }
}

impl ReportingProducer for Producer {
    fn offered_many(&self, fragments: u64, bytes: u64) {
        self.offered_many(fragments, bytes);
    }
    fn report(&self) -> Result<()> {
        self.report()
    }
}

impl FollowRun for Watch {
    fn next(&mut self, wait: Duration) -> Result<Option<RunStatus>> {
        Ok(self.next(wait))
    }
}

impl SampleEvents for Sampler {
    type Fragment = Fragment;

    fn next(&mut self, wait: Duration) -> Result<Option<Sample>> {
        self.next(wait)
    }
}

impl OperatedStore for Store {
    type Watch = Watch;
    type Sampler = Sampler;

    fn events(&self, bounds: &Bounds) -> Result<Vec<EventInfo>> {
        self.events(bounds)
    }
    fn update_attributes(&self, primary: &Primary, attributes: &Attributes, token: Option<&Token>) -> Result<()> {
        self.update_attributes(primary, attributes, token)
    }
    fn replay(&self, primary: &Primary) -> Result<bool> {
        self.replay(primary)
    }
    fn outputs(&self, primary: &Primary) -> Result<Option<Vec<(String, Sources)>>> {
        self.outputs(primary)
    }
    fn why(&self, key: &Key) -> Result<Why> {
        self.why(key)
    }
    fn run_pause(&self, run: u64) -> Result<()> {
        self.run_pause(run)
    }
    fn run_resume(&self, run: u64) -> Result<()> {
        self.run_resume(run)
    }
    fn ledger_by(&self, run: u64, by: LedgerBy) -> Result<Vec<LedgerRow>> {
        self.ledger_by(run, by)
    }
    fn sources(&self, run: u64) -> Result<Vec<SourceStatus>> {
        self.sources(run)
    }
    fn mask(&self, run: u64, source: &[u8], from: Option<&Primary>) -> Result<()> {
        self.mask(run, source, from)
    }
    fn unmask(&self, run: u64, source: &[u8], from: Option<&Primary>) -> Result<()> {
        self.unmask(run, source, from)
    }
    fn hold(&self, run: Option<u64>, conditions: &[&str]) -> Result<u32> {
        self.hold(run, conditions)
    }
    fn release_hold(&self, id: u32) -> Result<bool> {
        self.release_hold(id)
    }
    fn holds(&self) -> Result<Vec<HoldInfo>> {
        Ok(self.holds())
    }
    fn debug_events(&self) -> Result<Vec<DebugInfo>> {
        Ok(self.debug_events())
    }
    fn conflicts(&self) -> Result<Vec<ConflictInfo>> {
        Ok(self.conflicts())
    }
    fn losses(&self) -> Result<Vec<String>> {
        Ok(self.losses())
    }
    fn segments(&self) -> Result<Vec<SegmentInfo>> {
        Ok(self.segments())
    }
    fn containers(&self) -> Result<Vec<ContainerStatus>> {
        Ok(self.containers())
    }
    fn marks(&self) -> Result<Marks> {
        Ok(self.marks())
    }
    fn watch(&self, run: u64) -> Result<Watch> {
        self.watch(run)
    }
    fn sampler(&self, sampling: &Sampling) -> Result<Sampler> {
        self.sampler(sampling)
    }
}

impl ServedStore for Store {
    type Reservation = Reservation;

    fn named(&self, holder: &str) -> Store {
        self.named(holder)
    }
    #[inline]
    fn holder(&self) -> &Store {
        self
    }
    fn boot(&self) -> u32 {
        self.boot()
    }
    fn lease_time(&self) -> Duration {
        self.lease_time()
    }
    fn has_warm(&self) -> bool {
        self.has_warm()
    }
    #[inline]
    fn prefetch(&self, keys: &[Key]) {
        self.prefetch(keys);
    }
    #[inline]
    fn try_put(
        &self,
        key: &Key,
        value: &[u8],
        options: &PutOptions<'_>,
        checksum: Option<u32>,
    ) -> Result<Option<PutOutcome>> {
        self.try_put(key, value, options, checksum)
    }
    #[inline]
    fn reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Reservation> {
        self.reserve(key, length, options)
    }
    #[inline]
    fn try_reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Option<Reservation>> {
        self.try_reserve(key, length, options)
    }
    #[inline]
    fn may_wait(&self, primary: &Primary, rest: Option<&[u8]>) -> bool {
        self.may_wait(primary, rest)
    }
    #[inline]
    fn verdict_may_wait(&self, primary: &Primary) -> bool {
        self.verdict_may_wait(primary)
    }
    #[inline]
    fn get_any_may_wait(&self, level: Option<Level>) -> bool {
        self.get_any_may_wait(level)
    }
    #[inline]
    fn wake_when_ready(&self, waker: &Waker) {
        self.wake_when_ready(waker);
    }
    fn forget_waker(&self, waker: &Waker) {
        self.forget_waker(waker);
    }
}
