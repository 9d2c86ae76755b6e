//! `forebay rm`: one fragment, or everything inside bounds.

use crate::open::{Close, Opened, Place};
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::{Bounds, EventStore, Result};

const HELP: &str = "\
Remove one fragment by its full key, or everything inside bounds. It asks nothing, says how many fragments went, and \
exits with 1 where there were none. When it returns, the removal is durable; `forebay range` with the same bounds shows \
what would go, before anything is removed.

A removed event stays closed: its later fragments are late. The ledger counts what was removed.

Example: one fragment, one event, events 10 to 20 of run 1:
  forebay rm /tmp/first 1/42/0
  forebay rm /tmp/first 1/42
  forebay rm /tmp/first '1/10-20/*'";

/// Remove a fragment, an event or a range.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Rm {
    #[command(flatten)]
    store: Place,
    /// Full key (1/42/0), event (1/42) or bounds (1/10-20/*).
    #[arg(value_name = "KEY-OR-BOUNDS")]
    what: String,
}

impl Rm {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let removed = self.remove(&store)?;
        store.close()?;
        out.line(format!("removed {}", units::plural(removed, "fragment")))?;
        out.json(&serde_json::json!({ "removed": removed }))?;
        Ok(Answer::found(removed > 0))
    }

    fn remove(&self, store: &Opened) -> Result<u64> {
        match store.schema().parse_key(&self.what) {
            Ok(key) => store.remove(&key).map(u64::from),
            // Not a full key: bounds, whose own message says what is wrong with them.
            Err(_) => store.remove_range(&Bounds::parse(store.schema(), &self.what)?),
        }
    }
}
