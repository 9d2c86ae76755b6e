//! `forebay sources`: how each source of a run does.

use crate::ledger::no_run_here;
use crate::open::{Close, Kept, Opened, Place};
use crate::output::{Answer, Output};
use crate::{ring, units};
use forebay_core::{Error, EventStore, OperatedStore, Result};
use forebay_store::SourceStatus;
use std::time::Duration;

const HELP: &str = "\
Every source of a run that was named or seen: fragments and bytes, its rate, its last event and how long ago that was, \
events that became ready without it, fragments that came late, conflicts, and whether it is masked and by whom.

Rates and ages are those since the store was opened; where no process serves it, there are none. \
An unknown run is absent: exit code 1.

A ring has no runs to name: of each of its sources the command says what it keeps, its newest tick, how long it has been silent, its \
distance from the ring's clock in ticks, and what was refused of it, with the last cause.

Example: everything; only sources of which something is wrong; those of a ring:
  forebay sources /tmp/first 1
  forebay sources /tmp/first 1 --wrong
  forebay sources /tmp/links";

/// Show every source of a run: rate, last key, misses, masks.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct SourcesOf {
    #[command(flatten)]
    store: Place,
    /// Run number; a ring has none.
    run: Option<u64>,
    /// Only sources with misses, late fragments, conflicts or a mask; of a ring, with refusals, or silent for its whole history.
    #[arg(long)]
    wrong: bool,
}

impl SourcesOf {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = match self.store.kept(out)? {
            Kept::Ring(_) if self.run.is_some() => {
                return Err(Error::invalid("the sources of a ring are those of all its runs: leave the run out"));
            }
            Kept::Ring(ring) => return ring::sources::show(&ring, self.wrong, out),
            Kept::Events(store) => store,
        };
        let run = self.run.ok_or_else(|| Error::invalid("which run? such as `forebay sources /tmp/first 1`"))?;
        let answer = self.show(&store, run, out)?;
        store.close()?;
        Ok(answer)
    }

    fn show(&self, store: &Opened, run: u64, out: &mut Output) -> Result<Answer> {
        if !store.runs()?.iter().any(|status| status.run == run) {
            return no_run_here(run, out);
        }
        let mut sources = store.sources(run)?;
        let known = sources.len();
        sources.retain(|status| !self.wrong || is_wrong(status));
        out.json(&sources)?;
        out.line(format!(
            "{:<12} {:>12} {:>10} {:>9} {:<14} {:>8} {:>8} {:>8} {:>9}  masked",
            "source", "fragments", "bytes", "rate/s", "last event", "age", "missing", "late", "conflicts"
        ))?;
        for status in &sources {
            out.line(line(status))?;
        }
        let shown = if self.wrong { format!(", {} shown", sources.len()) } else { String::new() };
        out.line(format!("{}{shown}", units::plural(known as u64, "source")))?;
        Ok(Answer::Yes)
    }
}

fn is_wrong(status: &SourceStatus) -> bool {
    status.missing > 0 || status.late > 0 || status.conflicts > 0 || status.masked.is_some()
}

fn line(status: &SourceStatus) -> String {
    format!(
        "{:<12} {:>12} {:>10} {:>9} {:<14} {:>8} {:>8} {:>8} {:>9}  {}",
        status.source,
        status.fragments,
        units::bytes(status.bytes),
        units::count(status.rate_hz),
        status.last_key.as_deref().unwrap_or("-"),
        status.age.map_or_else(|| "-".to_owned(), age),
        status.missing,
        status.late,
        status.conflicts,
        status.masked.as_deref().unwrap_or("no")
    )
}

/// An age for people: `0.3 s`, `90 s`, `2 h`.
fn age(age: Duration) -> String {
    match age.as_secs_f64() {
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7200.0 => format!("{seconds:.0} s"),
        seconds => format!("{:.0} h", seconds / 3600.0),
    }
}
