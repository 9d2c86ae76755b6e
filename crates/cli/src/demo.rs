//! `forebay demo`: readout, event building and selection in one process, with nothing to set up.
//!
//! *Not here*: the scenario itself (`forebay_daq::demo`); this file is its command line.

use crate::connect::client_of;
use crate::minidaq::{self, MiniDaqOptions};
use crate::output::{Answer, Output};
use crate::{levels, scenario, units};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use forebay_core::{Error, Result};
use forebay_daq::Summary;
use forebay_daq::demo::{self, DemoConfig, DemoDevice, Duty, Profile};
use forebay_daq::minidaq::MiniDaqConfig;
use forebay_daq::processes::{AllConfig, run_all};
use std::path::PathBuf;

const HELP: &str = "\
The whole path in one process: readout threads put detector frames of many sources per event into an embedded store; \
complete events become ready. Filter threads select in two stages: `fast` reads a tenth of the sources of every event and \
rejects most of them, `final` reads what is left as a whole, verifies every byte, writes a result and accepts into the \
streams physics and calib. What is accepted goes down to a warm level, a small one in the store's directory, and a mover takes it \
to an archive in the same directory, with proof. In the end: throughput per role, latencies, and a ledger that must balance, else the \
exit code is 1. Ctrl-C ends it in order, with the summary and exit code 130.

Without --input an emulator makes WIBEth frames with realistic noise. With it, recorded frames are replayed, the file \
cycled and timestamps rewritten.

Example: ten seconds; the fragments of ATLAS at a steady rate; recorded ProtoDUNE frames; a beam that is on for half of the time, with a farm that is sized \
for the mean: the store takes up what the farm is behind, without dead time, and every gap empties it, else the exit code \
is 1:
  forebay demo
  forebay demo --profile atlas --events-per-second 500 --seconds 30
  forebay demo --input frames.bin --sources 10 --json > summary.json
  forebay demo --duty 50% --seconds 12

A server, two readouts and two filters as processes of their own, one of which is killed:
  forebay demo --processes --kill-filter
Three servers as nodes of a cluster, one of which is killed; the bytes of each source stay with one of them:
  forebay demo --processes --nodes 3 --table --kill-server

The warm level on two disks, and a store of one level:
  forebay demo --warm /disk1/try:4G --warm /disk2/try:4G --seconds 30
  forebay demo --warm-bytes 0

The profile dune is DUNE's MiniDAQ instead: links at their rate in a ring, triggers, data requests, trigger records with \
DUNE's headers, inhibit by records in flight (docs/minidaq.md):
  forebay demo --profile dune --seconds 10
  forebay demo --profile dune --input frames.bin --rate-scale 0.25

A profile sets sizes that people know; every option given beside it wins. The progress line goes to stderr (with --json \
only where that is a terminal).";

