//! The screen: a view and its history in words, bars and lines, in the room that there is.
//!
//! *Invariants*: nothing is drawn outside of the screen, however small (test `any_size_will_do`); colour says nothing
//! that words do not say.

use super::history::{History, RATES, values};
use super::terminal::Away;
use super::view::{CallView, DeviceView, LevelView, RingView, View};
use crate::units;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Sparkline, Wrap};

/// A key, and what it does.
pub(super) type Keys = [(&'static str, &'static str)];

/// What the keys do.
const KEYS: &Keys = &[("q", "quit"), ("p", "pause, go on"), ("Tab", "next keyspace"), ("?", "this help")];

/// What there is to draw.
pub(super) struct Screen<'a> {
    pub(super) url: &'a str,
    pub(super) view: Option<&'a View>,
    pub(super) history: &'a History,
    /// For how long the server has not answered, and what it says instead.
    pub(super) away: Option<Away<'a>>,
    pub(super) paused: bool,
    pub(super) help: bool,
}

/// What there is to say of the trigger where the keyspace is a ring.
pub(super) const NO_TRIGGER: &str = " a ring holds no trigger: its oldest data goes when space is needed";

/// Last letter of a line that has more text than room.
pub(super) const CUT: &str = "…";
pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const ALARM: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
pub(super) const HELD: Style = ALARM.add_modifier(Modifier::REVERSED).add_modifier(Modifier::SLOW_BLINK);

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &Screen<'_>) {
    let mut room = frame.area();
    text(frame, take(&mut room, 1), title(screen));
    away(frame, &mut room, screen.away);
    keys(frame, &mut room, KEYS);
    if let Some(view) = screen.view {
        inhibit(frame, take(&mut room, 2), view);
        levels(frame, take(&mut room, 1 + view.levels.len() as u16), view);
        let named = RATES.iter().zip(values(&view.rates)).enumerate();
        let named: Vec<_> = named.map(|(number, (name, value))| (number, *name, value)).collect();
        rates(frame, take(&mut room, 1 + RATES.len() as u16), &named, screen.history);
        let middle = take(&mut room, 2 + view.events.len() as u16 + 1);
        let [left, right] = Layout::horizontal([Constraint::Percentage(50), Constraint::Fill(1)]).areas(middle);
        match &view.ring {
            Some(of_ring) => ring(frame, left, of_ring),
            None => events(frame, left, view),
        }
        around(frame, right, view);
        calls(frame, room, view);
    } else if screen.away.is_none() {
        text(frame, take(&mut room, 1), Line::styled(" waiting for the first answer", DIM));
    }
    if screen.help {
        help(frame, KEYS);
    }
}

/// One line where nobody answers.
pub(super) fn away(frame: &mut Frame<'_>, room: &mut Rect, away: Option<Away<'_>>) {
    if let Some((seconds, error)) = away {
        let words = format!(" AWAY for {seconds} s: {}; asking again", shown(error));
        text(frame, take(room, 1), Line::styled(words, HELD));
    }
}

/// What the keys do, in the last line.
pub(super) fn keys(frame: &mut Frame<'_>, room: &mut Rect, keys: &Keys) {
    let mut last = take_last(room, 1);
    last.x += 1;
    last.width = last.width.saturating_sub(1);
    let keys: Vec<String> = keys.iter().map(|(key, what)| format!("{key} {what}")).collect();
    text(frame, last, Line::styled(keys.join(" · "), DIM));
}

/// The first lines of what is left.
pub(super) fn take(room: &mut Rect, lines: u16) -> Rect {
    let taken = Rect { height: lines.min(room.height), ..*room };
    room.y += taken.height;
    room.height -= taken.height;
    taken
}

fn take_last(room: &mut Rect, lines: u16) -> Rect {
    let height = lines.min(room.height);
    room.height -= height;
    Rect { y: room.y + room.height, height, ..*room }
}

