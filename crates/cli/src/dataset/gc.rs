//! `forebay dataset gc`: removes what dead writers left.

use super::progress::Progress;
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::{Error, Result};
use forebay_dataset::{Dataset, ReadOptions, storage};
use serde_json::json;
use std::time::Duration;

const HELP: &str = "\
Remove what writers left that died before their commit. A writer announces itself before its first object and says once a minute that \
it is at work; one that was silent for longer than --silent, by the clock of the storage, is taken for dead. Its objects are removed by \
name, so a bucket needs no right to list. What a version names is never removed, however old the version is.

A writer that was taken for dead and comes back hears Fenced at its commit and has to write again; nothing of the dataset is damaged. \
That is why the shortest silence is ten minutes. --allow-short-silence allows less: use it only where you know that nobody writes.

Example: what a killed import left; and at once, where no writer is alive:
  forebay dataset gc /tmp/ds
  forebay dataset gc /tmp/ds --silent 0s --allow-short-silence
  forebay dataset gc s3://physics/2026/zmumu --json";

/// Ten missed heartbeats.
const SILENT_MIN: Duration = Duration::from_secs(600);

/// Remove what dead writers left.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct Gc {
    /// Where the dataset is: a path, or s3://bucket/prefix.
    #[arg(value_name = "URL")]
    url: String,
    /// How long a writer was silent that is taken for dead; at least 10m.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = units::parse_duration)]
    silent: Duration,
    /// Danger: allow --silent below 10m. A writer that is alive, but slow, loses what it wrote and has to begin again.
    #[arg(long)]
    allow_short_silence: bool,
}

impl Gc {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        if self.silent < SILENT_MIN && !self.allow_short_silence {
            return Err(Error::invalid(format!(
                "--silent {} s: a writer says once a minute that it is at work, and a slow one may be late: give at least 10m, or \
                 add --allow-short-silence where you know that nobody writes",
                self.silent.as_secs_f64()
            )));
        }
        let progress = Progress::start(out, "removing what dead writers left");
        let collected = forebay_dataset::gc(&self.url, self.silent, &storage::Options::default())?;
        drop(progress);
        let nobody = collected.alive.is_empty() && collected.committed.is_empty() && collected.removed.is_empty();
        if nobody {
            // Nothing to do is an answer only where there is a dataset.
            Dataset::open(&self.url, ReadOptions::default())?;
        }
        out.json(&json!({
            "url": self.url,
            "alive": collected.alive,
            "committed": collected.committed,
            "removed": collected.removed,
            "names": collected.names,
        }))?;
        for prefix in &collected.removed {
            out.line(format!("removed: what the dead writer {prefix} left"))?;
        }
        for prefix in &collected.committed {
            out.line(format!("tidied: the announcement of the writer {prefix}, which had committed"))?;
        }
        for prefix in &collected.alive {
            let silent = self.silent.as_secs_f64();
            out.line(format!("kept: the writer {prefix} is at work, or was silent for less than {silent} s"))?;
        }
        if nobody {
            out.line("nothing to remove: no writer died here")?;
        }
        Ok(Answer::Yes)
    }
}
