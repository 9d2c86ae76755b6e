//! The bytes of a snapshot: what all earlier slots said, as one blob. `docs/format-hot.md` has them.
//!
//! *Not here*: how it is taken beside calls (`upkeep/snapshot.rs`), where it is written (the logs of `forebay-media`).

use super::ON_HOT_ONLY;
use super::Superseded;
use super::journal::{
    Reader, Writer, decode_hold, decode_producer, encode_hold, encode_producer, encode_run, read_run, read_run_rest,
};
use crate::events::{
    Code, Decided, DecidedForm, Given, GroupAccount, Incident, IncidentKind, Mask, PlaceBits, ShardEvents, SourceCount,
    Until,
};
use crate::limits::{INCIDENT_BYTES, SHARDS, VERDICT_BYTES};
use crate::runs::{Hold, KnownProducer, KnownRun};
use forebay_core::limits::{KEY_BYTES_MAX, STREAMS_MAX};
use forebay_core::{
    Error, Interval, IntervalSet, KeySchema, Keyspace, Ledger, MaskRecord, PrescaleRecord, Result, RunState, Tally,
    Token,
};
use forebay_media::hot::Boundary;
use std::collections::BTreeMap;

const VERSION: u32 = 5;
/// That of a node of a cluster: tokens have the epochs of their slots.
const VERSION_MEMBER: u32 = 6;
/// The oldest version that is read: it has sentences instead of records, and does not say who opened a run.
const VERSION_MIN: u32 = 4;

// What a snapshot needs at least is kept free by these figures (`Engine::new`).
const _: () =
    assert!(INCIDENT_BYTES >= 4 + KEY_BYTES_MAX + 4 + 4, "a key with its length, kind, length of the fragment");
const _: () = assert!(VERDICT_BYTES == 4 + 4 + 4 + 8, "code, epoch, boot, counter");

/// Most sources of a run whose figures a snapshot keeps.
const SOURCES_KEPT_MAX: usize = 4096;
/// How far the logs were when something was taken: slots of the hot log, entries of the shadows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) log: u64,
    pub(crate) shadow: u64,
}

/// Everything that a log says, as recovery collects it.
#[derive(Default)]
pub(crate) struct SnapshotContent {
    /// Where the hot log goes on after the snapshot.
    pub(crate) boundary: Boundary,
    /// How far the logs were when runs (with masks and producers), streams, outputs and holds were taken.
    pub(crate) seen: [Seen; 4],
    /// The same for the accounts of each batch of runs, by shard.
    pub(crate) accounts_seen: Vec<[Seen; SHARDS]>,
    pub(crate) streams: Vec<String>,
    pub(crate) outputs: Vec<(u32, Vec<u8>)>,
    pub(crate) runs: Vec<SnapshotRun>,
    /// Output of each accepted event of which not every image says so.
    pub(crate) accepted: KeyTable,
    /// Reason of each event of the debug stream.
    pub(crate) debug: KeyTable,
    /// Whole keys, and whether each was a result.
    pub(crate) removed: Vec<(Vec<u8>, bool)>,
    /// Versions that ended on the warm level: whole keys.
    pub(crate) superseded: Vec<(Vec<u8>, Superseded)>,
    /// Marks of events of the warm level that their images do not have: stage, and detail as in the record (`mark_of`).
    pub(crate) marks: KeyTable,
    pub(crate) verdicts: Vec<Given>,
    pub(crate) holds: Vec<Hold>,
    pub(crate) next_hold: u32,
    pub(crate) incidents: Vec<Incident>,
}

/// Stage and detail of marks as one number, and back.
pub(crate) fn mark_of(stage: u8, detail: u32) -> u64 {
    u64::from(stage) << 32 | u64::from(detail)
}

/// See [`mark_of`].
pub(crate) fn mark_parts(mark: u64) -> (u8, u32) {
    ((mark >> 32) as u8, mark as u32)
}

/// Leading bytes of primary keys, and members.
pub(crate) type DecidedGroups = Vec<(Vec<u8>, Vec<Interval>)>;

