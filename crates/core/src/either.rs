//! A store that is in this process or on a server, chosen while the program runs: both are an [`EventStore`], of two types.
//!
//! An enum and not an object: fragments are guards in the one and bytes in the other, and the call that reads them decides by
//! one comparison.

use crate::{
    Accept, Attributes, Bounds, Claim, ClaimRequest, ClaimedEvent, ConflictInfo, ContainerStatus, CountedProducer,
    DebugInfo, Event, EventInfo, EventStore, FollowRun, GetAny, HoldInfo, Key, Keyspace, Lease, LeaseHolder, Ledger,
    LedgerBy, LedgerRow, Level, Marks, MovedStore, OpenEvent, OperatedStore, PrescaleFactor, Primary, PutOptions,
    PutOutcome, ReadFragment, Released, Result, ResultFragment, RunConfig, RunStatus, RunSummary, Sample, SampleEvents,
    Sampling, SegmentInfo, Source, SourceStatus, Sources, Stats, Token, Why,
};
use std::ops::Deref;
use std::time::Duration;

/// One of two: a store, or what comes from it.
#[derive(Clone, Debug)]
pub enum Either<H, T> {
    /// In this process.
    Here(H),
    /// On a server.
    There(T),
}

use Either::{Here, There};

/// Does the same with either one.
macro_rules! with {
    ($self:ident, $one:ident => $what:expr) => {
        match $self {
            Here($one) => $what,
            There($one) => $what,
        }
    };
}

fn event<F, G>(event: Event<F>, wrap: fn(F) -> G) -> Event<G> {
    let Event { primary, state, stage, attributes, streams, fragments, missing, sources } = event;
    let fragments = fragments.into_iter().map(wrap).collect();
    Event { primary, state, stage, attributes, streams, fragments, missing, sources }
}

fn lease<F, G, H, I>(lease: Lease<F, H>, wrap: fn(F) -> G, hold: fn(H) -> I) -> Lease<G, I> {
    Lease {
        holder: hold(lease.holder),
        primary: lease.primary,
        token: lease.token,
        attributes: lease.attributes,
        fragments: lease.fragments.into_iter().map(wrap).collect(),
        missing: lease.missing,
        sources: lease.sources,
        stage: lease.stage,
        delivery: lease.delivery,
        event_fragments: lease.event_fragments,
        event_bytes: lease.event_bytes,
    }
}

impl<H: Deref<Target = [u8]>, T: Deref<Target = [u8]>> Deref for Either<H, T> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        with!(self, one => one)
    }
}

impl<H: ReadFragment, T: ReadFragment> ReadFragment for Either<H, T> {
    fn key(&self) -> Key {
        with!(self, one => one.key())
    }
    fn status(&self) -> u32 {
        with!(self, one => one.status())
    }
    fn version(&self) -> u16 {
        with!(self, one => one.version())
    }
    fn level(&self) -> Level {
        with!(self, one => one.level())
    }
    fn checksum(&self) -> u32 {
        with!(self, one => one.checksum())
    }
    fn verify(&self) -> Result<()> {
        with!(self, one => one.verify())
    }
}

impl<H: CountedProducer, T: CountedProducer> CountedProducer for Either<H, T> {
    fn offered(&self, bytes: u64) {
        with!(self, one => one.offered(bytes));
    }
    fn announced(&self, events: u64) {
        with!(self, one => one.announced(events));
    }
    fn finish(self) -> Result<()> {
        with!(self, one => one.finish())
    }
}

impl<F, G, H: Iterator<Item = Result<F>>, T: Iterator<Item = Result<G>>> Iterator for Either<H, T> {
    type Item = Result<Either<F, G>>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Here(one) => Some(one.next()?.map(Here)),
            There(one) => Some(one.next()?.map(There)),
        }
    }
}

impl<H: LeaseHolder, T: LeaseHolder> LeaseHolder for Either<H, T> {
    type Fragment = Either<H::Fragment, T::Fragment>;

