//! `forebay catalog show`: all that a catalogue says of a version.

use super::{Place, json_of, line_of, plain};
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::{Error, Result};
use forebay_dataset::catalogue::{Catalogue, Entry};
use serde_json::Value;

/// Shows a named part of an entry: as JSON, or as lines.
type ShowPart<'a> = &'a mut dyn FnMut(&mut Output, &str, Value, Vec<String>) -> Result<()>;

const HELP: &str = "\
Show what a catalogue says of a version of a dataset; its columns, source files, lumi sections and checksums where they are asked for. \
The checksums of the root are those of the moment when the version was published: each later version of the dataset replaces the root. \
Nothing of that name: exit code 1.

Example: the newest version with its columns; the files that it came from; checksums for Rucio:
  forebay catalog show /tmp/catalogue user.ann:z_peak --columns
  forebay catalog show /tmp/catalogue user.ann:z_peak --version 0 --files
  forebay catalog show /tmp/catalogue user.ann:z_peak --checksums --json | jq -r '.checksums[] | \"\\(.name) \\(.adler32)\"'

With --json: the entry, with what was asked for as columns, files, lumi_sections and checksums.";

/// Show what a catalogue says of a dataset.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct Show {
    #[command(flatten)]
    place: Place,
    /// Its name: scope:name.
    #[arg(value_name = "NAME")]
    name: String,
    /// Version to show; the newest one when not given.
    #[arg(long, value_name = "N")]
    version: Option<u32>,
    /// Its columns with their types.
    #[arg(long)]
    columns: bool,
    /// Its source files.
    #[arg(long)]
    files: bool,
    /// Its lumi sections, as a golden JSON file has them.
    #[arg(long)]
    lumis: bool,
    /// Adler-32 and SHA-256 of its objects.
    #[arg(long)]
    checksums: bool,
}

impl Show {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let catalogue = self.place.open()?;
        let Some(listed) = catalogue.show(&self.name, self.version)? else {
            let version = self.version.map_or(String::new(), |version| format!(", version {version},"));
            out.note(format!("forebay: {}{version} is not in {}", self.name, catalogue.url()));
            return Ok(Answer::No);
        };
        let entry = &listed.entry;
        let mut value = json_of(&listed)?;
        out.line(line_of(&listed))?;
        for line in facts(entry) {
            out.line(format!("  {}", plain(&line)))?;
        }
        let mut part = |out: &mut Output, name: &str, json: Value, lines: Vec<String>| {
            out.line(format!("{name}:"))?;
            value[name] = json;
            lines.iter().try_for_each(|line| out.line(format!("  {}", plain(line))))
        };
        if self.columns {
            let tables = catalogue.columns(entry)?;
            let lines = tables.iter().flat_map(|table| {
                table.names.iter().zip(&table.types).map(|(name, ty)| format!("{}.{name}  {ty}", table.table))
            });
            let lines = lines.collect();
            part(out, "columns", json(&tables)?, lines)?;
        }
        if self.files {
            let files = catalogue.sources(entry)?;
            let lines =
                files.iter().map(|file| format!("{}  {}", file.name, file.guid).trim_end().to_owned()).collect();
            part(out, "files", json(&files)?, lines)?;
        }
        if self.lumis {
            let lumis = json(&catalogue.lumis(entry)?)?;
            let lines = vec![lumis.to_string()];
            part(out, "lumi_sections", lumis, lines)?;
        }
        if self.checksums {
            self.sums(&catalogue, entry, out, &mut part)?;
        }
        out.json(&value)?;
        Ok(Answer::Yes)
    }

    fn sums(&self, catalogue: &Catalogue, entry: &Entry, out: &mut Output, part: ShowPart<'_>) -> Result<()> {
        let sums = catalogue.checksums(entry)?;
        let place = |place: &str| if place.is_empty() { String::new() } else { format!("{place}/") };
        let line = |sum: &forebay_dataset::catalogue::Checksum| {
            format!(
                "adler32:{}  sha256:{}  {:>10}  {}{}",
                sum.adler32,
                sum.sha256,
                sum.bytes,
                place(&sum.place),
                sum.name
            )
        };
        part(out, "checksums", json(&sums)?, sums.iter().map(line).collect())
    }
}

/// What an entry says, a line for each fact.
fn facts(entry: &Entry) -> Vec<String> {
    let mut lines = vec![format!("uuid: {}", entry.uuid), format!("note: {}", entry.note)];
    for table in &entry.tables {
        let (events, products) = (units::plural(table.events, "event"), units::plural(table.products, "product"));
        lines.push(format!("table {}: {events}, {products}", table.name));
    }
    if entry.objects > 0 {
        lines.push(format!("objects: {}, {}", entry.objects, units::bytes(entry.bytes)));
    }
    if !entry.classes.is_empty() {
        lines.push(format!("classes: {}", entry.classes.join(", ")));
    }
    for parent in &entry.parents {
        let version = parent.version.map_or(String::new(), |version| format!(" @{version}"));
        lines.push(format!("parent: {}{version}", parent.uuid));
    }
    lines.extend(entry.tags.iter().map(|(tag, value)| format!("{tag}: {value}")));
    if entry.files > 0 {
        lines.push(format!("files: {}", entry.files));
    }
    if let Some((first, last)) = entry.runs {
        lines.push(format!("runs: {first} to {last}, {}", units::plural(entry.lumis, "lumi section")));
    }
    lines
}

fn json(value: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|error| Error::internal("a part of an entry to JSON").with_source(error))
}
