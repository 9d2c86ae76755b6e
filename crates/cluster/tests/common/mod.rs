//! Three nodes of one cluster in this process: stores in directories, servers on Unix sockets, nodes on threads.

#![allow(dead_code, reason = "each test program uses a part of it")]

use forebay_client::{Client, Options};
use forebay_cluster::{Node, NodeOptions};
use forebay_core::map::{Change, ClusterMap, Hex128, NodeState};
use forebay_core::{Completeness, Keyspace, RingKeyspace, SourceSchema};
use forebay_ring::{Ring, RingConfig};
use forebay_server::{AccessToken, Endpoint, Limits, Served, Server, ServerConfig};
use forebay_store::{Config, Store};
use forebay_testkit::TempDir;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) mod redis;

pub(crate) const NODES: u16 = 3;

pub(crate) fn keyspace() -> Keyspace {
    let mut keyspace = Keyspace::events("events", 2).opening_runs();
    keyspace.announced = true;
    keyspace.run.completeness = Completeness::Count(2);
    keyspace.run.complete_within = Duration::from_secs(3600);
    keyspace
}

/// One node: what lives and dies with its process.
pub(crate) struct Member {
    pub(crate) store: Store,
    pub(crate) node: Arc<Node>,
    /// Of those that have one.
    pub(crate) ring: Option<Ring>,
    server: Option<Server>,
}

pub(crate) struct Cluster {
    pub(crate) dir: TempDir,
    pub(crate) map: Arc<ClusterMap>,
    pub(crate) members: Vec<Option<Member>>,
    /// What each server has beside its listeners: who may do what, and its limits.
    pub(crate) server: ServerConfig,
    /// As whom the nodes speak to each other.
    pub(crate) secret: Vec<u8>,
    /// Nodes that have a ring.
    rings: Vec<u16>,
}

impl Cluster {
    pub(crate) fn new() -> Cluster {
        Cluster::with(&[], ServerConfig::default(), b"")
    }

    /// Only who has a token is let in.
    pub(crate) fn guarded(tokens: Vec<AccessToken>, secret: &[u8]) -> Cluster {
        Cluster::with(&[], ServerConfig { tokens, ..ServerConfig::default() }, secret)
    }

    /// Servers with other limits.
    pub(crate) fn limited(limits: Limits) -> Cluster {
        Cluster::with(&[], ServerConfig { limits, ..ServerConfig::default() }, b"")
    }

    /// Sources 0 and 1 of all events are on these nodes, wherever their homes are.
    pub(crate) fn with_holders([first, second]: [u16; 2]) -> Cluster {
        let sources = vec![("0".to_owned(), vec![first]), ("1".to_owned(), vec![second])];
        Cluster::with(
            &[Change::Table { keyspace: "events".into(), from_run: 0, sources }],
            ServerConfig::default(),
            b"",
        )
    }

    /// Sources 0, 1 and 2 of a ring are on these nodes; `rings` are the nodes that serve it.
    pub(crate) fn with_rings([first, second, third]: [u16; 3], rings: &[u16]) -> Cluster {
        let name = links().name;
        let ring = Change::Keyspace { name: name.clone(), copies: 1, copies_min: 1, block: 6 };
        let sources =
            [first, second, third].into_iter().zip(0..).map(|(node, source)| (format!("{source}"), vec![node]));
        let table = Change::Table { keyspace: name, from_run: 0, sources: sources.collect() };
        Cluster::made(&[ring, table], ServerConfig::default(), b"", rings)
    }

    fn with(changes: &[Change], server: ServerConfig, secret: &[u8]) -> Cluster {
        Cluster::made(changes, server, secret, &[])
    }

    fn made(changes: &[Change], server: ServerConfig, secret: &[u8], rings: &[u16]) -> Cluster {
        let dir = TempDir::new();
        let stores: Vec<Store> = (1..=NODES)
            .map(|id| Store::create(&dir.path().join(format!("n{id}")), &keyspace(), config()).unwrap())
            .collect();
        // One node has a further address, at which nobody is.
        let nobody = |id| (id == 2).then(|| dir.path().join("nobody.sock"));
        let at = |id| nobody(id).into_iter().chain([socket(&dir, id)]).map(|path| format!("unix:{}", path.display()));
        let nodes = stores.iter().zip(1..).map(|(store, id)| forebay_core::map::Node {
            id,
            name: format!("n{id}"),
            at: at(id).collect(),
            domain: format!("rack {id}"),
            holds: store.holding(),
            state: NodeState::Active,
        });
        let change = Change::Keyspace { name: "events".into(), copies: 1, copies_min: 1, block: 6 };
        let map = ClusterMap::new(Hex128(0xF0), nodes.collect()).unwrap().next_map(&change).unwrap();
        let map = changes.iter().fold(map, |map, change| map.next_map(change).unwrap());
        drop(stores);
        let (members, secret) = ((0..NODES).map(|_| None).collect(), secret.to_vec());
        let mut cluster = Cluster { dir, map: Arc::new(map), members, server, secret, rings: rings.to_vec() };
        (1..=NODES).for_each(|id| cluster.start(id));
        cluster
    }

