//! The node: its keyspaces, the thread that keeps the others up, and what people ask about it.

use crate::held::Stirred;
use crate::keyspace::{Connect, Keyspace, Wanted};
use crate::orders::json;
use forebay_client::{AsyncClient, Expected, Options};
use forebay_core::map::ClusterMap;
use forebay_core::{Error, Kind, Result, Signature};
use forebay_server::{Answering, Orders};
use forebay_store::{Departed, RunHome, Store};
use forebay_wire::{Control, Member};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often nodes that are behind are tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// How long a refusal of a run's home is told again without asking.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// How long a run is not asked for again that its home has opened, and this node has not.
const NOT_TAKEN_FOR: Duration = Duration::from_millis(100);
/// How long it is looked whether somebody answers at this node's own addresses.
const OWN_ADDRESS: Duration = Duration::from_millis(250);
/// Most runs that are asked for at once.
const WANTED_MAX: usize = 64;

/// How a node reaches the others.
#[derive(Clone, Default)]
pub struct NodeOptions {
    /// Token and certificates of its connections to other nodes. Deadlines are the node's.
    pub client: Options,
}

/// Another node, as this one sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its number.
    pub node: u16,
    /// Its name.
    pub name: String,
    /// What keeps it from having all orders; `None` where it has them.
    pub trouble: Option<String>,
}

/// A node and its peers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The cluster, as 32 digits.
    pub cluster: String,
    /// Epoch of the map that the node goes by.
    pub epoch: u32,
    /// Hash of that map, as 32 digits.
    pub hash: String,
    /// Its number.
    pub node: u16,
    /// Its name.
    pub name: String,
    /// The others.
    pub peers: Vec<PeerStatus>,
    /// Why it did not take the map of its file when it was last told to read it; `None` where it took it, or has a later one by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_refused: Option<String>,
}

impl Status {
    /// What is not well, in words.
    pub fn troubles(&self) -> Vec<String> {
        let refused = self.map_refused.iter().map(|why| format!("refused the map of its file: {why}"));
        let missed =
            self.peers.iter().filter_map(|peer| Some(format!("misses {}: {}", peer.name, peer.trouble.as_ref()?)));
        refused.chain(missed).collect()
    }
}

struct Inner {
    keyspaces: BTreeMap<String, Arc<Keyspace>>,
    /// The others are to be brought up now.
    soon: Notify,
    /// Why the map of the file was not taken, and the epoch that stayed in force.
    map_refused: Mutex<Option<(String, u32)>>,
}

/// A node of a cluster, over stores that have adopted its map. Dropping it ends its work; the stores go on.
pub struct Node {
    inner: Arc<Inner>,
    handle: Handle,
    /// Its work ends when this is dropped.
    _ends: oneshot::Sender<()>,
}

