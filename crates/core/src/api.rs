//! The calls of readout, filters and archive: one trait for the embedded store and the client.
//!
//! *Not here*: what experts and monitors do, and what only the process of the store can have (`serve.rs`).

use crate::{
    Bounds, Event, GetAny, Key, KeySchema, Keyspace, Lease, LeaseHolder, Ledger, Level, OpenEvent, Primary, PutOptions,
    PutOutcome, Result, RunConfig, RunStatus, RunSummary, Sources, Stats, Token,
};
use std::ops::Deref;
use std::time::Duration;

/// Bytes of a fragment, and what is known of it.
pub trait ReadFragment: Deref<Target = [u8]> + Send {
    /// The fragment's key.
    fn key(&self) -> Key;
    /// The producer's status bits.
    fn status(&self) -> u32;
    /// Version: 0 for the first one.
    fn version(&self) -> u16;
    /// The level that it was read from.
    fn level(&self) -> Level;
    /// Stored CRC-32C of the payload.
    fn checksum(&self) -> u32;
    /// Reads every byte and compares with the stored checksum.
    ///
    /// # Errors
    /// `Corrupt` where they differ.
    fn verify(&self) -> Result<()>;
}

/// A client that puts into a run and counts what it offers.
pub trait CountedProducer: Send + Sync {
    /// It offered a fragment of this many bytes, regardless of the answer.
    fn offered(&self, bytes: u64);
    /// It announced this many events.
    fn announced(&self, events: u64);
    /// The last report: its figures are final.
    ///
    /// # Errors
    /// `Closed` also where the run is closed, `Full`, `Unavailable`.
    fn finish(self) -> Result<()>;
}

