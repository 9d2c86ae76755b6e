//! The screen of a cluster: totals, then a line for each node, in the room that there is.
//!
//! *Invariants*: nothing is drawn outside of the screen, however small (test `any_size_will_do`); where not all nodes have room,
//! those that do not answer, inhibit or miss others come first (test `trouble_comes_first_where_room_is_short`).

use super::view::{KeptView, NodeRates, NodeView, NodesView, Shown};
use crate::top::history::{History, RATES};
use crate::top::screen::{
    ALARM, BOLD, DIM, HELD, Keys, NO_TRIGGER, away, help, keys, megabytes, number_of, part, rates, shown, take, text,
};
use crate::top::terminal::{Away, Controls};
use crate::units;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// What the keys do. Nodes are looked at in one keyspace.
const KEYS: &Keys = &[("q", "quit"), ("p", "pause, go on"), ("?", "this help")];
/// Letters of a name, and of a bar.
const NAME: usize = 14;
const BAR: usize = 8;

/// What there is to draw.
pub(in crate::top) struct NodesScreen<'a> {
    pub(in crate::top) addresses: &'a str,
    pub(in crate::top) view: Option<&'a NodesView>,
    pub(in crate::top) history: &'a History,
    pub(in crate::top) away: Option<Away<'a>>,
    pub(in crate::top) controls: &'a Controls,
}

/// Draws all of it.
pub(in crate::top) fn draw(frame: &mut Frame<'_>, screen: &NodesScreen<'_>) {
    let mut room = frame.area();
    text(frame, take(&mut room, 1), title(screen));
    away(frame, &mut room, screen.away);
    keys(frame, &mut room, KEYS);
    if let Some(view) = screen.view {
        text(frame, take(&mut room, 2), trigger(view));
        let named = |number: usize, rate| (number, RATES[number], rate);
        let NodeRates { puts, stored_bytes, verdicts } = view.totals.rates;
        let all = [named(0, puts), named(1, stored_bytes), named(4, verdicts)];
        let all = &all[..if view.is_ring() { 2 } else { 3 }];
        rates(frame, take(&mut room, 1 + all.len() as u16), all, screen.history);
        nodes(frame, room, view);
    } else if screen.away.is_none() {
        text(frame, take(&mut room, 1), Line::styled(" waiting for the first answer", DIM));
    }
    if screen.controls.help {
        help(frame, KEYS);
    }
}

fn title(screen: &NodesScreen<'_>) -> Line<'static> {
    let paused = if screen.controls.paused { "PAUSED " } else { "" };
    let mut line = vec![Span::styled(format!(" forebay top {paused}"), BOLD)];
    let Some(view) = screen.view else {
        line.push(Span::raw(shown(screen.addresses)));
        return line.into();
    };
    line.push(Span::styled(shown(&view.keyspace), BOLD));
    let totals = &view.totals;
    line.push(Span::raw(format!("  {}", units::plural(totals.nodes as u64, "node"))));
    if let Some(epoch) = view.epoch {
        line.push(Span::raw(format!(", epoch {epoch}")));
    }
    if totals.answering < totals.nodes {
        line.push(Span::styled(format!("  {} NOT ANSWERING", totals.nodes - totals.answering), HELD));
    }
    line.into()
}

/// Whether the trigger of all is held, and by which node.
fn trigger(view: &NodesView) -> Vec<Line<'static>> {
    if view.is_ring() {
        return vec![Line::raw(NO_TRIGGER)];
    }
    let Some(by) = &view.inhibit else { return vec![Line::raw(" trigger free")] };
    let others = match view.totals.inhibiting {
        0 | 1 => String::new(),
        all => format!(" and {} more", all - 1),
    };
    let words = format!(" INHIBIT by node {}{others}: {} ", shown(&by.name), by.why.class.name());
    let cause = Span::styled(format!(" {}", shown(&by.why.cause)), ALARM);
    let second = format!(" owner: {}; ends when {}", shown(&by.why.owner), shown(&by.why.ends));
    vec![Line::from(vec![Span::styled(words, HELD), cause]), Line::styled(second, ALARM)]
}

