//! `forebay check`: reads a whole store without serving it, and says what does not verify.

use crate::open::{self, Directory};
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::Result;
use serde_json::json;

const HELP: &str = "\
Read the whole hot level without serving it: every segment header, every entry, every decision; with --deep every payload \
as well. Changes nothing. Problems are listed with what and where; exit code 1 if there are any.

Entries that were never finished (a process died in the middle of a put) are counted as incomplete: they were never \
acknowledged and are no problem.

Example: a quick check after a crash, a full one before trusting a disk:
  forebay check /tmp/first
  forebay check /tmp/first --deep";

/// Verify a store without serving it.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Check {
    #[command(flatten)]
    store: Directory,
    /// Verifies the checksum of every payload.
    #[arg(long)]
    deep: bool,
}

impl Check {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let dir = &self.store.dir;
        if !open::holds_store(dir) {
            return Err(open::no_store(dir));
        }
        let report = forebay_store::check(dir, self.deep).map_err(|error| open::explain(dir, error))?;
        out.json(&json!({
            "dir": dir,
            "deep": self.deep,
            "segments": report.segments,
            "entries": report.entries,
            "live": report.live,
            "dead": report.dead,
            "incomplete": report.incomplete,
            "decisions": report.decisions,
            "problems": report.problems,
        }))?;
        out.line(format!(
            "{}: {}; entries: {} ({} live, {} dead, {} incomplete); {}{}",
            dir.display(),
            units::plural(u64::from(report.segments), "segment"),
            report.entries,
            report.live,
            report.dead,
            report.incomplete,
            units::plural(report.decisions, "decision"),
            if self.deep { "; payloads verified" } else { "" }
        ))?;
        for problem in &report.problems {
            out.line(format!("  problem: {problem}"))?;
        }
        out.line(match report.problems.len() {
            0 => "no problems found".to_owned(),
            number => format!("{} found", units::plural(number as u64, "problem")),
        })?;
        Ok(Answer::found(report.problems.is_empty()))
    }
}
