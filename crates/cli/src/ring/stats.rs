//! `forebay stats` of a ring.

use crate::open::OpenedRing;
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::{Error, Result, RingStats, RingStore};

pub(crate) fn show(ring: &OpenedRing, out: &mut Output) -> Result<Answer> {
    let stats = ring.stats()?;
    let mut value =
        serde_json::to_value(&stats).map_err(|error| Error::internal("stats to JSON").with_source(error))?;
    value["ring"] = ring.keyspace().name.clone().into();
    out.json(&value)?;
    for (name, value) in rows(&stats) {
        out.line(format!("{name:<18} {value}"))?;
    }
    Ok(Answer::Yes)
}

fn rows(stats: &RingStats) -> Vec<(&'static str, String)> {
    let kept = format!("{}, {}", units::plural(stats.fragments, "fragment"), units::bytes(stats.bytes));
    let chunks = format!(
        "{} of {}, {} free, {} evicted since opening",
        stats.segments,
        units::bytes(stats.segment_bytes),
        stats.segments_free,
        stats.evicted
    );
    let refused = &stats.refused;
    let refused = format!(
        "{} since opening: {} no space, {} skew, {} too late",
        units::plural(refused.no_space + refused.skew + refused.too_late, "fragment"),
        refused.no_space,
        refused.skew,
        refused.too_late
    );
    let pins = format!(
        "{}, {} of {} that pins may hold",
        units::plural(stats.pins.len() as u64, "pin"),
        units::bytes(stats.pinned_bytes),
        units::bytes(stats.pin_quota_bytes)
    );
    let mut rows = vec![
        ("boot", stats.boot.to_string()),
        ("fill", format!("{} {:.1} %", units::bar(stats.fill, 32), stats.fill * 100.0)),
        ("chunks", chunks),
        ("kept", kept),
        ("refused", refused),
        ("pins", pins),
    ];
    for holder in &stats.holders {
        let (guards, bytes) = (units::plural(holder.guards, "guard"), units::bytes(holder.bytes));
        rows.push(("windows", format!("{}: {guards}, {bytes}", holder.holder)));
    }
    let memory = &stats.memory;
    rows.push((
        "memory",
        format!(
            "index {}, books {}, fixed {}",
            units::bytes(memory.index),
            units::bytes(memory.books),
            units::bytes(memory.fixed)
        ),
    ));
    let ledger = &stats.ledger;
    let balance = ledger.imbalance().map_or_else(|| "balances".to_owned(), |what| format!("DOES NOT BALANCE: {what}"));
    rows.push((
        "account",
        format!(
            "offered {} = stored {} + duplicate {} + conflict {} + late {} + refused {}; of these expired {}, lost {}; {balance}",
            ledger.offered.fragments,
            ledger.stored.fragments,
            ledger.duplicate.fragments,
            ledger.conflict.fragments,
            ledger.late.fragments,
            ledger.refused.fragments,
            ledger.expired.fragments,
            ledger.lost.fragments
        ),
    ));
    rows
}
