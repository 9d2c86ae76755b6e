//! `forebay pin`: stretches of ticks that a ring keeps.

use super::{Ticks, sources};
use crate::open::{OpenedRing, Place};
use crate::output::{Answer, Output};
use crate::units;
use clap::Subcommand;
use forebay_core::{Error, Result, RingPinStatus, RingStore};
use serde_json::json;
use std::time::Duration;

const HELP: &str = "\
A pin keeps ticks of a ring from being evicted, and those that are still to come, until its time is over. Pins take space from \
what comes: together they may hold `pin_percent` of the ring, and a pin beyond that is refused, with those that hold it. \
Recordings and windows over the network have pins of their own, which end with their process; a pin made here belongs to nobody, \
and ends when its time is over or when it is removed.

On several nodes a pin is one on each of them that may have something of its ticks.

Pins last as long as the process that has the ring: in a directory that nobody serves there are none.

Example: what is pinned; the last ten seconds for an hour; some ticks of one source; no longer:
  forebay pin /tmp/links
  forebay pin tcp://readout1:7440 add --last 10s --for 1h
  forebay pin tcp://readout1:7440 add 62500000..125000000 --for 10m --source 3/17
  forebay pin tcp://readout1:7440 remove 4";

/// List, add and remove pins of a ring.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Pin {
    #[command(flatten)]
    store: Place,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// All pins, with what holds them. Example: forebay pin /tmp/links list
    List,
    /// Keep ticks. Example: forebay pin /tmp/links add --last 10s --for 1h
    Add {
        #[command(flatten)]
        ticks: Ticks,
        /// How long they are kept from now on.
        #[arg(long = "for", value_name = "DURATION", value_parser = units::parse_duration)]
        duration: Duration,
        /// Of this source, such as 3/17; of all, also those that come, when not given. May be repeated.
        #[arg(long, value_name = "SOURCE")]
        source: Vec<String>,
    },
    /// End a pin that nobody holds. Example: forebay pin /tmp/links remove 4
    Remove {
        /// Number of the pin.
        id: u64,
    },
}

impl Pin {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let ring = self.store.ring(out)?;
        match &self.action {
            None | Some(Action::List) => list(&ring, out),
            Some(Action::Add { ticks, duration, source }) => {
                let (begin, end) = ticks.of(&ring)?;
                let pins = ring.keep(begin, end, &sources(&ring, source)?, *duration);
                for pin in pins.map_err(|error| self.say(error))? {
                    out.json(&as_json(&pin))?;
                    let bytes = units::bytes(pin.bytes);
                    out.line(format!("pin {}: [{begin}, {end}), {bytes} for {duration:?}", pin.id))?;
                }
                Ok(Answer::Yes)
            }
            Some(Action::Remove { id }) => {
                let was_there = ring.unpin(*id).map_err(|error| self.say(error))?;
                out.json(&json!({ "pin": id, "removed": was_there }))?;
                out.line(if was_there { format!("pin {id} removed") } else { format!("no pin {id}") })?;
                Ok(Answer::found(was_there))
            }
        }
    }

    /// An error, with the directory where it is about one.
    fn say(&self, error: Error) -> Error {
        match self.store.dir() {
            Some(dir) => Error::new(error.kind(), format!("{}: {}", dir.display(), error.message())),
            None => error,
        }
    }
}

fn list(ring: &OpenedRing, out: &mut Output) -> Result<Answer> {
    let stats = ring.stats()?;
    out.json(&stats.pins.iter().map(as_json).collect::<Vec<_>>())?;
    for pin in &stats.pins {
        out.line(format!(
            "pin {:<5} [{}, {}), {}, {:.1} s left, {}",
            pin.id,
            pin.begin,
            pin.end,
            units::bytes(pin.bytes),
            pin.remaining_ns as f64 / 1e9,
            if pin.kept {
                format!("held by nobody, made by {}", pin.holder)
            } else {
                format!("held by {}", pin.holder)
            }
        ))?;
    }
    out.line(format!(
        "{}: {} of {} that pins may hold",
        units::plural(stats.pins.len() as u64, "pin"),
        units::bytes(stats.pinned_bytes),
        units::bytes(stats.pin_quota_bytes)
    ))?;
    Ok(Answer::Yes)
}

fn as_json(pin: &RingPinStatus) -> serde_json::Value {
    json!({
        "pin": pin.id,
        "begin": pin.begin,
        "end": pin.end,
        "bytes": pin.bytes,
        "remaining_seconds": pin.remaining_ns as f64 / 1e9,
        "holder": pin.holder,
        "kept": pin.kept,
    })
}
