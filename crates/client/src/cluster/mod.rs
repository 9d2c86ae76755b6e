//! The client of a cluster: a list of addresses in, each call at the right node.
//!
//! ```text
//! call about an event ─▶ map ─▶ its home ── one hop ──▶ answer;  Fenced: the map is fetched again, once
//! call about all      ─▶ every node, beside each other ──▶ merged, or the node that does not answer is named
//! get_any             ─▶ a few nodes in turn ──▶ then one after another waits for a moment
//! run, mask, hold     ─▶ any node: its home does it, and all others
//! ```
//!
//! *Invariants*: an answer about all nodes is of all nodes: a sum never lacks one in silence.
//!
//! *Not here*: what a node does with orders about runs (`forebay-cluster`).

mod by_map;
mod events;
mod joined;
mod one_node;
mod range;
mod reports;
mod runs;
mod select;

pub(crate) use joined::Joined;
pub use range::ClusterRange;
pub use runs::{ClusterSampler, ClusterWatch};

use crate::client::Client;
use crate::fragment::Fragment;
use crate::objects::Producer;
use crate::options::Options;
use crate::pool::Pool;
use crate::select::Kept;
use forebay_core::limits::SUB_KEYS_MAX;
use forebay_core::map::{ClusterMap, KeyspaceMap, Node, NodeState};
use forebay_core::{Error, Key, KeySchema, Keyspace, Kind, Result};
use forebay_wire::Control;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// A keyspace on the nodes of a cluster: a cheap handle, cloned freely, used from any number of threads.
#[derive(Clone)]
pub struct ClusterClient {
    inner: Arc<Inner>,
}

struct Inner {
    keyspace: Keyspace,
    options: Options,
    placed: RwLock<Arc<Placed>>,
    /// Clients of nodes, made when they are needed.
    clients: Mutex<BTreeMap<u16, Client>>,
    /// The node that is asked first for ready events.
    turn: AtomicUsize,
    /// Events that are still to be read without asking holders before their home has answered.
    not_ahead: AtomicUsize,
    contact: Option<Contact>,
}

/// Whether a node is in contact: who knows that it is not says so, and no call waits for it.
pub type Contact = Arc<dyn Fn(u16) -> Result<()> + Send + Sync>;

/// How long nodes are asked for a later map, after one has fenced a call or has not answered it.
const LEARN: Duration = Duration::from_secs(2);

/// A map, and the part of it that counts here.
struct Placed {
    map: ClusterMap,
    keyspace: KeyspaceMap,
}

impl Placed {
    fn of(map: ClusterMap, name: &str) -> Result<Arc<Placed>> {
        let keyspace = map.keyspace(name).cloned();
        let keyspace =
            keyspace.ok_or_else(|| Error::invalid(format!("keyspace `{name}` is not in the cluster's map")))?;
        Ok(Arc::new(Placed { map, keyspace }))
    }

    /// The home of an event. A key of another schema goes to any node, which refuses it.
    fn home(&self, schema: &KeySchema, primary: &[u8]) -> u16 {
        match primary.len() == schema.primary_bytes() {
            true => self.keyspace.home(schema.run_of(primary), primary),
            false => self.nodes().next().map_or(0, |node| node.id),
        }
    }

    /// The node that gets the bytes of a fragment, and its home.
    fn route(&self, schema: &KeySchema, key: &Key) -> (u16, u16) {
        self.routes(schema, [key]).pop().unwrap_or_default()
    }

    /// The same of many.
    fn routes<'a>(&self, schema: &KeySchema, keys: impl IntoIterator<Item = &'a Key>) -> Vec<(u16, u16)> {
        // Neighbours are mostly of one event.
        let mut last: (&[u8], u16) = (&[], 0);
        let route = |key: &'a Key| {
            let name = &key.as_bytes()[..schema.primary_bytes().min(key.as_bytes().len())];
            if last.0 != name {
                last = (name, self.home(schema, name));
            }
            (self.holder(schema, key).unwrap_or(last.1), last.1)
        };
        keys.into_iter().map(route).collect()
    }

    /// The node that has the bytes of a fragment, where its run has a look-up table with its source.
    fn holder(&self, schema: &KeySchema, key: &Key) -> Option<u16> {
        if self.keyspace.tables().is_empty() || key.as_bytes().len() != schema.key_bytes() {
            return None;
        }
        let table = self.keyspace.table_for(schema.run_of(key.as_bytes()))?;
        table.holders(schema.unpack_source(schema.rest_of(key), &mut [0; SUB_KEYS_MAX]))?.first().copied()
    }

    /// The nodes that may have something.
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.map.nodes().iter().filter(|node| node.state != NodeState::Gone)
    }
}

