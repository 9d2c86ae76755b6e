//! `forebay daq`: the stand-alone producer and consumer, each a process against a server.
//!
//! *Not here*: what they do (`forebay_daq::processes`).

use crate::connect::Connect;
use crate::output::{Answer, Output};
use crate::{signal, units};
use clap::Subcommand;
use forebay_core::{Error, Result};
use forebay_daq::processes::{FilterConfig, ReadoutConfig, run_filter, run_readout};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const HELP: &str = "\
The producer and the consumer that stand alone: run as many as you like, on as many machines as you like, against one server.

Example: a server, two readouts of five sources each, and a filter that accepts a tenth:
  forebay create /tmp/first --sources-per-event 10 --hot-bytes 1G
  forebay serve /tmp/first &
  forebay daq filter --connect tcp://127.0.0.1:7440 --accept 0.1 &
  forebay daq readout --connect tcp://127.0.0.1:7440 --sources 0..5 --name crate-1 &
  forebay daq readout --connect tcp://127.0.0.1:7440 --sources 5..10 --name crate-2

`forebay demo --processes` does all of it on one machine and holds the reports against the ledger.";

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
    /// Run to put into; opened before the first put where it is not there.
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

/// A line a second for people who wait.
struct Ticker {
    next: Instant,
    quiet: bool,
}

impl Ticker {
    fn new(out: &Output) -> Ticker {
        Ticker { next: Instant::now() + Duration::from_secs(1), quiet: out.json }
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if !self.quiet && Instant::now() >= self.next {
            crate::output::note(line());
            self.next += Duration::from_secs(1);
        }
    }
}

impl Readout {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let stop = signal::stop_flag()?;
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
        let mut ticker = Ticker::new(out);
        // A producer is entered in the books of a run that is there. Who may not open runs finds one that somebody opened,
        // or hears from the producer's entry that there is none.
        if client.ledger(self.run).is_err()
            && let Err(error) = client.run_open(self.run, &client.keyspace().run)
            && !matches!(error.kind(), forebay_core::Kind::Conflict | forebay_core::Kind::Invalid)
        {
            return Err(error);
        }
        let report = run_readout(&client, &config, &stop, |report| {
            ticker.tell(|| {
                let rate = report.bytes as f64 / report.seconds.max(1e-3) / 1e6;
                format!("{} events, {} fragments, {rate:.0} MB/s", report.events, report.fragments)
            });
        })?;
        out.json(&report)?;
        out.line(format!(
            "{}: {} events, {} fragments, {} in {:.1} s ({:.0} MB/s); calls {} us p50, {} us p99; {} offers found no space, {} came late, {} unknown",
            report.name,
            report.events,
            report.fragments,
            units::bytes(report.bytes),
            report.seconds,
            report.bytes as f64 / report.seconds.max(1e-9) / 1e6,
            report.call_us_p50,
            report.call_us_p99,
            report.full,
            report.late,
            report.unknown
        ))?;
        Ok(if stop.load(Ordering::Relaxed) { Answer::Interrupted } else { Answer::Yes })
    }
}

impl Filter {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        if !(0.0..=1.0).contains(&self.accept) {
            return Err(Error::invalid(format!("--accept {}: expected a share from 0 to 1, such as 0.1", self.accept)));
        }
        let stop = signal::stop_flag()?;
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
        let mut ticker = Ticker::new(out);
        let report = run_filter(&client, &config, &stop, |report| {
            ticker.tell(|| {
                format!("{} events, {} accepted, {} rejected", report.events, report.accepted, report.rejected)
            });
        })?;
        out.json(&report)?;
        out.line(format!(
            "{} events in {:.1} s: {} accepted, {} rejected, {} taken over from others; {} fragments, {}; {} did not verify, {} leases were over",
            report.events,
            report.seconds,
            report.accepted,
            report.rejected,
            report.taken_over,
            report.fragments,
            units::bytes(report.bytes),
            report.corrupt,
            report.fenced
        ))?;
        // Ctrl-C is how a filter ends that is not told when to.
        let interrupted = stop.load(Ordering::Relaxed) && self.until_stopped;
        let well = report.corrupt == 0;
        Ok(if interrupted { Answer::Interrupted } else { Answer::found(well) })
    }
}
