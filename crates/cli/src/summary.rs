//! The summary of a run, for people and as JSON.

use crate::ledger::{self, account_json, state_name};
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::{Result, RunSummary};
use forebay_store::RunState;
use std::path::Path;

/// Shows a summary. `file`: where it is kept.
pub(crate) fn show(summary: &RunSummary, state: RunState, file: Option<&Path>, out: &mut Output) -> Result<Answer> {
    let (run, account) = (summary.run, &summary.ledger);
    let mut json = account_json(run, state, account);
    json["file"] = serde_json::json!(file);
    json["summary"] = serde_json::json!(summary);
    out.json(&json)?;
    out.line(format!("run {run} · {}", state_name(state)))?;
    if summary.opened.at_ms.is_some() {
        out.line(format!("opened by {}", summary.opened))?;
    }
    let (dead, seconds) = (summary.dead_ns(), |ns: u64| ns as f64 / 1e9);
    let share = |ns: u64| summary.share(ns) * 100.0;
    out.line(format!(
        "open for {:.1} s, dead time {:.1} s ({:.2} %)",
        seconds(summary.ran_ns),
        seconds(dead),
        share(dead)
    ))?;
    for row in &summary.dead_time {
        let (level, owner, cause) = (&row.level, &row.owner, row.cause.name());
        out.line(format!(
            "dead time: {level}, {cause}, owner {owner}: {:.1} s ({:.2} %)",
            seconds(row.ns),
            share(row.ns)
        ))?;
    }
    for line in ledger::table(account) {
        out.line(line)?;
    }
    for stream in &summary.streams {
        let (released, live) = (stream.released.events, stream.live.events);
        out.line(format!("stream {}: {}, {live} not released", stream.name, units::plural(released + live, "event")))?;
    }
    if summary.masks_dropped > 0 {
        out.line(format!("masks: {} before these", units::plural(summary.masks_dropped, "change")))?;
    }
    for mask in &summary.masks {
        out.line(format!("mask: {mask}"))?;
    }
    if summary.prescales_dropped > 0 {
        out.line(format!("prescales: {} before these", units::plural(summary.prescales_dropped, "change")))?;
    }
    for prescale in &summary.prescales {
        out.line(format!("prescale: {prescale}"))?;
    }
    for producer in &summary.producers {
        let unknown = if producer.unknown { ", no last report" } else { "" };
        out.line(format!(
            "producer {}: announced {}, offered {}, {}{unknown}",
            producer.name,
            units::plural(producer.announced, "event"),
            units::plural(producer.fragments, "fragment"),
            units::bytes(producer.bytes)
        ))?;
    }
    if let Some(file) = file {
        out.line(format!("summary: {}", file.display()))?;
    }
    Ok(Answer::found(account.imbalance().is_none()))
}
