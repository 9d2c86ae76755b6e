//! `forebay catalog changes`: the feed of a catalogue, for programs that follow it.

use super::{Place, plain};
use crate::output::{Answer, Output};
use crate::{signal, units};
use forebay_core::Result;
use forebay_dataset::catalogue::{Action, Change};
use std::time::Duration;

const HELP: &str = "\
Show the changes of a catalogue in their order, from a number on: what was published and what was withdrawn. A program that follows the \
catalogue keeps the number after the last change that it has worked through, and asks from there next time: it misses none and sees \
none twice. With --follow the command waits for more until Ctrl-C. A damaged change is named, and ends the command with exit code 8.

Example: all changes; a workflow that starts a job for each new version; what is new since change 1000:
  forebay catalog changes /tmp/catalogue
  forebay catalog changes /tmp/catalogue --follow --json | jq -r --unbuffered '.action.publish.url // empty' | xargs -n1 ./process
  forebay catalog changes s3://physics/catalogue --since 1000 --json

With --json: one object for each change: number, time_ms, id, and action with publish (the entry) or withdraw.";

/// Show the changes of a catalogue, and follow it.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct ChangesOf {
    #[command(flatten)]
    place: Place,
    /// Number of the first change to show.
    #[arg(long, value_name = "N", default_value_t = 0)]
    since: u64,
    /// Wait for more until Ctrl-C.
    #[arg(long)]
    follow: bool,
    /// With --follow: time between two looks.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::parse_duration)]
    every: Duration,
}

impl ChangesOf {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let waiting = signal::wait_for_stop()?;
        let catalogue = self.place.open()?;
        let mut next = self.since;
        loop {
            for change in catalogue.changes(next) {
                let change = change?;
                next = change.number + 1;
                out.json(&change)?;
                out.line(plain(&line(&change)))?;
            }
            out.finish()?;
            if !self.follow {
                return Ok(Answer::Yes);
            }
            if waiting.stopped_within(self.every) {
                return Ok(Answer::Interrupted);
            }
        }
    }
}

fn line(change: &Change) -> String {
    let (name, version) = change.action.target();
    let detail = match &change.action {
        Action::Publish(entry) => &entry.url,
        Action::Withdraw { why, .. } => why,
    };
    format!(
        "{:>6}  {}  {:<8}  {name} @{version}  {detail}",
        change.number,
        forebay_core::utc(change.time_ms),
        change.action.verb()
    )
}
