//! The nodes of a map, and a client of each: what the clients of events and of rings share.
//!
//! *Not here*: which node a call goes to.

use super::Contact;
use crate::machine::beside;
use crate::options::{Expected, Options};
use crate::pool::{Calls, Pool};
use crate::retry::Limit;
use forebay_core::limits::SUB_KEYS_MAX;
use forebay_core::map::{ClusterMap, Hex128, KeyspaceMap, Node, NodeState};
use forebay_core::mutants::is_planted;
use forebay_core::{Error, Key, KeySchema, Kind, Result, SourceId};
use forebay_wire::{Control, Member};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes from which on the parts of a put go to their nodes beside each other.
pub(super) const BESIDE_BYTES: usize = 64 << 10;
/// Least time between two fetches of a map of which an answer said that it is there.
const AGAIN: Duration = Duration::from_secs(1);

/// How long nodes are asked for a later map, after one has fenced a call or has not answered it.
const LEARN: Duration = Duration::from_secs(2);
/// The same before a call, after one that had no time left for it: nodes that are well answer at once.
const LOOK: Duration = Duration::from_millis(500);
/// How long the parts of calls go beside each other after one that was not answered.
const TROUBLED: Duration = Duration::from_secs(20);
/// How long a node is waited for that is away or goes by an earlier map, at first.
const BEHIND: Duration = Duration::from_millis(50);

/// A map, and the part of it that counts here.
pub(super) struct Placed {
    pub(super) map: ClusterMap,
    pub(super) keyspace: KeyspaceMap,
}

impl Placed {
    pub(super) fn of(map: ClusterMap, name: &str) -> Result<Arc<Placed>> {
        let keyspace = map.keyspace(name).cloned();
        let keyspace =
            keyspace.ok_or_else(|| Error::invalid(format!("keyspace `{name}` is not in the cluster's map")))?;
        Ok(Arc::new(Placed { map, keyspace }))
    }

    /// The home of an event. A key of another schema goes to any node, which refuses it.
    pub(super) fn home(&self, schema: &KeySchema, primary: &[u8]) -> u16 {
        match primary.len() == schema.primary_bytes() {
            true => self.keyspace.home(schema.run_of(primary), primary),
            false => self.nodes().next().map_or(0, |node| node.id),
        }
    }

    /// The node that gets the bytes of a fragment, and its home.
    pub(super) fn route(&self, schema: &KeySchema, key: &Key) -> (u16, u16) {
        self.routes(schema, [key]).pop().unwrap_or_default()
    }

    /// The same of many.
    pub(super) fn routes<'a>(&self, schema: &KeySchema, keys: impl IntoIterator<Item = &'a Key>) -> Vec<(u16, u16)> {
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
    pub(super) fn holder(&self, schema: &KeySchema, key: &Key) -> Option<u16> {
        if self.keyspace.tables().is_empty() || key.as_bytes().len() != schema.key_bytes() {
            return None;
        }
        let table = self.keyspace.table_for(schema.run_of(key.as_bytes()))?;
        table.holders(schema.unpack_source(schema.rest_of(key), &mut [0; SUB_KEYS_MAX]))?.first().copied()
    }

    /// The node that gets what a source of a ring puts in a run.
    ///
    /// # Errors
    /// `Invalid` for a source that no look-up table names.
    pub(super) fn ring_holder(&self, source: &SourceId, run: u32) -> Result<u16> {
        self.keyspace.ring_holder(source, run).ok_or_else(|| {
            let epoch = self.map.epoch();
            Error::invalid(format!(
                "source {source} of run {run}: no look-up table of the map (epoch {epoch}) says which node has it"
            ))
        })
    }

    /// Whether a table of a ring gives something to a node: others need not serve it.
    pub(super) fn has_ring(&self, node: &Node) -> bool {
        node.state != NodeState::Gone && self.keyspace.tables().iter().any(|table| table.has_holder(node.id))
    }

    /// The nodes that may have something of a source of a ring: that of the latest table is the last one. All that have the ring for a
    /// source that no table names.
    pub(super) fn ring_readers(&self, source: &SourceId) -> Vec<u16> {
        let all: Vec<u16> = self.nodes().filter(|node| self.has_ring(node)).map(|node| node.id).collect();
        let mut nodes: Vec<u16> = Vec::new();
        for table in self.keyspace.tables() {
            let holder = table.holders(&source.values()).and_then(|nodes| nodes.first().copied());
            let holder = holder.filter(|node| all.contains(node));
            nodes.retain(|node| Some(*node) != holder);
            nodes.extend(holder);
        }
        if nodes.is_empty() { all } else { nodes }
    }

    /// The nodes that may have something.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.map.nodes().iter().filter(|node| node.state != NodeState::Gone)
    }
}

