//! Accounts and reports of all nodes as one.
//!
//! *Invariants*: terms add up, because each event is in the books of its home alone; a node that does not answer is an error.

use super::ClusterClient;
use crate::put::NO_WAIT;
use crate::retry::Limit;
use forebay_core::{
    ConflictInfo, DeadTimeRow, DebugInfo, Error, HoldInfo, Inhibit, Kind, Ledger, LedgerBy, LedgerRow, Result,
    RunStatus, RunSummary, SourceStatus, Stats,
};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

impl ClusterClient {
    /// What each node says of a run, with its name; a node that never had it says nothing.
    fn of_run<T: Send>(&self, run: u64, call: impl Fn(&crate::Client) -> Result<T> + Sync) -> Result<Vec<T>> {
        let answers = self.all_of(Some(run), |client| match call(client) {
            // It was away when the run was opened, and catches up: it has none of its events.
            Err(error) if error.kind() == Kind::Invalid => Ok(Err(error)),
            answer => answer.map(Ok),
        })?;
        let (known, unknown): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        match unknown.into_iter().find_map(Result::err) {
            Some(error) if known.is_empty() => Err(error),
            _ if known.is_empty() => Err(Error::invalid(format!("run {run} is not known to the cluster"))),
            _ => Ok(known.into_iter().flatten().collect()),
        }
    }

    /// The account of a run over all nodes.
    ///
    /// # Errors
    /// As [`crate::Client::ledger`].
    pub fn ledger(&self, run: u64) -> Result<Ledger> {
        let mut sum = Ledger::default();
        self.of_run(run, |client| client.ledger(run))?.iter().for_each(|ledger| sum.add(ledger));
        Ok(sum)
    }

    /// The account of a run in rows, over all nodes.
    ///
    /// # Errors
    /// As [`crate::Client::ledger_by`].
    pub fn ledger_by(&self, run: u64, by: LedgerBy) -> Result<Vec<LedgerRow>> {
        let parts = self.of_run(run, |client| client.ledger_by(run, by))?;
        if by == LedgerBy::Stream {
            return Ok(self.streams(parts));
        }
        let mut all = rows(parts);
        all.sort_by_key(|row| numbers(&row.name));
        Ok(all)
    }

    /// Rows by stream in the order in which the keyspace declares them; behind these in the order in which the nodes say them.
    fn streams(&self, parts: Vec<Vec<LedgerRow>>) -> Vec<LedgerRow> {
        let declared = &self.keyspace().streams;
        let mut all = rows(parts);
        // A node leaves out the streams that have nothing there.
        all.sort_by_key(|row| declared.iter().position(|name| *name == row.name).unwrap_or(declared.len()));
        all
    }

    /// Sources of a run: what came of each to all nodes.
    ///
    /// # Errors
    /// As [`crate::Client::sources`].
    pub fn sources(&self, run: u64) -> Result<Vec<SourceStatus>> {
        Ok(sources(self.of_run(run, |client| client.sources(run))?))
    }

    /// All runs with their accounts over all nodes.
    ///
    /// # Errors
    /// As [`crate::Client::runs`].
    pub fn runs(&self) -> Result<Vec<RunStatus>> {
        let mut all: BTreeMap<u64, RunStatus> = BTreeMap::new();
        let parts = self.inner.nodes.everywhere(self.begin(NO_WAIT), crate::Client::runs)?;
        let placed = self.placed();
        for ((node, name), part) in parts {
            for status in part {
                let status = RunStatus { inhibit: status.inhibit.map(|inhibit| of_node(inhibit, &name)), ..status };
                match all.entry(status.run) {
                    Entry::Vacant(place) => drop(place.insert(status)),
                    Entry::Occupied(mut known) => {
                        let known = known.get_mut();
                        if placed.keyspace.home(status.run, &status.run.to_be_bytes()) == node {
                            known.state = status.state;
                        }
                        known.ledger.add(&status.ledger);
                        known.producers.extend(status.producers);
                        known.masked.extend(status.masked);
                        known.masked.sort_unstable();
                        known.masked.dedup();
                        known.inhibit = known.inhibit.take().or(status.inhibit);
                    }
                }
            }
        }
        Ok(all.into_values().collect())
    }

