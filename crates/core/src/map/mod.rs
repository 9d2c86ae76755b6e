//! The map of a cluster: which node has which slots and sources, from which run on. Pure data: no network, no clock.
//!
//! ```text
//! primary key ──slot_of──▶ slot ──layout of the run──▶ group ──▶ members, the first is the home
//! run, source ──table of the run, if there is one──▶ nodes that hold the payload
//! ```
//!
//! *Invariants* (`check.rs` on each reading and each change): every slot has a full member, and it leads; no number of an epoch
//! is above that of the map. Between maps (`succeeds.rs`): `since` never falls, no slot loses its last full member unless that
//! node is `gone`, numbers of nodes are not given again.
//!
//! *Not here*: who changes the map, and how it travels; the removal of layouts whose runs are over.

mod check;
mod layout;
mod next;
mod seat;
mod slot;
mod succeeds;
mod table;
mod text;

pub use layout::{Group, Layout, Member, Standing};
pub use next::Change;
pub use seat::{Role, Seat};
pub use slot::{BLOCK_BITS_MAX, SLOTS, slot_of};
pub use succeeds::Succession;
pub use table::Table;
pub use text::Hex128;

use crate::limits::SOURCE_PARTS_MAX;
use crate::{Result, SourceId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Highest number of a node: it has 10 bits.
pub const NODE_ID_MAX: u16 = 1023;
/// Most members of a slot.
pub const COPIES_MAX: u8 = 3;
/// Most layouts, and most tables, of one keyspace.
pub const LAYOUTS_MAX: usize = 256;
/// Most keyspaces of a map.
pub const KEYSPACES_MAX: usize = 64;
/// Most addresses of a node.
pub const ADDRESSES_MAX: usize = 8;
/// Longest address or failure domain, in bytes.
pub const TEXT_BYTES_MAX: usize = 256;
/// Longest JSON of a map, in bytes.
pub const MAP_BYTES_MAX: usize = 4 << 20;

/// What a node may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It gets slots.
    Active,
    /// It keeps what it has and gets no more.
    Draining,
    /// It left or was declared lost, and leads nothing. Its number stays taken.
    Gone,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its number, at most [`NODE_ID_MAX`].
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Addresses where it listens, such as `tcp://ru-03:7000`.
    pub at: Vec<String>,
    /// What fails together with it, such as `rowA/rack2`.
    pub domain: String,
    /// Its holding identity: its store, and the boot generation in which that store accepted a loss last (0: never).
    pub holds: (Hex128, u32),
    /// What it may do.
    pub state: NodeState,
}

/// Where the events of one keyspace are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceMap {
    copies: u8,
    copies_min: u8,
    block: u8,
    layouts: Vec<Layout>,
    tables: Vec<Table>,
}

impl KeyspaceMap {
    /// Members of a slot where none lacks.
    pub fn copies(&self) -> u8 {
        self.copies
    }

    /// With fewer members than this a slot takes no puts. A map may have such slots: failover makes them.
    pub fn copies_min(&self) -> u8 {
        self.copies_min
    }

    /// Last bits of a primary key that its slot does not depend on.
    pub fn block(&self) -> u8 {
        self.block
    }

    /// The layouts, in order of their first runs.
    pub fn layouts(&self) -> &[Layout] {
        &self.layouts
    }

    /// The tables, in order of their first runs.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// The layout of a run: the last one that begins at it or before it.
    #[inline]
    pub fn layout_for(&self, run: u64) -> &Layout {
        // The first layout begins at 0.
        &self.layouts[self.layouts.partition_point(|layout| layout.from_run <= run) - 1]
    }

    /// The table of a run; `None` where the members of the slot hold the payload.
    pub fn table_for(&self, run: u64) -> Option<&Table> {
        let behind = self.tables.partition_point(|table| table.from_run <= run);
        behind.checked_sub(1).map(|at| &self.tables[at])
    }

    /// Whether a node may have anything of a run: events that it leads or copies, or bytes of a source.
    pub fn has_part(&self, run: u64, node: u16) -> bool {
        self.layout_for(run).groups().iter().any(|group| group.has(node))
            || self.table_for(run).is_some_and(|table| table.has_holder(node))
    }

    /// The node that keeps what a source of a ring puts in a run: that of the run's table. `None` where no table names it.
    pub fn ring_holder(&self, source: &SourceId, run: u32) -> Option<u16> {
        self.table_for(u64::from(run))?.holders(source.parts(&mut [0; SOURCE_PARTS_MAX]))?.first().copied()
    }

    /// The slot of a packed primary key.
    #[inline]
    pub fn slot(&self, primary: &[u8]) -> u16 {
        slot_of(primary, self.block)
    }

    /// The members that an event has: the group of its slot.
    #[inline]
    pub fn members(&self, run: u64, primary: &[u8]) -> &Group {
        self.layout_for(run).group(self.slot(primary))
    }

    /// The node that leads an event. Allocates nothing.
    #[inline]
    pub fn home(&self, run: u64, primary: &[u8]) -> u16 {
        self.layout_for(run).home(self.slot(primary))
    }

    /// The nodes that hold the payload of a source of an event: those of the run's table, else the members. None where the
    /// run has a table without this source. The source is given by the values of its sub-keys.
    pub fn holders<'a>(&'a self, run: u64, primary: &[u8], source: &[u64]) -> impl Iterator<Item = u16> + 'a {
        let (listed, group) = match self.table_for(run) {
            Some(table) => (table.holders(source), None),
            None => (None, Some(self.members(run, primary))),
        };
        let members = group.into_iter().flat_map(|group| group.members.iter().map(|member| member.node));
        listed.into_iter().flatten().copied().chain(members)
    }
}

/// The map of a cluster at one epoch. Each one that exists has passed all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMap {
    cluster: Hex128,
    epoch: u32,
    nodes: Vec<Node>,
    keyspaces: BTreeMap<String, KeyspaceMap>,
    hash: Hex128,
}

impl ClusterMap {
    /// The first map of a cluster, epoch 1, without keyspaces.
    ///
    /// # Errors
    /// `Invalid`, naming what is wrong with a node.
    pub fn new(cluster: Hex128, nodes: Vec<Node>) -> Result<ClusterMap> {
        ClusterMap::build(cluster, 1, nodes, BTreeMap::new())
    }

    /// The cluster.
    pub fn cluster(&self) -> Hex128 {
        self.cluster
    }

    /// Number of the map; each change adds 1. The first is 1: 0 is a node without a cluster.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Hash of the canonical text: two maps of one epoch are the same if it is the same.
    pub fn hash(&self) -> Hex128 {
        self.hash
    }

    /// The nodes, in order of their numbers.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node by its number.
    pub fn node(&self, id: u16) -> Option<&Node> {
        self.nodes.binary_search_by_key(&id, |node| node.id).ok().map(|at| &self.nodes[at])
    }

    /// Where the events of a keyspace are; `None` if the map does not have it.
    pub fn keyspace(&self, name: &str) -> Option<&KeyspaceMap> {
        self.keyspaces.get(name)
    }

    /// The keyspaces by name, in order.
    pub fn keyspaces(&self) -> impl Iterator<Item = (&str, &KeyspaceMap)> {
        self.keyspaces.iter().map(|(name, keyspace)| (&name[..], keyspace))
    }
}

#[cfg(test)]
mod tests;
