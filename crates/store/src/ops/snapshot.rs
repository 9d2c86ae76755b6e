//! The snapshot that folds the decision log: what all earlier slots said, as one blob. `docs/format-hot.md` has the
//! bytes.
//!
//! *Invariants*: a snapshot is taken while no decision is between its record and the last of its effects
//! (`Engine::quiesce`), so that every record that a folded decision ended is marked dead already; the log before it is
//! freed only after it is complete.

use crate::RunState;
use crate::engine::{Engine, KnownRun};
use crate::home::{Code, Given, Shard};
use crate::limits::{SHARDS, verdicts_kept};
use forebay_core::limits::STREAMS_MAX;
use forebay_core::{Error, Interval, IntervalSet, KeySchema, Ledger, LiveState, Result, RunConfig, Tally};
use std::collections::BTreeMap;

const VERSION: u32 = 1;

/// Everything that a log says, as recovery collects it.
#[derive(Default)]
pub(crate) struct Folded {
    pub(crate) streams: Vec<String>,
    pub(crate) runs: Vec<FoldedRun>,
    pub(crate) accepted: Vec<(Vec<u8>, u32)>,
    pub(crate) debug: Vec<Vec<u8>>,
    pub(crate) removed: Vec<Vec<u8>>,
    pub(crate) verdicts: Vec<Given>,
}

pub(crate) struct FoldedRun {
    pub(crate) known: KnownRun,
    pub(crate) ledger: Ledger,
    /// Leading bytes, members.
    pub(crate) decided: Vec<(Vec<u8>, Vec<Interval>)>,
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

struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n).ok_or_else(|| Error::corrupt("a snapshot ends early"))?;
        self.0 = rest;
        Ok(head)
    }

    fn u32(&mut self) -> Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    /// A key of this length.
    fn exactly(&mut self, length: usize) -> Result<Vec<u8>> {
        let bytes = self.bytes()?;
        if bytes.len() != length {
            return Err(Error::corrupt(format!("a snapshot has a key of {} bytes, not {length}", bytes.len())));
        }
        Ok(bytes.to_vec())
    }

    fn text(&mut self) -> Result<String> {
        String::from_utf8(self.bytes()?.to_vec())
            .map_err(|error| Error::corrupt("a name is not UTF-8").with_source(error))
    }
}

/// A run's state and configuration, as the log has it.
pub(crate) fn encode_run(known: &KnownRun, schema: &KeySchema) -> Result<Vec<u8>> {
    let mut out = Writer(Vec::new());
    out.u64(known.run);
    out.u32(known.state as u32);
    out.bytes(known.config.to_toml(schema)?.as_bytes());
    Ok(out.0)
}

pub(crate) fn decode_run(bytes: &[u8], schema: &KeySchema) -> Result<KnownRun> {
    read_run(&mut Reader(bytes), schema)
}