impl ClusterClient {
    /// Connects to a cluster by the addresses of some of its nodes: the first one that answers says where all are.
    ///
    /// # Errors
    /// `Invalid` for an empty list, an ill-formed address, a server that is in no cluster, or a keyspace that is not in its
    /// map; `Unavailable` where no address answers, with the reason of each.
    pub fn connect<A: AsRef<str>>(addresses: &[A], options: Options) -> Result<ClusterClient> {
        let mut reasons = Vec::new();
        for address in addresses {
            let address = address.as_ref();
            match Client::connect(address, options.clone()) {
                Ok(client) => return ClusterClient::of(&client, options),
                Err(error) if error.kind() == Kind::Unavailable => {
                    reasons.push(format!("{address}: {}", error.message()));
                }
                Err(error) => return Err(error),
            }
        }
        match reasons.is_empty() {
            true => Err(Error::invalid("no address of a node of the cluster: give at least one")),
            false => Err(Error::unavailable(format!("no node of the cluster answers: {}", reasons.join("; ")))),
        }
    }

    /// The cluster that a server is a node of.
    ///
    /// # Errors
    /// `Invalid` for a server that is in none; `Unavailable`.
    pub(crate) fn of(client: &Client, options: Options) -> Result<ClusterClient> {
        let keyspace = client.keyspace().clone();
        let placed = Placed::of(fetch(client)?, &keyspace.name)?;
        let options = Options { keyspace: keyspace.name.clone(), ..options };
        Ok(ClusterClient::over(keyspace, placed, options, None))
    }

    fn over(keyspace: Keyspace, placed: Arc<Placed>, options: Options, contact: Option<Contact>) -> ClusterClient {
        let (clients, turn, not_ahead) = (Mutex::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let placed = RwLock::new(placed);
        ClusterClient { inner: Arc::new(Inner { keyspace, options, placed, clients, turn, not_ahead, contact }) }
    }

    /// The keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        &self.inner.keyspace
    }

    /// The keyspace's key schema.
    pub fn schema(&self) -> &KeySchema {
        &self.inner.keyspace.schema
    }

    /// Ends: free connections are closed, further calls answer `Closed`. Leases are left to their time.
    pub fn close(&self) {
        self.inner.clients.lock().values().for_each(Client::close);
    }

    /// The same cluster, of which each call to a node ends within this time, in contact or not. Over a look-up table a call may ask a home and a holder.
    #[must_use]
    pub fn within(&self, deadline: Duration) -> ClusterClient {
        let options = Options { deadline, ..self.inner.options.clone() };
        ClusterClient::over(self.keyspace().clone(), self.placed(), options, None)
    }

    /// The map that the client goes by.
    pub fn map(&self) -> ClusterMap {
        self.placed().map.clone()
    }

    fn placed(&self) -> Arc<Placed> {
        self.inner.placed.read().clone()
    }

    /// The client of one node, such as for what concerns its devices.
    ///
    /// # Errors
    /// `Invalid` for a node that is not in the map, `Unavailable` where it does not answer.
    pub fn node(&self, id: u16) -> Result<Client> {
        self.in_contact(id)?;
        if let Some(client) = self.inner.clients.lock().get(&id) {
            return Ok(client.clone());
        }
        let placed = self.placed();
        let node = placed.map.node(id).filter(|node| node.state != NodeState::Gone);
        let node = node.ok_or_else(|| Error::invalid(format!("node {id} is not in the cluster's map")))?;
        // Without the lock: a node that does not answer must not keep calls from the others.
        let client = self.open(node, &self.inner.options)?;
        Ok(self.inner.clients.lock().entry(id).or_insert(client).clone())
    }

    fn open(&self, node: &Node, options: &Options) -> Result<Client> {
        let mut reasons = Vec::new();
        for address in &node.at {
            let pool = Pool::connect(address, options.clone());
            match pool.and_then(|pool| Client::of_pool(pool, Box::new(Joined::within(self)))) {
                Ok(client) => return Ok(client),
                Err(error) => reasons.push(error.message().to_owned()),
            }
        }
        Err(Error::unavailable(format!("node {} (`{}`): {}", node.id, node.name, reasons.join("; "))))
    }

    fn in_contact(&self, id: u16) -> Result<()> {
        self.inner.contact.as_ref().map_or(Ok(()), |contact| contact(id))
    }

    /// The home of an event, by the map that the client has.
    fn home(&self, primary: &[u8]) -> u16 {
        self.placed().home(self.schema(), primary)
    }

    /// The node that has the bytes of a fragment, by the look-up table of its run.
    fn holder(&self, key: &Key) -> Option<u16> {
        self.placed().holder(self.schema(), key)
    }

    /// Makes a call about one event at its home; once more where that is another one by a later map.
    fn at_home<T>(&self, primary: &[u8], call: impl Fn(&Client) -> Result<T>) -> Result<T> {
        let home = self.home(primary);
        let answer = self.node(home).and_then(|client| call(&client));
        match answer {
            // Fenced by a token, or by a map: only the map can be fetched again.
            Err(error) if may_be_elsewhere(&error) && self.learn() && self.home(primary) != home => {
                call(&self.node(self.home(primary))?)
            }
            answer => answer,
        }
    }

