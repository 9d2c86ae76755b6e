//! Runs: opened with what their events wait for, paused, stopped, closed.
//!
//! ```text
//! (unknown) ── open, or first put ──▶ open ⇄ paused ── stop ──▶ stopped ── grace, seal ── close ──▶ closed, summary
//! ```
//!
//! *Invariants*: a run is in the log before its first event is in the store; a run closes only when nothing of it is
//! open, ready, leased or in flight and its ledger balances (tests/semantics/runs.rs).

use crate::decisions::{decode_run, encode_run, encode_run_time};
use crate::engine::{Engine, closed};
use crate::events::{Mask, Until};
use crate::inhibit::Balance;
use crate::limits::RUNS_MAX;
use crate::placement::{Kept, Ticket};
use crate::runs::{KnownRun, may_open_itself};
use crate::{RunState, RunSummary, Store};
use forebay_core::mutants::is_planted;
use forebay_core::{Error, Ledger, LiveState, Primary, Result, RunConfig, Signature, Source};
use forebay_media::bytes::Blob;
use forebay_media::hot::Class;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What people said of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunWords {
    /// Its configuration.
    pub config: RunConfig,
    /// Source, first event, and whether the mask is set or was lifted; in the order in which they were set.
    pub masks: Vec<(Source, Option<Primary>, bool)>,
    /// Sources that the run's policy masks.
    pub by_policy: Vec<Source>,
}

impl Store {
    /// Opens a run. Opening it again with the same configuration is a success.
    ///
    /// # Errors
    /// `Conflict` where it is open with another configuration, `Closed` where it was stopped or closed, `Invalid` for a
    /// configuration or number that cannot be, `Full` without space for the record, `OutcomeUnknown` where a device does
    /// not make it durable.
    pub fn run_open(&self, run: u64, config: &RunConfig) -> Result<()> {
        let engine = self.engine();
        engine.keyspace.check_run(config)?;
        engine.relieve_log_for_words();
        let part = &engine.keyspace.schema.sub_keys()[0];
        if run > part.max() {
            return Err(Error::invalid(format!("run {run} does not fit: 0 to {}", part.max())));
        }
        let ticket = engine.explained(engine.open_run(run, config, self.signature()))?;
        engine.settle(ticket)
    }

    /// Pauses a run: the time that its open events wait (`complete_within`) is not counted. What still comes is taken,
    /// ready events are given out. Pausing a paused run is a success.
    ///
    /// # Errors
    /// `Invalid` for an unknown run, `Closed` where it is stopped or closed, `OutcomeUnknown` where a device does not make
    /// it durable.
    pub fn run_pause(&self, run: u64) -> Result<()> {
        self.engine().explained(self.engine().change_run(run, RunState::Paused))
    }

    /// Resumes a paused run. Resuming an open run is a success.
    ///
    /// # Errors
    /// `Invalid` for an unknown run, `Closed` where it is stopped or closed, `OutcomeUnknown` where a device does not make
    /// it durable.
    pub fn run_resume(&self, run: u64) -> Result<()> {
        self.engine().explained(self.engine().change_run(run, RunState::Open))
    }

    /// Stops a run: no new events. Open ones may be completed for the run's grace time (`stop_grace`); then what is there
    /// is ready, even with missing fragments, and gets decided. Without grace that is at once.
    ///
    /// # Errors
    /// `Invalid` for an unknown run, `Closed` where it is closed, `OutcomeUnknown` where a device does not make it durable.
    pub fn run_stop(&self, run: u64) -> Result<()> {
        let engine = self.engine();
        let changed = engine.explained(engine.change_run(run, RunState::Stopped));
        // Also if it is not known whether every device has the record.
        if changed.as_ref().is_err_and(|error| error.kind() != forebay_core::Kind::OutcomeUnknown) {
            return changed;
        }
        engine.seal_stopped_run(run)?;
        changed
    }

