//! `forebay dataset ls`: the tables of a dataset.

use super::Place;
use super::progress::Progress;
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::Result;
use serde_json::json;

const HELP: &str = "\
List the tables of a dataset: events, products (columns), and the bytes that their values take where they are stored. The first \
table has the events; others are side tables, such as Runs. Facts that the writer noted follow, such as the source files.

Reads the root and all directories, no values.

Example: the newest version; version 0; only the number of events, for a script:
  forebay dataset ls /tmp/ds
  forebay dataset ls s3://physics/2026/zmumu --version 0
  forebay dataset ls /tmp/ds --json | jq '.tables[0].events'";

/// List tables, events, products and stored bytes.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct Ls {
    #[command(flatten)]
    place: Place,
}

impl Ls {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let dataset = self.place.open(out)?;
        let progress = Progress::start(out, "reading directories");
        let mut tables = Vec::new();
        for table in dataset.tables() {
            let bytes: u64 = dataset.stored_bytes(table)?.iter().sum();
            tables.push((table.to_owned(), dataset.events(table)?, dataset.products(table)?.len() as u64, bytes));
        }
        drop(progress);
        let versions = dataset.versions();
        let version = versions.iter().find(|known| known.version == dataset.version());
        let (time_ms, note) = version.map_or((0, ""), |version| (version.time_ms, version.note.as_str()));
        let table = |(name, events, products, bytes): &(String, u64, u64, u64)| json!({ "name": name, "events": events, "products": products, "stored_bytes": bytes });
        out.json(&json!({
            "url": dataset.url(),
            "uuid": dataset.uuid(),
            "version": dataset.version(),
            "versions": versions.len(),
            "time": forebay_core::utc(time_ms),
            "note": note,
            "tables": tables.iter().map(table).collect::<Vec<_>>(),
            "facts": dataset.facts(),
        }))?;
        let (number, last) = (dataset.version(), versions.len() - 1);
        out.line(format!(
            "{}: version {number} of 0 to {last}, {}, {note}",
            dataset.url(),
            forebay_core::utc(time_ms)
        ))?;
        let width = tables.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
        for (name, events, products, bytes) in &tables {
            let (events, products) = (units::plural(*events, "event"), units::plural(*products, "product"));
            out.line(format!("  {name:<width$}  {events:>16}  {products:>14}  {:>10}", units::bytes(*bytes)))?;
        }
        for (name, value) in dataset.facts() {
            out.line(format!("  {name}: {value}"))?;
        }
        Ok(Answer::Yes)
    }
}
