//! A client and a server that look like a store, for the store's own tests: every call goes through frames and a socket.
//!
//! ```text
//! test ──▶ Store (here) ──▶ forebay-client ──▶ Unix socket ──▶ forebay-server ──▶ forebay-store
//!                └ what only its process has (its clock's ticks, listeners, files) ──────┘
//! ```
//!
//! *Not here*: meaning. Each method is one call of the client.
#![expect(clippy::expect_used, reason = "for tests alone: a server that does not answer ends them")]

use engine::core::{Attributes, Bounds, Key, KeySchema, Keyspace, Ledger, Primary, Result, RunConfig, Token};
use forebay_client::{Client, Options};
use forebay_server::{Endpoint, Server, ServerConfig};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use engine::{
    Accept, Arrival, Arrivals, CheckReport, Config, ConflictInfo, DebugInfo, EventInfo, FlushPolicy, GetAny, HoldInfo,
    InhibitClass, InhibitListener, InhibitState, InhibitWatch, LedgerBy, LedgerRow, OpenEvent, ProducerStatus,
    PutOptions, PutOutcome, ResultFragment, RunState, RunStatus, RunSummary, Sampling, SegmentInfo, SourceState,
    SourceStatus, Sources, Stats, WarmDevice, Why, check, core,
};
pub use forebay_client::{Event, Fragment, Lease, Range, Reservation, Sample, Sampler, Watch};

/// What the store's tests take from `forebay_store::measure`.
pub mod measure {
    /// Demotes everything that is on the hot level.
    pub fn demote(store: &crate::Store) {
        engine::measure::demote(&store.host.embedded);
    }
}

/// A store with its server.
struct Host {
    /// `None` once it is being stopped.
    server: Option<Server>,
    embedded: engine::Store,
}

impl Drop for Host {
    fn drop(&mut self) {
        // Sessions hold the store: first they end.
        self.server = None;
    }
}

/// A store on a server of its own.
#[derive(Clone)]
pub struct Store {
    client: Client,
    host: Arc<Host>,
    endpoint: String,
}

impl Store {
    fn serve(embedded: engine::Store) -> Result<Store> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("forebay-conformance-{}-{number}", std::process::id()));
        let config = ServerConfig { native: vec![Endpoint::Unix(socket)], threads: 1, ..ServerConfig::default() };
        let server = Server::start(vec![embedded.clone()], config)?;
        let endpoint = server.endpoints().next().expect("a listener").1.to_string();
        let client = Client::connect(&endpoint, options("test"))?;
        Ok(Store { client, host: Arc::new(Host { server: Some(server), embedded }), endpoint })
    }

    /// A new store.
    pub fn create(dir: &Path, keyspace: &Keyspace, config: Config) -> Result<Store> {
        Store::serve(engine::Store::create(dir, keyspace, config)?)
    }

    /// The store that is there.
    pub fn open(dir: &Path, config: Config) -> Result<Store> {
        Store::serve(engine::Store::open(dir, config)?)
    }

    /// The same store under another name of a client.
    #[must_use]
    pub fn named(&self, name: &str) -> Store {
        let client = Client::connect(&self.endpoint, options(name)).expect("another connection");
        Store { client, ..self.clone() }
    }
}

/// Leases run out by the clock of the test, not by that of a thread.
fn options(name: &str) -> Options {
    Options { name: name.to_owned(), extend_leases: false, ..Options::default() }
}

/// What only the process of the store has.
impl Store {
    /// Ends the store, not the server: its answers say so.
    pub fn close(&self) -> Result<()> {
        self.host.embedded.close()
    }

    /// Time passed.
    pub fn tick(&self) {
        self.host.embedded.tick();
    }

    /// Follows inhibit.
    pub fn watch_inhibit(&self) -> InhibitWatch {
        self.host.embedded.watch_inhibit()
    }

    /// Memory for a fragment: of the client, which does not hear that the store is closed before the commit.
    pub fn reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Reservation> {
        self.client.get(key)?;
        self.client.reserve(key, length, options)
    }
}

macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        /// Calls whose answer may be an error.
        impl Store {
            $(
                /// As the store's.
                pub fn $name(&self, $($argument: $type),*) -> Result<$answer> {
                    self.client.$name($($argument),*)
                }
            )*
        }
    };
}

