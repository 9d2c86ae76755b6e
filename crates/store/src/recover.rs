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

use crate::RunState;
use crate::engine::{Engine, KnownRun};
use crate::home::{Code, Given, Kept, Plan, Shard, State, Verdict, Word};
use crate::hot::{CLOSED, FREE, LOG, Location, Place, SEALED, checksum};
use crate::ops::{Folded, FoldedRun, decode_run};
use forebay_core::limits::SEGMENT_HEADER_BYTES;
use forebay_core::{
    Blob, Decision, DecisionKind, Entry, EntryFlags, Error, Key, Ledger, LiveState, Mark, RecordSeed, Result,
    SegmentHeader, SegmentKind, SegmentState, Slot, StateWord, Tally, Token,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
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
    let decided = read_log(engine, &headers)?;
    let mut shards = engine.lock_all();
    let mut records = Records {
        engine,
        shards: shards.iter_mut().map(|guard| &mut **guard).collect(),
        decided: &decided,
        last: None,
        verify_open: power_lost || engine.config.verify,
        verify_sealed: engine.config.verify,
        incomplete: Vec::new(),
    };
    let mut data: Vec<&SegmentHeader> = headers.iter().flatten().filter(|h| h.kind == SegmentKind::Data).collect();
    data.sort_unstable_by_key(|header| header.order);
    for header in data.into_iter().filter(|header| header.state != SegmentState::Free) {
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
    header.kind == SegmentKind::Log || header.state == SegmentState::Free
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
                if written.count() == 2 && !engine.config.accept_loss {
                    return Err(Error::corrupt(format!("segment {number}: neither copy of its header verifies")));
                }
            }
        }
        headers.push(header);
    }
    hot.continue_order(order);
    Ok(headers)
}

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

fn read_log(engine: &Engine, headers: &[Option<SegmentHeader>]) -> Result<Decided> {
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
    let mut given_up = false;
    for (number, slots) in segments {
        let part = starts_snapshot(&slots) || given_up && is_continued_snapshot(&slots) || slots.is_empty();
        given_up = number != from && part;
        if !given_up {
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
    replay(engine, chain.into_iter().flat_map(|(_, slots)| slots))
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

fn replay(engine: &Engine, slots: impl Iterator<Item = Slot>) -> Result<Decided> {
    let schema = &engine.keyspace.schema;
    let mut shards = engine.lock_all();
    let mut runs: Vec<KnownRun> = Vec::new();
    let mut streams: Vec<String> = Vec::new();
    let mut decided = Decided {
        accepted: HashMap::new(),
        debug: HashSet::new(),
        removed: HashSet::new(),
        superseded: HashMap::new(),
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
                    Blob::Stream => streams.push(String::from_utf8_lossy(&blob).into_owned()),
                    Blob::Run => adopt_run(&mut shards, &mut runs, decode_run(&blob, schema)?, Ledger::default()),
                    Blob::Snapshot => {
                        let folded = Engine::read_snapshot(schema, &blob)?;
                        adopt_snapshot(&mut shards, &mut runs, &mut streams, &mut decided, folded);
                    }
                }
                continue;
            }
        };
        apply(engine, &mut shards, &mut decided, &decision)?;
    }
    *engine.runs.lock() = runs;
    *engine.streams.write() = streams;
    Ok(decided)
}

type Shards<'a> = Vec<parking_lot::MutexGuard<'a, Shard>>;

