//! What was decided, from the log: the last whole snapshot, then each slot after it.
//!
//! ```text
//! snapshot segments ─▶ Whole ─▶ SnapshotContent ─▶ Replay ◀─ slots from the boundary on ◀─ chain of log segments
//! ```
//!
//! *Invariants*: one log is read, and nothing is merged (0016): the hot log, or the longest shadow where it is lost. What is
//! said of an event replaces what was said before; an account is only booked from where the snapshot took it.
//!
//! *On failure*: a hole in the log is corruption: what was decided in it is not known, and cannot be guessed.

use super::Decided;
use crate::RunState;
use crate::decisions::{
    LOST, ON_HOT_ONLY, Seen, SnapshotContent, SnapshotRun, Streams, decode_hold, decode_mask, decode_prescale,
    decode_producer, decode_run, decode_run_time, mark_of,
};
use crate::engine::Engine;
use crate::events::{Ending, Given, Run, Verdict, shard_of_parts};
use crate::limits::{BATCH_RUNS, SHARD_BLOCK_BITS, SHARDS};
use crate::runs::{Hold, KnownProducer, KnownRun, apply_mask};
use crate::shards::ShardGuard;
use forebay_core::limits::STREAMS_MAX;
use forebay_core::{Error, Interval, IntervalSet, Ledger, Result, Tally};
use forebay_media::bytes::{Blob, Decision, DecisionKind, SegmentHeader, SegmentKind, Slot};
use forebay_media::hot::{Boundary, FREE, LOG};
use forebay_media::limits::SEGMENT_HEADER_BYTES;
use forebay_media::warm::LogSlots;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The valid slots of a log segment; of a snapshot's those before the first that does not verify: it may have been given
/// up, or cut off, and is only used whole.
fn read_slots(engine: &Engine, number: u32, kind: SegmentKind) -> Result<Vec<Slot>> {
    let hot = &engine.placement.hot;
    let (seed, size) = (hot.seed(number), hot.slots.slot_bytes());
    let read = |slot: u32| {
        let offset = hot.payload_offset(number, SEGMENT_HEADER_BYTES as u64 + u64::from(slot) * size as u64);
        hot.slots.decode(hot.region.bytes(offset, size), seed, slot)
    };
    let count = hot.slots_per_segment();
    let slots: Vec<Slot> = (0..count).map_while(read).collect();
    let end = slots.len() as u32;
    // Each slot was durable before the next one was written: a gap is rot, not a call that was cut off.
    if kind == SegmentKind::Log
        && let Some(later) = (end..count).find(|&slot| read(slot).is_some())
    {
        return Err(Error::corrupt(format!(
            "segment {number}: decision slot {end} does not verify although slot {later} after it does"
        )));
    }
    hot.segment(number).entries.store(end, Ordering::Relaxed);
    Ok(slots)
}

/// A snapshot that is whole: its segments and its bytes.
struct Whole {
    segments: Vec<u32>,
    bytes: Vec<u8>,
}

/// The last whole snapshot: chunks of one side by side, over segments in the order in which they were taken. One that did
/// not become whole was given up.
fn last_snapshot(engine: &Engine, headers: &[Option<SegmentHeader>]) -> Result<Whole> {
    let mut of_snapshots: Vec<&SegmentHeader> =
        headers.iter().flatten().filter(|header| header.kind == SegmentKind::Snapshot).collect();
    of_snapshots.sort_unstable_by_key(|header| header.order);
    let (mut found, mut building) = (None, None);
    for header in of_snapshots {
        let slots = read_slots(engine, header.segment, SegmentKind::Snapshot)?;
        for (at, slot) in slots.into_iter().enumerate() {
            let Slot::Blob(chunk) = slot else {
                return Err(Error::corrupt(format!("segment {}: a decision in a snapshot", header.segment)));
            };
            // One that was given up has no last chunk: the next one begins in its place.
            if chunk.first {
                building = Some(Whole { segments: Vec::new(), bytes: Vec::new() });
            }
            let Some(whole) = &mut building else { continue };
            if at == 0 {
                whole.segments.push(header.segment);
            }
            whole.bytes.extend_from_slice(&chunk.data);
            if chunk.last {
                found = building.take();
            }
        }
    }
    found.ok_or_else(|| Error::corrupt("the decision log has no whole snapshot: what was decided is not known"))
}

