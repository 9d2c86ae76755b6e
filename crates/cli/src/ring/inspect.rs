//! `forebay inspect` of a ring: the whole, or its chunks.

use super::time;
use crate::open::OpenedRing;
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::{Result, RingStore};
use serde_json::json;

/// States of a chunk that holds something.
const STATES: [&str; 3] = ["open", "closed", "sealed"];

pub(crate) fn overview(ring: &OpenedRing, out: &mut Output) -> Result<Answer> {
    let (keyspace, stats, chunks) = (ring.keyspace(), ring.stats()?, ring.chunks()?);
    let sources = ring.sources()?;
    let counts = STATES.map(|state| (state, chunks.iter().filter(|chunk| chunk.state == state).count()));
    let pinned = chunks.iter().filter(|chunk| chunk.pinned).count();
    let oldest = sources.iter().filter_map(|source| source.oldest).min();
    let newest = sources.iter().filter_map(|source| source.newest).max();
    let bytes = stats.segment_bytes * u64::from(stats.segments);
    out.line(format!(
        "ring {} · {} · {} ticks a second · boot {}",
        keyspace.name,
        keyspace.source.describe().join("/"),
        keyspace.ticks_per_second,
        stats.boot
    ))?;
    out.line(format!(
        "fill     {} {:>3.0} % of {}",
        units::bar(stats.fill, 32),
        stats.fill * 100.0,
        units::bytes(bytes)
    ))?;
    let said: Vec<String> = counts.iter().map(|(state, number)| format!("{number} {state}")).collect();
    out.line(format!(
        "chunks   {} free, {}, {pinned} pinned, of {}",
        stats.segments_free,
        said.join(", "),
        units::bytes(stats.segment_bytes)
    ))?;
    out.line(format!(
        "sources  {} of at most {}, {}, {}",
        sources.len(),
        keyspace.sources_max,
        units::plural(stats.fragments, "fragment"),
        units::bytes(stats.bytes)
    ))?;
    if let (Some(oldest), Some(newest)) = (oldest, newest) {
        let kept = time(keyspace, newest.saturating_sub(oldest));
        out.line(format!("ticks    {oldest} to {newest}: {kept}; declared history {:?}", keyspace.history))?;
    }
    out.json(&json!({
        "ring": keyspace.name,
        "source": keyspace.source.describe(),
        "boot": stats.boot,
        "fill": stats.fill,
        "segment_bytes": stats.segment_bytes,
        "segments": stats.segments,
        "segments_free": stats.segments_free,
        "chunks": counts.iter().map(|&(state, number)| (state.to_owned(), number.into()))
            .collect::<serde_json::Map<String, serde_json::Value>>(),
        "pinned": pinned,
        "sources": sources.len(),
        "fragments": stats.fragments,
        "bytes": stats.bytes,
        "oldest": oldest,
        "newest": newest,
    }))?;
    Ok(Answer::Yes)
}

/// Every chunk of all sources, or of one.
pub(crate) fn chunks(ring: &OpenedRing, source: Option<&str>, out: &mut Output) -> Result<Answer> {
    let source = source.map(|text| ring.keyspace().source.parse_source(text)).transpose()?;
    let mut chunks = ring.chunks()?;
    chunks.retain(|chunk| source.is_none_or(|source| chunk.source == source));
    out.line(format!(
        "{:<12} {:>7} {:>10} {:<6} {:>20} {:>20} {:>9} {:>10} {:>6}  pinned",
        "source", "chunk", "generation", "state", "from tick", "to tick", "fragments", "bytes", "guards"
    ))?;
    for chunk in &chunks {
        out.line(format!(
            "{:<12} {:>7} {:>10} {:<6} {:>20} {:>20} {:>9} {:>10} {:>6}  {}",
            chunk.source.text(),
            chunk.segment,
            chunk.generation,
            chunk.state,
            chunk.begin,
            chunk.end,
            chunk.fragments,
            units::bytes(chunk.bytes),
            chunk.guards,
            if chunk.pinned { "yes" } else { "no" }
        ))?;
    }
    let list = chunks.iter().map(|chunk| {
        json!({
            "source": chunk.source.text(),
            "segment": chunk.segment,
            "generation": chunk.generation,
            "state": chunk.state,
            "begin": chunk.begin,
            "end": chunk.end,
            "fragments": chunk.fragments,
            "bytes": chunk.bytes,
            "guards": chunk.guards,
            "pinned": chunk.pinned,
        })
    });
    out.json(&list.collect::<Vec<_>>())?;
    Ok(Answer::Yes)
}