fn adopt_run(shards: &mut Shards<'_>, runs: &mut Vec<KnownRun>, known: KnownRun, ledger: Ledger) {
    let plan = Arc::new(Plan::new(&known.config));
    for (at, shard) in shards.iter_mut().enumerate() {
        match shard.run_index(known.run) {
            Some(index) => {
                let run = &mut shard.runs[index as usize];
                run.state = known.state;
                if known.state == RunState::Closed {
                    run.decided = Default::default();
                }
            }
            None => {
                shard.add_run(known.run, plan.clone(), known.state);
                if at == 0 {
                    let index = shard.runs.len() - 1;
                    shard.runs[index].ledger = with_stored(ledger);
                }
            }
        }
    }
    match runs.iter_mut().find(|run| run.run == known.run) {
        Some(before) => *before = known,
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
    shards: &mut Shards<'_>,
    runs: &mut Vec<KnownRun>,
    streams: &mut Vec<String>,
    decided: &mut Decided,
    folded: Folded,
) {
    *streams = folded.streams;
    for FoldedRun { known, ledger, decided } in folded.runs {
        let run = known.run;
        adopt_run(shards, runs, known, ledger);
        for (shard, high, set) in decided {
            if let Some(index) = shards[shard].run_index(run) {
                shards[shard].runs[index as usize].decided.set(&high, set);
            }
        }
    }
    decided.accepted = folded.accepted.into_iter().collect();
    decided.debug = folded.debug.into_iter().collect();
    decided.removed = folded.removed.into_iter().collect();
    for (shard, given) in folded.verdicts {
        shards[shard].verdicts.note_earlier(given, usize::MAX);
    }
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
    if let Some(verdict) = Verdict::of(decision.kind) {
        let Token { boot, counter, .. } = decision.token;
        let given = Given { boot, counter, code: Code::new(verdict, primary) };
        shard.verdicts.note_earlier(given, engine.verdicts_kept());
    }
    let event = Tally::event(u64::from(decision.fragments), decision.bytes);
    let run = &mut shard.runs[index as usize];
    let term = match decision.kind {
        DecisionKind::Accept => {
            decided.accepted.insert(primary.to_vec(), decision.detail);
            return Ok(());
        }
        DecisionKind::Debug => {
            decided.debug.insert(primary.to_vec());
            return Ok(());
        }
        DecisionKind::Reject => &mut run.ledger.rejected,
        DecisionKind::Release => &mut run.ledger.released,
        DecisionKind::RemoveEvent | DecisionKind::RemoveKey => &mut run.ledger.removed,
        DecisionKind::Supersede => &mut run.ledger.superseded,
    };
    let tally = if decision.kind.ends_event() { event } else { Tally { events: 0, ..event } };
    *term += tally;
    let fragments = Tally { events: 0, ..tally };
    run.ledger.stored += fragments;
    run.ledger.offered += fragments;
    match decision.kind {
        DecisionKind::RemoveKey => {
            decided.removed.insert(decision.key.clone());
        }
        DecisionKind::Supersede => {
            let version = decided.superseded.entry(decision.key.clone()).or_default();
            *version = (*version).max(decision.detail as u16);
        }
        _ => {
            run.decided.insert(engine.decided_form, primary);
            decided.accepted.remove(primary);
            decided.debug.remove(primary);
        }
    }
    Ok(())
}

/// Records going into the index.
struct Records<'a> {
    engine: &'a Engine,
    shards: Vec<&'a mut Shard>,
    decided: &'a Decided,
    /// The last record's event: its neighbours mostly belong to the same one.
    last: Option<(Vec<u8>, usize, u32)>,
    verify_open: bool,
    verify_sealed: bool,
    /// Places of an open segment that hold no whole entry.
    incomplete: Vec<u32>,
}

/// What becomes of a record.
enum Fate {
    Live,
    Dead,
}

