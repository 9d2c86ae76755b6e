//! `forebay release`: accepted and debug events whose archive has them; their space is freed.

use crate::open::{Close, Opened, Place};
use crate::output::{Answer, Output};
use crate::{signal, units};
use forebay_core::{Bounds, Error, EventStore, OperatedStore, Result};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const HELP: &str = "\
Let accepted events go, and those of the debug stream: their archive has them, or nobody wants them any more. Their space is \
freed, the ledger counts them as released, and they stay decided: late fragments of them are late. Undecided events are never \
released, whatever the bounds say.

Bounds are those of events, such as 1 (a run), 1/10-20 or 1/42; or --stream with the name of a stream takes all of its events \
(`debug`: those of the debug stream), inside the bounds if there are any. An event that is in several streams goes from all of them.

It asks nothing, archives nothing, says how many went, and exits with 1 where there were none. Each release is durable by \
itself: Ctrl-C ends it after some of them, and the same command goes on.

Example: one event, a run, all of a stream, what failed in all workers in run 1:
  forebay release /tmp/first 1/42
  forebay release /tmp/first 1
  forebay release --connect tcp://daq01:7440 --stream calib
  forebay release /tmp/first 1 --stream debug";

/// Release accepted and debug events: free their space.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Release {
    #[command(flatten)]
    store: Place,
    /// Events: bounds such as 1, 1/10-20 or 1/42.
    bounds: Option<String>,
    /// Only events of this stream.
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
}

/// How often a long release says how far it is.
const PROGRESS: Duration = Duration::from_secs(2);

impl Release {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        if self.bounds.is_none() && self.stream.is_none() {
            return Err(Error::invalid(
                "what is to be released? Give bounds such as 1/10-20, or --stream NAME, or both",
            ));
        }
        let store = self.store.open(out)?;
        let answer = self.release(&store, out)?;
        store.close()?;
        Ok(answer)
    }

    fn release(&self, store: &Opened, out: &mut Output) -> Result<Answer> {
        let bounds = Bounds::parse(store.schema(), self.bounds.as_deref().unwrap_or("*"))?;
        let stop = signal::stop_flag()?;
        let (mut events, mut after, mut told) = (0, None, Instant::now());
        loop {
            let released = store.release_range(&bounds, self.stream.as_deref(), after.as_ref())?;
            events += released.events;
            let interrupted = stop.load(Ordering::Relaxed);
            if released.after.is_none() || interrupted {
                let complete = released.after.is_none();
                out.line(format!("released {}", units::plural(events, "event")))?;
                out.json(&json!({ "released": events, "complete": complete }))?;
                return Ok(if complete { Answer::found(events > 0) } else { Answer::Interrupted });
            }
            after = released.after;
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                out.note(format!("forebay: {} released so far", units::plural(events, "event")));
            }
        }
    }
}
