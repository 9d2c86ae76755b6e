//! Why a fragment is missing: for the person who looks for it at night.

use crate::engine::{Engine, closed};
use crate::events::{Ending, Flag, Incident, IncidentKind, Run, State};
use crate::shards::Shard;
use crate::{RunState, SourceState, Store, Why};
use forebay_core::{Key, LiveState, Result};
use std::time::Duration;

impl Store {
    /// Why the fragment of a key is, or is not, in the store. What happened to single puts is remembered within bounds,
    /// the last thousand or so of each of 16 parts of the store.
    ///
    /// # Errors
    /// `Invalid` for a key of another schema, `Closed`.
    pub fn why(&self, key: &Key) -> Result<Why> {
        let engine = self.engine();
        engine.check_key(key)?;
        let schema = &engine.keyspace.schema;
        // Before the event's lock: it takes all cells in turn.
        let forgotten = engine.forgot_endings(schema.run_of(key.as_bytes()));
        let (primary, source) = key.as_bytes().split_at(schema.primary_bytes());
        let shard = engine.shards.cell_of(primary).lock();
        if shard.closed {
            return Err(closed());
        }
        let incidents: Vec<String> = shard.events.incidents.of(key).map(|incident| engine.tell(incident)).collect();
        let number = schema.run_of(primary);
        let found = engine.find(&shard, primary);
        let (answer, because) = match (shard.events.run_index(number), found) {
            (_, Err(elsewhere)) => ("elsewhere", elsewhere.message().to_owned()),
            (None, _) => ("run-unknown", format!("run {number} was never opened in this store")),
            (Some(run), Ok(None)) => engine.why_no_event(&shard.events.runs[run as usize], primary, forgotten),
            (Some(_), Ok(Some(event))) => engine.why_in_event(&shard, event, source),
        };
        let had = |kind| shard.events.incidents.of(key).any(|incident| incident.kind == kind);
        let lost = had(IncidentKind::Lost);
        let has_table = shard.seat.as_ref().is_some_and(|seat| seat.has_table(number));
        let (answer, because) = match answer {
            // A home refuses for good what another node holds and was late: its key is closed as if it were removed.
            "removed" if has_table && had(IncidentKind::LateLeased) => {
                ("removed", format!("{because}, or refused for good because a worker had the event"))
            }
            "missing" | "not-expected" | "never-announced" if lost => {
                ("lost", format!("{because}; it was stored, and damaged later: the operator accepted its loss"))
            }
            _ => (answer, because),
        };
        Ok(Why { answer: answer.into(), because, incidents })
    }
}

impl Engine {
    /// Whether more events of a run were released, removed or never seen than is remembered one by one.
    fn forgot_endings(&self, run: u64) -> bool {
        let mut remembered = 0;
        for cell in &self.shards.cells {
            let shard = cell.lock();
            let Some(index) = shard.events.run_index(run) else { continue };
            remembered +=
                shard.events.runs[index as usize].endings.iter().map(crate::events::Decided::len).sum::<u64>();
        }
        let ledger = self.sum_ledger(run);
        ledger.released.events + ledger.removed.events + ledger.never_seen > remembered
    }

    fn why_no_event(&self, run: &Run, primary: &[u8], forgotten: bool) -> (&'static str, String) {
        let event = self.keyspace.schema.text(primary);
        if run.state == RunState::Closed {
            return (
                "run-closed",
                format!("run {} is closed: its summary has its account, single events are not known", run.run),
            );
        }
        let ended = |ending: Ending| run.endings[ending as usize].contains(self.shards.decided_form, primary);
        if ended(Ending::Released) {
            return ("moved", format!("event {event} was released: the archive has taken it over"));
        }
        if ended(Ending::Removed) {
            return ("removed-event", format!("event {event} was removed"));
        }
        if ended(Ending::NeverSeen) {
            return ("never-seen", format!("event {event} was announced, and nothing of it arrived in time"));
        }
        if forgotten && run.decided.contains(self.shards.decided_form, primary) {
            return ("decided", format!("event {event} is decided: how it ended is not remembered any more"));
        }
        if run.decided.contains(self.shards.decided_form, primary) {
            return ("rejected", format!("event {event} was rejected by the selection"));
        }
        ("never-announced", format!("event {event} was never announced, and no fragment of it was ever stored"))
    }

    fn why_in_event(&self, shard: &Shard, event: u32, source: &[u8]) -> (&'static str, String) {
        let schema = &self.keyspace.schema;
        let leaf = &shard.events[event];
        let state = match leaf.state {
            State::Live(state) => state.name(),
            _ => "ending",
        };
        let age = Duration::from_nanos(self.now_ns().saturating_sub(leaf.arrival_ns));
        let of = format!("event {} is {state}, {age:.1?} old", schema.text(shard.events.primary(event).as_bytes()));
        let named = schema.source_text(source);
        if let Ok((_, word)) = shard.events.slot(event, source) {
            return match () {
                () if word.is_pending() => ("in-flight", format!("{of}; the fragment is being written now")),
                () if word.is_removed() => ("removed", format!("{of}; the fragment was removed")),
                () if word.is_late() => {
                    ("present", format!("{of}; the fragment is there, it came after the event was ready"))
                }
                () => ("present", format!("{of}; the fragment is there")),
            };
        }
        if let Some(mask) = shard.events.masked(event, source) {
            let by = if mask.automatic { "the run's policy" } else { "hand" };
            return ("masked", format!("{of}; source {named} is masked by {by}: the event does not wait for it"));
        }
        let rule = shard.events.rule(event);
        // An event that has all it waits for, and lacks a source that it names: this was masked.
        let was_masked = !rule.sources().is_empty() && leaf.is(Flag::Complete);
        match rule.absent(source, was_masked) {
            SourceState::Masked => ("masked", format!("{of}; source {named} was masked when it became ready")),
            SourceState::Missing if leaf.state == State::Live(LiveState::Open) => {
                ("missing", format!("{of}; it waits for source {named}"))
            }
            SourceState::Missing => ("missing", format!("{of}; it became ready without source {named}")),
            _ => {
                let present = leaf.present;
                ("not-expected", format!("{of} with {present} fragments; it does not wait for source {named} by name"))
            }
        }
    }

    fn tell(&self, incident: &Incident) -> String {
        let when = match incident.at_ns {
            0 => "before the store was opened".to_owned(),
            at => format!("{:.1?} ago", Duration::from_nanos(self.now_ns().saturating_sub(at))),
        };
        format!("{when}, {} bytes: {}", incident.length, incident.kind.words())
    }
}
