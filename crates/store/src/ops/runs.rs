//! Runs: opened with what their events wait for, stopped, closed; their accounts, and watching them.
//!
//! ```text
//! (unknown) ── open, or first put ──▶ open ── stop ──▶ stopped ── close ──▶ closed
//! ```
//!
//! *Invariants*: a run is in the log before its first event is in the store; a run closes only when nothing of it is
//! open, ready, leased or in flight and its ledger balances.

use crate::engine::{Engine, KnownRun, closed, deadline_after};
use crate::home::List;
use crate::limits::RUNS_MAX;
use crate::{RunState, RunStatus, Store};
use forebay_core::limits::{NAME_BYTES_MAX, STREAMS_MAX};
use forebay_core::{Blob, Error, Ledger, LiveState, Result, RunConfig};
use std::time::{Duration, Instant};

impl Store {
    /// Opens a run. Opening it again with the same configuration is a success.
    ///
    /// # Errors
    /// `Conflict` where it is open with another configuration, `Closed` where it was stopped or closed, `Invalid` for a
    /// configuration or number that cannot be, `Full` without space for the record.
    pub fn run_open(&self, run: u64, config: &RunConfig) -> Result<()> {
        let engine = self.engine();
        config.check()?;
        let part = &engine.keyspace.schema.sub_keys()[0];
        if run > part.max() {
            return Err(Error::invalid(format!("run {run} does not fit: 0 to {}", part.max())));
        }
        engine.open_run(run, config)
    }

    /// Stops a run: no new events; what is there is ready now, whatever it misses, and gets decided.
    ///
    /// # Errors
    /// `Invalid` for an unknown run, `Closed` where it is closed.
    pub fn run_stop(&self, run: u64) -> Result<()> {
        let engine = self.engine();
        let _effects = engine.quiesce.read();
        engine.check_open()?;
        let mut runs = engine.runs.lock();
        let known = engine.not_closed(&mut runs, run)?;
        let stopped = KnownRun { state: RunState::Stopped, ..known.clone() };
        engine.journal(&stopped)?;
        *known = stopped;
        drop(runs);
        for cell in &engine.cells {
            let mut shard = cell.lock();
            if let Some(index) = shard.run_index(run) {
                shard.runs[index as usize].state = RunState::Stopped;
            }
        }
        for cell in &engine.cells {
            let mut shard = cell.lock();
            let Some(index) = shard.run_index(run) else { continue };
            let open: Vec<u32> = {
                let first = shard.runs[index as usize].open.first();
                std::iter::successors(first, |&event| List::after(&shard.events, event)).collect()
            };
            for event in open {
                engine.make_ready(&mut shard, event)?;
            }
            cell.publish_ready(&shard);
        }
        engine.hot.region.fence();
        engine.notify_ready();
        Ok(())
    }

    /// Closes a run and answers its final account. Accepted and debug events stay until they are released.
    ///
    /// # Errors
    /// `Unavailable` while something of it is open, ready, leased or in flight, or its ledger does not balance: the
    /// message says what; `Invalid` for an unknown run, `Closed` where it is closed.
    pub fn run_close(&self, run: u64) -> Result<Ledger> {
        let engine = self.engine();
        let _effects = engine.quiesce.read();
        engine.check_open()?;
        let mut runs = engine.runs.lock();
        let known = engine.not_closed(&mut runs, run)?;
        let mut shards = engine.lock_all();
        if shards[0].closed {
            return Err(closed());
        }
        let mut ledger = Ledger::default();
        for shard in &shards {
            if let Some(index) = shard.run_index(run) {
                ledger.add(&shard.runs[index as usize].ledger);
            }
        }
        for state in [LiveState::Open, LiveState::Ready, LiveState::Leased] {
            let left = ledger.live[state as usize];
            if left.events > 0 {
                return Err(Error::unavailable(format!("run {run}: {} events are {}", left.events, state.name())));
            }
        }
        let waiting = |shard: &crate::home::Shard| {
            shard.run_index(run).is_some_and(|index| shard.runs[index as usize].open.len() > 0)
        };
        if shards.iter().any(|shard| waiting(shard)) {
            return Err(Error::unavailable(format!("run {run}: fragments are in flight")));
        }
        if let Some(imbalance) = ledger.imbalance() {
            return Err(Error::unavailable(format!("run {run}: the ledger does not balance: {imbalance}")));
        }
        let state = KnownRun { state: RunState::Closed, ..known.clone() };
        engine.journal(&state)?;
        *known = state;
        let mut dropped = Vec::new();
        for shard in &mut shards {
            if let Some(index) = shard.run_index(run) {
                let of_run = &mut shard.runs[index as usize];
                of_run.state = RunState::Closed;
                of_run.decided = Default::default();
            }
            let schema = &engine.keyspace.schema;
            let (gone, kept) = shard.kept.drain(..).partition(|kept| schema.run_of(kept.key.as_bytes()) == run);
            shard.kept = kept;
            dropped.extend::<Vec<crate::home::Kept>>(gone);
        }
        drop(shards);
        for kept in dropped {
            let size = engine.hot.record_bytes(kept.length);
            engine.conflict_bytes.fetch_sub(size, std::sync::atomic::Ordering::Relaxed);
            engine.hot.end_record(kept.location, kept.length);
        }
        engine.hot.region.fence();
        Ok(ledger)
    }