calls! {
    put(key: &Key, value: &[u8], options: &PutOptions<'_>) -> PutOutcome;
    get(key: &Key) -> Option<Fragment>;
    get_many(keys: &[Key]) -> Vec<Option<Fragment>>;
    get_event(primary: &Primary, sources: &Sources) -> Option<Event>;
    events(bounds: &Bounds) -> Vec<EventInfo>;
    update(key: &Key, value: &[u8], token: Option<&Token>) -> u16;
    update_attributes(primary: &Primary, attributes: &Attributes, token: Option<&Token>) -> ();
    remove(key: &Key) -> bool;
    remove_event(primary: &Primary) -> bool;
    remove_range(bounds: &Bounds) -> u64;
    open_event(primary: &Primary, how: &OpenEvent<'_>) -> PutOutcome;
    seal(primary: &Primary) -> bool;
    release(primary: &Primary) -> bool;
    release_range(bounds: &Bounds, stream: Option<&str>, after: Option<&Primary>) -> core::Released;
    replay(primary: &Primary) -> bool;
    get_any(request: &GetAny) -> Vec<Lease>;
    lease(primary: &Primary, duration: Option<Duration>) -> Option<Lease>;
    extend(primary: &Primary, token: &Token, duration: Duration) -> ();
    accept(primary: &Primary, token: &Token, streams: &[&str]) -> ();
    accept_into(primary: &Primary, token: &Token, accept: &Accept<'_>) -> ();
    reject(primary: &Primary, token: &Token) -> ();
    pass(primary: &Primary, token: &Token, next_stage: &str, results: &[ResultFragment<'_>]) -> ();
    requeue(primary: &Primary, token: &Token) -> ();
    run_open(run: u64, config: &RunConfig) -> ();
    run_pause(run: u64) -> ();
    run_resume(run: u64) -> ();
    run_stop(run: u64) -> ();
    run_close(run: u64) -> RunSummary;
    run_summary(run: u64) -> RunSummary;
    ledger(run: u64) -> Ledger;
    ledger_by(run: u64, by: LedgerBy) -> Vec<LedgerRow>;
    sources(run: u64) -> Vec<SourceStatus>;
    mask(run: u64, source: &core::Source, from: Option<&Primary>) -> ();
    unmask(run: u64, source: &core::Source, from: Option<&Primary>) -> ();
    prescale(run: u64, name: &str, factor: core::PrescaleFactor, from: Option<&Primary>) -> ();
    hold(run: Option<u64>, conditions: &[&str]) -> u32;
    release_hold(id: u32) -> bool;
    why(key: &Key) -> Why;
    outputs(primary: &Primary) -> Option<Vec<(String, Sources)>>;
    watch(run: u64) -> Watch;
    sampler(sampling: &Sampling) -> Sampler;
}

macro_rules! looks {
    ($($name:ident -> $answer:ty;)*) => {
        /// Calls that have no error where the store is in the same process.
        impl Store {
            $(
                /// As the store's.
                pub fn $name(&self) -> $answer {
                    self.client.$name().expect("the server answers")
                }
            )*
        }
    };
}

looks! {
    runs -> Vec<RunStatus>;
    holds -> Vec<HoldInfo>;
    debug_events -> Vec<DebugInfo>;
    conflicts -> Vec<ConflictInfo>;
    stats -> Stats;
    segments -> Vec<SegmentInfo>;
    losses -> Vec<String>;
}

impl Store {
    /// As the store's.
    pub fn range(&self, bounds: &Bounds) -> Range {
        self.client.range(bounds)
    }

    /// The keyspace, as the server said it.
    pub fn keyspace(&self) -> &Keyspace {
        self.client.keyspace()
    }

    /// Its key schema.
    pub fn schema(&self) -> &KeySchema {
        self.client.schema()
    }
}

/// A producer that reports its figures to the server at once, because tests look at them.
pub struct Producer {
    producer: forebay_client::Producer,
}

impl Store {
    /// As the store's.
    pub fn producer(&self, run: u64, name: &str) -> Result<Producer> {
        Ok(Producer { producer: self.client.producer(run, name)? })
    }
}

impl Producer {
    /// As the store's.
    pub fn offered(&self, bytes: u64) {
        self.producer.offered(bytes);
        self.producer.count().ok();
    }

    /// As the store's.
    pub fn announced(&self, events: u64) {
        self.producer.announced(events);
        self.producer.count().ok();
    }

    /// As the store's.
    pub fn report(&self) -> Result<()> {
        self.producer.report()
    }

    /// As the store's.
    pub fn finish(self) -> Result<()> {
        self.producer.finish()
    }
}