/// A node's number and name.
pub(super) type NodeName = (u16, String);

/// A client of one node.
pub(super) trait OfNode: Clone + Send + Sync {
    fn pool(&self) -> &Pool;

    /// The same, whose calls are parts of one that has this time.
    fn within(&self, limit: Limit) -> Self;
}

/// Makes a client of connections to a node.
type Make<C> = Box<dyn Fn(Pool) -> Result<C> + Send + Sync>;

/// The map, and the clients of its nodes.
pub(super) struct Nodes<C> {
    keyspace: String,
    /// The keyspace as TOML, which every node has to have.
    text: Arc<str>,
    pub(super) options: Options,
    placed: RwLock<Arc<Placed>>,
    /// Made when they are needed.
    clients: Mutex<BTreeMap<u16, C>>,
    contact: Option<Contact>,
    /// When the map was fetched last without a call that had failed.
    tried: Mutex<Option<Instant>>,
    /// A later map was looked for in vain, for want of time or of nodes that answer; or nobody knows what came of a call.
    in_doubt: AtomicBool,
    /// A part of a call was not answered: until then parts of calls do not wait for each other.
    troubled_until: Mutex<Option<Instant>>,
    make: Make<C>,
}

impl<C: OfNode> Nodes<C> {
    pub(super) fn new(
        (keyspace, text): (&str, Arc<str>),
        placed: Arc<Placed>,
        options: Options,
        contact: Option<Contact>,
        make: impl Fn(Pool) -> Result<C> + Send + Sync + 'static,
    ) -> Nodes<C> {
        let options = Options { keyspace: keyspace.to_owned(), node: None, ..options };
        let (placed, make) = (RwLock::new(placed), Box::new(make));
        Nodes {
            keyspace: keyspace.to_owned(),
            text,
            options,
            placed,
            clients: Mutex::default(),
            contact,
            tried: Mutex::default(),
            in_doubt: AtomicBool::new(false),
            troubled_until: Mutex::default(),
            make,
        }
    }

    pub(super) fn placed(&self) -> Arc<Placed> {
        self.placed.read().clone()
    }

    /// Epoch of the map.
    pub(super) fn epoch(&self) -> u32 {
        self.placed.read().map.epoch()
    }

    /// The client of a node, where there is one.
    pub(super) fn known(&self, id: u16) -> Option<C> {
        self.clients.lock().get(&id).cloned()
    }

