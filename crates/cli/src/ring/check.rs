//! `forebay check` of a ring.

use super::window::piece_ticks;
use crate::open::OpenedRing;
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::{Result, RingSources, RingStore, RingWindow};
use forebay_ring::RingCheckReport;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// What the reading of a directory found.
pub(crate) fn show(dir: &Path, deep: bool, report: &RingCheckReport, out: &mut Output) -> Result<Answer> {
    out.json(&json!({
        "dir": dir,
        "deep": deep,
        "clean": report.clean,
        "segments": report.segments,
        "chunks": report.chunks,
        "sources": report.sources,
        "fragments": report.fragments,
        "bytes": report.bytes,
        "problems": report.problems,
    }))?;
    out.line(format!(
        "{}: ring of {}, {} in use; {} of {} with {}{}",
        dir.display(),
        units::plural(report.segments.into(), "chunk"),
        report.chunks,
        units::plural(report.fragments, "fragment"),
        units::plural(report.sources.into(), "source"),
        units::bytes(report.bytes),
        if deep { "; payloads verified" } else { "" }
    ))?;
    out.problems(&report.problems)
}

/// What a ring says of itself while it is served: what its opening lost, whether its account balances, and with `deep` whether
/// every fragment reads back with its checksum.
pub(crate) fn served(ring: &OpenedRing, deep: bool, out: &mut Output) -> Result<Answer> {
    let losses = ring.losses()?.into_iter().map(|loss| format!("lost at the opening: {loss}"));
    let mut problems: Vec<String> = losses.collect();
    let (stats, sources) = (ring.stats()?, ring.sources()?);
    problems.extend(stats.ledger.imbalance().map(|what| format!("the account does not balance: {what}")));
    let (mut fragments, mut bytes) = (0_u64, 0_u64);
    for status in sources.iter().filter(|_| deep) {
        let (Some(mut from), Some(newest)) = (status.oldest, status.newest) else { continue };
        let piece = piece_ticks(ring.keyspace(), 1);
        let first = from;
        while from < newest {
            let to = from.saturating_add(piece).min(newest);
            let window = ring.window(from, to, &RingSources::Only(vec![status.source]), Duration::ZERO)?;
            for number in 0.. {
                let Some(fragment) = window.fragment(0, number) else { break };
                // What only reaches into a piece was read with the one before.
                if fragment.timestamp < from && from > first {
                    continue;
                }
                (fragments, bytes) = (fragments + 1, bytes + fragment.bytes.len() as u64);
                if let Err(error) = window.verify(0, number) {
                    problems.push(format!("source {}: {}", status.source, error.message()));
                }
            }
            from = to;
        }
    }
    out.json(&json!({
        "served": true,
        "deep": deep,
        "sources": sources.len(),
        "fragments": fragments,
        "bytes": bytes,
        "problems": problems,
    }))?;
    let read = if deep {
        format!("; {}, {} read and compared", units::plural(fragments, "fragment"), units::bytes(bytes))
    } else {
        String::new()
    };
    out.line(format!("served: ring of {}{read}", units::plural(sources.len() as u64, "source")))?;
    out.problems(&problems)
}
