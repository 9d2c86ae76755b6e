//! A run as one shard sees it: what completes its events, which are open, its account, and the memory of the decided.

use super::event::State;
use super::list::List;
use super::rule::{Mask, RunPlan};
use super::sources::SourceCounts;
use crate::RunState;
use forebay_core::{IntervalSet, KeySchema, Ledger, Tally};
use forebay_media::bytes::{Decision, DecisionKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Splits a packed primary key into what groups decided events and what is counted in intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecidedForm {
    padding: u32,
}

impl DecidedForm {
    pub(crate) fn new(schema: &KeySchema) -> DecidedForm {
        let bits: u32 = schema.sub_keys()[..schema.primary_len()].iter().map(|part| part.bits).sum();
        debug_assert!(
            bits.div_ceil(8) as usize == schema.primary_bytes(),
            "{bits} bits are packed without a spare byte"
        );
        DecidedForm { padding: schema.primary_bytes() as u32 * 8 - bits }
    }

    /// The leading bytes, and the last 8 (or fewer) as a number without padding: dense events are consecutive.
    #[inline]
    pub(crate) fn split(self, primary: &[u8]) -> (&[u8], u64) {
        // Most primary keys have 8 bytes or more: one load instead of a loop.
        if let Some((high, low)) = primary.split_last_chunk::<8>() {
            return (high, u64::from_be_bytes(*low) >> self.padding);
        }
        (&[], primary.iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte)) >> self.padding)
    }
}

impl DecidedForm {
    /// The key that [`DecidedForm::split`] took apart; `bytes` long.
    pub(crate) fn join(self, high: &[u8], low: u64, bytes: usize) -> Vec<u8> {
        let low = (low << self.padding).to_be_bytes();
        [high, &low[8 - bytes.saturating_sub(high.len()).min(8)..]].concat()
    }
}

/// The decided events of one run in one shard, by the leading bytes of their keys.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    groups: Vec<(Box<[u8]>, IntervalSet)>,
}

impl Decided {
    #[inline]
    pub(crate) fn contains(&self, form: DecidedForm, primary: &[u8]) -> bool {
        let (high, low) = form.split(primary);
        self.groups.binary_search_by(|group| (*group.0).cmp(high)).is_ok_and(|at| self.groups[at].1.contains(low))
    }

    pub(crate) fn insert(&mut self, form: DecidedForm, primary: &[u8]) {
        let (high, low) = form.split(primary);
        let at = self.groups.binary_search_by(|group| (*group.0).cmp(high)).unwrap_or_else(|at| {
            self.groups.insert(at, (high.into(), IntervalSet::default()));
            at
        });
        debug_assert!(self.is_sorted_at(at), "groups are sorted: each is found by a binary search");
        self.groups[at].1.insert(low);
    }

    pub(crate) fn set(&mut self, high: &[u8], set: IntervalSet) {
        match self.groups.binary_search_by(|group| (*group.0).cmp(high)) {
            Ok(at) => self.groups[at].1 = set,
            Err(at) => self.groups.insert(at, (high.into(), set)),
        }
    }

    fn is_sorted_at(&self, at: usize) -> bool {
        (at == 0 || self.groups[at - 1].0 < self.groups[at].0)
            && self.groups.get(at + 1).is_none_or(|next| self.groups[at].0 < next.0)
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = (&[u8], &IntervalSet)> {
        self.groups.iter().map(|(high, set)| (&**high, set))
    }

    pub(crate) fn len(&self) -> u64 {
        self.groups.iter().map(|group| group.1.len()).sum()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.groups.iter().map(|(high, set)| high.len() + set.heap_bytes() + 64).sum()
    }
}

/// How a decided event ended, where it was not simply rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Released = 0,
    Removed = 1,
    NeverSeen = 2,
}

impl Ending {
    pub(crate) fn of(kind: DecisionKind) -> Option<Ending> {
        match kind {
            DecisionKind::Release => Some(Ending::Released),
            DecisionKind::RemoveEvent => Some(Ending::Removed),
            DecisionKind::NeverSeen => Some(Ending::NeverSeen),
            _ => None,
        }
    }
}