    /// Closes a run and answers what it leaves behind, which is kept as `runs/run-N.json` in the store's directory.
    /// Accepted and debug events stay until they are released.
    ///
    /// # Errors
    /// `Unavailable` while something of it is open, ready, leased or in flight, or its ledger does not balance: the
    /// message says what; `Invalid` for an unknown run or where the summary cannot be written, `Closed` where it is
    /// closed, `OutcomeUnknown` where a device does not make it durable.
    pub fn run_close(&self, run: u64) -> Result<RunSummary> {
        let engine = self.engine();
        engine.look_at_sources(run);
        // One at a time: a close that fails lets puts into the run again, and must not do so for another close.
        let _only_one = engine.runs.closing.lock();
        engine.check_open()?;
        let known = engine.not_closed(&mut engine.runs.known.lock(), run)?.clone();
        engine.check_settled(run)?;
        // From here on it takes nothing: the summary is of what stays.
        engine.set_closing(run, true);
        let closed = engine.check_settled(run).and_then(|ledger| engine.close_run(&known, ledger));
        if closed.is_err() {
            engine.set_closing(run, false);
        }
        closed
    }

    /// What was said of a run: its configuration and its masks.
    ///
    /// # Errors
    /// `Invalid` for an unknown run.
    pub fn run_words(&self, run: u64) -> Result<RunWords> {
        let engine = self.engine();
        let known = engine.known(&mut engine.runs.known.lock(), run)?.clone();
        let packed = |source: &[u8]| Source::from_packed(source);
        let by_policy = known.masked_by(true).iter().map(|source| packed(source)).collect();
        let by_hand = known.masks.into_iter().filter(|mask| !mask.automatic);
        let word = |mask: Mask| (packed(&mask.source), mask.from, mask.until == Until::Open);
        Ok(RunWords { config: known.config, masks: by_hand.map(word).collect(), by_policy })
    }

    /// The first half of a close that several nodes make together: the run takes nothing until [`Store::run_close`] or
    /// [`Store::abandon_close`] is called, or the store is opened again; puts wait. Beginning twice is a success.
    ///
    /// # Errors
    /// As [`Store::run_close`]: then it takes puts as before.
    pub fn begin_close(&self, run: u64) -> Result<()> {
        let engine = self.engine();
        let _only_one = engine.runs.closing.lock();
        engine.check_open()?;
        engine.not_closed(&mut engine.runs.known.lock(), run)?;
        engine.set_closing(run, true);
        engine.check_settled(run).map(drop).inspect_err(|_| engine.set_closing(run, false))
    }

    /// The run takes puts again: another node has something left to decide. A success also where no close had begun.
    ///
    /// # Errors
    /// `Invalid` for an unknown run, `Closed` where it is closed.
    pub fn abandon_close(&self, run: u64) -> Result<()> {
        let engine = self.engine();
        let _only_one = engine.runs.closing.lock();
        engine.check_open()?;
        engine.not_closed(&mut engine.runs.known.lock(), run)?;
        engine.set_closing(run, false);
        Ok(())
    }
}

impl Engine {
    fn set_closing(&self, run: u64, closing: bool) {
        for cell in &self.shards.cells {
            let mut shard = cell.lock();
            if let Some(index) = shard.events.run_index(run) {
                shard.events.runs[index as usize].closing = closing;
            }
        }
    }

