//! A client and a server that look like a store, for the store's own tests: every call goes through frames and a socket. With
//! `FOREBAY_TEST_NODES` it is a client of that many nodes of a cluster.
//!
//! ```text
//! test ──▶ Store (here) ──▶ forebay-client ──▶ Unix socket ──▶ forebay-server ──▶ forebay-store
//!                              └ of a cluster ──▶ as many of them as there are nodes, with forebay-cluster
//!                └ what only its process has (its clock's ticks, listeners, files) ──────┘
//! ```
//!
//! *Not here*: meaning. Each method is one call of the client.
#![expect(clippy::expect_used, reason = "for tests alone: a server that does not answer ends them")]

use engine::core::map::{Change, ClusterMap, Hex128, Node as MapNode, NodeState};
use engine::core::{Attributes, Bounds, Key, KeySchema, Keyspace, Ledger, Primary, Result, RunConfig, Token};
use forebay_client::{Client, ClusterClient, Options};
use forebay_cluster::{Node, NodeOptions};
use forebay_server::{Endpoint, Served, Server, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use engine::{
    Accept, Arrival, Arrivals, CheckReport, Config, ConflictInfo, DebugInfo, EventInfo, FlushPolicy, GetAny, HoldInfo,
    InhibitClass, InhibitListener, InhibitState, InhibitWatch, LedgerBy, LedgerRow, OpenEvent, ProducerStatus,
    PutOptions, PutOutcome, ResultFragment, RunState, RunStatus, RunSummary, Sampling, SegmentInfo, SourceState,
    SourceStatus, Sources, Stats, WarmDevice, Why, check, core,
};
pub use forebay_client::{Event, Fragment, Lease, Reservation, Sample};

/// Fragments in key order.
pub type Range = Box<dyn Iterator<Item = Result<Fragment>>>;

/// What the store's tests take from `forebay_store::measure`.
pub mod measure {
    /// Demotes everything that is on the hot level.
    pub fn demote(store: &crate::Store) {
        store.host.embedded.iter().for_each(engine::measure::demote);
    }
}

/// A store with its server; of a cluster all of them.
struct Host {
    /// Empty once they are being stopped.
    servers: Vec<Server>,
    nodes: Vec<Arc<Node>>,
    embedded: Vec<engine::Store>,
}

impl Drop for Host {
    fn drop(&mut self) {
        // Sessions hold the stores: first they end.
        self.servers.clear();
        self.nodes.clear();
    }
}

/// A store on a server of its own, or on several.
#[derive(Clone)]
pub struct Store {
    client: Calls,
    host: Arc<Host>,
    endpoint: String,
}

/// Who makes the calls.
#[derive(Clone)]
enum Calls {
    One(Client),
    Many(ClusterClient),
}

/// How many nodes; one server without a cluster where nobody says.
fn nodes() -> u16 {
    std::env::var("FOREBAY_TEST_NODES").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Where the store of a node is: that of the first one is the directory itself.
fn dir_of(dir: &Path, node: u16) -> PathBuf {
    if node == 1 { dir.to_owned() } else { dir.join(format!("node-{node}")) }
}

impl Store {
    /// The nodes of a cluster, which has them under these addresses in every life.
    fn serve_all(dir: &Path, stores: Vec<engine::Store>) -> Result<Store> {
        let text = std::fs::read_to_string(dir.join("cluster.json"));
        let map = Arc::new(match text {
            Ok(text) => ClusterMap::from_json(&text)?,
            Err(_) => new_map(dir, &stores)?,
        });
        let mut host = Host { servers: Vec::new(), nodes: Vec::new(), embedded: stores };
        for store in &host.embedded {
            let node = Node::start(vec![store.clone()], &map, NodeOptions::default())?;
            let (_, id) = store.adopted_map().expect("a map that was just adopted");
            let socket = map.node(id).expect("its node").at[0].trim_start_matches("unix:").into();
            let config = ServerConfig { native: vec![Endpoint::Unix(socket)], threads: 1, ..ServerConfig::default() };
            let options = NodeOptions::default();
            host.servers.push(forebay_cluster::serve(vec![Served::from(store.clone())], config, &node, &options)?);
            host.nodes.push(node);
        }
        let endpoint = map.nodes()[0].at[0].clone();
        let client = Calls::Many(ClusterClient::connect(&[&endpoint], options("test"))?);
        Ok(Store { client, host: Arc::new(host), endpoint })
    }

    fn serve(embedded: engine::Store) -> Result<Store> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("forebay-conformance-{}-{number}", std::process::id()));
        let config = ServerConfig { native: vec![Endpoint::Unix(socket)], threads: 1, ..ServerConfig::default() };
        let server = Server::start(vec![embedded.clone()], config)?;
        let endpoint = server.endpoints().next().expect("a listener").1.to_string();
        let client = Calls::One(Client::connect(&endpoint, options("test"))?);
        let host = Host { servers: vec![server], nodes: Vec::new(), embedded: vec![embedded] };
        Ok(Store { client, host: Arc::new(host), endpoint })
    }

    /// A new store.
    pub fn create(dir: &Path, keyspace: &Keyspace, config: Config) -> Result<Store> {
        if nodes() == 1 {
            return Store::serve(engine::Store::create(dir, keyspace, config)?);
        }
        let create = |node| engine::Store::create(&dir_of(dir, node), keyspace, config.clone());
        Store::serve_all(dir, (1..=nodes()).map(create).collect::<Result<_>>()?)
    }

    /// The store that is there.
    pub fn open(dir: &Path, config: Config) -> Result<Store> {
        if nodes() == 1 {
            return Store::serve(engine::Store::open(dir, config)?);
        }
        let open = |node| engine::Store::open(&dir_of(dir, node), config.clone());
        Store::serve_all(dir, (1..=nodes()).map(open).collect::<Result<_>>()?)
    }

    /// The same store under another name of a client.
    #[must_use]
    pub fn named(&self, name: &str) -> Store {
        let client = match &self.client {
            Calls::One(_) => Calls::One(Client::connect(&self.endpoint, options(name)).expect("another connection")),
            Calls::Many(_) => {
                let cluster = ClusterClient::connect(&[&self.endpoint], options(name));
                Calls::Many(cluster.expect("another connection"))
            }
        };
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
        self.host.embedded.iter().try_for_each(engine::Store::close)
    }

    /// Time passed.
    pub fn tick(&self) {
        self.host.embedded.iter().for_each(engine::Store::tick);
    }

    /// Follows inhibit.
    pub fn watch_inhibit(&self) -> InhibitWatch {
        self.host.embedded[0].watch_inhibit()
    }

    /// Memory for a fragment: of the client, which does not hear that the store is closed before the commit.
    pub fn reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Reservation> {
        self.get(key)?;
        match &self.client {
            Calls::One(client) => client.reserve(key, length, options),
            Calls::Many(cluster) => cluster.reserve(key, length, options),
        }
    }
}

macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        /// Calls whose answer may be an error.
        impl Store {
            $(
                /// As the store's.
                pub fn $name(&self, $($argument: $type),*) -> Result<$answer> {
                    match &self.client {
                        Calls::One(client) => client.$name($($argument),*),
                        Calls::Many(cluster) => cluster.$name($($argument),*),
                    }
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
    fail(primary: &Primary, token: &Token, reason: &str) -> ();
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
}

macro_rules! looks {
    ($($name:ident -> $answer:ty;)*) => {
        /// Calls that have no error where the store is in the same process.
        impl Store {
            $(
                /// As the store's.
                pub fn $name(&self) -> $answer {
                    match &self.client {
                        Calls::One(client) => client.$name(),
                        Calls::Many(cluster) => cluster.$name(),
                    }
                    .expect("the server answers")
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
        match &self.client {
            Calls::One(client) => Box::new(client.range(bounds)),
            Calls::Many(cluster) => Box::new(cluster.range(bounds)),
        }
    }

    /// The keyspace, as the server said it.
    pub fn keyspace(&self) -> &Keyspace {
        match &self.client {
            Calls::One(client) => client.keyspace(),
            Calls::Many(cluster) => cluster.keyspace(),
        }
    }

    /// Its key schema.
    pub fn schema(&self) -> &KeySchema {
        &self.keyspace().schema
    }
}

/// A producer that reports its figures to the server at once, because tests look at them.
pub struct Producer {
    producer: forebay_client::Producer,
}

impl Store {
    /// As the store's.
    pub fn producer(&self, run: u64, name: &str) -> Result<Producer> {
        let producer = match &self.client {
            Calls::One(client) => client.producer(run, name),
            Calls::Many(cluster) => cluster.producer(run, name),
        };
        Ok(Producer { producer: producer? })
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

/// Draws samples.
pub enum Sampler {
    /// Of one server.
    One(Box<forebay_client::Sampler>),
    /// Of all nodes.
    Many(forebay_client::ClusterSampler),
}

impl Store {
    /// As the store's.
    pub fn sampler(&self, sampling: &Sampling) -> Result<Sampler> {
        match &self.client {
            Calls::One(client) => client.sampler(sampling).map(|sampler| Sampler::One(Box::new(sampler))),
            Calls::Many(cluster) => cluster.sampler(sampling).map(Sampler::Many),
        }
    }
}

impl Sampler {
    /// As the store's.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Sample>> {
        match self {
            Sampler::One(sampler) => sampler.next(wait),
            Sampler::Many(sampler) => sampler.next(wait),
        }
    }
}

/// Follows one run.
pub enum Watch {
    /// On one server.
    One(Box<forebay_client::Watch>),
    /// On all nodes.
    Many(Box<forebay_client::ClusterWatch>),
}

impl Store {
    /// As the store's.
    pub fn watch(&self, run: u64) -> Result<Watch> {
        match &self.client {
            Calls::One(client) => client.watch(run).map(|watch| Watch::One(Box::new(watch))),
            Calls::Many(cluster) => cluster.watch(run).map(|watch| Watch::Many(Box::new(watch))),
        }
    }
}

impl Watch {
    /// As the store's.
    pub fn next(&mut self, wait: Duration) -> Option<RunStatus> {
        match self {
            Watch::One(watch) => watch.next(wait),
            Watch::Many(watch) => core::FollowRun::next(&mut **watch, wait).ok().flatten(),
        }
    }

    /// As the store's.
    pub fn state(&self) -> RunState {
        match self {
            Watch::One(watch) => watch.state(),
            Watch::Many(watch) => watch.state(),
        }
    }
}

/// A map of these stores, which is kept beside the first one.
fn new_map(dir: &Path, stores: &[engine::Store]) -> Result<ClusterMap> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let node = |(store, id): (&engine::Store, u16)| {
        let socket = std::env::temp_dir().join(format!("forebay-nodes-{}-{number}-{id}", std::process::id()));
        let (at, domain) = (vec![format!("unix:{}", socket.display())], format!("rack {id}"));
        MapNode { id, name: format!("n{id}"), at, domain, holds: store.holding(), state: NodeState::Active }
    };
    let nodes = stores.iter().zip(1..).map(node).collect();
    let name = stores[0].keyspace().name.clone();
    // Neighbours on different nodes: a test has few events.
    let change = Change::Keyspace { name, copies: 1, copies_min: 1, block: 0 };
    let map = ClusterMap::new(Hex128(u128::from(number) + 1), nodes)?.next_map(&change)?;
    std::fs::write(dir.join("cluster.json"), map.to_json()).expect("a directory of a store can be written");
    Ok(map)
}