/// Segments of the log in their order, with the slots of each.
type Chain = Vec<(u32, Vec<Slot>)>;

/// The log's segments that are not folded, without a hole between them.
fn chain_of(engine: &Engine, headers: &[Option<SegmentHeader>], boundary: Boundary) -> Result<Chain> {
    // What is before the boundary is folded, and free.
    let goes_on = |header: &&SegmentHeader| header.kind == SegmentKind::Log && header.order >= boundary.order;
    let mut log: Vec<&SegmentHeader> = headers.iter().flatten().filter(goes_on).collect();
    log.sort_unstable_by_key(|header| header.order);
    let mut chain = Chain::new();
    let mut log_first = None;
    for header in log {
        // A segment in between that is gone would be a hole.
        let before: usize = chain.iter().map(|(_, slots)| slots.len()).sum();
        let first = log_first.get_or_insert(header.payload_end);
        if header.payload_end != *first + before as u64 {
            return Err(Error::corrupt(format!(
                "segment {}: the decision log goes on at slot {}, but its segments before end at {}",
                header.segment,
                header.payload_end,
                *first + before as u64
            )));
        }
        let slots = read_slots(engine, header.segment, SegmentKind::Log)?;
        debug_assert!(slots.len() <= engine.placement.hot.slots_per_segment() as usize);
        // One that was taken and not written to is no part of the log, also where a later life went on in another.
        if !slots.is_empty() {
            chain.push((header.segment, slots));
        }
    }
    let full = engine.placement.hot.slots_per_segment() as usize;
    // Only the last one may end early: a slot is durable before its segment's successor is taken.
    for pair in chain.windows(2) {
        if pair[0].1.len() != full {
            return Err(Error::corrupt(format!(
                "segment {}: decision slot {} does not verify although the log goes on in segment {}",
                pair[0].0,
                pair[0].1.len(),
                pair[1].0
            )));
        }
    }
    Ok(chain)
}

/// Slots at the beginning of the chain that the snapshot has already: a boundary is mostly in the middle of a segment.
/// `first`: order and slots of the first segment; zeros without one.
fn skipped_of(first: (u64, usize), boundary: Boundary) -> Result<usize> {
    let (first_order, slots) = first;
    let skipped = if first_order == boundary.order { boundary.slot as usize } else { 0 };
    if boundary.order > 0 && first_order != boundary.order || slots < skipped {
        return Err(Error::corrupt(format!(
            "the decision log lacks the place where it continues after its snapshot: slot {} of the segment taken as number {}",
            boundary.slot, boundary.order
        )));
    }
    Ok(skipped)
}

/// Reads the log into the shards and the lists of what is decided.
pub(super) fn read(engine: &Engine, headers: &[Option<SegmentHeader>]) -> Result<Decided> {
    let snapshot = last_snapshot(engine, headers)?;
    let folded = SnapshotContent::read(&engine.keyspace, &snapshot.bytes)?;
    let slots = snapshot.bytes.len().div_ceil(engine.placement.hot.slots.blob_bytes()) as u64;
    engine.placement.hot.snapshot_slots.store(slots, Ordering::Relaxed);
    let boundary = folded.boundary;
    let chain = chain_of(engine, headers, boundary)?;
    let order_of = |number: u32| engine.placement.hot.segment(number).order.load(Ordering::Relaxed);
    let first = chain.first().map_or((0, 0), |(number, slots)| (order_of(*number), slots.len()));
    let skipped = skipped_of(first, boundary)?;
    let total: usize = chain.iter().map(|(_, slots)| slots.len()).sum();
    let position = boundary.position + (total - skipped) as u64;
    // They are no data, and must not be taken for new records while the rest is read.
    for number in chain.iter().map(|(number, _)| number).chain(&snapshot.segments) {
        debug_assert!(engine.placement.hot.segment(*number).state() == FREE, "nothing else has taken the segment");
        engine.placement.hot.segment(*number).set_state(LOG);
    }
    let last = chain.last().map_or(0, |last| last.1.len()) as u32;
    let segments = chain.iter().map(|(number, _)| *number).collect();
    engine.decisions.log.adopt(segments, last, position, snapshot.segments);
    let slots = (boundary.position..).zip(chain.into_iter().flat_map(|(_, slots)| slots).skip(skipped));
    let mut replay = Replay::new(engine, folded, |seen| seen.log)?;
    // A blob is booked at the position where it begins: that is what a snapshot compares with.
    let mut blob = Vec::new();
    let mut begun = 0;
    for (position, slot) in slots {
        match slot {
            Slot::Decision(decision) => replay.decision(position, &decision)?,
            Slot::Blob(chunk) => {
                if chunk.first {
                    blob.clear();
                    begun = position;
                }
                blob.extend_from_slice(&chunk.data);
                if chunk.last {
                    replay.blob(begun, chunk.blob, &blob)?;
                }
            }
        }
    }
    replay.end()
}

