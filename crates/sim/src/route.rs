//! The map of a simulated cluster, and where things belong by it.

use crate::net::Place;
use crate::process::address_of;
use crate::world::{SOURCES, World};
use forebay_core::map::{Change, ClusterMap, Hex128, Node, NodeState};
use forebay_core::{Primary, Result};

const KEYSPACE: &str = "sim";

/// A map of nodes with these identities. Under a table source S is with node S + 1, wherever its events have their homes.
pub(crate) fn map(holdings: impl Iterator<Item = (Hex128, u32)>, has_table: bool) -> Result<ClusterMap> {
    let nodes = holdings.zip(1..).map(|(holds, id)| Node {
        id,
        name: format!("n{id}"),
        at: vec![address_of(usize::from(id))],
        domain: format!("rack {id}"),
        holds,
        state: NodeState::Active,
    });
    let nodes: Vec<Node> = nodes.collect();
    let count = nodes.len() as u64;
    // Short blocks: the events of a run have different homes.
    let change = Change::Keyspace { name: KEYSPACE.to_owned(), copies: 1, copies_min: 1, block: 1 };
    let map = ClusterMap::new(Hex128(0xF0), nodes)?.next_map(&change)?;
    if !has_table {
        return Ok(map);
    }
    let sources = (0..SOURCES).map(|source| (source.to_string(), vec![(1 + source % count) as u16]));
    map.next_map(&Change::Table { keyspace: KEYSPACE.to_owned(), from_run: 0, sources: sources.collect() })
}

/// The next map: a node gets no slots of this run and later ones, or gets them again.
pub(crate) fn next_map(map: &ClusterMap, run: u64, place: Place) -> Result<ClusterMap> {
    let layout = map.keyspace(KEYSPACE).and_then(|keyspace| keyspace.layouts().last());
    let leads = |node: &Node| layout.is_some_and(|layout| layout.groups().iter().any(|group| group.has(node.id)));
    match map.nodes().iter().find(|node| !leads(node)) {
        Some(out) => map.next_map(&Change::Add { node: out.clone(), from_run: run }),
        None => map.next_map(&Change::TakeOut { node: place as u16, from_run: run }),
    }
}

impl World {
    /// The home of an event, and the node that has the bytes of this source of it, by the map as it was written last.
    pub(crate) fn places(&self, primary: &Primary, source: u64) -> [Place; 2] {
        let map = self.map.borrow();
        let Some(placement) = map.as_ref().and_then(|map| map.keyspace(KEYSPACE)) else { return [1, 1] };
        let run = self.keyspace.schema.run_of(primary.as_bytes());
        let home = placement.home(run, primary.as_bytes());
        let holders = placement.table_for(run).and_then(|table| table.holders(&[source]));
        [holders.map_or(home, |nodes| nodes[0]), home].map(usize::from)
    }

    /// Whether a node may have anything of a run.
    pub(crate) fn has_part(&self, run: u64, place: Place) -> bool {
        let map = self.map.borrow();
        let placement = map.as_ref().and_then(|map| map.keyspace(KEYSPACE));
        placement.is_none_or(|placement| placement.has_part(run, place as u16))
    }

    /// The home of an event.
    pub(crate) fn home(&self, primary: &Primary) -> Place {
        self.places(primary, 0)[1]
    }
}
