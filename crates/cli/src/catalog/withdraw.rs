//! `forebay catalog withdraw`: a version is found no more.

use super::Place;
use crate::output::{Answer, Output};
use forebay_core::Result;
use serde_json::json;

const HELP: &str = "\
Withdraw a version of a dataset from a catalogue: it is found no more, and those who follow the changes hear why. The dataset itself is \
as it was, and can be published again. Nothing of that name and version: exit code 1.

Example:
  forebay catalog withdraw /tmp/catalogue user.ann:z_peak --version 0 --why 'wrong calibration'

With --json: change, the number of the change, or null.";

/// Withdraw a version of a dataset.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct Withdraw {
    #[command(flatten)]
    place: Place,
    /// Its name: scope:name.
    #[arg(value_name = "NAME")]
    name: String,
    /// Version to withdraw.
    #[arg(long, value_name = "N")]
    version: u32,
    /// Why, for those who follow the changes.
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

impl Withdraw {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let catalogue = self.place.open()?;
        let change = catalogue.withdraw(&self.name, self.version, &self.why)?;
        out.json(&json!({ "change": change }))?;
        match change {
            Some(change) => out.line(format!("withdrawn with change {change} of {}", catalogue.url()))?,
            None => out.note(format!("forebay: {} has no version {} of {}", catalogue.url(), self.version, self.name)),
        }
        Ok(Answer::found(change.is_some()))
    }
}
