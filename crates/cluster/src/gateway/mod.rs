//! A store as Redis's clients of a node see it: what is another node's goes there, and comes from there.
//!
//! ```text
//! session ─▶ Gateway ─ home of the event? ─ this node ─▶ its store, as ever                     (without a look-up table)
//!                          │ another one ─▶ ClusterClient ── one hop ──▶ its native listener, which forwards nothing
//!                          └ run, mask, hold ─▶ Node ─▶ home of the run     ready events ─▶ this store and some others in turn
//! ```
//!
//! *Invariants*: what may go over the network says so (`may_wait`, `try_put`, …), so that a session does it on a thread that may
//! wait; no lock is held meanwhile; each call to a node ends within [`FORWARD`]. A forwarded call is made with this node's token: the
//! session has checked the right of its client before (tests in `tests/redis.rs`).
//!
//! *On failure*: the error names the node. One that does not answer is asked by nobody else until it has caught up with its
//! orders, which is tried twice a second (`node.rs`): meanwhile the same error comes at once.
//!
//! *Not here*: commands and rights (`forebay-server`), which node has what (`forebay-client`).

mod events;
mod operated;
mod served;

pub use served::GatewayReservation;

use crate::keyspace::{Keyspace, Peer};
use crate::node::{Node, NodeOptions};
use forebay_client::{ClusterClient, Options};
use forebay_core::{Either, Error, Kind, Result};
use forebay_server::{Orders, Served, Server, ServerConfig};
use forebay_store::Store;
use forebay_wire::Control;
use serde::de::DeserializeOwned;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// How long a call waits for another node.
pub const FORWARD: Duration = Duration::from_secs(3);
/// How long a put waits for space there.
const SPACE: Duration = Duration::from_secs(1);
/// How long a look waits: for ready events, and whether a node is there at all.
const LOOK: Duration = Duration::from_secs(1);

const _: () = assert!(SPACE.as_millis() < FORWARD.as_millis(), "a full node says so before the call is given up");

/// This store, or the others.
type Both = Either<Store, ClusterClient>;

/// A store of a node, with what the other nodes have.
#[derive(Clone)]
pub struct Gateway {
    own: Store,
    here: Both,
    /// Who signs changes of runs.
    signed: String,
    /// `None` for a keyspace that is not in the map.
    others: Option<Arc<Others>>,
}

/// The nodes of the cluster, as this one reaches them.
struct Others {
    node: Arc<Node>,
    keyspace: Arc<Keyspace>,
    /// This node.
    number: u16,
    cluster: ClusterClient,
    there: Both,
    /// The same for looks.
    looks: ClusterClient,
    /// Who is asked next for ready events.
    turn: AtomicUsize,
}

impl Gateway {
    /// A store that is, or is not, one of those of a node.
    ///
    /// # Errors
    /// `Internal` for a node without a map.
    pub fn new(store: &Store, node: &Arc<Node>, options: &NodeOptions) -> Result<Gateway> {
        let others = match node.keyspace(&store.keyspace().name) {
            Ok(keyspace) => Some(Arc::new(Others::new(node, keyspace, &options.client)?)),
            Err(_) => None,
        };
        Ok(Gateway { own: store.clone(), here: Either::Here(store.clone()), signed: String::new(), others })
    }

    /// The others, by the map that this node goes by now.
    fn others(&self) -> Option<&Others> {
        let others = self.others.as_deref()?;
        if others.cluster.epoch() < self.own.epoch()
            && let Some((map, _)) = self.own.adopted_map()
        {
            others.cluster.go_by(&map);
            others.looks.go_by(&map);
        }
        Some(others)
    }

    /// The node with the home of an event, where that is another one.
    fn elsewhere(&self, primary: &[u8]) -> Option<(&Others, u16)> {
        let others = self.others()?;
        let home = others.cluster.home_of(primary);
        (home != others.number).then_some((others, home))
    }

    /// The same for its bytes: under a look-up table any node may have them, also those of an event of this one.
    fn elsewhere_with_bytes(&self, primary: &[u8]) -> Option<(&Others, u16)> {
        let others = self.others()?;
        let home = others.cluster.home_of(primary);
        (home != others.number || others.cluster.has_tables()).then_some((others, home))
    }

    /// Makes a call about an event at its home.
    fn at_home<T>(&self, primary: &[u8], call: impl FnOnce(&Both) -> Result<T>) -> Result<T> {
        match self.elsewhere(primary) {
            None => call(&self.here),
            Some((others, home)) => others.at(home, || call(&others.there)),
        }
    }