/// Show the whole path: readout, events, selection, ledger.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Demo {
    /// How long readout runs.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Sizes of an experiment.
    #[arg(long, value_name = "NAME", value_parser = profiles())]
    profile: Option<Scenario>,
    /// Sources per event.
    #[arg(long, value_name = "N")]
    sources: Option<u32>,
    /// Size of a fragment, such as 464 or 10KiB; 0 takes one frame.
    #[arg(long, value_name = "SIZE", value_parser = units::parse_len)]
    fragment_bytes: Option<usize>,
    /// Rate of events; 0 means as fast as it goes.
    #[arg(long, value_name = "RATE")]
    events_per_second: Option<u64>,
    /// Beam for this part of the time, such as 50%, in periods of 4 s or what is named: 50%/10s. The rate is that while
    /// there is beam.
    #[arg(long, value_name = "SHARE[/PERIOD]", value_parser = parse_duty)]
    duty: Option<Duty>,
    /// Most events per second that the selection begins; with --duty 1.15 times the mean rate when not given.
    #[arg(long, value_name = "RATE")]
    farm_events_per_second: Option<f64>,
    /// Threads that put fragments.
    #[arg(long, value_name = "N")]
    readout_threads: Option<usize>,
    /// Threads that take events and decide.
    #[arg(long, value_name = "N")]
    filter_threads: Option<usize>,
    /// Share of events that the first stage passes on, which are then accepted, 0 to 1.
    #[arg(long, value_name = "SHARE")]
    accept: Option<f64>,
    /// Share of the sources that the first stage reads before it decides, 0 to 1; at least one source.
    #[arg(long, value_name = "SHARE")]
    fast_fraction: Option<f64>,
    /// Directory for the store, kept afterwards; memory, gone afterwards, when not given.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Size of the hot level, such as 64M or 2G.
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    hot_bytes: Option<u64>,
    /// A device of the warm level: a directory, with a size after a colon (128M when not given); may be repeated. Without
    /// --dir nothing stays there. When not given, the level lies in the store's directory.
    #[arg(long, value_name = "DIR[:SIZE]", value_parser = levels::parse_dir)]
    warm: Vec<levels::WarmDir>,
    /// Size of the warm level in the store's directory; 0 for none.
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes, conflicts_with = "warm")]
    warm_bytes: Option<u64>,
    /// Recorded detector frames to replay (WIB1 of 464 B or WIBEth of 7200 B).
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// A server, readouts and filters as processes of their own, and one ledger over all of them; --readout-threads and
    /// --filter-threads are then the numbers of processes.
    #[arg(long, conflicts_with_all = ["profile", "duty", "input", "warm", "warm_bytes"])]
    processes: bool,
    /// With --processes: this many servers, as nodes of a cluster. Their stores have no warm level.
    #[arg(long, value_name = "N", requires = "processes", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    nodes: u32,
    /// With --nodes: the bytes of each source stay with one of the nodes, by a look-up table.
    #[arg(long, requires = "nodes")]
    table: bool,
    /// With --processes: kill a filter on the way, not gently.
    #[arg(long, requires = "processes")]
    kill_filter: bool,
    /// With --processes: kill the server on the way, or one of several, not gently, and start it again.
    #[arg(long, requires = "processes")]
    kill_server: bool,
    /// Seed of emulated frames and of the decisions.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    minidaq: MiniDaqOptions,
}

/// What a profile runs.
#[derive(Clone, Copy)]
enum Scenario {
    Events(Profile),
    MiniDaq,
}