/// Lines of text; one that is longer than its room ends in [`CUT`].
pub(super) fn text<'a>(frame: &mut Frame<'_>, room: Rect, lines: impl Into<ratatui::text::Text<'a>>) {
    let lines = lines.into();
    let is_cut: Vec<bool> = lines.iter().map(|line| line.width() > usize::from(room.width)).collect();
    frame.render_widget(Paragraph::new(lines), room);
    for (row, _) in room.rows().zip(is_cut).filter(|(row, is_cut)| *is_cut && row.width > 0) {
        if let Some(cell) = frame.buffer_mut().cell_mut((row.right() - 1, row.y)) {
            cell.set_symbol(CUT);
        }
    }
}

/// A part of the screen below its name; the room that is left in it.
pub(super) fn part(frame: &mut Frame<'_>, room: Rect, name: &str) -> Rect {
    let block = Block::new().borders(Borders::TOP).border_style(DIM).title(Span::styled(format!(" {name} "), BOLD));
    let inside = block.inner(room);
    frame.render_widget(block, room);
    inside
}

fn title(screen: &Screen<'_>) -> Line<'static> {
    let paused = if screen.paused { "PAUSED " } else { "" };
    let mut line = vec![Span::styled(format!(" forebay top {paused}"), BOLD), Span::raw(screen.url.to_owned())];
    if let Some(view) = screen.view {
        let place = view.keyspaces.iter().position(|name| *name == view.keyspace).map_or(0, |at| at + 1);
        let many = match view.keyspaces.len() {
            0 | 1 => String::new(),
            many => format!(" ({place} of {many})"),
        };
        line.push(Span::styled(format!("  {}{many}", shown(&view.keyspace)), BOLD));
        let state = if view.ready { "ready" } else { "STOPPING" };
        line.push(Span::raw(format!("  {state}, up {}, {}", duration(view.uptime_seconds), shown(&view.version))));
    }
    line.into()
}

fn inhibit(frame: &mut Frame<'_>, room: Rect, view: &View) {
    let dead: f64 = view.inhibited_seconds.values().sum();
    let parts = view.inhibited_seconds.iter().filter(|class| *class.1 > 0.0);
    let parts: Vec<String> = parts.map(|(class, seconds)| format!("{} {seconds:.1} s", shown(class))).collect();
    let dead = match parts.is_empty() {
        true => "dead time 0.0 s".to_owned(),
        false => format!("dead time {dead:.1} s: {}", parts.join(", ")),
    };
    if view.ring.is_some() {
        return text(frame, room, NO_TRIGGER);
    }
    let alarm = if view.debug_alarm { "   DEBUG STREAM: look at it" } else { "" };
    let Some(held) = &view.inhibit else {
        let line = vec![Span::raw(format!(" trigger free   {dead}")), Span::styled(alarm, ALARM)];
        return text(frame, room, Line::from(line));
    };
    let mut lines = vec![Span::styled(format!(" INHIBIT {} ", shown(&held.class)), HELD)];
    let mut second = format!(" {dead}{alarm}");
    if let Some(words) = &held.words {
        lines.push(Span::styled(format!(" {}", shown(&words.cause)), ALARM));
        second = format!(" owner: {}; ends when {}; {dead}{alarm}", shown(&words.owner), shown(&words.ends));
    }
    text(frame, room, vec![Line::from(lines), Line::styled(second, ALARM)]);
}

fn levels(frame: &mut Frame<'_>, room: Rect, view: &View) {
    let mut room = part(frame, room, "levels");
    for level in &view.levels {
        let marks =
            [("inhibit", level.inhibit_high, level.inhibit_low), ("demote", level.demote_high, level.demote_low)];
        let marks: String = marks
            .iter()
            .filter_map(|(name, high, low)| Some(format!("  {name} {:.0}/{:.0}", (*high)? * 100.0, (*low)? * 100.0)))
            .collect();
        let of = units::bytes(level.capacity_bytes as u64);
        let behind = format!(" {:>5.1} % of {of}{marks}", level.fill * 100.0);
        let name = format!(" {:<9}", shown(&level.level));
        let line = take(&mut room, 1);
        let width = usize::from(line.width).saturating_sub(name.chars().count() + behind.chars().count() + 1);
        let mut spans = vec![Span::raw(name)];
        spans.extend(gauge(level, width));
        spans.push(Span::raw(behind));
        text(frame, line, Line::from(spans));
    }
}

/// A bar with the marks in it.
fn gauge(level: &LevelView, width: usize) -> Vec<Span<'static>> {
    let above = |mark: Option<f64>| mark.is_some_and(|mark| level.fill >= mark);
    let colour = match () {
        () if above(level.inhibit_high) => Color::Red,
        () if above(level.inhibit_low.into_iter().chain(level.demote_high).reduce(f64::min)) => Color::Yellow,
        () => Color::Green,
    };
    let mut cells: Vec<(char, Style)> =
        units::bar(level.fill, width).chars().map(|cell| (cell, Style::new().fg(colour))).collect();
    for (mark, sign) in
        [(level.demote_low, '┆'), (level.demote_high, '┆'), (level.inhibit_low, '╎'), (level.inhibit_high, '┃')]
    {
        let Some(mark) = mark else { continue };
        if let Some(cell) = cells.get_mut((mark.clamp(0.0, 1.0) * width as f64) as usize) {
            *cell = (sign, BOLD);
        }
    }
    cells.into_iter().map(|(cell, style)| Span::styled(cell.to_string(), style)).collect()
}

