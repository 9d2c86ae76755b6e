//! Samples of a store: levels, events, leases, inhibit, accounts.
//!
//! *Not here*: containers and devices (`warm.rs`).

use super::text::Page;
use super::warm;
use forebay_core::{InhibitClass, Ledger, Marks, Result, RunState, RunStatus, SegmentInfo, ServedStore, Stats, Tally};
use std::collections::HashMap;

/// Runs whose accounts are shown, those with the highest numbers among those that are not closed: each is about fifty
/// series.
const RUNS_SHOWN: usize = 16;

/// Sums over the runs of a store, counted from the server's start and never falling: what is lost from an account in a
/// crash, or moved from one term to another by hand, is no start of a process, for which a monitor would take it.
#[derive(Default)]
pub(super) struct Rising {
    counts: HashMap<(String, &'static str, &'static str), Count>,
}

struct Count {
    first: u64,
    shown: u64,
}

impl Rising {
    fn count(&mut self, keyspace: &str, name: &'static str, term: &'static str, now: u64) -> f64 {
        let key = (keyspace.to_owned(), name, term);
        let count = self.counts.entry(key).or_insert(Count { first: now, shown: 0 });
        // Never lower than shown before: a monitor takes a counter that falls for a restart.
        count.shown = count.shown.max(now.saturating_sub(count.first));
        count.shown as f64
    }
}

/// Adds all of one store.
///
/// # Errors
/// Those of the store.
pub(super) fn add<S: ServedStore>(page: &mut Page, rising: &mut Rising, keyspace: &str, store: &S) -> Result<()> {
    let stats = store.stats()?;
    levels(page, keyspace, &store.marks()?, &stats);
    segments(page, keyspace, &store.segments()?, &stats);
    events(page, keyspace, &store.keyspace().stages, &stats);
    inhibit(page, keyspace, &stats);
    memory(page, keyspace, &stats);
    if let Some(level) = &stats.warm {
        warm::add(page, keyspace, level, &store.containers()?);
    }
    let runs = store.runs()?;
    totals(page, rising, keyspace, &runs);
    accounts(page, keyspace, &runs);
    Ok(())
}

fn levels(page: &mut Page, keyspace: &str, marks: &Marks, stats: &Stats) {
    let hot_bytes = u64::from(stats.segments) * stats.segment_bytes;
    let mut levels = vec![("hot", stats.fill, hot_bytes, marks.hot_high, marks.hot_low)];
    if let Some(warm) = &stats.warm {
        let bytes = u64::from(warm.containers) * warm.container_bytes;
        levels.push(("warm", warm.fill, bytes, marks.warm_high, marks.warm_low));
    }
    let mark = |page: &mut Page, level: &str, mark: &str, fill: f64| {
        let help = "Fill at which inhibit or demotion starts (high) and stops (low), 0 to 1.";
        let labels = [("keyspace", keyspace), ("level", level), ("mark", mark)];
        page.gauge("forebay_level_mark_ratio", help, &labels, fill);
    };
    for (level, fill, bytes, high, low) in levels {
        let labels = [("keyspace", keyspace), ("level", level)];
        page.gauge("forebay_level_fill_ratio", "Occupied share of a level, 0 to 1.", &labels, fill);
        page.gauge("forebay_level_capacity_bytes", "Bytes of a level.", &labels, bytes as f64);
        mark(page, level, "inhibit_high", high);
        mark(page, level, "inhibit_low", low);
    }
    if stats.warm.is_some() {
        mark(page, "hot", "demote_high", marks.demote_high);
        mark(page, "hot", "demote_low", marks.demote_low);
    }
}

fn segments(page: &mut Page, keyspace: &str, all: &[SegmentInfo], stats: &Stats) {
    let name = ("keyspace", keyspace);
    for state in ["free", "open", "sealed", "log"] {
        let count = all.iter().filter(|segment| segment.state == state).count();
        page.gauge("forebay_segments", "Segments of the hot level.", &[name, ("state", state)], count as f64);
    }
    let help = "Segments without live records that readers keep from being used again.";
    page.gauge("forebay_pinned_segments", help, &[name], f64::from(stats.segments_pinned));
    let help = "Segments that evacuation has emptied.";
    page.counter("forebay_evacuated_segments_total", help, &[name], stats.evacuated as f64);
    let guards: (u64, u64) =
        stats.holders.iter().fold((0, 0), |sum, holder| (sum.0 + holder.guards, sum.1 + holder.bytes));
    page.gauge("forebay_guards", "Reads in place that are held now.", &[name], guards.0 as f64);
    page.gauge("forebay_guarded_bytes", "Bytes under reads in place.", &[name], guards.1 as f64);
}