    /// Fetches the map from the nodes that answer; `true` if one of them has a later one of the same cluster.
    fn learn(&self) -> bool {
        let placed = self.placed();
        // Not for the time of a call: a node that does not answer, for which all this may be, would keep the call as long again.
        let options = Options { deadline: self.inner.options.deadline.min(LEARN), ..self.inner.options.clone() };
        let ask = |node: &Node| {
            self.in_contact(node.id)?;
            let known = self.inner.clients.lock().get(&node.id).cloned();
            let client = known.map_or_else(|| self.open(node, &options), Ok)?;
            let (map, _): (serde_json::Value, bool) =
                client.pool().control_until(options.end(Duration::ZERO), &Control::Map)?;
            ClusterMap::from_json(&map.to_string())
        };
        let maps = each(&placed, ask).into_iter().filter_map(Result::ok);
        let own = maps.filter(|map| map.cluster() == placed.map.cluster() && map.epoch() > placed.map.epoch());
        let newest = own.max_by_key(ClusterMap::epoch).and_then(|map| Placed::of(map, &self.keyspace().name).ok());
        let is_later = newest.is_some();
        newest.into_iter().for_each(|newest| self.go_on(newest));
        is_later
    }

    fn go_on(&self, later: Arc<Placed>) {
        *self.inner.placed.write() = later;
        // A node may have another address. Leases keep the clients that they came from.
        self.inner.clients.lock().clear();
    }

    /// Makes a call at every node at once; answers in the order of the nodes.
    ///
    /// # Errors
    /// The first node's, with its name.
    fn everywhere<T: Send>(&self, call: impl Fn(&Client) -> Result<T> + Sync) -> Result<Vec<T>> {
        self.at_each(&self.placed(), call).into_iter().collect()
    }

    /// The answer of each node, in their order.
    fn at_each<T: Send>(&self, placed: &Placed, call: impl Fn(&Client) -> Result<T> + Sync) -> Vec<Result<T>> {
        each(placed, |node| {
            // Without a connection the error has the node's name.
            let client = self.node(node.id)?;
            call(&client).map_err(|error| {
                Error::new(error.kind(), format!("node {} (`{}`): {}", node.id, node.name, error.message()))
                    .with_source(error)
            })
        })
    }

    /// Makes a call about a run at its home; where that does not answer, at another node, which may know another home.
    fn about_run<T>(&self, run: u64, call: impl Fn(&Client) -> Result<T>) -> Result<T> {
        let placed = self.placed();
        let home = placed.keyspace.home(run, &run.to_be_bytes());
        let mut answer = self.node(home).and_then(|client| call(&client));
        for node in placed.nodes().filter(|node| node.id != home) {
            if !matches!(&answer, Err(error) if error.kind() == Kind::Unavailable) {
                break;
            }
            answer = self.node(node.id).and_then(|client| call(&client));
        }
        answer
    }
}

/// Asks about each node at once; answers in the order of the nodes.
fn each<T: Send>(placed: &Placed, ask: impl Fn(&Node) -> Result<T> + Sync) -> Vec<Result<T>> {
    let nodes: Vec<&Node> = placed.nodes().collect();
    // A map has nodes, and one of them is not gone.
    let Some((first, others)) = nodes.split_first() else { return Vec::new() };
    std::thread::scope(|scope| {
        let others: Vec<_> = others.iter().map(|node| scope.spawn(|| ask(node))).collect();
        let mut answers = vec![ask(first)];
        for other in others {
            answers.push(other.join().unwrap_or_else(|_| Err(Error::internal("a call ended in a panic"))));
        }
        answers
    })
}

/// Whether a later map may say that another node is asked.
fn may_be_elsewhere(error: &Error) -> bool {
    // Without an answer it is not known what the first node did: only where nothing was sent another one is asked.
    matches!(error.kind(), Kind::Fenced | Kind::Unavailable)
}

/// The map that a node goes by.
fn fetch(client: &Client) -> Result<ClusterMap> {
    ClusterMap::from_json(&client.map_text()?)
}

impl Client {
    /// The whole cluster that the server is a node of.
    ///
    /// # Errors
    /// `Invalid` for a server that is in none; `Unavailable`.
    pub fn cluster(&self) -> Result<ClusterClient> {
        ClusterClient::of(self, self.pool().options.clone())
    }

    /// The map of the cluster that the server is a node of, as JSON.
    ///
    /// # Errors
    /// `Invalid` for a server that is in none; `Unavailable`.
    pub fn map_text(&self) -> Result<String> {
        let (map, _): (serde_json::Value, bool) = self.pool().control(&Control::Map)?;
        Ok(map.to_string())
    }

    /// The node that the server is, and its peers as it sees them, as JSON.
    ///
    /// # Errors
    /// As [`Client::map_text`].
    pub fn cluster_text(&self) -> Result<String> {
        let (status, _): (serde_json::Value, bool) = self.pool().control(&Control::Cluster)?;
        Ok(status.to_string())
    }
}

impl std::fmt::Debug for ClusterClient {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ClusterClient({:?}, keyspace {})", self.placed().map.cluster(), self.keyspace().name)
    }
}

forebay_core::implement_calls!(
    ClusterClient,
    Fragment,
    forebay_core::Held<Kept>,
    Producer,
    ClusterRange,
    |cluster| cluster.runs(),
    cluster.stats()
);
