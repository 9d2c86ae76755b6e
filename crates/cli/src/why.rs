//! `forebay why`: why a fragment is, or is not, in the store.

use crate::open::{Close, Opened, Place};
use crate::output::{Answer, Output};
use forebay_core::{EventStore, OperatedStore, Result};
use serde_json::json;

const HELP: &str = "\
Why is this fragment missing? One word, the same in a sentence with figures, and what is remembered of puts of this key \
that were not stored: refused, late, in conflict. The memory of single puts is bounded; counts are in the ledger.

The words: present, in-flight, missing, masked, removed, not-expected, never-announced, rejected, moved, removed-event, \
never-seen, decided, run-closed, run-unknown. Exit code 0 where the fragment is there, 1 where it is not.

Example: source 7 of event 42 of run 1; only the word:
  forebay why /tmp/first 1/42/7
  forebay why /tmp/first 1/42/7 --json | jq -r .answer";

/// Say why a fragment is, or is not, there.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Why {
    #[command(flatten)]
    store: Place,
    /// Key, such as run/event/source: 1/42/7.
    #[arg(value_name = "RUN/EVENT/SOURCE")]
    key: String,
}

impl Why {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let answer = self.answer(&store, out)?;
        store.close()?;
        Ok(answer)
    }

    fn answer(&self, store: &Opened, out: &mut Output) -> Result<Answer> {
        let key = store.schema().parse_key(&self.key)?;
        let why = store.why(&key)?;
        out.line(format!("{}: {}", why.answer, why.because))?;
        for incident in &why.incidents {
            out.line(format!("  {incident}"))?;
        }
        out.json(&json!({
            "key": store.schema().text(key.as_bytes()),
            "answer": why.answer,
            "because": why.because,
            "incidents": why.incidents,
        }))?;
        Ok(Answer::found(why.answer == "present"))
    }
}
