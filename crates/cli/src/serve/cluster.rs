//! A server as a node of a cluster: the map from its file, at the start and at SIGHUP.

use crate::cluster::read;
use forebay_client::{Options, Tls};
use forebay_cluster::{Node, NodeOptions};
use forebay_core::map::ClusterMap;
use forebay_core::{Error, Kind, Result};
use forebay_server::{ClusterSettings, Served};
use forebay_store::Store;
use std::sync::Arc;

/// Rings go by the map of the stores.
pub(super) fn stores(served: &[Served]) -> impl Iterator<Item = Store> {
    served.iter().filter_map(|served| match served {
        Served::Events(store) => Some(store.clone()),
        Served::Ring(_) => None,
    })
}

/// Makes the served stores a node of the cluster; answers as well how it reaches the others.
pub(super) fn join(settings: &ClusterSettings, map: ClusterMap, served: &[Served]) -> Result<(Arc<Node>, NodeOptions)> {
    let map = Arc::new(map);
    let token = match &settings.token_file {
        Some(file) => std::fs::read(file).map_err(|error| {
            Error::invalid(format!("the token in {} cannot be read", file.display())).with_source(error)
        })?,
        None => Vec::new(),
    };
    let options = NodeOptions {
        client: Options {
            token: token.trim_ascii().to_vec(),
            tls: Tls { ca: settings.ca.clone(), ..Tls::default() },
            name: "a node of the cluster".to_owned(),
            ..Options::default()
        },
    };
    let stores = stores(served);
    let (stores, others): (Vec<Store>, Vec<Store>) =
        stores.partition(|store| map.keyspace(&store.keyspace().name).is_some());
    others.iter().try_for_each(needs_no_map)?;
    if stores.is_empty() {
        return Err(Error::invalid(format!(
            "{}: the map has none of the keyspaces of events that are served, and a ring alone makes no node",
            settings.map.display()
        )));
    }
    Ok((Node::start(stores, &map, options.clone())?, options))
}

/// A store that went by a map is served as the node that it is, or not: alone it would do orders that the other nodes do not.
pub(super) fn needs_no_map(store: &Store) -> Result<()> {
    let Some((map, node)) = store.adopted_map() else { return Ok(()) };
    Err(Error::invalid(format!(
        "the store of keyspace `{}` is node {node} of a cluster (epoch {} of its map): serve it with the file of that map, `--cluster FILE`",
        store.keyspace().name,
        map.epoch()
    )))
}

/// Reads the map again.
pub(super) fn reload(settings: &ClusterSettings, node: &Node) {
    match node.adopt_read(read(&settings.map)) {
        Ok(()) => tracing::info!(map = %settings.map.display(), "the map was read again"),
        Err(error) if error.kind() == Kind::Fenced => {
            tracing::warn!(%error, "the map in the file is an earlier one than that of this node, which goes by its own");
        }
        Err(error) => tracing::error!(%error, "the map stays as it was: what was read cannot be adopted"),
    }
}
