//! What was decided, from the log: the last whole snapshot, then each slot after it.

use super::Decided;
use crate::RunState;
use crate::engine::{Engine, KnownRun};
use crate::home::{Ending, Given, Shard, Verdict, shard_of_parts};
use crate::hot::LOG;
use crate::levels::LOST;
use crate::limits::{SHARD_BLOCK_BITS, SHARDS};
use crate::ops::{
    Folded, FoldedRun, Hold, KnownProducer, apply_mask, decode_hold, decode_mask, decode_producer, decode_run,
};
use crate::warm::LogSlots;
use forebay_core::limits::{SEGMENT_HEADER_BYTES, STREAMS_MAX};
use forebay_core::{
    Blob, Decision, DecisionKind, Error, Interval, IntervalSet, Ledger, Result, SegmentHeader, SegmentKind, Slot,
    Tally, Token,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The valid slots of a log segment.
fn read_slots(engine: &Engine, number: u32) -> Result<Vec<Slot>> {
    let hot = &engine.hot;
    let (seed, size) = (hot.seed(number), hot.slots.slot_bytes());
    let read = |slot: u32| {
        let offset = hot.payload_offset(number, SEGMENT_HEADER_BYTES as u64 + u64::from(slot) * size as u64);
        hot.slots.decode(hot.region.bytes(offset, size), seed, slot)
    };
    let count = hot.slots_per_segment();
    let slots: Vec<Slot> = (0..count).map_while(read).collect();
    let end = slots.len() as u32;
    if let Some(later) = (end..count).find(|&slot| read(slot).is_some()) {
        return Err(Error::corrupt(format!(
            "segment {number}: decision slot {end} does not verify although slot {later} after it does"
        )));
    }
    hot.segment(number).entries.store(end, Ordering::Relaxed);
    Ok(slots)
}

fn starts_snapshot(slots: &[Slot]) -> bool {
    matches!(slots.first(), Some(Slot::Blob(chunk)) if chunk.blob == Blob::Snapshot && chunk.first)
}

/// Reads the log into the shards and the lists of what is decided.
pub(super) fn read(engine: &Engine, headers: &[Option<SegmentHeader>], of_devices: &[LogSlots]) -> Result<Decided> {
    let mut log: Vec<&SegmentHeader> = headers.iter().flatten().filter(|h| h.kind == SegmentKind::Log).collect();
    log.sort_unstable_by_key(|header| header.order);
    let numbers: Vec<u32> = log.iter().map(|header| header.segment).collect();
    // Backwards to the last snapshot that is whole. What is before it is folded and free.
    let mut segments: Vec<(u32, Vec<Slot>)> = Vec::new();
    let mut from = None;
    for &number in numbers.iter().rev() {
        segments.insert(0, (number, read_slots(engine, number)?));
        if starts_snapshot(&segments[0].1) && has_whole_snapshot(&segments) {
            from = Some(number);
            break;
        }
    }
    let Some(from) = from else {
        return Err(Error::corrupt("the decision log has no whole snapshot: what was decided is not known"));
    };
    // A snapshot that did not become whole was given up; the log went on before it.
    let mut chain: Vec<(u32, Vec<Slot>)> = Vec::new();
    let mut whole = false;
    for (number, slots) in segments {
        let given_up = starts_snapshot(&slots) || whole && is_continued_snapshot(&slots) || slots.is_empty();
        if number == from || !given_up {
            let last = |slot: &Slot| matches!(slot, Slot::Blob(chunk) if chunk.blob == Blob::Snapshot && chunk.last);
            whole |= slots.iter().any(last);
            chain.push((number, slots));
        }
    }
    let full = engine.hot.slots_per_segment() as usize;
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
    for (number, _) in &chain {
        engine.hot.segment(*number).set_state(LOG);
    }
    let slots = chain.last().map_or(0, |last| last.1.len()) as u32;
    engine.log.adopt(chain.iter().map(|(number, _)| *number).collect(), slots);
    replay(engine, chain.into_iter().flat_map(|(_, slots)| slots), of_devices)
}

/// Reads the logs of devices alone: the latest snapshot of any, what its device says after it, and all decisions.
pub(super) fn read_devices(engine: &Engine, of_devices: &[LogSlots]) -> Result<Decided> {
    let latest = of_devices.iter().filter_map(|slots| snapshot_head(slots).map(|head| (head, slots)));
    let latest = latest.max_by_key(|(head, _)| *head);
    let (_, latest) = latest.ok_or_else(|| Error::corrupt("no device's decision log has a whole snapshot"))?;
    let mut slots = Vec::new();
    latest.each(&mut |slot| {
        slots.push(slot);
        Ok(())
    })?;
    replay(engine, slots.into_iter(), of_devices)
}

/// Life and number of the fold that a log begins with.
fn snapshot_head(slots: &LogSlots) -> Option<(u32, u64)> {
    let mut head = None;
    // The first slot is enough: an error ends the walk.
    let _ = slots.each(&mut |slot| {
        if let Slot::Blob(chunk) = slot
            && chunk.blob == Blob::Snapshot
        {
            head = Engine::snapshot_head(&chunk.data);
        }
        Err(Error::internal("only the first slot is wanted"))
    });
    head
}

/// The latest life that any snapshot was made in.
pub(super) fn boot_of_snapshots(of_devices: &[LogSlots]) -> u32 {
    of_devices.iter().filter_map(snapshot_head).map(|head| head.0).max().unwrap_or(0)
}

fn is_continued_snapshot(slots: &[Slot]) -> bool {
    matches!(slots.first(), Some(Slot::Blob(chunk)) if chunk.blob == Blob::Snapshot && !chunk.first)
}

fn has_whole_snapshot(segments: &[(u32, Vec<Slot>)]) -> bool {
    let slots = segments.iter().flat_map(|(_, slots)| slots);
    for (at, slot) in slots.enumerate() {
        match slot {
            Slot::Blob(chunk) if chunk.blob == Blob::Snapshot && chunk.first == (at == 0) => {
                if chunk.last {
                    return true;
                }
            }
            _ => return false,
        }
    }
    false
}

fn replay(engine: &Engine, slots: impl Iterator<Item = Slot>, of_devices: &[LogSlots]) -> Result<Decided> {
    let schema = &engine.keyspace.schema;
    let mut shards = engine.lock_all();
    let mut runs: Vec<KnownRun> = Vec::new();
    let mut streams: Vec<String> = Vec::new();
    let mut decided = Decided {
        accepted: HashMap::new(),
        debug: HashMap::new(),
        passed: HashMap::new(),
        results: HashSet::new(),
        removed: HashMap::new(),
        superseded: HashMap::new(),
        marks: HashMap::new(),
        replayed: HashSet::new(),
    };
    let mut blob = Vec::new();
    for slot in slots {
        let decision = match slot {
            Slot::Decision(decision) => decision,
            Slot::Blob(chunk) => {
                if chunk.first {
                    blob.clear();
                }
                blob.extend_from_slice(&chunk.data);
                if !chunk.last {
                    continue;
                }
                match chunk.blob {
                    Blob::Stream if streams.len() == STREAMS_MAX => {
                        return Err(Error::corrupt("the log names more streams than a decision can"));
                    }
                    Blob::Stream => streams.push(String::from_utf8_lossy(&blob).into_owned()),
                    Blob::Run => {
                        let known = decode_run(&blob, schema)?;
                        adopt_run(engine, &mut shards, &mut runs, known, Ledger::default());
                    }
                    Blob::Output => {
                        let (number, content) = blob
                            .split_first_chunk::<4>()
                            .ok_or_else(|| Error::corrupt("an output of a stream ends early"))?;
                        engine.outputs.write().adopt(u32::from_le_bytes(*number), content, schema.rest_bytes())?;
                    }
                    Blob::Mask => {
                        let change = decode_mask(&blob, schema)?;
                        let known = known_run(&mut runs, change.run)?;
                        apply_mask(&mut known.masks, &change, engine.now_ns());
                        known.note_mask(schema, &change);
                    }
                    Blob::Hold => {
                        let (hold, set) = decode_hold(&blob, &engine.keyspace.attributes)?;
                        adopt_hold(engine, hold, set);
                    }
                    Blob::Producer => {
                        let (run, status) = decode_producer(&blob)?;
                        let producers = &mut known_run(&mut runs, run)?.producers;
                        let standing = producers.iter().position(|known| known.status.name == status.name);
                        match standing {
                            Some(at) => producers[at] = KnownProducer::recovered(status),
                            None => producers.push(KnownProducer::recovered(status)),
                        }
                    }
                    Blob::Snapshot => {
                        let folded = Engine::read_snapshot(&engine.keyspace, &blob)?;
                        adopt_snapshot(engine, &mut shards, &mut runs, &mut streams, &mut decided, folded)?;
                    }
                }
                continue;
            }
        };
        apply(engine, &mut shards, &mut decided, &decision)?;
    }
    for slots in of_devices {
        slots.each(&mut |slot| match slot {
            Slot::Decision(decision) if is_known(engine, &shards, &decided, &decision) => {
                // What its event came to later may be all that the hot log says.
                if let Some(primary) = decision.key.get(..schema.primary_bytes()) {
                    note_verdict(engine, primary, &decision);
                }
                Ok(())
            }
            Slot::Decision(decision) => apply(engine, &mut shards, &mut decided, &decision),
            Slot::Blob(_) => Ok(()),
        })?;
    }
    for known in &runs {
        let masks = Arc::new(known.masks.clone());
        for shard in shards.iter_mut() {
            if let Some(index) = shard.run_index(known.run) {
                shard.runs[index as usize].masks = masks.clone();
            }
        }
    }
    *engine.runs.lock() = runs;
    *engine.streams.write() = streams;
    Ok(decided)
}

/// Whether what a decision says is in what was read before it.
fn is_known(engine: &Engine, shards: &Shards<'_>, decided: &Decided, decision: &Decision) -> bool {
    let schema = &engine.keyspace.schema;
    let Some(primary) = decision.key.get(..schema.primary_bytes()) else { return false };
    let shard = &shards[engine.shard_of(primary)];
    let Some(index) = shard.run_index(schema.run_of(primary)) else { return false };
    let of_run = &shard.runs[index as usize];
    of_run.decided.contains(engine.decided_form, primary)
        || match decision.kind {
            DecisionKind::RemoveKey => decided.removed.contains_key(&decision.key),
            DecisionKind::Supersede => {
                decided.superseded.get(&decision.key).is_some_and(|&version| u32::from(version) >= decision.detail)
            }
            _ => false,
        }
}

type Shards<'a> = Vec<parking_lot::MutexGuard<'a, Shard>>;

fn known_run(runs: &mut [KnownRun], run: u64) -> Result<&mut KnownRun> {
    let known = runs.iter_mut().find(|known| known.run == run);
    known.ok_or_else(|| Error::corrupt(format!("the log speaks of run {run}, which was never opened")))
}

fn adopt_hold(engine: &Engine, hold: Hold, set: bool) {
    let mut holds = engine.holds.write();
    engine.next_hold.fetch_max(hold.id.saturating_add(1), Ordering::Relaxed);
    holds.retain(|known| known.id != hold.id);
    if set {
        holds.push(hold);
    }
    engine.holds_set.store(holds.len() as u32, Ordering::Release);
}

fn adopt_run(engine: &Engine, shards: &mut Shards<'_>, runs: &mut Vec<KnownRun>, known: KnownRun, ledger: Ledger) {
    let plan = engine.plan(&known.config);
    let now = engine.now_ns();
    for (at, shard) in shards.iter_mut().enumerate() {
        match shard.run_index(known.run) {
            Some(index) => {
                shard.runs[index as usize].enter(known.state, now);
            }
            None => {
                shard.add_run(known.run, plan.clone(), known.state, now);
                if at == 0 {
                    let index = shard.runs.len() - 1;
                    shard.runs[index].ledger = with_stored(ledger);
                }
            }
        }
    }
    match runs.iter_mut().find(|run| run.run == known.run) {
        Some(before) if known.state == RunState::Closed => *before = known,
        // A change of state: what is known beside it stays.
        Some(before) => (before.state, before.config) = (known.state, known.config),
        None => runs.push(known),
    }
}

/// The sums on the left follow from the terms on the right.
fn with_stored(mut ledger: Ledger) -> Ledger {
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
    folded: Folded,
) -> Result<()> {
    *streams = folded.streams;
    for (number, content) in folded.outputs {
        engine.outputs.write().adopt(number, &content, engine.keyspace.schema.rest_bytes())?;
    }
    for folded in folded.runs {
        adopt_folded_run(engine, shards, runs, folded)?;
    }
    decided.accepted = folded.accepted.into_iter().collect();
    decided.debug = folded.debug.into_iter().collect();
    decided.removed = folded.removed.into_iter().collect();
    decided.superseded = folded.superseded.into_iter().collect();
    decided.marks = folded.marks.into_iter().collect();
    engine.next_hold.fetch_max(folded.next_hold, Ordering::Relaxed);
    for hold in folded.holds {
        adopt_hold(engine, hold, true);
    }
    for incident in folded.incidents {
        let primary = engine.keyspace.schema.primary_of(&incident.key);
        shards[engine.shard_of(primary.as_bytes())].incidents.note(incident);
    }
    let mut recent = engine.recent.lock();
    for given in folded.verdicts {
        recent.keep(given, true, engine.verdicts_kept());
    }
    Ok(())
}

fn adopt_folded_run(
    engine: &Engine,
    shards: &mut Shards<'_>,
    runs: &mut Vec<KnownRun>,
    folded: FoldedRun,
) -> Result<()> {
    let FoldedRun { known, mut ledger, ended, decided, groups, released, sources } = folded;
    let run = known.run;
    // Those that are live are counted again as they are found.
    (ledger.complete, ledger.incomplete) = ended;
    adopt_run(engine, shards, runs, known, ledger);
    for (which, groups) in decided.into_iter().enumerate() {
        for (high, intervals) in groups {
            for (shard, pieces) in by_shard(&high, &intervals).into_iter().enumerate() {
                let set = IntervalSet::from_intervals(pieces.into_iter())?;
                let Some(index) = shards[shard].run_index(run).filter(|_| !set.is_empty()) else { continue };
                let of_run = &mut shards[shard].runs[index as usize];
                let into = if which == 0 { &mut of_run.decided } else { &mut of_run.endings[which - 1] };
                into.set(&high, set);
            }
        }
    }
    let Some(index) = shards[0].run_index(run) else { return Ok(()) };
    let of_run = &mut shards[0].runs[index as usize];
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
            let piece = Interval { start, length: (last - start) as u32 };
            let of_shard = &mut pieces[shard_of_parts(high, start)];
            match of_shard.last_mut() {
                Some(before) if before.start + u64::from(before.length) + 1 == start => {
                    before.length += piece.length + 1;
                }
                _ => of_shard.push(piece),
            }
            if last == end {
                break;
            }
            start = last + 1;
        }
    }
    pieces
}

