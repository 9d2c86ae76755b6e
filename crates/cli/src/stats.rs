//! `forebay stats`: the store at a glance, as monitors read it.

use crate::open::Directory;
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::{LIVE_STATES, Result};
use serde_json::{Value, json};

const HELP: &str = "\
The store at a glance: fill, live events by state, leases, guards, evacuation, memory beyond the region, and whether the \
trigger should pause (inhibit), with its cause, its owner and what will end it.

Example: for people, and for a monitor:
  forebay stats /tmp/first
  forebay stats /tmp/first --json | jq .fill";

/// Show fill, events, leases, inhibit and memory.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Stats {
    #[command(flatten)]
    store: Directory,
}

impl Stats {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let stats = store.stats();
        store.close()?;
        out.json(&as_json(&stats)?)?;
        for (name, value) in rows(&stats) {
            out.line(format!("{name:<18} {value}"))?;
        }
        Ok(Answer::Yes)
    }
}

/// As the store says it, with the live events by name instead of by position.
fn as_json(stats: &forebay_store::Stats) -> Result<Value> {
    let mut value = serde_json::to_value(stats)
        .map_err(|error| forebay_core::Error::internal("stats to JSON").with_source(error))?;
    value["events"] =
        LIVE_STATES.iter().map(|state| (state.name().to_owned(), json!(stats.events[*state as usize]))).collect();
    Ok(value)
}

fn rows(stats: &forebay_store::Stats) -> Vec<(String, String)> {
    let mut rows = vec![
        ("boot".to_owned(), stats.boot.to_string()),
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
    for state in LIVE_STATES {
        let tally = stats.events[state as usize];
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
    rows.push((
        "inhibit".to_owned(),
        stats.inhibit.as_ref().map_or_else(
            || "no".to_owned(),
            |inhibit| format!("{} · owner: {} · ends: {}", inhibit.cause, inhibit.owner, inhibit.ends),
        ),
    ));
    rows
}
