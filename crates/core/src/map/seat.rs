//! A node's place in the map: what it is for the events of one keyspace.

use super::{ClusterMap, Hex128, KeyspaceMap, Layout, NodeState, Table};
use crate::{Error, Result};
use std::sync::Arc;

/// What a node is for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads the event's slot.
    Home,
    /// It is another member of the slot.
    Member,
    /// The event is other nodes' business.
    None,
}

/// One node under one map, for one keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    map: Arc<ClusterMap>,
    node: u16,
    keyspace: KeyspaceMap,
}

impl Seat {
    /// The seat of the node that the map admits with a store of this holding identity. The losses that a store accepted count
    /// only where the keyspace has several copies: then the others have what was lost, and this node would not say so.
    ///
    /// # Errors
    /// `Invalid` for a keyspace or a store that is not in the map, or a node that is gone.
    pub fn new(map: Arc<ClusterMap>, keyspace: &str, holds: (Hex128, u32)) -> Result<Seat> {
        let epoch = map.epoch();
        let refused = |what: String| Error::invalid(format!("map of epoch {epoch} refused: {what}"));
        let known = map.nodes().iter().find(|node| node.holds.0 == holds.0 && node.state != NodeState::Gone);
        let known = known.ok_or_else(|| {
            refused(format!("it admits no node with store {:?}: add one that holds it, under a new number", holds.0))
        })?;
        let node = known.id;
        let found = map.keyspace(keyspace).cloned();
        let found = found.ok_or_else(|| refused(format!("it does not have keyspace `{keyspace}`: add it")))?;
        if known.holds != holds && found.copies() > 1 {
            return Err(refused(format!(
                "store {:?} accepted a loss in boot {}, and node {node} was admitted as it was in {}: admit it under \
                 another number",
                holds.0, holds.1, known.holds.1
            )));
        }
        let keyspace = found;
        Ok(Seat { map, node, keyspace })
    }

    /// The map.
    pub fn map(&self) -> &Arc<ClusterMap> {
        &self.map
    }

    /// The number of the node.
    pub fn node(&self) -> u16 {
        self.node
    }

    /// Where the events of the keyspace are.
    pub fn keyspace(&self) -> &KeyspaceMap {
        &self.keyspace
    }

    /// What the node is for an event. Allocates nothing.
    #[inline]
    pub fn role(&self, run: u64, primary: &[u8]) -> Role {
        let group = self.keyspace.members(run, primary);
        match group.members.iter().position(|member| member.node == self.node) {
            Some(0) => Role::Home,
            Some(_) => Role::Member,
            None => Role::None,
        }
    }

    /// Whether a look-up table says where the payload of a run is.
    #[inline]
    pub fn has_table(&self, run: u64) -> bool {
        !self.keyspace.tables().is_empty() && self.keyspace.table_for(run).is_some()
    }

    /// The node that leads an event.
    #[inline]
    pub fn home(&self, run: u64, primary: &[u8]) -> u16 {
        self.keyspace.home(run, primary)
    }

    /// The slot epoch of an event: its tokens have it.
    #[inline]
    pub fn since(&self, run: u64, primary: &[u8]) -> u32 {
        self.keyspace.members(run, primary).since
    }

    /// Whether the node leads all events of a run, and holds all of their payload.
    pub fn leads_all(&self, run: u64) -> bool {
        let leads = |group: &super::Group| group.members.first().is_some_and(|home| home.node == self.node);
        self.keyspace.table_for(run).is_none() && self.keyspace.layout_for(run).groups().iter().all(leads)
    }

    /// The refusal of a call about an event that has its home elsewhere.
    #[cold]
    pub fn elsewhere(&self, run: u64, primary: &[u8], name: &str) -> Error {
        let (home, epoch) = (self.keyspace.home(run, primary), self.map.epoch());
        Error::fenced(format!("{name}: its home is node {home}, and this is node {} (epoch {epoch})", self.node))
    }

    /// Whether a later map gives a slot of an earlier layout another home.
    pub fn rehomes(&self, later: &Seat) -> bool {
        let homes = |group: &super::Group| group.members.first().map(|home| home.node);
        let layouts = self.keyspace.layouts().iter().zip(later.keyspace.layouts());
        layouts.into_iter().any(|(old, new)| !old.slots().map(homes).eq(new.slots().map(homes)))
    }

    /// The lowest run whose place in a later map is not the one that it has in this map; `None` if all stay.
    pub fn first_run_moved(&self, later: &Seat) -> Option<u64> {
        let (old, new) = (&self.keyspace, &later.keyspace);
        let layouts = old.layouts().iter().zip(new.layouts()).take_while(|(one, other)| one == other).count();
        let tables = old.tables().iter().zip(new.tables()).take_while(|(one, other)| one == other).count();
        let of_layouts = |all: &[Layout]| all.get(layouts).map(Layout::from_run);
        let of_tables = |all: &[Table]| all.get(tables).map(Table::from_run);
        // Both are in the order of their runs: the first one that differs is the lowest.
        let moved =
            [of_layouts(old.layouts()), of_layouts(new.layouts()), of_tables(old.tables()), of_tables(new.tables())];
        moved.into_iter().flatten().min()
    }
}
