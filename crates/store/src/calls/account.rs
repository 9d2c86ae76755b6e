//! Accounts: the ledger of a run, whole or split by stream, source or attribute; watching it.

use crate::engine::{Engine, closed};
use crate::events::{Flag, GroupAccount, Until};
use crate::limits::BATCH_RUNS;
use crate::runs::KnownRun;
use crate::{LedgerBy, LedgerRow, RunState, RunStatus, RunSummary, SourceStatus, Store};
use forebay_core::{Error, Ledger, LiveState, Result, Tally};
use forebay_media::bytes::Decision;
use std::collections::BTreeMap;
use std::time::Duration;

impl Store {
    /// All runs that the store knows, with their accounts.
    pub fn runs(&self) -> Vec<RunStatus> {
        let engine = self.engine();
        let runs: Vec<KnownRun> = engine.runs.known.lock().clone();
        let ledgers = engine.sum_ledgers();
        let status = |known: &KnownRun| engine.status(known, ledgers.get(&known.run).copied().unwrap_or_default());
        runs.iter().map(status).collect()
    }

    /// The account of a run. Counts of duplicates, conflicts, late and refused fragments since the last snapshot of the
    /// log do not survive a crash; what is stored does, exactly.
    ///
    /// # Errors
    /// `Invalid` for an unknown run.
    pub fn ledger(&self, run: u64) -> Result<Ledger> {
        let engine = self.engine();
        engine.known(&mut engine.runs.known.lock(), run)?;
        Ok(engine.sum_ledger(run))
    }

    /// The account of a run by stream, by source, or by the attribute that the keyspace names. Walks all live events of
    /// the run: for people, not for every second. What a crash left without a name is in a row `unknown`, so that
    /// the rows by source and by attribute sum to the ledger. Those of a closed run by source come from its summary.
    ///
    /// # Errors
    /// `Invalid` for an unknown run, or by attribute where the keyspace has no `ledger_by`; `Closed`.
    pub fn ledger_by(&self, run: u64, by: LedgerBy) -> Result<Vec<LedgerRow>> {
        let engine = self.engine();
        engine.known(&mut engine.runs.known.lock(), run)?;
        match by {
            LedgerBy::Stream => engine.by_stream(run),
            LedgerBy::Source => engine.by_source(run),
            LedgerBy::Attribute if engine.roles.ledger.is_none() => Err(Error::invalid(
                "this keyspace names no attribute to keep the ledger by: `ledger_by = \"lumi\"` in its file does",
            )),
            LedgerBy::Attribute => Ok(engine.by_attribute(run)),
        }
    }

    /// Follows a run: yields its status after each change.
    ///
    /// # Errors
    /// `Invalid` for an unknown run.
    pub fn watch(&self, run: u64) -> Result<Watch> {
        let engine = self.engine();
        engine.known(&mut engine.runs.known.lock(), run)?;
        Ok(Watch { store: self.clone(), run, last: None })
    }
}

/// Follows one run.
#[derive(Debug)]
pub struct Watch {
    store: Store,
    run: u64,
    last: Option<RunStatus>,
}

impl Watch {
    /// The run's status once it differs from the last one given; `None` at the end of the wait.
    pub fn next(&mut self, wait: Duration) -> Option<RunStatus> {
        let engine = self.store.engine();
        let deadline = engine.deadline_after(wait);
        loop {
            // A run once known stays known.
            let known = engine.known(&mut engine.runs.known.lock(), self.run).ok()?.clone();
            let status = engine.status(&known, engine.sum_ledger(self.run));
            if self.last.as_ref() != Some(&status) {
                self.last = Some(status.clone());
                return Some(status);
            }
            // Polled: a notice from every put would cost each of them more than a look now and then costs the watcher.
            if !engine.poll(Duration::from_millis(10), deadline) {
                return None;
            }
        }
    }

    /// The state of the run now.
    pub fn state(&self) -> RunState {
        let mut runs = self.store.engine().runs.known.lock();
        self.store.engine().known(&mut runs, self.run).map_or(RunState::Closed, |known| known.state)
    }
}

impl Engine {
    fn status(&self, known: &KnownRun, ledger: Ledger) -> RunStatus {
        let schema = &self.keyspace.schema;
        let masked = known.masks.iter().filter(|mask| mask.until == Until::Open);
        RunStatus {
            run: known.run,
            state: known.state,
            ledger,
            producers: known.producers.iter().map(|producer| producer.now()).collect(),
            masked: masked.map(|mask| schema.source_text(&mask.source)).collect(),
            inhibit: self.inhibit.board.state().inhibit,
        }
    }

