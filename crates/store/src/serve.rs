//! The store as a server sees it: each method of the traits is the store's own method of the same name.
//!
//! Those on the way of each fragment are inlined: a session over the trait calls what it would call without it.

use crate::{Fragment, Producer, PutOptions, PutOutcome, Reservation, RunStatus, Sample, Sampler, Store, Watch};
use forebay_core::{
    FollowRun, Key, Level, Primary, ReportingProducer, ReserveFragment, Result, SampleEvents, ServedStore,
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

forebay_core::implement_operated_store!(Store, Watch, Sampler, |answer| Ok(answer));

impl ServedStore for Store {
    type Reservation = Reservation;
    type Executor = Store;

    fn named(&self, holder: &str) -> Store {
        self.named(holder)
    }
    #[inline]
    fn executor(&self) -> &Store {
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
