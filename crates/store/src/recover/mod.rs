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

mod images;
mod log;
mod records;
mod standing;
mod verify;

use crate::decisions::{Absent, ON_HOT_ONLY, Superseded};
use crate::engine::Engine;
use crate::events::Reason;
use crate::placement::{Level, There, Ticket};
use crate::shards::Shard;
use forebay_core::limits::LOSSES_LISTED_MAX;
use forebay_core::map::Role;
use forebay_core::{Error, FixedSet, LiveState, Result, SeededHasher, SeededMap, SeededSet};
use forebay_media::bytes::{Decision, DecisionKind, RecordSeed, SegmentHeader, SegmentKind, SegmentState};
use forebay_media::hot::{FREE, Location};
use forebay_media::limits::SEGMENT_HEADER_BYTES;
use forebay_media::warm::LogSlots;
use records::Records;
use standing::Standing;
use std::sync::atomic::Ordering;

/// What the log says, ready to be asked for each record.
struct Decided {
    /// With the output.
    accepted: Standing,
    /// With the reason.
    debug: Standing,
    /// Stage that an event was passed to, since the last snapshot; its marks may say a later one.
    passed: SeededMap<Vec<u8>, u8>,
    /// Verdicts since the last snapshot whose results count: event, low bits of the token's counter.
    results: SeededSet<(Vec<u8>, u32)>,
    /// Removed keys, and whether each was a result.
    removed: SeededMap<Vec<u8>, bool>,
    /// Highest version that a record says is superseded.
    superseded: SeededMap<Vec<u8>, Superseded>,
    /// Marks of events that the warm level has, later than those in their images (`mark_of`).
    marks: Standing,
    /// Events that were replayed out of the debug stream: images that say otherwise are older.
    replayed: SeededSet<Vec<u8>>,
}

impl Decided {
    fn new(engine: &Engine) -> Decided {
        let hasher = SeededHasher::new(engine.config.random.next());
        let standing = || Standing::new(engine.shards.decided_form, engine.keyspace.schema.primary_bytes(), hasher);
        Decided {
            accepted: standing(),
            debug: standing(),
            passed: SeededMap::with_hasher(hasher),
            results: SeededSet::with_hasher(hasher),
            removed: SeededMap::with_hasher(hasher),
            superseded: SeededMap::with_hasher(hasher),
            marks: standing(),
            replayed: SeededSet::with_hasher(hasher),
        }
    }
}

/// Versions that recovery replaced, to be ended once the ledger says so durably.
pub(crate) struct Replaced(Vec<Version>);

/// A version whose update was cut off before its record.
struct Version {
    location: Location,
    length: u32,
    /// Only the hot level has the version that replaces it: the shadows are not told, and a copy on a device stays.
    on_hot_only: bool,
}

impl Version {
    fn end(&self, engine: &Engine) {
        if !(self.on_hot_only && self.location.is_warm()) {
            engine.end_record(self.location, self.length);
        }
    }
}

/// Rebuilds the engine's state from the region. `power_lost`: what was not sealed is checked byte by byte.
pub(crate) fn recover(engine: &Engine, power_lost: bool, there: Option<&mut There>) -> Result<Replaced> {
    let headers = read_headers(engine)?;
    // The hot log alone says what is decided; the shadows are brought up to it.
    let decided = log::read(engine, &headers)?;
    debug_assert!(
        headers.len() == engine.placement.hot.geometry.segments as usize,
        "a header, or none, for each segment"
    );
    let mut shards = engine.shards.lock_all();
    let in_use = |header: &&SegmentHeader| header.kind == SegmentKind::Data;
    let mut data: Vec<&SegmentHeader> = headers.iter().flatten().filter(in_use).collect();
    // As they were filled, so that events are listed about in the order of their arrival.
    data.sort_unstable_by_key(|header| header.order);
    let doubted = |header: &&&SegmentHeader| {
        // On persistent memory a sealed segment was flushed; elsewhere the kernel wrote pages in any order.
        let open = header.state == SegmentState::Open;
        engine.config.verify || power_lost && (open || !engine.placement.hot.region.is_persistent())
    };
    let rotten = verify::rotten(engine, &data.iter().filter(doubted).copied().collect::<Vec<_>>());
    shards.iter_mut().for_each(|shard| shard.events.recovering = true);
    let shards_of = shards.iter_mut().map(|guard| &mut **guard).collect();
    let mut records = Records::new(engine, shards_of, &decided, rotten);
    for header in data {
        records.segment(header)?;
    }
    // After all records: which copies in images count depends on what the hot level has.
    if let (Some(there), Some(level)) = (there, &engine.placement.level) {
        let figures_kept = there.figures_kept;
        adopt_images(engine, level, &mut records, there, figures_kept)?;
    }
    records.settle()?;
    keep_absent(engine, &decided, &records.shards);
    let replaced = Replaced(records.replaced);
    drop(shards);
    // Only now: a segment whose records all ended was kept by nothing but its being read.
    for number in 0..engine.placement.hot.geometry.segments {
        engine.placement.hot.free_if_idle(number);
        if engine.placement.hot.segment(number).state() == FREE && headers[number as usize].is_none_or(is_not_data) {
            engine.placement.hot.add_free(number);
        }
    }
    Ok(replaced)
}