impl Node {
    /// Adopts a map in each store, and works on a thread of its own.
    ///
    /// # Errors
    /// Those of [`Store::adopt_map`]; `Invalid` for a keyspace with several copies, which this build does not keep; `Conflict` where
    /// another process is this node already; `Unavailable` where the system gives no thread.
    pub fn start(stores: Vec<Store>, map: &Arc<ClusterMap>, options: NodeOptions) -> Result<Arc<Node>> {
        let connected = |name: &str| -> Connect {
            let client = Options { keyspace: name.to_owned(), ..options.client.clone() };
            let keyspace =
                stores.iter().find(|store| store.keyspace().name == name).map(|store| store.keyspace().clone());
            Arc::new(move |node, expected, deadline| {
                let known = keyspace.clone().ok_or_else(|| Error::internal("a keyspace without a store"))?;
                AsyncClient::lazy(&node.at, known, Options { node: Some(expected), deadline, ..client.clone() })
            })
        };
        let keyspaces = keyspaces(&stores, map, connected, false)?;
        let no_thread = |error: std::io::Error| Error::unavailable("the system gives no thread").with_source(error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        runtime.block_on(is_alone(&keyspaces))?;
        let (node, working) = Node::over(keyspaces, runtime.handle().clone());
        let run = move || {
            runtime.block_on(working);
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("cluster".to_owned()).spawn(run).map_err(no_thread)?;
        Ok(node)
    }

    /// The same within a tokio runtime whose time somebody moves, with clients that somebody makes: for a simulator.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn within(
        store: Store,
        map: &Arc<ClusterMap>,
        connect: impl Fn(&forebay_core::map::Node, Expected, Duration) -> Result<AsyncClient> + Send + Sync + 'static,
    ) -> Result<Arc<Node>> {
        let connect: Connect = Arc::new(connect);
        let keyspaces = keyspaces(&[store], map, |_| connect.clone(), true)?;
        let (node, working) = Node::over(keyspaces, Handle::current());
        tokio::spawn(working);
        Ok(node)
    }

    /// A node whose calls run there, and its work, which ends when the node is dropped.
    fn over(
        keyspaces: BTreeMap<String, Arc<Keyspace>>,
        handle: Handle,
    ) -> (Arc<Node>, impl Future<Output = ()> + Send + 'static) {
        let (ends, ended) = oneshot::channel();
        let inner = Arc::new(Inner { keyspaces, soon: Notify::new(), map_refused: Mutex::default() });
        let node = Arc::new(Node { inner, handle, _ends: ends });
        let working = node.inner.clone().work(node.hear_of_runs());
        let until_its_end = async {
            tokio::select! {
                biased;
                _ = ended => {}
                () = working => {}
            }
        };
        (node, until_its_end)
    }

    /// Adopts a later map in each store.
    ///
    /// # Errors
    /// As [`Node::start`]: stores before the one that refused it go by it already, and it is to be tried again.
    pub fn adopt(&self, map: &Arc<ClusterMap>) -> Result<()> {
        self.inner.keyspaces.values().try_for_each(|keyspace| keyspace.can_go_by(map))?;
        for keyspace in self.inner.keyspaces.values() {
            keyspace.store.adopt_map(map)?;
            keyspace.meet()?;
            keyspace.all_peers().iter().for_each(|peer| peer.falls_behind("a later map"));
        }
        self.inner.soon.notify_one();
        Ok(())
    }

    /// Adopts the map of its file. Why it could not be read, or was not taken, is in the status.
    ///
    /// # Errors
    /// The map's own, and those of [`Node::adopt`].
    pub fn adopt_read(&self, map: Result<ClusterMap>) -> Result<()> {
        let adopted = map.and_then(|map| self.adopt(&Arc::new(map)));
        let in_force = self.any_keyspace().and_then(|keyspace| Some(keyspace.place().ok()?.0.epoch()));
        // An earlier map is no fault: where one node has read a later one, the files of the others stay as they were.
        let refused = adopted.as_ref().err().filter(|error| error.kind() != Kind::Fenced);
        let refused = refused.map(|error| error.message().to_owned());
        *self.inner.map_refused.lock() = refused.zip(in_force);
        adopted
    }

    /// The node and its peers, for one of its keyspaces.
    ///
    /// # Errors
    /// `Invalid` for a keyspace that it does not have.
    pub fn status(&self, keyspace: &str) -> Result<Status> {
        self.inner.status(self.inner.keyspace(keyspace)?)
    }

    /// All go by one map.
    pub(crate) fn any_keyspace(&self) -> Option<Arc<Keyspace>> {
        self.inner.keyspaces.values().next().cloned()
    }

    pub(crate) fn keyspace(&self, name: &str) -> Result<Arc<Keyspace>> {
        self.inner.keyspace(name).cloned()
    }

    fn hear_of_runs(&self) -> mpsc::Receiver<(String, u64)> {
        let (asks, wanted) = mpsc::channel(WANTED_MAX);
        for (name, keyspace) in &self.inner.keyspaces {
            let (name, asks) = (name.clone(), asks.clone());
            let (wanted, stirred) = (keyspace.wanted.clone(), keyspace.stirred.clone());
            keyspace.store.set_run_home(Arc::new(Asker { name, asks, wanted, stirred }));
        }
        wanted
    }
}

fn keyspaces(
    stores: &[Store],
    map: &Arc<ClusterMap>,
    connect: impl Fn(&str) -> Connect,
    at_once: bool,
) -> Result<BTreeMap<String, Arc<Keyspace>>> {
    let keyspace = |store: &Store| {
        let name = store.keyspace().name.clone();
        let keyspace = Keyspace::new(store.clone(), connect(&name), at_once);
        (name, Arc::new(keyspace))
    };
    let all: BTreeMap<_, _> = stores.iter().map(keyspace).collect();
    all.values().try_for_each(|keyspace| keyspace.can_go_by(map))?;
    for keyspace in all.values() {
        match keyspace.store.adopt_map(map) {
            // It went by a later one before: the file is an earlier one.
            Err(error) if error.kind() == Kind::Fenced => {
                tracing::warn!(%error, "the map is an earlier one than that of this node, which goes by its own");
            }
            adopted => drop(adopted?),
        }
        keyspace.meet()?;
    }
    Ok(all)
}

/// A process that answers where this node will be found, and says that it is this node, has its store or a copy of it.
async fn is_alone(keyspaces: &BTreeMap<String, Arc<Keyspace>>) -> Result<()> {
    let Some(keyspace) = keyspaces.values().next() else { return Ok(()) };
    let (map, own) = keyspace.place()?;
    let Some(node) = map.node(own) else { return Ok(()) };
    if keyspace.connect_to(&map, node, OWN_ADDRESS)?.control(&Control::Cluster).await.is_err() {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "another process is node {own} (`{}`) already, at {}: it has this store, or a copy of it. Stop one of the two: what is put into one is \
         not in the other",
        node.name,
        node.at.join(" or ")
    )))
}

