//! The client of a cluster: a list of addresses in, each call at the right node.
//!
//! ```text
//! call about an event ─▶ map ─▶ its home ── one hop ──▶ answer;  Fenced, or not reached: the map is fetched again
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
use crate::put::NO_WAIT;
use crate::retry::Limit;
use crate::select::Kept;
use forebay_core::map::{ClusterMap, Node};
use forebay_core::{Bounds, Error, Key, KeySchema, Keyspace, Kind, Result};
use forebay_wire::Control;
use nodes::{Nodes, OfNode, Placed, may_be_elsewhere};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A keyspace on the nodes of a cluster: a cheap handle, cloned freely, used from any number of threads.
pub struct ClusterClient {
    inner: Arc<Inner>,
    /// When the call must be over that calls by this handle are parts of.
    end: Option<Instant>,
}

/// A handle for calls of their own, also where it is copied within a call.
impl Clone for ClusterClient {
    fn clone(&self) -> ClusterClient {
        ClusterClient { inner: self.inner.clone(), end: None }
    }
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
        let client = first_that_answers(addresses, &options, |pool| Client::of_pool(pool, Box::<Joined>::default()))?;
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
            let text = keyspace.to_toml().unwrap_or_default().into();
            let nodes = Nodes::new((&keyspace.name, text), placed, options, contact, make);
            let (turn, resting, not_ahead) = Default::default();
            Inner { keyspace, nodes, turn, resting, not_ahead }
        };
        ClusterClient { inner: Arc::new_cyclic(of_inner), end: None }
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

    /// The same cluster with this deadline (`Options::deadline`), in contact or not.
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

    /// When a call must be over that begins now, or the one that it is a part of.
    fn begin(&self, wait: Duration) -> Instant {
        self.begin_at(self.inner.nodes.now(), wait)
    }

    /// The same where it is known what time it is.
    fn begin_at(&self, now: Instant, wait: Duration) -> Instant {
        let own = self.inner.nodes.begin(now, wait);
        self.end.map_or(own, |end| end.min(own))
    }

    /// The same handle, whose calls are parts of one that must be over by then.
    fn until(&self, end: Instant) -> ClusterClient {
        ClusterClient { inner: self.inner.clone(), end: Some(end) }
    }

    /// The home of an event, by the map that the client has.
    fn home(&self, primary: &[u8]) -> u16 {
        self.placed().home(self.schema(), primary)
    }

    /// The node that has the bytes of a fragment, by the look-up table of its run.
    fn holder(&self, key: &Key) -> Option<u16> {
        self.placed().holder(self.schema(), key)
    }

    /// Makes a call about one event at its home; again where that is another one by a later map, or was not reached in time.
    fn at_home<T>(&self, primary: &[u8], call: impl Fn(&Client) -> Result<T>) -> Result<T> {
        let nodes = &self.inner.nodes;
        let began = nodes.now();
        let (end, mut now) = (self.begin_at(began, NO_WAIT), began);
        loop {
            let (placed, limit) = (self.placed(), nodes.half_from(now, end));
            let (home, epoch) = (placed.home(self.schema(), primary), placed.map.epoch());
            let mut of_node = epoch;
            let answer = nodes.node_within(home, limit).and_then(|client| {
                // Before: another thread's answer may bring a later one than that of this call.
                of_node = client.pool().epoch();
                call(&client)
            });
            match answer {
                // Fenced by a token, or by a map: only the map can be fetched again.
                Err(error) if may_be_elsewhere(&error) => {
                    let has_moved = nodes.learn(epoch, end) && self.home(primary) != home;
                    let is_behind = error.kind() == Kind::Fenced && of_node < epoch;
                    if !(has_moved
                        || limit.leaves_time(nodes.now(), &error)
                        || is_behind && nodes.let_catch_up(began, end))
                    {
                        return Err(error);
                    }
                    now = nodes.now();
                }
                answer => return answer.inspect_err(|error| nodes.ended_with(error)),
            }
        }
    }

    /// Makes a call at every node at once, also at those of a map that is later than the client's.
    ///
    /// # Errors
    /// The first node's, with its name.
    fn everywhere<T: Send>(&self, call: impl Fn(&Client) -> Result<T> + Sync) -> Result<Vec<T>> {
        self.all_of(None, call)
    }

    /// The same about a run. A node that has no part in it by the map is left out where it does not answer; one that answers may have
    /// begun it by an earlier map.
    fn all_of<T: Send>(&self, run: Option<u64>, call: impl Fn(&Client) -> Result<T> + Sync) -> Result<Vec<T>> {
        let may_be_left_out =
            |placed: &Placed, node: &Node| run.is_some_and(|run| !placed.keyspace.has_part(run, node.id));
        let answers = self.inner.nodes.at_all(self.begin(NO_WAIT), |_, _| true, may_be_left_out, call)?;
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// The same about what lies inside bounds.
    fn all_within<T: Send>(&self, bounds: &Bounds, call: impl Fn(&Client) -> Result<T> + Sync) -> Result<Vec<T>> {
        let run = bounds.lower().first().filter(|run| bounds.upper().first() == Some(run));
        self.all_of(run.copied(), call)
    }

    /// Makes a call about a run at its home; where that does not answer, at another node, which may know another home, and again at
    /// the home while there is time.
    fn about_run<T>(&self, run: u64, call: impl Fn(&Client) -> Result<T>) -> Result<T> {
        let (nodes, end, began) = (&self.inner.nodes, self.begin(NO_WAIT), self.inner.nodes.now());
        let ask = |id: u16, limit: Limit| {
            let mut epoch = u32::MAX;
            let answer = nodes.node_within(id, limit).and_then(|client| {
                epoch = client.pool().epoch();
                call(&client)
            });
            (answer, epoch)
        };
        let is_away = |answer: &Result<T>| answer.as_ref().is_err_and(|error| error.kind() == Kind::Unavailable);
        loop {
            let placed = self.placed();
            let home = placed.keyspace.home(run, &run.to_be_bytes());
            // Once: others wait for it as well, and stop a run without it, which takes them most of the time of a call.
            let (mut answer, of_home) = ask(home, Limit::once(nodes.now(), end));
            let is_unreached = answer.as_ref().is_err_and(|error| error.is_unanswered());
            for node in placed.nodes().filter(|node| node.id != home) {
                if !(is_unreached && is_away(&answer)) {
                    break;
                }
                answer = ask(node.id, nodes.half(end)).0;
            }
            // Another node's word is about a home that it does not reach either.
            let goes_on = is_unreached && is_away(&answer);
            let is_fenced = answer.as_ref().is_err_and(|error| error.kind() == Kind::Fenced);
            let is_behind = is_fenced && of_home < placed.map.epoch();
            if !((goes_on || is_behind) && nodes.let_catch_up(began, end)) {
                return answer.inspect_err(|error| nodes.ended_with(error));
            }
        }
    }
}

impl OfNode for Client {
    fn pool(&self) -> &crate::pool::Pool {
        Client::pool(self)
    }

    fn within(&self, limit: Limit) -> Client {
        Client::within(self, limit)
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
        let (map, _): (serde_json::Value, bool) = self.calls().control(&Control::Map)?;
        Ok(map.to_string())
    }

    /// The node that the server is, and its peers as it sees them, as JSON.
    ///
    /// # Errors
    /// As [`Client::map_text`].
    pub fn cluster_text(&self) -> Result<String> {
        let (status, _): (serde_json::Value, bool) = self.calls().control(&Control::Cluster)?;
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
