//! Nodes of a cluster in one process: what a cluster costs, and not what more machines bring.

use super::peer::keyspace;
use crate::Result;
use forebay_cluster::{Node, NodeOptions};
use forebay_core::map::{self, Change, ClusterMap, Hex128, NodeState};
use forebay_server::{Endpoint, Served, Server, ServerConfig};
use forebay_store::{Config, Store};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Nodes of the cluster; the last one leads no events.
const NODES: u16 = 4;
/// First run whose bytes are all with the last node.
pub(super) const ELSEWHERE: u64 = 1_000_000;
/// First run whose bytes are spread over all nodes.
pub(super) const SPREAD: u64 = 2_000_000;

pub(super) fn node(id: u16, at: &Path, holds: (Hex128, u32)) -> map::Node {
    let (name, at) = (format!("n{id}"), vec![format!("unix:{}", at.display())]);
    map::Node { id, domain: name.clone(), name, at, holds, state: NodeState::Active }
}

/// A map of these nodes, of which the `idle` one leads no events, with these tables.
pub(super) fn map_of(
    nodes: Vec<map::Node>,
    idle: Option<u16>,
    tables: &[(u64, &[(&str, u16)])],
) -> Result<Arc<ClusterMap>> {
    let keyspace = "bench".to_owned();
    let change = Change::Keyspace { name: keyspace.clone(), copies: 1, copies_min: 1, block: 6 };
    let mut map = ClusterMap::new(Hex128(0xBE), nodes)?.next_map(&change)?;
    if let Some(node) = idle {
        map = map.next_map(&Change::TakeOut { node, from_run: 1 })?;
    }
    for (from_run, sources) in tables {
        let sources = sources.iter().map(|(sources, node)| ((*sources).to_owned(), vec![*node])).collect();
        map = map.next_map(&Change::Table { keyspace: keyspace.clone(), from_run: *from_run, sources })?;
    }
    Ok(Arc::new(map))
}

pub(super) fn config(hot_bytes: u64) -> Config {
    Config { hot_bytes, put_deadline: Duration::ZERO, ..Config::default() }
}

/// A node at work.
pub(super) fn start(store: &Store, map: &Arc<ClusterMap>, socket: &Path) -> Result<(Server, Arc<Node>)> {
    let options = NodeOptions::default();
    let node = Node::start(vec![store.clone()], map, options.clone())?;
    let native = vec![Endpoint::Unix(socket.to_owned())];
    let config = ServerConfig { native, threads: 1, ..ServerConfig::default() };
    Ok((forebay_cluster::serve(vec![Served::from(store.clone())], config, &node, &options)?, node))
}

/// Serves until standard input ends. The nodes together have twice the space of one server.
pub(super) fn serve(dir: &Path, hot_bytes: u64) -> Result<()> {
    let socket = |id: u16| dir.join(format!("n{id}.sock"));
    let create = |id: u16| Store::create(&dir.join(format!("n{id}")), &keyspace(), config(hot_bytes / 2));
    let stores = (1..=NODES).map(create).collect::<forebay_core::Result<Vec<_>>>()?;
    let nodes = stores.iter().zip(1..).map(|(store, id)| node(id, &socket(id), store.holding())).collect();
    let spread = [("0..24", 1), ("25..49", 2), ("50..74", 3), ("75..99", 4)];
    let map = map_of(nodes, Some(NODES), &[(ELSEWHERE, &[("0..99", NODES)]), (SPREAD, &spread)])?;
    let serving = stores.iter().zip(1..).map(|(store, id)| start(store, &map, &socket(id)));
    let serving = serving.collect::<Result<Vec<_>>>()?;
    (1..=NODES).for_each(|id| println!("native unix:{}", socket(id).display()));
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    for (server, _) in serving {
        server.stop(Duration::from_secs(2));
    }
    stores.iter().try_for_each(Store::close)?;
    Ok(())
}
