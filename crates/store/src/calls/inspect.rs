//! Reports for people and monitors: the store at a glance, its segments.

use crate::inhibit::Look;
use crate::{Marks, MemoryStats, SegmentInfo, Stats, Store};
use forebay_core::map::Hex128;
use forebay_media::hot::{CLOSED, FREE, LOG, OPEN};
use forebay_media::limits::SEGMENT_HEADER_BYTES;
use std::sync::atomic::Ordering;

impl Store {
    /// The store at a glance. Takes each shard's lock once, for the time it takes to copy a few figures.
    pub fn stats(&self) -> Stats {
        let engine = self.engine();
        // First, without a lock: the listener may be called from here.
        let Look { inhibit, inhibited_ns, dead_time } = engine.look();
        let mut memory = MemoryStats::default();
        let (mut decided_events, mut conflicts_kept, mut held) = (0, 0, 0);
        let mut ready = vec![0; engine.keyspace.stages.len()];
        for cell in &engine.shards.cells {
            let shard = cell.lock();
            let [nodes, leaves, tables, leases, decided, fixed] = shard.heap_bytes().map(|bytes| bytes as u64);
            memory.nodes += nodes;
            memory.leaves += leaves;
            memory.tables += tables;
            memory.leases += leases;
            memory.decided += decided;
            memory.fixed += fixed;
            decided_events += shard.events.runs.iter().map(|run| run.decided.len()).sum::<u64>();
            conflicts_kept += shard.places.kept.len() as u64;
            held += shard.events.lists.held.len();
            for (sum, stage) in ready.iter_mut().zip(&shard.events.lists.ready) {
                *sum += stage.len();
            }
        }
        memory.fixed += (engine.placement.hot.segments.len() * size_of::<forebay_media::hot::Segment>()) as u64;
        memory.fixed += (engine.shards.cells.len() * size_of::<crate::shards::Cell>()) as u64;
        memory.fixed += engine.events.recent.lock().heap_bytes() as u64;
        let live = engine.live();
        Stats {
            segments: engine.placement.hot.geometry.segments,
            segments_free: engine.placement.hot.free_segments(),
            segment_bytes: engine.placement.hot.geometry.segment_bytes,
            fill: engine.placement.hot.fill(),
            events: live,
            leases: engine.events.leases.load(Ordering::Relaxed),
            workers_silent: engine.events.workers_silent.load(Ordering::Relaxed),
            workers_failed: engine.events.workers_failed.load(Ordering::Relaxed),
            held_too_long: engine.events.held_too_long.load(Ordering::Relaxed),
            decided_events,
            segments_pinned: engine.segments_pinned(),
            holders: engine.life.holder_stats(),
            conflicts_kept,
            debug: engine.debug_stats(live.debug, conflicts_kept),
            ready,
            held,
            evacuated: engine.placement.evacuated.load(Ordering::Relaxed),
            inhibit,
            warm: engine.placement.level.as_ref().map(crate::placement::Level::stats),
            inhibited_ns,
            dead_time,
            memory,
            boot: engine.life.boot,
            stores: vec![Hex128(u128::from_be_bytes(engine.placement.hot.store))],
            archive: engine.claims.lock().archive,
        }
    }

    /// The marks that the store was opened with.
    pub fn marks(&self) -> Marks {
        let config = &self.engine().config;
        Marks {
            hot_high: config.hot_high,
            hot_low: config.hot_low,
            demote_high: config.demote_high,
            demote_low: config.demote_low,
            warm_high: config.warm_high,
            warm_low: config.warm_low,
        }
    }

    /// All segments as they are now.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let hot = &self.engine().placement.hot;
        // Where a write cursor is, a segment's own figures are behind: they are written when it is closed.
        let cursors = hot.open_cursors();
        let one = |number: u32| {
            let segment = hot.segment(number);
            let mut entries = segment.entries.load(Ordering::Relaxed);
            let mut payload_end = segment.payload_end.load(Ordering::Relaxed).max(SEGMENT_HEADER_BYTES as u64);
            let state = match segment.state() {
                FREE => "free",
                LOG => "log",
                OPEN | CLOSED => "open",
                _ => "sealed",
            };
            if let Some(head) = cursors.iter().find(|head| head.0 == number) {
                (entries, payload_end) = (head.1, head.2);
            }
            let unit = if state == "log" { hot.slots.slot_bytes() } else { hot.layout.entry_bytes() } as u64;
            let used = payload_end - SEGMENT_HEADER_BYTES as u64 + u64::from(entries) * unit;
            SegmentInfo {
                segment: number,
                state: state.into(),
                generation: segment.generation.load(Ordering::Relaxed),
                entries: if state == "free" { 0 } else { entries },
                live: segment.live(),
                used_bytes: if state == "free" { 0 } else { used },
                pins: segment.pins(),
            }
        };
        (0..hot.geometry.segments).map(one).collect()
    }
}