/// A keyspace of events, embedded or on a server. Errors are those of the embedded store's methods of the same names (with a
/// warm level also `OutcomeUnknown`), and
/// over the network `Unavailable` and `OutcomeUnknown`.
#[expect(clippy::missing_errors_doc, reason = "one sentence above says it for all")]
pub trait EventStore: Clone + Send + Sync + 'static {
    /// Fragments as they are read.
    type Fragment: ReadFragment;
    /// The store or client that executes the calls of a lease.
    type Holder: LeaseHolder<Fragment = Self::Fragment>;
    /// Producers at work.
    type Producer: CountedProducer;
    /// Fragments in key order, as they are walked over.
    type Range: Iterator<Item = Result<Self::Fragment>>;

    /// The keyspace.
    fn keyspace(&self) -> &Keyspace;
    /// The keyspace's key schema.
    fn schema(&self) -> &KeySchema {
        &self.keyspace().schema
    }

    /// Puts a fragment.
    fn put(&self, key: &Key, value: &[u8], options: &PutOptions<'_>) -> Result<PutOutcome>;
    /// Puts many; outcomes in the same order.
    fn put_many(&self, puts: &[(Key, &[u8], PutOptions<'_>)]) -> Result<Vec<Result<PutOutcome>>> {
        Ok(puts.iter().map(|(key, value, options)| self.put(key, value, options)).collect())
    }
    /// The fragment of a key.
    fn get(&self, key: &Key) -> Result<Option<Self::Fragment>>;
    /// A live event with the fragments of the given sources.
    fn get_event(&self, primary: &Primary, sources: &Sources) -> Result<Option<Event<Self::Fragment>>>;
    /// Fragments inside bounds, in key order.
    fn range(&self, bounds: &Bounds) -> Self::Range;
    /// A new version of a fragment.
    fn update(&self, key: &Key, value: &[u8], token: Option<&Token>) -> Result<u16>;
    /// Removes a fragment.
    fn remove(&self, key: &Key) -> Result<bool>;
    /// Removes an event.
    fn remove_event(&self, primary: &Primary) -> Result<bool>;
    /// Removes what lies inside bounds.
    fn remove_range(&self, bounds: &Bounds) -> Result<u64>;
    /// Announces an event.
    fn open_event(&self, primary: &Primary, how: &OpenEvent<'_>) -> Result<PutOutcome>;
    /// An event waits for no more fragments.
    fn seal(&self, primary: &Primary) -> Result<bool>;
    /// The archive has an event.
    fn release(&self, primary: &Primary) -> Result<bool>;

    /// Leases ready events.
    fn get_any(&self, request: &GetAny) -> Result<Vec<Lease<Self::Fragment, Self::Holder>>>;
    /// Leases a named event.
    fn lease(
        &self,
        primary: &Primary,
        duration: Option<Duration>,
    ) -> Result<Option<Lease<Self::Fragment, Self::Holder>>>;

    /// Opens a run.
    fn run_open(&self, run: u64, config: &RunConfig) -> Result<()>;
    /// A run takes no new events.
    fn run_stop(&self, run: u64) -> Result<()>;
    /// The account of a run is final.
    fn run_close(&self, run: u64) -> Result<RunSummary>;
    /// All runs with their accounts.
    fn runs(&self) -> Result<Vec<RunStatus>>;
    /// The account of a run.
    fn ledger(&self, run: u64) -> Result<Ledger>;
    /// The store at a glance.
    fn stats(&self) -> Result<Stats>;
    /// Enters a producer in the books of a run.
    fn producer(&self, run: u64, name: &str) -> Result<Self::Producer>;
}

/// Implements the traits of this module by the methods of the same names. They are inlined: who calls by the trait calls the
/// method itself.
#[macro_export]
#[doc(hidden)]
macro_rules! implement_event_store {
    ($store:ty, $fragment:ty, $holder:ty, $producer:ty, $range:ty, |$one:ident| $runs:expr, $stats:expr) => {
        impl $crate::ReadFragment for $fragment {
            #[inline]
            fn key(&self) -> $crate::Key {
                self.key()
            }
            #[inline]
            fn status(&self) -> u32 {
                self.status()
            }
            #[inline]
            fn version(&self) -> u16 {
                self.version()
            }
            #[inline]
            fn level(&self) -> $crate::Level {
                self.level()
            }
            #[inline]
            fn checksum(&self) -> u32 {
                self.checksum()
            }
            #[inline]
            fn verify(&self) -> $crate::Result<()> {
                self.verify()
            }
        }

        impl $crate::CountedProducer for $producer {
            #[inline]
            fn offered(&self, bytes: u64) {
                self.offered(bytes);
            }
            #[inline]
            fn announced(&self, events: u64) {
                self.announced(events);
            }
            #[inline]
            fn finish(self) -> $crate::Result<()> {
                self.finish()
            }
        }

        $crate::implement_calls!($store, $fragment, $holder, $producer, $range, |$one| $runs, $stats);
    };
}

/// The part of [`implement_event_store`] that is about the store, where its fragments and producers are somebody else's too.
#[macro_export]
#[doc(hidden)]
macro_rules! implement_calls {
    ($store:ty, $fragment:ty, $holder:ty, $producer:ty, $range:ty, |$one:ident| $runs:expr, $stats:expr) => {
        impl $crate::EventStore for $store {
            type Fragment = $fragment;
            type Holder = $holder;
            type Producer = $producer;
            type Range = $range;

            #[inline]
            fn keyspace(&self) -> &$crate::Keyspace {
                self.keyspace()
            }
            #[inline]
            fn put(
                &self,
                key: &$crate::Key,
                value: &[u8],
                options: &$crate::PutOptions<'_>,
            ) -> $crate::Result<$crate::PutOutcome> {
                self.put(key, value, options)
            }
            #[inline]
            fn put_many(
                &self,
                puts: &[($crate::Key, &[u8], $crate::PutOptions<'_>)],
            ) -> $crate::Result<Vec<$crate::Result<$crate::PutOutcome>>> {
                self.put_many(puts)
            }
            #[inline]
            fn get(&self, key: &$crate::Key) -> $crate::Result<Option<$fragment>> {
                self.get(key)
            }
            #[inline]
            fn get_event(
                &self,
                primary: &$crate::Primary,
                sources: &$crate::Sources,
            ) -> $crate::Result<Option<$crate::Event<$fragment>>> {
                self.get_event(primary, sources)
            }
            #[inline]
            fn range(&self, bounds: &$crate::Bounds) -> $range {
                self.range(bounds)
            }
            #[inline]
            fn update(&self, key: &$crate::Key, value: &[u8], token: Option<&$crate::Token>) -> $crate::Result<u16> {
                self.update(key, value, token)
            }
            #[inline]
            fn remove(&self, key: &$crate::Key) -> $crate::Result<bool> {
                self.remove(key)
            }
            #[inline]
            fn remove_event(&self, primary: &$crate::Primary) -> $crate::Result<bool> {
                self.remove_event(primary)
            }
            #[inline]
            fn remove_range(&self, bounds: &$crate::Bounds) -> $crate::Result<u64> {
                self.remove_range(bounds)
            }
            #[inline]
            fn open_event(
                &self,
                primary: &$crate::Primary,
                how: &$crate::OpenEvent<'_>,
            ) -> $crate::Result<$crate::PutOutcome> {
                self.open_event(primary, how)
            }
            #[inline]
            fn seal(&self, primary: &$crate::Primary) -> $crate::Result<bool> {
                self.seal(primary)
            }
            #[inline]
            fn release(&self, primary: &$crate::Primary) -> $crate::Result<bool> {
                self.release(primary)
            }
            #[inline]
            fn get_any(&self, request: &$crate::GetAny) -> $crate::Result<Vec<$crate::Lease<$fragment, $holder>>> {
                self.get_any(request)
            }
            #[inline]
            fn lease(
                &self,
                primary: &$crate::Primary,
                duration: Option<std::time::Duration>,
            ) -> $crate::Result<Option<$crate::Lease<$fragment, $holder>>> {
                self.lease(primary, duration)
            }
            #[inline]
            fn run_open(&self, run: u64, config: &$crate::RunConfig) -> $crate::Result<()> {
                self.run_open(run, config)
            }
            #[inline]
            fn run_stop(&self, run: u64) -> $crate::Result<()> {
                self.run_stop(run)
            }
            #[inline]
            fn run_close(&self, run: u64) -> $crate::Result<$crate::RunSummary> {
                self.run_close(run)
            }
            #[inline]
            fn runs(&self) -> $crate::Result<Vec<$crate::RunStatus>> {
                let $one = self;
                $runs
            }
            #[inline]
            fn ledger(&self, run: u64) -> $crate::Result<$crate::Ledger> {
                self.ledger(run)
            }
            #[inline]
            fn stats(&self) -> $crate::Result<$crate::Stats> {
                let $one = self;
                $stats
            }
            #[inline]
            fn producer(&self, run: u64, name: &str) -> $crate::Result<$producer> {
                self.producer(run, name)
            }
        }
    };
}