fn read_run(reader: &mut Reader<'_>, schema: &KeySchema) -> Result<KnownRun> {
    let run = reader.u64()?;
    let state = match reader.u32()? {
        0 => RunState::Open,
        1 => RunState::Stopped,
        2 => RunState::Closed,
        other => return Err(Error::corrupt(format!("run {run} in state {other}"))),
    };
    let text = reader.text()?;
    let config = RunConfig::from_toml(&text, schema)
        .map_err(|error| Error::corrupt(format!("run {run}: its configuration cannot be read")).with_source(error))?;
    Ok(KnownRun { run, state, config })
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
        if let Some(_only_one) = self.snapshotting.try_lock() {
            // Without space the log goes on as it is: nothing is lost.
            let _ = self.fold_log();
        }
    }

    /// Replaces the log by a snapshot.
    pub(crate) fn fold_log(&self) -> Result<()> {
        let _still = self.quiesce.write();
        let snapshot = self.snapshot()?;
        self.log.replace(&self.hot, &snapshot)
    }

    pub(crate) fn verdicts_kept(&self) -> usize {
        verdicts_kept(self.hot.geometry.region_bytes())
    }

    fn snapshot(&self) -> Result<Vec<u8>> {
        let schema = &self.keyspace.schema;
        let mut out = Writer(Vec::new());
        out.u32(VERSION);
        out.u32(SHARDS as u32);
        let streams = self.streams.read().clone();
        out.u32(streams.len() as u32);
        streams.iter().for_each(|stream| out.bytes(stream.as_bytes()));

        // Decisions rest; puts go on, which changes nothing that a snapshot holds. One shard at a time is enough.
        let runs = self.runs.lock().clone();
        let mut ledgers = vec![Ledger::default(); runs.len()];
        // Shards hold interleaved blocks of keys: together they are as dense as the events were.
        let mut decided: Vec<BTreeMap<Vec<u8>, Vec<Interval>>> = vec![BTreeMap::new(); runs.len()];
        let (mut accepted, mut debug, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        let verdicts: Vec<Given> = self.recent.lock().last().collect();
        for cell in &self.cells {
            let shard = cell.lock();
            for (place, known) in runs.iter().enumerate() {
                let Some(index) = shard.run_index(known.run) else { continue };
                let run = &shard.runs[index as usize];
                ledgers[place].add(&run.ledger);
                for (high, set) in run.decided.groups() {
                    decided[place].entry(high.to_vec()).or_default().extend(set.intervals());
                }
            }
            collect(&shard, &mut accepted, &mut debug, &mut removed, schema);
        }
        out.u32(runs.len() as u32);
        for (place, known) in runs.iter().enumerate() {
            out.0.extend(encode_run(known, schema)?);
            for term in terms(&mut ledgers[place]) {
                out.u64(term.events);
                out.u64(term.fragments);
                out.u64(term.bytes);
            }
            out.u32(decided[place].len() as u32);
            for (high, intervals) in &mut decided[place] {
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
        out.u32(accepted.len() as u32);
        for (primary, streams) in &accepted {
            out.bytes(primary);
            out.u32(*streams);
        }
        for list in [&debug, &removed] {
            out.u32(list.len() as u32);
            list.iter().for_each(|key| out.bytes(key));
        }
        out.u32(verdicts.len() as u32);
        for given in verdicts {
            out.u32(u32::from(given.code.0));
            out.u32(given.boot);
            out.u64(given.counter);
        }
        Ok(out.0)
    }

    /// Reads what [`Engine::fold_log`] wrote.
    pub(crate) fn read_snapshot(schema: &KeySchema, bytes: &[u8]) -> Result<Folded> {
        let mut reader = Reader(bytes);
        let (version, shards) = (reader.u32()?, reader.u32()?);
        if (version, shards) != (VERSION, SHARDS as u32) {
            return Err(Error::invalid(format!(
                "a snapshot of version {version} with {shards} shards; this build reads {VERSION} with {SHARDS}"
            )));
        }
        let mut folded = Folded::default();
        let streams = reader.u32()?;
        if streams as usize > STREAMS_MAX {
            return Err(Error::corrupt(format!("a snapshot names {streams} streams")));
        }
        for _ in 0..streams {
            folded.streams.push(reader.text()?);
        }
        for _ in 0..reader.u32()? {
            let known = read_run(&mut reader, schema)?;
            let mut ledger = Ledger::default();
            for term in terms(&mut ledger) {
                *term = Tally { events: reader.u64()?, fragments: reader.u64()?, bytes: reader.u64()? };
            }
            let mut decided = Vec::new();
            for _ in 0..reader.u32()? {
                let high = reader.bytes()?.to_vec();
                let count = reader.u32()? as usize;
                let mut packed =
                    Reader(reader.take(count.checked_mul(12).ok_or_else(|| Error::corrupt("a snapshot ends early"))?)?);
                let mut intervals = Vec::with_capacity(count);
                for _ in 0..count {
                    intervals.push(Interval { start: packed.u64()?, length: packed.u32()? });
                }
                // Sorted and within 64 bits, or refused.
                IntervalSet::from_intervals(intervals.iter().copied())?;
                decided.push((high, intervals));
            }
            folded.runs.push(FoldedRun { known, ledger, decided });
        }
        let (primary, key) = (schema.primary_bytes(), schema.key_bytes());
        for _ in 0..reader.u32()? {
            folded.accepted.push((reader.exactly(primary)?, reader.u32()?));
        }
        for _ in 0..reader.u32()? {
            folded.debug.push(reader.exactly(primary)?);
        }
        for _ in 0..reader.u32()? {
            folded.removed.push(reader.exactly(key)?);
        }
        for _ in 0..reader.u32()? {
            let code = Code(reader.u32()? as u16);
            folded.verdicts.push(Given { code, boot: reader.u32()?, counter: reader.u64()? });
        }
        Ok(folded)
    }
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

fn collect(
    shard: &Shard,
    accepted: &mut Vec<(Vec<u8>, u32)>,
    debug: &mut Vec<Vec<u8>>,
    removed: &mut Vec<Vec<u8>>,
    schema: &KeySchema,
) {
    for event in shard.listed(LiveState::Accepted) {
        accepted.push((shard.primary(event).as_bytes().to_vec(), shard.events[event].lease));
    }
    for event in shard.listed(LiveState::Debug) {
        debug.push(shard.primary(event).as_bytes().to_vec());
    }
    for (event, rest) in shard.removed_keys() {
        removed.push(schema.join(&shard.primary(event), &rest).as_bytes().to_vec());
    }
}
