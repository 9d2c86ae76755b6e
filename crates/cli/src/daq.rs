//! `forebay daq`: the stand-alone producer and consumer, each a process against a server.
//!
//! *Not here*: what they do (`forebay_daq::processes`).

use crate::connect::Connect;
use crate::output::{Answer, Output};
use crate::{scenario, units};
use clap::Subcommand;
use forebay_core::{Error, EventStore, Result};
use forebay_daq::Summary;
use forebay_daq::processes::{FilterConfig, ReadoutConfig, run_filter, run_readout};
use std::ops::Range;
use std::time::Duration;

const HELP: &str = "\
The stand-alone producer and consumer: run as many as you like, on as many machines as you like, against one server.

Example: a server, two readouts of five sources each, and a filter that accepts a tenth:
  forebay create /tmp/first --sources-per-event 10 --hot-bytes 1G
  forebay serve /tmp/first &
  forebay daq filter --connect tcp://127.0.0.1:7440 --accept 0.1 &
  forebay daq readout --connect tcp://127.0.0.1:7440 --sources 0..5 --name crate-1 &
  forebay daq readout --connect tcp://127.0.0.1:7440 --sources 5..10 --name crate-2

`forebay demo --processes` does all of it on one machine and compares the reports with the ledger.";

/// A readout or a filter as a process of its own, against a server.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Daq {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make fragments of a range of sources, and put them.
    Readout(Readout),
    /// Lease events, verify them, and decide.
    Filter(Filter),
}

#[derive(clap::Args)]
struct Readout {
    #[command(flatten)]
    connect: Connect,
    /// Name among the producers of the run.
    #[arg(long, default_value = "readout")]
    name: String,
    /// Run to put into; opened before the first put if it does not exist.
    #[arg(long, default_value_t = 1)]
    run: u64,
    /// Numbers of its sources, FIRST..END.
    #[arg(long, value_name = "FIRST..END", default_value = "0..10", value_parser = parse_range)]
    sources: Range<u32>,
    /// Size of a fragment.
    #[arg(long, value_name = "SIZE", default_value = "10KiB", value_parser = units::parse_len)]
    fragment_bytes: usize,
    /// Number of the first event.
    #[arg(long, default_value_t = 1)]
    first_event: u64,
    /// Number of events.
    #[arg(long, default_value_t = 10_000)]
    events: u64,
    /// Rate of events; 0 means as fast as it goes.
    #[arg(long, value_name = "RATE", default_value_t = 1000)]
    events_per_second: u64,
    /// Seed of the emulated frames.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long a fragment is offered again that finds no space, or no server.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = units::parse_duration)]
    patience: Duration,
}

#[derive(clap::Args)]
struct Filter {
    #[command(flatten)]
    connect: Connect,
    /// Events of one call.
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// Share of events that are accepted, 0 to 1.
    #[arg(long, default_value_t = 0.1)]
    accept: f64,
    /// Stream that they go to.
    #[arg(long, default_value = "physics")]
    stream: String,
    /// Stage of the selection; the first when not given.
    #[arg(long)]
    stage: Option<String>,
    /// Seed of the decisions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do not compare fragments with their checksums.
    #[arg(long)]
    no_verify: bool,
    /// Time that thinking about an event takes.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = units::parse_duration)]
    think: Duration,
    /// End once every run is stopped and decided; otherwise Ctrl-C ends it.
    #[arg(long)]
    until_stopped: bool,
    /// How long it goes on asking a server that is away.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = units::parse_duration)]
    patience: Duration,
}

fn parse_range(text: &str) -> std::result::Result<Range<u32>, String> {
    let wrong = || format!("`{text}`: expected FIRST..END, such as 0..10");
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    let (first, end) = (first.parse().map_err(|_| wrong())?, end.parse().map_err(|_| wrong())?);
    if first < end { Ok(first..end) } else { Err(wrong()) }
}

impl Daq {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        match &self.what {
            What::Readout(readout) => readout.run(out),
            What::Filter(filter) => filter.run(out),
        }
    }
}

impl Readout {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let client = self.connect.client(&self.name)?;
        let config = ReadoutConfig {
            name: self.name.clone(),
            run: self.run,
            sources: self.sources.clone(),
            fragment_bytes: self.fragment_bytes,
            events: self.first_event..self.first_event.saturating_add(self.events),
            events_per_second: self.events_per_second,
            seed: self.seed,
            patience: self.patience,
        };
        // The books of a run have an entry for each producer, so that the run has to be open before. A client that may not
        // open runs finds one that somebody opened, or learns from its entry that there is none.
        if client.ledger(self.run).is_err()
            && let Err(error) = client.run_open(self.run, &client.keyspace().run)
            && !matches!(error.kind(), forebay_core::Kind::Conflict | forebay_core::Kind::Invalid)
        {
            return Err(error);
        }
        scenario::run(out, |stop, told| run_readout(&client, &config, stop, told))
    }
}

impl Filter {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        if !(0.0..=1.0).contains(&self.accept) {
            return Err(Error::invalid(format!("--accept {}: expected a share from 0 to 1, such as 0.1", self.accept)));
        }
        let client = self.connect.client("filter")?;
        let config = FilterConfig {
            batch: self.batch.max(1),
            accept: self.accept,
            stream: self.stream.clone(),
            stage: self.stage.clone(),
            seed: self.seed,
            verify: !self.no_verify,
            think: self.think,
            until_stopped: self.until_stopped,
            patience: self.patience,
        };
        let (report, stopped) = scenario::execute(out, |stop, told| run_filter(&client, &config, stop, told))?;
        scenario::report(out, &report)?;
        // Ctrl-C is the end that a filter has where it is not told another.
        Ok(report.verdict(stopped && self.until_stopped).into())
    }
}