    fn lease_get(&self, primary: &Primary, token: &Token, sources: &Sources) -> Result<Vec<Self::Fragment>> {
        Ok(match self {
            Here(one) => one.lease_get(primary, token, sources)?.into_iter().map(Here).collect(),
            There(one) => one.lease_get(primary, token, sources)?.into_iter().map(There).collect(),
        })
    }
    fn extend(&self, primary: &Primary, token: &Token, duration: Duration) -> Result<()> {
        with!(self, one => one.extend(primary, token, duration))
    }
    fn accept(&self, primary: &Primary, token: &Token, streams: &[&str]) -> Result<()> {
        with!(self, one => one.accept(primary, token, streams))
    }
    fn accept_into(&self, primary: &Primary, token: &Token, accept: &Accept<'_>) -> Result<()> {
        with!(self, one => one.accept_into(primary, token, accept))
    }
    fn reject(&self, primary: &Primary, token: &Token) -> Result<()> {
        with!(self, one => one.reject(primary, token))
    }
    fn pass(&self, primary: &Primary, token: &Token, stage: &str, results: &[ResultFragment<'_>]) -> Result<()> {
        with!(self, one => one.pass(primary, token, stage, results))
    }
    fn requeue(&self, primary: &Primary, token: &Token) -> Result<()> {
        with!(self, one => one.requeue(primary, token))
    }
    fn fail(&self, primary: &Primary, token: &Token, reason: &str) -> Result<()> {
        with!(self, one => one.fail(primary, token, reason))
    }
}

impl<H: EventStore, T: EventStore> EventStore for Either<H, T> {
    type Fragment = Either<H::Fragment, T::Fragment>;
    type Holder = Either<H::Holder, T::Holder>;
    type Producer = Either<H::Producer, T::Producer>;
    type Range = Either<H::Range, T::Range>;