    /// All runs that the store knows, with their accounts.
    pub fn runs(&self) -> Vec<RunStatus> {
        let engine = self.engine();
        let runs: Vec<KnownRun> = engine.runs.lock().clone();
        let status = |known: KnownRun| {
            let (run, state) = (known.run, known.state);
            RunStatus { run, state, ledger: engine.sum_ledger(run) }
        };
        runs.into_iter().map(status).collect()
    }

    /// The account of a run. Counts of duplicates, conflicts, late and refused fragments since the last snapshot of the
    /// log do not survive a crash; what is stored does, exactly.
    ///
    /// # Errors
    /// `Invalid` for an unknown run.
    pub fn ledger(&self, run: u64) -> Result<Ledger> {
        let engine = self.engine();
        engine.known(&mut engine.runs.lock(), run)?;
        Ok(engine.sum_ledger(run))
    }

    /// Follows a run: yields its status after each change.
    ///
    /// # Errors
    /// `Invalid` for an unknown run.
    pub fn watch(&self, run: u64) -> Result<Watch> {
        let engine = self.engine();
        engine.known(&mut engine.runs.lock(), run)?;
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
        let deadline = deadline_after(wait);
        loop {
            let state = self.state();
            let status = RunStatus { run: self.run, state, ledger: self.store.engine().sum_ledger(self.run) };
            if self.last.as_ref() != Some(&status) {
                self.last = Some(status.clone());
                return Some(status);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            std::thread::sleep(left.min(Duration::from_millis(10)));
        }
    }

    /// Where the run stands now.
    pub fn state(&self) -> RunState {
        let mut runs = self.store.engine().runs.lock();
        self.store.engine().known(&mut runs, self.run).map_or(RunState::Closed, |known| known.state)
    }
}

impl Engine {
    fn known<'a>(&self, runs: &'a mut [KnownRun], run: u64) -> Result<&'a mut KnownRun> {
        match runs.iter().position(|known| known.run == run) {
            Some(at) => Ok(&mut runs[at]),
            None => {
                let known: Vec<u64> = runs.iter().map(|known| known.run).collect();
                Err(Error::invalid(format!("run {run} is not known; known are {known:?}")))
            }
        }
    }

    fn not_closed<'a>(&self, runs: &'a mut [KnownRun], run: u64) -> Result<&'a mut KnownRun> {
        let known = self.known(runs, run)?;
        if known.state == RunState::Closed {
            return Err(Error::closed(format!("run {run} is closed")));
        }
        Ok(known)
    }

    fn sum_ledger(&self, run: u64) -> Ledger {
        let mut ledger = Ledger::default();
        for cell in &self.cells {
            let shard = cell.lock();
            if let Some(index) = shard.run_index(run) {
                ledger.add(&shard.runs[index as usize].ledger);
            }
        }
        ledger
    }

    pub(crate) fn open_unknown_run(&self, run: u64) -> Result<()> {
        if !self.keyspace.auto_open_runs {
            return Err(Error::closed(format!("run {run} is not open; this keyspace wants runs opened by name")));
        }
        match self.open_run(run, &self.keyspace.run) {
            // Somebody else opened it meanwhile, maybe with another configuration.
            Err(error) if error.kind() == forebay_core::Kind::Conflict => Ok(()),
            other => other,
        }
    }

    fn open_run(&self, run: u64, config: &RunConfig) -> Result<()> {
        let _effects = self.quiesce.read();
        self.check_open()?;
        let mut runs = self.runs.lock();
        if let Some(known) = runs.iter().find(|known| known.run == run) {
            return match known.state {
                RunState::Open if known.config == *config => Ok(()),
                RunState::Open => Err(Error::conflict(format!("run {run} is open with another configuration"))),
                _ => Err(Error::closed(format!("run {run} is {:?}", known.state))),
            };
        }
        if runs.len() >= RUNS_MAX {
            return Err(Error::full(format!("the store knows {RUNS_MAX} runs, the limit")));
        }
        let known = KnownRun { run, state: RunState::Open, config: config.clone() };
        self.journal(&known)?;
        let plan = Engine::plan(config);
        for cell in &self.cells {
            cell.lock().add_run(run, plan.clone(), RunState::Open);
        }
        runs.push(known);
        Ok(())
    }

    fn journal(&self, known: &KnownRun) -> Result<()> {
        let bytes = super::snapshot::encode_run(known, &self.keyspace.schema)?;
        self.log.append_blob(&self.hot, Blob::Run, &bytes)
    }

    /// The mask of streams by name; new names are journaled, if `may_add` says that somebody may add them.
    pub(crate) fn stream_mask(&self, names: &[&str], may_add: impl Fn() -> Result<()>) -> Result<u32> {
        let mut mask = 0;
        for name in names {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                return Err(Error::invalid(format!("stream name `{name}`: 1 to {NAME_BYTES_MAX} bytes")));
            }
            let known = self.streams.read().iter().position(|stream| stream == name);
            let at = match known {
                Some(at) => at,
                None => {
                    may_add()?;
                    self.new_stream(name)?
                }
            };
            mask |= 1 << at;
        }
        Ok(mask)
    }

    fn new_stream(&self, name: &str) -> Result<usize> {
        let _effects = self.quiesce.read();
        self.check_open()?;
        let mut streams = self.streams.write();
        if let Some(at) = streams.iter().position(|stream| stream == name) {
            return Ok(at);
        }
        if streams.len() == STREAMS_MAX {
            return Err(Error::invalid(format!("stream `{name}` would be one more than {STREAMS_MAX}: {streams:?}")));
        }
        self.log.append_blob(&self.hot, Blob::Stream, name.as_bytes())?;
        streams.push(name.to_owned());
        Ok(streams.len() - 1)
    }
}
