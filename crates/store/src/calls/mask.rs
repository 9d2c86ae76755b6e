//! Sources that events do not wait for, set in mid-run by people or by the run's policy; and how each source does.
//!
//! *Not here*: what the policy counts (`policy.rs`).
//!
//! *Invariants*: a mask is journaled before it acts (tests/semantics/masks.rs, tests/crash.rs); an event that a mask made
//! ready stays ready when the mask is lifted.

use crate::decisions::encode_mask;
use crate::engine::Engine;
use crate::events::{Mask, SourceCount, State, Until};
use crate::limits::SOURCES_LOOK_NS;
use crate::placement::Ticket;
use crate::runs::{KnownRun, MaskChange, apply_mask};
use crate::{RunState, SourceStatus, Store};
use forebay_core::{Error, LiveState, Primary, Result, Source};
use forebay_media::bytes::Blob;
use forebay_media::hot::Class;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

impl Store {
    /// Events of this run no longer wait for a source (packed, see `KeySchema::source`): those from `from` on, or with
    /// `None` every event that still waits. What it sends nevertheless is stored. Masking twice is a success.
    ///
    /// # Errors
    /// `Invalid` for an unknown run or a source of another schema, `Closed`, `Full` without space to journal it,
    /// `OutcomeUnknown` where a device does not make it durable.
    pub fn mask(&self, run: u64, source: &Source, from: Option<&Primary>) -> Result<()> {
        self.change_mask(run, source, from, true)
    }

    /// Events of this run wait for a source again: those from `from` on, or with `None` those that come from now on.
    /// Lifting a mask that is not set is a success.
    ///
    /// # Errors
    /// As [`Store::mask`].
    pub fn unmask(&self, run: u64, source: &Source, from: Option<&Primary>) -> Result<()> {
        self.change_mask(run, source, from, false)
    }

    fn change_mask(&self, run: u64, source: &Source, from: Option<&Primary>, set: bool) -> Result<()> {
        let engine = self.engine();
        engine.relieve_log_for_words();
        engine.check_source(source)?;
        if let Some(from) = from {
            engine.check_primary(from)?;
        }
        let (source, from, signature) = (source.to_vec(), from.copied(), self.signature());
        let change = MaskChange { run, source, set, from, automatic: false, signature };
        engine.explained(engine.set_mask(&change))
    }

    /// Every source of a run that was named or seen: figures, age, masks; in order of their keys. Of a closed run as its summary has them.
    ///
    /// # Errors
    /// `Invalid` for an unknown run.
    pub fn sources(&self, run: u64) -> Result<Vec<SourceStatus>> {
        let engine = self.engine();
        let known = engine.known(&mut engine.runs.known.lock(), run)?.clone();
        if known.state == RunState::Closed
            && let Ok(summary) = engine.read_summary(run)
        {
            return Ok(summary.sources);
        }
        engine.look_at_sources(run);
        Ok(engine.source_rows(&known))
    }
}

impl Engine {
    pub(crate) fn check_source(&self, source: &Source) -> Result<()> {
        let length = self.keyspace.schema.rest_bytes();
        if source.len() == length {
            return Ok(());
        }
        Err(Error::invalid(format!("a source of {} bytes, not {length}", source.len())))
    }

    pub(crate) fn source_rows(&self, known: &KnownRun) -> Vec<SourceStatus> {
        let now = self.now_ns();
        let (counts, lasts) = self.source_counts(known.run);
        let watched = self.runs.watched.lock();
        let watched = watched.get(&known.run);
        let schema = &self.keyspace.schema;
        let one = |(source, count): (Vec<u8>, SourceCount)| {
            let seen = watched.and_then(|watched| watched.sources.get(&source)).copied().unwrap_or_default();
            let mask = known.masks.iter().find(|mask| mask.source == source && mask.until == Until::Open);
            SourceStatus {
                source: schema.source_text(&source),
                fragments: count.fragments,
                bytes: count.bytes,
                rate_hz: seen.rate_hz,
                last_key: seen.last_ns.and_then(|_| lasts.get(&source).cloned()),
                age: seen.last_ns.map(|last| Duration::from_nanos(now.saturating_sub(last))),
                missing: u64::from(count.missing),
                late: u64::from(count.late),
                masked: mask.map(|mask| {
                    let by = if mask.automatic { "by policy" } else { "by hand" };
                    let from = mask.from.as_ref().map(|from| format!(" from {}", schema.text(from.as_bytes())));
                    format!("{by}{}", from.unwrap_or_default())
                }),
                conflicts: u64::from(count.conflicts),
            }
        };
        counts.into_iter().map(one).collect()
    }

    pub(crate) fn set_mask(&self, change: &MaskChange) -> Result<()> {
        let ticket = self.change_masks(change)?;
        self.events.waiting.notify();
        // The policy asks again by itself; nobody waits for a device on its behalf.
        if change.automatic {
            ticket.unanswered();
            return Ok(());
        }
        self.settle(ticket)
    }

