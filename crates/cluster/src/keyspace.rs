//! One keyspace on this node: its store, the other nodes, and the orders that go to them.

use crate::held::{Stirred, ToHolder};
use crate::orders::{Seen, carry_out, run_of};
use forebay_client::{AsyncClient, Expected};
use forebay_core::map::{ClusterMap, KeyspaceMap, NodeState};
use forebay_core::{Error, Kind, Result};
use forebay_store::{RUN_OPENS, Store};
use forebay_wire::{Control, Member};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Makes the client of a node, which has to be that one and whose calls end within this time.
pub(crate) type Connect =
    Arc<dyn Fn(&forebay_core::map::Node, Expected, Duration) -> Result<AsyncClient> + Send + Sync>;

/// How long an order waits for a node.
const ORDER: Duration = Duration::from_secs(2);
const _: () =
    assert!(ORDER.as_millis() < RUN_OPENS.as_millis(), "a put waits for a run's home that looks for dead nodes");
/// How long what a client asked for waits for the home of a run, which waits for the others.
pub(crate) const FORWARDED: Duration = Duration::from_secs(5);
/// How long an order waits behind others at the home, such as a close: who forwarded it still hears that it was not begun.
const IN_TURN: Duration = Duration::from_secs(4);

/// Runs that are asked for at their homes: `None` while that is under way, and what a home refused lately, and when.
pub(crate) type Wanted = Arc<Mutex<BTreeMap<u64, Option<(Kind, String, tokio::time::Instant)>>>>;

/// Another node, as this one's orders reach it.
pub(crate) struct Peer {
    pub(crate) node: u16,
    pub(crate) name: String,
    /// Its addresses in the map: with others it is another peer.
    at: Vec<String>,
    pub(crate) client: AsyncClient,
    /// For what its own orders take time for.
    pub(crate) forwards: AsyncClient,
    /// Held while an order is under way: orders arrive one after the other.
    pub(crate) turn: tokio::sync::Mutex<()>,
    standing: Mutex<Standing>,
    pub(crate) held: Arc<ToHolder>,
}

/// Whether a node has all orders.
struct Standing {
    /// Why it may lack one, for people; `None` where it has all. It is told everything before its next one.
    trouble: Option<String>,
    /// The last try failed: orders do not wait for it.
    is_away: bool,
    /// It did not answer that one: nothing else waits for it either.
    is_silent: bool,
    /// Orders that it was not told while it lacked others.
    missed: u64,
}

pub(crate) struct Keyspace {
    pub(crate) store: Store,
    /// Orders that this node decides as a home, one after the other.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// Orders that went out in this life.
    count: AtomicU64,
    pub(crate) peers: Mutex<BTreeMap<u16, Arc<Peer>>>,
    seen: Arc<tokio::sync::Mutex<Seen>>,
    /// Runs that puts wait for.
    pub(crate) wanted: Wanted,
    /// Something is to be told about what is held here, or elsewhere.
    pub(crate) stirred: Arc<Stirred>,
    pub(crate) connect: Connect,
    /// Calls of the store are made at once: nothing waits in a simulator.
    at_once: bool,
}

impl Keyspace {
    pub(crate) fn new(store: Store, connect: Connect, at_once: bool) -> Keyspace {
        Keyspace {
            store,
            turn: tokio::sync::Mutex::default(),
            count: AtomicU64::new(0),
            peers: Mutex::default(),
            seen: Arc::default(),
            wanted: Wanted::default(),
            stirred: Arc::default(),
            connect,
            at_once,
        }
    }

    /// The map that the store goes by, and this node's number in it.
    ///
    /// # Errors
    /// `Internal` for a store that is in no cluster.
    pub(crate) fn place(&self) -> Result<(Arc<ClusterMap>, u16)> {
        self.store.adopted_map().ok_or_else(|| Error::internal("a node without a map"))
    }

