//! What every map keeps by itself. Each refusal names the place, and what to do.

use super::text::{Hex128, fnv};
use super::{
    ADDRESSES_MAX, BLOCK_BITS_MAX, COPIES_MAX, ClusterMap, Group, KEYSPACES_MAX, KeyspaceMap, LAYOUTS_MAX,
    MAP_BYTES_MAX, NODE_ID_MAX, Node, NodeState, TEXT_BYTES_MAX,
};
use crate::limits::NAME_BYTES_MAX;
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Refuses unless the condition holds.
fn must(holds: bool, wrong: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::invalid(wrong())) }
}

impl ClusterMap {
    /// A map of these parts, in canonical order, checked and hashed.
    pub(super) fn build(
        cluster: Hex128,
        epoch: u32,
        mut nodes: Vec<Node>,
        keyspaces: BTreeMap<String, KeyspaceMap>,
    ) -> Result<ClusterMap> {
        nodes.sort_by_key(|node| node.id);
        let mut map = ClusterMap { cluster, epoch, nodes, keyspaces, hash: Hex128(0) };
        must(epoch > 0, || "map of epoch 0: the first map has epoch 1".into())?;
        map.check_nodes()?;
        must(map.keyspaces.len() <= KEYSPACES_MAX, || format!("more than {KEYSPACES_MAX} keyspaces: remove some"))?;
        for (name, keyspace) in &map.keyspaces {
            must((1..=NAME_BYTES_MAX).contains(&name.len()), || {
                format!("keyspace `{name:.80}`: give it a name of 1 to {NAME_BYTES_MAX} bytes")
            })?;
            map.check_keyspace(keyspace)
                .map_err(|error| Error::invalid(format!("keyspace `{name}`: {}", error.message())))?;
        }
        let text = map.write(None);
        // With room for the hash.
        must(text.len() + 64 <= MAP_BYTES_MAX, || {
            format!("map of {} bytes; at most {MAP_BYTES_MAX}: use fewer layouts and rows of tables", text.len())
        })?;
        map.hash = fnv(text.as_bytes());
        Ok(map)
    }

    fn check_nodes(&self) -> Result<()> {
        let (mut names, mut addresses, mut stores) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        must(!self.nodes.is_empty(), || "a map without nodes: give at least one".into())?;
        for pair in self.nodes.windows(2) {
            must(pair[0].id != pair[1].id, || {
                format!(
                    "nodes `{}` and `{}` have the number {}: give each its own",
                    pair[0].name, pair[1].name, pair[0].id
                )
            })?;
        }
        for node in &self.nodes {
            let (id, name) = (node.id, &node.name);
            must(id <= NODE_ID_MAX, || format!("node {id}: numbers of nodes go to {NODE_ID_MAX}"))?;
            must((1..=NAME_BYTES_MAX).contains(&name.len()), || {
                format!("node {id}: give it a name of 1 to {NAME_BYTES_MAX} bytes")
            })?;
            must(node.domain.len() <= TEXT_BYTES_MAX, || {
                format!("node {id}: its domain has more than {TEXT_BYTES_MAX} bytes: shorten it")
            })?;
            must((1..=ADDRESSES_MAX).contains(&node.at.len()), || {
                format!("node {id} has {} addresses: give 1 to {ADDRESSES_MAX}", node.at.len())
            })?;
            must(names.insert(name), || format!("two nodes have the name `{name}`: give each its own"))?;
            // A node that is gone stays for its number and its identity; others may have its address and its machine.
            if node.state == NodeState::Gone {
                continue;
            }
            must(stores.insert(node.holds.0), || {
                format!("node {id} and another one hold store {:?}: give each its own store", node.holds.0)
            })?;
            for at in &node.at {
                must((1..=TEXT_BYTES_MAX).contains(&at.len()), || {
                    format!("node {id}: give addresses of 1 to {TEXT_BYTES_MAX} bytes")
                })?;
                must(addresses.insert(at), || format!("address `{at}` is given twice: each belongs to one node"))?;
            }
        }
        Ok(())
    }

    fn check_keyspace(&self, keyspace: &KeyspaceMap) -> Result<()> {
        let KeyspaceMap { copies, copies_min, block, layouts, tables } = keyspace;
        must((1..=COPIES_MAX).contains(copies), || format!("copies is {copies}: give 1 to {COPIES_MAX}"))?;
        must((1..=*copies).contains(copies_min), || format!("copies_min is {copies_min}: give 1 to {copies}"))?;
        must(*block <= BLOCK_BITS_MAX, || format!("block is {block}: give 0 to {BLOCK_BITS_MAX}"))?;
        must(layouts.len().max(tables.len()) <= LAYOUTS_MAX, || format!("more than {LAYOUTS_MAX} layouts or tables"))?;
        must(layouts.first().is_some_and(|layout| layout.from_run == 0), || {
            "the first layout does not begin at run 0: every run needs a layout".into()
        })?;
        let runs = layouts.windows(2).map(|pair| (pair[0].from_run, pair[1].from_run, "layout"));
        for (before, run, what) in
            runs.chain(tables.windows(2).map(|pair| (pair[0].from_run, pair[1].from_run, "table")))
        {
            must(before < run, || {
                format!("{what} from run {run} is behind that from run {before}: order them by from_run")
            })?;
        }
        for layout in layouts {
            for group in layout.groups() {
                self.check_group(group, *copies).map_err(|error| {
                    let slot = layout.slots().position(|other| other == group).unwrap_or_default();
                    let from_run = layout.from_run;
                    Error::invalid(format!("layout from run {from_run}, slot {slot}: {}", error.message()))
                })?;
            }
        }
        for table in tables {
            for &node in table.rows.iter().flat_map(|row| &row.nodes) {
                must(self.node(node).is_some(), || {
                    format!("table from run {}: no node {node}; add it to the nodes", table.from_run)
                })?;
            }
        }
        Ok(())
    }

    fn check_group(&self, group: &Group, copies: u8) -> Result<()> {
        let Group { since, members } = group;
        must((1..=self.epoch).contains(since), || {
            format!("since {since} is not between 1 and the map's epoch, {}", self.epoch)
        })?;
        must(members.len() <= usize::from(copies), || {
            format!("{} members: give at most {copies}, joining ones included", members.len())
        })?;
        must(group.full().next().is_some(), || {
            "no full member: a slot keeps its last one until it is declared lost".into()
        })?;
        for (at, member) in members.iter().enumerate() {
            let node = member.node;
            let state = self.node(node).map(|node| node.state);
            must(state.is_some(), || format!("no node {node}; add it to the nodes"))?;
            must(state != Some(NodeState::Gone), || format!("node {node} is gone: give the slot another member"))?;
            must(members[..at].iter().all(|other| other.node != node), || {
                format!("node {node} is a member twice; name it once")
            })?;
            must((1..=*since).contains(&member.since), || {
                format!("node {node} is a member since {}: give 1 to the slot's since, {since}", member.since)
            })?;
        }
        Ok(())
    }
}
