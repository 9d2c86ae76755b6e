//! Servers, readouts and filters as processes of one machine, and one ledger over all of them.
//!
//! ```text
//! this process ──starts──▶ forebay serve × nodes ◀──▶ forebay daq readout × n, forebay daq filter × m
//!      │                                                  ▲
//!      │                                                  └ a mover for each node ─▶ DIR/archive-1 …
//!      └ opens the run, is the movers, stops and closes the run, holds all reports against its ledger
//! ```
//!
//! *Invariants*: every process is ended, by its id, however this ends; what a process that was killed did not report is not
//! held against the ledger, everything else is.

use super::{FilterReport, ReadoutReport};
use crate::archive::{ArchiveSummary, ScenarioArchive};
use crate::progress::{Figure, Phase, Reporter, Told};
use crate::scenario::Summary;
use forebay_core::{Completeness, Error, EventStore, Kind, Ledger, MovedStore, Result, RunConfig};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The run of the scenario.
const RUN: u64 = 1;
/// How long everything may take to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is started.
#[derive(Clone, Debug)]
pub struct AllConfig {
    /// The program whose commands are started.
    pub program: PathBuf,
    /// Directory of the stores, of the sockets and of the log of all processes, there already and empty.
    pub dir: PathBuf,
    /// Bytes of the hot level.
    pub hot_bytes: u64,
    /// Servers: with more than one, nodes of a cluster.
    pub nodes: u32,
    /// The bytes of each source stay with one of the nodes, by a look-up table.
    pub table: bool,
    /// Readout processes.
    pub readouts: u32,
    /// Filter processes.
    pub filters: u32,
    /// Sources, shared out among the readouts.
    pub sources: u32,
    /// Bytes of a fragment.
    pub fragment_bytes: usize,
    /// Events.
    pub events: u64,
    /// Events a second; 0 is as fast as it goes.
    pub events_per_second: u64,
    /// Share of events that are accepted.
    pub accept: f64,
    /// Kill a filter, not gently, after a third of the events.
    pub kill_filter: bool,
    /// Kill a server, not gently, after two thirds of the events, and start it again.
    pub kill_server: bool,
}

/// What became of it.
#[derive(Clone, Debug, Serialize)]
pub struct AllSummary {
    /// What each readout says.
    pub readouts: Vec<ReadoutReport>,
    /// What each filter says that was not killed.
    pub filters: Vec<FilterReport>,
    /// Filters that were killed.
    pub filters_killed: u32,
    /// How often a server was killed.
    pub server_killed: u32,
    /// What the archives have.
    pub archive: ArchiveSummary,
    /// The account of the run.
    pub ledger: Ledger,
    /// What does not agree; empty where all does.
    pub problems: Vec<String>,
    /// Seconds from the first event to the closed run.
    pub seconds: f64,
}

/// A process of the scenario.
struct Process {
    child: Child,
    name: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        // A scenario that fails leaves no process behind.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Process {
    fn start(config: &AllConfig, name: &str, arguments: &[String]) -> Result<Process> {
        let unwritten =
            |error| Error::invalid(format!("{} cannot be written", config.dir.display())).with_source(error);
        let log = OpenOptions::new().create(true).append(true).open(config.dir.join("log")).map_err(unwritten)?;
        let child = Command::new(&config.program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| Error::internal(format!("{name} does not start")).with_source(error))?;
        Ok(Process { child, name: name.to_owned() })
    }

    fn output(&mut self) -> Result<ChildStdout> {
        self.child.stdout.take().ok_or_else(|| Error::internal(format!("{} has no output", self.name)))
    }

