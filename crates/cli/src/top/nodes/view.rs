//! The content of one screen of nodes, computed from a reading and the one before it.

use super::reading::{Figures, NodeReading, NodesReading};
use forebay_core::{Inhibit, LIVE_STATES, Ledger, Live};
use serde::Serialize;

/// The nodes, and what they are together.
#[derive(Debug, Serialize)]
pub(in crate::top) struct NodesView {
    pub(super) keyspace: String,
    /// As 32 digits; nothing for a server that is in no cluster.
    pub(super) cluster: Option<String>,
    pub(super) epoch: Option<u32>,
    pub(super) totals: Totals,
    /// The node that inhibits the trigger of all, the first one where there are several.
    pub(super) inhibit: Option<InhibitedBy>,
    pub(super) nodes: Vec<NodeView>,
}

/// Sums over the nodes that answer.
#[derive(Debug, Default, Serialize)]
pub(super) struct Totals {
    pub(super) nodes: usize,
    pub(super) answering: usize,
    /// Nodes that inhibit.
    pub(super) inhibiting: usize,
    /// Of the fullest node.
    pub(super) fill: f64,
    pub(super) events: Live<u64>,
    pub(super) leases: u64,
    pub(super) rates: NodeRates,
}

/// Which node holds the trigger of all, and why.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct InhibitedBy {
    pub(super) node: u16,
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) why: Inhibit,
}

/// One node.
#[derive(Debug, Serialize)]
pub(super) struct NodeView {
    pub(super) node: u16,
    pub(super) name: String,
    /// Why it does not answer; its figures are missing then.
    pub(super) error: Option<String>,
    #[serde(flatten)]
    pub(super) shown: Option<Shown>,
}

/// Figures of a node.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    pub(super) epoch: Option<u32>,
    /// Of its fuller level, 0 to 1.
    pub(super) fill: f64,
    pub(super) events: Live<u64>,
    pub(super) leases: u64,
    pub(super) rates: NodeRates,
    pub(super) inhibit: Option<Inhibit>,
    pub(super) debug_alarm: bool,
    /// Other nodes that it cannot reach, and why.
    pub(super) trouble: Vec<String>,
}

/// What happens in a second; nothing where there was no reading of this process before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct NodeRates {
    pub(super) puts: Option<f64>,
    pub(super) stored_bytes: Option<f64>,
    pub(super) verdicts: Option<f64>,
}

impl NodesView {
    /// Of a reading; rates are those since the one before.
    pub(in crate::top) fn new(reading: &NodesReading, before: Option<&NodesReading>) -> NodesView {
        let was = |node: &NodeReading| {
            let same = before?.nodes.iter().find(|was| was.node == node.node && was.name == node.name)?;
            same.answer.as_ref().ok()
        };
        let one = |node: &NodeReading| {
            let (error, shown) = match &node.answer {
                Ok(now) => (None, Some(Shown::new(now, was(node)))),
                Err(error) => (Some(error.clone()), None),
            };
            NodeView { node: node.node, name: node.name.clone(), error, shown }
        };
        let nodes: Vec<NodeView> = reading.nodes.iter().map(one).collect();
        NodesView {
            keyspace: reading.keyspace.clone(),
            cluster: reading.map.as_ref().map(|map| map.0.clone()),
            epoch: reading.map.as_ref().map(|map| map.1),
            totals: Totals::of(&nodes),
            inhibit: nodes.iter().find_map(|node| {
                let why = node.shown.as_ref()?.inhibit.clone()?;
                Some(InhibitedBy { node: node.node, name: node.name.clone(), why })
            }),
            nodes,
        }
    }
}

impl Totals {
    fn of(nodes: &[NodeView]) -> Totals {
        let mut all = Totals { nodes: nodes.len(), ..Totals::default() };
        for node in nodes.iter().filter_map(|node| node.shown.as_ref()) {
            all.answering += 1;
            all.inhibiting += usize::from(node.inhibit.is_some());
            all.fill = all.fill.max(node.fill);
            all.leases += node.leases;
            LIVE_STATES.into_iter().for_each(|state| all.events[state] += node.events[state]);
            let rates = &mut all.rates;
            for (sum, more) in [
                (&mut rates.puts, node.rates.puts),
                (&mut rates.stored_bytes, node.rates.stored_bytes),
                (&mut rates.verdicts, node.rates.verdicts),
            ] {
                *sum = [*sum, more].into_iter().flatten().reduce(|one, other| one + other);
            }
        }
        all
    }
}

