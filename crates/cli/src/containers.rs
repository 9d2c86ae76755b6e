//! `forebay containers`: the warm level container by container, as a bar each.
//!
//! *Invariant*: colour never says what no letter says (test `colour_adds_nothing`).

use crate::open::{Close, Opened, Place};
use crate::output::{Answer, Output};
use crate::{signal, units};
use forebay_core::{Error, EventStore, OperatedStore, Result};
use forebay_store::{ContainerStatus, DeviceStatus, WarmStats};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const HELP: &str = "\
Show the warm level: its devices, and every container with a bar. The bar is as long as a container; its full part (█) \
is live fragments, its grey part (▒) fragments that were rejected, released or moved since, its light part (░) is not \
written. A letter shows the state, on a terminal also a colour:

  E empty     free, to be filled next
  W filling   being written
  F full      closed, with a directory and its checksum; read, drained, recycled as a whole
  D draining  a mover has claimed it: its events go to the archive
  C custody   the archive was proved to have it; released when custody_min is over, or earlier when space is short
  P poisoned  a write failed: what is in it is read, nothing more is written
  R recycling on its way to empty
  L lost      its file or its device is not there

The state of containers is as the devices have it; what was demoted, saved and written counts from the opening, so it is of \
use in a process that serves: `forebay demo` shows it at its end. Without a warm level the exit code is 1.

Example: at a glance; for a monitor; and once a second until Ctrl-C:
  forebay containers /tmp/two
  forebay containers /tmp/two --json | jq '.containers | group_by(.state) | map({(.[0].state): length}) | add'
  forebay containers /tmp/two --watch

NO_COLOR=1 in the environment turns colours off.";

/// Width of a container's bar.
const BAR: usize = 32;
/// How often `--watch` looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Show the containers of the warm level.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Containers {
    #[command(flatten)]
    store: Place,
    /// Shows them again and again, until Ctrl-C.
    #[arg(long)]
    watch: bool,
    /// Time from one look to the next.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = units::parse_duration, requires = "watch")]
    every: Duration,
    /// Number of looks, after which it ends.
    #[arg(long, value_name = "N", requires = "watch")]
    count: Option<u64>,
}

impl Containers {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let answer = if self.watch { self.watch(&store, out) } else { show(&store, out) }?;
        store.close()?;
        Ok(answer)
    }

    fn watch(&self, store: &Opened, out: &mut Output) -> Result<Answer> {
        let stop = signal::stop_flag()?;
        let mut shown = 0;
        loop {
            if !out.json && out.is_terminal() {
                out.bytes(b"\x1b[H\x1b[2J")?;
            } else if shown > 0 {
                out.line("")?;
            }
            let answer = show(store, out)?;
            out.finish()?;
            shown += 1;
            if answer == Answer::No || self.count.is_some_and(|count| shown >= count) {
                return Ok(answer);
            }
            let next = Instant::now() + self.every;
            while Instant::now() < next {
                if stop.load(Ordering::Relaxed) {
                    return Ok(Answer::Interrupted);
                }
                std::thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
            }
        }
    }
}

fn show(store: &Opened, out: &mut Output) -> Result<Answer> {
    let Some(warm) = store.stats()?.warm else {
        out.note("forebay: this store has no warm level (`forebay create DIR --warm DIR` makes one with it)");
        out.json(&json!({ "containers": [], "warm": null }))?;
        return Ok(Answer::No);
    };
    let containers = store.containers()?;
    out.json(&as_json(&containers, &warm)?)?;
    for line in lines(&containers, &warm, coloured()) {
        out.line(line)?;
    }
    Ok(Answer::Yes)
}

fn as_json(containers: &[ContainerStatus], warm: &WarmStats) -> Result<Value> {
    let value = |error| Error::internal("containers to JSON").with_source(error);
    let mut level = serde_json::to_value(warm).map_err(value)?;
    level["write_amplification"] = json!(warm.write_amplification());
    Ok(json!({ "containers": serde_json::to_value(containers).map_err(value)?, "warm": level }))
}

/// Whether stdout shows colours and nobody said that it should not (no-color.org).
fn coloured() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    std::io::stdout().is_terminal() && !refused && !dumb
}

/// States in the order of a container's life, each with its letter and its colour.
const STATES: [(&str, char, u8); 8] = [
    ("empty", 'E', 90),
    ("filling", 'W', 36),
    ("full", 'F', 32),
    ("draining", 'D', 33),
    ("custody", 'C', 34),
    ("poisoned", 'P', 31),
    ("recycling", 'R', 90),
    ("lost", 'L', 31),
];

