//! The content of one screen of nodes, computed from a reading and the one before it.

use super::reading::{Figures, Kept, NodeReading, NodesReading};
use forebay_cluster::Status;
use forebay_core::{Inhibit, LIVE_STATES, Ledger, Live, RingStats};
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
#[derive(Debug, Serialize)]
pub(super) struct Totals {
    pub(super) nodes: usize,
    pub(super) answering: usize,
    /// Nodes that inhibit.
    pub(super) inhibiting: usize,
    /// Of the fullest node.
    pub(super) fill: f64,
    #[serde(flatten)]
    pub(super) kept: KeptView,
    pub(super) rates: NodeRates,
}

/// What nodes keep.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum KeptView {
    Events { events: Live<u64>, leases: u64 },
    Ring { ring: RingView },
}

/// Figures of a ring.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct RingView {
    /// Sources that were seen: one that has moved is seen by both nodes.
    pub(super) sources: u64,
    pub(super) fragments: u64,
    pub(super) bytes: u64,
    pub(super) pins: u64,
    pub(super) pinned_bytes: u64,
    pub(super) evicted_chunks_per_second: Option<f64>,
    pub(super) refused_per_second: Option<f64>,
    /// Fragments.
    pub(super) lost: u64,
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
    #[serde(flatten)]
    pub(super) kept: KeptView,
    pub(super) rates: NodeRates,
    pub(super) inhibit: Option<Inhibit>,
    pub(super) debug_alarm: bool,
    /// Other nodes that it cannot reach, and why.
    pub(super) troubles: Vec<String>,
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
            totals: Totals::of(reading.is_ring, &nodes),
            inhibit: nodes.iter().find_map(|node| {
                let why = node.shown.as_ref()?.inhibit.clone()?;
                Some(InhibitedBy { node: node.node, name: node.name.clone(), why })
            }),
            nodes,
        }
    }
}

impl NodesView {
    pub(super) fn is_ring(&self) -> bool {
        matches!(self.totals.kept, KeptView::Ring { .. })
    }
}

impl Totals {
    fn of(is_ring: bool, nodes: &[NodeView]) -> Totals {
        let mut all = Totals {
            nodes: nodes.len(),
            answering: 0,
            inhibiting: 0,
            fill: 0.0,
            kept: KeptView::none(is_ring),
            rates: NodeRates::default(),
        };
        for node in nodes.iter().filter_map(|node| node.shown.as_ref()) {
            all.answering += 1;
            all.inhibiting += usize::from(node.inhibit.is_some());
            all.fill = all.fill.max(node.fill);
            all.kept.add(&node.kept);
            let rates = &mut all.rates;
            for (sum, more) in [
                (&mut rates.puts, node.rates.puts),
                (&mut rates.stored_bytes, node.rates.stored_bytes),
                (&mut rates.verdicts, node.rates.verdicts),
            ] {
                add_rate(sum, more);
            }
        }
        all
    }
}

fn add_rate(sum: &mut Option<f64>, more: Option<f64>) {
    *sum = [*sum, more].into_iter().flatten().reduce(|one, other| one + other);
}

impl KeptView {
    fn none(is_ring: bool) -> KeptView {
        match is_ring {
            true => KeptView::Ring { ring: RingView::default() },
            false => KeptView::Events { events: Live::default(), leases: 0 },
        }
    }

    fn add(&mut self, other: &KeptView) {
        match (self, other) {
            (KeptView::Events { events, leases }, KeptView::Events { events: more, leases: more_leases }) => {
                *leases += more_leases;
                LIVE_STATES.into_iter().for_each(|state| events[state] += more[state]);
            }
            (KeptView::Ring { ring }, KeptView::Ring { ring: more }) => {
                ring.sources += more.sources;
                ring.fragments += more.fragments;
                ring.bytes += more.bytes;
                ring.pins += more.pins;
                ring.pinned_bytes += more.pinned_bytes;
                add_rate(&mut ring.evicted_chunks_per_second, more.evicted_chunks_per_second);
                add_rate(&mut ring.refused_per_second, more.refused_per_second);
                ring.lost += more.lost;
            }
            _ => {}
        }
    }
}

impl Shown {
    fn new(now: &Figures, was: Option<&Figures>) -> Shown {
        let seconds = was.map_or(0.0, |was| now.at.saturating_duration_since(was.at).as_secs_f64());
        // Another life of the store counts from what it found.
        let was = was.filter(|was| was.kept.boot() == now.kept.boot() && seconds > 0.0);
        let rate = |of: fn(&Kept) -> u64| Some(of(&now.kept).saturating_sub(of(&was?.kept)) as f64 / seconds);
        let (fill, kept, inhibit, debug_alarm) = match &now.kept {
            Kept::Events { stats, .. } => {
                let mut events = Live::default();
                LIVE_STATES.into_iter().for_each(|state| events[state] = stats.events[state].events);
                let fill = stats.warm.as_ref().map_or(stats.fill, |warm| stats.fill.max(warm.fill));
                let kept = KeptView::Events { events, leases: stats.leases };
                (fill, kept, stats.inhibit.clone(), stats.debug.alarm.is_some())
            }
            Kept::Ring { stats, sources } => {
                let ring = RingView {
                    sources: *sources as u64,
                    fragments: stats.fragments,
                    bytes: stats.bytes,
                    pins: stats.pins.len() as u64,
                    pinned_bytes: stats.pinned_bytes,
                    evicted_chunks_per_second: rate(|kept| kept.of_ring(|stats| stats.evicted)),
                    refused_per_second: rate(|kept| {
                        kept.of_ring(|RingStats { refused, .. }| refused.no_space + refused.skew + refused.too_late)
                    }),
                    lost: stats.ledger.lost.fragments,
                };
                (stats.fill, KeptView::Ring { ring }, None, false)
            }
        };
        let is_ring = matches!(kept, KeptView::Ring { .. });
        Shown {
            epoch: now.status.as_ref().map(|status| status.epoch),
            fill,
            kept,
            rates: NodeRates {
                puts: rate(|kept| kept.sums().offered.fragments),
                stored_bytes: rate(|kept| kept.sums().stored.bytes),
                verdicts: rate(|kept| {
                    let sums = kept.sums();
                    let accepted = sums.live.accepted.events.wrapping_add(sums.released.events);
                    accepted.wrapping_add(sums.rejected.events)
                })
                .filter(|_| !is_ring),
            },
            inhibit,
            debug_alarm,
            troubles: now.status.as_ref().map_or_else(Vec::new, Status::troubles),
        }
    }
}