    pub(crate) fn placement<'a>(&self, map: &'a ClusterMap) -> Result<&'a KeyspaceMap> {
        let name = &self.store.keyspace().name;
        map.keyspace(name).ok_or_else(|| Error::internal(format!("keyspace `{name}` is not in the map")))
    }

    /// The home of a run: that of the slot of its number.
    pub(crate) fn home_of(&self, run: u64) -> Result<u16> {
        let (map, _) = self.place()?;
        Ok(self.placement(&map)?.home(run, &run.to_be_bytes()))
    }

    /// Whether this build does what a map wants of the store, and can be connected to its nodes: before it is adopted, which is for good.
    ///
    /// # Errors
    /// `Invalid` for several copies, and with the node's name for what is no address, or wants certificates that cannot be read.
    pub(crate) fn can_go_by(&self, map: &ClusterMap) -> Result<()> {
        let name = &self.store.keyspace().name;
        let Some(placement) = map.keyspace(name) else { return Ok(()) };
        if placement.copies() > 1 || placement.tables().iter().any(forebay_core::map::Table::has_copies) {
            return Err(Error::invalid(format!(
                "keyspace `{name}` has several copies in the map, which this build does not keep: give it `copies` 1, and each \
                 source of a table one node"
            )));
        }
        for node in map.nodes().iter().filter(|node| node.state != NodeState::Gone) {
            self.connect_to(map, node, ORDER).map_err(|error| {
                error.in_words(format!("node {} (`{}`) of the map: {}", node.id, node.name, error.message()))
            })?;
        }
        Ok(())
    }

    /// A client of a node, without a connection yet.
    pub(crate) fn connect_to(
        &self,
        map: &ClusterMap,
        node: &forebay_core::map::Node,
        deadline: Duration,
    ) -> Result<AsyncClient> {
        let member = Member { cluster: map.cluster().0, node: node.id };
        let keyspace = self.store.keyspace().to_toml()?.into();
        (self.connect)(node, Expected { member, keyspace }, deadline)
    }

    /// Takes the nodes of the map as they are now. New ones, and those with other addresses, are behind: they are told what there is.
    pub(crate) fn meet(&self) -> Result<()> {
        let (map, own) = self.place()?;
        let mut peers = self.peers.lock();
        peers.retain(|id, _| map.node(*id).is_some_and(|node| node.state != NodeState::Gone));
        for node in map.nodes().iter().filter(|node| node.id != own && node.state != NodeState::Gone) {
            let known = peers.get(&node.id);
            if known.is_some_and(|peer| peer.at == node.at) {
                continue;
            }
            let peer = Peer {
                node: node.id,
                name: node.name.clone(),
                at: node.at.clone(),
                client: self.connect_to(&map, node, ORDER)?,
                forwards: self.connect_to(&map, node, FORWARDED)?,
                turn: tokio::sync::Mutex::default(),
                standing: Mutex::new(Standing {
                    trouble: Some("not reached yet".to_owned()),
                    is_away: false,
                    is_silent: false,
                    missed: 0,
                }),
                held: known.map(|peer| peer.held.clone()).unwrap_or_default(),
            };
            peers.insert(node.id, Arc::new(peer));
        }
        Ok(())
    }

    pub(crate) fn all_peers(&self) -> Vec<Arc<Peer>> {
        self.peers.lock().values().cloned().collect()
    }

    /// Adopts the latest map of the nodes in contact. All are asked at once: each that does not answer takes as long as an order.
    async fn hear_of_maps(self: &Arc<Keyspace>) -> Result<()> {
        let reached = self.all_peers().into_iter().filter(|peer| peer.silent().is_none());
        let ask = |peer: Arc<Peer>| async move { (peer.map().await, peer) };
        let mut refused = None;
        for (map, peer) in reached.map(ask).collect::<JoinSet<_>>().join_all().await {
            match map {
                Ok(map) => refused = self.go_by(&peer, map).await.err().or(refused),
                // It does not answer, or not to this node: it is away, and keeps no run from starting.
                Err(error) => peer.fails(&error),
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Goes by the map that a node of a higher epoch has; one of another epoch than that is told so.
    ///
    /// # Errors
    /// `Fenced` for a lower epoch, and for one that the node itself does not have; those of the adoption; `Unavailable` where the node does not answer.
    pub(crate) async fn agree(&self, node: u16, epoch: u32) -> Result<()> {
        if epoch > self.store.epoch() {
            self.learn(&*self.peer(node)?).await?;
        }
        let own = self.store.epoch();
        if epoch != own {
            return Err(Error::fenced(format!("node {node} goes by epoch {epoch} of the map, and this one by {own}")));
        }
        Ok(())
    }

    /// Asks another node for its map, and adopts it if it is a later one; `true` if it was.
    pub(crate) async fn learn(&self, peer: &Peer) -> Result<bool> {
        self.go_by(peer, peer.map().await?).await
    }

    async fn go_by(&self, peer: &Peer, map: Arc<ClusterMap>) -> Result<bool> {
        let (own, _) = self.place()?;
        // Of two maps of one epoch the adoption says that there are two.
        if map.epoch() < own.epoch() || map.hash() == own.hash() {
            return Ok(false);
        }
        self.can_go_by(&map)?;
        let later = map.clone();
        match self.here(move |store| store.adopt_map(&later)).await {
            // Another one came first, and is later still.
            Err(error) if error.kind() == Kind::Fenced => return Ok(false),
            adopted => adopted.map(drop)?,
        }
        self.meet()?;
        tracing::info!(epoch = map.epoch(), from = peer.node, "goes by a later map");
        Ok(true)
    }

    /// Whether a node is in contact, as far as this one knows.
    ///
    /// # Errors
    /// `Unavailable` with its name and the reason.
    pub(crate) fn answers(&self, node: u16) -> Result<()> {
        let Some(peer) = self.known_peer(node) else { return Ok(()) };
        let Some(why) = peer.silent() else { return Ok(()) };
        Err(Error::unavailable(format!("node {node} (`{}`) does not answer: {why}", peer.name)))
    }

    pub(crate) fn known_peer(&self, node: u16) -> Option<Arc<Peer>> {
        self.peers.lock().get(&node).cloned()
    }

    fn peer(&self, node: u16) -> Result<Arc<Peer>> {
        self.known_peer(node).ok_or_else(|| Error::unavailable(format!("node {node} is not in this node's map")))
    }

    /// Does something on the store, where it may wait.
    pub(crate) async fn here<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.at_once {
            return work(&self.store);
        }
        let store = self.store.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.map_err(|error| Error::internal("a call ended in a panic").with_source(error))?
    }

    pub(crate) async fn here_as(&self, signed: &str, order: &Control) -> Result<Vec<u8>> {
        let (signed, order) = (signed.to_owned(), order.clone());
        self.here(move |store| carry_out(store, &signed, &order)).await
    }

    /// What a client asked this node for: its home does it.
    pub(crate) async fn asked(self: &Arc<Keyspace>, signed: &str, order: Control) -> Result<Vec<u8>> {
        let (run, (map, own)) = (run_of(&order)?, self.place()?);
        let home = self.home_of(run)?;
        if home == own {
            return self.as_home(signed, order).await;
        }
        let peer = self.peer(home)?;
        let part = match order {
            Control::Hold { .. } | Control::ReleaseHold { .. } => "which decides about all holds".to_owned(),
            _ => format!("the home of run {run}"),
        };
        let is_stop = matches!(order, Control::RunStop { .. });
        // Nothing waits for a home of which it is known that it does not answer.
        if let Some(why) = peer.silent() {
            if is_stop {
                return self.stop_without_home(signed, &order).await;
            }
            return Err(Error::unavailable(format!(
                "node {home} (`{}`), {part}, does not answer: {why}; not done: repeat it when it does, or for a run that has not begun \
                 take that node out of new runs (`forebay cluster change --take-out`)",
                peer.name
            )));
        }
        let forwarded = Control::AsHome {
            node: own,
            epoch: map.epoch(),
            signed: signed.to_owned(),
            order: Box::new(order.clone()),
        };
        // A stop is done without the home within the time of the call.
        let through = if is_stop { &peer.client } else { &peer.forwards };
        let answer = through.control(&forwarded).await;
        // The home goes by a later map, which this node may have by now: then the same again, with whom that says.
        let is_fenced = answer.as_ref().is_err_and(|error| error.kind() == Kind::Fenced);
        if is_fenced && self.learn(&peer).await.is_ok() && self.store.epoch() > map.epoch() {
            return Box::pin(self.asked(signed, order)).await;
        }
        if let Some(error) = answer.as_ref().err().filter(|error| error.is_silence()) {
            if is_stop {
                // It may be busy with another order: whether it answers is found where it is told of this one.
                return self.stop_without_home(signed, &order).await;
            }
            peer.fails(error);
        }
        answer.map_err(|error| {
            // No token is over: once this node has the home's map, it is done.
            let (kind, again) =
                if is_fenced { (Kind::Unavailable, "; not done: repeat it") } else { (error.kind(), "") };
            let what = format!("node {} (`{}`), {part}: {}{again}", peer.node, peer.name, error.message());
            Error::new(kind, what).with_source(error)
        })
    }

    /// A run is stopped although its home is away: here, and on every node in contact. A stop is final, so that no order of the home
    /// can contradict it; the home stops the run when it is back (`catch_up.rs`).
    async fn stop_without_home(self: &Arc<Keyspace>, signed: &str, order: &Control) -> Result<Vec<u8>> {
        let _one_after_another = self.in_turn().await?;
        let answer = self.here_as(signed, order).await?;
        self.have_done(signed, order).await;
        Ok(answer)
    }

    /// Waits until no other order is decided here.
    ///
    /// # Errors
    /// `Unavailable` where one takes long; nothing was done.
    pub(crate) async fn in_turn(&self) -> Result<tokio::sync::MutexGuard<'_, ()>> {
        let busy = "another order takes long at the home of the run, such as a close; not done: repeat it";
        tokio::time::timeout(IN_TURN, self.turn.lock()).await.map_err(|_| Error::unavailable(busy))
    }

    /// This node decides, and has the others do the same.
    ///
    /// # Errors
    /// Those of the call; `Fenced` where this node is not the home.
    pub(crate) async fn as_home(self: &Arc<Keyspace>, signed: &str, order: Control) -> Result<Vec<u8>> {
        let (run, (map, own)) = (run_of(&order)?, self.place()?);
        let home = self.home_of(run)?;
        if home != own {
            let epoch = map.epoch();
            return Err(Error::fenced(format!(
                "the home of run {run} is node {home}, and this is node {own} (epoch {epoch})"
            )));
        }
        let _one_after_another = self.in_turn().await?;
        if matches!(order, Control::RunOpen { .. }) {
            // A run stays where it begins: by the latest map that a node in contact has.
            self.hear_of_maps().await?;
            let home = self.home_of(run)?;
            if home != own {
                let epoch = self.store.epoch();
                return Err(Error::fenced(format!(
                    "the home of run {run} is node {home} by a later map (epoch {epoch}): ask it"
                )));
            }
        }
        if let Control::RunClose { run } = order {
            return self.close(signed, run).await;
        }
        let answer = self.here_as(signed, &order).await;
        match &answer {
            // It is in force here, though a device may not know: the others do it as well.
            Err(error) if error.kind() != Kind::OutcomeUnknown => {
                if error.kind() == Kind::Conflict && matches!(order, Control::RunOpen { .. }) {
                    // It is open: who asks may not know.
                    self.all_peers().iter().for_each(|peer| peer.falls_behind("a run that it may not know"));
                }
                return answer;
            }
            _ => {}
        }
        // What is recorded is recorded at the home.
        if matches!(order, Control::Prescale { .. }) {
            return answer;
        }
        let order = match (&answer, order) {
            (Ok(answer), Control::Hold { run, conditions }) => {
                let id = serde_json::from_slice(answer);
                let id = id.map_err(|error| Error::internal("the number of a hold").with_source(error))?;
                Control::HoldAs { id, run, conditions }
            }
            (_, order) => order,
        };
        self.have_done(signed, &order).await;
        answer
    }

    /// What this node did as a home the others do as well.
    pub(crate) async fn have_done(self: &Arc<Keyspace>, signed: &str, order: &Control) {
        for (peer, told) in self.tell_all(signed, order).await {
            if let Err(error) = told {
                let order = order.call().name();
                tracing::warn!(node = peer.node, name = peer.name, %error, order, "a node was not told: it catches up");
            }
        }
    }

    /// Tells every other node at once; those that are behind are told later, with all that they lack. Where it is dropped, it is
    /// dropped for all.
    pub(crate) async fn tell_all(self: &Arc<Keyspace>, signed: &str, order: &Control) -> Vec<(Arc<Peer>, Result<()>)> {
        let tell = |peer: Arc<Peer>| {
            let (keyspace, signed, order) = (self.clone(), signed.to_owned(), order.clone());
            async move { (peer.clone(), keyspace.tell(&peer, &signed, &order).await) }
        };
        self.all_peers().into_iter().map(tell).collect::<JoinSet<_>>().join_all().await
    }

    async fn tell(&self, peer: &Peer, signed: &str, order: &Control) -> Result<()> {
        // Before the turn too: a dead node is tried for seconds, and nobody waits for that.
        peer.misses_if_away()?;
        if peer.trouble().is_some() {
            self.catch_up(peer).await?;
            // This order is in the store already, except for those of a close: the state that was told says nothing of it.
            if !matches!(order, Control::BeginClose { .. } | Control::RunClose { .. }) {
                return Ok(());
            }
        }
        let _in_order = peer.turn.lock().await;
        peer.misses_if_away()?;
        self.send(peer, signed, order).await
    }

    /// Sends one order; the peer's turn is held.
    pub(crate) async fn send(&self, peer: &Peer, signed: &str, order: &Control) -> Result<()> {
        let (map, own) = self.place()?;
        let told = Control::Order {
            node: own,
            epoch: map.epoch(),
            boot: self.store.boot(),
            count: self.count.fetch_add(1, Ordering::Relaxed) + 1,
            signed: signed.to_owned(),
            order: Box::new(order.clone()),
        };
        let answer = peer.client.control(&told).await.map(drop);
        // That something is left to decide there is an answer, and the node lacks nothing.
        if let Err(error) = &answer
            && (error.is_silence() || !matches!(order, Control::BeginClose { .. }))
        {
            // What fails for good on the other node fails again when it catches up, where people see it.
            peer.fails(error);
        }
        answer
    }

    /// What the home of a run did is done here.
    ///
    /// # Errors
    /// Those of the call; `Fenced` for an order that comes late, or of a node that is not the home by this node's map.
    pub(crate) async fn obey(&self, node: u16, number: (u32, u64), signed: &str, order: Control) -> Result<Vec<u8>> {
        let run = match &order {
            Control::BeginClose { run } | Control::AbandonClose { run } | Control::MasksByPolicy { run, .. } => *run,
            Control::HoldAs { .. } => 0,
            other => run_of(other)?,
        };
        let home = self.home_of(run)?;
        if home != node && !matches!(order, Control::RunStop { .. }) {
            return Err(Error::fenced(format!(
                "the home of run {run} is node {home}, and node {node} gives an order about it"
            )));
        }
        let mut seen = self.seen.clone().lock_owned().await;
        seen.take(node, number)?;
        let signed = signed.to_owned();
        let work = move |store: &Store| {
            // Until it is done, also where nobody waits for that any more: the next one of this home comes after it.
            let _seen = seen;
            carry_out(store, &signed, &order)
        };
        self.here(work).await
    }
}