/// Rates, each by its number in [`RATES`], its name and its value, and how they were.
pub(super) fn rates(
    frame: &mut Frame<'_>,
    room: Rect,
    rates: &[(usize, &'static str, Option<f64>)],
    history: &History,
) {
    let mut room = part(frame, room, "each second");
    for &(number, name, value) in rates {
        let shown = match name {
            "stored" | "in" | "out" => megabytes(value),
            _ => number_of(value),
        };
        let mut line = take(&mut room, 1);
        text(frame, line, format!(" {name:<9}{shown:>12}"));
        line.x += 24.min(line.width);
        line.width = line.width.saturating_sub(25);
        let data = history.last(number, usize::from(line.width));
        // The newest at the right, where the eye is.
        let gap = line.width.saturating_sub(data.len() as u16);
        let line = Rect { x: line.x + gap, width: line.width - gap, ..line };
        if line.width > 0 && line.height > 0 {
            let most = data.iter().copied().max().unwrap_or(0).max(1);
            frame.render_widget(Sparkline::default().data(data).max(most).style(Style::new().fg(Color::Cyan)), line);
        }
    }
}

/// A rate of things, where it is known.
pub(super) fn number_of(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), units::count)
}

/// A rate of bytes, where it is known.
pub(super) fn megabytes(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |bytes| format!("{:.1} MB", bytes / 1e6))
}

fn events(frame: &mut Frame<'_>, room: Rect, view: &View) {
    let room = part(frame, room, "events");
    let mut lines = vec![Line::styled(format!(" {:<9}{:>9}{:>10}{:>10}", "", "events", "fragments", "bytes"), DIM)];
    for state in &view.events {
        let bytes = units::bytes(state.bytes as u64);
        let (events, fragments) = (units::count(state.events), units::count(state.fragments));
        let style = if state.state == "debug" && state.events > 0.0 { ALARM } else { Style::new() };
        lines.push(Line::styled(format!(" {:<9}{events:>9}{fragments:>10}{bytes:>10}", state.state), style));
    }
    let (leases, held) = (units::count(view.leases), units::count(view.held));
    lines.push(Line::raw(format!(" leases {leases}, held back {held}")));
    text(frame, room, lines);
}