    /// The summary of a run over all nodes. What is neither in the account nor by source, stream or attribute, the home of the run says.
    ///
    /// Dead time is that of the node that has most of it, which each row names: nodes keep sums, and these do not say which of
    /// them inhibited at the same time. The trigger had at least that much, and at most the sum over all nodes.
    ///
    /// # Errors
    /// As [`crate::Client::run_summary`].
    pub fn run_summary(&self, run: u64) -> Result<RunSummary> {
        let home = self.placed().keyspace.home(run, &run.to_be_bytes());
        // What is said of the run beside its account, its home says.
        let this = self.until(self.begin(NO_WAIT));
        let limit = Limit::new(this.begin(NO_WAIT));
        let mut whole = this.inner.nodes.node_within(home, limit)?.run_summary(run)?;
        let (names, parts): (Vec<String>, Vec<RunSummary>) = this
            .of_run(run, |client| {
                let node = client.pool().welcome.member.map_or(home, |member| member.node);
                let placed = this.placed();
                let name = placed.map.node(node).map_or_else(|| node.to_string(), |node| node.name.clone());
                Ok((name, client.run_summary(run)?))
            })?
            .into_iter()
            .unzip();
        // One full node inhibits the trigger of all.
        if let Some((name, most)) = names.iter().zip(&parts).max_by_key(|(_, part)| part.dead_ns()) {
            let of_node =
                |row: &DeadTimeRow| DeadTimeRow { level: format!("{} of node `{name}`", row.level), ..row.clone() };
            whole.dead_time = most.dead_time.iter().map(of_node).collect();
        }
        // A node that was down for a part of the run says less: no node's dead time is longer than this.
        whole.ran_ns = parts.iter().map(|part| part.ran_ns).fold(whole.ran_ns, u64::max);
        whole.ledger = Ledger::default();
        parts.iter().for_each(|part| whole.ledger.add(&part.ledger));
        whole.announced = parts.iter().map(|part| part.announced).sum();
        whole.streams = self.streams(parts.iter().map(|part| part.streams.clone()).collect());
        whole.groups = rows(parts.iter().map(|part| part.groups.clone()).collect());
        whole.groups.sort_by_key(|row| numbers(&row.name));
        whole.sources = sources(parts.into_iter().map(|part| part.sources).collect());
        Ok(whole)
    }

    /// All holds, with the events that each keeps back on all nodes.
    ///
    /// # Errors
    /// As [`crate::Client::holds`].
    pub fn holds(&self) -> Result<Vec<HoldInfo>> {
        let mut all: BTreeMap<u32, HoldInfo> = BTreeMap::new();
        for hold in self.everywhere(crate::Client::holds)?.into_iter().flatten() {
            match all.entry(hold.id) {
                Entry::Vacant(place) => drop(place.insert(hold)),
                Entry::Occupied(mut known) => known.get_mut().events += hold.events,
            }
        }
        Ok(all.into_values().collect())
    }

    /// Events of the debug streams.
    ///
    /// # Errors
    /// As [`crate::Client::debug_events`].
    pub fn debug_events(&self) -> Result<Vec<DebugInfo>> {
        Ok(self.everywhere(crate::Client::debug_events)?.into_iter().flatten().collect())
    }

    /// Conflicting copies that are kept.
    ///
    /// # Errors
    /// As [`crate::Client::conflicts`].
    pub fn conflicts(&self) -> Result<Vec<ConflictInfo>> {
        Ok(self.everywhere(crate::Client::conflicts)?.into_iter().flatten().collect())
    }

    /// What the openings of the nodes found missing or damaged and an operator accepted.
    ///
    /// # Errors
    /// As [`crate::Client::losses`].
    pub fn losses(&self) -> Result<Vec<String>> {
        Ok(self.everywhere(crate::Client::losses)?.into_iter().flatten().collect())
    }