fn nodes(frame: &mut Frame<'_>, room: Rect, view: &NodesView) {
    let room = part(frame, room, "nodes");
    let (names, totals) = (columns(view.is_ring()), &view.totals);
    let head = format!(" {:<NAME$} {:<width$} {}", "node", "fill", cells(&names), width = BAR + 6);
    let all = figures("all", totals.fill, &totals.kept, totals.rates);
    let mut lines = vec![Line::styled(head, DIM), Line::styled(all, BOLD)];
    let mut nodes: Vec<&NodeView> = view.nodes.iter().collect();
    let left = usize::from(room.height).saturating_sub(lines.len());
    if nodes.len() > left {
        nodes.sort_by_key(|node| !is_in_trouble(node));
        let hidden = nodes.len() - left.saturating_sub(1);
        nodes.truncate(left.saturating_sub(1));
        lines.extend(nodes.iter().map(|node| row(node)));
        lines.push(Line::styled(format!(" and {hidden} more, for which there is no room"), DIM));
    } else {
        lines.extend(nodes.iter().map(|node| row(node)));
    }
    text(frame, room, lines);
}

fn is_in_trouble(node: &NodeView) -> bool {
    let is_lost = |shown: &Shown| matches!(&shown.kept, KeptView::Ring { ring } if ring.lost > 0);
    let hurt =
        |shown: &Shown| shown.inhibit.is_some() || shown.debug_alarm || !shown.troubles.is_empty() || is_lost(shown);
    node.shown.as_ref().is_none_or(hurt)
}