impl Inner {
    fn status(&self, keyspace: &Keyspace) -> Result<Status> {
        let (map, own) = keyspace.place()?;
        let map_refused = self.map_refused.lock().clone().filter(|(_, epoch)| map.epoch() <= *epoch);
        let peer = |peer: &Arc<crate::keyspace::Peer>| PeerStatus {
            node: peer.node,
            name: peer.name.clone(),
            trouble: peer.trouble(),
        };
        Ok(Status {
            cluster: format!("{:?}", map.cluster()),
            epoch: map.epoch(),
            hash: format!("{:?}", map.hash()),
            node: own,
            name: map.node(own).map(|node| node.name.clone()).unwrap_or_default(),
            peers: keyspace.all_peers().iter().map(peer).collect(),
            map_refused: map_refused.map(|(why, _)| why),
        })
    }

    fn keyspace(&self, name: &str) -> Result<&Arc<Keyspace>> {
        self.keyspaces.get(name).ok_or_else(|| Error::invalid(format!("keyspace `{name}` is not in this cluster")))
    }

    async fn order(&self, keyspace: &str, signed: &str, control: Control) -> Result<Vec<u8>> {
        let keyspace = match self.keyspace(keyspace) {
            // Of a ring, which is in the map and has no orders.
            Err(_) if matches!(control, Control::Map | Control::Cluster) => self.keyspaces.values().next(),
            found => Some(found?),
        };
        let keyspace = keyspace.ok_or_else(|| Error::internal("a node without a store"))?;
        match control {
            Control::Order { node, epoch, boot, count, signed, order } => {
                keyspace.agree(node, epoch).await?;
                keyspace.obey(node, (boot, count), &signed, *order).await
            }
            Control::AsHome { node, epoch, signed, order } => {
                keyspace.agree(node, epoch).await?;
                keyspace.as_home(&signed, *order).await
            }
            Control::Learn { node, epoch } => {
                keyspace.agree(node, epoch).await?;
                Ok(b"null".to_vec())
            }
            Control::TellHomes { node, epoch } => {
                keyspace.agree(node, epoch).await?;
                keyspace.tell_homes().await;
                Ok(b"null".to_vec())
            }
            Control::CompareHeld { node, epoch } => {
                keyspace.agree(node, epoch).await?;
                let compare = move |store: &Store| {
                    store.compare_held(node);
                    Ok(())
                };
                keyspace.here(compare).await?;
                Ok(b"null".to_vec())
            }
            Control::Depart { node, epoch, events, fragments } => {
                keyspace.agree(node, epoch).await?;
                let events = events.into_iter().map(Departed::Event);
                let names: Vec<Departed> = events.chain(fragments.into_iter().map(Departed::Fragment)).collect();
                keyspace.here(move |store| store.depart(node, &names)).await?;
                Ok(b"null".to_vec())
            }
            Control::Misses { node, epoch, run, sources } => {
                keyspace.agree(node, epoch).await?;
                json(&keyspace.here(move |store| store.take_misses(run, &sources)).await?)
            }
            Control::Map => Ok(keyspace.place()?.0.to_json().into_bytes()),
            Control::Cluster => json(&self.status(keyspace)?),
            asked => keyspace.asked(signed, asked).await,
        }
    }