    pub(crate) fn sum_ledger(&self, run: u64) -> Ledger {
        let mut ledger = Ledger::default();
        // Shard by shard: figures that change meanwhile are of slightly different times, each shard's balances by itself.
        for cell in &self.shards.cells {
            let shard = cell.lock();
            if let Some(index) = shard.events.run_index(run) {
                ledger.add(&shard.events.runs[index as usize].ledger);
            }
        }
        ledger
    }

    /// The accounts of all runs. Looking each run up by its number would take the square of their count.
    fn sum_ledgers(&self) -> BTreeMap<u64, Ledger> {
        let mut sums: BTreeMap<u64, Ledger> = BTreeMap::new();
        for cell in &self.shards.cells {
            let mut next = 0;
            loop {
                // Runs are only ever added, at the end: a block for each hold of the lock.
                let shard = cell.lock();
                let block = &shard.events.runs[next..shard.events.runs.len().min(next + BATCH_RUNS)];
                if block.is_empty() {
                    break;
                }
                block.iter().for_each(|run| sums.entry(run.run).or_default().add(&run.ledger));
                next += block.len();
            }
        }
        sums
    }

    pub(super) fn by_stream(&self, run: u64) -> Result<Vec<LedgerRow>> {
        // Copied: this lock must not be held while cells are locked, which come before it in the order.
        let names = self.decisions.streams.read().names().to_vec();
        let mut rows: Vec<LedgerRow> =
            names.into_iter().map(|name| LedgerRow { name, ..LedgerRow::default() }).collect();
        let mut later = Vec::new();
        for cell in &self.shards.cells {
            let shard = cell.lock();
            // Lengths are read from the region, which another life may own after the close.
            if shard.closed {
                return Err(closed());
            }
            let Some(index) = shard.events.run_index(run) else { continue };
            for (&stream, &events) in &shard.events.runs[index as usize].released {
                if let Some(row) = rows.get_mut(usize::from(stream)) {
                    row.released.events += events;
                }
            }
            for event in shard.events.listed(LiveState::Accepted).filter(|&event| shard.events[event].run == index) {
                for (stream, sources) in self.streams_of(shard.events[event].output()) {
                    let Some(row) = rows.get_mut(usize::from(stream)) else { continue };
                    row.live += match sources {
                        None => shard.events.tally(event),
                        Some(sources) => {
                            let kept = shard.fragments(event, |rest| {
                                sources.binary_search_by(|source| source.as_bytes().cmp(rest)).is_ok()
                            });
                            kept.fold(Tally { events: 1, ..Tally::default() }, |mut sum, (_, location)| {
                                sum += Tally::fragment(self.length_or_later(location, usize::from(stream), &mut later));
                                sum
                            })
                        }
                    };
                }
            }
            drop(shard);
            for (stream, bytes) in self.lengths_there(&mut later) {
                rows[stream].live.bytes += bytes;
            }
        }
        rows.retain(|row| *row != LedgerRow { name: row.name.clone(), ..LedgerRow::default() });
        Ok(rows)
    }

    fn by_source(&self, run: u64) -> Result<Vec<LedgerRow>> {
        let schema = &self.keyspace.schema;
        let mut counts = self.stored_by_source(run)?;
        let mut live: BTreeMap<Vec<u8>, Tally> = BTreeMap::new();
        let mut later = Vec::new();
        for cell in &self.shards.cells {
            let shard = cell.lock();
            // Lengths are read from the region, which another life may own after the close.
            if shard.closed {
                return Err(closed());
            }
            let Some(index) = shard.events.run_index(run) else { continue };
            for event in shard.events.all_events().filter(|&event| shard.events[event].run == index) {
                for (rest, location) in shard.fragments(event, |_| true) {
                    let length = self.length_or_later(location, rest.to_vec(), &mut later);
                    *live.entry(rest.to_vec()).or_default() += Tally::fragment(length);
                }
            }
            drop(shard);
            for (source, bytes) in self.lengths_there(&mut later) {
                live.entry(source).or_default().bytes += bytes;
            }
        }
        // What is live has a name, whatever became of the figures.
        live.keys().for_each(|source| _ = counts.entry(source.clone()).or_default());
        // Read after the rows: what arrives in between makes a row `unknown`, never a sum that is too small.
        let stored = self.sum_ledger(run).stored;
        let (mut fragments, mut bytes) = (0_u64, 0_u64);
        let mut rows = Vec::new();
        for (source, count) in counts {
            let live = live.remove(&source).unwrap_or_default();
            // What is not live any more has ended somehow: how is in the whole ledger.
            let ended = Tally {
                events: 0,
                fragments: count.fragments.saturating_sub(live.fragments),
                bytes: count.bytes.saturating_sub(live.bytes),
            };
            fragments += live.fragments + ended.fragments;
            bytes += live.bytes + ended.bytes;
            rows.push(LedgerRow { name: schema.source_text(&source), live, ended, ..LedgerRow::default() });
        }
        if stored.fragments > fragments || stored.bytes > bytes {
            let rest = Tally {
                events: 0,
                fragments: stored.fragments.saturating_sub(fragments),
                bytes: stored.bytes.saturating_sub(bytes),
            };
            rows.push(LedgerRow { name: "unknown".to_owned(), ended: rest, ..LedgerRow::default() });
        }
        Ok(rows)
    }