impl Records<'_> {
    fn segment(&mut self, header: &SegmentHeader) -> Result<()> {
        let hot = &self.engine.hot;
        let number = header.segment;
        let sealed = header.state == SegmentState::Sealed;
        let entry_bytes = hot.layout.entry_bytes() as u64;
        let room = hot.geometry.segment_bytes - SEGMENT_HEADER_BYTES as u64;
        let most = (room / entry_bytes) as u32;
        let entries = if sealed { header.entries.min(most) } else { most };
        let seed = hot.seed(number);
        self.incomplete.clear();
        let (mut end, mut payload_end, mut dead) = (0, SEGMENT_HEADER_BYTES as u64, 0);
        // While records are adopted the segment must not look free.
        hot.segment(number).set_state(if sealed { SEALED } else { CLOSED });
        for entry in 0..entries {
            let location = Location { segment: number, entry };
            let found =
                hot.layout.decode(hot.region.bytes(hot.entry_offset(location), hot.layout.state_offset()), seed, entry);
            let found = found.filter(|found| {
                let room = hot.geometry.segment_bytes - (u64::from(entry) + 1) * entry_bytes;
                found.offset >= SEGMENT_HEADER_BYTES as u64 && found.offset + u64::from(found.length) <= room
            });
            let Some(found) = found else {
                if sealed {
                    self.lost(format!("segment {number} entry {entry}: does not verify in a sealed segment"))?;
                }
                self.incomplete.push(entry);
                continue;
            };
            let bytes = hot.record_bytes(found.length);
            payload_end = payload_end.max(found.offset + bytes - entry_bytes);
            // Holes before this entry are places whose writers did not finish.
            end = entry + 1;
            let word = StateWord::decode(hot.region.load_word(hot.state_word_offset(location)), seed, entry);
            if word.is_none() && sealed {
                self.lost(format!("segment {number} entry {entry}: its state word does not verify"))?;
            }
            let state = word.unwrap_or(StateWord::FRESH);
            let fate = if state.mark == Mark::Dead || found.flags == EntryFlags::VOID {
                Fate::Dead
            } else {
                self.record(location, &found, state, sealed)?
            };
            match fate {
                Fate::Live => {
                    hot.segment(number).adopt();
                    if word.is_none() {
                        hot.mark(location, state);
                    }
                }
                Fate::Dead => {
                    dead += bytes;
                    if word.is_none_or(|word| word.mark == Mark::Live) {
                        hot.mark(location, StateWord { mark: Mark::Dead, ..StateWord::FRESH });
                    }
                }
            }
        }
        hot.segment(number).dead_bytes.store(dead, Ordering::Relaxed);
        if !sealed {
            self.close_holes(number, seed, end);
            hot.segment(number).entries.store(end, Ordering::Relaxed);
            hot.segment(number).payload_end.store(payload_end, Ordering::Relaxed);
        }
        hot.region.fence();
        Ok(())
    }

    /// Gives the holes of an open segment void entries: it will be sealed, and then every entry counts.
    fn close_holes(&self, number: u32, seed: RecordSeed, end: u32) {
        let zeros = [0; forebay_core::limits::KEY_BYTES_MAX];
        let key = Key::from_packed(&zeros[..self.engine.keyspace.schema.key_bytes()]);
        let offset = SEGMENT_HEADER_BYTES as u64;
        let entry = Entry { key, offset, length: 0, payload_crc: 0, status: 0, version: 0, flags: EntryFlags::VOID };
        for &hole in self.incomplete.iter().filter(|&&hole| hole < end) {
            let place = Place { location: Location { segment: number, entry: hole }, offset, seed };
            let word = StateWord { mark: Mark::Dead, ..StateWord::FRESH };
            self.engine.hot.write_entry(&place, &entry, word);
        }
    }

    /// Something that should be there is not: an error, unless the operator accepted that.
    fn lost(&self, what: String) -> Result<()> {
        if self.engine.config.accept_loss { Ok(()) } else { Err(Error::corrupt(what)) }
    }

    fn record(&mut self, location: Location, entry: &Entry, state: StateWord, sealed: bool) -> Result<Fate> {
        let engine = self.engine;
        let schema = &engine.keyspace.schema;
        let (primary, rest) = entry.key.as_bytes().split_at(schema.primary_bytes());
        if if sealed { self.verify_sealed } else { self.verify_open } {
            let offset = engine.hot.payload_offset(location.segment, entry.offset);
            if checksum(engine.hot.region.bytes(offset, entry.length as usize)) != entry.payload_crc {
                if sealed {
                    self.lost(format!(
                        "segment {} entry {} ({}): its bytes do not match their checksum",
                        location.segment,
                        location.entry,
                        schema.text(entry.key.as_bytes())
                    ))?;
                }
                return Ok(Fate::Dead);
            }
        }
        let kept_decision = self.decided.accepted.contains_key(primary) || self.decided.debug.contains(primary);
        let number = schema.run_of(primary);
        let (at, known) = match &self.last {
            Some((last, at, event)) if last.as_slice() == primary => (*at, Some(*event)),
            _ => (engine.shard_of(primary), None),
        };
        let shard = &mut *self.shards[at];
        let Some(run) = shard.run_index(number) else {
            self.lost(format!("segment {} entry {}: run {number} was never opened", location.segment, location.entry))?;
            return Ok(Fate::Dead);
        };
        let of_run = &shard.runs[run as usize];
        let over = of_run.state == RunState::Closed || of_run.decided.contains(engine.decided_form, primary);
        if over && !kept_decision {
            return Ok(Fate::Dead);
        }
        if entry.flags == EntryFlags::CONFLICT {
            shard.kept.push(Kept { key: entry.key, location, length: entry.length, checksum: entry.payload_crc });
            engine.conflict_bytes.fetch_add(engine.hot.record_bytes(entry.length), Ordering::Relaxed);
            return Ok(Fate::Live);
        }
        if entry.flags == EntryFlags::FRAGMENT {
            let key = entry.key.as_bytes();
            let removed = !self.decided.removed.is_empty() && self.decided.removed.contains(key);
            let superseded = || self.decided.superseded.get(key).is_some_and(|&version| version >= entry.version);
            if removed || !self.decided.superseded.is_empty() && superseded() {
                return Ok(Fate::Dead);
            }
        }
        let event = known.or_else(|| shard.find(primary)).unwrap_or_else(|| {
            engine.hot.events.fetch_add(1, Ordering::Relaxed);
            shard.create(primary, run, engine.now_ns())
        });
        if known.is_none() {
            self.last = Some((primary.to_vec(), at, event));
        }
        let leaf = &mut shard.events[event];
        leaf.deliveries = leaf.deliveries.max(state.deliveries);
        leaf.ready_marked |= state.ready || state.deliveries > 0;
        if entry.flags == EntryFlags::ATTRIBUTES {
            return self.attributes(at, event, location, entry);
        }
        match shard.slot(event, rest) {
            Err(slot) => {
                shard.insert_slot(event, slot, rest, Word::at(location));
                let run = &mut shard.runs[run as usize];
                run.ledger.offered += Tally::fragment(u64::from(entry.length));
                shard.arrived(event, rest, entry.length);
            }
            Ok((slot, word)) => {
                let standing = word.location();
                let Some(other) = engine.hot.read_entry(standing) else {
                    return Err(Error::internal("a record that was just adopted"));
                };
                // An evacuated copy is the same version; an update whose record is missing is a higher one.
                let (loser, lower) = match entry.version.cmp(&other.version) {
                    std::cmp::Ordering::Equal => {
                        return Ok(Fate::Dead);
                    }
                    std::cmp::Ordering::Less => {
                        self.supersede(entry, at, run);
                        return Ok(Fate::Dead);
                    }
                    std::cmp::Ordering::Greater => (standing, other),
                };
                shard.set_word(event, slot, Word::at(location));
                let leaf = &mut shard.events[event];
                leaf.bytes = leaf.bytes + u64::from(entry.length) - u64::from(lower.length);
                let live = leaf.state;
                let ledger = &mut shard.runs[run as usize].ledger;
                let (new, old) = (Tally::fragment(u64::from(entry.length)), Tally::fragment(u64::from(lower.length)));
                ledger.offered += new;
                ledger.stored += new;
                ledger.offered -= old;
                ledger.stored -= old;
                if let State::Live(live) = live {
                    *ledger.live(live) += new;
                    *ledger.live(live) -= old;
                }
                engine.hot.end_record(loser, lower.length);
                self.supersede(&lower, at, run);
            }
        }
        Ok(Fate::Live)
    }

    /// An update was cut off before its record: the snapshot that ends recovery says what the record would have.
    fn supersede(&mut self, lower: &Entry, at: usize, run: u16) {
        let tally = Tally::fragment(u64::from(lower.length));
        let ledger = &mut self.shards[at].runs[run as usize].ledger;
        ledger.offered += tally;
        ledger.stored += tally;
        ledger.superseded += tally;
    }

    fn attributes(&mut self, at: usize, event: u32, location: Location, entry: &Entry) -> Result<Fate> {
        let shard = &mut *self.shards[at];
        if let Some(word) = shard.attribute_word(event) {
            let standing = word.location();
            let other = self.engine.hot.read_entry(standing);
            if other.is_some_and(|other| other.version >= entry.version) {
                return Ok(Fate::Dead);
            }
            self.engine.hot.end_record(standing, entry.length);
        }
        shard.set_attribute_word(event, Word::at(location));
        Ok(Fate::Live)
    }

    /// Everything is read: removed keys close their slots, lists are as they were.
    fn settle(&mut self) {
        let engine = self.engine;
        let schema = &engine.keyspace.schema;
        for key in &self.decided.removed {
            let (primary, rest) = key.split_at(schema.primary_bytes());
            let shard = &mut *self.shards[engine.shard_of(primary)];
            let Some(run) = shard.run_index(schema.run_of(primary)) else { continue };
            let of_run = &shard.runs[run as usize];
            if of_run.state == RunState::Closed || of_run.decided.contains(engine.decided_form, primary) {
                continue;
            }
            let event = shard.find(primary).unwrap_or_else(|| {
                engine.hot.events.fetch_add(1, Ordering::Relaxed);
                shard.create(primary, run, engine.now_ns())
            });
            if let Err(slot) = shard.slot(event, rest) {
                shard.insert_slot(event, slot, rest, Word::REMOVED_KEY);
                shard.remove_slot_for_good(event, slot);
                if !std::mem::replace(&mut shard.events[event].counted, true)
                    && let State::Live(state) = shard.events[event].state
                {
                    shard.runs[run as usize].ledger.live(state).events += 1;
                }
                let plan = &shard.runs[run as usize].plan;
                let (counts, wanted) = (plan.counts(rest), plan.wanted());
                let leaf = &mut shard.events[event];
                leaf.arrived += u16::from(counts);
                // A removed fragment has arrived: with it the event may have been complete.
                leaf.ready_marked |= wanted.is_some_and(|wanted| usize::from(leaf.arrived) >= wanted);
            }
        }
        for at in 0..self.shards.len() {
            self.settle_shard(at);
        }
    }

    fn settle_shard(&mut self, at: usize) {
        let engine = self.engine;
        let shard = &mut *self.shards[at];
        for run in 0..shard.runs.len() {
            let stopped = shard.runs[run].state != RunState::Open;
            let mut next = shard.runs[run].open.first();
            while let Some(event) = next {
                next = crate::home::List::after(&shard.events, event);
                if shard.events[event].slots == 0 {
                    // Only attributes: its first fragment never came.
                    if let Some(word) = shard.attribute_word(event) {
                        engine.hot.end_record(word.location(), engine.hot.length_of(word.location()));
                    }
                    shard.withdraw(event);
                    engine.hot.events.fetch_sub(1, Ordering::Relaxed);
                } else if (shard.events[event].ready_marked || stopped) && shard.events[event].present > 0 {
                    shard.events[event].ready_marked = true;
                    shard.move_to(event, LiveState::Ready);
                }
            }
        }
        for (primary, streams) in &self.decided.accepted {
            if let Some(event) = shard.find(primary) {
                shard.move_to(event, LiveState::Accepted);
                shard.events[event].lease = *streams;
            }
        }
        for primary in &self.decided.debug {
            if let Some(event) = shard.find(primary) {
                shard.move_to(event, LiveState::Debug);
            }
        }
    }
}
