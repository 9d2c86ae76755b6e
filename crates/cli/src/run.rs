//! `forebay run`: the life of runs: list, open, pause, resume, stop, close, prescale, summary, watch.

use crate::ledger::{self, account_json, state_name};
use crate::open::{Close, Opened, Place, of_all_nodes, signed};
use crate::output::{Answer, Output};
use crate::{mask, part, signal, summary, units};
use clap::{Args, Subcommand};
use forebay_core::{
    Completeness, Either, Error, EventStore, FollowRun, Inhibit, KeySchema, Kind, LiveState, OperatedStore,
    PrescaleFactor, Result, RunConfig,
};
use forebay_store::{RunState, RunStatus};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const HELP: &str = "\
A run is open (takes fragments), paused (the same, but the waiting time of open events does not run), stopped (takes no new \
events; what is there gets decided) or closed (the account is frozen). A run is opened before its first fragment, except where the keyspace has \
`auto_open_runs`; opening says what its events wait for.

Example: run 7, whose events are complete with sources 1, 2 and 3, or one second after their first fragment:
  forebay run /tmp/first open 7 --sources 1,2,3 --within 1s
  forebay run /tmp/first list
  forebay run /tmp/first pause 7
  forebay run /tmp/first resume 7
  forebay run /tmp/first stop 7
  forebay take /tmp/first -n 1000000 --reject
  forebay run /tmp/first close 7

A run closes when none of its events is open, ready or leased, and its ledger balances; until then close says what is left. \
What remains of it is a summary, which is printed and kept in the store's directory as runs/run-7.json: its account, its producers, and who set and lifted \
which masks and changed which prescales when. `forebay run /tmp/first summary 7` shows it, also before the close.";