    /// Waits for its end; its report is the last line of its output.
    fn report<T: DeserializeOwned>(mut self, by: Instant) -> Result<T> {
        let mut text = String::new();
        let mut output = self.output()?;
        // Read while it runs: a process that fills its pipe would never end.
        let reading = std::thread::spawn(move || output.read_to_string(&mut text).map(|_| text));
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Instant::now() > by {
                return Err(Error::unavailable(format!("{} does not end", self.name)));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let failed = || Error::internal(format!("{} ended without a report; its errors are in the log", self.name));
        let text = reading.join().map_err(|_| failed())?.map_err(|error| failed().with_source(error))?;
        let last = text.lines().last().ok_or_else(failed)?;
        serde_json::from_str(last).map_err(|error| failed().with_source(error))
    }

    fn kill(&mut self) -> Result<()> {
        self.child
            .kill()
            .map_err(|error| Error::internal(format!("{} cannot be killed", self.name)).with_source(error))?;
        let _ = self.child.wait();
        Ok(())
    }
}

/// Runs the scenario; `connect` makes a client of an address. `told` gets the counts of complete and decided events.
///
/// # Errors
/// Where a process does not start, does not end, or says nothing; disagreements are in the summary.
pub fn run<S: EventStore + MovedStore + Clone>(
    config: &AllConfig,
    connect: impl Fn(&str) -> Result<S>,
    stop: &AtomicBool,
    told: &mut Told<'_>,
) -> Result<AllSummary> {
    make(config)?;
    let mut servers = (1..=config.nodes).map(|node| serve(config, node)).collect::<Result<Vec<_>>>()?;
    let address = (1..=config.nodes).map(|node| config.address(node)).collect::<Vec<_>>().join(",");
    let store = connect(&address)?;
    let schema = store.keyspace().schema.clone();
    let completeness = Completeness::first_sources(&schema, config.sources.into())?;
    store.run_open(RUN, &RunConfig::new(completeness, Duration::from_secs(30)))?;
    let mut filters = (0..config.filters).map(|n| filter(config, &address, n)).collect::<Result<Vec<_>>>()?;
    let from = Instant::now();
    let readouts = (0..config.readouts).map(|n| readout(config, &address, n)).collect::<Result<Vec<_>>>()?;
    let archive =
        |node| ScenarioArchive::new(connect(&config.address(node))?, &config.dir.join(format!("archive-{node}")), RUN);
    let mut archives = (1..=config.nodes).map(archive).collect::<Result<Vec<_>>>()?;
    let (mut filters_killed, mut server_killed) = (0, 0);
    // In proportion to the events: a slow machine gets the time that it needs, a process that hangs does not.
    let by = from + PATIENCE + Duration::from_secs(config.events / config.events_per_second.max(1000));
    let mut at_work = readouts;
    let mut done: Vec<ReadoutReport> = Vec::new();
    let mut stopped = false;
    let mut reporter = Reporter::new(told);
    loop {
        if stop.load(Ordering::Acquire) || Instant::now() > by {
            return Err(Error::unavailable("the scenario was ended before its end"));
        }
        let ledger = store.ledger(RUN)?;
        let decided = ledger.rejected.events + ledger.live.accepted.events + ledger.released.events;
        reporter.tick(Phase::Taking, |figures| {
            figures.set("complete", Figure::Count(ledger.complete));
            figures.set("decided", Figure::Count(decided));
            figures.set("of", Figure::Count(config.events));
            figures.set("fragments stored", Figure::Count(ledger.stored.fragments));
        });
        if config.kill_filter && filters_killed == 0 && filters.len() > 1 && decided > config.events / 3 {
            if let Some(mut filter) = filters.pop() {
                filter.kill()?;
            }
            filters_killed += 1;
        }
        if config.kill_server && server_killed == 0 && decided > config.events * 2 / 3 {
            // Of several the second one: where the first one leads the run, that has to go on as well.
            let node = config.nodes.min(2);
            let server = &mut servers[node as usize - 1];
            server.kill()?;
            // At the same socket: clients find it again by themselves.
            *server = serve(config, node)?;
            server_killed += 1;
        }
        archives.iter_mut().try_for_each(|archive| archive.round().map(drop))?;
        let mut still = Vec::new();
        for mut readout in at_work {
            match readout.child.try_wait() {
                Ok(None) => still.push(readout),
                _ => done.push(readout.report(by)?),
            }
        }
        at_work = still;
        if at_work.is_empty() && !stopped {
            store.run_stop(RUN)?;
            stopped = true;
        }
        // Looked at again: the first account was read before the run was stopped.
        if stopped && left(&ledger) == 0 && left(&store.ledger(RUN)?) == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let reports = filters.into_iter().map(|filter| filter.report(by)).collect::<Result<Vec<FilterReport>>>()?;
    let closed = loop {
        match store.run_close(RUN) {
            // Nodes hear of the last ends from each other.
            Err(error) if error.kind() == Kind::Unavailable && Instant::now() < by => {
                std::thread::sleep(Duration::from_millis(50));
            }
            closed => break closed?,
        }
    };
    let mut archive = ArchiveSummary::default();
    for one in &mut archives {
        archive.add(&one.end()?);
    }
    let mut summary = AllSummary {
        readouts: done,
        filters: reports,
        filters_killed,
        server_killed,
        archive,
        ledger: closed.ledger,
        problems: Vec::new(),
        seconds: from.elapsed().as_secs_f64(),
    };
    summary.audit(config);
    drop((store, archives));
    servers.into_iter().try_for_each(end_server)?;
    Ok(summary)
}

/// Events that are neither archived nor ended.
fn left(ledger: &Ledger) -> u64 {
    ledger.live.total().events - ledger.in_custody.events
}

impl AllConfig {
    fn file(&self, name: &str, node: u32) -> PathBuf {
        self.dir.join(format!("{name}-{node}"))
    }

    /// Where a node listens.
    fn address(&self, node: u32) -> String {
        format!("unix:{}", self.file("forebay", node).display())
    }

    fn map(&self) -> PathBuf {
        self.dir.join(if self.table { "table.json" } else { "map.json" })
    }

    /// Runs a command of the program to its end.
    fn run(&self, arguments: &[String]) -> Result<()> {
        let failed = || Error::internal(format!("`forebay {}` failed; its error is above", arguments.join(" ")));
        let ended = Command::new(&self.program).args(arguments).stdout(Stdio::null()).status();
        if ended.map_err(|error| failed().with_source(error))?.success() { Ok(()) } else { Err(failed()) }
    }
}

/// Makes the stores, and of several nodes the map.
fn make(config: &AllConfig) -> Result<()> {
    let text = |text: &str| text.to_owned();
    for node in 1..=config.nodes {
        let store = config.file("store", node).display().to_string();
        let mut create = vec![text("create"), store, text("--hot-bytes"), config.hot_bytes.to_string()];
        if config.nodes == 1 {
            let warm = format!("{}:128M", config.dir.join("warm").display());
            create.extend([text("--container"), text("4M"), text("--warm"), warm]);
        }
        config.run(&create)?;
    }
    if config.nodes == 1 {
        return Ok(());
    }
    let map = config.dir.join("map.json").display().to_string();
    let mut new = vec![text("cluster"), text("new"), map.clone()];
    for node in 1..=config.nodes {
        let store = config.file("store", node);
        new.extend([text("--node"), format!("n{node}={}={}", config.address(node), store.display())]);
    }
    config.run(&new)?;
    if config.table {
        let from_run = RUN.to_string();
        let to = config.map().display().to_string();
        let mut change = vec![text("cluster"), text("change"), map, to, text("--from-run"), from_run];
        for node in 1..=config.nodes {
            let share = |n: u32| config.sources * n / config.nodes;
            if share(node - 1) < share(node) {
                change.extend([text("--table"), format!("{}..{}={node}", share(node - 1), share(node) - 1)]);
            }
        }
        config.run(&change)?;
    }
    Ok(())
}

fn serve(config: &AllConfig, node: u32) -> Result<Process> {
    let text = |text: &str| text.to_owned();
    let mut arguments = vec![
        text("--json"),
        text("serve"),
        config.file("store", node).display().to_string(),
        text("--native"),
        config.address(node),
        text("--resp"),
        format!("unix:{}", config.file("resp", node).display()),
        text("--http"),
        text("127.0.0.1:0"),
    ];
    if config.nodes > 1 {
        arguments.extend([text("--cluster"), config.map().display().to_string()]);
    }
    let mut server = Process::start(config, &format!("server {node}"), &arguments)?;
    // It says where it listens once it does.
    let mut line = String::new();
    BufReader::new(server.output()?)
        .read_line(&mut line)
        .map_err(|error| Error::unavailable("a server says nothing").with_source(error))?;
    if !line.contains("listening") {
        return Err(Error::unavailable("a server did not start; its errors are in the log"));
    }
    Ok(server)
}

/// Ends a server in order.
fn end_server(mut server: Process) -> Result<()> {
    let process = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(process, rustix::process::Signal::TERM)
        .map_err(|error| Error::internal("the server cannot be told to end").with_source(error))?;
    let by = Instant::now() + PATIENCE;
    while Instant::now() < by {
        if let Ok(Some(status)) = server.child.try_wait() {
            // Ended by a signal, in order: so it says with its exit code.
            let well = status.success() || status.code() == Some(130);
            return if well { Ok(()) } else { Err(Error::internal(format!("the server ended with {status}"))) };
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(Error::unavailable("the server does not end"))
}

fn readout(config: &AllConfig, address: &str, number: u32) -> Result<Process> {
    let share = |n: u32| config.sources * n / config.readouts;
    let name = format!("readout-{number}");
    let arguments = [
        ("--connect", address.to_owned()),
        ("--name", name.clone()),
        ("--run", RUN.to_string()),
        ("--sources", format!("{}..{}", share(number), share(number + 1))),
        ("--fragment-bytes", config.fragment_bytes.to_string()),
        ("--events", config.events.to_string()),
        ("--events-per-second", config.events_per_second.to_string()),
    ];
    start(config, "readout", &name, &arguments)
}

fn filter(config: &AllConfig, address: &str, number: u32) -> Result<Process> {
    let name = format!("filter-{number}");
    let arguments = [("--connect", address.to_owned()), ("--accept", config.accept.to_string())];
    start(config, "filter", &name, &arguments)
}

fn start(config: &AllConfig, what: &str, name: &str, arguments: &[(&str, String)]) -> Result<Process> {
    let mut all = vec!["--json".to_owned(), "daq".to_owned(), what.to_owned()];
    all.extend(arguments.iter().flat_map(|(option, value)| [(*option).to_owned(), value.clone()]));
    if what == "filter" {
        all.push("--until-stopped".to_owned());
    }
    Process::start(config, name, &all)
}

impl Summary for AllSummary {
    fn claim(&self) -> &'static str {
        "balanced: everything adds up, and every process agrees with it"
    }

    fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }
}
