//! `forebay catalog find`: datasets by what they have.

use super::{Place, publish, show_found};
use crate::output::{Answer, Output};
use forebay_core::Result;
use forebay_dataset::catalogue::Query;

const HELP: &str = "\
Find datasets by what they have: all that is asked must be there. In names and values * is any text and ? one character. Columns, files \
and lumi sections are looked up in an object for each kind and dataset, of which equal ones are stored once. Nothing found: exit code 1. \
An object of the catalogue that is damaged: its dataset is named on stderr, and the exit code is 8.

Example: muons made with some software; the dataset that a file went into; those with a lumi section:
  forebay catalog find /tmp/catalogue --column 'Muon_*' --tag 'software=CMSSW_14*'
  forebay catalog find /tmp/catalogue --file 8f6c0a11-3c4e-4d4c-9f0e-5d7a6f1b2c3d
  forebay catalog find /tmp/catalogue --run 355100 --lumi 54 --json | jq -r .url

With --json: one object for each version.";

/// Find datasets by columns, tags, files, runs.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct Find {
    #[command(flatten)]
    place: Place,
    /// Names that fit this pattern.
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// The dataset with this UUID, whatever it is called.
    #[arg(long, value_name = "UUID")]
    uuid: Option<String>,
    /// A tag whose value fits a pattern; may be given several times.
    #[arg(long = "tag", value_name = "KEY=PATTERN", value_parser = publish::tag)]
    tags: Vec<(String, String)>,
    /// A column whose name fits a pattern; may be given several times.
    #[arg(long = "column", value_name = "PATTERN")]
    columns: Vec<String>,
    /// A source file: its path, the last part of it, or its GUID.
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
    /// A run.
    #[arg(long, value_name = "N")]
    run: Option<u64>,
    /// A lumi section of the run.
    #[arg(long, value_name = "N", requires = "run")]
    lumi: Option<u64>,
    /// Only the newest version of each name.
    #[arg(long)]
    newest: bool,
}

impl Find {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let query = Query {
            name: self.name.clone(),
            uuid: self.uuid.clone(),
            tags: self.tags.iter().cloned().collect(),
            columns: self.columns.clone(),
            file: self.file.clone(),
            run: self.run,
            lumi: self.lumi,
            newest: self.newest,
        };
        show_found(out, &self.place.open()?.find(&query)?)
    }
}