    fn keyspace(&self) -> &Keyspace {
        with!(self, one => one.keyspace())
    }
    fn put(&self, key: &Key, value: &[u8], options: &PutOptions<'_>) -> Result<PutOutcome> {
        with!(self, one => one.put(key, value, options))
    }
    fn put_many(&self, puts: &[(Key, &[u8], PutOptions<'_>)]) -> Result<Vec<Result<PutOutcome>>> {
        with!(self, one => one.put_many(puts))
    }
    fn get(&self, key: &Key) -> Result<Option<Self::Fragment>> {
        Ok(match self {
            Here(one) => one.get(key)?.map(Here),
            There(one) => one.get(key)?.map(There),
        })
    }
    fn get_event(&self, primary: &Primary, sources: &Sources) -> Result<Option<Event<Self::Fragment>>> {
        Ok(match self {
            Here(one) => one.get_event(primary, sources)?.map(|found| event(found, Here)),
            There(one) => one.get_event(primary, sources)?.map(|found| event(found, There)),
        })
    }
    fn range(&self, bounds: &Bounds) -> Self::Range {
        match self {
            Here(one) => Here(one.range(bounds)),
            There(one) => There(one.range(bounds)),
        }
    }
    fn update(&self, key: &Key, value: &[u8], token: Option<&Token>) -> Result<u16> {
        with!(self, one => one.update(key, value, token))
    }
    fn remove(&self, key: &Key) -> Result<bool> {
        with!(self, one => one.remove(key))
    }
    fn remove_event(&self, primary: &Primary) -> Result<bool> {
        with!(self, one => one.remove_event(primary))
    }
    fn remove_range(&self, bounds: &Bounds) -> Result<u64> {
        with!(self, one => one.remove_range(bounds))
    }
    fn open_event(&self, primary: &Primary, how: &OpenEvent<'_>) -> Result<PutOutcome> {
        with!(self, one => one.open_event(primary, how))
    }
    fn seal(&self, primary: &Primary) -> Result<bool> {
        with!(self, one => one.seal(primary))
    }
    fn release(&self, primary: &Primary) -> Result<bool> {
        with!(self, one => one.release(primary))
    }
    fn get_any(&self, request: &GetAny) -> Result<Vec<Lease<Self::Fragment, Self::Holder>>> {
        Ok(match self {
            Here(one) => one.get_any(request)?.into_iter().map(|found| lease(found, Here, Here)).collect(),
            There(one) => one.get_any(request)?.into_iter().map(|found| lease(found, There, There)).collect(),
        })
    }
    fn lease(
        &self,
        primary: &Primary,
        duration: Option<Duration>,
    ) -> Result<Option<Lease<Self::Fragment, Self::Holder>>> {
        Ok(match self {
            Here(one) => one.lease(primary, duration)?.map(|found| lease(found, Here, Here)),
            There(one) => one.lease(primary, duration)?.map(|found| lease(found, There, There)),
        })
    }
    fn run_open(&self, run: u64, config: &RunConfig) -> Result<()> {
        with!(self, one => one.run_open(run, config))
    }
    fn run_stop(&self, run: u64) -> Result<()> {
        with!(self, one => one.run_stop(run))
    }
    fn run_close(&self, run: u64) -> Result<RunSummary> {
        with!(self, one => one.run_close(run))
    }
    fn runs(&self) -> Result<Vec<RunStatus>> {
        with!(self, one => one.runs())
    }
    fn ledger(&self, run: u64) -> Result<Ledger> {
        with!(self, one => one.ledger(run))
    }
    fn stats(&self) -> Result<Stats> {
        with!(self, one => one.stats())
    }
    fn producer(&self, run: u64, name: &str) -> Result<Self::Producer> {
        Ok(match self {
            Here(one) => Here(one.producer(run, name)?),
            There(one) => There(one.producer(run, name)?),
        })
    }
}

impl<H: FollowRun, T: FollowRun> FollowRun for Either<H, T> {
    fn next(&mut self, wait: Duration) -> Result<Option<RunStatus>> {
        with!(self, one => one.next(wait))
    }
}

fn sample<F, G>(sample: Sample<F>, wrap: fn(F) -> G) -> Sample<G> {
    Sample {
        primary: sample.primary,
        state: sample.state,
        stage: sample.stage,
        attributes: sample.attributes,
        fragments: sample.fragments.into_iter().map(wrap).collect(),
        sources: sample.sources,
        left_out: sample.left_out,
        event_fragments: sample.event_fragments,
        event_bytes: sample.event_bytes,
    }
}

impl<H: SampleEvents, T: SampleEvents> SampleEvents for Either<H, T> {
    type Fragment = Either<H::Fragment, T::Fragment>;

    fn next(&mut self, wait: Duration) -> Result<Option<Sample<Self::Fragment>>> {
        Ok(match self {
            Here(one) => one.next(wait)?.map(|found| sample(found, Here)),
            There(one) => one.next(wait)?.map(|found| sample(found, There)),
        })
    }
}

impl<H: MovedStore, T: MovedStore> MovedStore for Either<H, T> {
    fn claim(&self, request: &ClaimRequest) -> Result<Option<Claim>> {
        with!(self, one => one.claim(request))
    }
    fn claimed(&self, token: &Token, after: u64) -> Result<Vec<ClaimedEvent>> {
        with!(self, one => one.claimed(token, after))
    }
    fn extend_claim(&self, token: &Token, duration: Duration) -> Result<()> {
        with!(self, one => one.extend_claim(token, duration))
    }
    fn prove(&self, token: &Token) -> Result<u64> {
        with!(self, one => one.prove(token))
    }
    fn give_back(&self, token: &Token) -> Result<()> {
        with!(self, one => one.give_back(token))
    }
}

impl<H: OperatedStore, T: OperatedStore> OperatedStore for Either<H, T> {
    type Watch = Either<H::Watch, T::Watch>;
    type Sampler = Either<H::Sampler, T::Sampler>;

    fn events(&self, bounds: &Bounds) -> Result<Vec<EventInfo>> {
        with!(self, one => one.events(bounds))
    }
    fn update_attributes(&self, primary: &Primary, attributes: &Attributes, token: Option<&Token>) -> Result<()> {
        with!(self, one => one.update_attributes(primary, attributes, token))
    }
    fn release_range(&self, bounds: &Bounds, stream: Option<&str>, after: Option<&Primary>) -> Result<Released> {
        with!(self, one => one.release_range(bounds, stream, after))
    }
    fn replay(&self, primary: &Primary) -> Result<bool> {
        with!(self, one => one.replay(primary))
    }
    fn outputs(&self, primary: &Primary) -> Result<Option<Vec<(String, Sources)>>> {
        with!(self, one => one.outputs(primary))
    }
    fn why(&self, key: &Key) -> Result<Why> {
        with!(self, one => one.why(key))
    }
    fn run_pause(&self, run: u64) -> Result<()> {
        with!(self, one => one.run_pause(run))
    }
    fn run_resume(&self, run: u64) -> Result<()> {
        with!(self, one => one.run_resume(run))
    }
    fn run_summary(&self, run: u64) -> Result<RunSummary> {
        with!(self, one => one.run_summary(run))
    }
    fn ledger_by(&self, run: u64, by: LedgerBy) -> Result<Vec<LedgerRow>> {
        with!(self, one => one.ledger_by(run, by))
    }
    fn sources(&self, run: u64) -> Result<Vec<SourceStatus>> {
        with!(self, one => one.sources(run))
    }
    fn mask(&self, run: u64, source: &Source, from: Option<&Primary>) -> Result<()> {
        with!(self, one => one.mask(run, source, from))
    }
    fn unmask(&self, run: u64, source: &Source, from: Option<&Primary>) -> Result<()> {
        with!(self, one => one.unmask(run, source, from))
    }
    fn prescale(&self, run: u64, name: &str, factor: PrescaleFactor, from: Option<&Primary>) -> Result<()> {
        with!(self, one => one.prescale(run, name, factor, from))
    }
    fn hold(&self, run: Option<u64>, conditions: &[&str]) -> Result<u32> {
        with!(self, one => one.hold(run, conditions))
    }
    fn release_hold(&self, id: u32) -> Result<bool> {
        with!(self, one => one.release_hold(id))
    }
    fn drain_device(&self, device: u32) -> Result<()> {
        with!(self, one => one.drain_device(device))
    }
    fn undo_drain(&self, device: u32) -> Result<()> {
        with!(self, one => one.undo_drain(device))
    }
    fn exchange_device(&self, device: u32, to: &std::path::Path) -> Result<()> {
        with!(self, one => one.exchange_device(device, to))
    }
    fn add_device(&self, to: &std::path::Path, bytes: Option<u64>) -> Result<()> {
        with!(self, one => one.add_device(to, bytes))
    }
    fn holds(&self) -> Result<Vec<HoldInfo>> {
        with!(self, one => one.holds())
    }
    fn debug_events(&self) -> Result<Vec<DebugInfo>> {
        with!(self, one => one.debug_events())
    }
    fn conflicts(&self) -> Result<Vec<ConflictInfo>> {
        with!(self, one => one.conflicts())
    }
    fn losses(&self) -> Result<Vec<String>> {
        with!(self, one => one.losses())
    }
    fn segments(&self) -> Result<Vec<SegmentInfo>> {
        with!(self, one => one.segments())
    }
    fn containers(&self) -> Result<Vec<ContainerStatus>> {
        with!(self, one => one.containers())
    }
    fn marks(&self) -> Result<Marks> {
        with!(self, one => one.marks())
    }
    fn watch(&self, run: u64) -> Result<Self::Watch> {
        Ok(match self {
            Here(one) => Here(one.watch(run)?),
            There(one) => There(one.watch(run)?),
        })
    }
    fn sampler(&self, sampling: &Sampling) -> Result<Self::Sampler> {
        Ok(match self {
            Here(one) => Here(one.sampler(sampling)?),
            There(one) => There(one.sampler(sampling)?),
        })
    }
}
