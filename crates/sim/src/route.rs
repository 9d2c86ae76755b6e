//! The map of a simulated cluster, and clients that go by it: each call to the node that it belongs to, as the blocking client of a
//! cluster does it.
//!
//! *Not here*: that client itself, which has threads; `forebay-cluster` and `forebay-cli` test it.

use crate::net::Place;
use crate::world::{SOURCES, World};
use forebay_client::AsyncClient;
use forebay_core::map::{Change, ClusterMap, Hex128, Node, NodeState};
use forebay_core::{Elsewhere, Error, Key, Kind, Level, Primary, PutOptions, PutOutcome, Report, Result, crc32c};
use forebay_wire::Control;
use std::cell::Cell;
use tokio::time::Instant;

const KEYSPACE: &str = "sim";

/// A map of nodes with these identities. Under a table source S is with node S + 1, wherever its events have their homes.
pub(crate) fn map(holdings: impl Iterator<Item = (Hex128, u32)>, has_table: bool) -> Result<ClusterMap> {
    let nodes = holdings.zip(1..).map(|(holds, id)| Node {
        id,
        name: format!("n{id}"),
        at: vec![format!("sim://{id}")],
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

    /// The home of an event.
    pub(crate) fn home(&self, primary: &Primary) -> Place {
        self.places(primary, 0)[1]
    }
}

/// Clients of all nodes.
pub(crate) struct Clients {
    nodes: Vec<AsyncClient>,
    turn: Cell<usize>,
}

impl Clients {
    pub(crate) fn new(nodes: Vec<AsyncClient>) -> Clients {
        Clients { nodes, turn: Cell::new(0) }
    }

    /// That of one node.
    pub(crate) fn at(&self, place: Place) -> &AsyncClient {
        &self.nodes[place - 1]
    }

    /// Another node each time.
    pub(crate) fn next(&self) -> Place {
        1 + self.turn.replace((self.turn.get() + 1) % self.nodes.len())
    }

    /// Puts a fragment where it belongs; by a table first at its holder, then its length and checksum at its home, which
    /// `is_prompt` leaves to the holder.
    pub(crate) async fn put(
        &self,
        [holder, home]: [Place; 2],
        key: &Key,
        value: &[u8],
        is_prompt: bool,
    ) -> Result<PutOutcome> {
        if holder == home {
            return self.at(home).put(key, value, &PutOptions::default()).await;
        }
        let report = if is_prompt { Report::Prompt } else { Report::Later };
        let began = Instant::now();
        let at_holder = self.at(holder).put(key, value, &PutOptions { report, ..PutOptions::default() }).await?;
        if is_prompt || !matches!(at_holder, PutOutcome::Stored | PutOutcome::Duplicate) {
            return Ok(at_holder);
        }
        let away = Elsewhere { length: value.len() as u32, checksum: crc32c(value) }.to_bytes();
        let options = PutOptions { level: Some(Level::Elsewhere), ..PutOptions::default() };
        match self.at(home).put(key, &away, &options).await {
            Ok(outcome) => Ok(at_holder.with_home(outcome, began.elapsed())),
            Err(error) if matches!(error.kind(), Kind::Conflict | Kind::Invalid) => Err(error),
            // The holder tells it.
            Err(error) => Err(Error::new(Kind::OutcomeUnknown, "the home did not take it").with_source(error)),
        }
    }

    /// Has any node do something about a run.
    pub(crate) async fn order(&self, control: &Control) -> Result<Vec<u8>> {
        self.at(self.next()).control(control).await
    }

    /// Nodes that a put goes to, one after the other.
    pub(crate) fn put_hops([holder, home]: [Place; 2]) -> u32 {
        if holder == home { 1 } else { 2 }
    }
}
