//! The `forebay` binary: reads the command line, runs one command, turns its answer into an exit code.
//!
//! ```text
//! args ──▶ one file per command ──▶ Output (text or JSON) ──▶ Answer ──▶ exit code
//! ```
//!
//! *On failure*: the error goes to stderr (as JSON with `--json`) and its kind becomes the exit code.
//! *Not here*: anything that a program could want as well; that lives in `forebay-store` and `forebay-daq`.

mod archive;
mod catalog;
mod cert;
mod check;
mod choose;
mod cluster;
mod connect;
mod containers;
mod create;
mod daq;
mod dataset;
mod debug;
mod demo;
mod device;
mod event;
mod get;
mod hold;
mod inspect;
mod keyspace;
mod ledger;
mod levels;
mod mask;
mod minidaq;
mod mover;
mod open;
mod output;
mod part;
mod plan;
mod play;
mod put;
mod range;
mod record;
mod release;
mod report;
mod ring;
mod rm;
mod run;
mod scenario;
mod serve;
mod serving;
mod signal;
mod sources;
mod stats;
mod summary;
mod take;
mod top;
mod units;
mod watch;
mod why;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use forebay_core::{Error, Result};
use output::{Answer, Output};
use std::ffi::OsString;
use std::process::ExitCode;

const ABOUT: &str = "\
Forebay holds detector data between readout and selection: a fragment is addressed by run/event/source.

Start here, nothing to set up (ten seconds of readout, event building and selection, then a ledger that balances):
  forebay demo

Then by hand, with a store in a directory of your choice:
  forebay create /tmp/first                  a store in this directory
  forebay run  /tmp/first open 1             run 1 takes fragments from now on
  forebay put  /tmp/first 1/42/0 hello       one fragment: run 1, event 42, source 0
  forebay get  /tmp/first 1/42/0             its bytes
  forebay take /tmp/first --accept physics   lease an event as a filter does, accept it
  forebay ledger /tmp/first 1                what became of every fragment of run 1
  forebay why  /tmp/first 1/42/7             why this fragment is, or is not, there

Each command explains itself with an example: forebay help put";

const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    the answer is no: absent, nothing ready, late, an unbalanced ledger, problems found, frames missed
  2    Invalid: fix the call               7    OutcomeUnknown: repeat the same call
  3    Conflict: decide                    8    Corrupt: use another copy, report
  4    Full: slow down                     9    Closed: reopen
  5    Unavailable: retry later            10   Internal: report a bug
  6    Fenced: refresh the lease           11   serve: what was served before is gone: bring it back, or decide
                                           130  ended by Ctrl-C";

/// Event-keyed store for particle-physics data acquisition.
#[derive(Parser)]
#[command(name = "forebay", version, long_about = ABOUT, after_help = EXIT_CODES, max_term_width = 120)]
struct Cli {
    /// Write JSON to stdout (one value; one per line where a command streams), and errors as JSON to stderr.
    #[arg(long, global = true, help_heading = "Options of every command")]
    json: bool,
    /// Serve what is left although something acknowledged is lost or may be: after a restart of the machine over a medium
    /// that does not survive it, without the hot level, without devices or devices.toml, with damaged records.
    #[arg(long, global = true, help_heading = "Options of every command")]
    accept_loss: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(Box<demo::Demo>),
    Create(create::Create),
    Keyspace(keyspace::Keyspace),
    Put(put::Put),
    Get(get::Get),
    Range(range::Range),
    Rm(rm::Rm),
    Event(event::Event),
    Take(take::Take),
    Run(run::Run),
    Ledger(ledger::Ledger),
    Why(why::Why),
    #[command(name = "sources")]
    SourcesOf(sources::SourcesOf),
    Watch(watch::Watch),
    Mask(mask::Mask),
    Unmask(mask::Unmask),
    Hold(hold::Hold),
    Debug(debug::Debug),
    Release(release::Release),
    Move(mover::Move),
    Archive(archive::Command),
    Daq(daq::Daq),
    Check(check::Check),
    Inspect(inspect::Inspect),
    Stats(stats::Stats),
    Top(top::Top),
    Containers(containers::Containers),
    Device(device::Command),
    Plan(plan::Plan),
    Window(ring::window::Window),
    Pin(ring::pin::Pin),
    Record(record::Record),
    Play(play::Play),
    Serve(Box<serve::Serve>),
    Cluster(cluster::Command),
    Cert(cert::Cert),
    Dataset(dataset::Command),
    Catalog(catalog::Command),
}

