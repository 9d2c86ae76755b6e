//! `forebay mask`, `forebay unmask`: sources that events of a run do not wait for.

use crate::open::{Close, Opened, Place, of_all_nodes, signed};
use crate::output::{Answer, Output};
use forebay_core::map::KeyspaceMap;
use forebay_core::{Either, EventStore, KeySchema, OperatedStore, Primary, Result};
use serde_json::json;

const MASK_HELP: &str = "\
Events of a run no longer wait for a source: with --from those from that event on, otherwise every event that still waits, \
at once. What the source sends nevertheless is stored. Masks are journaled; the run's summary says who set and lifted them, and when. Masking twice is \
a success.

Example: source 7 is dead; it will be off from event 5000 on:
  forebay mask /tmp/first 1 7
  forebay mask /tmp/first 1 7 --from 5000";

const UNMASK_HELP: &str = "\
Events of a run wait for a source again: with --from those from that event on, otherwise those that come from now on. \
Lifting a mask that is not set is a success.

Example: source 7 is back; it will be from event 9000 on:
  forebay unmask /tmp/first 1 7
  forebay unmask /tmp/first 1 7 --from 9000";

#[derive(clap::Args)]
struct What {
    #[command(flatten)]
    store: Place,
    /// Run number.
    run: u64,
    /// The source, such as 7 (1/7 where a source has two parts).
    source: String,
    /// First event that this is for: its number, or run/event.
    #[arg(long, value_name = "EVENT")]
    from: Option<String>,
}

/// Let events of a run do without a source.
#[derive(clap::Args)]
#[command(long_about = MASK_HELP)]
pub(crate) struct Mask {
    #[command(flatten)]
    what: What,
}

/// Let events of a run wait for a source again.
#[derive(clap::Args)]
#[command(long_about = UNMASK_HELP)]
pub(crate) struct Unmask {
    #[command(flatten)]
    what: What,
}

impl Mask {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        self.what.change(true, out)
    }
}

impl Unmask {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        self.what.change(false, out)
    }
}

impl What {
    fn change(&self, set: bool, out: &mut Output) -> Result<Answer> {
        let store = signed(self.store.open(out)?);
        of_all_nodes(&store)?;
        let answer = self.apply(&store, set, out)?;
        store.close()?;
        Ok(answer)
    }

    fn apply(&self, store: &Opened, set: bool, out: &mut Output) -> Result<Answer> {
        let schema = store.schema();
        let source = schema.parse_source(&self.source)?;
        let from = self.from.as_deref().map(|text| event(schema, self.run, text)).transpose()?;
        if set {
            store.mask(self.run, &source, from.as_ref())?;
        } else {
            store.unmask(self.run, &source, from.as_ref())?;
        }
        // Of a cluster the home's word, which has done it: all nodes would be waited for.
        let runs = match store {
            Opened::There(Either::There(cluster)) => {
                let home = |map: &KeyspaceMap| map.home(self.run, &self.run.to_be_bytes());
                let home = cluster.map().keyspace(&cluster.keyspace().name).map_or(0, home);
                cluster.node(home).and_then(|node| node.runs())
            }
            store => store.runs(),
        };
        let masked =
            runs.map(|runs| runs.into_iter().find(|status| status.run == self.run).map(|status| status.masked));
        let masked = masked.map(Option::unwrap_or_default);
        let (source, verb) = (schema.source_text(&source), if set { "masked" } else { "unmasked" });
        let from = from.map(|from| schema.text(from.as_bytes()));
        let when = from.as_ref().map_or_else(String::new, |from| format!(" from event {from} on"));
        let now = match &masked {
            Ok(masked) if masked.is_empty() => "none".to_owned(),
            Ok(masked) => masked.join(", "),
            Err(error) => format!("not known: {}", error.message()),
        };
        let masked = masked.ok();
        out.line(format!("run {}: source {source} {verb}{when}; masked now: {now}", self.run))?;
        out.json(&json!({ "run": self.run, "source": source, "set": set, "from": from, "masked": masked }))?;
        Ok(Answer::Yes)
    }
}

/// An event of a run, with or without the run before it.
pub(crate) fn event(schema: &KeySchema, run: u64, text: &str) -> Result<Primary> {
    if text.split('/').count() + 1 == schema.primary_len() {
        return schema.parse_primary(&format!("{run}/{text}"));
    }
    schema.parse_primary(text)
}