    /// Makes a call that reads or writes bytes of an event.
    fn with_bytes<T>(&self, primary: &[u8], call: impl FnOnce(&Both) -> Result<T>) -> Result<T> {
        match self.elsewhere_with_bytes(primary) {
            None => call(&self.here),
            Some((others, home)) => others.at(home, || call(&others.there)),
        }
    }

    /// Makes a call about all nodes. Its error names the node that does not answer.
    fn everywhere<T>(&self, call: impl FnOnce(&Both) -> Result<T>) -> Result<T> {
        match self.others() {
            None => call(&self.here),
            Some(others) => {
                others.all_answer()?;
                call(&others.there)
            }
        }
    }

    /// Has the home of a run do something, and then all nodes; or this store, outside of a cluster.
    fn order<T: DeserializeOwned>(&self, control: Control, here: impl FnOnce(&Store) -> Result<T>) -> Result<T> {
        let Some(others) = self.others() else { return here(&self.own) };
        let json = wait_for(others.node.order(&self.own.keyspace().name, &self.signed, control))?;
        serde_json::from_slice(&json).map_err(|error| Error::internal("the answer to an order").with_source(error))
    }
}

impl Others {
    fn new(node: &Arc<Node>, keyspace: Arc<Keyspace>, client: &Options) -> Result<Others> {
        let (map, number) = keyspace.place()?;
        let name = format!("node {number}, for its Redis clients");
        // A lease is its worker's, who extends it.
        let options = Options { deadline: FORWARD, extend_leases: false, name, ..client.clone() };
        let known = keyspace.clone();
        let contact = Arc::new(move |node| known.answers(node));
        let cluster = ClusterClient::by_map(keyspace.store.keyspace(), &map, options, contact)?;
        Ok(Others {
            node: node.clone(),
            number,
            there: Either::There(cluster.clone()),
            looks: cluster.within(LOOK),
            cluster,
            turn: AtomicUsize::new(0),
            keyspace,
        })
    }

    fn all_answer(&self) -> Result<()> {
        self.keyspace.all_peers().iter().try_for_each(|peer| self.keyspace.answers(peer.node))
    }

    /// Makes a call at a node, which may ask others for bytes.
    fn at<T>(&self, node: u16, call: impl FnOnce() -> Result<T>) -> Result<T> {
        call().map_err(|error| self.named(node, error))
    }

    /// An error with the name of the node that it is from. If that answers nothing at all, or a holder that it needed, others need not
    /// find that out by waiting.
    fn named(&self, node: u16, error: Error) -> Error {
        // A node that answers may say `Unavailable` too, of a run whose home is away.
        let is_lost = |error: &Error| matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown);
        let mut from = node;
        if is_lost(&error) {
            let mut asked = self.keyspace.all_peers();
            asked.retain(|peer| peer.node == node || self.cluster.has_tables());
            let silence = |peer: &Arc<Peer>| {
                let look = || self.looks.node(peer.node).and_then(|client| client.map_text());
                if peer.silent().is_some() { None } else { look().err().filter(Error::is_silence) }
            };
            match asked.iter().find_map(|peer| Some((peer, silence(peer)?))) {
                Some((found, silence)) => {
                    found.fails(&silence);
                    from = found.node;
                }
                // Another call found it out meanwhile.
                None => from = asked.iter().find(|peer| peer.silent().is_some()).map_or(node, |silent| silent.node),
            }
        }
        let name = |peer: &Peer| format!("node {} (`{}`)", peer.node, peer.name);
        match self.keyspace.known_peer(from) {
            // Without it as a source: a line of Redis's protocol would say it twice.
            Some(peer) if !self.keyspace.all_peers().iter().any(|peer| error.message().contains(&name(peer))) => {
                Error::new(error.kind(), format!("{}: {}", name(&peer), error.message()))
            }
            _ => error,
        }
    }
}

/// Serves the stores and rings of a node: Forebay's own protocol speaks to this node, Redis's to the whole cluster.
///
/// # Errors
/// As [`Server::start_node`] and [`Gateway::new`].
pub fn serve(served: Vec<Served>, config: ServerConfig, node: &Arc<Node>, options: &NodeOptions) -> Result<Server> {
    for served in &served {
        if let Served::Ring(ring) = served {
            node.place(ring);
        }
    }
    let gateway = |served: &Served| {
        Ok(match served {
            Served::Events(store) => Served::Events(Gateway::new(store, node, options)?),
            Served::Ring(ring) => Served::Ring(ring.clone()),
        })
    };
    let redis = served.iter().map(gateway).collect::<Result<Vec<_>>>()?;
    Server::start_node(served, redis, config, node.clone())
}

/// Waits on this thread for what others do on theirs.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Unpark>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            // Unparked before it is parked, it goes on at once.
            Poll::Pending => std::thread::park(),
        }
    }
}