/// Reads the shadows of devices where there is no hot log: all hold the same, so that the longest of the last life says it
/// all. A shadow that was not folded in that life lacks entries, and is older.
pub(super) fn read_shadows(engine: &Engine, shadows: &[LogSlots]) -> Result<Decided> {
    // Life first: one that was not folded in the last life may be longer, and lacks what was decided in it.
    let longest =
        shadows.iter().filter(|slots| snapshot_of(slots).is_some()).max_by_key(|slots| (slots.boot(), slots.end()));
    let found = longest.and_then(|slots| snapshot_of(slots).map(|snapshot| (slots, snapshot)));
    let (longest, snapshot) = found.ok_or_else(|| Error::corrupt("no device's decision log has a whole snapshot"))?;
    let folded = SnapshotContent::read(&engine.keyspace, &snapshot)?;
    let mut replay = Replay::new(engine, folded, |seen| seen.shadow)?;
    // What replaced these went with the hot level.
    replay.decided.superseded.retain(|_, ended| !ended.on_hot_only);
    // An entry has the same position in every shadow: a file begins with one that this number says.
    let mut position = longest.position();
    longest.each(&mut |slot| {
        match slot {
            Slot::Decision(decision) => replay.decision(position, &decision)?,
            Slot::Blob(chunk) if chunk.blob == Blob::Snapshot => return Ok(()),
            Slot::Blob(chunk) => replay.blob(position, chunk.blob, &chunk.data)?,
        }
        position += 1;
        Ok(())
    })?;
    replay.end()
}

/// The snapshot that a shadow begins with.
fn snapshot_of(slots: &LogSlots) -> Option<Vec<u8>> {
    let mut snapshot = None;
    // The first slot is enough: an error ends the walk.
    let _ = slots.each(&mut |slot| {
        if let Slot::Blob(chunk) = slot
            && chunk.blob == Blob::Snapshot
        {
            snapshot = Some(chunk.data);
        }
        Err(Error::internal("only the first slot is wanted"))
    });
    snapshot
}

/// A log being read, after its snapshot.
struct Replay<'a> {
    engine: &'a Engine,
    shards: Shards<'a>,
    runs: Vec<KnownRun>,
    streams: Vec<String>,
    decided: Decided,
    /// How far the log was when runs, streams, outputs and holds of the snapshot were taken.
    seen: [u64; 4],
    /// The same for the accounts of each batch of runs, by shard.
    accounts_seen: Vec<[u64; SHARDS]>,
}