/// What a ring keeps, evicts and refuses.
fn ring(frame: &mut Frame<'_>, room: Rect, view: &RingView) {
    let room = part(frame, room, "ring");
    let rate = number_of;
    let bytes = |bytes: f64| units::bytes(bytes as u64);
    let alarm = |is_wrong: bool| if is_wrong { ALARM } else { Style::new() };
    let causes: Vec<String> =
        view.refused.iter().map(|(cause, count)| format!("{} {}", shown(cause), units::count(*count))).collect();
    let refuses = view.refused_per_second.is_some_and(|rate| rate > 0.0);
    let lines = vec![
        Line::raw(format!(" kept     {} fragments, {}", units::count(view.fragments), bytes(view.bytes))),
        Line::raw(format!(" sources  {}, longest silence {:.1} s", units::count(view.sources), view.silence_seconds)),
        Line::raw(format!(" evicted  {} chunks a second", rate(view.evicted_chunks_per_second))),
        Line::raw(format!(
            " pins     {}: {} of {}",
            units::count(view.pins),
            bytes(view.pinned_bytes),
            bytes(view.pin_quota_bytes)
        )),
        Line::raw(format!(" windows  {} chunks in use", units::count(view.guards))),
        Line::styled(
            format!(" refused  {} a second {}", rate(view.refused_per_second), causes.join(", ")),
            alarm(refuses),
        ),
        Line::styled(format!(" lost     {} fragments", units::count(view.lost)), alarm(view.lost > 0.0)),
    ];
    text(frame, room, lines);
}

/// Devices, connections and errors.
fn around(frame: &mut Frame<'_>, room: Rect, view: &View) {
    let room = part(frame, room, "containers, connections, errors");
    let named = |counts: &std::collections::BTreeMap<String, f64>| {
        let counts: Vec<String> =
            counts.iter().map(|(name, count)| format!("{} {}", shown(name), units::count(*count))).collect();
        counts.join(", ")
    };
    let connections = format!(" connections {} of {}", named(&view.connections), units::count(view.connections_limit));
    let errors = match view.errors.is_empty() {
        true => Line::raw(" errors none"),
        false => Line::styled(format!(" errors {}", named(&view.errors)), Style::new().fg(Color::Yellow)),
    };
    // What is there in any case comes first, so that many devices hide only one another.
    let mut lines = vec![Line::raw(connections), errors];
    lines.extend(view.devices.iter().map(device));
    text(frame, room, lines);
}

fn device(device: &DeviceView) -> Line<'static> {
    let containers: Vec<String> =
        device.containers.iter().map(|(state, count)| format!("{count:.0} {state}")).collect();
    let words = format!(" {}: {}", shown(&device.device), containers.join(", "));
    let hurt = device.containers.keys().any(|state| state == "poisoned" || state == "lost");
    match device {
        DeviceView { present: false, .. } => Line::styled(format!("{words}; MISSING"), ALARM),
        DeviceView { stalled: true, .. } => Line::styled(format!("{words}; STALLED"), ALARM),
        _ if hurt => Line::styled(words, ALARM),
        _ => Line::raw(words),
    }
}

fn calls(frame: &mut Frame<'_>, room: Rect, view: &View) {
    if view.calls.is_empty() {
        return;
    }
    let room = part(frame, room, "calls: each second, time of half and of 99 in 100, errors each second");
    let time = |seconds: Option<f64>| match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 1e-3 => format!("{:.0} us", seconds * 1e6),
        Some(seconds) if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.2} s"),
    };
    let line = |call: &CallView| {
        let (p50, p99) = (time(call.p50_seconds), time(call.p99_seconds));
        let (rate, errors) = (units::count(call.per_second), units::count(call.errors_per_second));
        Line::raw(format!(" {:<12}{rate:>9}{p50:>11}{p99:>11}{errors:>9}", shown(&call.call)))
    };
    text(frame, room, view.calls.iter().map(line).collect::<Vec<_>>());
}

