//! `forebay ledger`: the account of one run, with both sums.

use crate::open::{Close, Opened, Place};
use crate::output::{Answer, Output};
use forebay_core::{Error, EventStore, LIVE_STATES, Ledger as Account, OperatedStore, Result, Tally};
use forebay_store::{LedgerBy, LedgerRow, RunState, RunStatus};
use serde_json::{Map, Value, json};

const HELP: &str = "\
Show what became of every fragment that was ever put into a run. Two sums must be exact, in fragments and in bytes:
  offered = stored + duplicate + conflict + late + refused
  stored  = open + ready + leased + debug + accepted (live) + rejected + released + removed + superseded + expired + lost

They always are; if they are not, the command names what does not add up and exits with 1. An unknown run is absent: 1 too.

With --by the account is split: by accepted stream (an event may be in several), by source, or by the attribute that \
the keyspace names (`ledger_by`), such as a lumi section. By source and by attribute the rows sum to the whole.

Example:
  forebay ledger /tmp/first 1
  forebay ledger /tmp/first 1 --by stream
  forebay ledger /tmp/first 1 --by lumi
  forebay ledger /tmp/first 1 --json | jq .terms.rejected.events";

/// Show the account of a run and whether it balances.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Ledger {
    #[command(flatten)]
    store: Place,
    /// Run number.
    run: u64,
    /// Splits it by `stream`, by `source`, or by the keyspace's attribute, such as `lumi`.
    #[arg(long, value_name = "WHAT")]
    by: Option<String>,
}

impl Ledger {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let status = store.runs()?.into_iter().find(|status| status.run == self.run);
        let answer = match &status {
            Some(status) => match self.by(&store)? {
                None => self.show(&store, status, out)?,
                Some(by) => self.split(&store, by, out)?,
            },
            None => no_run_here(self.run, out)?,
        };
        store.close()?;
        Ok(answer)
    }

    fn show(&self, store: &Opened, status: &RunStatus, out: &mut Output) -> Result<Answer> {
        let account = store.ledger(self.run)?;
        out.json(&account_json(self.run, status.state, &account))?;
        out.line(format!("run {} · {}", self.run, state_name(status.state)))?;
        for line in table(&account) {
            out.line(line)?;
        }
        Ok(Answer::found(account.imbalance().is_none()))
    }

    fn by(&self, store: &Opened) -> Result<Option<LedgerBy>> {
        let attribute = store.keyspace().ledger_by.as_deref();
        match self.by.as_deref() {
            None => Ok(None),
            Some("stream") => Ok(Some(LedgerBy::Stream)),
            Some("source") => Ok(Some(LedgerBy::Source)),
            Some(name) if Some(name) == attribute => Ok(Some(LedgerBy::Attribute)),
            Some(name) => Err(Error::invalid(format!(
                "--by {name}: stream, source{}",
                attribute.map_or_else(
                    || "; this keyspace names no attribute to keep the ledger by (`ledger_by` in its file)".to_owned(),
                    |attribute| format!(" or {attribute}")
                )
            ))),
        }
    }

    fn split(&self, store: &Opened, by: LedgerBy, out: &mut Output) -> Result<Answer> {
        let rows = store.ledger_by(self.run, by)?;
        out.json(&json!({ "run": self.run, "by": self.by, "rows": rows }))?;
        out.line(format!("run {} · by {}", self.run, self.by.as_deref().unwrap_or_default()))?;
        for line in rows_table(&rows, by) {
            out.line(line)?;
        }
        Ok(Answer::Yes)
    }
}