    /// The account of a run that has nothing left to decide and balances.
    fn check_settled(&self, run: u64) -> Result<Ledger> {
        // All at once: an event of one shard cannot become open while another shard is looked at.
        let shards = self.shards.lock_all();
        if shards[0].closed {
            return Err(closed());
        }
        let mut ledger = Ledger::default();
        let (mut in_flight, mut untold) = (false, 0);
        for shard in &shards {
            if let Some(index) = shard.events.run_index(run) {
                let of_run = &shard.events.runs[index as usize];
                ledger.add(&of_run.ledger);
                in_flight |= of_run.open.len() > 0;
                untold += of_run.untold;
            }
        }
        for state in [LiveState::Open, LiveState::Ready, LiveState::Leased] {
            let left = ledger.live[state];
            if left.events > 0 {
                return Err(Error::unavailable(format!(
                    "run {run}: events that are {}: {}",
                    state.name(),
                    left.events
                )));
            }
        }
        if ledger.awaited > 0 {
            return Err(Error::unavailable(format!("run {run}: {} announced events have not come", ledger.awaited)));
        }
        if in_flight {
            return Err(Error::unavailable(format!("run {run}: fragments are in flight")));
        }
        if untold > 0 {
            return Err(Error::unavailable(format!(
                "run {run}: this node has fragments of {untold} events of which their homes may not know"
            )));
        }
        if let Some(imbalance) = ledger.imbalance() {
            return Err(Error::unavailable(format!("run {run}: the ledger does not balance: {imbalance}")));
        }
        Ok(ledger)
    }

    /// Writes the summary, then the record; then nothing of the run is taken any more.
    fn close_run(&self, known: &KnownRun, ledger: Ledger) -> Result<RunSummary> {
        let run = known.run;
        // The summary first: a closed run forgets what it says, and a crash in between only leaves a file to be replaced.
        let summary = self.summary(known, ledger)?;
        self.write_summary(&summary)?;
        let effects = self.decisions.effects.begin();
        self.check_open()?;
        let mut runs = self.runs.known.lock();
        let place = self.not_closed(&mut runs, run)?;
        // What is told about a run beside its account is in its summary from now on.
        let config = RunConfig { prescales: BTreeMap::new(), ..place.config.clone() };
        let state = KnownRun::new(run, RunState::Closed, config);
        let ticket = if is_planted("close-unlogged") { Ticket::default() } else { self.journal(&state)? };
        *place = state;
        drop(runs);
        let now = self.now_ns();
        let mut dropped: Vec<Kept> = Vec::new();
        for cell in &self.shards.cells {
            let mut shard = cell.lock();
            if let Some(index) = shard.events.run_index(run) {
                let of_run = &mut shard.events.runs[index as usize];
                debug_assert!(
                    of_run.closing && of_run.open.len() == 0,
                    "run {run}: nothing came since it was summed up"
                );
                let sources = std::mem::take(&mut of_run.sources);
                of_run.enter(RunState::Closed, now);
                // Its account by source reads them from the summary; without a directory there is none.
                if self.life.dir.is_none() {
                    of_run.sources = sources;
                }
            }
            let schema = &self.keyspace.schema;
            let (gone, kept): (Vec<Kept>, Vec<Kept>) =
                shard.places.kept.drain(..).partition(|kept| schema.run_of(kept.key.as_bytes()) == run);
            shard.places.kept = kept;
            dropped.extend(gone);
        }
        // Outside of the cells: ending a record takes a flush.
        for kept in dropped {
            let size = self.placement.hot.record_bytes(kept.length);
            self.events.forget_conflict(size);
            self.placement.hot.end_record(kept.location, kept.length);
        }
        self.placement.hot.region.fence();
        drop(effects);
        self.settle(ticket).map(|()| summary)
    }

