//! The part that a node of a cluster has: slots that it leads, and sources whose bytes it holds; and what waits for nodes that are away.

use crate::open::Opened;
use forebay_client::ClusterClient;
use forebay_core::Either;
use forebay_core::map::{ClusterMap, Node, NodeState, SLOTS};
use serde::Serialize;
use std::fmt;
use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// How long a node is waited for where all are looked at.
pub(crate) const LOOK: Duration = Duration::from_secs(2);
/// Ranges that are written out for people; others are counted.
const RANGES_MAX: usize = 8;

/// What the layout and the look-up table of a run give to a node.
#[derive(Serialize)]
pub(crate) struct Part {
    /// Slots that it leads: `FIRST..LAST`, or one.
    slots: Vec<String>,
    /// Sources whose bytes it holds, as the table has them.
    sources: Vec<String>,
    #[serde(skip)]
    slots_led: usize,
}

impl Part {
    /// The part of a node in a run, or in the latest ones with `u64::MAX`.
    pub(crate) fn of(map: &ClusterMap, name: &str, run: u64, node: u16) -> Part {
        let Some(keyspace) = map.keyspace(name) else {
            return Part { slots: Vec::new(), sources: Vec::new(), slots_led: 0 };
        };
        let layout = keyspace.layout_for(run);
        let led: Vec<u16> = (0..SLOTS as u16).filter(|&slot| layout.home(slot) == node).collect();
        let slots = led.chunk_by(|one, next| one + 1 == *next).map(|range| match range {
            [first, .., last] => format!("{first}..{last}"),
            one => one.iter().map(u16::to_string).collect(),
        });
        let sources = keyspace.table_for(run).map_or_else(Vec::new, |table| table.held_by(node));
        Part { slots: slots.collect(), sources, slots_led: led.len() }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = self.slots_led as f64 * 100.0 / SLOTS as f64;
        let mut words = Vec::new();
        for (what, ranges, share) in
            [("slots", &self.slots, format!(" ({share:.0} %)")), ("sources", &self.sources, String::new())]
        {
            let (said, more) = ranges.split_at(ranges.len().min(RANGES_MAX));
            let more = if more.is_empty() { String::new() } else { format!(" and {} more ranges", more.len()) };
            if !said.is_empty() {
                words.push(format!("{what} {}{more}{share}", said.join(", ")));
            }
        }
        if words.is_empty() { out.write_str("nothing") } else { out.write_str(&words.join("; ")) }
    }
}

/// A node that does not answer, with its part of a run.
#[derive(Serialize)]
pub(crate) struct Away {
    #[serde(skip)]
    run: u64,
    node: u16,
    name: String,
    #[serde(flatten)]
    part: Part,
}

impl fmt::Display for Away {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Away { run, node, name, part } = self;
        write!(out, "node {node} (`{name}`) does not answer; what waits for it of run {run}: {part}")
    }
}

/// The cluster of a place, also of the server of one address.
pub(crate) fn cluster_of(store: &Opened) -> Option<ClusterClient> {
    match store {
        Either::There(Either::There(cluster)) => Some(cluster.clone()),
        Either::There(Either::Here(node)) => node.cluster().ok(),
        Either::Here(_) => None,
    }
}

/// Nodes of a cluster that have a part of a run and do not answer; none of other places.
pub(crate) fn away(store: &Opened, run: u64) -> Vec<Away> {
    let Some(cluster) = cluster_of(store) else { return Vec::new() };
    let (map, keyspace) = (cluster.map(), &cluster.keyspace().name);
    let cluster = cluster.within(LOOK);
    let has_part = |node: &&Node| map.keyspace(keyspace).is_some_and(|keyspace| keyspace.has_part(run, node.id));
    let is_away = |node: &Node| cluster.node(node.id).is_err_and(|error| error.is_unanswered());
    let seen = look(map.nodes().iter().filter(has_part), is_away);
    let of = |node: &Node| {
        let part = Part::of(&map, keyspace, run, node.id);
        Away { run, node: node.id, name: node.name.clone(), part }
    };
    seen.into_iter().filter(|(_, is_away)| *is_away).map(|(node, _)| of(node)).collect()
}

/// Looks at the nodes that are not gone for ever, beside each other: one that does not answer takes its whole time for itself only.
pub(crate) fn look<'map, T: Send>(
    nodes: impl IntoIterator<Item = &'map Node>,
    look: impl Fn(&Node) -> T + Sync,
) -> Vec<(&'map Node, T)> {
    let nodes = nodes.into_iter().filter(|node| node.state != NodeState::Gone);
    std::thread::scope(|scope| {
        let look = &look;
        let looks: Vec<_> = nodes.map(|node| (node, scope.spawn(move || look(node)))).collect();
        let end = |look: ScopedJoinHandle<'_, T>| look.join().unwrap_or_else(|panic| resume_unwind(panic));
        looks.into_iter().map(|(node, look)| (node, end(look))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::map::{Change, Hex128};

    #[test]
    fn a_part_has_the_slots_of_the_layout_and_the_sources_of_the_table() {
        let node = |id: u16| Node {
            id,
            name: format!("n{id}"),
            at: vec![format!("tcp://n{id}:1")],
            domain: String::new(),
            holds: (Hex128(id.into()), 0),
            state: NodeState::Active,
        };
        let table = [("0..7", 1), ("9", 2), ("10..4294967295", 1)].map(|(text, node)| (text.to_owned(), vec![node]));
        let map = [
            Change::Keyspace { name: "events".to_owned(), copies: 1, copies_min: 1, block: 6 },
            Change::TakeOut { node: 2, from_run: 100 },
            Change::Table { keyspace: "events".to_owned(), from_run: 200, sources: table.to_vec() },
        ];
        let first = ClusterMap::new(Hex128(1), vec![node(1), node(2)]).unwrap();
        let map = map.iter().fold(first, |map, change| map.next_map(change).unwrap());
        let part = |run, node| Part::of(&map, "events", run, node).to_string();
        assert_eq!([part(99, 1), part(99, 2)], ["slots 0..2047 (50 %)", "slots 2048..4095 (50 %)"]);
        assert_eq!([part(199, 1), part(199, 2)], ["slots 0..4095 (100 %)", "nothing"]);
        assert_eq!(part(u64::MAX, 1), "slots 0..4095 (100 %); sources 0..7, 10..4294967295");
        assert_eq!(part(200, 2), "sources 9");
        let many = Part { slots: (0..10).map(|slot| slot.to_string()).collect(), sources: Vec::new(), slots_led: 10 };
        assert_eq!(many.to_string(), "slots 0, 1, 2, 3, 4, 5, 6, 7 and 2 more ranges (0 %)");
    }
}