/// List, open, pause, resume, stop, close, sum up and watch runs; record prescales.
#[derive(Args)]
#[command(long_about = HELP)]
pub(crate) struct Run {
    #[command(flatten)]
    store: Place,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the runs and their states. Example: forebay run /tmp/first list
    List,
    /// Open a run. Example: forebay run /tmp/first open 7 --count 3 --within 500ms
    Open(Open),
    /// Pause a run: the waiting time of open events does not run. Example: forebay run /tmp/first pause 7
    Pause {
        /// Run number.
        run: u64,
    },
    /// Resume a paused run. Example: forebay run /tmp/first resume 7
    Resume {
        /// Run number.
        run: u64,
    },
    /// Stop a run: no new events, incomplete ones are sealed after its grace time. Example: forebay run /tmp/first stop 7
    Stop {
        /// Run number.
        run: u64,
    },
    /// Close a run, once everything is decided, and show its ledger. Example: forebay run /tmp/first close 7
    Close {
        /// Run number.
        run: u64,
    },
    /// Record a prescale of the trigger, which applies it. Example: forebay run /tmp/first prescale 7 jet-40 100 --from 5000
    Prescale {
        /// Run number.
        run: u64,
        /// Name of the trigger, item, path or stream.
        name: String,
        /// N keeps one event in N: a number of 1 or more, or `off`.
        #[arg(value_parser = PrescaleFactor::parse)]
        factor: PrescaleFactor,
        /// First event for which it holds: its number, or run/event. From now on when not given.
        #[arg(long, value_name = "EVENT")]
        from: Option<String>,
    },
    /// Show a run's summary: as it is now, or as it was kept at its close. Example: forebay run /tmp/first summary 7
    Summary {
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
    /// What completes events of a class: CLASS=SOURCES, such as calib=0,4,8, or CLASS=COUNT with a #, such as calib=#12.
    #[arg(long, value_name = "CLASS=SOURCES")]
    class: Vec<String>,
    /// Time after the stop in which open events may still be completed.
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    grace: Option<Duration>,
    /// Masks a source after this many events in a row without it, and unmasks it when it has come back.
    #[arg(long, value_name = "EVENTS")]
    auto_mask: Option<u32>,
    /// Stage of the selection in which its events begin, such as a run that skips the first one. Default: the first.
    #[arg(long, value_name = "STAGE")]
    stage: Option<String>,
    /// A prescale of the trigger, for the run's summary; may be given several times.
    #[arg(long, value_name = "NAME=FACTOR")]
    prescale: Vec<String>,
    /// File (TOML) with the run's part of a keyspace file: sources or count, complete_within_ms, classes, …
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Run {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = signed(self.store.open(out)?);
        if !matches!(self.action, Action::List | Action::Summary { .. } | Action::Watch { .. }) {
            of_all_nodes(&store)?;
        }
        let answer = match &self.action {
            Action::List => list(&store, out),
            Action::Open(open) => open.open(&store, out),
            Action::Stop { run } => stop(&store, *run, out),
            Action::Pause { run } => is_known(&store, *run)
                .and_then(|()| store.run_pause(*run))
                .and_then(|()| changed(*run, RunState::Paused, out)),
            Action::Resume { run } => is_known(&store, *run)
                .and_then(|()| store.run_resume(*run))
                .and_then(|()| changed(*run, RunState::Open, out)),
            Action::Close { run } => close(&store, *run, self.store.dir(), out),
            Action::Prescale { run, name, factor, from } => {
                prescale(&store, *run, (name, *factor), from.as_deref(), out)
            }
            Action::Summary { run } => summarize(&store, *run, self.store.dir(), out),
            Action::Watch { run, time } => watch(&store, *run, *time, out),
        }?;
        store.close()?;
        Ok(answer)
    }
}

impl Open {
    fn open(&self, store: &Opened, out: &mut Output) -> Result<Answer> {
        let default = match &self.config {
            Some(file) => read_config(file, store.schema())?,
            None => store.keyspace().run.clone(),
        };
        let completeness = match (&self.sources, self.count, self.seal) {
            (Some(list), ..) => completeness(store.schema(), list)?,
            (_, Some(count), _) => Completeness::Count(count),
            (.., true) => Completeness::Seal,
            _ => default.completeness.clone(),
        };
        let classes = match &self.class[..] {
            [] => default.classes.clone(),
            rules => rules.iter().map(|rule| class_rule(store.schema(), rule)).collect::<Result<_>>()?,
        };
        let mut prescales = default.prescales;
        for text in &self.prescale {
            let wrong = || Error::invalid(format!("--prescale `{text}`: expected NAME=FACTOR, such as jet-40=100"));
            let (name, factor) = text.split_once('=').ok_or_else(wrong)?;
            prescales.insert(name.to_owned(), PrescaleFactor::parse(factor)?);
        }
        let config = RunConfig {
            completeness,
            complete_within: self.within.unwrap_or(default.complete_within),
            classes,
            stop_grace: self.grace.unwrap_or(default.stop_grace),
            auto_mask: self.auto_mask.or(default.auto_mask),
            prescales,
            stage: self.stage.clone().or(default.stage),
        };
        store.keyspace().check_run(&config)?;
        store.run_open(self.run, &config)?;
        changed(self.run, RunState::Open, out)
    }
}

fn completeness<S: AsRef<str>>(schema: &KeySchema, sources: &[S]) -> Result<Completeness> {
    Completeness::sources(schema, &units::parse_sources(schema, sources)?)
}

/// `calib=0,4,8`, or `calib=#12` for any twelve.
fn class_rule(schema: &KeySchema, rule: &str) -> Result<(String, Completeness)> {
    let wrong =
        || Error::invalid(format!("--class `{rule}`: expected CLASS=SOURCES or CLASS=#COUNT, such as calib=0,4,8"));
    let (class, what) = rule.split_once('=').ok_or_else(wrong)?;
    let completeness = match what.strip_prefix('#') {
        Some(count) => Completeness::Count(count.parse().map_err(|_| wrong())?),
        None => completeness(schema, &what.split(',').collect::<Vec<_>>())?,
    };
    Ok((class.to_owned(), completeness))
}

fn read_config(file: &Path, schema: &KeySchema) -> Result<RunConfig> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::invalid(format!("cannot read {}", file.display())).with_source(error))?;
    RunConfig::from_toml(&text, schema)
        .map_err(|error| Error::invalid(format!("{}: {}", file.display(), error.message())))
}

fn changed(run: u64, state: RunState, out: &mut Output) -> Result<Answer> {
    out.line(format!("run {run} · {}", state_name(state)))?;
    out.json(&serde_json::json!({ "run": run, "state": state }))?;
    Ok(Answer::Yes)
}

fn stop(store: &Opened, run: u64, out: &mut Output) -> Result<Answer> {
    is_known(store, run)?;
    store.run_stop(run).map_err(|error| match error.kind() {
        Kind::Invalid => error,
        _ => with_away(&error, "", &part::away(store, run)),
    })?;
    // Said before nodes are looked for that are down.
    out.line(format!("run {run} · {}", state_name(RunState::Stopped)))?;
    let away = part::away(store, run);
    for away in &away {
        out.line(format!("  {away}"))?;
    }
    out.json(&serde_json::json!({ "run": run, "state": RunState::Stopped, "away": away }))?;
    Ok(Answer::Yes)
}