impl Kept {
    fn boot(&self) -> u32 {
        match self {
            Kept::Events { stats, .. } => stats.boot,
            Kept::Ring { stats, .. } => stats.boot,
        }
    }

    /// The account of all runs.
    fn sums(&self) -> &Ledger {
        match self {
            Kept::Events { sums, .. } => sums,
            Kept::Ring { stats, .. } => &stats.ledger,
        }
    }

    fn of_ring(&self, count: impl Fn(&RingStats) -> u64) -> u64 {
        match self {
            Kept::Ring { stats, .. } => count(stats),
            Kept::Events { .. } => 0,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use forebay_core::{InhibitClass, Refusals, RingPinStatus, Stats, Tally};
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
                kept: Kept::Events {
                    stats: Box::new(Stats { fill, events: live, leases: 2, inhibit, boot: 3, ..Stats::default() }),
                    sums: Ledger {
                        offered: tally(puts * second),
                        stored: tally(puts * second),
                        live,
                        rejected: tally(9 * second),
                        ..Ledger::default()
                    },
                },
                status: None,
            }
        };
        let node = |node: u16, answer| NodeReading { node, name: format!("daq{node}"), answer };
        NodesReading {
            keyspace: "physics".to_owned(),
            map: Some(("0123".to_owned(), 4)),
            is_ring: false,
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
        let KeptView::Events { events, leases } = &totals.kept else { panic!("no events") };
        assert_eq!((events.ready, events.leased, *leases), (10, 4, 4));
        let rates = NodeRates { puts: Some(1000.0), stored_bytes: Some(10_000.0), verdicts: Some(20.0) };
        assert_eq!(totals.rates, rates);
        assert_eq!(view.nodes[1].error.as_deref(), Some("Unavailable: connection refused"));
        assert!(view.nodes[1].shown.is_none());
        let by = view.inhibit.unwrap();
        assert_eq!((by.node, by.name.as_str(), by.why), (3, "daq3", inhibit()));
    }

    /// A ring on two nodes some seconds after their start, and a third that is away: the first evicts and refuses.
    pub(in crate::top) fn ring_reading(second: u64) -> NodesReading {
        let figures = |node: u64, second: u64| {
            let tally = |fragments| Tally { events: 0, fragments, bytes: fragments * 1000 };
            let stats = RingStats {
                fill: 0.97 / node as f64,
                fragments: 500 * node,
                bytes: 5_000_000,
                evicted: 3 * second,
                refused: Refusals { too_late: 7 * second, ..Refusals::default() },
                pinned_bytes: 1 << 20,
                pins: vec![RingPinStatus::default(); 2],
                ledger: Ledger { offered: tally(100 * second), stored: tally(100 * second), ..Ledger::default() },
                boot: 1,
                ..RingStats::default()
            };
            let at = start() + Duration::from_secs(second);
            Figures { at, kept: Kept::Ring { stats, sources: 24 }, status: None }
        };
        let node = |node: u16, answer| NodeReading { node, name: format!("daq{node}"), answer };
        NodesReading {
            keyspace: "links".to_owned(),
            map: Some(("0123".to_owned(), 4)),
            is_ring: true,
            nodes: vec![
                node(1, Ok(figures(1, second))),
                node(2, Err("Unavailable: connection refused".to_owned())),
                node(3, Ok(figures(2, second))),
            ],
        }
    }

    #[test]
    fn a_ring_has_figures_of_its_own() {
        let view = NodesView::new(&ring_reading(5), Some(&ring_reading(3)));
        let KeptView::Ring { ring } = &view.totals.kept else { panic!("no ring") };
        let expected = RingView {
            sources: 48,
            fragments: 1500,
            bytes: 10_000_000,
            pins: 4,
            pinned_bytes: 2 << 20,
            evicted_chunks_per_second: Some(6.0),
            refused_per_second: Some(14.0),
            lost: 0,
        };
        assert_eq!((ring, view.totals.fill), (&expected, 0.97));
        let rates = NodeRates { puts: Some(200.0), stored_bytes: Some(200_000.0), verdicts: None };
        assert_eq!(view.totals.rates, rates);
        let json = serde_json::to_value(&view).unwrap();
        assert_eq!((&json["nodes"][0]["ring"]["sources"], &json["nodes"][0]["fill"]), (&24.into(), &0.97.into()));
        assert_eq!((json["totals"].get("events"), json["nodes"][1].get("ring")), (None, None));
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
        let Kept::Events { stats, .. } = &mut now.nodes[0].answer.as_mut().unwrap().kept else { panic!("no events") };
        stats.boot += 1;
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
