//! Rings of a node: each takes the sources that the map's look-up table gives to this node.
//!
//! *Not here*: windows over all nodes, which a client makes (`forebay-client`).

use crate::node::Node;
use forebay_core::map::KeyspaceMap;
use forebay_core::{Error, Result, SourceId};
use forebay_ring::Ring;
use parking_lot::RwLock;
use std::sync::Arc;

/// What a map says of a ring.
struct Seat {
    epoch: u32,
    node: u16,
    /// `None` where the map does not have the ring: it is this node's own.
    keyspace: Option<KeyspaceMap>,
}

impl Seat {
    fn takes(&self, source: &SourceId, run: u32) -> Result<()> {
        let Some(keyspace) = &self.keyspace else { return Ok(()) };
        let (node, epoch) = (self.node, self.epoch);
        match keyspace.ring_holder(source, run) {
            Some(holder) if holder == node => Ok(()),
            Some(holder) => Err(Error::fenced(format!(
                "source {source} of run {run} goes to node {holder}, and this is node {node} (epoch {epoch})"
            ))),
            None => Err(Error::invalid(format!(
                "source {source} of run {run}: no look-up table of the map (epoch {epoch}) says which node has it"
            ))),
        }
    }
}

impl Node {
    /// A ring of this node goes by the node's map from now on: it refuses what another node is to take. Told once for each ring, before
    /// anything is put.
    pub fn place(&self, ring: &Ring) {
        let Some(keyspace) = self.any_keyspace() else { return };
        let (name, keyspace) = (ring.keyspace().name.clone(), Arc::downgrade(&keyspace));
        let known: RwLock<Option<Seat>> = RwLock::default();
        ring.set_placement(Arc::new(move |source, run| {
            // The node has ended: the ring is one by itself.
            let Some(keyspace) = keyspace.upgrade() else { return Ok(()) };
            let epoch = keyspace.store.epoch();
            if let Some(seat) = known.read().as_ref().filter(|seat| seat.epoch >= epoch) {
                return seat.takes(source, run);
            }
            let (map, node) = keyspace.place()?;
            let seat = Seat { epoch: map.epoch(), node, keyspace: map.keyspace(&name).cloned() };
            known.write().insert(seat).takes(source, run)
        }));
    }
}
