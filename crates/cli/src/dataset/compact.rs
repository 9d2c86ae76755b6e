//! `forebay dataset compact`: writes all columns again with the highest effort, as a new version.

use super::progress::Progress;
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::Result;
use forebay_dataset::{Dataset, ReadOptions, WriteOptions};
use serde_json::json;

const HELP: &str = "\
Write all columns of the newest version again, in full batches and with the encodings that make them smallest, as a new version with \
the same values. Worth it for data that is read often or kept for long, and after many small appends. Earlier versions stay, so the \
dataset takes more space than before.

Readers are not disturbed. Where another writer adds events meanwhile, this ends with Conflict, and the new version is not made. \
Ctrl-C ends it at once: the dataset is as before, and `forebay dataset gc` removes what was written.

Example: and what it gained:
  forebay dataset compact /tmp/ds
  forebay dataset ls /tmp/ds";

/// Write all columns again as small as possible, as a new version.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct Compact {
    /// Where the dataset is: a path, or s3://bucket/prefix.
    #[arg(value_name = "URL")]
    url: String,
}

impl Compact {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let progress = Progress::start(out, "compacting");
        let tell = &mut |done: u64, all: u64| progress.set(done, all, "events");
        let committed = forebay_dataset::compact(&self.url, &WriteOptions::default(), tell)?;
        let dataset = Dataset::open(&self.url, ReadOptions::default())?.at(committed.version)?;
        let after = stored(&dataset)?;
        let before = stored(&dataset.at(committed.version.saturating_sub(1))?)?;
        drop(progress);
        out.json(&json!({
            "url": self.url,
            "version": committed.version,
            "stored_bytes": after,
            "stored_bytes_before": before,
        }))?;
        let (before, now) = (units::bytes(before), units::bytes(after));
        out.line(format!("version {}: {now} of values, {before} in the version before", committed.version))?;
        Ok(Answer::Yes)
    }
}

/// Bytes of the values of all tables.
fn stored(dataset: &Dataset) -> Result<u64> {
    let mut all = 0;
    for table in dataset.tables() {
        all += dataset.stored_bytes(table)?.iter().sum::<u64>();
    }
    Ok(all)
}