impl Demo {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        self.check()?;
        if self.processes {
            return self.run_processes(out);
        }
        match self.profile {
            Some(Scenario::MiniDaq) => self.run_minidaq(out),
            Some(Scenario::Events(profile)) => self.run_events(out, DemoConfig::for_profile(profile)),
            None => self.run_events(out, DemoConfig::default()),
        }
    }

    fn run_minidaq(&self, out: &mut Output) -> Result<Answer> {
        let others = [
            ("--sources", self.sources.is_some()),
            ("--fragment-bytes", self.fragment_bytes.is_some()),
            ("--events-per-second", self.events_per_second.is_some()),
            ("--duty", self.duty.is_some()),
            ("--farm-events-per-second", self.farm_events_per_second.is_some()),
            ("--fast-fraction", self.fast_fraction.is_some()),
            ("--warm", !self.warm.is_empty()),
            ("--warm-bytes", self.warm_bytes.is_some()),
        ];
        let given: Vec<&str> = others.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
        minidaq::refuse("--profile dune", &given)?;
        let base = MiniDaqConfig::default();
        let config = self.minidaq.over(MiniDaqConfig {
            seconds: self.seconds.unwrap_or(base.seconds),
            readout_threads: self.readout_threads.unwrap_or(base.readout_threads),
            filter_threads: self.filter_threads.unwrap_or(base.filter_threads),
            accept: self.accept.unwrap_or(base.accept),
            dir: self.dir.clone(),
            hot_bytes: self.hot_bytes,
            input: self.input.clone(),
            seed: self.seed.unwrap_or(base.seed),
            ..base
        });
        scenario::run(out, |stop, told| forebay_daq::minidaq::run(&config, stop, told))
    }

    fn run_processes(&self, out: &mut Output) -> Result<Answer> {
        let program = std::env::current_exe()
            .map_err(|error| Error::internal("this program does not find itself").with_source(error))?;
        let own = self.dir.is_none();
        let dir = self.dir.clone().unwrap_or_else(|| {
            let memory = PathBuf::from("/dev/shm");
            let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
            parent.join(format!("forebay-demo-{}", std::process::id()))
        });
        std::fs::create_dir_all(&dir)
            .map_err(|error| Error::invalid(format!("{} cannot be made", dir.display())).with_source(error))?;
        let rate = self.events_per_second.unwrap_or(1000);
        let config = AllConfig {
            program,
            dir: dir.clone(),
            hot_bytes: self.hot_bytes.unwrap_or(if self.nodes == 1 { 1 << 30 } else { 256 << 20 }),
            nodes: self.nodes,
            table: self.table && self.nodes > 1,
            readouts: self.readout_threads.unwrap_or(2).max(1) as u32,
            filters: self.filter_threads.unwrap_or(2).max(1) as u32,
            sources: self.sources.unwrap_or(10),
            fragment_bytes: self.fragment_bytes.unwrap_or(7200),
            events: (self.seconds.unwrap_or(10.0) * rate.max(1) as f64) as u64,
            events_per_second: rate,
            accept: self.accept.unwrap_or(0.1),
            kill_filter: self.kill_filter,
            kill_server: self.kill_server,
        };
        let connect = |address: &str| {
            let options = forebay_client::Options { name: "demo".to_owned(), ..forebay_client::Options::default() };
            client_of(address, options)
        };
        let ran = scenario::execute(out, |stop, told| run_all(&config, connect, stop, told));
        match &ran {
            Err(_) => out.note(format!("forebay: what the processes said is in {}", dir.join("log").display())),
            Ok(_) if own => drop(std::fs::remove_dir_all(&dir)),
            Ok(_) => {}
        }
        let (summary, stopped) = ran?;
        scenario::report(out, &summary)?;
        Ok(summary.verdict(stopped).into())
    }

    fn run_events(&self, out: &mut Output, base: DemoConfig) -> Result<Answer> {
        minidaq::refuse("a profile other than dune", &self.minidaq.given())?;
        let config = self.config(base);
        scenario::run(out, |stop, told| demo::run(&config, stop, told))
    }

    fn check(&self) -> Result<()> {
        if let Some(seconds) = self.seconds.filter(|seconds| !seconds.is_finite() || *seconds <= 0.0) {
            return Err(Error::invalid(format!("--seconds {seconds}: expected a time of more than 0")));
        }
        for (name, share) in [("accept", self.accept), ("fast-fraction", self.fast_fraction)] {
            if let Some(share) = share.filter(|share| !(0.0..=1.0).contains(share)) {
                return Err(Error::invalid(format!("--{name} {share}: expected a share from 0 to 1, such as 0.1")));
            }
        }
        Ok(())
    }

    fn config(&self, base: DemoConfig) -> DemoConfig {
        let device =
            |dir: &levels::WarmDir| DemoDevice { path: dir.path.clone(), bytes: dir.bytes.unwrap_or(base.warm_bytes) };
        DemoConfig {
            seconds: self.seconds.unwrap_or(base.seconds),
            sources: self.sources.unwrap_or(base.sources),
            fragment_bytes: self.fragment_bytes.unwrap_or(base.fragment_bytes),
            events_per_second: self.events_per_second.unwrap_or(base.events_per_second),
            duty: self.duty,
            farm_events_per_second: self.farm_events_per_second.unwrap_or(base.farm_events_per_second),
            readout_threads: self.readout_threads.unwrap_or(base.readout_threads),
            filter_threads: self.filter_threads.unwrap_or(base.filter_threads),
            accept: self.accept.unwrap_or(base.accept),
            fast_fraction: self.fast_fraction.unwrap_or(base.fast_fraction),
            dir: self.dir.clone(),
            hot_bytes: self.hot_bytes.unwrap_or(base.hot_bytes),
            warm: self.warm.iter().map(device).collect(),
            warm_bytes: self.warm_bytes.unwrap_or(base.warm_bytes),
            input: self.input.clone(),
            seed: self.seed.unwrap_or(base.seed),
            ..base
        }
    }
}

/// Period of a beam whose share alone is given.
const DUTY_PERIOD_S: f64 = 4.0;

fn parse_duty(text: &str) -> std::result::Result<Duty, String> {
    let (share, period) = text.split_once('/').map_or((text, None), |(share, period)| (share, Some(period)));
    let period = period.map(units::parse_duration).transpose()?;
    let period_s = period.map_or(DUTY_PERIOD_S, |period| period.as_secs_f64());
    Ok(Duty { share: units::parse_share(share)?, period_s })
}

/// Profiles by name, each with its sizes in the help.
fn profiles() -> impl TypedValueParser<Value = Scenario> {
    let events = Profile::ALL.map(|profile| PossibleValue::new(profile.name()).help(profile.describe()));
    let all = events.into_iter().chain([PossibleValue::new(minidaq::PROFILE).help(minidaq::DESCRIPTION)]);
    PossibleValuesParser::new(all).try_map(|name| match name.as_str() {
        minidaq::PROFILE => Ok(Scenario::MiniDaq),
        other => other.parse::<Profile>().map(Scenario::Events),
    })
}