impl Command {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        match self {
            Command::Demo(command) => command.run(out),
            Command::Create(command) => command.run(out),
            Command::Keyspace(command) => command.run(out),
            Command::Put(command) => command.run(out),
            Command::Get(command) => command.run(out),
            Command::Range(command) => command.run(out),
            Command::Rm(command) => command.run(out),
            Command::Event(command) => command.run(out),
            Command::Take(command) => command.run(out),
            Command::Run(command) => command.run(out),
            Command::Ledger(command) => command.run(out),
            Command::Why(command) => command.run(out),
            Command::SourcesOf(command) => command.run(out),
            Command::Watch(command) => command.run(out),
            Command::Mask(command) => command.run(out),
            Command::Unmask(command) => command.run(out),
            Command::Hold(command) => command.run(out),
            Command::Debug(command) => command.run(out),
            Command::Release(command) => command.run(out),
            Command::Move(command) => command.run(out),
            Command::Archive(command) => command.run(out),
            Command::Daq(command) => command.run(out),
            Command::Check(command) => command.run(out),
            Command::Inspect(command) => command.run(out),
            Command::Stats(command) => command.run(out),
            Command::Top(command) => command.run(out),
            Command::Containers(command) => command.run(out),
            Command::Device(command) => command.run(out),
            Command::Plan(command) => command.run(out),
            Command::Window(command) => command.run(out),
            Command::Pin(command) => command.run(out),
            Command::Record(command) => command.run(out),
            Command::Play(command) => command.run(out),
            Command::Serve(command) => command.run(out),
            Command::Cluster(command) => command.run(out),
            Command::Cert(command) => command.run(out),
            Command::Dataset(command) => command.run(out),
            Command::Catalog(command) => command.run(out),
        }
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(place_first(std::env::args_os().collect())) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let mut out = Output::new(cli.json, cli.accept_loss);
    // Flushed before the exit code is chosen: an answer that was not written is a failure.
    let answer = cli.command.run(&mut out).and_then(|answer| out.finish().map(|()| answer));
    match answer {
        Ok(answer) => ExitCode::from(answer.exit_code()),
        Err(_) if out.reader_is_gone() => ExitCode::SUCCESS,
        Err(error) => failed(&error, cli.json),
    }
}

fn failed(error: &Error, json: bool) -> ExitCode {
    output::report(error, json);
    ExitCode::from(output::exit_code(error))
}

/// Puts the place that `--connect` gives, or `--from` of `move`, where a command has its place: `ledger --connect tcp://… 1` is
/// `ledger tcp://… 1`. The parser could not tell which of the positional arguments is missing.
fn place_first(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_word = |argument: &OsString| !argument.to_string_lossy().starts_with('-');
    let Some(mut at) = arguments.iter().skip(1).position(is_word).map(|at| at + 1) else { return arguments };
    let cli = Cli::command();
    let named = |command: &clap::Command, at: usize| {
        let name = arguments.get(at).and_then(|argument| argument.to_str());
        name.and_then(|name| command.find_subcommand(name).cloned())
    };
    let Some(mut command) = named(&cli, at) else { return arguments };
    // `archive audit` and others are commands of a command.
    while let Some(below) = named(&command, at + 1) {
        (command, at) = (below, at + 1);
    }
    if !command.get_positionals().any(|argument| argument.get_id() == "place") {
        return arguments;
    }
    let (command, flags) =
        (at, if command.get_name() == "move" { &["--connect", "--from"][..] } else { &["--connect"] });
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let is_flag = |argument: &OsString| {
        let text = argument.to_string_lossy();
        flags.contains(&text.split('=').next().unwrap_or_default())
    };
    let Some(at) = (command..end).find(|&at| is_flag(&arguments[at])) else { return arguments };
    let address = match arguments[at].to_string_lossy().split_once('=') {
        Some((_, address)) => OsString::from(address),
        None if at + 1 < end => arguments.remove(at + 1),
        // Left for the parser, which says what is wrong.
        _ => return arguments,
    };
    arguments.remove(at);
    arguments.insert(command + 1, address);
    arguments
}

/// Help and version are answers; anything else that the parser says is `Invalid`, whose exit code is the parser's too.
fn usage(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().any(|argument| argument == "--json");
    if json && error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let text = error.to_string();
        let message = text.trim_start_matches("error: ").trim_end();
        return failed(&Error::invalid(message), true);
    }
    // Nothing is left to do about a terminal that is gone.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Kind;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_kind_stands_in_the_exit_codes() {
        for kind in Kind::all() {
            let row = format!("{:<5}{}:", kind.exit_code(), kind.name());
            assert!(EXIT_CODES.contains(&row), "{row}");
        }
    }
}