fn lines(containers: &[ContainerStatus], warm: &WarmStats, colour: bool) -> Vec<String> {
    let mut lines = vec![format!(
        "warm level {} {:.0} % of {}: {}",
        units::bar(warm.fill, BAR),
        warm.fill * 100.0,
        units::bytes(warm.container_bytes * u64::from(warm.containers)),
        by_state(containers)
    )];
    for (number, device) in (0_u32..).zip(&warm.devices) {
        let own: Vec<&ContainerStatus> = containers.iter().filter(|status| status.device == number).collect();
        lines.push(String::new());
        lines.push(device_line(number, device, &own));
        lines.extend(rows(&own, colour));
    }
    lines.push(String::new());
    lines.extend(totals(containers, warm));
    lines
}

/// Containers by state, those that there are: `3 empty, 1 full`.
fn by_state(containers: &[ContainerStatus]) -> String {
    let count = |state: &str| containers.iter().filter(|status| status.state == state).count();
    let there = STATES.iter().map(|(state, ..)| (state, count(state))).filter(|(_, count)| *count > 0);
    there.map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>().join(", ")
}

fn device_line(number: u32, device: &DeviceStatus, own: &[&ContainerStatus]) -> String {
    let (used, all) = own.iter().fold((0, 0), |(used, all), status| (used + status.used_bytes, all + status.bytes));
    let mut line = format!(
        "device {number} {} · {} · {:.0} % written · {} of {} free · log {:.0} %",
        device.name,
        device.method,
        used as f64 / (all as f64).max(1.0) * 100.0,
        device.free,
        own.len(),
        f64::from(device.log_permille) / 10.0
    );
    if device.leaving {
        line.push_str(if device.drained { " · drained" } else { " · leaving" });
    }
    if device.stalled {
        line.push_str(" · STALLED: it does not answer");
    }
    if device.poisoned > 0 {
        line.push_str(&format!(" · {} POISONED", device.poisoned));
    }
    line
}

/// A row for each container; empty ones that follow each other share one.
fn rows(own: &[&ContainerStatus], colour: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for group in own.chunk_by(|one, other| one.state == "empty" && other.state == "empty") {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        lines.push(match group.len() {
            1 => row(first, colour),
            _ => format!(
                "{:>11} E {:<9} {}  {} containers of {}",
                format!("{}–{}", first.container, last.container),
                first.state,
                painted(first, &bar(first), colour),
                group.len(),
                units::bytes(first.bytes)
            ),
        });
    }
    lines
}

fn row(status: &ContainerStatus, colour: bool) -> String {
    let letter = STATES.iter().find(|(state, ..)| *state == status.state).map_or('?', |(_, letter, _)| *letter);
    let mut line = format!(
        "{:>11} {letter} {:<9} {}  {:>9} of {:<8}",
        status.container,
        status.state,
        painted(status, &bar(status), colour),
        units::bytes(status.used_bytes),
        units::bytes(status.bytes)
    );
    if !status.stream.is_empty() {
        let run = status.run.map_or_else(|| "several runs".to_owned(), |run| format!("run {run}"));
        line.push_str(&format!(
            "  {:<10} {run}, {} of {} live",
            status.stream,
            status.live_fragments,
            units::plural(status.fragments, "fragment")
        ));
    }
    if status.pins > 0 {
        line.push_str(&format!(", {}", units::plural(u64::from(status.pins), "reader")));
    }
    line.truncate(line.trim_end().len());
    line
}

/// The container as it is written: live share, dead share, room.
fn bar(status: &ContainerStatus) -> String {
    let cells = |share: f64| ((share.clamp(0.0, 1.0) * BAR as f64).round() as usize).min(BAR);
    let used = status.used_bytes as f64 / status.bytes.max(1) as f64;
    let live = f64::from(status.live_fragments) / status.fragments.max(1) as f64;
    let (used, live) = (cells(used), cells(used * live));
    let live = live.min(used);
    format!("{}{}{}", "█".repeat(live), "▒".repeat(used - live), "░".repeat(BAR - used))
}

fn painted(status: &ContainerStatus, bar: &str, colour: bool) -> String {
    match STATES.iter().find(|(state, ..)| *state == status.state) {
        Some((_, _, code)) if colour => format!("\x1b[{code}m{bar}\x1b[0m"),
        _ => bar.to_owned(),
    }
}