impl Standing {
    fn lacks(&mut self, why: &str) {
        self.trouble = Some(why.to_owned());
        self.missed += 1;
    }
}

impl Peer {
    /// Its map.
    async fn map(&self) -> Result<Arc<ClusterMap>> {
        let json = self.client.control(&Control::Map).await?;
        let text =
            String::from_utf8(json).map_err(|error| Error::corrupt("a map that is no text").with_source(error))?;
        Ok(Arc::new(ClusterMap::from_json(&text)?))
    }

    /// It did not take an order, or did not answer: what it lacks it is told later, and orders do not wait for it.
    pub(crate) fn fails(&self, error: &Error) {
        let mut standing = self.standing.lock();
        // Once for each reason: it is tried again and again.
        let (node, name) = (self.node, &self.name);
        if error.is_silence() && !standing.is_away {
            tracing::warn!(node, name, %error, "a node does not answer");
        } else if !error.is_silence() && standing.trouble.as_deref() != Some(error.message()) {
            tracing::error!(node, name, %error, "a node does not take what it is told");
        }
        standing.lacks(error.message());
        (standing.is_away, standing.is_silent) = (true, error.is_silence());
    }

    /// It may lack an order from now on.
    pub(crate) fn falls_behind(&self, why: &str) {
        self.standing.lock().lacks(why);
    }