    /// All nodes at a glance: counts and bytes of all of them, the highest fill, and the first inhibit with the name of its
    /// node. What is of one node alone (holders, memory, the warm level, dead time, the boot generation) is the first node's.
    ///
    /// # Errors
    /// As [`crate::Client::stats`].
    pub fn stats(&self) -> Result<Stats> {
        let parts = self.inner.nodes.everywhere(self.begin(NO_WAIT), crate::Client::stats)?;
        let named = parts.into_iter().map(|((_, name), mut part)| {
            part.inhibit = part.inhibit.map(|inhibit| of_node(inhibit, &name));
            part.debug.alarm = part.debug.alarm.map(|alarm| format!("node `{name}`: {alarm}"));
            part
        });
        named.reduce(add_stats).ok_or_else(|| Error::internal("a map without nodes"))
    }
}

/// One full node inhibits the trigger of all: it is named.
fn of_node(inhibit: Inhibit, name: &str) -> Inhibit {
    Inhibit { scope: format!("{} of node `{name}`", inhibit.scope), ..inhibit }
}

fn add_stats(mut sum: Stats, part: Stats) -> Stats {
    sum.segments += part.segments;
    sum.segments_free += part.segments_free;
    sum.fill = sum.fill.max(part.fill);
    for state in forebay_core::LIVE_STATES {
        sum.events[state] += part.events[state];
    }
    for (all, more) in [
        (&mut sum.leases, part.leases),
        (&mut sum.workers_silent, part.workers_silent),
        (&mut sum.workers_failed, part.workers_failed),
        (&mut sum.held_too_long, part.held_too_long),
        (&mut sum.decided_events, part.decided_events),
        (&mut sum.conflicts_kept, part.conflicts_kept),
        (&mut sum.held, part.held),
        (&mut sum.evacuated, part.evacuated),
    ] {
        *all += more;
    }
    sum.stores.extend(part.stores);
    sum.segments_pinned += part.segments_pinned;
    sum.ready.iter_mut().zip(part.ready).for_each(|(all, more)| *all += more);
    sum.inhibit = sum.inhibit.or(part.inhibit);
    sum.inhibited_ns = sum.inhibited_ns.max(part.inhibited_ns);
    sum.debug.tally += part.debug.tally;
    sum.debug.conflicts += part.debug.conflicts;
    sum.debug.quota_bytes += part.debug.quota_bytes;
    sum.debug.alarm = sum.debug.alarm.or(part.debug.alarm);
    sum
}

/// Numbers and names in the order of their parts: what people write as `1/10` comes behind `1/9`.
fn numbers(name: &str) -> Vec<(u64, String)> {
    let part = |part: &str| part.parse().map_or_else(|_| (u64::MAX, part.to_owned()), |number| (number, String::new()));
    name.split('/').map(part).collect()
}

/// Rows of one name as one, in the order in which the nodes say them.
fn rows(parts: Vec<Vec<LedgerRow>>) -> Vec<LedgerRow> {
    let mut all: Vec<LedgerRow> = Vec::new();
    for row in parts.into_iter().flatten() {
        let Some(sum) = all.iter_mut().find(|known| known.name == row.name) else {
            all.push(row);
            continue;
        };
        for (term, more) in [
            (&mut sum.live, row.live),
            (&mut sum.rejected, row.rejected),
            (&mut sum.released, row.released),
            (&mut sum.removed, row.removed),
            (&mut sum.ended, row.ended),
        ] {
            *term += more;
        }
        sum.complete += row.complete;
        sum.incomplete += row.incomplete;
    }
    all
}

fn sources(parts: Vec<Vec<SourceStatus>>) -> Vec<SourceStatus> {
    let mut all: Vec<SourceStatus> = Vec::new();
    for row in parts.into_iter().flatten() {
        let Some(sum) = all.iter_mut().find(|known| known.source == row.source) else {
            all.push(row);
            continue;
        };
        sum.fragments += row.fragments;
        sum.bytes += row.bytes;
        sum.rate_hz += row.rate_hz;
        // Its last fragment on any node, and its highest key.
        sum.age = [sum.age, row.age].into_iter().flatten().min();
        sum.last_key = [sum.last_key.take(), row.last_key].into_iter().flatten().max_by_key(|key| numbers(key));
        sum.missing += row.missing;
        sum.late += row.late;
        sum.conflicts += row.conflicts;
        sum.masked = sum.masked.take().or(row.masked);
    }
    all.sort_by_key(|row| numbers(&row.source));
    all
}