fn totals(containers: &[ContainerStatus], warm: &WarmStats) -> Vec<String> {
    let used: u64 = containers.iter().map(|status| status.used_bytes).sum();
    let live: u64 = containers.iter().map(|status| u64::from(status.live_fragments)).sum();
    let fragments: u64 = containers.iter().map(|status| status.fragments).sum();
    let mut lines = vec![
        format!("in containers  {}, {live} of {} live", units::bytes(used), units::plural(fragments, "fragment")),
        format!(
            "since opening  {}, {} demoted; {} under way; {} saved: rejected before they were written",
            units::plural(warm.demoted_events, "event"),
            units::bytes(warm.demoted_bytes),
            units::bytes(warm.in_flight_bytes),
            units::bytes(warm.saved_bytes)
        ),
    ];
    let (payload, written) = warm
        .devices
        .iter()
        .fold((0, 0), |(payload, written), device| (payload + device.payload_bytes, written + device.written_bytes));
    if payload > 0 {
        lines.push(format!(
            "               {} written for {} of payload: write amplification {:.3}",
            units::bytes(written),
            units::bytes(payload),
            warm.write_amplification()
        ));
    }
    lines.extend(warm.notes.iter().map(|note| format!("note: {note}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(container: u32, state: &'static str, used_bytes: u64, live_fragments: u32) -> ContainerStatus {
        ContainerStatus {
            container,
            device: 0,
            state: state.into(),
            stream: if used_bytes > 0 { "physics".to_owned() } else { String::new() },
            run: Some(7),
            generation: 1,
            bytes: 1 << 20,
            used_bytes,
            fragments: if used_bytes > 0 { 100 } else { 0 },
            live_fragments,
            pins: 0,
        }
    }

    fn device() -> DeviceStatus {
        DeviceStatus {
            name: "/disk1/warm".to_owned(),
            method: "io_uring, direct".to_owned(),
            stalled: true,
            poisoned: 1,
            draining: 0,
            free: 3,
            leaving: false,
            drained: false,
            exchanged: None,
            payload_bytes: 1000,
            written_bytes: 1013,
            commits: 1,
            reads: 0,
            read_bytes: 0,
            log_permille: 30,
            log_commits: 0,
        }
    }

    fn level() -> (Vec<ContainerStatus>, WarmStats) {
        let containers = vec![
            status(0, "full", 1 << 20, 50),
            status(1, "filling", 1 << 19, 100),
            status(2, "empty", 0, 0),
            status(3, "empty", 0, 0),
            status(4, "empty", 0, 0),
            status(5, "poisoned", 1 << 18, 1),
        ];
        let warm = WarmStats {
            fill: 0.5,
            containers: 6,
            free: 3,
            container_bytes: 1 << 20,
            demoted_events: 12,
            demoted_bytes: 1000,
            saved_bytes: 64 << 10,
            devices: vec![device()],
            notes: vec!["container 5: no".to_owned()],
            ..WarmStats::default()
        };
        (containers, warm)
    }

    #[test]
    fn a_person_finds_what_matters() {
        let (containers, warm) = level();
        let text = lines(&containers, &warm, false).join("\n");
        for words in [
            "50 % of 6.00 MiB: 3 empty, 1 filling, 1 full, 1 poisoned",
            "device 0 /disk1/warm · io_uring, direct · 29 % written · 3 of 6 free · log 3 % · STALLED: it does not answer \
             · 1 POISONED",
            "0 F full      ████████████████▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒   1.00 MiB of 1.00 MiB  physics    run 7, 50 of 100 fragments",
            "1 W filling   ████████████████░░░░░░░░░░░░░░░░    512 KiB of 1.00 MiB",
            "2–4 E empty     ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  3 containers of 1.00 MiB",
            "5 P poisoned",
            "64.0 KiB saved",
            "write amplification 1.013",
            "note: container 5: no",
        ] {
            assert!(text.contains(words), "{words} in\n{text}");
        }
    }

    #[test]
    fn colour_adds_nothing() {
        let (containers, warm) = level();
        let plain = lines(&containers, &warm, false).join("\n");
        let painted = lines(&containers, &warm, true).join("\n");
        assert!(!plain.contains('\x1b') && painted.contains("\x1b[32m█"));
        let mut without = painted;
        for code in STATES.iter().map(|(_, _, code)| *code).chain([0]) {
            without = without.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(without, plain);
    }

    #[test]
    fn letters_differ() {
        let mut letters: Vec<char> = STATES.iter().map(|(_, letter, _)| *letter).collect();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), STATES.len());
    }
}