/// An error with advice, and with the nodes that do not answer and what waits for each.
fn with_away(error: &Error, advice: &str, away: &[part::Away]) -> Error {
    let away: String = away.iter().map(|away| format!("; {away}")).collect();
    error.in_words(format!("{}{advice}{away}", error.message()))
}

/// Refuses a run that there is not. In a cluster its home says so: other nodes may be away.
fn is_known(store: &Opened, run: u64) -> Result<()> {
    match store {
        Either::There(Either::There(_)) => Ok(()),
        _ => known(store, run).map(drop),
    }
}

fn known(store: &Opened, run: u64) -> Result<RunStatus> {
    store.runs()?.into_iter().find(|status| status.run == run).ok_or_else(|| ledger::no_run(run))
}

fn prescale(
    store: &Opened,
    run: u64,
    (name, factor): (&str, PrescaleFactor),
    from: Option<&str>,
    out: &mut Output,
) -> Result<Answer> {
    let schema = store.schema();
    let from = from.map(|text| mask::event(schema, run, text)).transpose()?;
    store.prescale(run, name, factor, from.as_ref())?;
    let from = from.map(|from| schema.text(from.as_bytes()));
    let when = from.as_deref().map_or_else(|| "now on".to_owned(), |from| format!("event {from} on"));
    out.line(format!("run {run}: prescale {name} {factor} from {when}"))?;
    out.json(&serde_json::json!({ "run": run, "name": name, "factor": factor, "from": from }))?;
    Ok(Answer::Yes)
}

fn list(store: &Opened, out: &mut Output) -> Result<Answer> {
    let runs = store.runs()?;
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

fn close(store: &Opened, run: u64, dir: Option<&Path>, out: &mut Output) -> Result<Answer> {
    is_known(store, run)?;
    let closed = store.run_close(run).map_err(|error| match error.kind() {
        Kind::Unavailable => {
            let away = part::away(store, run);
            let advice = match away.is_empty() {
                true => "; stop the run, decide what is left (forebay take DIR -n 1000000 --reject), then close it",
                false => {
                    "; a close needs every node that has a part in the run: start those that are away, then close it"
                }
            };
            with_away(&error, advice, &away)
        }
        _ => error,
    })?;
    // Also by the address of one node a run is closed on all: what it leaves behind is theirs.
    let of_all = match store {
        Either::There(Either::Here(node)) => node.cluster().ok().map(|cluster| cluster.run_summary(run)),
        _ => None,
    };
    let summary = match of_all {
        Some(Ok(of_all)) => of_all,
        Some(Err(error)) => {
            out.note(format!("note: closed on all nodes; the account below is of one alone: {}", error.message()));
            closed
        }
        None => closed,
    };
    let file = dir.map(|dir| dir.join("runs").join(format!("run-{run}.json")));
    let answer = summary::show(&summary, RunState::Closed, file.as_deref(), out)?;
    if file.is_none() {
        let kept = format!("the server keeps it as runs/run-{run}.json in the store's directory");
        out.line(format!("summary: `forebay run PLACE summary {run}`; {kept}"))?;
    }
    Ok(answer)
}

fn summarize(store: &Opened, run: u64, dir: Option<&Path>, out: &mut Output) -> Result<Answer> {
    let state = known(store, run)?.state;
    let file = dir.filter(|_| state == RunState::Closed).map(|dir| dir.join("runs").join(format!("run-{run}.json")));
    summary::show(&store.run_summary(run)?, state, file.as_deref(), out)
}

fn watch(store: &Opened, run: u64, time: Option<Duration>, out: &mut Output) -> Result<Answer> {
    known(store, run)?;
    let mut watch = store.watch(run)?;
    let stop = signal::stop_flag()?;
    let start = Instant::now();
    loop {
        let left = time.map_or(Duration::MAX, |time| time.saturating_sub(start.elapsed()));
        // The first status comes at once.
        if let Some(status) = watch.next(left.min(Duration::from_millis(100)))? {
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
    let live = |state: LiveState| account.live[state].events;
    format!(
        "run {} · {:<7} · stored {} ({}) · open {} · ready {} · leased {} · debug {} · accepted {} · rejected {}{}{}{}",
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
        if status.masked.is_empty() { String::new() } else { format!(" · masked {}", status.masked.join(", ")) },
        status.inhibit.as_ref().map_or_else(String::new, |Inhibit { owner, scope, cause, .. }| format!(
            " · INHIBIT by {owner}, {scope}: {cause}"
        )),
        account.imbalance().map_or_else(String::new, |what| format!(" · NOT BALANCED: {what}"))
    )
}