impl Decided {
    /// As [`Decided::insert`] within bounds: past them the memory is emptied and starts over.
    pub(crate) fn insert_within(&mut self, bytes_max: usize, form: DecidedForm, primary: &[u8]) {
        // All at once, not the oldest: intervals have no order of arrival, and how an event ended is only told to people.
        if self.heap_bytes() > bytes_max {
            *self = Decided::default();
        }
        self.insert(form, primary);
    }
}

/// Totals of ended events with one value of the ledger's attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupAccount {
    pub(crate) rejected: Tally,
    pub(crate) released: Tally,
    pub(crate) removed: Tally,
    pub(crate) complete: u64,
    pub(crate) incomplete: u64,
}

impl GroupAccount {
    /// Counts an ended event; answers the terms to book it in: rejected, released, removed.
    fn end(&mut self, complete: bool, counted: bool) -> (&mut Tally, &mut Tally, &mut Tally) {
        if counted {
            *(if complete { &mut self.complete } else { &mut self.incomplete }) += 1;
        }
        (&mut self.rejected, &mut self.released, &mut self.removed)
    }

    pub(crate) fn add(&mut self, other: &GroupAccount) {
        self.rejected += other.rejected;
        self.released += other.released;
        self.removed += other.removed;
        self.complete += other.complete;
        self.incomplete += other.incomplete;
    }
}

/// One run in one shard.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) run: u64,
    pub(crate) state: RunState,
    pub(crate) plan: Arc<RunPlan>,
    pub(crate) masks: Arc<Vec<Mask>>,
    /// Pauses, the last of which may have no end yet, in nanoseconds of this life.
    pub(crate) pauses: Vec<(u64, u64)>,
    /// The memory of the decided outlives the run: containers may have images of such events.
    pub(crate) keeps_decided: bool,
    /// It is being closed, which may fail: puts wait until it is known.
    pub(crate) closing: bool,
    /// Position in the shadows from which on they know the run: no image of it counts on a device that has less.
    pub(crate) shadowed: u64,
    /// When it was stopped; of no meaning before.
    pub(crate) stopped_ns: u64,
    /// Events that still wait, oldest first.
    pub(crate) open: List,
    /// Events whose home is another node and may not know all that is here.
    pub(crate) untold: u64,
    pub(crate) ledger: Ledger,
    /// Fragments of foreign events that are here: their homes have them in their accounts.
    pub(crate) foreign: Tally,
    /// Ended events that were complete, and incomplete.
    pub(crate) ended: (u64, u64),
    pub(crate) decided: Decided,
    /// Those of the decided that were not rejected.
    pub(crate) endings: [Decided; 3],
    pub(crate) sources: SourceCounts,
    pub(crate) groups: BTreeMap<u64, GroupAccount>,
    /// Released events by stream.
    pub(crate) released: BTreeMap<u8, u64>,
    /// Misses by source since maintenance looked last, and since its last fragment here; with the fragments that there
    /// were at the last of them.
    pub(crate) missed: BTreeMap<Vec<u8>, (u32, u64)>,
}

impl Run {
    pub(crate) fn new(run: u64, plan: Arc<RunPlan>, state: RunState, now_ns: u64, keeps_decided: bool) -> Run {
        let mut fresh = Run {
            run,
            state: RunState::Open,
            plan,
            masks: Arc::default(),
            pauses: Vec::new(),
            keeps_decided,
            closing: false,
            shadowed: 0,
            stopped_ns: now_ns,
            open: List::new(),
            untold: 0,
            ledger: Ledger::default(),
            foreign: Tally::default(),
            ended: (0, 0),
            decided: Decided::default(),
            endings: Default::default(),
            sources: SourceCounts::default(),
            groups: BTreeMap::new(),
            released: BTreeMap::new(),
            missed: BTreeMap::new(),
        };
        fresh.enter(state, now_ns);
        fresh
    }

