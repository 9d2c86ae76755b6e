//! The calls of readout, filters and archive: one trait for the embedded store and the client.
//!
//! *Not here*: reservations, guards and what else only the process of the store can have; what experts and monitors do, which
//! both have under the same names.

use crate::{
    Bounds, Event, GetAny, Key, Keyspace, Lease, LeaseHolder, Ledger, OpenEvent, Primary, PutOptions, PutOutcome,
    Result, RunConfig, RunStatus, RunSummary, Sources, Stats, Token,
};
use std::ops::Deref;
use std::time::Duration;

/// Bytes of a fragment, and what is known of it.
pub trait ReadFragment: Deref<Target = [u8]> + Send {
    /// The fragment's key.
    fn key(&self) -> Key;
    /// The producer's status bits.
    fn status(&self) -> u32;
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

    /// The keyspace.
    fn keyspace(&self) -> &Keyspace;

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
    fn range(&self, bounds: &Bounds) -> impl Iterator<Item = Result<Self::Fragment>>;
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

/// Implements the traits of this module by the methods of the same names.
#[macro_export]
#[doc(hidden)]
macro_rules! implement_event_store {
    ($store:ty, $fragment:ty, $holder:ty, $producer:ty, |$one:ident| $runs:expr, $stats:expr) => {
        impl $crate::ReadFragment for $fragment {
            fn key(&self) -> $crate::Key {
                self.key()
            }
            fn status(&self) -> u32 {
                self.status()
            }
            fn checksum(&self) -> u32 {
                self.checksum()
            }
            fn verify(&self) -> $crate::Result<()> {
                self.verify()
            }
        }

        impl $crate::CountedProducer for $producer {
            fn offered(&self, bytes: u64) {
                self.offered(bytes);
            }
            fn announced(&self, events: u64) {
                self.announced(events);
            }
            fn finish(self) -> $crate::Result<()> {
                self.finish()
            }
        }

        impl $crate::EventStore for $store {
            type Fragment = $fragment;
            type Holder = $holder;
            type Producer = $producer;

            fn keyspace(&self) -> &$crate::Keyspace {
                self.keyspace()
            }
            fn put(
                &self,
                key: &$crate::Key,
                value: &[u8],
                options: &$crate::PutOptions<'_>,
            ) -> $crate::Result<$crate::PutOutcome> {
                self.put(key, value, options)
            }
            fn put_many(
                &self,
                puts: &[($crate::Key, &[u8], $crate::PutOptions<'_>)],
            ) -> $crate::Result<Vec<$crate::Result<$crate::PutOutcome>>> {
                self.put_many(puts)
            }
            fn get(&self, key: &$crate::Key) -> $crate::Result<Option<$fragment>> {
                self.get(key)
            }
            fn get_event(
                &self,
                primary: &$crate::Primary,
                sources: &$crate::Sources,
            ) -> $crate::Result<Option<$crate::Event<$fragment>>> {
                self.get_event(primary, sources)
            }
            fn range(&self, bounds: &$crate::Bounds) -> impl Iterator<Item = $crate::Result<$fragment>> {
                self.range(bounds)
            }
            fn update(&self, key: &$crate::Key, value: &[u8], token: Option<&$crate::Token>) -> $crate::Result<u16> {
                self.update(key, value, token)
            }
            fn remove(&self, key: &$crate::Key) -> $crate::Result<bool> {
                self.remove(key)
            }
            fn remove_event(&self, primary: &$crate::Primary) -> $crate::Result<bool> {
                self.remove_event(primary)
            }
            fn remove_range(&self, bounds: &$crate::Bounds) -> $crate::Result<u64> {
                self.remove_range(bounds)
            }
            fn open_event(
                &self,
                primary: &$crate::Primary,
                how: &$crate::OpenEvent<'_>,
            ) -> $crate::Result<$crate::PutOutcome> {
                self.open_event(primary, how)
            }
            fn seal(&self, primary: &$crate::Primary) -> $crate::Result<bool> {
                self.seal(primary)
            }
            fn release(&self, primary: &$crate::Primary) -> $crate::Result<bool> {
                self.release(primary)
            }
            fn get_any(&self, request: &$crate::GetAny) -> $crate::Result<Vec<$crate::Lease<$fragment, $holder>>> {
                self.get_any(request)
            }
            fn lease(
                &self,
                primary: &$crate::Primary,
                duration: Option<std::time::Duration>,
            ) -> $crate::Result<Option<$crate::Lease<$fragment, $holder>>> {
                self.lease(primary, duration)
            }
            fn run_open(&self, run: u64, config: &$crate::RunConfig) -> $crate::Result<()> {
                self.run_open(run, config)
            }
            fn run_stop(&self, run: u64) -> $crate::Result<()> {
                self.run_stop(run)
            }
            fn run_close(&self, run: u64) -> $crate::Result<$crate::RunSummary> {
                self.run_close(run)
            }
            fn runs(&self) -> $crate::Result<Vec<$crate::RunStatus>> {
                let $one = self;
                $runs
            }
            fn ledger(&self, run: u64) -> $crate::Result<$crate::Ledger> {
                self.ledger(run)
            }
            fn stats(&self) -> $crate::Result<$crate::Stats> {
                let $one = self;
                $stats
            }
            fn producer(&self, run: u64, name: &str) -> $crate::Result<$producer> {
                self.producer(run, name)
            }
        }
    };
}
