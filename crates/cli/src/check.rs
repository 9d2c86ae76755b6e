//! `forebay check`: reads a whole store without serving it, and says what does not verify.

use crate::open::{Close, Kept, Opened, Place, of_one};
use crate::output::{Answer, Output};
use crate::{ring, units};
use forebay_client::Connected;
use forebay_core::{Bounds, Either, EventStore, OperatedStore, ReadFragment, Result};
use forebay_ring::Ring;
use forebay_store::CheckReport;
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

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

A ring is read in the same way: its account, every chunk and entry, with --deep every payload.

A store or a ring that is being served is not opened a second time: it is asked what its opening lost and whether the account of every \
run balances; with --deep every fragment is read and compared.

Example: a quick check after a crash, a full one before trusting a disk, and only the problems for a script:
  forebay check /tmp/first
  forebay check /tmp/first --deep
  forebay check /tmp/two --deep --json | jq -r '.problems[]'";

/// Verify a store without serving it.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Check {
    #[command(flatten)]
    store: Place,
    /// Verifies the checksum of every payload.
    #[arg(long)]
    deep: bool,
}

impl Check {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        if let Some(dir) = self.store.ring_dir() {
            return match Ring::check(dir, self.deep) {
                Ok(report) => ring::check::show(dir, self.deep, &report, out),
                Err(error) => match self.store.served_by(error, Connected::connect)? {
                    Connected::Ring(ring) => ring::check::served(&Either::There(Either::Here(ring)), self.deep, out),
                    Connected::Events(client) => self.look_at_server(&of_one(client), out),
                },
            };
        }
        if self.store.dir().is_none() {
            return match self.store.kept(out)? {
                Kept::Events(store) => self.look_at_server(&store, out),
                Kept::Ring(ring) => ring::check::served(&ring, self.deep, out),
            };
        }
        match self.store.look(|dir| forebay_store::check(dir, self.deep))? {
            Either::Here(report) => self.show(&report, out),
            Either::There(client) => self.look_at_server(&of_one(client), out),
        }
    }

    fn show(&self, report: &CheckReport, out: &mut Output) -> Result<Answer> {
        let dir = self.store.dir().unwrap_or(Path::new(""));
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
            "{}: {}; entries: {} ({} live, {} dead, {} incomplete); {}; {}{}",
            dir.display(),
            units::plural(u64::from(report.segments), "segment"),
            report.entries,
            report.live,
            report.dead,
            report.incomplete,
            units::plural(report.decisions, "decision"),
            if report.clean { "closed in order" } else { "not closed in order" },
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
        out.problems(&report.problems)
    }

    /// What a store says of itself while it is served: what its opening lost, whether its accounts balance, and with --deep
    /// whether every fragment reads back with its checksum.
    fn look_at_server(&self, store: &Opened, out: &mut Output) -> Result<Answer> {
        let mut problems: Vec<String> =
            store.losses()?.into_iter().map(|loss| format!("lost at the opening: {loss}")).collect();
        let runs = store.runs()?;
        for status in &runs {
            problems
                .extend(status.ledger.imbalance().map(|what| format!("run {} does not balance: {what}", status.run)));
        }
        let (mut fragments, mut bytes) = (0_u64, 0_u64);
        if self.deep {
            let mut told = Instant::now();
            for fragment in store.range(&Bounds::parse(store.schema(), "*")?) {
                let fragment = fragment?;
                (fragments, bytes) = (fragments + 1, bytes + fragment.len() as u64);
                if let Err(error) = fragment.verify() {
                    problems.push(format!("{}: {error}", store.schema().text(fragment.key().as_bytes())));
                }
                if told.elapsed() >= PROGRESS {
                    told = Instant::now();
                    out.note(format!("forebay: {} read so far", units::plural(fragments, "fragment")));
                }
            }
        }
        store.close()?;
        out.json(&json!({
            "served": true,
            "deep": self.deep,
            "runs": runs.len(),
            "fragments": fragments,
            "bytes": bytes,
            "problems": problems,
        }))?;
        let read = if self.deep {
            format!("; {}, {} read and compared", units::plural(fragments, "fragment"), units::bytes(bytes))
        } else {
            String::new()
        };
        out.line(format!("served: {}{read}", units::plural(runs.len() as u64, "run")))?;
        out.problems(&problems)
    }
}

/// How often a long look says how far it is.
const PROGRESS: Duration = Duration::from_secs(2);
