//! `forebay run`: the life of runs: list, open, stop, close, watch.

use crate::ledger::{self, account_json, state_name};
use crate::open::Directory;
use crate::output::{Answer, Output};
use crate::{signal, units};
use clap::{Args, Subcommand};
use forebay_core::{Completeness, LiveState, Result, RunConfig};
use forebay_store::{RunState, RunStatus, Store};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const HELP: &str = "\
A run is open (takes fragments), stopped (takes no new events; what is there gets decided) or closed (the account is \
frozen). Runs of most keyspaces open by themselves at their first fragment; opening one beforehand says what its events \
wait for.

Example: run 7, whose events are complete with sources 1, 2 and 3, or one second after their first fragment:
  forebay run /tmp/first open 7 --sources 1,2,3 --within 1s
  forebay run /tmp/first list
  forebay run /tmp/first stop 7
  forebay take /tmp/first -n 1000000 --reject
  forebay run /tmp/first close 7

A run closes when none of its events is open, ready or leased, and its ledger balances; until then close says what is left.";

/// List, open, stop, close and watch runs.
#[derive(Args)]
#[command(long_about = HELP)]
pub(crate) struct Run {
    #[command(flatten)]
    store: Directory,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the runs and where they stand. Example: forebay run /tmp/first list
    List,
    /// Open a run. Example: forebay run /tmp/first open 7 --count 3 --within 500ms
    Open(Open),
    /// Stop a run: no new events, incomplete ones are sealed. Example: forebay run /tmp/first stop 7
    Stop {
        /// Run number.
        run: u64,
    },
    /// Close a run, once everything is decided, and show its ledger. Example: forebay run /tmp/first close 7
    Close {
        /// Run number.
        run: u64,
    },
    /// Show a run now and after each change, until --for is over or Ctrl-C. Example: forebay run /tmp/first watch 7 --for 2s
    Watch {
        /// Run number.
        run: u64,
        /// How long to watch; until Ctrl-C when not given.
        #[arg(long = "for", value_name = "DURATION", value_parser = units::parse_duration)]
        time: Option<Duration>,
    },
}

#[derive(Args)]
struct Open {
    /// Run number.
    run: u64,
    /// Sources that every event must have, such as 1,2,3 (7/1,7/2 where a source has two parts).
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = ["count", "seal"])]
    sources: Option<Vec<String>>,
    /// Number of different fragments that complete an event.
    #[arg(long, value_name = "N", conflicts_with = "seal")]
    count: Option<u32>,
    /// Events wait until somebody seals them.
    #[arg(long)]
    seal: bool,
    /// Time after an event's first fragment at which it is ready in any case; the keyspace's when not given.
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    within: Option<Duration>,
}

impl Run {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let answer = match &self.action {
            Action::List => list(&store, out),
            Action::Open(open) => open.open(&store, out),
            Action::Stop { run } => known(&store, *run)
                .and_then(|_| store.run_stop(*run))
                .and_then(|()| changed(*run, RunState::Stopped, out)),
            Action::Close { run } => close(&store, *run, out),
            Action::Watch { run, time } => watch(&store, *run, *time, out),
        }?;
        store.close()?;
        Ok(answer)
    }
}

impl Open {
    fn open(&self, store: &Store, out: &mut Output) -> Result<Answer> {
        let default = &store.keyspace().run;
        let completeness = match (&self.sources, self.count, self.seal) {
            (Some(list), ..) => Completeness::sources(store.schema(), &units::parse_sources(store.schema(), list)?)?,
            (_, Some(count), _) => Completeness::Count(count),
            (.., true) => Completeness::Seal,
            _ => default.completeness.clone(),
        };
        let config = RunConfig::new(completeness, self.within.unwrap_or(default.complete_within));
        config.check()?;
        store.run_open(self.run, &config)?;
        changed(self.run, RunState::Open, out)
    }
}

fn changed(run: u64, state: RunState, out: &mut Output) -> Result<Answer> {
    out.line(format!("run {run} · {}", state_name(state)))?;
    out.json(&serde_json::json!({ "run": run, "state": state }))?;
    Ok(Answer::Yes)
}

fn known(store: &Store, run: u64) -> Result<RunStatus> {
    store.runs().into_iter().find(|status| status.run == run).ok_or_else(|| ledger::no_run(run))
}

fn list(store: &Store, out: &mut Output) -> Result<Answer> {
    let runs = store.runs();
    let values: Vec<_> = runs.iter().map(|status| account_json(status.run, status.state, &status.ledger)).collect();
    out.json(&values)?;
    for status in &runs {
        out.line(summary(status))?;
    }
    if runs.is_empty() {
        out.line("no runs yet")?;
    }
    Ok(Answer::Yes)
}

fn close(store: &Store, run: u64, out: &mut Output) -> Result<Answer> {
    known(store, run)?;
    let account = store.run_close(run)?.ledger;
    out.json(&account_json(run, RunState::Closed, &account))?;
    out.line(format!("run {run} · closed"))?;
    for line in ledger::table(&account) {
        out.line(line)?;
    }
    Ok(Answer::found(account.imbalance().is_none()))
}

fn watch(store: &Store, run: u64, time: Option<Duration>, out: &mut Output) -> Result<Answer> {
    known(store, run)?;
    let mut watch = store.watch(run)?;
    let stop = signal::stop_flag()?;
    let start = Instant::now();
    loop {
        let left = time.map_or(Duration::MAX, |time| time.saturating_sub(start.elapsed()));
        // The first status comes at once.
        if let Some(status) = watch.next(left.min(Duration::from_millis(100))) {
            out.json(&account_json(run, status.state, &status.ledger))?;
            out.line(summary(&status))?;
            // A watcher's reader wants each line now.
            out.finish()?;
            if status.state == RunState::Closed {
                return Ok(Answer::Yes);
            }
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(Answer::Interrupted);
        }
        if left.is_zero() {
            return Ok(Answer::Yes);
        }
    }
}

/// A run on one line.
fn summary(status: &RunStatus) -> String {
    let account = &status.ledger;
    let live = |state: LiveState| account.live[state as usize].events;
    format!(
        "run {} · {:<7} · stored {} ({}) · open {} · ready {} · leased {} · debug {} · accepted {} · rejected {}{}",
        status.run,
        state_name(status.state),
        units::plural(account.stored.fragments, "fragment"),
        units::bytes(account.stored.bytes),
        live(LiveState::Open),
        live(LiveState::Ready),
        live(LiveState::Leased),
        live(LiveState::Debug),
        live(LiveState::Accepted),
        account.rejected.events,
        account.imbalance().map_or_else(String::new, |what| format!(" · NOT BALANCED: {what}"))
    )
}