    /// Why it may lack orders; `None` where it has all.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.standing.lock().trouble.clone()
    }

    /// Why it does not answer; `None` where it does, as far as is known, though it may refuse orders.
    pub(crate) fn silent(&self) -> Option<String> {
        let standing = self.standing.lock();
        standing.trouble.clone().filter(|_| standing.is_silent)
    }

    fn misses_if_away(&self) -> Result<()> {
        let mut standing = self.standing.lock();
        let Some(trouble) = standing.trouble.clone().filter(|_| standing.is_away) else { return Ok(()) };
        standing.missed += 1;
        Err(Error::unavailable(trouble))
    }

    pub(crate) fn missed(&self) -> u64 {
        self.standing.lock().missed
    }

    /// It was told all that there was when it had missed this number of orders; `false` where it missed one since.
    pub(crate) fn is_up(&self, missed: u64) -> bool {
        let mut standing = self.standing.lock();
        if standing.missed == missed {
            standing.trouble = None;
            (standing.is_away, standing.is_silent) = (false, false);
        }
        standing.trouble.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_client::Options;
    use forebay_core::map::{Change, Hex128, Node};
    use forebay_store::Config;
    use forebay_testkit::media::SimMedium;
    use std::task::Poll;

    fn store() -> Store {
        let config = Config { hot_bytes: 16 << 20, maintenance: false, ..Config::default() };
        let schema = forebay_core::Keyspace::events("events", 1).opening_runs();
        Store::create_on(SimMedium::new(config.hot_bytes), &schema, config).unwrap()
    }

    /// The store in a map with other nodes, none of which is there.
    fn alone_of(nodes: u16) -> Arc<Keyspace> {
        let store = store();
        let node = |id: u16| Node {
            id,
            name: format!("n{id}"),
            at: vec![format!("unix:/nobody/n{id}")],
            domain: String::new(),
            holds: if id == 1 { store.holding() } else { (Hex128(u128::from(id)), 0) },
            state: NodeState::Active,
        };
        let map = ClusterMap::new(Hex128(7), (1..=nodes).map(node).collect()).unwrap();
        let keyspace = Change::Keyspace { name: "events".into(), copies: 1, copies_min: 1, block: 6 };
        store.adopt_map(&Arc::new(map.next_map(&keyspace).unwrap())).unwrap();
        let schema = store.keyspace().clone();
        let connect = move |node: &Node, expected, deadline| {
            AsyncClient::lazy(
                &node.at,
                schema.clone(),
                Options { node: Some(expected), deadline, ..Options::default() },
            )
        };
        let keyspace = Arc::new(Keyspace::new(store, Arc::new(connect), false));
        keyspace.meet().unwrap();
        // As if they had been there until now.
        keyspace.all_peers().iter().for_each(|peer| assert!(peer.is_up(0)));
        keyspace
    }

    fn opens(keyspace: &Keyspace, run: u64) -> Control {
        let schema = keyspace.store.keyspace();
        Control::RunOpen { run, config: schema.run.to_toml(&schema.schema).unwrap() }
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_waits_for_others_no_longer_than_its_sender() {
        let none: Connect = Arc::new(|_, _, _| Err(Error::internal("no other nodes")));
        let keyspace = Keyspace::new(store(), none, true);
        let under_way = keyspace.in_turn().await.unwrap();
        let error = tokio::time::timeout(FORWARDED, keyspace.in_turn()).await.unwrap().unwrap_err();
        assert!(error.kind() == Kind::Unavailable && error.message().contains("not done"), "{error}");
        drop(under_way);
        assert!(keyspace.in_turn().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_opens_in_time_where_many_nodes_have_just_died() {
        let keyspace = alone_of(12);
        let run = (1..).find(|run| keyspace.home_of(*run).unwrap() == 1).unwrap();
        let opened = keyspace.as_home("operator", opens(&keyspace, run));
        tokio::time::timeout(RUN_OPENS, opened).await.expect("as long as one of them takes").unwrap();
        assert!(keyspace.all_peers().iter().all(|peer| peer.silent().is_some()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_refuses_an_order_still_answers() {
        let keyspace = alone_of(2);
        let peer = keyspace.peer(2).unwrap();
        for refusal in [Error::full("its log"), Error::unknown("its device")] {
            peer.fails(&refusal);
            assert!(peer.misses_if_away().is_err() && peer.silent().is_none() && keyspace.answers(2).is_ok());
        }
        let silence = peer.map().await.unwrap_err();
        peer.fails(&silence);
        assert!(keyspace.answers(2).unwrap_err().message().contains("does not answer"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_with_another_address_is_another_peer() {
        let keyspace = alone_of(3);
        let before = [2, 3].map(|id| keyspace.peer(id).unwrap());
        let (map, _) = keyspace.place().unwrap();
        let node = Node { at: vec!["unix:/nobody/else".into()], ..map.node(2).unwrap().clone() };
        let out = map.next_map(&Change::TakeOut { node: 2, from_run: 100 }).unwrap();
        let back = out.next_map(&Change::Add { node, from_run: 200 }).unwrap();
        keyspace.go_by(&before[1], Arc::new(back)).await.unwrap();
        let after = [2, 3].map(|id| keyspace.peer(id).unwrap());
        assert!(!Arc::ptr_eq(&before[0], &after[0]) && Arc::ptr_eq(&before[1], &after[1]));
        assert!(after[0].trouble().is_some() && Arc::ptr_eq(&before[0].held, &after[0].held));
    }

    #[test]
    fn an_order_is_under_way_until_it_is_done_also_if_nobody_waits_for_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let keyspace = alone_of(2);
            let run = (1..).find(|run| keyspace.home_of(*run).unwrap() == 2).unwrap();
            let (goes_on, waits) = std::sync::mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || waits.recv());
            let mut earlier = Box::pin(keyspace.obey(2, (1, 1), "operator", opens(&keyspace, run)));
            assert!(std::future::poll_fn(|context| Poll::Ready(earlier.as_mut().poll(context))).await.is_pending());
            // Its connection is gone, and the later one's order comes.
            drop(earlier);
            let mut later = Box::pin(keyspace.obey(2, (1, 2), "operator", Control::RunStop { run }));
            assert!(std::future::poll_fn(|context| Poll::Ready(later.as_mut().poll(context))).await.is_pending());
            assert!(keyspace.store.run_words(run).is_err(), "none of them has been done yet");
            // The later one waits for the earlier one, not for a thread.
            drop(later);
            assert!(keyspace.seen.try_lock().is_err());
            goes_on.send(()).unwrap();
            busy.await.unwrap().unwrap();
            keyspace.obey(2, (1, 3), "operator", Control::RunStop { run }).await.unwrap();
        });
    }
}
