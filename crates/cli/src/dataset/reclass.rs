//! `forebay dataset reclass` and `refer`: columns in another place, as a new version.

use super::progress::Progress;
use super::{Place, table_or_events};
use crate::output::{Answer, Output};
use forebay_core::Result;
use forebay_dataset::{Class, Committed, WriteOptions, storage};
use serde_json::json;

const RECLASS: &str = "\
Write columns to the place of a class of service, as a new version with the same values. A class is a name, such as fast, disk or cold, \
and a place: a directory, or a bucket with a prefix. The first use of a class says its place; later ones know it. Stripes of the class \
cold are gathered in objects of about 64 MiB. Readers notice nothing, and earlier versions read the columns where they were.

Example: generator columns to a bucket on tape, and back to the dataset's own place:
  forebay dataset reclass /tmp/ds GenPart_pt GenPart_eta --class cold --place s3://tape/zmumu
  forebay dataset reclass /tmp/ds GenPart_pt --class ''";

const REFER: &str = "\
Add columns of another dataset by reference, as a new version: nothing is copied. Both have the same events in the same batches, and the \
other dataset must stay where it is.

Example: a new reconstruction that keeps the generator's columns:
  forebay dataset refer /tmp/new /tmp/old GenPart_pt GenPart_eta";

/// Write columns to the place of a class of service, as a new version.
#[derive(clap::Args)]
#[command(long_about = RECLASS)]
pub(super) struct Reclass {
    #[command(flatten)]
    target: Target,
    /// Columns that move.
    #[arg(value_name = "COLUMN", required = true)]
    columns: Vec<String>,
    /// Name of the class; empty: the dataset's own place.
    #[arg(long, value_name = "NAME")]
    class: String,
    /// Where the class is, at its first use: a path, or s3://bucket/prefix.
    #[arg(long, value_name = "URL", default_value = "")]
    place: String,
}

/// Add columns of another dataset by reference, as a new version.
#[derive(clap::Args)]
#[command(long_about = REFER)]
pub(super) struct Refer {
    #[command(flatten)]
    target: Target,
    /// The dataset that has the columns.
    #[arg(value_name = "OTHER")]
    other: String,
    /// Columns that are added.
    #[arg(value_name = "COLUMN", required = true)]
    columns: Vec<String>,
}

/// The dataset that gets a version.
#[derive(clap::Args)]
struct Target {
    /// Where the dataset is: a path, or s3://bucket/prefix.
    #[arg(value_name = "URL")]
    url: String,
    /// Table of the columns; the first one when not given.
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
}

impl Target {
    fn table(&self, out: &Output) -> Result<String> {
        let newest = Place { url: self.url.clone(), version: None };
        table_or_events(&newest.open(out)?, self.table.as_deref())
    }

    fn said(&self, committed: Committed, columns: &[String], out: &mut Output) -> Result<Answer> {
        out.json(&json!({ "url": self.url, "version": committed.version, "columns": columns }))?;
        out.line(format!("version {}: {}", committed.version, columns.join(", ")))?;
        Ok(Answer::Yes)
    }
}

impl Reclass {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let table = self.target.table(out)?;
        let columns: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let class = Class::new(&self.class, &self.place);
        let progress = Progress::start(out, "writing columns");
        let tell = &mut |done: u64, all: u64| progress.set(done, all, "events");
        let options = WriteOptions::default();
        let committed = forebay_dataset::reclass(&self.target.url, &table, &columns, &class, &options, tell)?;
        drop(progress);
        self.target.said(committed, &self.columns, out)
    }
}

impl Refer {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let table = self.target.table(out)?;
        let columns: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let options = storage::Options::default();
        let committed = forebay_dataset::refer(&self.target.url, &table, &self.other, &columns, &options)?;
        self.target.said(committed, &self.columns, out)
    }
}
