//! `forebay sources` of a ring.

use super::time;
use crate::open::OpenedRing;
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::{Result, RingKeyspace, RingSourceStatus, RingStore};
use serde_json::json;

pub(crate) fn show(ring: &OpenedRing, wrong: bool, out: &mut Output) -> Result<Answer> {
    let keyspace = ring.keyspace();
    let mut sources = ring.sources()?;
    let known = sources.len();
    sources.retain(|status| !wrong || is_wrong(status, keyspace));
    out.json(&sources.iter().map(as_json).collect::<Vec<_>>())?;
    out.line(format!(
        "{:<12} {:>8} {:>10} {:>10} {:>7} {:>20} {:>12} {:>10} {:>10} {:>8}",
        "source", "run", "fragments", "bytes", "chunks", "newest tick", "kept", "silent", "skew", "refused"
    ))?;
    for status in &sources {
        out.line(line(status, keyspace))?;
    }
    let shown = if wrong { format!(", {} shown", sources.len()) } else { String::new() };
    out.line(format!("{}{shown}", units::plural(known as u64, "source")))?;
    Ok(Answer::Yes)
}

fn refused(status: &RingSourceStatus) -> u64 {
    status.refused.no_space + status.refused.skew + status.refused.too_late
}

/// Refused fragments, or silence for longer than the history.
fn is_wrong(status: &RingSourceStatus, keyspace: &RingKeyspace) -> bool {
    let is_silent = status.silent_ns.is_some_and(|ns| u128::from(ns) > keyspace.history.as_nanos());
    refused(status) > 0 || is_silent
}

fn as_json(status: &RingSourceStatus) -> serde_json::Value {
    json!({
        "source": status.source.text(),
        "run": status.run,
        "fragments": status.fragments,
        "bytes": status.bytes,
        "chunks": status.chunks,
        "first": status.first,
        "oldest": status.oldest,
        "newest": status.newest,
        "silent_ns": status.silent_ns,
        "skew_ticks": status.skew_ticks,
        "refused": status.refused,
        "last_refused": status.last_refused.map(|(tick, cause)| json!({ "tick": tick, "cause": cause.name() })),
    })
}

fn line(status: &RingSourceStatus, keyspace: &RingKeyspace) -> String {
    let last = status.last_refused.map(|(tick, cause)| format!(" (last: {}, tick {tick})", cause.name()));
    let kept = status.oldest.zip(status.newest).map(|(oldest, newest)| time(keyspace, newest.saturating_sub(oldest)));
    format!(
        "{:<12} {:>8} {:>10} {:>10} {:>7} {:>20} {:>12} {:>10} {:>10} {:>8}{}",
        status.source.text(),
        status.run,
        status.fragments,
        units::bytes(status.bytes),
        status.chunks,
        status.newest.map_or_else(|| "-".to_owned(), |tick| tick.to_string()),
        kept.unwrap_or_else(|| "-".to_owned()),
        status.silent_ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.1} s", ns as f64 / 1e9)),
        status.skew_ticks,
        refused(status),
        last.unwrap_or_default()
    )
}