pub(super) fn help(frame: &mut Frame<'_>, keys: &Keys) {
    let all = frame.area();
    let (width, height) = (46.min(all.width), (keys.len() as u16 + 7).min(all.height));
    let room = Rect { x: (all.width - width) / 2, y: (all.height - height) / 2, width, height };
    let mut lines: Vec<Line<'_>> = keys.iter().map(|(key, what)| Line::raw(format!(" {key:<4} {what}"))).collect();
    lines.push(Line::raw(""));
    lines.push(Line::raw(
        " Marks in a bar: ┃ inhibit starts, ╎ it stops, ┆ demotion. Verdicts are events accepted or rejected.",
    ));
    let block = Block::new().borders(Borders::ALL).title(" Keys ");
    frame.render_widget(Clear, room);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), room);
}

/// Text that came over the network, without what a terminal might obey.
pub(super) fn shown(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

fn duration(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::once;
    use crate::top::view::tests::reading;

    fn drawn(width: u16, height: u16, change: impl FnOnce(&mut Screen<'_>)) -> String {
        let (before, now) = (reading(7), reading(8));
        let view = View::new("http://127.0.0.1:7442", 0, &now, Some(&before));
        let mut history = History::default();
        (0..300).for_each(|_| history.add(&view.rates));
        let mut screen = Screen {
            url: "http://127.0.0.1:7442",
            view: Some(&view),
            history: &history,
            away: None,
            paused: false,
            help: false,
        };
        change(&mut screen);
        once::plain(|frame| draw(frame, &screen), width, height).unwrap()
    }

    #[test]
    fn everything_fits_on_80_by_24() {
        let text = drawn(80, 24, |_| {});
        for words in [
            "forebay top http://127.0.0.1:7442  physics (1 of 2)  ready, up",
            "INHIBIT hot full  hot fill 92 % (marks 90 and 75 %): 71 % ready",
            "owner: selection; ends when hot fill is below 75 %",
            "92.5 % of 1.00 GiB  inhibit 90/75",
            "25.0 % of 1.00 TiB",
            "puts              100",
            "stored         0.1 MB",
            "verdicts           10",
            "ready           41        82  82.0 KiB",
            "leases 7, held back 0",
            "/disk1/warm: 13 empty, 3 full; STALLED",
            "connections native 12 of 20.0 k",
            "errors Full 8",
            "put               100     3.1 ms     4.1 ms        1",
            "q quit",
        ] {
            assert!(text.contains(words), "no `{words}` in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80) && text.lines().count() <= 24, "{text}");
    }

    #[test]
    fn any_size_will_do() {
        for width in 1..130 {
            for height in 1..40 {
                drawn(width, height, |screen| screen.help = height % 2 == 0);
            }
        }
    }

    #[test]
    fn states_of_the_screen_are_in_words() {
        let away = drawn(80, 24, |screen| screen.away = Some((12, "Unavailable: connection refused")));
        assert!(away.contains("AWAY for 12 s: Unavailable: connection refused; asking again"), "{away}");
        assert!(away.contains("puts"), "what was known last stays: {away}");
        let nothing = drawn(80, 24, |screen| (screen.view, screen.away) = (None, Some((3, "no"))));
        assert!(nothing.contains("AWAY for 3 s: no") && !nothing.contains("puts"), "{nothing}");
        assert!(drawn(80, 24, |screen| screen.view = None).contains("waiting for the first answer"));
        assert!(drawn(80, 24, |screen| screen.paused = true).contains("PAUSED"));
        assert!(drawn(80, 24, |screen| screen.help = true).contains("next keyspace"));
    }

    #[test]
    fn what_a_terminal_might_obey_is_not_shown() {
        assert_eq!(shown("a\x1b[2Jb\r\nc\u{9b}"), "a?[2Jb??c?");
    }
}