    /// A node begins its next life.
    pub(crate) fn start(&mut self, id: u16) {
        let store = Store::open(&self.dir.path().join(format!("n{id}")), config()).unwrap();
        let client = Options { token: self.secret.clone(), ..Options::default() };
        let options = NodeOptions { client };
        let node = Node::start(vec![store.clone()], &self.map, options.clone()).unwrap();
        let socket = socket(&self.dir, id);
        let (native, resp) = (vec![Endpoint::Unix(socket)], vec![Endpoint::Unix(self.resp(id))]);
        let config = ServerConfig { native, resp, threads: 1, ..self.server.clone() };
        let ring = self.rings.contains(&id).then(|| open_ring(&self.dir.path().join(format!("ring{id}"))));
        let served: Vec<Served> =
            [Served::from(store.clone())].into_iter().chain(ring.clone().map(Served::Ring)).collect();
        let server = forebay_cluster::serve(served, config, &node, &options).unwrap();
        self.members[usize::from(id) - 1] = Some(Member { store, node, ring, server: Some(server) });
    }

    /// Where a node speaks Redis's protocol.
    pub(crate) fn resp(&self, id: u16) -> PathBuf {
        self.dir.path().join(format!("r{id}.sock"))
    }

    /// Where a node is found.
    pub(crate) fn socket(&self, id: u16) -> PathBuf {
        socket(&self.dir, id)
    }

    /// Takes connections where a node that was stopped did.
    pub(crate) fn listener(&self, id: u16) -> UnixListener {
        let at = self.socket(id);
        let _ = std::fs::remove_file(&at);
        UnixListener::bind(at).unwrap()
    }

    /// A node's process ends: without a word to the others.
    pub(crate) fn stop(&mut self, id: u16) {
        let mut member = self.members[usize::from(id) - 1].take().unwrap();
        drop(member.server.take());
        drop(member.node);
        member.ring.map_or(Ok(()), |ring| ring.close()).unwrap();
        member.store.close().unwrap();
    }

    pub(crate) fn store(&self, id: u16) -> &Store {
        &self.members[usize::from(id) - 1].as_ref().unwrap().store
    }

    pub(crate) fn client(&self, id: u16) -> Client {
        let address = format!("unix:{}", socket(&self.dir, id).display());
        Client::connect(&address, Options { name: format!("test at n{id}"), ..Options::default() }).unwrap()
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.map.nodes().iter().map(|node| node.at.last().unwrap().clone()).collect()
    }

    /// The home of a run.
    pub(crate) fn home_of(&self, run: u64) -> u16 {
        self.map.keyspace("events").unwrap().home(run, &run.to_be_bytes())
    }

    /// A node that is not the home of this run.
    pub(crate) fn other_than_home_of(&self, run: u64) -> u16 {
        (1..=NODES).find(|&id| id != self.home_of(run)).unwrap()
    }

    /// Keys of events of a run that have their home on a node.
    pub(crate) fn events_at(&self, id: u16, run: u64, n: usize) -> Vec<forebay_core::Primary> {
        let (schema, placement) = (keyspace().schema, self.map.keyspace("events").unwrap().clone());
        let all = (0..).map(|event| schema.primary(&[run, event * 64]).unwrap());
        all.filter(|primary| placement.home(run, primary.as_bytes()) == id).take(n).collect()
    }
}

/// A cluster whose nodes have met.
pub(crate) fn met(cluster: Cluster) -> Cluster {
    let knows_all = |id: u16| {
        let status = cluster.members[usize::from(id) - 1].as_ref().unwrap().node.status("events").unwrap();
        status.peers.iter().all(|peer| peer.trouble.is_none())
    };
    eventually("the nodes know each other", || (1..=NODES).all(knows_all));
    cluster
}

fn config() -> Config {
    Config { hot_bytes: 16 << 20, ..Config::default() }
}

/// The ring of a cluster that has one.
pub(crate) fn links() -> RingKeyspace {
    RingKeyspace {
        name: "links".to_owned(),
        source: SourceSchema::parse(&["link:u16"]).unwrap(),
        ticks_per_second: 1_000_000,
        sources_max: 8,
        history: Duration::from_millis(1),
        source_bytes_per_second: 1_000_000,
        max_skew: Duration::from_secs(3600),
        fragment_bytes_max: 10_000,
        pin_percent: 50,
    }
}

fn open_ring(dir: &std::path::Path) -> Ring {
    let config = RingConfig { hot_bytes: 8 << 20, segment_bytes: Some(64 << 10), ..RingConfig::default() };
    if dir.exists() { Ring::open(dir, config) } else { Ring::create(dir, &links(), config) }.unwrap()
}

fn socket(dir: &TempDir, id: u16) -> PathBuf {
    dir.path().join(format!("n{id}.sock"))
}

/// Waits for what comes by itself.
#[track_caller]
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A farm of one worker empties all nodes of this many events; each is looked at, and `kept` alone is accepted.
#[track_caller]
pub(crate) fn decide_all(
    client: &forebay_client::ClusterClient,
    events: u64,
    kept: &forebay_core::Primary,
    look: impl Fn(&forebay_client::Lease),
) {
    let mut seen = std::collections::BTreeSet::new();
    while (seen.len() as u64) < events {
        let wait = Duration::from_secs(5);
        let leases = client.get_any(&forebay_core::GetAny { n: 64, wait, ..Default::default() }).unwrap();
        assert!(!leases.is_empty(), "{} of {events}", seen.len());
        for lease in leases {
            assert!(seen.insert(lease.primary), "leased twice");
            look(&lease);
            if lease.primary == *kept { lease.accept(&["main"]).unwrap() } else { lease.reject().unwrap() }
        }
    }
}