impl<'a> Replay<'a> {
    fn new(engine: &'a Engine, folded: SnapshotContent, of_log: impl Fn(&Seen) -> u64) -> Result<Replay<'a>> {
        let mut replay = Replay {
            engine,
            shards: engine.shards.lock_all(),
            runs: Vec::new(),
            streams: Vec::new(),
            decided: Decided::new(engine),
            seen: folded.seen.each_ref().map(&of_log),
            accounts_seen: folded.accounts_seen.iter().map(|batch| batch.each_ref().map(&of_log)).collect(),
        };
        debug_assert!(replay.shards.len() == SHARDS, "the snapshot's accounts are by shard");
        let Replay { shards, runs, streams, decided, .. } = &mut replay;
        adopt_snapshot(engine, shards, runs, streams, decided, folded)?;
        Ok(replay)
    }

    /// A blob of the log, whole. What the snapshot has of it is not carried out again.
    fn blob(&mut self, position: u64, blob: Blob, data: &[u8]) -> Result<()> {
        let Replay { engine, shards, runs, streams, .. } = self;
        let schema = &engine.keyspace.schema;
        let [runs_seen, streams_seen, outputs_seen, holds_seen] = self.seen;
        let seen = match blob {
            Blob::Run | Blob::RunTime | Blob::Mask | Blob::Producer | Blob::Prescale => runs_seen,
            Blob::Stream => streams_seen,
            Blob::Output => outputs_seen,
            Blob::Hold => holds_seen,
            Blob::Snapshot => return Err(Error::corrupt("a snapshot in the middle of a log")),
        };
        // Parts of a snapshot are taken one after another while calls go on (`Seen`): some of what is behind its boundary
        // is in it. A stream that is added a second time would take the number of the next one.
        if position < seen {
            return Ok(());
        }
        match blob {
            Blob::Stream if streams.len() == STREAMS_MAX => {
                return Err(Error::corrupt("the log names more streams than a decision can"));
            }
            Blob::Stream => streams.push(String::from_utf8_lossy(data).into_owned()),
            Blob::Run => {
                let known = decode_run(data, schema)?;
                adopt_run(engine, shards, runs, known, Ledger::default());
            }
            Blob::Output => {
                let (number, content) =
                    data.split_first_chunk::<4>().ok_or_else(|| Error::corrupt("an output of a stream ends early"))?;
                engine.decisions.outputs.write().adopt(u32::from_le_bytes(*number), content, schema.rest_bytes())?;
            }
            Blob::Mask => {
                let change = decode_mask(data, schema)?;
                let known = known_run(runs, change.run)?;
                apply_mask(&mut known.masks, &change, engine.now_ns());
                known.note_mask(change.record(schema));
            }
            Blob::RunTime => {
                let (run, time) = decode_run_time(data)?;
                known_run(runs, run)?.time = time;
            }
            Blob::Prescale => {
                let change = decode_prescale(data, schema)?;
                known_run(runs, change.run)?.note_prescale(change.record(schema));
            }
            Blob::Hold => {
                let (hold, set) = decode_hold(data, &engine.keyspace.attributes)?;
                adopt_hold(engine, hold, set);
            }
            Blob::Producer => {
                let (run, status) = decode_producer(data)?;
                let producers = &mut known_run(runs, run)?.producers;
                let standing = producers.iter().position(|known| known.status.name == status.name);
                match standing {
                    Some(at) => producers[at] = KnownProducer::recovered(status),
                    None => producers.push(KnownProducer::recovered(status)),
                }
            }
            Blob::Snapshot => {}
        }
        Ok(())
    }

    fn end(mut self) -> Result<Decided> {
        let complete = |shard: &ShardGuard<'_>| shard.events.runs.len() == self.runs.len();
        debug_assert!(self.shards.iter().all(complete), "every shard knows every run, under the same index");
        // Once, at the end: the shards share the masks, and each change would copy them.
        for known in &self.runs {
            let masks = Arc::new(known.masks.clone());
            for shard in self.shards.iter_mut() {
                if let Some(index) = shard.events.run_index(known.run) {
                    shard.events.runs[index as usize].masks = masks.clone();
                }
            }
        }
        drop(self.shards);
        *self.engine.runs.known.lock() = self.runs;
        let declared = &self.engine.keyspace.streams;
        *self.engine.decisions.streams.write() = Streams::new(self.streams, declared);
        Ok(self.decided)
    }
}

type Shards<'a> = Vec<ShardGuard<'a>>;

fn known_run(runs: &mut [KnownRun], run: u64) -> Result<&mut KnownRun> {
    let known = runs.iter_mut().find(|known| known.run == run);
    known.ok_or_else(|| Error::corrupt(format!("the log speaks of run {run}, which was never opened")))
}

fn adopt_hold(engine: &Engine, hold: Hold, set: bool) {
    let mut holds = engine.runs.holds.write();
    // Also of one that was taken back: a client that still has its number must not find another hold under it.
    engine.runs.next_hold.fetch_max(hold.id.saturating_add(1), Ordering::Relaxed);
    holds.retain(|known| known.id != hold.id);
    if set {
        holds.push(hold);
    }
    engine.runs.holds_set.store(holds.len() as u32, Ordering::Release);
}

fn adopt_run(engine: &Engine, shards: &mut Shards<'_>, runs: &mut Vec<KnownRun>, known: KnownRun, ledger: Ledger) {
    let plan = engine.plan(&known.config);
    let now = engine.now_ns();
    // The first snapshot of this life tells the devices.
    let shadowed = engine.placement.level.as_ref().map_or(0, |level| level.log.end());
    for (at, shard) in shards.iter_mut().enumerate() {
        match shard.events.run_index(known.run) {
            Some(index) => {
                shard.events.runs[index as usize].enter(known.state, now);
            }
            None => {
                shard.events.add_run(known.run, plan.clone(), known.state, now, shadowed);
                // A run's sums are over all shards: the first one has them.
                if at == 0 {
                    let index = shard.events.runs.len() - 1;
                    shard.events.runs[index].ledger = with_stored(ledger);
                }
            }
        }
    }
    match runs.iter_mut().find(|run| run.run == known.run) {
        Some(before) if known.state == RunState::Closed => *before = known,
        // A change of state: what is known beside it stays.
        Some(before) => {
            (before.state, before.config) = (known.state, known.config);
            (before.opened, before.time) = (known.opened, known.time);
        }
        None => runs.push(known),
    }
}

/// The sums on the left follow from the terms on the right.
fn with_stored(mut ledger: Ledger) -> Ledger {
    let none = Tally::default();
    debug_assert!(ledger.stored == none && ledger.offered == none, "a snapshot has the terms alone");
    for (_, term) in ledger.stored_terms() {
        ledger.stored += Tally { events: 0, ..term };
    }
    for term in [ledger.stored, ledger.duplicate, ledger.conflict, ledger.late, ledger.refused] {
        ledger.offered += Tally { events: 0, ..term };
    }
    ledger
}

fn adopt_snapshot(
    engine: &Engine,
    shards: &mut Shards<'_>,
    runs: &mut Vec<KnownRun>,
    streams: &mut Vec<String>,
    decided: &mut Decided,
    folded: SnapshotContent,
) -> Result<()> {
    *streams = folded.streams;
    for (number, content) in folded.outputs {
        engine.decisions.outputs.write().adopt(number, &content, engine.keyspace.schema.rest_bytes())?;
    }
    for folded in folded.runs {
        adopt_snapshot_run(engine, shards, runs, folded)?;
    }
    decided.accepted.adopt(folded.accepted);
    decided.debug.adopt(folded.debug);
    decided.marks.adopt(folded.marks);
    decided.removed.clear();
    decided.removed.extend(folded.removed);
    decided.superseded.clear();
    decided.superseded.extend(folded.superseded);
    engine.runs.next_hold.fetch_max(folded.next_hold, Ordering::Relaxed);
    for hold in folded.holds {
        adopt_hold(engine, hold, true);
    }
    for incident in folded.incidents {
        let primary = engine.keyspace.schema.primary_of(&incident.key);
        shards[engine.shards.shard_of(primary.as_bytes())].events.incidents.note(incident);
    }
    // A client whose answer was lost repeats its verdict to this life.
    let mut recent = engine.events.recent.lock();
    for given in folded.verdicts {
        recent.keep(given, true, engine.verdicts_kept());
    }
    Ok(())
}

fn adopt_snapshot_run(
    engine: &Engine,
    shards: &mut Shards<'_>,
    runs: &mut Vec<KnownRun>,
    folded: SnapshotRun,
) -> Result<()> {
    let SnapshotRun { known, mut ledger, ended, decided, groups, released, sources } = folded;
    let run = known.run;
    // Those that are live are counted again as they are found.
    (ledger.complete, ledger.incomplete) = ended;
    adopt_run(engine, shards, runs, known, ledger);
    for (which, groups) in decided.into_iter().enumerate() {
        for (high, intervals) in groups {
            for (shard, pieces) in by_shard(&high, &intervals).into_iter().enumerate() {
                let set = IntervalSet::from_intervals(pieces.into_iter())?;
                let Some(index) = shards[shard].events.run_index(run).filter(|_| !set.is_empty()) else { continue };
                let of_run = &mut shards[shard].events.runs[index as usize];
                let into = if which == 0 { &mut of_run.decided } else { &mut of_run.endings[which - 1] };
                into.set(&high, set);
            }
        }
    }
    let Some(index) = shards[0].events.run_index(run) else { return Ok(()) };
    let of_run = &mut shards[0].events.runs[index as usize];
    (of_run.ended, of_run.groups, of_run.released) = (ended, groups, released);
    for (source, count) in sources {
        *of_run.sources.of(&source) = count;
    }
    Ok(())
}

/// Cuts intervals where blocks of keys change their shard.
fn by_shard(high: &[u8], intervals: &[Interval]) -> Vec<Vec<Interval>> {
    let mut pieces: Vec<Vec<Interval>> = vec![Vec::new(); SHARDS];
    for interval in intervals {
        let end = interval.start + u64::from(interval.length);
        let mut start = interval.start;
        loop {
            let last = (start | ((1 << SHARD_BLOCK_BITS) - 1)).min(end);
            debug_assert!(start <= last && shard_of_parts(high, start) == shard_of_parts(high, last), "one block");
            let piece = Interval { start, length: (last - start) as u32 };
            add_piece(&mut pieces[shard_of_parts(high, start)], piece);
            if last == end {
                break;
            }
            start = last + 1;
        }
    }
    pieces
}

/// Blocks side by side may have the same shard: one interval takes less memory there than two that touch, where its length
/// can be said.
fn add_piece(of_shard: &mut Vec<Interval>, piece: Interval) {
    if let Some(before) = of_shard.last_mut()
        && before.start.checked_add(u64::from(before.length) + 1) == Some(piece.start)
        && let Some(length) = before.length.checked_add(1).and_then(|length| length.checked_add(piece.length))
    {
        before.length = length;
        return;
    }
    of_shard.push(piece);
}

/// A verdict that is repeated is answered as it was the first time.
fn note_verdict(engine: &Engine, primary: &[u8], decision: &Decision) {
    let Some(verdict) = Verdict::of(decision.kind) else { return };
    if engine.events.recent.lock().get(decision.token).is_some() {
        // A snapshot has it, with an output that may be forgotten since.
        return;
    }
    let detail = if verdict == Verdict::Passed { u32::from(decision.stage) } else { decision.detail };
    let given = Given { token: decision.token, code: engine.code(primary, verdict, detail) };
    engine.events.recent.lock().keep(given, true, engine.verdicts_kept());
}

impl Replay<'_> {
    /// A decision: what it says of its event replaces what was said before. It is booked unless the accounts of the
    /// snapshot have it.
    fn decision(&mut self, position: u64, decision: &Decision) -> Result<()> {
        let Replay { engine, shards, decided, accounts_seen, .. } = self;
        let schema = &engine.keyspace.schema;
        let whole = matches!(decision.kind, DecisionKind::RemoveKey | DecisionKind::Supersede);
        let expected = if whole { schema.key_bytes() } else { schema.primary_bytes() };
        if decision.key.len() != expected {
            let (kind, bytes) = (decision.kind, decision.key.len());
            return Err(Error::corrupt(format!("a {kind:?} record with a key of {bytes} bytes")));
        }
        let primary = &decision.key[..schema.primary_bytes()];
        let number = engine.shards.shard_of(primary);
        let shard = &mut shards[number];
        let run = schema.run_of(primary);
        let Some(index) = shard.events.run_index(run) else {
            return Err(Error::corrupt(format!("a {:?} record of run {run}, which was never opened", decision.kind)));
        };
        let endings_bytes = shard.events.shape.endings_bytes;
        // A run that was opened since is in no batch: nothing of it is booked.
        let seen = accounts_seen.get(usize::from(index) / BATCH_RUNS).map_or(0, |batch| batch[number]);
        let booked = position < seen;
        note_verdict(engine, primary, decision);
        let of_run = &mut shard.events.runs[index as usize];
        debug_assert!(of_run.run == run, "an index is of one run");
        say(decided, decision, primary);
        if is_end(decision.kind) {
            debug_assert!(
                !decided.accepted.contains(primary) && !decided.debug.contains(primary),
                "it is in no stream"
            );
            // A closed run needs no memory of its events: all of them are decided. Unless containers have images of them.
            if of_run.state != RunState::Closed || of_run.keeps_decided {
                of_run.decided.insert(engine.shards.decided_form, primary);
                if let Some(ending) = Ending::of(decision.kind) {
                    let endings = &mut of_run.endings[ending as usize];
                    endings.insert_within(endings_bytes, engine.shards.decided_form, primary);
                }
            }
        }
        // What is said of an event may be said again; an account may not be booked again.
        if !booked {
            book(engine, of_run, decision);
        }
        Ok(())
    }
}

