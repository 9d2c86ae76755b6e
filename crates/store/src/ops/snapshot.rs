//! The snapshot that folds the decision log: what all earlier slots said, as one blob. `docs/format-hot.md` has the
//! bytes.
//!
//! *Invariants*: a snapshot is taken while no decision is between its record and the last of its effects
//! (`Engine::quiesce`), so that every record that a folded decision ended is marked dead already; the log before it is
//! freed only after it is complete.

use super::hold::Hold;
use super::journal::{
    Reader, Writer, decode_hold, decode_producer, encode_hold, encode_producer, encode_run, read_run,
};
use super::producers::KnownProducer;
use crate::engine::{Engine, KnownRun, deadline_after};
use crate::home::{Code, Decided, Flag, Given, GroupAccount, Incident, IncidentKind, Mask, Shard, SourceCount, Until};
use crate::levels::mark_detail;
use crate::limits::{SHARDS, incidents_kept, verdicts_kept};
use crate::{RunState, ops};
use forebay_core::limits::STREAMS_MAX;
use forebay_core::{Error, Interval, IntervalSet, Keyspace, Ledger, LiveState, Result, Tally};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;

const VERSION: u32 = 3;

/// Most sources of a run whose figures a snapshot keeps.
const SOURCES_KEPT_MAX: usize = 4096;

/// Everything that a log says, as recovery collects it.
#[derive(Default)]
pub(crate) struct Folded {
    pub(crate) streams: Vec<String>,
    pub(crate) outputs: Vec<(u32, Vec<u8>)>,
    pub(crate) runs: Vec<FoldedRun>,
    pub(crate) accepted: Vec<(Vec<u8>, u32)>,
    pub(crate) debug: Vec<(Vec<u8>, u8)>,
    /// Whole keys, and whether each was a result.
    pub(crate) removed: Vec<(Vec<u8>, bool)>,
    /// Versions that ended on the warm level: whole keys.
    pub(crate) superseded: Vec<(Vec<u8>, u16)>,
    /// Marks of events of the warm level that their images do not have: stage, and detail as in the record.
    pub(crate) marks: Vec<(Vec<u8>, (u8, u32))>,
    pub(crate) verdicts: Vec<Given>,
    pub(crate) holds: Vec<Hold>,
    pub(crate) next_hold: u32,
    pub(crate) incidents: Vec<Incident>,
}

/// Leading bytes of primary keys, and members.
pub(crate) type DecidedGroups = Vec<(Vec<u8>, Vec<Interval>)>;

pub(crate) struct FoldedRun {
    pub(crate) known: KnownRun,
    pub(crate) ledger: Ledger,
    /// Ended events that were complete, and incomplete.
    pub(crate) ended: (u64, u64),
    /// All decided events, then those that were released, removed, never seen.
    pub(crate) decided: [DecidedGroups; 4],
    pub(crate) groups: BTreeMap<u64, GroupAccount>,
    pub(crate) released: BTreeMap<u8, u64>,
    /// Figures of fragments that have ended; those of live ones are counted again.
    pub(crate) sources: Vec<(Vec<u8>, SourceCount)>,
}

fn terms(ledger: &mut Ledger) -> [&mut Tally; 10] {
    [
        &mut ledger.duplicate,
        &mut ledger.conflict,
        &mut ledger.late,
        &mut ledger.refused,
        &mut ledger.rejected,
        &mut ledger.released,
        &mut ledger.removed,
        &mut ledger.superseded,
        &mut ledger.expired,
        &mut ledger.lost,
    ]
}

impl Engine {
    /// Folds the log where it has grown, or where space is short and folding gives some back.
    pub(crate) fn relieve_log(&self) {
        let used = self.log.length();
        let per_segment = u64::from(self.hot.slots_per_segment());
        let slots = self.hot.snapshot_slots.load(std::sync::atomic::Ordering::Relaxed);
        let folded = slots.div_ceil(per_segment) as u32;
        let generous = (self.hot.geometry.segments / 16).max(2) + 2 * folded;
        let short = !self.hot.admits(crate::hot::Class::NewEvent);
        if used <= folded + 1 || used <= generous && !short {
            return;
        }
        // Asked under the lock that closing takes for good: a call that outlives it must not fold the log of a later life.
        if let Some(_only_one) = self.snapshotting.try_lock().filter(|_| !self.is_closed()) {
            // Without space the log goes on as it is: nothing is lost.
            let _ = self.fold_log();
        }
    }