    /// Makes the parts of a call that go to these nodes, beside each other if that is worth a thread, or a node may not answer.
    pub(super) fn parts<T: Send>(
        &self,
        parts: BTreeMap<u16, Vec<usize>>,
        is_worth_it: bool,
        each: impl Fn(u16, &[usize]) -> Result<T> + Sync,
    ) -> Vec<(Vec<usize>, Result<T>)> {
        let many = parts.len() > 1;
        let each = |(node, places): (u16, Vec<usize>)| {
            let answer = each(node, &places);
            (places, answer)
        };
        let is_troubled = || self.troubled_until.lock().is_some_and(|until| self.now() < until);
        let answers = self.beside(parts, is_worth_it || many && is_troubled(), each);
        let is_away = |error: &Error| matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown);
        if many && answers.iter().any(|(_, answer)| answer.as_ref().is_err_and(is_away)) {
            *self.troubled_until.lock() = Some(self.now() + TROUBLED);
        }
        answers
    }

    /// Does something with each part, beside each other if that is worth a thread; answers in the order of the parts.
    pub(super) fn beside<P: Send, T: Send>(
        &self,
        parts: impl IntoIterator<Item = P>,
        is_worth_it: bool,
        each: impl Fn(P) -> T + Sync,
    ) -> Vec<T> {
        beside(&*self.options.machine, parts, is_worth_it, each)
    }

    /// Now.
    pub(super) fn now(&self) -> Instant {
        self.options.machine.now()
    }

    /// When a call must be over that begins now and itself waits so long; before it, a later map is looked for if one was looked for in
    /// vain before.
    pub(super) fn begin(&self, now: Instant, wait: Duration) -> Instant {
        let end = self.options.end_after(now, wait);
        if self.in_doubt.load(Ordering::Relaxed) {
            self.learn_rarely(self.epoch(), end.min(now + LOOK));
        }
        end
    }

    /// A call has ended with this: where nobody knows what came of it, the next one looks for a later map.
    pub(super) fn ended_with(&self, error: &Error) {
        if error.kind() == Kind::OutcomeUnknown {
            self.in_doubt.store(true, Ordering::Relaxed);
        }
    }

    /// Waits for a node that is away, or goes by an earlier map than this client and has the later one in a moment; `false` where the
    /// call that began then has no time for it.
    pub(super) fn let_catch_up(&self, began: Instant, end: Instant) -> bool {
        let now = self.now();
        let left = end.saturating_duration_since(now);
        let pause = (now.saturating_duration_since(began) / 4).min(left / 2).max(BEHIND);
        let has_time = now + pause < end;
        if has_time {
            self.options.machine.sleep(pause);
        }
        has_time
    }

    /// Time for one node, which another one may be asked for.
    pub(super) fn half(&self, end: Instant) -> Limit {
        self.half_from(self.now(), end)
    }

    /// The same from this moment on.
    pub(super) fn half_from(&self, now: Instant, end: Instant) -> Limit {
        Limit::half(now, end, self.options.deadline)
    }

    /// Free connections are closed, further calls answer `Closed`.
    pub(super) fn close(&self) {
        self.clients.lock().values().for_each(|client| client.pool().close());
    }

    /// # Errors
    /// `Unavailable` for a node of which it is known that it does not answer.
    pub(super) fn in_contact(&self, id: u16) -> Result<()> {
        self.contact.as_ref().map_or(Ok(()), |contact| contact(id))
    }

    /// The client of one node, for calls of their own.
    ///
    /// # Errors
    /// `Invalid` for a node that is not in the map, `Unavailable` where it does not answer.
    pub(super) fn node(&self, id: u16) -> Result<C> {
        self.reach(id, Limit::new(self.options.end(Duration::ZERO)))
    }

    /// The client of one node, for parts of a call that has this time.
    ///
    /// # Errors
    /// As [`Nodes::node`].
    pub(super) fn node_within(&self, id: u16, limit: Limit) -> Result<C> {
        if is_planted("deadline-each") {
            return self.node(id);
        }
        Ok(self.reach(id, limit)?.within(limit))
    }

    fn reach(&self, id: u16, limit: Limit) -> Result<C> {
        self.in_contact(id)?;
        if let Some(client) = self.known(id) {
            return Ok(client);
        }
        let placed = self.placed();
        let node = placed.map.node(id).filter(|node| node.state != NodeState::Gone);
        let node = node.ok_or_else(|| Error::invalid(format!("node {id} is not in the cluster's map")))?;
        // Without the lock: a node that does not answer must not keep calls from the others.
        let client = self.open(placed.map.cluster(), node, limit)?;
        let mut clients = self.clients.lock();
        // By a later map, of which another thread has learnt meanwhile, the node may have another address: for this call only.
        Ok(if self.epoch() == placed.map.epoch() { clients.entry(id).or_insert(client).clone() } else { client })
    }

    fn open(&self, cluster: Hex128, node: &Node, limit: Limit) -> Result<C> {
        let member = Member { cluster: cluster.0, node: node.id };
        let options = Options { node: Some(Expected { member, keyspace: self.text.clone() }), ..self.options.clone() };
        connect_to_one(&node.at, &options, limit, &self.make).map_err(|error| named(node, &error))
    }

    /// Fetches the map from the nodes that answer, for a call that must be over by then; `true` if the client goes by a later one than
    /// that of this epoch now.
    pub(super) fn learn(&self, since: u32, end: Instant) -> bool {
        let placed = self.placed();
        // Another thread was told the same.
        if placed.map.epoch() > since {
            return true;
        }
        let now = self.now();
        // Not for the time of a call: a node that does not answer, for which all this may be, would keep it.
        let limit = Limit::once(now, end.min(now + LEARN));
        let ask = |node: &Node| {
            let client = self.reach(node.id, limit)?;
            let calls = Calls::new(client.pool(), Some(limit));
            let (map, _): (serde_json::Value, bool) = calls.control(&Control::Map)?;
            ClusterMap::from_json(&map.to_string())
        };
        let nodes = placed.nodes().filter(|_| now < end);
        let maps: Vec<ClusterMap> = self.beside(nodes, true, ask).into_iter().filter_map(Result::ok).collect();
        self.in_doubt.store(maps.is_empty(), Ordering::Relaxed);
        let own =
            maps.into_iter().filter(|map| map.cluster() == placed.map.cluster() && map.epoch() > placed.map.epoch());
        let newest = own.max_by_key(ClusterMap::epoch).and_then(|map| Placed::of(map, &self.keyspace).ok());
        newest.into_iter().for_each(|newest| self.go_on(newest));
        self.epoch() > since
    }

    pub(super) fn go_on(&self, later: Arc<Placed>) {
        let mut placed = self.placed.write();
        // Another thread may have learnt of a later one meanwhile.
        if later.map.epoch() <= placed.map.epoch() {
            return;
        }
        *placed = later;
        drop(placed);
        // A node may have another address. Leases keep the clients that they came from.
        self.clients.lock().clear();
    }

    /// The epoch of a later map, where an answer has said that there is one.
    fn heard(&self) -> Option<u32> {
        let known = self.epoch();
        self.clients.lock().values().map(|client| client.pool().epoch()).max().filter(|epoch| *epoch > known)
    }

    /// Fetches the map if an answer has said that there is a later one; `true` if the client goes by a later one now than that of this
    /// epoch, by which it asked.
    ///
    /// # Errors
    /// `Unavailable` where no node gives it.
    pub(super) fn renew(&self, since: u32, end: Instant) -> Result<bool> {
        let Some(epoch) = self.heard() else { return Ok(self.epoch() > since) };
        if self.learn(epoch - 1, end) {
            return Ok(true);
        }
        Err(Error::unavailable(format!(
            "nodes go by a map of epoch {epoch}, which none of them gives: repeat the call"
        )))
    }

    /// The same for a call that goes to some nodes and does without the others.
    pub(super) fn catch_up(&self, end: Instant) {
        if let Some(epoch) = self.heard() {
            self.learn_rarely(epoch - 1, end);
        }
    }

    /// As [`Nodes::learn`], where the same may be asked again and again: no more than once a second.
    pub(super) fn learn_rarely(&self, since: u32, end: Instant) -> bool {
        {
            let mut tried = self.tried.lock();
            let now = self.now();
            if tried.is_some_and(|at| now.saturating_duration_since(at) < AGAIN) {
                return self.epoch() > since;
            }
            *tried = Some(now);
        }
        self.learn(since, end)
    }

    /// The answers of all nodes, with their numbers and names: also of those that a later map has, where an answer says that there is one.
    ///
    /// # Errors
    /// That of a node, with its name.
    pub(super) fn everywhere<T: Send>(
        &self,
        end: Instant,
        call: impl Fn(&C) -> Result<T> + Sync,
    ) -> Result<Vec<(NodeName, T)>> {
        self.at_all(end, |_, _| true, |_, _| false, call)
    }

    /// The same of the nodes that this picks of a map; those that may be left out are asked once, and are left out where they do not answer.
    ///
    /// # Errors
    /// As [`Nodes::everywhere`].
    pub(super) fn at_all<T: Send>(
        &self,
        end: Instant,
        picks: impl Fn(&Placed, &Node) -> bool,
        may_be_left_out: impl Fn(&Placed, &Node) -> bool + Sync,
        call: impl Fn(&C) -> Result<T> + Sync,
    ) -> Result<Vec<(NodeName, T)>> {
        let mut answers: Vec<(NodeName, T)> = Vec::new();
        loop {
            let (placed, limit) = (self.placed(), self.half(end));
            let is_new = |node: &&Node| answers.iter().all(|(name, _)| name.0 != node.id);
            let nodes: Vec<&Node> = placed.nodes().filter(is_new).filter(|node| picks(&placed, node)).collect();
            let asked = self.beside(nodes.iter().copied(), true, |node| {
                // Without a connection the error has the node's name.
                let is_spare = may_be_left_out(&placed, node);
                let limit = if is_spare { Limit::once(self.now(), limit.reach) } else { limit };
                let answer = self.node_within(node.id, limit);
                match answer.and_then(|client| call(&client).map_err(|error| named(node, &error))) {
                    Err(error) if is_spare && error.is_unanswered() => Ok(None),
                    answer => answer.map(Some),
                }
            });
            let mut failed: Option<Error> = None;
            for (node, answer) in nodes.into_iter().zip(asked) {
                match answer {
                    Ok(answer) => answers.extend(answer.map(|answer| ((node.id, node.name.clone()), answer))),
                    // First one whose outcome is unknown, then one that was answered: only what was not is asked for again.
                    Err(error) => {
                        let is_first = failed.as_ref().is_none_or(Error::is_unanswered);
                        if is_first || error.kind() == Kind::OutcomeUnknown {
                            failed = Some(error);
                        }
                    }
                }
            }
            // By a later map a node that failed may be elsewhere, or gone.
            match (self.renew(placed.map.epoch(), end), failed) {
                (Ok(true), None) => {}
                // What may have taken effect is not done again.
                (Ok(true), Some(error)) if error.kind() != Kind::OutcomeUnknown => {}
                (_, Some(error)) if limit.leaves_time(self.now(), &error) => {}
                (_, Some(error)) => return Err(error),
                (renewed, None) => return renewed.map(|_| answers),
            }
        }
    }
}

