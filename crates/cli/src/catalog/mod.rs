//! `forebay catalog`: a catalogue of datasets in a directory or in a bucket of S3, from the command line.
//!
//! *On failure*: Ctrl-C ends a command at once. A publication that is cut off is there whole or not at all; a repeat tells.

mod changes;
mod find;
mod ls;
mod publish;
mod show;
mod verify;
mod withdraw;

use crate::output::{Answer, Output};
use crate::{signal, units};
use clap::Subcommand;
use forebay_core::{Error, Result};
use forebay_dataset::catalogue::{Catalogue, Found, Listed};
use forebay_dataset::storage::Options;
use serde_json::Value;

const HELP: &str = "\
A catalogue says which datasets there are: versions, columns, parents, source files, lumi sections, tags, checksums. It is a place for \
objects: a path, or s3://bucket/prefix, with no server and nothing to set up; the first publication makes it. Many may publish at the \
same time. S3 takes its keys as for forebay dataset.

Example: publish a dataset, find it by what it has, and follow what others publish:
  forebay catalog publish /tmp/catalogue user.ann:z_peak /tmp/ds --software CMSSW_14_0_1
  forebay catalog ls /tmp/catalogue
  forebay catalog find /tmp/catalogue --column 'Muon_*' --run 355100
  forebay catalog show /tmp/catalogue user.ann:z_peak --columns
  forebay catalog changes /tmp/catalogue --since 0 --json
  forebay catalog withdraw /tmp/catalogue user.ann:z_peak --version 0 --why 'wrong calibration'

Each command explains itself with an example: forebay catalog help find.";

/// A catalogue of datasets: publish, list, find, show, withdraw, follow.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Publish(publish::Publish),
    Ls(ls::Ls),
    Find(find::Find),
    Show(show::Show),
    Withdraw(withdraw::Withdraw),
    Changes(changes::ChangesOf),
    Verify(verify::Verify),
}

impl Command {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        if let Action::Changes(command) = &self.action {
            // Follows until it is told to end.
            return command.run(out);
        }
        signal::exit_at_once()?;
        match &self.action {
            Action::Publish(command) => command.run(out),
            Action::Ls(command) => command.run(out),
            Action::Find(command) => command.run(out),
            Action::Show(command) => command.run(out),
            Action::Withdraw(command) => command.run(out),
            Action::Verify(command) => command.run(out),
            Action::Changes(_) => Err(Error::internal("a command that ran already")),
        }
    }
}

/// Where a catalogue is.
#[derive(clap::Args)]
struct Place {
    /// Where the catalogue is: a path, or s3://bucket/prefix.
    #[arg(value_name = "CATALOGUE")]
    catalogue: String,
}

impl Place {
    fn open(&self) -> Result<Catalogue> {
        Catalogue::open(&self.catalogue, &Options::default())
    }
}

/// An entry as JSON: its own members, and the number of its change.
fn json_of(listed: &Listed) -> Result<Value> {
    let to_json = |error| Error::internal("an entry to JSON").with_source(error);
    let mut value = serde_json::to_value(listed.entry.as_ref()).map_err(to_json)?;
    value["change"] = listed.change.into();
    Ok(value)
}

/// An entry as a line.
fn line_of(listed: &Listed) -> String {
    let entry = &listed.entry;
    let events = units::plural(entry.events(), "event");
    plain(&format!("{} @{}  {events}  {}  {}", entry.name, entry.version, forebay_core::utc(entry.time_ms), entry.url))
}

/// Shows what a search found; whether anything was found.
fn show_found(out: &mut Output, found: &Found) -> Result<Answer> {
    for listed in &found.entries {
        out.json(&json_of(listed)?)?;
        out.line(line_of(listed))?;
    }
    for (listed, error) in &found.unread {
        out.note(plain(&format!(
            "forebay: {} @{} could not be looked at: {error}",
            listed.entry.name, listed.entry.version
        )));
    }
    match found.unread.len() {
        0 => Ok(Answer::found(!found.entries.is_empty())),
        n => Err(Error::corrupt(format!("damaged parts of the catalogue hide whether {n} more of its versions fit"))),
    }
}

/// Text that others wrote, without what a terminal would obey.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
