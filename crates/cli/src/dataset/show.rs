//! `forebay dataset show`: the columns of a table.

use super::progress::Progress;
use super::{Place, pattern, table_or_events};
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::Result;
use forebay_dataset::Product;
use serde_json::json;

const HELP: &str = "\
Show the columns of a table: name, type, the bytes that they take where they are stored, and the title that their origin gave \
them. A type is a kind of number (float32), list(T), option(T) for what may be missing, fixed(N,T), text, bytes, or a record of \
named fields. Counts of a collection are stored once and counted for its first column.

FILTER is a name, or a pattern with * (any text) and ? (one character). Where no column fits, the exit code is 1.

Example: all columns; those of muons; the ten largest, for a script:
  forebay dataset show /tmp/ds
  forebay dataset show /tmp/ds 'Muon_*'
  forebay dataset show /tmp/ds --json | jq -s 'sort_by(-.stored_bytes)[:10]'

With --json: one object for each column, with counter, type_name and notes where its origin said them.";

/// Show columns with type, stored bytes and title.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct Show {
    #[command(flatten)]
    place: Place,
    /// Only columns whose names fit this pattern.
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// Table; the one with the events when not given.
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,
}

impl Show {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let dataset = self.place.open(out)?;
        let table = table_or_events(&dataset, self.table.as_deref())?;
        let progress = Progress::start(out, "reading directories");
        let (products, bytes) = (dataset.products(&table)?, dataset.stored_bytes(&table)?);
        drop(progress);
        let fits = |product: &Product| self.filter.as_ref().is_none_or(|filter| pattern::fits(filter, &product.name));
        let chosen: Vec<(Product, u64)> =
            products.into_iter().zip(bytes).filter(|(product, _)| fits(product)).collect();
        let texts: Vec<String> = chosen.iter().map(|(product, _)| product.ty.to_string()).collect();
        let widest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0).min(40);
        let name_width = widest(&mut chosen.iter().map(|(product, _)| product.name.chars().count()));
        let type_width = widest(&mut texts.iter().map(|text| text.chars().count()));
        for ((product, bytes), ty) in chosen.iter().zip(&texts) {
            out.json(&json!({
                "table": table,
                "name": product.name,
                "type": ty,
                "stored_bytes": bytes,
                "title": product.title,
                "type_name": product.type_name,
                "counter": product.counter,
                "notes": product.notes,
            }))?;
            let stored = units::bytes(*bytes);
            let line = format!("{:<name_width$}  {ty:<type_width$}  {stored:>10}  {}", product.name, product.title);
            out.line(line.trim_end())?;
        }
        if chosen.is_empty() {
            let what = self.filter.as_deref().unwrap_or("*");
            out.note(format!("forebay: table {table} has no column that fits {what}"));
        }
        Ok(Answer::found(!chosen.is_empty()))
    }
}