    fn change_masks(&self, change: &MaskChange) -> Result<Ticket> {
        let _effects = self.decisions.effects.begin();
        self.check_open()?;
        let mut runs = self.runs.known.lock();
        let known = self.not_closed(&mut runs, change.run)?;
        let (bytes, what) = encode_mask(change);
        // Without the signature: a repeat has another time.
        let name = [&b"mask"[..], &bytes[..what]].concat();
        // The policy changes nothing that a person set; a person's mask replaces the policy's.
        let open = |mask: &&Mask| mask.source == change.source && mask.until == Until::Open;
        let nothing_to_do = match known.masks.iter().find(open) {
            Some(mask) if change.automatic && !mask.automatic => true,
            Some(mask) if change.set => {
                let covers = mask.from.is_none() || change.from.is_some() && mask.from <= change.from;
                covers && change.automatic == mask.automatic
            }
            Some(_) => false,
            None => !change.set,
        };
        if nothing_to_do {
            return Ok(self.ticket_again(&name));
        }
        let class = if change.set { Class::Evacuation } else { Class::Decision };
        let ticket = self.journal_blob(class, Blob::Mask, &bytes, &name)?;
        let now = self.now_ns();
        apply_mask(&mut known.masks, change, now);
        known.note_mask(change.record(&self.keyspace.schema));
        // One list for all shards, shared: every arrival asks how many masks there are.
        let masks = Arc::new(known.masks.clone());
        for cell in &self.shards.cells {
            let mut shard = cell.lock();
            let Some(run) = shard.events.run_index(change.run) else { continue };
            shard.events.runs[run as usize].masks = masks.clone();
            if !change.set {
                continue;
            }
            // Events that lack only this source have nothing more to come: no arrival would look at them again.
            for event in shard.events.open_events(run as usize) {
                shard.events.consider(event);
                if shard.events[event].state != State::Live(LiveState::Open) {
                    shard.events[event].mark_ready();
                    self.mark_event(&mut shard, event);
                }
            }
            // Durable before they are given out: after a crash the mask may be lifted, and ready is monotone.
            self.placement.hot.region.fence();
            cell.publish_ready(&shard);
        }
        Ok(ticket)
    }

    /// Figures of each source over all shards, and the text of its last event.
    pub(crate) fn source_counts(&self, run: u64) -> (BTreeMap<Vec<u8>, SourceCount>, BTreeMap<Vec<u8>, String>) {
        let schema = &self.keyspace.schema;
        let mut counts: BTreeMap<Vec<u8>, SourceCount> = BTreeMap::new();
        for cell in &self.shards.cells {
            let shard = cell.lock();
            let Some(index) = shard.events.run_index(run) else { continue };
            let of_run = &shard.events.runs[index as usize];
            for source in of_run.plan.rules.iter().flat_map(|rule| rule.sources()) {
                counts.entry(source.to_vec()).or_default();
            }
            for (source, count) in of_run.sources.known(schema.rest_bytes()) {
                let sum = counts.entry(source).or_default();
                sum.fragments += count.fragments;
                sum.bytes += count.bytes;
                sum.missing = sum.missing.saturating_add(count.missing);
                sum.late = sum.late.saturating_add(count.late);
                sum.conflicts = sum.conflicts.saturating_add(count.conflicts);
                sum.last = sum.last.max(count.last);
            }
        }
        let lasts = counts.iter().map(|(source, count)| (source.clone(), self.last_text(run, count.last))).collect();
        (counts, lasts)
    }

    /// The event of which the last 8 bytes are known.
    fn last_text(&self, run: u64, last: [u8; 8]) -> String {
        let schema = &self.keyspace.schema;
        let mut values = vec![0; schema.primary_len()];
        values[0] = run;
        let Ok(primary) = schema.primary(&values) else { return String::new() };
        let mut bytes = primary.as_bytes().to_vec();
        let n = bytes.len().min(8);
        let from = bytes.len() - n;
        bytes[from..].copy_from_slice(&last[8 - n..]);
        schema.text(&bytes)
    }

    /// Looks at the sources of all runs now and then: rates and ages.
    pub(crate) fn watch_sources(&self) {
        let runs: Vec<u64> = {
            let runs = self.runs.known.lock();
            let alive = runs.iter().filter(|known| known.state != RunState::Closed);
            alive.map(|known| known.run).collect()
        };
        // Runs that are closed are forgotten: their figures are in their summaries.
        self.runs.watched.lock().retain(|run, _| runs.contains(run));
        for run in runs {
            // Not in every round: walking all sources of all shards takes longer than the pause between two rounds.
            let due = {
                let watched = self.runs.watched.lock();
                let looked = watched.get(&run).and_then(|watched| watched.looked_ns);
                looked.is_none_or(|looked| self.now_ns().saturating_sub(looked) >= SOURCES_LOOK_NS)
            };
            if due {
                self.look_at_sources(run);
            }
        }
    }

    pub(crate) fn look_at_sources(&self, run: u64) {
        let (counts, _) = self.source_counts(run);
        let now = self.now_ns();
        let mut all = self.runs.watched.lock();
        let watched = all.entry(run).or_default();
        // Two that look at the same time: the second one has nothing to divide by.
        let passed_ns = watched.looked_ns.map_or(0, |looked| now.saturating_sub(looked));
        if watched.looked_ns.is_some() && passed_ns == 0 {
            return;
        }
        let first = watched.looked_ns.is_none();
        for (source, count) in counts {
            let seen = watched.sources.entry(source).or_default();
            let new = count.fragments.saturating_sub(seen.fragments);
            if new > 0 && !(first && count.last == [0; 8] && count.fragments == 0) {
                seen.last_ns = Some(now);
            }
            if passed_ns > 0 {
                // Smoothed over about a second.
                let weight = (passed_ns as f64 / 1e9).min(1.0);
                let rate = new as f64 / (passed_ns as f64 / 1e9);
                seen.rate_hz += (rate - seen.rate_hz) * weight;
            }
            seen.fragments = count.fragments;
        }
        watched.looked_ns = Some(now);
    }
}
