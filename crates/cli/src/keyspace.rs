//! `forebay keyspace`: the keyspace of a store, and changes of its policies.

use crate::open::{Close, Place, explain, holds_store, no_store};
use crate::output::{Answer, Output};
use clap::Subcommand;
use forebay_core::{Error, EventStore, Keyspace as Policies, Result};
use forebay_store::Store;
use serde_json::json;
use std::path::{Path, PathBuf};

const HELP: &str = "\
A store keeps the keyspace that it was made with. Policies that nothing stored depends on can be changed while the store is \
closed: auto_open_runs, deliveries_max, fragment_bytes_max, groups, streams, [delivery] and [run] (for runs that are opened later). Any \
other difference is refused, and nothing changes.

Example: the keyspace as a file, a change in it, and back:
  forebay keyspace show /tmp/first > keyspace.toml
  forebay keyspace set /tmp/first keyspace.toml";

/// Show a store's keyspace; change policies of a closed store.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Keyspace {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// The keyspace as a file. Example: forebay keyspace show /tmp/first
    Show {
        #[command(flatten)]
        store: Place,
    },
    /// Change policies of a closed store to those of a file. Example: forebay keyspace set /tmp/first keyspace.toml
    Set {
        /// Directory of the store, which no process may have open.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Keyspace file (TOML) that differs only in policies.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

impl Keyspace {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        match &self.action {
            Action::Show { store } => show(store, out),
            Action::Set { dir, file } => set(dir, file, out),
        }
    }
}

fn show(place: &Place, out: &mut Output) -> Result<Answer> {
    let store = place.open(out)?;
    let text = store.keyspace().to_toml()?;
    store.close()?;
    out.json(&json!({ "keyspace": text }))?;
    out.line(text.trim_end())?;
    Ok(Answer::Yes)
}

fn set(dir: &Path, file: &Path, out: &mut Output) -> Result<Answer> {
    if !holds_store(dir) {
        return Err(no_store(dir));
    }
    let name = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::invalid(format!("cannot read {name}")).with_source(error))?;
    let policies =
        Policies::from_toml(&text).map_err(|error| Error::invalid(format!("{name}: {}", error.message())))?;
    let changes = Store::change_policies(dir, &policies).map_err(|error| explain(dir, error))?;
    out.json(&json!({ "changed": changes }))?;
    match &changes[..] {
        [] => out.line("nothing differs")?,
        changes => out.line(format!("changed: {}; in force from the next opening", changes.join(", ")))?,
    }
    Ok(Answer::Yes)
}