    /// Changes its state, and its clock with it.
    pub(crate) fn enter(&mut self, state: RunState, now_ns: u64) {
        debug_assert!(
            self.state != RunState::Closed || state == RunState::Closed,
            "run {}: its account is final",
            self.run
        );
        if state != RunState::Paused
            && let Some(last) = self.pauses.last_mut()
        {
            // The least: a pause that has ended keeps its end, regardless of what the run becomes after it.
            last.1 = last.1.min(now_ns);
        }
        match state {
            RunState::Paused if self.state != RunState::Paused => {
                debug_assert!(self.pauses.last().is_none_or(|last| last.1 != u64::MAX), "one pause at a time");
                self.pauses.push((now_ns, u64::MAX));
            }
            RunState::Stopped => self.stopped_ns = now_ns,
            RunState::Closed => self.forget_decided(),
            _ => {}
        }
        self.state = state;
    }

    /// It takes nothing any more, and answers for all its events.
    pub(crate) fn is_over(&self) -> bool {
        self.state == RunState::Closed
    }

    /// Whether it takes anything will be known in a moment.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing && self.state != RunState::Closed
    }

    /// A closed run answers for all its events; what its sources did is in its summary (`calls/account.rs` reads it there).
    fn forget_decided(&mut self) {
        // A store sees thousands of runs: what each leaves in memory for good is its ledger.
        self.sources = SourceCounts::default();
        self.missed = BTreeMap::new();
        if !self.keeps_decided {
            self.decided = Decided::default();
        }
        self.endings = Default::default();
    }

    /// How long an event that arrived then has waited, pauses left out.
    pub(crate) fn waited_ns(&self, arrival_ns: u64, now_ns: u64) -> u64 {
        let paused = self.pauses.iter().rev().take_while(|pause| pause.1 > arrival_ns);
        let paused: u64 = paused.map(|&(from, to)| to.min(now_ns).saturating_sub(from.max(arrival_ns))).sum();
        now_ns.saturating_sub(arrival_ns).saturating_sub(paused)
    }

    /// When an open event that arrived then is ready with what it has, in time or as its run is stopped; `u64::MAX` where
    /// neither comes by itself.
    pub(crate) fn due_ns(&self, arrival_ns: u64) -> u64 {
        let stopped = if self.state == RunState::Stopped { self.stopped_ns } else { u64::MAX };
        let grace_ns = stopped.saturating_add(self.plan.grace_ns);
        // Of pauses that it has waited through, each moves the moment back, if it began before it.
        let mut due_ns = arrival_ns.saturating_add(self.plan.within_ns);
        for &(from, to) in self.pauses.iter().filter(|pause| pause.1 > arrival_ns) {
            let from = from.max(arrival_ns);
            if from < due_ns {
                due_ns = due_ns.saturating_add(to.saturating_sub(from));
            }
        }
        due_ns.min(grace_ns)
    }

    /// Drops pauses that were over before the oldest open event came.
    pub(crate) fn forget_pauses(&mut self, oldest_ns: u64) {
        self.pauses.retain(|pause| pause.1 > oldest_ns);
    }

    /// What is here of its events in this state; `None` of those that are not there.
    pub(crate) fn here(&mut self, state: State) -> Option<&mut Tally> {
        match state {
            State::Live(state) => Some(&mut self.ledger.live[state]),
            State::Foreign => Some(&mut self.foreign),
            State::Vacant | State::Gone => None,
        }
    }

    /// Books an ended event in its term, and under the ledger's attribute.
    pub(crate) fn book_end(&mut self, kind: DecisionKind, tally: Tally, group: u64, complete: bool, counted: bool) {
        debug_assert_eq!(counted, kind != DecisionKind::NeverSeen, "an event was seen, or it was not");
        let account = (group != Decision::NO_GROUP).then(|| self.groups.entry(group).or_default());
        let ledger = &mut self.ledger;
        let (term, of_group): (&mut Tally, Option<&mut Tally>) = match kind {
            DecisionKind::Reject => (&mut ledger.rejected, account.map(|account| account.end(complete, counted).0)),
            DecisionKind::Release => (&mut ledger.released, account.map(|account| account.end(complete, counted).1)),
            _ => (&mut ledger.removed, account.map(|account| account.end(complete, counted).2)),
        };
        *term += tally;
        if let Some(of_group) = of_group {
            *of_group += tally;
        }
    }

    /// Counts an event that the log says has ended, as its own end would have.
    pub(crate) fn count_ended(&mut self, counted: bool, complete: bool) {
        let ledger = &mut self.ledger;
        match (counted, complete) {
            (false, _) => ledger.never_seen += 1,
            (true, true) => (ledger.complete, self.ended.0) = (ledger.complete + 1, self.ended.0 + 1),
            (true, false) => (ledger.incomplete, self.ended.1) = (ledger.incomplete + 1, self.ended.1 + 1),
        }
    }

    pub(crate) fn decided_bytes(&self) -> usize {
        self.decided.heap_bytes() + self.endings.iter().map(Decided::heap_bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_does_not_count_as_waiting() {
        let plan = RunPlan::new(
            &forebay_core::RunConfig::new(forebay_core::Completeness::Seal, std::time::Duration::from_secs(1)),
            &forebay_core::Keyspace::events("runs", 1).opening_runs(),
        );
        let mut run = Run::new(1, plan, RunState::Open, 0, false);
        run.enter(RunState::Paused, 100);
        run.enter(RunState::Paused, 120);
        assert_eq!(run.waited_ns(50, 180), 50);
        run.enter(RunState::Open, 200);
        run.enter(RunState::Paused, 300);
        run.enter(RunState::Stopped, 350);
        for (arrival, now, waited) in [(50, 400, 200), (150, 400, 150), (250, 400, 100), (320, 400, 50), (360, 400, 40)]
        {
            assert_eq!(run.waited_ns(arrival, now), waited, "{arrival} to {now}");
        }
        run.forget_pauses(250);
        assert_eq!(run.pauses, [(300, 350)]);
    }

    #[test]
    fn an_event_is_due_when_it_has_waited_for_its_time() {
        let within = 1_000_000_000;
        let config =
            forebay_core::RunConfig::new(forebay_core::Completeness::Seal, std::time::Duration::from_nanos(within));
        let plan = RunPlan::new(&config, &forebay_core::Keyspace::events("runs", 1).opening_runs());
        let mut run = Run::new(1, plan.clone(), RunState::Open, 0, false);
        for (state, at) in
            [(RunState::Paused, 100), (RunState::Open, 200), (RunState::Paused, 300), (RunState::Open, 350)]
        {
            run.enter(state, at);
        }
        // One that begins when the first events are over already.
        run.enter(RunState::Paused, within + 200);
        for arrival in [50, 150, 250, 320, 360] {
            let due = run.due_ns(arrival);
            if arrival == 50 {
                assert_eq!(
                    (run.waited_ns(arrival, due), run.waited_ns(arrival, due - 1)),
                    (within, within - 1),
                    "{arrival}"
                );
            } else {
                assert_eq!(due, u64::MAX, "{arrival}: the pause goes on");
            }
        }
        run.enter(RunState::Stopped, within + 900);
        assert_eq!(run.due_ns(360), (within + 900 + plan.grace_ns).min(360 + within + 700));
    }

    #[test]
    fn padded_primary_keys_stay_dense() {
        let schema = KeySchema::parse(&["run:u5", "event:u21", "source:u8"], &["run", "event"]).unwrap();
        let form = DecidedForm::new(&schema);
        let mut decided = Decided::default();
        for event in 0..100_000 {
            decided.insert(form, schema.primary(&[3, event]).unwrap().as_bytes());
        }
        assert!(decided.contains(form, schema.primary(&[3, 99_999]).unwrap().as_bytes()));
        assert!(!decided.contains(form, schema.primary(&[4, 7]).unwrap().as_bytes()));
        assert_eq!(decided.len(), 100_000);
        assert!(decided.heap_bytes() < 1000);
    }
}