/// Whether nothing comes after this in the life of an event.
fn is_end(kind: DecisionKind) -> bool {
    use DecisionKind::{NeverSeen, Reject, Release, RemoveEvent};
    matches!(kind, Reject | Release | RemoveEvent | NeverSeen)
}

/// What a decision says of its event, or of one of its keys.
fn say(decided: &mut Decided, decision: &Decision, primary: &[u8]) {
    let detail = decision.detail;
    let judged = (primary.to_vec(), decision.token.counter as u32);
    match decision.kind {
        DecisionKind::Accept => {
            decided.results.insert(judged);
            decided.debug.remove(primary);
            decided.accepted.insert(primary, u64::from(detail));
        }
        DecisionKind::Pass => {
            decided.results.insert(judged);
            decided.passed.insert(primary.to_vec(), decision.stage);
        }
        DecisionKind::Debug => {
            decided.debug.insert(primary, u64::from(detail));
            decided.replayed.remove(primary);
        }
        DecisionKind::Mark => decided.marks.insert(primary, mark_of(decision.stage, detail)),
        DecisionKind::Replay => {
            decided.debug.remove(primary);
            decided.replayed.insert(primary.to_vec());
        }
        DecisionKind::RemoveKey => _ = decided.removed.insert(decision.key.clone(), detail & 1 != 0),
        DecisionKind::Supersede => {
            let known = decided.superseded.entry(decision.key.clone()).or_default();
            // The end of recovery logs what was cut off in the order in which it was found, which need not be that of versions.
            known.version = known.version.max(detail as u16);
            known.on_hot_only = detail & ON_HOT_ONLY != 0;
        }
        DecisionKind::Reject | DecisionKind::Release | DecisionKind::RemoveEvent | DecisionKind::NeverSeen => {
            decided.accepted.remove(primary);
            decided.debug.remove(primary);
        }
    }
}