/// An error with the node from which it is.
pub(super) fn named(node: &Node, error: &Error) -> Error {
    error.in_words(format!("node {} (`{}`): {}", node.id, node.name, error.message())).with_source(error.again())
}

/// The first address that answers.
///
/// # Errors
/// `Invalid` for an empty list, or the first one where none takes the client; `Unavailable` where no address answers, with the reason of
/// each; other errors as they come.
pub(crate) fn first_that_answers<A: AsRef<str>, T>(
    addresses: &[A],
    options: &Options,
    make: impl Fn(Pool) -> Result<T>,
) -> Result<T> {
    if addresses.is_empty() {
        return Err(Error::invalid("no address of a node of the cluster: give at least one"));
    }
    let any = Options { node: None, ..options.clone() };
    let one = connect_to_one(addresses, &any, Limit::new(options.end(Duration::ZERO)), make);
    one.map_err(|error| match error.kind() {
        Kind::Unavailable => Error::unavailable(format!("no node of the cluster answers: {}", error.message())),
        _ => error,
    })
}

/// Connects by the first address that answers: each is tried once, so that none waits for one before it that is down, then in its part
/// of the time.
///
/// # Errors
/// `Invalid` where one answers and refuses, and no other one takes the client; `Unavailable` with all reasons.
fn connect_to_one<A: AsRef<str>, T>(
    addresses: &[A],
    options: &Options,
    limit: Limit,
    make: impl Fn(Pool) -> Result<T>,
) -> Result<T> {
    let (mut reasons, mut refused) = (Vec::new(), None);
    for is_patient in [false, true] {
        reasons.clear();
        for (address, left) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
            let (address, now) = (address.as_ref(), options.machine.now());
            let limit = if is_patient { limit.share(now, left) } else { Limit::once(now, limit.end) };
            match Pool::connect_within(limit, address, options.clone()).and_then(&make) {
                // Not every node need have a ring.
                Err(error) if error.kind() == Kind::Invalid => drop(refused.get_or_insert(error)),
                Err(error) if error.kind() == Kind::Unavailable => reasons.push(error.message().to_owned()),
                answer => return answer,
            }
        }
        if reasons.is_empty() || refused.is_some() || limit.reach <= options.machine.now() {
            break;
        }
    }
    Err(refused.unwrap_or_else(|| Error::unavailable(reasons.join("; ")).of_no_answer()))
}

/// Whether a later map may say that another node is asked.
pub(super) fn may_be_elsewhere(error: &Error) -> bool {
    // Without an answer it is not known what the first node did: only where nothing was sent another one is asked.
    matches!(error.kind(), Kind::Fenced | Kind::Unavailable)
}