/// Rebuilds the state of a store whose hot level is gone, from its devices alone.
pub(crate) fn recover_from_warm(engine: &Engine, mut there: There) -> Result<Replaced> {
    // Each device has all decisions: the one that knows most says it all, for the images of every device.
    let decided = log::read_shadows(engine, &there.decisions)?;
    let mut shards = engine.shards.lock_all();
    shards.iter_mut().for_each(|shard| shard.events.recovering = true);
    let shards_of = shards.iter_mut().map(|guard| &mut **guard).collect();
    let mut records = Records::new(engine, shards_of, &decided, FixedSet::default());
    records.hot_lost = true;
    if let Some(level) = &engine.placement.level {
        adopt_images(engine, level, &mut records, &mut there, false)?;
    }
    records.settle()?;
    keep_absent(engine, &decided, &records.shards);
    let replaced = Replaced(records.replaced);
    drop(shards);
    Ok(replaced)
}

/// What is said of events that nothing was found of, where a device is not there.
fn keep_absent(engine: &Engine, decided: &Decided, shards: &[&mut Shard]) {
    if !engine.lacks_devices() {
        return;
    }
    let primary_bytes = engine.keyspace.schema.primary_bytes();
    let unknown = |primary: &[u8]| {
        let shard = &shards[engine.shards.shard_of(primary)];
        let run = shard.events.run_index(engine.keyspace.schema.run_of(primary));
        let over = |run: u16| shard.events.runs[run as usize].decided.contains(engine.shards.decided_form, primary);
        shard.events.find(primary).is_none() && run.is_some_and(|run| !over(run))
    };
    let of = |standing: &Standing| {
        let mut kept = Vec::new();
        standing.each(|primary, number| kept.extend(unknown(primary).then(|| (primary.to_vec(), number))));
        kept
    };
    let mut absent = Absent {
        accepted: of(&decided.accepted),
        debug: of(&decided.debug),
        marks: of(&decided.marks),
        removed: decided
            .removed
            .iter()
            .filter(|(key, _)| unknown(&key[..primary_bytes]))
            .map(|(k, r)| (k.clone(), *r))
            .collect(),
        superseded: decided
            .superseded
            .iter()
            .filter(|(key, _)| unknown(&key[..primary_bytes]))
            .map(|(key, version)| (key.clone(), *version))
            .collect(),
    };
    // Calls look them up by binary search for as long as the device is missing.
    absent.superseded.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    absent.accepted.sort_unstable();
    absent.debug.sort_unstable();
    absent.removed.sort_unstable();
    if let Some(level) = &engine.placement.level {
        level.note(format!(
            "some devices are missing: the decisions about {} of their events are kept until they return",
            absent.accepted.len() + absent.debug.len() + absent.marks.len()
        ));
    }
    // Those events have numbers of outputs that no live event may have: these are not to be forgotten.
    engine.decisions.outputs.write().keep();
    let _ = engine.decisions.absent.set(absent);
}

/// What the devices have, and what they have no more: losses by name, and what was perhaps never acknowledged.
fn adopt_images(
    engine: &Engine,
    level: &Level,
    records: &mut Records<'_>,
    there: &mut There,
    figures_kept: bool,
) -> Result<()> {
    records.images(&level.warm, &mut there.found, figures_kept)?;
    let mut losses = engine.life.losses.lock();
    losses.append(&mut there.losses);
    losses.append(&mut there.found.losses);
    losses.truncate(LOSSES_LISTED_MAX);
    std::mem::take(&mut there.found.unfinished).into_iter().for_each(|what| level.note(what));
    Ok(())
}

/// The latest life of which the devices' logs know.
pub(crate) fn boot_after(there: &There) -> u32 {
    // A life begins with a snapshot on every device. If all devices refuse it, none of them knows this life. Such lives are
    // fewer than these.
    const LIVES_UNKNOWN_MAX: u32 = 1 << 16;
    there.decisions.iter().map(LogSlots::boot).max().unwrap_or(0).saturating_add(LIVES_UNKNOWN_MAX)
}

fn is_not_data(header: SegmentHeader) -> bool {
    header.kind != SegmentKind::Data
}