/// Whoever repeats a verdict is answered as the first time.
fn note_verdict(engine: &Engine, primary: &[u8], decision: &Decision) {
    let Some(verdict) = Verdict::of(decision.kind) else { return };
    let Token { boot, counter, .. } = decision.token;
    let mut recent = engine.recent.lock();
    if recent.get(decision.token).is_some() {
        // A snapshot has it, with an output that may be forgotten since.
        return;
    }
    let detail = if verdict == Verdict::Passed { u32::from(decision.stage) } else { decision.detail };
    let given = Given { boot, counter, code: engine.code(primary, verdict, detail) };
    recent.keep(given, true, engine.verdicts_kept());
}

fn apply(engine: &Engine, shards: &mut Shards<'_>, decided: &mut Decided, decision: &Decision) -> Result<()> {
    let schema = &engine.keyspace.schema;
    let whole = matches!(decision.kind, DecisionKind::RemoveKey | DecisionKind::Supersede);
    let expected = if whole { schema.key_bytes() } else { schema.primary_bytes() };
    if decision.key.len() != expected {
        return Err(Error::corrupt(format!("a {:?} record with a key of {} bytes", decision.kind, decision.key.len())));
    }
    let primary = &decision.key[..schema.primary_bytes()];
    let shard = &mut shards[engine.shard_of(primary)];
    let number = schema.run_of(primary);
    let Some(index) = shard.run_index(number) else {
        return Err(Error::corrupt(format!("a {:?} record of run {number}, which was never opened", decision.kind)));
    };
    note_verdict(engine, primary, decision);
    let event = Tally::event(u64::from(decision.fragments), decision.bytes);
    let endings_bytes = shard.endings_bytes;
    let of_run = &mut shard.runs[index as usize];
    let detail = decision.detail;
    let tally = match decision.kind {
        DecisionKind::Accept => {
            decided.accepted.insert(primary.to_vec(), detail);
            decided.results.insert((primary.to_vec(), decision.token.counter as u32));
            return Ok(());
        }
        DecisionKind::Pass => {
            decided.passed.insert(primary.to_vec(), decision.stage);
            decided.results.insert((primary.to_vec(), decision.token.counter as u32));
            return Ok(());
        }
        DecisionKind::Debug => {
            decided.debug.insert(primary.to_vec(), detail as u8);
            decided.replayed.remove(primary);
            return Ok(());
        }
        DecisionKind::Mark => {
            decided.marks.insert(primary.to_vec(), (decision.stage, detail));
            return Ok(());
        }
        DecisionKind::Replay => {
            decided.debug.remove(primary);
            decided.replayed.insert(primary.to_vec());
            return Ok(());
        }
        DecisionKind::NeverSeen => Tally::default(),
        DecisionKind::Reject | DecisionKind::Release | DecisionKind::RemoveEvent => event,
        DecisionKind::RemoveKey | DecisionKind::Supersede => Tally { events: 0, ..event },
    };
    let fragments = Tally { events: 0, ..tally };
    of_run.ledger.stored += fragments;
    of_run.ledger.offered += fragments;
    match decision.kind {
        DecisionKind::RemoveKey => {
            let term = if detail & LOST != 0 { &mut of_run.ledger.lost } else { &mut of_run.ledger.removed };
            *term += tally;
            decided.removed.insert(decision.key.clone(), detail & 1 != 0);
        }
        DecisionKind::Supersede => {
            of_run.ledger.superseded += tally;
            let version = decided.superseded.entry(decision.key.clone()).or_default();
            *version = (*version).max(detail as u16);
        }
        kind => {
            let counted = kind != DecisionKind::NeverSeen;
            of_run.book_end(kind, tally, decision.group, !decision.incomplete, counted);
            of_run.count_ended(counted, !decision.incomplete);
            if kind == DecisionKind::Release {
                engine.book_released(of_run, detail);
            }
            if of_run.state != RunState::Closed || of_run.keeps_decided {
                of_run.decided.insert(engine.decided_form, primary);
                if let Some(ending) = Ending::of(kind) {
                    of_run.endings[ending as usize].insert_within(endings_bytes, engine.decided_form, primary);
                }
            }
            decided.accepted.remove(primary);
            decided.debug.remove(primary);
        }
    }
    Ok(())
}
