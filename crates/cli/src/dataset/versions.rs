//! `forebay dataset versions`: the states that a dataset has had.

use super::Place;
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::Result;
use serde_json::{Value, json};

const HELP: &str = "\
List the versions of a dataset: number, when it was committed (by the clock of its writer), events and products of each table, and \
what made it. A version never changes; every one can be read with --version, and no command removes one.

Example: all of them; the number of the newest one, for a script:
  forebay dataset versions /tmp/ds
  forebay dataset versions /tmp/ds --json | jq -s 'last.version'

With --json: one object for each version, the oldest first.";

/// List the versions of a dataset.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct Versions {
    /// Where the dataset is: a path, or s3://bucket/prefix.
    #[arg(value_name = "URL")]
    url: String,
}

impl Versions {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let dataset = Place { url: self.url.clone(), version: None }.open(out)?;
        for version in dataset.versions() {
            let tables: serde_json::Map<String, Value> = version
                .tables
                .iter()
                .map(|(name, events, products)| (name.clone(), json!({ "events": events, "products": products })))
                .collect();
            out.json(&json!({
                "version": version.version,
                "time": forebay_core::utc(version.time_ms),
                "note": version.note,
                "tables": tables,
            }))?;
            let each = version.tables.iter().map(|(name, events, products)| {
                format!("{name}: {}, {}", units::plural(*events, "event"), units::plural(*products as u64, "product"))
            });
            let tables = each.collect::<Vec<_>>().join("; ");
            out.line(format!(
                "{:>4}  {}  {}  ({tables})",
                version.version,
                forebay_core::utc(version.time_ms),
                version.note
            ))?;
        }
        Ok(Answer::Yes)
    }
}
