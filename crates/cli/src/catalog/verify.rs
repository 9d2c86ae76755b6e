//! `forebay catalog verify`: reads every object of a catalogue and names what is damaged.

use super::{Place, plain};
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::Result;
use serde_json::json;

const HELP: &str = "\
Read every change and every page of a catalogue, and the parts of the versions that are in it, and name the objects that are damaged or \
missing. A page must say what the changes before it made. Changes nothing. Damage: exit code 1.

Example: after a copy; what is damaged, for a script:
  forebay catalog verify s3://physics/catalogue
  forebay catalog verify /tmp/catalogue --json | jq -r '.damages[]'";

/// Verify every object of a catalogue.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct Verify {
    #[command(flatten)]
    place: Place,
}

impl Verify {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let catalogue = self.place.open()?;
        let checked = catalogue.verify()?;
        let damages: Vec<String> = checked.damages.iter().map(|error| plain(error.message())).collect();
        out.json(&json!({
            "url": catalogue.url(),
            "changes": checked.changes,
            "pages": checked.pages,
            "blobs": checked.blobs,
            "damages": damages,
        }))?;
        let (changes, pages) = (units::plural(checked.changes, "change"), units::plural(checked.pages, "page"));
        out.line(format!("{}: {changes}, {pages}, {}", catalogue.url(), units::plural(checked.blobs, "blob")))?;
        for damage in &damages {
            out.line(format!("  damaged: {damage}"))?;
        }
        if damages.is_empty() {
            out.line("no damage found")?;
        }
        Ok(Answer::found(damages.is_empty()))
    }
}
