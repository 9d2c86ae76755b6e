//! `forebay stats`: the store at a glance, as monitors read it.

use crate::open::{Close, Kept, Opened, Place};
use crate::output::{Answer, Output};
use crate::{ring, units};
use forebay_core::{Either, EventStore, Result};
use forebay_store::{InhibitClass, WarmStats};

const HELP: &str = "\
The store at a glance: fill of its levels, live events by state, leases, guards, evacuation, memory beyond the region, and whether the \
trigger should pause (inhibit): where, its cause, its owner, what will end it, and the dead time since opening by cause.

Example: for people, and for a monitor:
  forebay stats /tmp/first
  forebay stats /tmp/first --json | jq '.inhibit, .dead_time, .warm.fill'

`forebay containers` shows the warm level container by container.

Of a ring: its fill, what it keeps, evicted and refused, its pins, and its account over all runs:
  forebay stats /tmp/links";

/// Show fill, events, leases, inhibit and memory; of a ring fill, pins and refusals.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Stats {
    #[command(flatten)]
    store: Place,
}

impl Stats {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = match self.store.kept(out)? {
            Kept::Ring(ring) => return ring::stats::show(&ring, out),
            Kept::Events(store) => store,
        };
        let stats = store.stats()?;
        if let Opened::There(Either::There(_)) = store {
            out.note(
                "events of all nodes; the fill is the highest, and boot, segment size, warm level, guards, memory and dead time are the first \
                 node's: `forebay top` shows each node, and one address its own",
            );
        }
        store.close()?;
        out.json(&stats)?;
        for (name, value) in rows(&stats) {
            out.line(format!("{name:<18} {value}"))?;
        }
        Ok(Answer::Yes)
    }
}

fn rows(stats: &forebay_store::Stats) -> Vec<(String, String)> {
    let mut rows = vec![
        ("boot".to_owned(), stats.boot.to_string()),
        ("archive".to_owned(), stats.archive.map_or_else(|| "none".to_owned(), |archive| format!("{archive:?}"))),
        ("hot fill".to_owned(), format!("{} {:.1} %", units::bar(stats.fill, 32), stats.fill * 100.0)),
        (
            "segments".to_owned(),
            format!(
                "{} of {}, {} free, {} kept by guards, {} evacuated",
                stats.segments,
                units::bytes(stats.segment_bytes),
                stats.segments_free,
                stats.segments_pinned,
                stats.evacuated
            ),
        ),
    ];
    if let Some(warm) = &stats.warm {
        rows.extend(warm_rows(warm));
    }
    for (state, tally) in stats.events.iter() {
        rows.push((
            state.name().to_owned(),
            format!(
                "{}, {}, {}",
                units::plural(tally.events, "event"),
                units::plural(tally.fragments, "fragment"),
                units::bytes(tally.bytes)
            ),
        ));
    }
    rows.push(("leases out".to_owned(), stats.leases.to_string()));
    rows.push(("decided events".to_owned(), stats.decided_events.to_string()));
    rows.push(("conflicts kept".to_owned(), stats.conflicts_kept.to_string()));
    for holder in &stats.holders {
        rows.push((
            "guards".to_owned(),
            format!("{}: {}, {}", holder.holder, units::plural(holder.guards, "guard"), units::bytes(holder.bytes)),
        ));
    }
    let memory = &stats.memory;
    rows.push((
        "memory".to_owned(),
        format!(
            "nodes {}, leaves {}, tables {}, leases {}, decided {}, fixed {}",
            units::bytes(memory.nodes),
            units::bytes(memory.leaves),
            units::bytes(memory.tables),
            units::bytes(memory.leases),
            units::bytes(memory.decided),
            units::bytes(memory.fixed)
        ),
    ));
    match &stats.inhibit {
        None => rows.push(("inhibit".to_owned(), "no".to_owned())),
        Some(inhibit) => {
            rows.push(("inhibit".to_owned(), format!("yes: {}, {}", inhibit.scope, inhibit.class.name())));
            for (name, words) in [("cause", &inhibit.cause), ("owner", &inhibit.owner), ("ends when", &inhibit.ends)] {
                rows.push((format!("  {name}"), words.clone()));
            }
        }
    }
    rows.push(("dead time".to_owned(), dead_time(&stats.dead_time)));
    rows
}

/// The warm level; what it did counts from the opening.
fn warm_rows(warm: &WarmStats) -> Vec<(String, String)> {
    let mut rows = vec![
        ("warm fill".to_owned(), format!("{} {:.1} %", units::bar(warm.fill, 32), warm.fill * 100.0)),
        (
            "containers".to_owned(),
            format!("{} of {}, {} free", warm.containers, units::bytes(warm.container_bytes), warm.free),
        ),
        (
            "demoted".to_owned(),
            format!(
                "{}, {} since opening; {} under way; {} saved by verdicts",
                units::plural(warm.demoted_events, "event"),
                units::bytes(warm.demoted_bytes),
                units::bytes(warm.in_flight_bytes),
                units::bytes(warm.saved_bytes)
            ),
        ),
    ];
    for device in &warm.devices {
        let state = if device.stalled { "; STALLED" } else { "" };
        let poisoned = if device.poisoned > 0 { format!("; {} POISONED", device.poisoned) } else { String::new() };
        rows.push((
            "device".to_owned(),
            format!(
                "{} ({}): {} written, {} read, log {:.1} % full{state}{poisoned}",
                device.name,
                device.method,
                units::bytes(device.written_bytes),
                units::bytes(device.read_bytes),
                f64::from(device.log_permille) / 10.0
            ),
        ));
    }
    rows.extend(warm.notes.iter().map(|note| ("warm note".to_owned(), note.clone())));
    rows
}

/// The sum and, where there is any, its parts.
fn dead_time(dead_time: &forebay_store::DeadTime) -> String {
    let seconds = |time: std::time::Duration| format!("{:.3} s", time.as_secs_f64());
    let parts = InhibitClass::ALL.into_iter().filter(|class| !dead_time.of(*class).is_zero());
    let parts: Vec<String> = parts.map(|class| format!("{} {}", class.name(), seconds(dead_time.of(class)))).collect();
    let sum = format!("{} since opening", seconds(dead_time.total()));
    if parts.is_empty() { sum } else { format!("{sum} = {}", parts.join(" + ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_store::DeadTime;

    #[test]
    fn dead_time_is_shown_with_its_parts() {
        assert_eq!(dead_time(&DeadTime::default()), "0.000 s since opening");
        let some = DeadTime { hot_full_ns: 1_250_000_000, debug_stream_ns: 500_000_000, ..DeadTime::default() };
        assert_eq!(dead_time(&some), "1.750 s since opening = hot full 1.250 s + debug stream 0.500 s");
    }
}
