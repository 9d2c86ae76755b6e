//! Finding everything again: first what was decided, then what is there.
//!
//! ```text
//! headers ─▶ log: last whole snapshot, then each slot after it ─▶ every entry of every data segment ─▶ index, lists
//! ```
//!
//! *Invariants*: a decision dominates every record that it covers; an invalid entry of an open segment was never
//! acknowledged; an invalid one of a sealed segment, or a hole in the log, is corruption.
//!
//! *On failure*: fails closed with segment and entry, unless the operator accepted the loss.

mod log;
mod records;
mod verify;

use crate::engine::Engine;
use crate::hot::FREE;
use forebay_core::{Error, LiveState, Result, SegmentHeader, SegmentKind, SegmentState};
use records::Records;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

/// What the log says, ready to be asked for each record.
struct Decided {
    accepted: HashMap<Vec<u8>, u32>,
    debug: HashSet<Vec<u8>>,
    removed: HashSet<Vec<u8>>,
    /// Highest version that a record says is superseded.
    superseded: HashMap<Vec<u8>, u16>,
}

/// Rebuilds the engine's state from the region. `power_lost`: what was not sealed is checked byte by byte.
pub(crate) fn recover(engine: &Engine, power_lost: bool) -> Result<()> {
    let headers = read_headers(engine)?;
    let decided = log::read(engine, &headers)?;
    let mut shards = engine.lock_all();
    let in_use = |header: &&SegmentHeader| header.kind == SegmentKind::Data;
    let mut data: Vec<&SegmentHeader> = headers.iter().flatten().filter(in_use).collect();
    data.sort_unstable_by_key(|header| header.order);
    let doubted = |header: &&&SegmentHeader| {
        // On persistent memory a sealed segment was flushed; elsewhere the kernel wrote pages in any order.
        let open = header.state == SegmentState::Open;
        engine.config.verify || power_lost && (open || !engine.hot.region.is_persistent())
    };
    let rotten = verify::rotten(engine, &data.iter().filter(doubted).copied().collect::<Vec<_>>());
    let shards_of = shards.iter_mut().map(|guard| &mut **guard).collect();
    let mut records = Records::new(engine, shards_of, &decided, rotten);
    for header in data {
        records.segment(header)?;
    }
    records.settle();
    drop(shards);
    for number in 0..engine.hot.geometry.segments {
        engine.hot.free_if_idle(number);
        if engine.hot.segment(number).state() == FREE && headers[number as usize].is_none_or(is_not_data) {
            engine.hot.add_free(number);
        }
    }
    Ok(())
}

fn is_not_data(header: SegmentHeader) -> bool {
    header.kind == SegmentKind::Log
}

/// Once the new boot generation is durable: the log is folded, so that the next recovery is as short.
pub(crate) fn finish(engine: &Engine) -> Result<()> {
    let mut shards = engine.lock_all();
    for shard in &mut shards {
        // An event on which processes died too often goes where a person looks.
        let failed: Vec<u32> = shard
            .listed(LiveState::Ready)
            .filter(|&event| shard.events[event].deliveries >= engine.keyspace.deliveries_max)
            .collect();
        for event in failed {
            shard.move_to(event, LiveState::Debug);
        }
    }
    drop(shards);
    for cell in &engine.cells {
        cell.publish_ready(&cell.lock());
    }
    match engine.fold_log() {
        Err(error) if error.kind() == forebay_core::Kind::Full => Ok(()),
        other => other,
    }
}

fn read_headers(engine: &Engine) -> Result<Vec<Option<SegmentHeader>>> {
    let hot = &engine.hot;
    let mut headers = Vec::with_capacity(hot.geometry.segments as usize);
    let mut order = 0;
    for number in 0..hot.geometry.segments {
        let header = hot.read_header(number);
        let segment = hot.segment(number);
        match header {
            Some(header) => {
                segment.generation.store(header.generation, Ordering::Relaxed);
                segment.revision.store(header.revision, Ordering::Relaxed);
                segment.order.store(header.order, Ordering::Relaxed);
                segment.entries.store(header.entries, Ordering::Relaxed);
                segment.payload_end.store(header.payload_end, Ordering::Relaxed);
                order = order.max(header.order);
            }
            None => {
                let copies = hot.region.bytes(hot.geometry.segment_offset(number), 2 * SegmentHeader::BYTES);
                let written = copies.chunks(SegmentHeader::BYTES).filter(|copy| copy.iter().any(|&byte| byte != 0));
                // One torn copy is a first header that power cut short; two mean that a good one has rotted.
                let both = written.count() == 2;
                if both {
                    let what = format!("segment {number}: neither copy of its header verifies");
                    engine.losses.lock().push(what);
                }
                if both && !engine.config.accept_loss {
                    return Err(Error::corrupt(format!("segment {number}: neither copy of its header verifies")));
                }
            }
        }
        headers.push(header);
    }
    hot.continue_order(order);
    Ok(headers)
}