impl Shown {
    fn new(now: &Figures, was: Option<&Figures>) -> Shown {
        let stats = &now.stats;
        let mut events = Live::default();
        LIVE_STATES.into_iter().for_each(|state| events[state] = stats.events[state].events);
        // Another life of the store counts from what it found.
        let seconds = was.map_or(0.0, |was| now.at.saturating_duration_since(was.at).as_secs_f64());
        let was = was.filter(|was| was.stats.boot == stats.boot && seconds > 0.0);
        let rate = |of: fn(&Ledger) -> u64| {
            let was = was?;
            Some(of(&now.sums).saturating_sub(of(&was.sums)) as f64 / seconds)
        };
        let peers = now.status.iter().flat_map(|status| &status.peers);
        let trouble = peers.filter_map(|peer| Some(format!("{}: {}", peer.name, peer.trouble.as_ref()?)));
        Shown {
            epoch: now.status.as_ref().map(|status| status.epoch),
            fill: stats.warm.as_ref().map_or(stats.fill, |warm| stats.fill.max(warm.fill)),
            events,
            leases: stats.leases,
            rates: NodeRates {
                puts: rate(|sums| sums.offered.fragments),
                stored_bytes: rate(|sums| sums.stored.bytes),
                verdicts: rate(|sums| {
                    let accepted = sums.live.accepted.events.wrapping_add(sums.released.events);
                    accepted.wrapping_add(sums.rejected.events)
                }),
            },
            inhibit: stats.inhibit.clone(),
            debug_alarm: stats.debug.alarm.is_some(),
            trouble: trouble.collect(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use forebay_core::{InhibitClass, Stats, Tally};
    use std::time::{Duration, Instant};

    pub(in crate::top) fn inhibit() -> Inhibit {
        Inhibit {
            class: InhibitClass::HotFull,
            scope: "hot level".to_owned(),
            cause: "hot fill 92 % (marks 90 and 75 %): 71 % ready".to_owned(),
            owner: "selection".to_owned(),
            ends: "hot fill is below 75 %".to_owned(),
        }
    }

    fn start() -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now)
    }

    /// Three nodes some seconds after their start: the first takes a thousand fragments a second, the second is away, the third
    /// is full.
    pub(in crate::top) fn reading(second: u64) -> NodesReading {
        let figures = |puts: u64, fill: f64, inhibit: Option<Inhibit>| {
            let tally = |events| Tally { events, fragments: events, bytes: events * 10 };
            let live = Live { ready: tally(5), leased: tally(2), accepted: tally(second), ..Live::default() };
            Figures {
                at: start() + Duration::from_secs(second),
                stats: Stats { fill, events: live, leases: 2, inhibit, boot: 3, ..Stats::default() },
                sums: Ledger {
                    offered: tally(puts * second),
                    stored: tally(puts * second),
                    live,
                    rejected: tally(9 * second),
                    ..Ledger::default()
                },
                status: None,
            }
        };
        let node = |node: u16, answer| NodeReading { node, name: format!("daq{node}"), answer };
        NodesReading {
            keyspace: "physics".to_owned(),
            map: Some(("0123".to_owned(), 4)),
            nodes: vec![
                node(1, Ok(figures(1000, 0.25, None))),
                node(2, Err("Unavailable: connection refused".to_owned())),
                node(3, Ok(figures(0, 0.925, Some(inhibit())))),
            ],
        }
    }

    #[test]
    fn totals_are_of_the_nodes_that_answer() {
        let view = NodesView::new(&reading(5), Some(&reading(3)));
        let totals = &view.totals;
        assert_eq!((totals.nodes, totals.answering, totals.inhibiting, totals.fill), (3, 2, 1, 0.925));
        assert_eq!((totals.events.ready, totals.events.leased, totals.leases), (10, 4, 4));
        let rates = NodeRates { puts: Some(1000.0), stored_bytes: Some(10_000.0), verdicts: Some(20.0) };
        assert_eq!(totals.rates, rates);
        assert_eq!(view.nodes[1].error.as_deref(), Some("Unavailable: connection refused"));
        assert!(view.nodes[1].shown.is_none());
        let by = view.inhibit.unwrap();
        assert_eq!((by.node, by.name.as_str(), by.why), (3, "daq3", inhibit()));
    }

    /// A node that answers late has counted for longer.
    #[test]
    fn rates_are_of_the_time_between_the_answers_of_a_node() {
        let mut now = reading(5);
        now.nodes[0].answer.as_mut().unwrap().at += Duration::from_secs(2);
        let view = NodesView::new(&now, Some(&reading(3)));
        let puts = |node: usize| view.nodes[node].shown.as_ref().unwrap().rates.puts;
        assert_eq!((puts(0), puts(2)), (Some(500.0), Some(0.0)));
    }

    #[test]
    fn another_life_and_a_first_answer_have_no_rate_yet() {
        let (before, mut now) = (reading(300), reading(301));
        now.nodes[0].answer.as_mut().unwrap().stats.boot += 1;
        now.nodes[1].answer = Ok(reading(301).nodes.remove(0).answer.unwrap());
        let view = NodesView::new(&now, Some(&before));
        for node in &view.nodes[..2] {
            assert_eq!(node.shown.as_ref().unwrap().rates, NodeRates::default());
        }
        assert_eq!(view.nodes[2].shown.as_ref().unwrap().rates.verdicts, Some(10.0));
    }

    #[test]
    fn json_names_the_node_that_is_away_and_the_one_that_inhibits() {
        let json = serde_json::to_value(NodesView::new(&reading(5), None)).unwrap();
        assert_eq!(json["nodes"][1]["error"], "Unavailable: connection refused");
        assert_eq!(json["nodes"][1].get("fill"), None);
        assert_eq!((&json["inhibit"]["name"], &json["inhibit"]["class"]), (&"daq3".into(), &"hot-full".into()));
        assert_eq!(json["nodes"][0]["rates"]["puts"], serde_json::Value::Null);
    }
}
