//! `forebay catalog ls`: the datasets of a catalogue.

use super::{Place, show_found};
use crate::output::{Answer, Output};
use forebay_core::Result;
use forebay_dataset::catalogue::Query;

const HELP: &str = "\
List the datasets of a catalogue: name, version, events, when the version was committed, and where it is. The newest version of each \
name, or with --all all of them. Takes the same few requests whatever there is: nothing is listed in a bucket. Nothing found: exit \
code 1.

Example: all datasets; those of one scope with all their versions; where they are, for a script:
  forebay catalog ls /tmp/catalogue
  forebay catalog ls /tmp/catalogue 'user.ann:*' --all
  forebay catalog ls s3://physics/catalogue --json | jq -r .url

With --json: one object for each version.";

/// List the datasets of a catalogue.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct Ls {
    #[command(flatten)]
    place: Place,
    /// Only names that fit this pattern.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// All versions, not only the newest one of each name.
    #[arg(long)]
    all: bool,
}

impl Ls {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let found =
            self.place.open()?.find(&Query { name: self.name.clone(), newest: !self.all, ..Query::default() })?;
        show_found(out, &found)
    }
}
