//! `forebay dataset`: datasets in a directory or in a bucket of S3, from the command line.
//!
//! ```text
//! ls, show, cat, verify, versions, lumis, gc, compact, reclass, refer ──▶ forebay-dataset
//! import, add, export ──▶ python3 -m forebay (the Python package reads and writes ROOT and Parquet)
//! ```
//!
//! *On failure*: Ctrl-C ends a command at once. What was being written is part of no version; `gc` removes it.

mod cat;
mod compact;
mod gc;
mod ls;
mod lumis;
mod pattern;
pub(crate) mod progress;
mod python;
mod reclass;
mod show;
mod values;
mod verify;
mod versions;

use crate::output::{Answer, Output};
use crate::signal;
use clap::Subcommand;
use forebay_core::{Error, Result};
use forebay_dataset::{Dataset, ReadOptions};
use progress::Progress;

const HELP: &str = "\
Datasets: events as compressed columns, striped over objects in a directory or in a bucket of S3, in versions that never change. \
A URL is a path, or s3://bucket/prefix. S3 takes its keys and its server from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, \
AWS_ENDPOINT_URL and AWS_REGION, or from AWS_PROFILE in ~/.aws.

Example: from a ROOT file to numbers, and a look at what it takes:
  forebay dataset import nanoaod.root /tmp/ds
  forebay dataset ls /tmp/ds
  forebay dataset show /tmp/ds 'Muon_*'
  forebay dataset cat /tmp/ds nMuon Muon_pt --events 0:10
  forebay dataset verify /tmp/ds
  forebay dataset export /tmp/ds copy.parquet

Each command explains itself with an example: forebay dataset help cat. With --json each one writes JSON, and no progress \
unless stderr is a terminal.";

/// Datasets of columns in a directory or in S3: import, look, read, verify, export.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Import(python::Import),
    Ls(ls::Ls),
    Show(show::Show),
    Cat(cat::Cat),
    Verify(verify::Verify),
    Versions(versions::Versions),
    Lumis(lumis::LumisOf),
    Add(python::Add),
    Gc(gc::Gc),
    Compact(compact::Compact),
    Reclass(reclass::Reclass),
    Refer(reclass::Refer),
    Export(python::Export),
}

impl Command {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        match &self.action {
            // These wait for a process of their own, which has to end in order.
            Action::Import(command) => return command.run(out),
            Action::Add(command) => return command.run(out),
            Action::Export(command) => return command.run(out),
            _ => signal::exit_at_once()?,
        }
        match &self.action {
            Action::Ls(command) => command.run(out),
            Action::Show(command) => command.run(out),
            Action::Cat(command) => command.run(out),
            Action::Verify(command) => command.run(out),
            Action::Versions(command) => command.run(out),
            Action::Lumis(command) => command.run(out),
            Action::Gc(command) => command.run(out),
            Action::Compact(command) => command.run(out),
            Action::Reclass(command) => command.run(out),
            Action::Refer(command) => command.run(out),
            Action::Import(_) | Action::Add(_) | Action::Export(_) => {
                Err(Error::internal("a command that ran already"))
            }
        }
    }
}

/// A dataset, as the commands that read take it.
#[derive(clap::Args)]
struct Place {
    /// Where the dataset is: a path, or s3://bucket/prefix.
    #[arg(value_name = "URL")]
    url: String,
    /// Version to read; the newest one when not given.
    #[arg(long, value_name = "N")]
    version: Option<u32>,
}

impl Place {
    /// Opens the dataset at the version; says so where that takes long.
    fn open(&self, out: &Output) -> Result<Dataset> {
        let _progress = Progress::start(out, &format!("opening {}", self.url));
        let dataset = Dataset::open(&self.url, ReadOptions::default())?;
        self.version.map_or(Ok(dataset.clone()), |version| dataset.at(version))
    }
}

/// The table with this name, or the first one, which has the events.
fn table_or_events(dataset: &Dataset, table: Option<&str>) -> Result<String> {
    match (table, dataset.tables().first()) {
        (Some(table), _) => Ok(table.to_owned()),
        (None, Some(events)) => Ok((*events).to_owned()),
        (None, None) => Err(Error::invalid(format!("{}: version {} has no tables", dataset.url(), dataset.version()))),
    }
}