fn events(page: &mut Page, keyspace: &str, stages: &[String], stats: &Stats) {
    let name = ("keyspace", keyspace);
    for (state, tally) in stats.events.iter() {
        let labels = [name, ("state", state.name())];
        page.gauge("forebay_live_events", "Live events.", &labels, tally.events as f64);
        page.gauge("forebay_live_fragments", "Fragments of live events.", &labels, tally.fragments as f64);
        page.gauge("forebay_live_bytes", "Payload of live events.", &labels, tally.bytes as f64);
    }
    for (stage, ready) in stages.iter().zip(&stats.ready) {
        let help = "Events that wait for a worker of a stage, without those held back.";
        page.gauge("forebay_ready_events", help, &[name, ("stage", stage)], *ready as f64);
    }
    page.gauge("forebay_held_events", "Events held back from delivery.", &[name], stats.held as f64);
    page.gauge("forebay_decided_events", "Events in the memory of the decided.", &[name], stats.decided_events as f64);
    page.gauge("forebay_leases", "Leases that are out.", &[name], stats.leases as f64);
    let ended =
        [("failed", stats.workers_failed), ("silent", stats.workers_silent), ("held_too_long", stats.held_too_long)];
    for (reason, count) in ended {
        let help = "Leases that ended because their holder failed, went silent or held them too long.";
        page.counter("forebay_leases_expired_total", help, &[name, ("reason", reason)], count as f64);
    }
    page.gauge("forebay_debug_conflicts", "Conflicting copies kept.", &[name], stats.debug.conflicts as f64);
    let help = "Bytes that the debug stream may take before it inhibits.";
    page.gauge("forebay_debug_quota_bytes", help, &[name], stats.debug.quota_bytes as f64);
    let help = "1 while the debug stream has something for a person to look at.";
    page.gauge("forebay_debug_alarm", help, &[name], f64::from(u8::from(stats.debug.alarm.is_some())));
}

fn inhibit(page: &mut Page, keyspace: &str, stats: &Stats) {
    for class in InhibitClass::ALL {
        let word = class.name().replace(' ', "-");
        let labels = [("keyspace", keyspace), ("class", word.as_str())];
        let is_set = stats.inhibit.as_ref().is_some_and(|inhibit| inhibit.class == class);
        let help = "1 while the trigger should pause, for the first cause.";
        page.gauge("forebay_inhibit", help, &labels, f64::from(u8::from(is_set)));
        let help = "Time for which inhibit was set, each instant for one class.";
        page.counter("forebay_inhibited_seconds_total", help, &labels, stats.dead_time.of(class).as_secs_f64());
    }
}

fn memory(page: &mut Page, keyspace: &str, stats: &Stats) {
    let memory = &stats.memory;
    let parts = [
        ("nodes", memory.nodes),
        ("leaves", memory.leaves),
        ("tables", memory.tables),
        ("leases", memory.leases),
        ("decided", memory.decided),
        ("fixed", memory.fixed),
    ];
    for (part, bytes) in parts {
        let labels = [("keyspace", keyspace), ("part", part)];
        page.gauge("forebay_index_memory_bytes", "Memory of a store beyond its region.", &labels, bytes as f64);
    }
    let help = "How often the store was opened.";
    page.gauge("forebay_boot_generation", help, &[("keyspace", keyspace)], f64::from(stats.boot));
}