/// Events with a number each: by number and leading bytes of the key, in intervals. Neighbours with
/// the same number take a byte or two together.
#[derive(Default)]
pub(crate) struct KeyTable {
    members: BTreeMap<u64, BTreeMap<Vec<u8>, Vec<u64>>>,
    pub(crate) groups: Vec<(u64, Vec<u8>, Vec<Interval>)>,
}

impl KeyTable {
    pub(crate) fn add(&mut self, form: DecidedForm, primary: &[u8], number: u64) {
        let (high, low) = form.split(primary);
        let of_number = self.members.entry(number).or_default();
        match of_number.get_mut(high) {
            Some(members) => members.push(low),
            None => _ = of_number.insert(high.to_vec(), vec![low]),
        }
    }

    fn write(self, out: &mut Writer) {
        let groups: usize = self.members.values().map(BTreeMap::len).sum();
        out.u32(groups as u32);
        for (number, of_number) in self.members {
            for (high, mut members) in of_number {
                // Twice where a missing device's events were found after all.
                members.sort_unstable();
                members.dedup();
                let (mut packed, mut before, mut intervals) = (Vec::new(), 0, 0_u32);
                for run in members.chunk_by(|one, next| one + 1 == *next) {
                    // Gaps and lengths, not keys: events mostly follow each other, so that an interval takes two bytes.
                    varint(&mut packed, run[0] - before);
                    varint(&mut packed, run.len() as u64 - 1);
                    before = run[run.len() - 1];
                    intervals += 1;
                }
                out.u64(number);
                out.bytes(&high);
                out.u32(intervals);
                out.bytes(&packed);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<KeyTable> {
        let early = || Error::corrupt("a table of keys ends early");
        let mut groups = Vec::new();
        for _ in 0..reader.u32()? {
            let (number, high, count) = (reader.u64()?, reader.bytes()?.to_vec(), reader.u32()?);
            let mut packed = reader.bytes()?;
            let (mut intervals, mut before) = (Vec::new(), 0_u64);
            for _ in 0..count {
                let gap = read_varint(&mut packed).ok_or_else(early)?;
                let more = read_varint(&mut packed).and_then(|more| u32::try_from(more).ok()).ok_or_else(early)?;
                let start = before.checked_add(gap).ok_or_else(early)?;
                before = start.checked_add(u64::from(more)).ok_or_else(early)?;
                intervals.push(Interval { start, length: more });
            }
            // Sorted and within 64 bits, or refused.
            IntervalSet::from_intervals(intervals.iter().copied())?;
            groups.push((number, high, intervals));
        }
        Ok(KeyTable { members: BTreeMap::new(), groups })
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

pub(crate) struct SnapshotRun {
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

/// The parts of a snapshot, as they were taken.
pub(crate) struct Taken {
    pub(crate) boundary: Boundary,
    pub(crate) seen: [Seen; 4],
    pub(crate) accounts_seen: Vec<[Seen; SHARDS]>,
    pub(crate) streams: Vec<String>,
    pub(crate) outputs: Vec<(u32, Vec<u8>)>,
    pub(crate) runs: Vec<KnownRun>,
    /// Accounts of the runs, over all shards.
    pub(crate) sums: Vec<(u64, Sum)>,
    pub(crate) accepted: KeyTable,
    pub(crate) debug: KeyTable,
    pub(crate) removed: Vec<(Vec<u8>, bool)>,
    pub(crate) superseded: Vec<(Vec<u8>, Superseded)>,
    pub(crate) marks: KeyTable,
    pub(crate) verdicts: Vec<Given>,
    /// Holds, and the number of the next one.
    pub(crate) holds: (Vec<Hold>, u32),
    pub(crate) incidents: Vec<Incident>,
}

impl Taken {
    /// Its bytes.
    pub(crate) fn write(mut self, schema: &KeySchema) -> Result<Vec<u8>> {
        let log = |seen: &Seen| *seen == Seen::default() || seen.log >= self.boundary.position;
        debug_assert!(
            self.seen.iter().chain(self.accounts_seen.iter().flatten()).all(log),
            "what is taken is at least as late as the boundary, where a reader goes on"
        );
        let mut out = Writer(Vec::new());
        // Version and shards first: a reader of another build stops here, before it takes anything for something else.
        let epochs = self.verdicts.iter().any(|given| given.token.epoch != 0);
        out.u32(if epochs { VERSION_MEMBER } else { VERSION });
        out.u32(SHARDS as u32);
        out.u64(self.boundary.order);
        out.u32(self.boundary.slot);
        out.u64(self.boundary.position);
        self.seen.iter().for_each(|seen| write_seen(seen, &mut out));
        out.u32(self.accounts_seen.len() as u32);
        self.accounts_seen.iter().flatten().for_each(|seen| write_seen(seen, &mut out));
        out.u32(self.streams.len() as u32);
        self.streams.iter().for_each(|stream| out.bytes(stream.as_bytes()));
        out.u32(self.outputs.len() as u32);
        for (number, content) in self.outputs {
            out.u32(number);
            out.bytes(&content);
        }
        out.u32(self.runs.len() as u32);
        // Accounts are found by their place in the list: in another order they would be lost, or those of other runs.
        debug_assert!(
            self.sums.iter().zip(&self.runs).all(|(sum, known)| sum.0 == known.run)
                && self.sums.len() <= self.runs.len(),
            "runs are only added, in every shard in one order"
        );
        let mut none = Sum::default();
        for (at, known) in self.runs.iter().enumerate() {
            out.0.extend(encode_run(known, schema)?);
            match self.sums.get_mut(at) {
                Some((run, sum)) if *run == known.run => sum.write(&mut out),
                // It was opened since.
                _ => none.write(&mut out),
            }
            write_marks_of(known, &mut out);
        }
        self.accepted.write(&mut out);
        self.debug.write(&mut out);
        out.u32(self.removed.len() as u32);
        for (key, result) in &self.removed {
            out.bytes(key);
            out.u32(u32::from(*result));
        }
        out.u32(self.superseded.len() as u32);
        for (key, ended) in &self.superseded {
            out.bytes(key);
            out.u32(u32::from(ended.version) | if ended.on_hot_only { ON_HOT_ONLY } else { 0 });
        }
        self.marks.write(&mut out);
        out.u32(self.verdicts.len() as u32);
        for given in self.verdicts {
            let Token { epoch, boot, counter } = given.token;
            out.u32(u32::from(given.code.0));
            if epochs {
                out.u32(epoch);
            }
            out.u32(boot);
            out.u64(counter);
        }
        out.u32(self.holds.1);
        out.u32(self.holds.0.len() as u32);
        self.holds.0.iter().for_each(|hold| out.bytes(&encode_hold(hold, true)));
        out.u32(self.incidents.len() as u32);
        for incident in self.incidents {
            out.bytes(incident.key.as_bytes());
            out.u32(incident.kind as u32);
            out.u32(incident.length);
        }
        Ok(out.0)
    }
}

impl SnapshotContent {
    /// Reads what [`Taken::write`] wrote.
    pub(crate) fn read(keyspace: &Keyspace, bytes: &[u8]) -> Result<SnapshotContent> {
        let schema = &keyspace.schema;
        let mut reader = Reader(bytes);
        let (version, shards) = (reader.u32()?, reader.u32()?);
        if !(VERSION_MIN..=VERSION_MEMBER).contains(&version) || shards != SHARDS as u32 {
            return Err(Error::invalid(format!(
                "a snapshot of version {version} with {shards} shards; this build reads {VERSION_MIN} to {VERSION_MEMBER} with {SHARDS}"
            )));
        }
        let boundary = Boundary { order: reader.u64()?, slot: reader.u32()?, position: reader.u64()? };
        let mut content = SnapshotContent { boundary, ..SnapshotContent::default() };
        for seen in &mut content.seen {
            *seen = read_seen(&mut reader)?;
        }
        for _ in 0..reader.u32()? {
            let mut batch = [Seen::default(); SHARDS];
            for seen in &mut batch {
                *seen = read_seen(&mut reader)?;
            }
            content.accounts_seen.push(batch);
        }
        // Counts come from a medium: nothing is allocated by them before the bytes are there.
        let streams = reader.u32()?;
        if streams as usize > STREAMS_MAX {
            return Err(Error::corrupt(format!("a snapshot names {streams} streams")));
        }
        for _ in 0..streams {
            content.streams.push(reader.text()?);
        }
        for _ in 0..reader.u32()? {
            content.outputs.push((reader.u32()?, reader.bytes()?.to_vec()));
        }
        for _ in 0..reader.u32()? {
            content.runs.push(read_snapshot_run(&mut reader, keyspace, version)?);
        }
        let key = schema.key_bytes();
        content.accepted = KeyTable::read(&mut reader)?;
        content.debug = KeyTable::read(&mut reader)?;
        for _ in 0..reader.u32()? {
            content.removed.push((reader.exactly(key)?, reader.u32()? & 1 != 0));
        }
        for _ in 0..reader.u32()? {
            let (key, word) = (reader.exactly(key)?, reader.u32()?);
            let on_hot_only = word & ON_HOT_ONLY != 0;
            content.superseded.push((key, Superseded { version: word as u16, on_hot_only, ..Superseded::default() }));
        }
        content.marks = KeyTable::read(&mut reader)?;
        for _ in 0..reader.u32()? {
            let code = Code(reader.u32()? as u16);
            let epoch = if version < VERSION_MEMBER { 0 } else { reader.u32()? };
            content.verdicts.push(Given { code, token: Token { epoch, boot: reader.u32()?, counter: reader.u64()? } });
        }
        content.next_hold = reader.u32()?;
        for _ in 0..reader.u32()? {
            content.holds.push(decode_hold(reader.bytes()?, &keyspace.attributes)?.0);
        }
        for _ in 0..reader.u32()? {
            let key = schema.key_from_bytes(&reader.exactly(key)?)?;
            let (kind, length) = (reader.u32()? as u8, reader.u32()?);
            let kind = IncidentKind::from_byte(kind).ok_or_else(|| Error::corrupt("an incident of no kind"))?;
            content.incidents.push(Incident { key, kind, at_ns: 0, length });
        }
        Ok(content)
    }
}

fn write_seen(seen: &Seen, out: &mut Writer) {
    out.u64(seen.log);
    out.u64(seen.shadow);
}

fn read_seen(reader: &mut Reader<'_>) -> Result<Seen> {
    Ok(Seen { log: reader.u64()?, shadow: reader.u64()? })
}

/// One run over all shards.
#[derive(Default)]
pub(crate) struct Sum {
    ledger: Ledger,
    ended: (u64, u64),
    /// Shards hold interleaved blocks of keys: together they are as dense as the events were.
    decided: [BTreeMap<Vec<u8>, Vec<Interval>>; 4],
    groups: BTreeMap<u64, GroupAccount>,
    released: BTreeMap<u8, u64>,
    sources: BTreeMap<Vec<u8>, SourceCount>,
}

/// Length of the record at a place, if it is on the hot level.
pub(crate) type HotLength<'a> = &'a dyn Fn(PlaceBits) -> Option<u32>;

impl Sum {
    /// Adds what a shard has of the run. Figures by source cost a walk over all that is live: they are taken where the length
    /// of records on the hot level is asked for, as a store does that is being closed; they do not survive a crash.
    pub(crate) fn add(&mut self, events: &ShardEvents, index: u16, hot_length: Option<HotLength<'_>>) {
        let run = &events.runs[index as usize];
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
        // A closed run has no sources any more: they are in its summary.
        let Some(hot_length) = hot_length.filter(|_| run.state != RunState::Closed) else { return };
        for (source, count) in run.sources.known(events.shape.form.rest) {
            let sum = self.sources.entry(source).or_default();
            sum.fragments += count.fragments;
            sum.bytes += count.bytes;
            sum.missing = sum.missing.saturating_add(count.missing);
            sum.late = sum.late.saturating_add(count.late);
            sum.conflicts = sum.conflicts.saturating_add(count.conflicts);
        }
        // Live fragments are counted again at recovery, except for those on the warm level.
        for event in events.all_events().filter(|&event| events[event].run == index) {
            for (rest, place) in events.fragments(event, |_| true) {
                let Some(length) = hot_length(place) else { continue };
                let sum = self.sources.entry(rest.to_vec()).or_default();
                sum.fragments = sum.fragments.saturating_sub(1);
                sum.bytes = sum.bytes.saturating_sub(u64::from(length));
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
        // Figures for people: bounded, because a snapshot has to fit into what is kept free for it.
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

/// Masks, records of changes of masks and prescales, producers.
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
    out.u64(known.mask_records.dropped);
    out.u32(known.mask_records.kept.len() as u32);
    for record in &known.mask_records.kept {
        out.u32(u32::from(record.masked));
        out.bytes(record.source.as_bytes());
        out.bytes(record.from.as_deref().unwrap_or_default().as_bytes());
        out.signature(&record.signature);
    }
    out.u64(known.prescales.dropped);
    out.u32(known.prescales.kept.len() as u32);
    for record in &known.prescales.kept {
        out.bytes(record.name.as_bytes());
        out.u64(record.factor.get().to_bits());
        out.bytes(record.from.as_deref().unwrap_or_default().as_bytes());
        out.signature(&record.signature);
    }
    out.u32(known.producers.len() as u32);
    for producer in &known.producers {
        out.bytes(&encode_producer(known.run, &producer.now()));
    }
}

fn read_snapshot_run(reader: &mut Reader<'_>, keyspace: &Keyspace, version: u32) -> Result<SnapshotRun> {
    let schema = &keyspace.schema;
    let mut known = read_run(reader, schema)?;
    if version > VERSION_MIN {
        read_run_rest(reader, &mut known)?;
    }
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
    // An empty key says that there is no bound.
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
    read_mask_records(reader, version, &mut known)?;
    if version > VERSION_MIN {
        read_prescales(reader, &mut known)?;
    }
    for _ in 0..reader.u32()? {
        known.producers.push(KnownProducer::recovered(decode_producer(reader.bytes()?)?.1));
    }
    Ok(SnapshotRun { known, ledger, ended, decided, groups, released, sources })
}

fn read_mask_records(reader: &mut Reader<'_>, version: u32, known: &mut KnownRun) -> Result<()> {
    if version == VERSION_MIN {
        for _ in 0..reader.u32()? {
            let words = reader.text()?;
            match MaskRecord::from_words(&words) {
                Some(record) => known.note_mask(record),
                None => known.mask_records.dropped += 1,
            }
        }
        return Ok(());
    }
    let dropped = reader.u64()?;
    for _ in 0..reader.u32()? {
        let masked = reader.u32()? & 1 != 0;
        let (source, from) = (reader.text()?, Some(reader.text()?).filter(|from| !from.is_empty()));
        known.note_mask(MaskRecord { source, masked, from, signature: reader.signature()? });
    }
    // Behind those that a longer list would drop now.
    known.mask_records.dropped = known.mask_records.dropped.saturating_add(dropped);
    Ok(())
}

fn read_prescales(reader: &mut Reader<'_>, known: &mut KnownRun) -> Result<()> {
    let dropped = reader.u64()?;
    for _ in 0..reader.u32()? {
        let (name, factor) = (reader.text()?, reader.factor()?);
        let from = Some(reader.text()?).filter(|from| !from.is_empty());
        known.note_prescale(PrescaleRecord { name, factor, from, signature: reader.signature()? });
    }
    known.prescales.dropped = known.prescales.dropped.saturating_add(dropped);
    Ok(())
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
            last => {
                // A key has one shard, and is decided there once.
                debug_assert!(
                    last.is_none_or(|last| last.start + u64::from(last.length) < interval.start),
                    "{interval:?} is decided twice"
                );
                merged.push(interval);
            }
        }
    }
    merged
}