    /// Replaces the log by a snapshot.
    pub(crate) fn fold_log(&self) -> Result<()> {
        let _still = self.quiesce.write();
        self.forget_decided();
        self.flush_device_logs();
        self.log.keep_marks();
        let snapshot = self.snapshot()?;
        self.log.replace(&self.hot, &snapshot)?;
        if let Some(level) = &self.level {
            // Each device can be understood without the hot level; what was in its log is folded with the rest.
            for device in 0..level.devices {
                let folded = level.log.replace(device, &snapshot, deadline_after(level.patience));
                level.set_behind(device, folded.is_err());
                if let Err(error) = folded {
                    level.note(error.to_string());
                }
            }
        }
        Ok(())
    }

    pub(crate) fn verdicts_kept(&self) -> usize {
        verdicts_kept(self.hot.geometry.region_bytes())
    }

    fn snapshot(&self) -> Result<Vec<u8>> {
        let schema = &self.keyspace.schema;
        // Decisions rest; puts go on, which changes nothing that a snapshot holds. One shard at a time is enough.
        let runs = self.runs.lock().clone();
        let mut sums: Vec<Sum> = runs.iter().map(|_| Sum::default()).collect();
        let (mut accepted, mut debug, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        let (mut superseded, mut marks, mut outputs_there) = (Vec::new(), Vec::new(), Vec::new());
        let mut incidents = Vec::new();
        let kept = incidents_kept(self.hot.geometry.region_bytes()).div_ceil(SHARDS);
        for cell in &self.cells {
            let shard = cell.lock();
            for (known, sum) in runs.iter().zip(&mut sums) {
                if let Some(index) = shard.run_index(known.run) {
                    sum.add(&shard, index, self);
                }
            }
            for event in shard.listed(LiveState::Accepted) {
                let detail = shard.events[event].lease;
                if shard.events[event].is(Flag::SettledThere) && shard.events[event].is(Flag::AllWarm) {
                    // Its images say so.
                    outputs_there.push(detail);
                    continue;
                }
                accepted.push((shard.primary(event).as_bytes().to_vec(), detail));
            }
            for event in shard.listed(LiveState::Debug) {
                let reason = shard.reasons.get(&event).copied().unwrap_or_default();
                debug.push((shard.primary(event).as_bytes().to_vec(), reason));
            }
            for (event, rest, result) in shard.removed_keys() {
                removed.push((schema.join(&shard.primary(event), &rest).as_bytes().to_vec(), result));
            }
            superseded.extend(shard.superseded.iter().map(|(key, version)| (key.as_bytes().to_vec(), *version)));
            for event in shard.marked_events() {
                let word = shard.events[event].marks();
                let detail = mark_detail(&word);
                marks.push((shard.primary(event).as_bytes().to_vec(), (word.stage, detail)));
            }
            incidents.extend(shard.incidents.last(kept).copied());
        }
        let mut out = Writer(Vec::new());
        out.u32(VERSION);
        out.u32(SHARDS as u32);
        out.u32(self.boot);
        out.u64(self.folds.fetch_add(1, Ordering::Relaxed));
        let streams = self.streams.read().clone();
        out.u32(streams.len() as u32);
        streams.iter().for_each(|stream| out.bytes(stream.as_bytes()));
        let details = accepted.iter().map(|(_, detail)| detail).chain(&outputs_there);
        let used: HashSet<u32> = details.filter_map(|detail| ops::output_number(*detail)).collect();
        let outputs = {
            let mut outputs = self.outputs.write();
            let left = outputs.retain(&used);
            self.hot.output_bytes.store(outputs.bytes, Ordering::Relaxed);
            left
        };
        out.u32(outputs.len() as u32);
        for (number, content) in outputs {
            out.u32(number);
            out.bytes(&content);
        }
        out.u32(runs.len() as u32);
        for (known, sum) in runs.iter().zip(&mut sums) {
            out.0.extend(encode_run(known, schema)?);
            sum.write(&mut out);
            write_marks_of(known, &mut out);
        }
        out.u32(accepted.len() as u32);
        for (primary, detail) in &accepted {
            out.bytes(primary);
            out.u32(*detail);
        }
        out.u32(debug.len() as u32);
        for (primary, reason) in &debug {
            out.bytes(primary);
            out.u32(u32::from(*reason));
        }
        out.u32(removed.len() as u32);
        for (key, result) in &removed {
            out.bytes(key);
            out.u32(u32::from(*result));
        }
        out.u32(superseded.len() as u32);
        for (key, version) in &superseded {
            out.bytes(key);
            out.u32(u32::from(*version));
        }
        out.u32(marks.len() as u32);
        for (primary, (stage, detail)) in &marks {
            out.bytes(primary);
            out.u32(u32::from(*stage));
            out.u32(*detail);
        }
        let verdicts: Vec<Given> = self.recent.lock().last().collect();
        out.u32(verdicts.len() as u32);
        for given in verdicts {
            out.u32(u32::from(given.code.0));
            out.u32(given.boot);
            out.u64(given.counter);
        }
        let holds = self.holds.read();
        out.u32(self.next_hold.load(Ordering::Relaxed));
        out.u32(holds.len() as u32);
        holds.iter().for_each(|hold| out.bytes(&encode_hold(hold, true)));
        out.u32(incidents.len() as u32);
        for incident in incidents {
            out.bytes(incident.key.as_bytes());
            out.u32(incident.kind as u32);
            out.u32(incident.length);
        }
        Ok(out.0)
    }

    /// Life and number of the fold of a snapshot that begins with these bytes: later ones are greater.
    pub(crate) fn snapshot_head(bytes: &[u8]) -> Option<(u32, u64)> {
        let mut reader = Reader(bytes);
        let (_version, _shards) = (reader.u32().ok()?, reader.u32().ok()?);
        Some((reader.u32().ok()?, reader.u64().ok()?))
    }

    /// Reads what [`Engine::fold_log`] wrote.
    pub(crate) fn read_snapshot(keyspace: &Keyspace, bytes: &[u8]) -> Result<Folded> {
        let schema = &keyspace.schema;
        let mut reader = Reader(bytes);
        let (version, shards) = (reader.u32()?, reader.u32()?);
        if (version, shards) != (VERSION, SHARDS as u32) {
            return Err(Error::invalid(format!(
                "a snapshot of version {version} with {shards} shards; this build reads {VERSION} with {SHARDS}"
            )));
        }
        let _head = (reader.u32()?, reader.u64()?);
        let mut folded = Folded::default();
        let streams = reader.u32()?;
        if streams as usize > STREAMS_MAX {
            return Err(Error::corrupt(format!("a snapshot names {streams} streams")));
        }
        for _ in 0..streams {
            folded.streams.push(reader.text()?);
        }
        for _ in 0..reader.u32()? {
            folded.outputs.push((reader.u32()?, reader.bytes()?.to_vec()));
        }
        for _ in 0..reader.u32()? {
            folded.runs.push(read_folded_run(&mut reader, keyspace)?);
        }
        let (primary, key) = (schema.primary_bytes(), schema.key_bytes());
        for _ in 0..reader.u32()? {
            folded.accepted.push((reader.exactly(primary)?, reader.u32()?));
        }
        for _ in 0..reader.u32()? {
            folded.debug.push((reader.exactly(primary)?, reader.u32()? as u8));
        }
        for _ in 0..reader.u32()? {
            folded.removed.push((reader.exactly(key)?, reader.u32()? & 1 != 0));
        }
        for _ in 0..reader.u32()? {
            folded.superseded.push((reader.exactly(key)?, reader.u32()? as u16));
        }
        for _ in 0..reader.u32()? {
            folded.marks.push((reader.exactly(primary)?, (reader.u32()? as u8, reader.u32()?)));
        }
        for _ in 0..reader.u32()? {
            let code = Code(reader.u32()? as u16);
            folded.verdicts.push(Given { code, boot: reader.u32()?, counter: reader.u64()? });
        }
        folded.next_hold = reader.u32()?;
        for _ in 0..reader.u32()? {
            folded.holds.push(decode_hold(reader.bytes()?, &keyspace.attributes)?.0);
        }
        for _ in 0..reader.u32()? {
            let key = schema.key_from_bytes(&reader.exactly(key)?)?;
            let (kind, length) = (reader.u32()? as u8, reader.u32()?);
            let kind = IncidentKind::from_byte(kind).ok_or_else(|| Error::corrupt("an incident of no kind"))?;
            folded.incidents.push(Incident { key, kind, at_ns: 0, length });
        }
        Ok(folded)
    }
}

/// One run over all shards.
#[derive(Default)]
struct Sum {
    ledger: Ledger,
    ended: (u64, u64),
    /// Shards hold interleaved blocks of keys: together they are as dense as the events were.
    decided: [BTreeMap<Vec<u8>, Vec<Interval>>; 4],
    groups: BTreeMap<u64, GroupAccount>,
    released: BTreeMap<u8, u64>,
    sources: BTreeMap<Vec<u8>, SourceCount>,
}

impl Sum {
    fn add(&mut self, shard: &Shard, index: u16, engine: &Engine) {
        let run = &shard.runs[index as usize];
        self.ledger.add(&run.ledger);
        self.ended.0 += run.ended.0;
        self.ended.1 += run.ended.1;
        let sets: [&Decided; 4] = [&run.decided, &run.endings[0], &run.endings[1], &run.endings[2]];
        for (sum, decided) in self.decided.iter_mut().zip(sets) {
            for (high, set) in decided.groups() {
                sum.entry(high.to_vec()).or_default().extend(set.intervals());
            }
        }
        for (&group, account) in &run.groups {
            self.groups.entry(group).or_default().add(account);
        }
        for (&stream, &events) in &run.released {
            *self.released.entry(stream).or_default() += events;
        }
        // Figures by source cost a walk over all that is live: they survive a close, not a crash.
        if run.state == RunState::Closed || !engine.is_closed() {
            return;
        }
        for (source, count) in run.sources.known(engine.keyspace.schema.rest_bytes()) {
            let sum = self.sources.entry(source).or_default();
            sum.fragments += count.fragments;
            sum.bytes += count.bytes;
            sum.missing = sum.missing.saturating_add(count.missing);
            sum.late = sum.late.saturating_add(count.late);
            sum.conflicts = sum.conflicts.saturating_add(count.conflicts);
        }
        // Live fragments are counted again at recovery, but for those on the warm level.
        for event in shard.all_events().filter(|&event| shard.events[event].run == index) {
            for (rest, location) in shard.fragments(event, |_| true).filter(|(_, location)| !location.is_warm()) {
                let sum = self.sources.entry(rest.to_vec()).or_default();
                sum.fragments = sum.fragments.saturating_sub(1);
                sum.bytes = sum.bytes.saturating_sub(u64::from(engine.hot.length_of(location)));
            }
        }
    }

