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
mod nodes;
mod one_node;
mod range;
mod reports;
mod ring;
mod ring_window;
mod runs;
mod select;

pub(crate) use joined::Joined;
pub(crate) use nodes::first_that_answers;
pub use range::ClusterRange;
pub use ring::{ClusterPin, ClusterRing};
pub use runs::{ClusterSampler, ClusterWatch};

use crate::client::Client;
use crate::fragment::Fragment;
use crate::objects::Producer;
use crate::options::Options;
use crate::select::Kept;
use forebay_core::map::ClusterMap;
use forebay_core::{Error, Key, KeySchema, Keyspace, Kind, Result};
use forebay_wire::Control;
use nodes::{Nodes, OfNode, Placed, may_be_elsewhere};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A keyspace on the nodes of a cluster: a cheap handle, cloned freely, used from any number of threads.
#[derive(Clone)]
pub struct ClusterClient {
    inner: Arc<Inner>,
}

struct Inner {
    keyspace: Keyspace,
    nodes: Nodes<Client>,
    /// The node that is asked first for ready events.
    turn: AtomicUsize,
    /// Nodes that are not asked for ready events until then, and why.
    resting: Mutex<BTreeMap<u16, (Instant, Error)>>,
    /// Events that are still to be read without asking holders before their home has answered.
    not_ahead: AtomicUsize,
}

/// Whether a node is in contact: who knows that it is not says so, and no call waits for it.
pub type Contact = Arc<dyn Fn(u16) -> Result<()> + Send + Sync>;

impl ClusterClient {
    /// Connects to a cluster by the addresses of some of its nodes: the first one that answers says where all are.
    ///
    /// # Errors
    /// `Invalid` for an empty list, an ill-formed address, a server that is in no cluster, or a keyspace that is not in its
    /// map; `Unavailable` where no address answers, with the reason of each.
    pub fn connect<A: AsRef<str>>(addresses: &[A], options: Options) -> Result<ClusterClient> {
        let client = first_that_answers(addresses, |address| Client::connect(address, options.clone()))?;
        ClusterClient::of(&client, options)
    }

    /// The cluster that a server is a node of.
    ///
    /// # Errors
    /// `Invalid` for a server that is in none; `Unavailable`.
    pub(crate) fn of(client: &Client, options: Options) -> Result<ClusterClient> {
        let keyspace = client.keyspace().clone();
        let placed = Placed::of(ClusterMap::from_json(&client.map_text()?)?, &keyspace.name)?;
        Ok(ClusterClient::over(keyspace, placed, options, None))
    }

    fn over(keyspace: Keyspace, placed: Arc<Placed>, options: Options, contact: Option<Contact>) -> ClusterClient {
        let of_inner = |inner: &Weak<Inner>| {
            let inner = inner.clone();
            let make = move |pool| Client::of_pool(pool, Box::new(Joined::within(inner.clone())));
            let nodes = Nodes::new(&keyspace.name, placed, options, contact, make);
            let (turn, resting, not_ahead) = Default::default();
            Inner { keyspace, nodes, turn, resting, not_ahead }
        };
        ClusterClient { inner: Arc::new_cyclic(of_inner) }
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
        self.inner.nodes.close();
    }

    /// The same cluster, of which each call to a node ends within this time, in contact or not. Over a look-up table a call may ask a home and a holder.
    #[must_use]
    pub fn within(&self, deadline: Duration) -> ClusterClient {
        let options = Options { deadline, ..self.inner.nodes.options.clone() };
        ClusterClient::over(self.keyspace().clone(), self.placed(), options, None)
    }

    /// The map that the client goes by.
    pub fn map(&self) -> ClusterMap {
        self.placed().map.clone()
    }

    fn placed(&self) -> Arc<Placed> {
        self.inner.nodes.placed()
    }

    /// The client of one node, such as for what concerns its devices.
    ///
    /// # Errors
    /// `Invalid` for a node that is not in the map, `Unavailable` where it does not answer.
    pub fn node(&self, id: u16) -> Result<Client> {
        self.inner.nodes.node(id)
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
        let placed = self.placed();
        let home = placed.home(self.schema(), primary);
        let answer = self.node(home).and_then(|client| call(&client));
        match answer {
            // Fenced by a token, or by a map: only the map can be fetched again.
            Err(error)
                if may_be_elsewhere(&error)
                    && self.inner.nodes.learn(placed.map.epoch())
                    && self.home(primary) != home =>
            {
                call(&self.node(self.home(primary))?)
            }
            answer => answer,
        }
    }

    /// Makes a call at every node at once, also at those of a map that is later than the client's.
    ///
    /// # Errors
    /// The first node's, with its name.
    fn everywhere<T: Send>(&self, call: impl Fn(&Client) -> Result<T> + Sync) -> Result<Vec<T>> {
        Ok(self.inner.nodes.everywhere(call)?.into_iter().map(|(_, answer)| answer).collect())
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

impl OfNode for Client {
    fn pool(&self) -> &crate::pool::Pool {
        Client::pool(self)
    }
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
