//! Looks at the nodes of a cluster, or at one server: all at once, over the native protocol.
//!
//! *Invariants*: a node that does not answer is in the reading, with the reason, and keeps the others from nothing; a look
//! takes no longer than one node takes for a connection and three calls.
//!
//! *On failure*: where no node has ever answered there is no reading; the next look connects again.

use forebay_client::{Client, ClusterClient, Options};
use forebay_cluster::Status;
use forebay_core::map::NodeState;
use forebay_core::{Either, Error, Ledger, Result, Stats};
use std::time::{Duration, Instant};

/// How long a node is waited for.
const LOOK: Duration = Duration::from_secs(2);

/// All nodes as they were at about one time.
pub(in crate::top) struct NodesReading {
    pub(super) keyspace: String,
    /// Cluster and epoch of its map; `None` for a server that is in none.
    pub(super) map: Option<(String, u32)>,
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
    pub(super) stats: Stats,
    /// Sums over all its runs.
    pub(super) sums: Ledger,
    /// The cluster as it sees it; `None` for a server that is in none.
    pub(super) status: Option<Status>,
}

/// The nodes behind addresses: those of a cluster, or one server, which is a list of one.
pub(in crate::top) struct NodesSource {
    addresses: String,
    options: Options,
    connected: Option<Either<Client, ClusterClient>>,
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
        if self.connected.is_none() {
            self.connected = Some(crate::connect::client_of(&self.addresses, self.options.clone())?);
        }
        let reading = match self.connected.as_ref() {
            Some(Either::Here(client)) => of_server(&self.addresses, client),
            Some(Either::There(cluster)) => of_cluster(cluster),
            None => return Err(Error::internal("connected to nothing")),
        };
        let ours = reading.map.as_ref().map_or(0, |map| map.1);
        let said = |node: &NodeReading| Some(node.answer.as_ref().ok()?.status.as_ref()?.epoch);
        if reading.nodes.iter().filter_map(said).any(|epoch| epoch > ours) {
            // A node goes by a later map: the next look is at the nodes of that one.
            self.connected = None;
        }
        Ok(reading)
    }
}

fn of_server(address: &str, client: &Client) -> NodesReading {
    let answer = figures(client, false);
    let one = NodeReading { node: 0, name: address.to_owned(), answer: answer.map_err(|error| said(&error)) };
    NodesReading { keyspace: client.keyspace().name.clone(), map: None, nodes: vec![one] }
}

fn of_cluster(cluster: &ClusterClient) -> NodesReading {
    let map = cluster.map();
    let nodes: Vec<_> = map.nodes().iter().filter(|node| node.state != NodeState::Gone).collect();
    let look = |node: u16| cluster.node(node).and_then(|client| figures(&client, true));
    // Beside each other: one that does not answer takes the whole time for itself only.
    let answers: Vec<_> = std::thread::scope(|scope| {
        let looks: Vec<_> = nodes.iter().map(|node| scope.spawn(|| look(node.id))).collect();
        looks.into_iter().map(|look| look.join().unwrap_or_else(|_| Err(Error::internal("a look panicked")))).collect()
    });
    let named = nodes.iter().zip(answers).map(|(node, answer)| NodeReading {
        node: node.id,
        name: node.name.clone(),
        answer: answer.map_err(|error| said(&error)),
    });
    NodesReading {
        nodes: named.collect(),
        keyspace: cluster.keyspace().name.clone(),
        map: Some((format!("{:?}", map.cluster()), map.epoch())),
    }
}

fn said(error: &Error) -> String {
    format!("{}: {}", error.kind().name(), error.message())
}

fn figures(client: &Client, is_node: bool) -> Result<Figures> {
    let corrupt = |error| Error::corrupt("no status of a node").with_source(error);
    let status = match is_node {
        true => Some(serde_json::from_str(&client.cluster_text()?).map_err(corrupt)?),
        false => None,
    };
    let stats = client.stats()?;
    let mut sums = Ledger::default();
    client.runs()?.iter().for_each(|run| sums.add(&run.ledger));
    Ok(Figures { at: Instant::now(), stats, sums, status })
}