/// Terms of an account that only rise.
fn rising_terms(ledger: &Ledger) -> [(&'static str, Tally); 12] {
    [
        ("offered", ledger.offered),
        ("stored", ledger.stored),
        ("duplicate", ledger.duplicate),
        ("conflict", ledger.conflict),
        ("late", ledger.late),
        ("refused", ledger.refused),
        ("rejected", ledger.rejected),
        ("released", ledger.released),
        ("removed", ledger.removed),
        ("superseded", ledger.superseded),
        ("expired", ledger.expired),
        ("lost", ledger.lost),
    ]
}

/// Events by how they went on, those without fragments of their own included.
fn event_terms(ledger: &Ledger) -> [(&'static str, u64); 8] {
    // An accepted event is released later: together they are all that were ever accepted, and what a person took off
    // the debug stream.
    let accepted = ledger.live.accepted.events.wrapping_add(ledger.released.events);
    [
        ("accepted", accepted),
        ("rejected", ledger.rejected.events),
        ("released", ledger.released.events),
        ("removed", ledger.removed.events),
        ("complete", ledger.complete),
        ("incomplete", ledger.incomplete),
        ("never_seen", ledger.never_seen),
        ("lost", ledger.lost.events),
    ]
}

/// Adds sums over all runs, closed ones included.
pub(super) fn totals(page: &mut Page, rising: &mut Rising, keyspace: &str, runs: &[RunStatus]) {
    let mut all = Ledger::default();
    runs.iter().for_each(|run| all.add(&run.ledger));
    for (term, tally) in rising_terms(&all) {
        let labels = [("keyspace", keyspace), ("term", term)];
        let name = "forebay_fragments_total";
        let help = "Fragments by term of the ledger, over all runs, since the server began.";
        page.counter(name, help, &labels, rising.count(keyspace, name, term, tally.fragments));
        let name = "forebay_fragment_bytes_total";
        let help = "Payload by term of the ledger, over all runs, since the server began.";
        page.counter(name, help, &labels, rising.count(keyspace, name, term, tally.bytes));
    }
    for (term, events) in event_terms(&all) {
        let labels = [("keyspace", keyspace), ("term", term)];
        let name = "forebay_events_total";
        let help = "Events by what became of them, over all runs, since the server began.";
        page.counter(name, help, &labels, rising.count(keyspace, name, term, events));
    }
}

/// Adds runs by state, and the accounts of those that are not closed.
fn accounts(page: &mut Page, keyspace: &str, runs: &[RunStatus]) {
    for state in [RunState::Open, RunState::Paused, RunState::Stopped, RunState::Closed] {
        let count = runs.iter().filter(|run| run.state == state).count();
        let labels = [("keyspace", keyspace), ("state", state.name())];
        page.gauge("forebay_runs", "Runs that the store knows.", &labels, count as f64);
    }
    let mut shown: Vec<&RunStatus> = runs.iter().filter(|run| run.state != RunState::Closed).collect();
    // The highest numbers first: they are the runs that take data now.
    shown.sort_by_key(|run| std::cmp::Reverse(run.run));
    for run in shown.into_iter().take(RUNS_SHOWN) {
        account(page, keyspace, &run.run.to_string(), &run.ledger);
    }
}

fn account(page: &mut Page, keyspace: &str, run: &str, ledger: &Ledger) {
    let live: Vec<_> = ledger.live.iter().map(|(state, tally)| (state.name(), *tally)).collect();
    for (term, tally) in rising_terms(ledger).into_iter().chain(live.iter().copied()) {
        let labels = [("keyspace", keyspace), ("run", run), ("term", term)];
        let help = "Fragments of a run that is not closed, by term of its ledger.";
        page.gauge("forebay_run_fragments", help, &labels, tally.fragments as f64);
        let help = "Payload of a run that is not closed, by term of its ledger.";
        page.gauge("forebay_run_bytes", help, &labels, tally.bytes as f64);
    }
    let went = event_terms(ledger).into_iter().filter(|(term, _)| *term != "accepted");
    let live = live.into_iter().map(|(term, tally)| (term, tally.events));
    for (term, events) in went.chain(live).chain([("awaited", ledger.awaited)]) {
        let labels = [("keyspace", keyspace), ("run", run), ("term", term)];
        let help = "Events of a run that is not closed, by state or by how they ended.";
        page.gauge("forebay_run_events", help, &labels, events as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: u64, state: RunState, stored: u64) -> RunStatus {
        let stored = Tally { events: 0, fragments: stored, bytes: stored * 10 };
        let ledger = Ledger { stored, ..Ledger::default() };
        RunStatus { run: number, state, ledger, producers: vec![], masked: vec![], inhibit: None }
    }

    fn line(page: Page, start: &str) -> String {
        let text = page.text().unwrap();
        text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start} in {text}")).to_owned()
    }

    #[test]
    fn totals_begin_at_zero_and_never_fall() {
        let mut rising = Rising::default();
        for (stored, expected) in [(1000, 0), (1007, 7), (1003, 7), (1020, 20), (900, 20)] {
            let mut page = Page::default();
            totals(&mut page, &mut rising, "physics", &[run(1, RunState::Closed, stored)]);
            let name = "forebay_fragments_total{keyspace=\"physics\",term=\"stored\"}";
            assert_eq!(line(page, name), format!("{name} {expected}"));
        }
    }

    #[test]
    fn accounts_are_shown_of_some_runs_only() {
        let runs: Vec<RunStatus> = (0..40)
            .map(|number| run(number, if number % 2 == 0 { RunState::Open } else { RunState::Closed }, number))
            .collect();
        let mut page = Page::default();
        accounts(&mut page, "physics", &runs);
        let text = page.text().unwrap();
        let shown: Vec<u64> = text
            .lines()
            .filter(|line| line.starts_with("forebay_run_fragments{") && line.contains("term=\"stored\""))
            .map(|line| line.split("run=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        let expected: Vec<u64> = (0..40).rev().filter(|number| number % 2 == 0).take(RUNS_SHOWN).collect();
        assert_eq!(shown, expected);
        assert!(text.contains("forebay_runs{keyspace=\"physics\",state=\"closed\"} 20"));
    }
}
