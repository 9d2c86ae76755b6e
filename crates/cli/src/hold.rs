//! `forebay hold`: events that are kept back from delivery, for a calibration that is not there yet.

use crate::open::{Close, Opened, Place, of_all_nodes};
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::{OperatedStore, Result};
use serde_json::json;

const HELP: &str = "\
Keep events back from delivery: those of a run, those whose attributes meet conditions (all of them must hold), or, with \
--all, every event. They stay ready and count as such, but no worker gets them until the hold is released. Events that are \
leased already are not taken back. Holds are journaled. Without anything to hold the command lists what is held.

Example: lumi sections 5 to 9 of run 1 wait for their calibration; what is held; go on:
  forebay hold /tmp/first --run 1 lumi=5..9
  forebay hold /tmp/first
  forebay hold /tmp/first --release 1";

/// Hold events back from delivery, list holds, release one.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Hold {
    #[command(flatten)]
    store: Place,
    /// Conditions on attributes: name=value, name=low..high or name&mask.
    #[arg(value_name = "CONDITION")]
    conditions: Vec<String>,
    /// Only events of this run.
    #[arg(long)]
    run: Option<u64>,
    /// Every event of every run.
    #[arg(long, conflicts_with_all = ["run", "conditions"])]
    all: bool,
    /// Ends the hold of this number: its events go out again.
    #[arg(long, value_name = "ID", conflicts_with_all = ["run", "conditions", "all"])]
    release: Option<u32>,
}

impl Hold {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let answer = match self.release {
            Some(id) => release(&store, id, out),
            None if self.all || self.run.is_some() || !self.conditions.is_empty() => self.hold(&store, out),
            None => list(&store, out),
        }?;
        store.close()?;
        Ok(answer)
    }

    fn hold(&self, store: &Opened, out: &mut Output) -> Result<Answer> {
        of_all_nodes(store)?;
        let conditions: Vec<&str> = self.conditions.iter().map(String::as_str).collect();
        let id = store.hold(self.run, &conditions)?;
        out.line(format!("hold {id}: {}", what(self.run, &self.conditions)))?;
        out.json(&json!({ "id": id, "run": self.run, "conditions": self.conditions }))?;
        Ok(Answer::Yes)
    }
}

fn release(store: &Opened, id: u32, out: &mut Output) -> Result<Answer> {
    of_all_nodes(store)?;
    let released = store.release_hold(id)?;
    out.line(if released { format!("released hold {id}") } else { format!("there is no hold {id}") })?;
    out.json(&json!({ "id": id, "released": released }))?;
    Ok(Answer::found(released))
}

fn list(store: &Opened, out: &mut Output) -> Result<Answer> {
    let holds = store.holds()?;
    out.json(&holds)?;
    for hold in &holds {
        out.line(format!(
            "hold {}: {}; {} met by delivery so far",
            hold.id,
            what(hold.run, &hold.conditions),
            units::plural(hold.events, "event")
        ))?;
    }
    if holds.is_empty() {
        out.line("nothing is held")?;
    }
    Ok(Answer::Yes)
}

fn what(run: Option<u64>, conditions: &[String]) -> String {
    let run = run.map_or_else(|| "every run".to_owned(), |run| format!("run {run}"));
    if conditions.is_empty() { format!("all events of {run}") } else { format!("{run}, {}", conditions.join(", ")) }
}