    pub(crate) fn known<'a>(&self, runs: &'a mut [KnownRun], run: u64) -> Result<&'a mut KnownRun> {
        match runs.iter().position(|known| known.run == run) {
            Some(at) => Ok(&mut runs[at]),
            None => {
                let last: Vec<u64> = runs.iter().rev().take(16).map(|known| known.run).collect();
                Err(Error::invalid(format!("run {run} is not known; known are {last:?}")))
            }
        }
    }

    pub(crate) fn not_closed<'a>(&self, runs: &'a mut [KnownRun], run: u64) -> Result<&'a mut KnownRun> {
        let known = self.known(runs, run)?;
        if known.state == RunState::Closed {
            return Err(Error::closed(format!("run {run} is closed")));
        }
        Ok(known)
    }

    /// Opens the run of a first event, or has its home open it; whether it is known now. `false` where that takes a moment.
    pub(crate) fn open_unknown_run(&self, run: u64, key: &[u8]) -> Result<bool> {
        if !self.keyspace.auto_open_runs {
            return Err(Error::closed(format!(
                "run {run} is not open: open it first (`forebay run open`, `FB.RUN OPEN {run}`, `run_open`)"
            )));
        }
        if run >= self.runs.closed_from.load(Ordering::Relaxed) {
            return Ok(false);
        }
        may_open_itself(run, &self.runs.known.lock())?;
        if !self.runs.unknown.comes(run, key, self.keyspace.auto_open_after, self.now_ns()) {
            return Ok(false);
        }
        if self.life.epoch.load(Ordering::Acquire) != 0 {
            // Every node of a cluster has the runs that the run's home opened, with its configuration.
            let home = self.runs.home.get().ok_or_else(|| {
                Error::fenced(format!("run {run} is not known to this node, and only its home opens it"))
            })?;
            return home.wanted(run).map(|()| false);
        }
        match self.open_run(run, &self.keyspace.run, self.signed_by_itself()) {
            // Somebody else opened it meanwhile, maybe with another configuration.
            Err(error) if error.kind() == forebay_core::Kind::Conflict => Ok(true),
            // What is put into it waits for devices where it asks for that (`levels/persist.rs`).
            other => other.map(Ticket::unanswered).map(|()| true),
        }
    }

    fn open_run(&self, run: u64, config: &RunConfig, opened: Signature) -> Result<Ticket> {
        // In the order in which the log gives them back: the same rules are the same configuration.
        let mut config = config.clone();
        config.classes.sort_by(|one, other| one.0.cmp(&other.0));
        let config = &config;
        let _effects = self.decisions.effects.begin();
        self.check_open()?;
        let mut runs = self.runs.known.lock();
        if let Some(known) = runs.iter().find(|known| known.run == run) {
            return match known.state {
                state if state.takes_events() && known.config == *config => Ok(self.journaled(known)),
                state if state.takes_events() => {
                    Err(Error::conflict(format!("run {run} is {} with another configuration", state.name())))
                }
                state => Err(Error::closed(format!("run {run} is {}", state.name()))),
            };
        }
        if run >= self.runs.closed_from.load(Ordering::Relaxed) {
            return Err(Error::unavailable(format!(
                "run {run} begins under a map that this node is adopting: try again"
            )));
        }
        if runs.len() >= RUNS_MAX {
            return Err(Error::full_of("runs", "operator", format!("the store knows {RUNS_MAX} runs, the limit")));
        }
        let mut known = KnownRun { opened, ..KnownRun::new(run, RunState::Open, config.clone()) };
        known.time.enter(true, &self.balance());
        // In the log before its first event is in the store: recovery knows each event's run.
        let ticket = self.journal(&known)?;
        let plan = self.plan(config);
        let now = self.now_ns();
        for cell in &self.shards.cells {
            cell.lock().events.add_run(run, plan.clone(), RunState::Open, now, ticket.position());
        }
        runs.push(known);
        self.upkeep.bell.ring();
        Ok(ticket)
    }

    /// Pauses, resumes or stops.
    fn change_run(&self, run: u64, to: RunState) -> Result<()> {
        self.relieve_log_for_words();
        let effects = self.decisions.effects.begin();
        self.check_open()?;
        let mut runs = self.runs.known.lock();
        let known = self.not_closed(&mut runs, run)?;
        // A repeat waits for what the first call waited for, with the locks released.
        if known.state == to {
            let ticket = self.journaled(known);
            drop((runs, effects));
            return self.settle(ticket);
        }
        if !known.state.takes_events() {
            return Err(Error::closed(format!("run {run} is {}", known.state.name())));
        }
        // The log, then the list, then the shards: what a shard does is never ahead of what recovery would find.
        let mut changed = KnownRun { state: to, ..known.clone() };
        changed.time.enter(to == RunState::Open, &self.balance());
        let ticket = self.journal(&changed)?;
        *known = changed;
        let now = self.now_ns();
        for cell in &self.shards.cells {
            let mut shard = cell.lock();
            if let Some(index) = shard.events.run_index(run) {
                shard.events.runs[index as usize].enter(to, now);
            }
        }
        // Pauses and grace move what is due.
        self.upkeep.bell.ring();
        drop((runs, effects));
        self.settle(ticket)
    }

    /// Seals what still waits of a stopped run, once its grace time is over.
    pub(crate) fn seal_stopped_run(&self, run: u64) -> Result<()> {
        let _effects = self.decisions.effects.begin();
        let now = self.now_ns();
        let (mut any, mut sealed) = (false, Ok(()));
        for cell in &self.shards.cells {
            let mut shard = cell.lock();
            if shard.closed {
                return Err(closed());
            }
            let Some(index) = shard.events.run_index(run) else { continue };
            let of_run = &shard.events.runs[index as usize];
            let over = now.saturating_sub(of_run.stopped_ns) >= of_run.plan.grace_ns;
            if of_run.state != RunState::Stopped || !over {
                continue;
            }
            let waiting = shard.events.open_events(index as usize);
            any |= !waiting.is_empty();
            sealed =
                waiting.into_iter().try_for_each(|event| self.make_ready(&mut shard, event).map(Ticket::unanswered));
            // Also where one could not be recorded: those before it are ready.
            cell.publish_ready(&shard);
            if sealed.is_err() {
                break;
            }
        }
        if any {
            self.placement.hot.region.fence();
            self.events.waiting.notify();
        }
        sealed
    }

    /// The books of dead time now.
    pub(crate) fn balance(&self) -> Arc<Balance> {
        self.inhibit.books.balance(&*self.config.clock)
    }

    /// The time of runs that are open goes on, at the beginning of a life.
    pub(crate) fn begin_run_times(&self) {
        let mut runs = self.runs.known.lock();
        let now = self.balance();
        runs.iter_mut().for_each(|known| known.time.enter(known.state == RunState::Open, &now));
    }

    /// Journals now and then how long runs were open: what a crash may lose of it is bounded.
    pub(crate) fn journal_run_times(&self) {
        let _effects = self.decisions.effects.begin();
        let mut runs = self.runs.known.lock();
        let now = self.now_ns();
        if self.check_open().is_err() || !runs.iter().any(|known| known.time.is_due(now)) {
            return;
        }
        let balance = self.balance();
        for known in runs.iter_mut().filter(|known| known.time.is_due(now)) {
            known.time.settle(&balance);
            // Without space the next time has it as well.
            let bytes = encode_run_time(known.run, &known.time);
            let name = [&b"time"[..], &known.run.to_le_bytes()].concat();
            let _ = self.journal_blob(Class::Evacuation, Blob::RunTime, &bytes, &name).map(Ticket::unanswered);
        }
    }

    fn journal(&self, known: &KnownRun) -> Result<Ticket> {
        let bytes = encode_run(known, &self.keyspace.schema)?;
        debug_assert!(
            decode_run(&bytes, &self.keyspace.schema)
                .is_ok_and(|read| (read.run, read.state, read.config) == (known.run, known.state, known.config.clone())),
            "run {} reads back as it is: else its repeat would be a conflict after a restart",
            known.run
        );
        let begins = matches!(known.state, RunState::Open | RunState::Paused);
        let class = if begins { Class::Evacuation } else { Class::Decision };
        self.journal_blob(class, Blob::Run, &bytes, &name_of_run(known))
    }

    /// For a repeat of the call that brought a run into the state in which it is.
    fn journaled(&self, known: &KnownRun) -> Ticket {
        self.ticket_again(&name_of_run(known))
    }
}

fn name_of_run(known: &KnownRun) -> Vec<u8> {
    [&b"run"[..], &known.run.to_le_bytes(), &[known.state as u8]].concat()
}