/// A header copy that does not verify although records of its generation do: it was whole once, and has rotted. (A torn
/// one is never followed by records: it is durable before the first of them.)
fn unread(engine: &Engine, number: u32, header: Option<&SegmentHeader>) -> Option<String> {
    let hot = &engine.placement.hot;
    let offset = hot.geometry.segment_offset(number);
    let copies = hot.region.bytes(offset, 2 * SegmentHeader::BYTES).chunks(SegmentHeader::BYTES);
    let broken =
        |copy: &&[u8]| copy.iter().any(|&byte| byte != 0) && SegmentHeader::decode(copy, &hot.store, number).is_none();
    if copies.filter(broken).count() == 0 {
        return None;
    }
    let next = header.map_or(1, |header| header.generation.wrapping_add(1));
    let seed = RecordSeed::new(&hot.store, number, next);
    let first = hot.entry_offset(Location { segment: number, entry: 0 });
    let record = hot.layout.decode(hot.region.bytes(first, hot.layout.state_offset()), seed, 0).is_some();
    let slot = hot.region.bytes(offset + SEGMENT_HEADER_BYTES as u64, hot.slots.slot_bytes());
    let logged = hot.slots.decode(slot, seed, 0).is_some();
    (record || logged).then(|| format!("segment {number}: a copy of its header does not verify, but its records do"))
}

/// Once the new boot generation is durable: a snapshot of the log is taken, so that the next recovery is as short.
pub(crate) fn finish(engine: &Engine, replaced: Replaced) -> Result<()> {
    let mut shards = engine.shards.lock_all();
    for shard in &mut shards {
        debug_assert!(!shard.events.recovering, "lists are as they were");
        engine.stand_back(shard);
        engine.take_out_failed(shard);
    }
    drop(shards);
    for cell in &engine.shards.cells {
        cell.publish_ready(&cell.lock());
    }
    let left = end_replaced(engine, replaced)?;
    match engine.take_snapshot() {
        // Without space the log stays as it is; the next opening finds the same again.
        Err(error) if error.kind() == forebay_core::Kind::Full => {}
        other => _ = other?,
    }
    // Now the devices know this life, whose positions are behind all that they had: calls of earlier lives can be answered.
    engine.snapshot_shadows();
    left.iter().for_each(|version| version.end(engine));
    engine.placement.hot.region.fence();
    Ok(())
}

impl Engine {
    /// Events of which another node is the home leave the lists and the account: recovery finds every event as one of its own.
    fn stand_back(&self, shard: &mut Shard) {
        if shard.seat.is_some() {
            for event in shard.events.every_event() {
                if self.role(shard, shard.events.primary(event).as_bytes()) != Role::Home {
                    let home = self.home_of(shard, shard.events.primary(event).as_bytes());
                    shard.events.demote(event, home, self.now_ns(), |place| self.hot_length(place));
                }
            }
        }
    }

    /// Ready events on which processes died too often go where a person looks.
    pub(crate) fn take_out_failed(&self, shard: &mut Shard) {
        let mut failed = shard.events.ready_events();
        failed.retain(|&event| shard.events[event].deliveries() >= self.keyspace.deliveries_max);
        for event in failed {
            let group = self.group_of(shard, event);
            let reason = Reason::ProcessDied as u8;
            let record =
                Decision { detail: u32::from(reason), ..shard.events.decision(event, DecisionKind::Debug, group) };
            let recorded = self.record(shard, event, &record).map(Ticket::unanswered).is_ok();
            shard.events.move_to(event, LiveState::Debug);
            shard.events.lists.reasons.insert(event, reason);
            // Without a record its marks say so, beside its fragments: these stay where they are.
            if recorded {
                self.queue_demotion(shard, event);
            }
        }
    }
}

/// Ends the versions whose updates were cut off before their records: now these are written, and durable before the
/// versions end, which is before a snapshot counts them. So a crash in between finds and counts each of them once.
/// Answers those for whose records there is no space.
fn end_replaced(engine: &Engine, replaced: Replaced) -> Result<Vec<Version>> {
    let mut left = Vec::new();
    for version in replaced.0 {
        let entry = engine.entry_of(version.location)?;
        let record = Decision {
            fragments: 1,
            bytes: u64::from(version.length),
            detail: u32::from(entry.version) | if version.on_hot_only { ON_HOT_ONLY } else { 0 },
            ..Decision::about(DecisionKind::Supersede, entry.key.as_bytes())
        };
        match engine.decisions.log.append(&engine.placement.hot, &record) {
            Ok(()) => version.end(engine),
            Err(error) if error.kind() == forebay_core::Kind::Full => left.push(version),
            Err(error) => return Err(error),
        }
    }
    engine.placement.hot.region.fence();
    Ok(left)
}

fn read_headers(engine: &Engine) -> Result<Vec<Option<SegmentHeader>>> {
    let hot = &engine.placement.hot;
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
                    engine.life.losses.lock().push(what);
                }
                if both && !engine.config.accept_loss {
                    return Err(Error::corrupt(format!("segment {number}: neither copy of its header verifies")));
                }
            }
        }
        if let Some(what) = unread(engine, number, header.as_ref()) {
            engine.life.losses.lock().push(what.clone());
            if !engine.config.accept_loss {
                return Err(Error::corrupt(what));
            }
        }
        headers.push(header);
    }
    // Segments that this life takes come behind all that are there: the log and the snapshots are found by order.
    hot.continue_order(order);
    Ok(headers)
}
