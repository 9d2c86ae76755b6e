//! A store that is in this process or on a server, chosen while the program runs: both are an [`EventStore`], of two types.
//!
//! An enum and not an object: fragments are guards in the one and bytes in the other, and the call that reads them decides by
//! one comparison.

use crate::{
    Accept, Bounds, CountedProducer, Event, EventStore, GetAny, Key, Keyspace, Lease, LeaseHolder, Ledger, Level,
    OpenEvent, Primary, PutOptions, PutOutcome, ReadFragment, Result, ResultFragment, RunConfig, RunStatus, RunSummary,
    Sources, Stats, Token,
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

/// Does the same with whichever it is.
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