/// Names of the columns behind the fill, each with its width.
fn columns(is_ring: bool) -> [(&'static str, usize); 7] {
    match is_ring {
        true => [
            ("sources", 8),
            ("kept", 9),
            ("pins", 6),
            ("puts/s", 9),
            ("stored/s", 11),
            ("evicted/s", 11),
            ("refused/s", 11),
        ],
        false => [
            ("open", 8),
            ("ready", 8),
            ("leased", 8),
            ("accepted", 9),
            ("puts/s", 9),
            ("stored/s", 11),
            ("verdicts/s", 12),
        ],
    }
}

fn cells<T: std::fmt::Display>(cells: &[(T, usize)]) -> String {
    cells.iter().map(|(cell, width)| format!("{cell:>width$}")).collect()
}

fn figures(name: &str, fill: f64, kept: &KeptView, rates: NodeRates) -> String {
    let name: String = shown(name).chars().take(NAME).collect();
    let count = |events: u64| units::count(events as f64);
    let (puts, stored) = (number_of(rates.puts), megabytes(rates.stored_bytes));
    let is_ring = matches!(kept, KeptView::Ring { .. });
    let values = match kept {
        KeptView::Events { events, .. } => [
            count(events.open),
            count(events.ready),
            count(events.leased),
            count(events.accepted),
            puts,
            stored,
            number_of(rates.verdicts),
        ],
        KeptView::Ring { ring } => [
            count(ring.sources),
            count(ring.fragments),
            count(ring.pins),
            puts,
            stored,
            number_of(ring.evicted_chunks_per_second),
            number_of(ring.refused_per_second),
        ],
    };
    let widths = columns(is_ring).map(|(_, width)| width);
    let values: Vec<_> = values.into_iter().zip(widths).collect();
    let fill = format!("{} {:>4}", units::bar(fill, BAR), format!("{:.0} %", fill * 100.0));
    format!(" {name:<NAME$} {fill:<width$} {}", cells(&values), width = BAR + 6)
}

fn row(node: &NodeView) -> Line<'static> {
    let name: String = shown(&node.name).chars().take(NAME).collect();
    let Some(figure) = &node.shown else {
        let why = node.error.as_deref().unwrap_or_default();
        return Line::styled(format!(" {name:<NAME$} DOES NOT ANSWER: {}", shown(why)), ALARM);
    };
    let words = figures(&node.name, figure.fill, &figure.kept, figure.rates);
    let mut remarks = Vec::new();
    if let Some(inhibit) = &figure.inhibit {
        remarks.push(format!("INHIBIT {}", inhibit.class.name()));
    }
    if figure.debug_alarm {
        remarks.push("DEBUG STREAM".to_owned());
    }
    if let KeptView::Ring { ring } = &figure.kept
        && ring.lost > 0
    {
        remarks.push(format!("LOST {} fragments", units::count(ring.lost as f64)));
    }
    remarks.extend(figure.troubles.iter().map(|trouble| shown(trouble)));
    let style = if figure.inhibit.is_some() || figure.debug_alarm { ALARM } else { Style::new() };
    Line::styled(format!("{words}  {}", remarks.join("; ")), style)
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::{reading, ring_reading};
    use super::*;
    use crate::top::once;

    fn drawn(width: u16, height: u16, many: usize, controls: Controls) -> String {
        let (before, mut now) = (reading(7), reading(8));
        // More nodes like the first, which come before those in trouble.
        let more = (0..many).map(|_| reading(8).nodes.remove(0));
        now.nodes.splice(1..1, more);
        let view = NodesView::new(&now, Some(&before));
        let history = History::default();
        let screen = NodesScreen {
            addresses: "tcp://a,tcp://b",
            view: Some(&view),
            history: &history,
            away: None,
            controls: &controls,
        };
        once::plain(|frame| draw(frame, &screen), width, height).unwrap()
    }

    #[test]
    fn every_node_has_a_line_and_trouble_has_words() {
        let text = drawn(100, 24, 0, Controls::default());
        for words in [
            "forebay top physics  3 nodes, epoch 4  1 NOT ANSWERING",
            "INHIBIT by node daq3: hot full  hot fill 92 % (marks 90 and 75 %): 71 % ready",
            "owner: selection; ends when hot fill is below 75 %",
            "puts           1.00 k",
            "verdicts           20",
            "all            ███████░ 92 %",
            "daq1           ██░░░░░░ 25 %         0       5       2        8   1.00 k     0.0 MB          10",
            "daq2           DOES NOT ANSWER: Unavailable: connection refused",
            "q quit",
        ] {
            assert!(text.contains(words), "no `{words}` in\n{text}");
        }
        let paused = drawn(80, 24, 0, Controls { paused: true, help: true });
        assert!(paused.contains("PAUSED") && paused.contains("?    this help"), "{paused}");
        assert!(!paused.contains("next keyspace"), "a key without effect: {paused}");
    }

    #[test]
    fn a_ring_has_columns_of_its_own() {
        let view = NodesView::new(&ring_reading(8), Some(&ring_reading(7)));
        let screen = NodesScreen {
            addresses: "tcp://a,tcp://b",
            view: Some(&view),
            history: &History::default(),
            away: None,
            controls: &Controls::default(),
        };
        let text = once::plain(|frame| draw(frame, &screen), 100, 24).unwrap();
        for words in [
            "forebay top links  3 nodes, epoch 4  1 NOT ANSWERING",
            "a ring holds no trigger",
            "puts              200",
            "sources     kept  pins   puts/s   stored/s  evicted/s  refused/s",
            "daq1           ████████ 97 %        24      500     2      100     0.1 MB          3          7",
            "daq2           DOES NOT ANSWER: Unavailable: connection refused",
        ] {
            assert!(text.contains(words), "no `{words}` in\n{text}");
        }
        assert!(!text.contains("verdicts") && !text.contains("trigger free"), "{text}");
    }

    #[test]
    fn trouble_comes_first_where_room_is_short() {
        let text = drawn(100, 15, 40, Controls::default());
        assert!(text.contains("daq2           DOES NOT ANSWER") && text.contains("daq3"), "{text}");
        assert!(text.contains("more, for which there is no room"), "{text}");
    }

    #[test]
    fn any_size_will_do() {
        for width in 1..130 {
            for height in 1..30 {
                drawn(width, height, usize::from(height % 3) * 9, Controls { paused: false, help: height % 2 == 0 });
            }
        }
    }
}
