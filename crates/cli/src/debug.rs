//! `forebay debug`: the debug stream, where events go that nobody could process.

use crate::open::{Close, Opened, Place};
use crate::output::{Answer, Output};
use crate::{event, units};
use clap::Subcommand;
use forebay_core::{EventStore, OperatedStore, Result};
use serde_json::json;

const HELP: &str = "\
Events on which workers died or that they kept for too long, with conflicting copies of fragments that are kept for a \
person. Look at them, then give them to workers again (replay), or let go what an archive or nobody needs (release). Past \
its quota the debug stream inhibits the trigger instead of losing anything.

Example: what is there, one of them, once more to the workers, done with:
  forebay debug /tmp/first list
  forebay debug /tmp/first show 1/42
  forebay debug /tmp/first replay 1/42
  forebay debug /tmp/first release 1/42";

/// Look at events that could not be processed; replay or release them.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Debug {
    #[command(flatten)]
    store: Place,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// All of it: events with reason, stage and deliveries; conflicting copies. Example: forebay debug /tmp/first list
    List,
    /// One event with its sources. Example: forebay debug /tmp/first show 1/42
    Show {
        /// The event, such as run/event: 1/42.
        #[arg(value_name = "RUN/EVENT")]
        event: String,
    },
    /// Give an event to workers again, in the stage where it failed. Example: forebay debug /tmp/first replay 1/42
    Replay {
        /// The event, such as run/event: 1/42.
        #[arg(value_name = "RUN/EVENT")]
        event: String,
    },
    /// Let an event go: its space is freed. Example: forebay debug /tmp/first release 1/42
    Release {
        /// The event, such as run/event: 1/42.
        #[arg(value_name = "RUN/EVENT")]
        event: String,
    },
}

impl Debug {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let answer = match &self.action {
            Action::List => list(&store, out),
            Action::Show { event } => show(&store, event, out),
            Action::Replay { event } => replay(&store, event, out),
            Action::Release { event } => release(&store, event, out),
        }?;
        store.close()?;
        Ok(answer)
    }
}

fn list(store: &Opened, out: &mut Output) -> Result<Answer> {
    let (schema, stats) = (store.schema(), store.stats()?.debug);
    let (events, conflicts) = (store.debug_events()?, store.conflicts()?);
    let name = |bytes: &[u8]| schema.text(bytes);
    out.json(&json!({
        "events": events.iter().map(|info| json!({
            "event": name(info.primary.as_bytes()),
            "reason": info.reason,
            "stage": info.stage,
            "deliveries": info.deliveries,
            "fragments": info.tally.fragments,
            "bytes": info.tally.bytes,
        })).collect::<Vec<_>>(),
        "conflicts": conflicts.iter().map(|info| json!({
            "key": name(info.key.as_bytes()),
            "bytes": info.bytes,
            "crc32c": format!("{:08x}", info.checksum),
        })).collect::<Vec<_>>(),
        "quota_bytes": stats.quota_bytes,
        "alarm": stats.alarm,
    }))?;
    for info in &events {
        out.line(format!(
            "event {:<16} {:<14} stage {:<12} {:>2} deliveries  {}, {}",
            name(info.primary.as_bytes()),
            info.reason,
            info.stage,
            info.deliveries,
            units::plural(info.tally.fragments, "fragment"),
            units::bytes(info.tally.bytes)
        ))?;
    }
    for info in &conflicts {
        let (key, bytes) = (name(info.key.as_bytes()), units::bytes(info.bytes.into()));
        out.line(format!("conflict {key:<13} {bytes}, crc32c {:08x}", info.checksum))?;
    }
    if let Some(alarm) = stats.alarm {
        out.line(alarm)?;
    } else if events.is_empty() && conflicts.is_empty() {
        out.line("the debug stream is empty")?;
    }
    Ok(Answer::Yes)
}

fn show(store: &Opened, text: &str, out: &mut Output) -> Result<Answer> {
    let primary = store.schema().parse_primary(text)?;
    let Some(info) = store.debug_events()?.into_iter().find(|info| info.primary == primary) else {
        return not_there(text, "found", out);
    };
    out.line(format!("{} in stage {}, after {} deliveries", info.reason, info.stage, info.deliveries))?;
    event::show(store, &primary, out)
}

fn replay(store: &Opened, text: &str, out: &mut Output) -> Result<Answer> {
    if !store.replay(&store.schema().parse_primary(text)?)? {
        return not_there(text, "replayed", out);
    }
    out.line(format!("event {text} is ready again, with a clean record"))?;
    out.json(&json!({ "event": text, "replayed": true }))?;
    Ok(Answer::Yes)
}

fn release(store: &Opened, text: &str, out: &mut Output) -> Result<Answer> {
    let primary = store.schema().parse_primary(text)?;
    if !store.debug_events()?.iter().any(|info| info.primary == primary) || !store.release(&primary)? {
        return not_there(text, "released", out);
    }
    out.line(format!("released {text}"))?;
    out.json(&json!({ "event": text, "released": true }))?;
    Ok(Answer::Yes)
}

fn not_there(text: &str, what: &str, out: &mut Output) -> Result<Answer> {
    out.note(format!("forebay: event {text} is not in the debug stream"));
    out.json(&json!({ "event": text, what: false }))?;
    Ok(Answer::No)
}