    fn write(&mut self, out: &mut Writer) {
        for term in terms(&mut self.ledger) {
            tally(out, term);
        }
        out.u64(self.ended.0);
        out.u64(self.ended.1);
        out.u64(self.ledger.never_seen);
        for decided in &mut self.decided {
            out.u32(decided.len() as u32);
            for (high, intervals) in decided {
                intervals.sort_unstable_by_key(|interval| interval.start);
                let merged = merge(intervals);
                out.bytes(high);
                out.u32(merged.len() as u32);
                for interval in merged {
                    out.u64(interval.start);
                    out.u32(interval.length);
                }
            }
        }
        out.u32(self.groups.len() as u32);
        for (group, account) in &self.groups {
            out.u64(*group);
            for term in [&account.rejected, &account.released, &account.removed] {
                tally(out, term);
            }
            out.u64(account.complete);
            out.u64(account.incomplete);
        }
        out.u32(self.released.len() as u32);
        for (stream, events) in &self.released {
            out.u32(u32::from(*stream));
            out.u64(*events);
        }
        let kept = self.sources.len().min(SOURCES_KEPT_MAX);
        out.u32(kept as u32);
        for (source, count) in self.sources.iter().take(kept) {
            out.bytes(source);
            out.u64(count.fragments);
            out.u64(count.bytes);
            out.u32(count.missing);
            out.u32(count.late);
            out.u32(count.conflicts);
        }
    }
}

fn tally(out: &mut Writer, tally: &Tally) {
    out.u64(tally.events);
    out.u64(tally.fragments);
    out.u64(tally.bytes);
}

fn read_tally(reader: &mut Reader<'_>) -> Result<Tally> {
    Ok(Tally { events: reader.u64()?, fragments: reader.u64()?, bytes: reader.u64()? })
}

/// Masks, notes about them, producers.
fn write_marks_of(known: &KnownRun, out: &mut Writer) {
    // A mask that ended by arrival covers no event of a later life.
    let masks: Vec<&Mask> = known.masks.iter().filter(|mask| !matches!(mask.until, Until::Arrival(_))).collect();
    out.u32(masks.len() as u32);
    for mask in masks {
        out.bytes(&mask.source);
        out.bytes(mask.from.as_ref().map_or(&[], |from| from.as_bytes()));
        out.bytes(if let Until::Event(until) = &mask.until { until.as_bytes() } else { &[] });
        out.u32(u32::from(mask.automatic));
    }
    out.u32(known.mask_notes.len() as u32);
    known.mask_notes.iter().for_each(|note| out.bytes(note.as_bytes()));
    out.u32(known.producers.len() as u32);
    for producer in &known.producers {
        out.bytes(&encode_producer(known.run, &producer.now()));
    }
}

fn read_folded_run(reader: &mut Reader<'_>, keyspace: &Keyspace) -> Result<FoldedRun> {
    let schema = &keyspace.schema;
    let mut known = read_run(reader, schema)?;
    let mut ledger = Ledger::default();
    for term in terms(&mut ledger) {
        *term = read_tally(reader)?;
    }
    let ended = (reader.u64()?, reader.u64()?);
    ledger.never_seen = reader.u64()?;
    let mut decided: [DecidedGroups; 4] = Default::default();
    for groups in &mut decided {
        for _ in 0..reader.u32()? {
            let high = reader.bytes()?.to_vec();
            let count = reader.u32()? as usize;
            let bytes = count.checked_mul(12).ok_or_else(|| Error::corrupt("a snapshot ends early"))?;
            let mut packed = Reader(reader.take(bytes)?);
            let mut intervals = Vec::with_capacity(count);
            for _ in 0..count {
                intervals.push(Interval { start: packed.u64()?, length: packed.u32()? });
            }
            // Sorted and within 64 bits, or refused.
            IntervalSet::from_intervals(intervals.iter().copied())?;
            groups.push((high, intervals));
        }
    }
    let mut groups = BTreeMap::new();
    for _ in 0..reader.u32()? {
        let group = reader.u64()?;
        let (rejected, released, removed) = (read_tally(reader)?, read_tally(reader)?, read_tally(reader)?);
        let (complete, incomplete) = (reader.u64()?, reader.u64()?);
        groups.insert(group, GroupAccount { rejected, released, removed, complete, incomplete });
    }
    let mut released = BTreeMap::new();
    for _ in 0..reader.u32()? {
        released.insert(reader.u32()? as u8, reader.u64()?);
    }
    let mut sources = Vec::new();
    for _ in 0..reader.u32()? {
        let source = reader.exactly(schema.rest_bytes())?;
        let (fragments, bytes) = (reader.u64()?, reader.u64()?);
        let (missing, late, conflicts) = (reader.u32()?, reader.u32()?, reader.u32()?);
        sources.push((source, SourceCount { fragments, bytes, last: [0; 8], missing, late, conflicts }));
    }
    let optional = |bytes: &[u8]| {
        let primary = || schema.primary_from_bytes(bytes);
        if bytes.is_empty() { Ok(None) } else { primary().map(Some) }
    };
    for _ in 0..reader.u32()? {
        let source = reader.exactly(schema.rest_bytes())?;
        let (from, until) = (optional(reader.bytes()?)?, optional(reader.bytes()?)?);
        let until = until.map_or(Until::Open, Until::Event);
        known.masks.push(Mask { source, from, until, automatic: reader.u32()? & 1 != 0 });
    }
    for _ in 0..reader.u32()? {
        known.mask_notes.push(reader.text()?);
    }
    for _ in 0..reader.u32()? {
        known.producers.push(KnownProducer::recovered(decode_producer(reader.bytes()?)?.1));
    }
    Ok(FoldedRun { known, ledger, ended, decided, groups, released, sources })
}

/// Joins neighbours in a sorted list.
fn merge(intervals: &[Interval]) -> Vec<Interval> {
    let mut merged: Vec<Interval> = Vec::new();
    for &interval in intervals {
        match merged.last_mut() {
            Some(last)
                if last.start + u64::from(last.length) + 1 == interval.start
                    && last.length.checked_add(interval.length).is_some_and(|sum| sum < u32::MAX) =>
            {
                last.length += interval.length + 1;
            }
            _ => merged.push(interval),
        }
    }
    merged
}
