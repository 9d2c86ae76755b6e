//! `forebay check`: reads a whole store without serving it, and says what does not verify.

use crate::open::{self, Directory};
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::Result;
use serde_json::json;

const HELP: &str = "\
Read a whole store without serving it, as the next opening would read it. Of the hot level: every segment header, every \
entry, every decision. Of a warm level: which store the devices belong to, the header and the directory of every \
container, the decision log of every device, whether index and ledgers agree with both. With --deep also every payload on \
both levels, and the head of every image on the warm one, against its checksum. Changes nothing of the store. Problems are \
listed with what and where: by segment and entry on the hot level, by container, device and fragment on the warm one; exit \
code 1 if there are any.

Entries that were never finished (a process died in the middle of a put) are counted as incomplete, and what was being \
written to a container as unfinished: they were never acknowledged and are no problem. Damage in what was rejected or \
released since is none either.

Example: a quick check after a crash, a full one before trusting a disk, and only the problems for a script:
  forebay check /tmp/first
  forebay check /tmp/first --deep
  forebay check /tmp/two --deep --json | jq -r '.problems[]'";

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
            "clean": report.clean,
            "segments": report.segments,
            "entries": report.entries,
            "live": report.live,
            "dead": report.dead,
            "incomplete": report.incomplete,
            "decisions": report.decisions,
            "devices": report.devices,
            "containers": report.containers,
            "images": report.images,
            "warm_entries": report.warm_entries,
            "warm_live": report.warm_live,
            "unfinished": report.unfinished,
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
        if report.devices > 0 {
            out.line(format!(
                "warm level: {} on {}; {}, {} of {} in them live",
                units::plural(u64::from(report.containers), "container"),
                units::plural(u64::from(report.devices), "device"),
                units::plural(report.images, "image"),
                report.warm_live,
                units::plural(report.warm_entries, "fragment"),
            ))?;
        }
        for place in &report.unfinished {
            out.line(format!("  unfinished: {place}"))?;
        }
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
