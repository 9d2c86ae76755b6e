//! The report of a server at its end: connections that were cut, and what its stores hold.

use crate::output::Output;
use crate::units;
use forebay_core::{LIVE_STATES, Result, RingStats};
use forebay_ring::Ring;
use forebay_server::Served;
use forebay_store::{RunState, RunStatus, Store};
use serde::Serialize;
use std::collections::BTreeMap;

/// Most lines about one thing.
pub(super) const LINES_MAX: usize = 20;

/// The report.
#[derive(Serialize)]
pub(super) struct Report {
    connections_cut: usize,
    keyspaces: Vec<KeyspaceReport>,
    rings: Vec<RingReport>,
}

#[derive(Serialize)]
struct RingReport {
    keyspace: String,
    /// What it keeps.
    fragments: u64,
    bytes: u64,
    stored: u64,
    expired: u64,
    /// What does not add up.
    imbalance: Option<String>,
}

#[derive(Serialize)]
struct KeyspaceReport {
    keyspace: String,
    /// Live events by state.
    events: BTreeMap<&'static str, u64>,
    /// Runs that are not closed.
    runs: Vec<RunReport>,
    /// Of those, the ones that are not in `runs`.
    runs_more: usize,
}

#[derive(Serialize)]
struct RunReport {
    run: u64,
    state: &'static str,
    stored: u64,
    /// What became of them: the terms that are not 0, in fragments.
    terms: Vec<(&'static str, u64)>,
    /// What does not add up.
    imbalance: Option<String>,
}

impl Report {
    /// What is held now; to be asked before the stores and rings are closed.
    pub(super) fn of(connections_cut: usize, served: &[Served]) -> Report {
        let (mut keyspaces, mut rings) = (Vec::new(), Vec::new());
        for served in served {
            match served {
                Served::Events(store) => keyspaces.push(KeyspaceReport::of(store)),
                Served::Ring(ring) => rings.push(RingReport::of(ring)),
            }
        }
        Report { connections_cut, keyspaces, rings }
    }

    pub(super) fn write(&self, out: &mut Output) -> Result<()> {
        out.json(&serde_json::json!({ "stopped": self }))?;
        out.line(format!("stopped: {} cut", units::plural(self.connections_cut as u64, "connection")))?;
        for keyspace in &self.keyspaces {
            keyspace.write(out)?;
        }
        for ring in &self.rings {
            ring.write(out)?;
        }
        out.finish()
    }
}

/// The end of a line about an account.
fn verdict(imbalance: &Option<String>) -> String {
    match imbalance {
        None => "balances".to_owned(),
        Some(what) => format!("DOES NOT BALANCE: {what}"),
    }
}

impl RingReport {
    fn of(ring: &Ring) -> RingReport {
        let RingStats { fragments, bytes, ledger, .. } = ring.stats();
        RingReport {
            keyspace: ring.keyspace().name.clone(),
            fragments,
            bytes,
            stored: ledger.stored.fragments,
            expired: ledger.expired.fragments,
            imbalance: ledger.imbalance(),
        }
    }

    fn write(&self, out: &mut Output) -> Result<()> {
        let (stored, verdict) = (units::plural(self.stored, "fragment"), verdict(&self.imbalance));
        let RingReport { keyspace, fragments, expired, .. } = self;
        out.line(format!("{keyspace}: stored {stored}, of which {expired} expired and {fragments} are kept; {verdict}"))
    }
}

impl KeyspaceReport {
    fn of(store: &Store) -> KeyspaceReport {
        let stats = store.stats();
        let events = stats.events.iter().map(|(state, tally)| (state.name(), tally.events)).collect();
        let mut runs = store.runs();
        runs.retain(|run| run.state != RunState::Closed);
        let runs_more = runs.len().saturating_sub(LINES_MAX);
        // The latest are those that somebody asks about.
        let runs = runs.iter().skip(runs_more).map(RunReport::of).collect();
        KeyspaceReport { keyspace: store.keyspace().name.clone(), events, runs, runs_more }
    }

    fn write(&self, out: &mut Output) -> Result<()> {
        let events = LIVE_STATES.iter().filter_map(|state| {
            let count = self.events.get(state.name()).copied().unwrap_or(0);
            (count > 0).then(|| format!("{count} {}", state.name()))
        });
        let events = events.collect::<Vec<_>>().join(", ");
        let events = if events.is_empty() { "no live events".to_owned() } else { format!("events: {events}") };
        out.line(format!("{}: {events}", self.keyspace))?;
        for run in &self.runs {
            run.write(out)?;
        }
        if self.runs_more > 0 {
            out.line(format!("  and {} before", units::plural(self.runs_more as u64, "run")))?;
        }
        Ok(())
    }
}

impl RunReport {
    fn of(status: &RunStatus) -> RunReport {
        let terms = status.ledger.stored_terms().into_iter().map(|(name, tally)| (name, tally.fragments));
        RunReport {
            run: status.run,
            state: status.state.name(),
            stored: status.ledger.stored.fragments,
            terms: terms.filter(|(_, fragments)| *fragments > 0).collect(),
            imbalance: status.ledger.imbalance(),
        }
    }

    fn write(&self, out: &mut Output) -> Result<()> {
        let terms: Vec<String> = self.terms.iter().map(|(name, fragments)| format!("{fragments} {name}")).collect();
        let sum = if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") };
        let verdict = verdict(&self.imbalance);
        let stored = units::plural(self.stored, "fragment");
        out.line(format!("  run {} {}: stored {stored} = {sum}; {verdict}", self.run, self.state))
    }
}