    /// Opens runs that events of this node are of, and keeps the others up.
    async fn work(self: Arc<Inner>, mut wanted: mpsc::Receiver<(String, u64)>) {
        let (mut telling, mut opening) = (JoinSet::new(), JoinSet::new());
        for keyspace in self.keyspaces.values() {
            telling.spawn(keyspace.clone().go_on_telling());
            telling.spawn(keyspace.clone().go_on_judging());
        }
        let mut next = Instant::now();
        loop {
            // In this order: a simulation draws nothing that its seed does not say.
            tokio::select! {
                biased;
                asked = wanted.recv(), if opening.len() < WANTED_MAX => {
                    let Some((name, run)) = asked else { return };
                    let inner = self.clone();
                    // Apart: a home that is down must not keep those of other runs from opening them.
                    opening.spawn(async move { inner.open_wanted(&name, run).await });
                }
                Some(_) = opening.join_next() => {}
                () = self.soon.notified() => next = Instant::now(),
                () = tokio::time::sleep_until(next) => {
                    next = Instant::now() + TRY_AGAIN;
                    for keyspace in self.keyspaces.values() {
                        for peer in keyspace.all_peers() {
                            // Apart: one that does not answer must not keep the others from being told.
                            let keyspace = keyspace.clone();
                            if peer.trouble().is_some() && peer.turn.try_lock().is_ok() {
                                tokio::spawn(async move {
                                    // What it does not take is in the log already.
                                    if keyspace.catch_up(&peer).await.is_ok_and(|is_caught_up| is_caught_up) {
                                        tracing::info!(node = peer.node, name = peer.name, "caught up");
                                    }
                                });
                            }
                        }
                    }
                }
            }
        }
    }

    async fn open_wanted(&self, name: &str, run: u64) {
        let Ok(keyspace) = self.keyspace(name) else { return };
        let store = &keyspace.store;
        let opened = async {
            let config = store.keyspace().run.to_toml(store.schema())?;
            keyspace.asked(Signature::AUTO, Control::RunOpen { run, config }).await
        };
        let opened = opened.await;
        if opened.is_ok() && store.run_words(run).is_err() {
            // This node has not taken the order: its puts do not ask again at once.
            tokio::time::sleep(NOT_TAKEN_FOR).await;
        }
        let mut wanted = keyspace.wanted.lock();
        match opened {
            // Open with another configuration it is told when this node catches up.
            Err(error) if error.kind() != Kind::Conflict => {
                // What waits for the run was not put, whatever became of the order.
                let kind = match error.kind() {
                    kind @ (Kind::Closed | Kind::Full | Kind::Invalid) => kind,
                    _ => Kind::Unavailable,
                };
                wanted.insert(run, Some((kind, format!("run {run} is not open: {}", error.message()), Instant::now())));
            }
            _ => drop(wanted.remove(&run)),
        }
    }
}

struct Asker {
    name: String,
    asks: mpsc::Sender<(String, u64)>,
    wanted: Wanted,
    stirred: Arc<Stirred>,
}

impl RunHome for Asker {
    fn stirred(&self) {
        self.stirred.say();
    }

    fn wanted(&self, run: u64) -> Result<()> {
        let mut wanted = self.wanted.lock();
        wanted.retain(|_, refused| refused.as_ref().is_none_or(|(_, _, when)| when.elapsed() < REFUSED_FOR));
        match wanted.get(&run) {
            Some(Some((kind, message, _))) => Err(Error::new(*kind, message.clone())),
            Some(None) => Ok(()),
            None => {
                // Full: it is asked for by the next look.
                if self.asks.try_send((self.name.clone(), run)).is_ok() {
                    wanted.insert(run, None);
                }
                Ok(())
            }
        }
    }
}

impl Orders for Node {
    fn epoch(&self, keyspace: &str) -> u32 {
        // A ring goes by the map of the first store, as `map` answers it.
        let keyspaces = &self.inner.keyspaces;
        keyspaces.get(keyspace).or_else(|| keyspaces.values().next()).map_or(0, |keyspace| keyspace.store.epoch())
    }

    fn member(&self) -> Option<Member> {
        let (map, node) = self.any_keyspace()?.place().ok()?;
        Some(Member { cluster: map.cluster().0, node })
    }

    fn order(&self, keyspace: &str, signed: &str, control: Control) -> Answering {
        let (inner, keyspace, signed) = (self.inner.clone(), keyspace.to_owned(), signed.to_owned());
        // On the node's own thread: its connections to other nodes live there.
        let task = self.handle.spawn(async move { inner.order(&keyspace, &signed, control).await });
        Box::pin(
            async move { task.await.map_err(|error| Error::internal("an order ended in a panic").with_source(error))? },
        )
    }
}