/// What a decision moves in the account of its run.
fn book(engine: &Engine, of_run: &mut Run, decision: &Decision) {
    let detail = decision.detail;
    let event = Tally::event(u64::from(decision.fragments), decision.bytes);
    let tally = match decision.kind {
        DecisionKind::Accept | DecisionKind::Pass | DecisionKind::Debug | DecisionKind::Mark | DecisionKind::Replay => {
            return;
        }
        DecisionKind::NeverSeen => Tally::default(),
        DecisionKind::Reject | DecisionKind::Release | DecisionKind::RemoveEvent => event,
        DecisionKind::RemoveKey | DecisionKind::Supersede => Tally { events: 0, ..event },
    };
    let fragments = Tally { events: 0, ..tally };
    of_run.ledger.stored += fragments;
    of_run.ledger.offered += fragments;
    match decision.kind {
        DecisionKind::RemoveKey if detail & LOST != 0 => of_run.ledger.lost += tally,
        DecisionKind::RemoveKey => of_run.ledger.removed += tally,
        DecisionKind::Supersede => of_run.ledger.superseded += tally,
        kind => {
            let counted = kind != DecisionKind::NeverSeen;
            of_run.book_end(kind, tally, decision.group, !decision.incomplete, counted);
            of_run.count_ended(counted, !decision.incomplete);
            if kind == DecisionKind::Release {
                engine.book_released(of_run, detail);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_whose_place_in_the_log_is_not_there_is_corrupt() {
        let boundary = |order, slot| Boundary { order, slot, position: 9 };
        assert_eq!(skipped_of((3, 7), boundary(3, 7)).unwrap(), 7);
        assert_eq!(skipped_of((3, 7), boundary(0, 0)).unwrap(), 0);
        assert_eq!(skipped_of((0, 0), boundary(0, 0)).unwrap(), 0);
        // The last one skips slots of a log that has none.
        for (first, boundary) in [((3, 7), boundary(3, 8)), ((4, 7), boundary(3, 2)), ((0, 0), boundary(0, 4))] {
            assert_eq!(skipped_of(first, boundary).unwrap_err().kind(), forebay_core::Kind::Corrupt, "{first:?}");
        }
    }

    #[test]
    fn pieces_that_touch_are_one_interval_as_long_as_its_length_can_be_said() {
        let piece = |start, length| Interval { start, length };
        let mut of_shard = Vec::new();
        for added in [piece(0, 9), piece(10, 4), piece(16, 0), piece(17, u32::MAX - 2), piece((1 << 32) + 15, 63)] {
            add_piece(&mut of_shard, added);
        }
        let all: Vec<_> = of_shard.iter().map(|one| (one.start, one.length)).collect();
        assert_eq!(all, [(0, 14), (16, u32::MAX - 1), ((1 << 32) + 15, 63)]);
    }
}
