//! Looks at the nodes of a cluster, or at one server: all at once, over the native protocol.
//!
//! *Invariants*: a node that does not answer is in the reading, with the reason, and keeps the others from nothing; a look
//! takes no longer than one node takes for a connection and three calls. Of a ring there are the nodes to which a look-up table gives
//! something.
//!
//! *On failure*: where no node has ever answered there is no reading; the next look connects again.

use crate::connect::nodes_of;
use crate::part::{LOOK, look};
use forebay_client::{Client, ClusterClient, ClusterRing, Connected, Options, RingClient};
use forebay_cluster::Status;
use forebay_core::map::{ClusterMap, Node};
use forebay_core::{Either, Error, Ledger, Result, RingStats, Stats};
use std::time::Instant;

/// All nodes as they were at about one time.
pub(in crate::top) struct NodesReading {
    pub(super) keyspace: String,
    /// Cluster and epoch of its map; `None` for a server that is in none.
    pub(super) map: Option<(String, u32)>,
    pub(super) is_ring: bool,
    pub(super) nodes: Vec<NodeReading>,
}

impl NodesReading {
    /// How many nodes there are.
    pub(in crate::top) fn count(&self) -> usize {
        self.nodes.len()
    }
}

/// One node.
pub(super) struct NodeReading {
    /// Its number in the map; 0 for a server that is in no cluster.
    pub(super) node: u16,
    /// Its name in the map, or the address of a server.
    pub(super) name: String,
    /// What it says, or why it says nothing.
    pub(super) answer: std::result::Result<Figures, String>,
}

/// What a node says of itself.
pub(super) struct Figures {
    /// When its counts were there: a node that is slow to answer is read later than others.
    pub(super) at: Instant,
    pub(super) kept: Kept,
    /// The cluster as it sees it; `None` for a server that is in none.
    pub(super) status: Option<Status>,
}

/// What a node keeps.
pub(super) enum Kept {
    Events {
        stats: Box<Stats>,
        /// Sums over all its runs.
        sums: Ledger,
    },
    Ring {
        stats: RingStats,
        /// Sources that it has seen.
        sources: usize,
    },
}

/// A server or a cluster, of events or of a ring.
enum Place {
    Server(Connected),
    Cluster(Either<ClusterClient, ClusterRing>),
}

/// The nodes behind addresses: those of a cluster, or one server, which is a list of one.
pub(in crate::top) struct NodesSource {
    addresses: String,
    options: Options,
    connected: Option<Place>,
}

impl NodesSource {
    /// Of addresses with commas between them. Nothing is asked yet.
    pub(in crate::top) fn new(addresses: &str, options: Options) -> NodesSource {
        let options = Options { deadline: LOOK, connect_deadline: LOOK, ..options };
        NodesSource { addresses: addresses.to_owned(), options, connected: None }
    }

    /// The addresses.
    pub(in crate::top) fn addresses(&self) -> &str {
        &self.addresses
    }

    /// Looks at all nodes now.
    ///
    /// # Errors
    /// Those of connecting, while no node has answered.
    pub(in crate::top) fn read(&mut self) -> Result<NodesReading> {
        let place = match self.connected.take() {
            Some(place) => place,
            None if self.addresses.contains(',') => {
                Place::Cluster(Connected::cluster(&nodes_of(&self.addresses), &self.options)?)
            }
            None => Place::Server(Connected::connect(&self.addresses, self.options.clone())?),
        };
        let reading = match &place {
            Place::Server(server) => of_server(&self.addresses, server),
            Place::Cluster(Either::Here(events)) => {
                let figures = |node| events.node(node).and_then(|client| figures_of_events(&client, true));
                let map = events.map();
                of_cluster(&events.keyspace().name, false, &map, map.nodes(), figures)
            }
            Place::Cluster(Either::There(ring)) => {
                let figures = |node| ring.node(node).and_then(|client| figures_of_ring(&client, true));
                of_cluster(&ring.keyspace().name, true, &ring.map(), &ring.nodes(), figures)
            }
        };
        let ours = reading.map.as_ref().map_or(0, |map| map.1);
        let said = |node: &NodeReading| Some(node.answer.as_ref().ok()?.status.as_ref()?.epoch);
        // Where a node goes by a later map, the next look is at the nodes of that one.
        self.connected = (!reading.nodes.iter().filter_map(said).any(|epoch| epoch > ours)).then_some(place);
        Ok(reading)
    }
}

fn of_server(address: &str, server: &Connected) -> NodesReading {
    let (keyspace, is_ring, answer) = match server {
        Connected::Events(client) => (client.keyspace().name.clone(), false, figures_of_events(client, false)),
        Connected::Ring(ring) => (ring.keyspace().name.clone(), true, figures_of_ring(ring, false)),
    };
    let one = NodeReading { node: 0, name: address.to_owned(), answer: answer.map_err(|error| said(&error)) };
    NodesReading { keyspace, map: None, is_ring, nodes: vec![one] }
}

fn of_cluster(
    keyspace: &str,
    is_ring: bool,
    map: &ClusterMap,
    nodes: &[Node],
    figures: impl Fn(u16) -> Result<Figures> + Sync,
) -> NodesReading {
    let named = look(nodes, |node| figures(node.id)).into_iter().map(|(node, answer)| NodeReading {
        node: node.id,
        name: node.name.clone(),
        answer: answer.map_err(|error| said(&error)),
    });
    NodesReading {
        nodes: named.collect(),
        keyspace: keyspace.to_owned(),
        map: Some((format!("{:?}", map.cluster()), map.epoch())),
        is_ring,
    }
}

fn said(error: &Error) -> String {
    format!("{}: {}", error.kind().name(), error.message())
}

fn figures_of_events(client: &Client, is_node: bool) -> Result<Figures> {
    let status = status(is_node, || client.cluster_text())?;
    let stats = Box::new(client.stats()?);
    let mut sums = Ledger::default();
    client.runs()?.iter().for_each(|run| sums.add(&run.ledger));
    Ok(Figures { at: Instant::now(), kept: Kept::Events { stats, sums }, status })
}

fn figures_of_ring(ring: &RingClient, is_node: bool) -> Result<Figures> {
    let status = status(is_node, || ring.cluster_text())?;
    let sources = ring.sources()?.len();
    let stats = ring.stats()?;
    Ok(Figures { at: Instant::now(), kept: Kept::Ring { stats, sources }, status })
}

fn status(is_node: bool, text: impl Fn() -> Result<String>) -> Result<Option<Status>> {
    let corrupt = |error| Error::corrupt("no status of a node").with_source(error);
    is_node.then(|| serde_json::from_str(&text()?).map_err(corrupt)).transpose()
}