/// The rows of a split account: only columns that mean something for the split.
fn rows_table(rows: &[LedgerRow], by: LedgerBy) -> Vec<String> {
    type Column = (&'static str, fn(&LedgerRow) -> u64);
    let columns: Vec<Column> = match by {
        LedgerBy::Stream => vec![
            ("live events", |row| row.live.events),
            ("live fragments", |row| row.live.fragments),
            ("live bytes", |row| row.live.bytes),
            ("released events", |row| row.released.events),
        ],
        LedgerBy::Source => vec![
            ("live fragments", |row| row.live.fragments),
            ("live bytes", |row| row.live.bytes),
            ("ended fragments", |row| row.ended.fragments),
            ("ended bytes", |row| row.ended.bytes),
        ],
        LedgerBy::Attribute => vec![
            ("complete", |row| row.complete),
            ("incomplete", |row| row.incomplete),
            ("live events", |row| row.live.events),
            ("rejected", |row| row.rejected.events),
            ("released", |row| row.released.events),
            ("removed", |row| row.removed.events),
        ],
    };
    let row = |name: &str, cells: &mut dyn Iterator<Item = String>| {
        cells.fold(format!("{name:<16}"), |line, cell| format!("{line} {cell:>15}"))
    };
    let mut lines = vec![row("", &mut columns.iter().map(|column| column.0.to_owned()))];
    lines.extend(rows.iter().map(|one| row(&one.name, &mut columns.iter().map(|column| column.1(one).to_string()))));
    lines
}

/// What a question about a run that is not there gets.
pub(crate) fn no_run_here(run: u64, out: &mut Output) -> Result<Answer> {
    out.note(format!("forebay: no run {run} here (`forebay run DIR list` shows the runs)"));
    out.json(&json!({ "run": run, "found": false }))?;
    Ok(Answer::No)
}

/// The outcomes of a put, by name.
fn outcomes(account: &Account) -> [(&'static str, Tally); 5] {
    [
        ("stored", account.stored),
        ("duplicate", account.duplicate),
        ("conflict", account.conflict),
        ("late", account.late),
        ("refused", account.refused),
    ]
}

/// The account as text, one line each.
pub(crate) fn table(account: &Account) -> Vec<String> {
    let mut lines = vec![format!("{:<16}{:>14}{:>16}{:>22}", "", "events", "fragments", "bytes")];
    let row = |name: &str, tally: Tally, with_events: bool| {
        let events = if with_events { tally.events.to_string() } else { String::new() };
        format!("{name:<16}{events:>14}{:>16}{:>22}", tally.fragments, tally.bytes)
    };
    lines.push(row("offered", account.offered, false));
    for (name, tally) in outcomes(account) {
        lines.push(row(&format!("  {name}"), tally, false));
    }
    lines.push(row("  sum", sum(&outcomes(account)), false));
    lines.push(row("stored", account.stored, false));
    let terms = account.stored_terms();
    for (at, (name, tally)) in terms.iter().enumerate() {
        // Single fragments can be removed, replaced or expired: those terms count fragments first.
        let with_events = at < LIVE_STATES.len() || tally.events > 0 || matches!(*name, "rejected" | "released");
        lines.push(row(&format!("  {name}"), *tally, with_events));
        if *name == "accepted" && account.in_custody.fragments > 0 {
            // A part of accepted and debug: not summed again.
            lines.push(row("    in custody", account.in_custody, true));
        }
    }
    lines.push(row("  sum", sum(&terms), false));
    lines.push(format!(
        "events: {} known = {} complete + {} incomplete + {} never seen + {} open + {} announced, nothing of them yet",
        account.announced(),
        account.complete,
        account.incomplete,
        account.never_seen,
        account.live.open.events,
        account.awaited
    ));
    lines.push(match account.imbalance() {
        None => "balanced: both sums are exact".to_owned(),
        Some(what) => format!("NOT BALANCED: {what}"),
    });
    lines
}

fn sum(terms: &[(&'static str, Tally)]) -> Tally {
    // Wrapping, as the ledger itself sums: an absurd figure is shown, not a panic.
    terms.iter().fold(Tally::default(), |sum, (_, term)| Tally {
        events: sum.events.wrapping_add(term.events),
        fragments: sum.fragments.wrapping_add(term.fragments),
        bytes: sum.bytes.wrapping_add(term.bytes),
    })
}

/// The account as JSON, terms by name.
pub(crate) fn account_json(run: u64, state: RunState, account: &Account) -> Value {
    let named = |terms: &[(&'static str, Tally)]| {
        terms.iter().map(|(name, tally)| ((*name).to_owned(), json!(tally))).collect::<Map<_, _>>()
    };
    json!({
        "run": run,
        "found": true,
        "state": state,
        "balanced": account.imbalance().is_none(),
        "imbalance": account.imbalance(),
        "offered": account.offered,
        "outcomes": named(&outcomes(account)),
        "terms": named(&account.stored_terms()),
        "in_custody": account.in_custody,
        "announced": account.announced(),
        "complete": account.complete,
        "incomplete": account.incomplete,
        "never_seen": account.never_seen,
        "awaited": account.awaited,
    })
}

/// A run's state in lower case.
pub(crate) fn state_name(state: RunState) -> &'static str {
    state.name()
}

/// What a run that is not there means to a caller who wanted to change it.
pub(crate) fn no_run(run: u64) -> Error {
    Error::invalid(format!("no run {run} here; `forebay run DIR open {run}` opens it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_every_term_and_the_verdict() {
        let mut account = Account { offered: Tally::fragment(10), stored: Tally::fragment(10), ..Account::default() };
        let text = table(&account).join("\n");
        assert!(text.contains("NOT BALANCED: stored 1 fragments, 10 bytes"), "{text}");
        account.live.ready += Tally::event(1, 10);
        account.complete = 1;
        let text = table(&account).join("\n");
        assert!(text.ends_with("balanced: both sums are exact"), "{text}");
        for (name, _) in outcomes(&account).into_iter().chain(account.stored_terms()) {
            assert!(text.contains(&format!("\n  {name} ")), "{name}\n{text}");
        }
        let value = account_json(7, RunState::Open, &account);
        assert_eq!(value["terms"]["ready"]["events"], 1);
        assert_eq!(value["balanced"], true);
    }
}