    /// Fragments and bytes that each source of a run stored.
    fn stored_by_source(&self, run: u64) -> Result<BTreeMap<Vec<u8>, Tally>> {
        let tally = |fragments, bytes| Tally { events: 0, fragments, bytes };
        let (counts, _) = self.source_counts(run);
        let counts = counts.into_iter().map(|(source, count)| (source, tally(count.fragments, count.bytes))).collect();
        // Asked after the counts: a close says that the run is closed before it drops them.
        let closed = self.known(&mut self.runs.known.lock(), run)?.state == RunState::Closed;
        let packed = |row: &SourceStatus| self.keyspace.schema.parse_source(&row.source).map(|source| source.to_vec());
        let kept = |summary: RunSummary| -> Result<BTreeMap<Vec<u8>, Tally>> {
            summary.sources.iter().map(|row| Ok((packed(row)?, tally(row.fragments, row.bytes)))).collect()
        };
        // Without the file, what the shards still have: the rest is `unknown`.
        Ok(if closed { self.read_summary(run).and_then(kept).unwrap_or(counts) } else { counts })
    }

    pub(super) fn by_attribute(&self, run: u64) -> Vec<LedgerRow> {
        let mut groups: BTreeMap<u64, (GroupAccount, Tally)> = BTreeMap::new();
        for cell in &self.shards.cells {
            let shard = cell.lock();
            let Some(index) = shard.events.run_index(run) else { continue };
            for (&group, account) in &shard.events.runs[index as usize].groups {
                groups.entry(group).or_default().0.add(account);
            }
            for event in shard.events.all_events().filter(|&event| shard.events[event].run == index) {
                let leaf = &shard.events[event];
                let (account, live) = groups.entry(self.group_of(&shard, event)).or_default();
                *live += shard.events.tally(event);
                if leaf.is(Flag::Booked) {
                    let complete = leaf.is(Flag::Complete);
                    *(if complete { &mut account.complete } else { &mut account.incomplete }) += 1;
                }
            }
        }
        // Events without the attribute are what the named values leave of the whole.
        let whole = self.sum_ledger(run);
        let mut none = (whole.rejected, whole.released, whole.removed, whole.complete, whole.incomplete);
        for (account, _) in groups.iter().filter(|(group, _)| **group != Decision::NO_GROUP).map(|(_, group)| group) {
            none.0 -= account.rejected;
            none.1 -= account.released;
            none.2 -= account.removed;
            none.3 = none.3.saturating_sub(account.complete);
            none.4 = none.4.saturating_sub(account.incomplete);
        }
        let rest = groups.entry(Decision::NO_GROUP).or_default();
        let (rejected, released, removed, complete, incomplete) = none;
        rest.0 = GroupAccount { rejected, released, removed, complete, incomplete };
        let row = |(group, (account, live)): (u64, (GroupAccount, Tally))| LedgerRow {
            name: if group == Decision::NO_GROUP { "none".to_owned() } else { group.to_string() },
            live,
            rejected: account.rejected,
            released: account.released,
            removed: account.removed,
            ended: Tally::default(),
            complete: account.complete,
            incomplete: account.incomplete,
        };
        let empty = |row: &LedgerRow| *row == LedgerRow { name: row.name.clone(), ..LedgerRow::default() };
        groups.into_iter().map(row).filter(|row| !empty(row)).collect()
    }
}
