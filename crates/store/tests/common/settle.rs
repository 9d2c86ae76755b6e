//! Compares a store with models: what must be there is there, what must be gone stays gone, accounts agree.
//!
//! After a crash, operations that were in flight may have taken effect or not, each event by itself: `settle` takes
//! the model before and after each of them, and follows for each event the one that the store shows.

use super::driver::{STAGES, streams_of};
use super::fixture::RUN;
use super::key;
use super::model::{EventModel, Model, RESULTS, State, Sum, Verdict, is_single};
use super::ops::Op;
use forebay_store::core::{Attributes, Bounds, Key, Kind, LiveState, Primary, Source, Tally, Token};
use forebay_store::{Accept, PutOptions, PutOutcome, ResultFragment, SourceState, Sources, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One event as the store shows it; `None` where it shows nothing.
struct Seen {
    state: LiveState,
    lane: Option<u128>,
    fragments: BTreeMap<u64, (u16, Vec<u8>)>,
    stage: String,
    sources: BTreeMap<u64, SourceState>,
    streams: Option<Vec<(String, Sources)>>,
}

fn primary(store: &Store, event: u64) -> Primary {
    store.schema().primary(&[RUN, event]).unwrap()
}

/// Bounds of all events of a lane.
pub(crate) fn lane_bounds(store: &Store, lane: u64) -> Bounds {
    let first = lane << 32;
    Bounds::new(store.schema(), &[(RUN, RUN), (first, first | 0xFFFF_FFFF), (0, u64::from(u32::MAX))]).unwrap()
}

fn see(store: &Store, event: u64) -> Result<Option<Seen>, String> {
    let found = store.get_event(&primary(store, event), &Sources::All).map_err(|error| error.to_string())?;
    let Some(found) = found else { return Ok(None) };
    let mut fragments = BTreeMap::new();
    let mut last: Option<Key> = None;
    for fragment in &found.fragments {
        fragment.verify().map_err(|error| format!("event {event}: {error}"))?;
        if last.is_some_and(|last| last >= fragment.key()) {
            return Err(format!("event {event}: fragments are not in key order"));
        }
        last = Some(fragment.key());
        let source = store.schema().values(fragment.key().as_bytes())[2];
        fragments.insert(source, (fragment.version(), fragment.to_vec()));
    }
    let number = |source: &[u8]| source.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let sources = found.sources.iter().map(|(source, state)| (number(source), state)).collect();
    let streams = store.outputs(&primary(store, event)).map_err(|error| error.to_string())?;
    let (state, lane, stage) = (found.state, found.attributes.get(0), found.stage.clone());
    Ok(Some(Seen { state, lane, fragments, stage, sources, streams }))
}

fn state_fits(model: &EventModel, seen: LiveState) -> bool {
    match model.state {
        State::Open => seen == LiveState::Open || model.fuzzy && seen == LiveState::Ready,
        State::Ready => seen == LiveState::Ready,
        State::Leased(_) => seen == LiveState::Leased,
        State::Debug => seen == LiveState::Debug,
        State::Accepted => seen == LiveState::Accepted,
        State::Emptied => true,
        State::Rejected | State::Released | State::Removed | State::NeverSeen => false,
    }
}

impl Model {
    /// The states of the sources of an event.
    fn states(&self, event: u64, model: &EventModel) -> BTreeMap<u64, SourceState> {
        let mut states = BTreeMap::new();
        for (source, fragment) in &model.fragments {
            let state = match fragment {
                fragment if fragment.late => SourceState::Late,
                fragment if fragment.bytes == 0 => SourceState::Empty,
                _ => SourceState::Present,
            };
            states.insert(*source, state);
        }
        states.extend(model.removed.iter().map(|source| (*source, SourceState::Removed)));
        let masked = self.masked(event);
        for source in model.own.iter().flatten() {
            let without = model.complete || masked.contains(source);
            states.entry(*source).or_insert(if without { SourceState::Masked } else { SourceState::Missing });
        }
        for source in masked {
            let state = if model.own.is_some() { SourceState::NotExpected } else { SourceState::Masked };
            states.entry(source).or_insert(state);
        }
        states
    }

    /// What is wrong with what stage, sources and streams of an event say.
    fn fault_in_words(&self, event: u64, model: &EventModel, seen: &Seen) -> Option<String> {
        if seen.stage != STAGES[usize::from(model.stage)] {
            return Some(format!("event {event} is in stage {}, not {}: {model:?}", seen.stage, model.stage));
        }
        let states = self.states(event, model);
        if !model.fuzzy && !model.unsure && model.state != State::Emptied && seen.sources != states {
            return Some(format!(
                "event {event}: the states of sources are {:?}, not {states:?}: {model:?}",
                seen.sources
            ));
        }
        let streams = match (model.state, model.verdict, &model.kept) {
            (State::Accepted, Some((_, Verdict::Choose)), Some((keep, result))) => {
                let all = keep.iter().copied().chain(result.map(|_| RESULTS + 1));
                let packed = all.map(packed_source).collect();
                Some(vec![("chosen".to_owned(), Sources::Only(packed))])
            }
            (State::Accepted, ..) => {
                Some(streams_of(event).into_iter().map(|name| (name.to_owned(), Sources::All)).collect())
            }
            _ => None,
        };
        let wrong = seen.streams != streams;
        wrong.then(|| format!("event {event}: streams {:?}, not {streams:?}: {model:?}", seen.streams))
    }

    /// What is wrong with an event of the store, in words.
    fn fault(&self, event: u64, model: &EventModel, seen: Option<&Seen>, deliveries: Option<u8>) -> Option<String> {
        let Some(seen) = seen else {
            let absent = model.state.is_gone() || model.state == State::Emptied;
            return (!absent).then(|| format!("event {event} is not there; it should be {model:?}"));
        };
        if !state_fits(model, seen.state) {
            return Some(format!("event {event} is {}; it should be {model:?}", seen.state.name()));
        }
        let listed: Vec<_> = seen.fragments.iter().map(|(source, fragment)| (*source, fragment.0)).collect();
        let expected: Vec<_> = model.fragments.iter().map(|(source, fragment)| (*source, fragment.version)).collect();
        if listed != expected {
            return Some(format!("event {event} has (source, version) {listed:?}, not {expected:?}: {model:?}"));
        }
        for (source, fragment) in &model.fragments {
            if seen.fragments[source].1 != self.bytes_of(event, *source, fragment.tag) {
                return Some(format!("event {event}, source {source}: other bytes than those of tag {}", fragment.tag));
            }
        }
        if !model.fragments.is_empty() && seen.lane != Some(u128::from(self.lane)) {
            return Some(format!("event {event}: lane {:?}, not {}", seen.lane, self.lane));
        }
        if model.state == State::Ready && deliveries != Some(model.failures) {
            return Some(format!("event {event} has failed {deliveries:?} times, not {}", model.failures));
        }
        self.fault_in_words(event, model, seen)
    }

    fn deliveries(&self, store: &Store) -> Result<BTreeMap<u64, u8>, String> {
        let listed = store.events(&lane_bounds(store, self.lane)).map_err(|error| error.to_string())?;
        let number = |primary: &Primary| store.schema().values(primary.as_bytes())[1];
        let numbers: Vec<u64> = listed.iter().map(|info| number(&info.primary)).collect();
        if !numbers.is_sorted() {
            return Err("events are not listed in key order".to_owned());
        }
        Ok(numbers.into_iter().zip(listed.iter().map(|info| info.deliveries)).collect())
    }

    /// Compares the whole lane with the store: every event, and no other.
    pub(crate) fn audit(&self, store: &Store) -> Result<(), String> {
        let deliveries = self.deliveries(store)?;
        for (event, model) in &self.events {
            let seen = see(store, *event)?;
            if let Some(fault) = self.fault(*event, model, seen.as_ref(), deliveries.get(event).copied()) {
                return Err(fault);
            }
        }
        let live = |event: &u64| self.events.get(event).is_some_and(|model| !model.state.is_gone());
        match deliveries.keys().find(|event| !live(event)) {
            Some(event) => Err(format!("event {event} is listed; it should be {:?}", self.events.get(event))),
            None => Ok(()),
        }
    }

    /// The model that a reopened store shows, where these operations were in flight at the crash, one after another.
    pub(crate) fn settle(mut self, store: &Store, in_flight: &[Op]) -> Result<Model, String> {
        let mut stages = vec![self.clone()];
        for op in in_flight {
            stages.push(stages[stages.len() - 1].assuming(op));
        }
        self.settle_hold(store, in_flight)?;
        self.settle_masks(store, &stages)?;
        stages.iter_mut().for_each(Model::void_leases);
        self.void_leases();
        let deliveries = self.deliveries(store)?;
        let events: BTreeSet<u64> = stages.iter().flat_map(|stage| stage.events.keys().copied()).collect();
        for event in events {
            let seen = see(store, event)?;
            let mut faults = Vec::new();
            let fits = stages.iter().find_map(|stage| match stage.events.get(&event) {
                None if seen.is_none() => Some(None),
                None => None,
                Some(model) => match self.fault(event, model, seen.as_ref(), deliveries.get(&event).copied()) {
                    None => Some(Some(model.clone())),
                    Some(fault) => {
                        faults.push(fault);
                        None
                    }
                },
            });
            match fits {
                None => return Err(format!("{}; in flight: {in_flight:?}", faults.join("; or: "))),
                Some(None) => {}
                Some(Some(mut model)) => {
                    // That masks complete an event which waits no more is said by a mark after the late fragment.
                    let before = self.events.get(&event);
                    let was_ready = before.is_some_and(|before| before.state == State::Ready && !before.complete);
                    let by_put = was_ready && in_flight.iter().any(|op| matches!(op, Op::Put { .. }));
                    model.unsure |= by_put && model.complete && !self.has_all(event, &model, &BTreeSet::new());
                    self.follow(event, model);
                }
            }
        }
        let fragments = self.events.values_mut().flat_map(|event| event.fragments.values_mut());
        fragments.for_each(|fragment| fragment.inherited = true);
        self.audit(store)?;
        Ok(self)
    }

    /// The lane's hold: as it was answered, or as the store shows it where a change was in flight.
    fn settle_hold(&mut self, store: &Store, in_flight: &[Op]) -> Result<(), String> {
        let of_lane = format!("lane={}", self.lane);
        let held = store.holds().into_iter().find(|hold| hold.conditions == [of_lane.as_str()]);
        let held = held.map(|hold| u64::from(hold.id));
        let changing = in_flight.iter().any(|op| matches!(op, Op::Hold | Op::ReleaseHold { .. }));
        if held != self.hold && !changing {
            return Err(format!("the hold is {held:?}, not {:?}", self.hold));
        }
        self.hold = held;
        Ok(())
    }

    /// The run's masks: those of one of the models before and after what was in flight, by the sources that the store
    /// shows as masked.
    fn settle_masks(&mut self, store: &Store, stages: &[Model]) -> Result<(), String> {
        if !self.may_mask {
            return Ok(());
        }
        let masked: BTreeSet<String> = store.runs().into_iter().flat_map(|run| run.masked).collect();
        let open = |model: &Model| -> BTreeSet<String> {
            let open = model.masks.iter().filter(|mask| mask.until == u64::MAX);
            open.map(|mask| mask.source.to_string()).collect()
        };
        match stages.iter().find(|stage| open(stage) == masked) {
            Some(stage) => self.masks = stage.masks.clone(),
            None => return Err(format!("masked are {masked:?}, not {:?}", self.masks)),
        }
        Ok(())
    }

    fn follow(&mut self, event: u64, model: EventModel) {
        let before = self.events.insert(event, model);
        let now = &self.events[&event];
        if now.state.is_gone() && before.as_ref().is_none_or(|before| !before.state.is_gone()) {
            self.gone.push(event);
        }
        if now.verdict.is_some() && before.is_none_or(|before| before.verdict.is_none()) {
            self.judged.push(event);
        }
    }

    /// Tries what must not work on the newest `recent` events of each kind: late fragments, old tokens, second
    /// verdicts. Changes nothing but the count of late fragments.
    pub(crate) fn probe(&self, store: &Store, recent: usize) -> Result<(), String> {
        let late = |event: u64, source: u64| {
            let attributes = self.attributes(store, event);
            let options = PutOptions { attributes: Some(&attributes), ..PutOptions::default() };
            if store.get(&key(RUN, event, source)).map_err(|error| error.to_string())?.is_some() {
                return Err(format!("{event}/{source} is back"));
            }
            match store.put(&key(RUN, event, source), b"a late fragment", &options) {
                Ok(PutOutcome::Late) => Ok(()),
                Ok(outcome) => Err(format!("late put of {event}/{source}: {outcome:?}, {:?}", self.events[&event])),
                Err(error) => Err(format!("late put of {event}/{source}: {error}")),
            }
        };
        for event in self.gone.iter().rev().take(recent) {
            late(*event, 0)?;
            late(*event, 99)?;
        }
        let with_removed = self.events.iter().filter(|(_, model)| !model.removed.is_empty() && !model.state.is_gone());
        for (event, model) in with_removed.take(recent) {
            model.removed.iter().try_for_each(|source| late(*event, *source))?;
        }
        for (event, model) in self.events.iter().rev().filter(|(_, model)| !model.stale.is_empty()).take(recent) {
            for token in model.stale.iter().filter(|token| **token != Token::NONE) {
                fenced(store, *event, token, &[], model.requeued.contains(token))?;
            }
        }
        // Repeats are promised for the newest verdicts only; small regions remember few.
        for event in self.judged.iter().rev().take(recent.min(12)) {
            if let Some((token, verdict)) = self.events[event].verdict
                && token != Token::NONE
            {
                fenced(store, *event, &token, &[verdict], false)?;
                self.same_again(store, *event, &token)?;
            }
        }
        Ok(())
    }

    /// An accept with chosen sources is answered as the first time, another choice is fenced.
    fn same_again(&self, store: &Store, event: u64, token: &Token) -> Result<(), String> {
        let Some((keep, result)) = &self.events[&event].kept else { return Ok(()) };
        let packed = |sources: &[u64]| sources.iter().copied().map(packed_source).collect();
        let source = packed_source(RESULTS + 1);
        let results: Vec<ResultFragment<'_>> =
            result.iter().map(|_| ResultFragment::new(&source, b"other bytes")).collect();
        let name = primary(store, event);
        for (sources, same) in [(keep.clone(), true), ([keep.clone(), vec![99]].concat(), false)] {
            let streams = [("chosen", Sources::Only(packed(&sources)))];
            let answer = store.accept_into(&name, token, &Accept { streams: &streams, results: &results });
            if answer.is_ok() != same || answer.as_ref().is_err_and(|error| error.kind() != Kind::Fenced) {
                return Err(format!("accept of event {event} into {sources:?}, given {keep:?}: {answer:?}"));
            }
        }
        Ok(())
    }

    /// The attributes that every put of the lane carries.
    pub(crate) fn attributes(&self, store: &Store, event: u64) -> Attributes {
        let class = if is_single(event) { "single" } else { "other" };
        let pairs = [format!("lane={}", self.lane), format!("class={class}")];
        Attributes::parse(&store.keyspace().attributes, &pairs).unwrap()
    }
}

/// Every verdict under this token is refused, except for those that were given with it.
fn fenced(store: &Store, event: u64, token: &Token, given: &[Verdict], requeued: bool) -> Result<(), String> {
    let name = primary(store, event);
    let answers = [
        ("reject", Some(Verdict::Reject), store.reject(&name, token)),
        ("accept", Some(Verdict::Accept), store.accept(&name, token, &streams_of(event))),
        ("requeue", None, store.requeue(&name, token)),
        ("extend", None, store.extend(&name, token, Duration::from_secs(1))),
    ];
    for (what, verdict, answer) in answers {
        let right = match &answer {
            Ok(()) if what == "requeue" => requeued,
            Ok(()) => verdict.is_some_and(|verdict| given.contains(&verdict)),
            Err(error) => error.kind() == Kind::Fenced && verdict.is_none_or(|verdict| !given.contains(&verdict)),
        };
        if !right {
            return Err(format!("{what} of event {event} with the token {token}, given {given:?}: {answer:?}"));
        }
    }
    Ok(())
}

fn add(sum: Sum, more: Sum) -> Sum {
    (sum.0 + more.0, sum.1 + more.1)
}

/// The run's account balances and shows what the models of all its lanes hold.
pub(crate) fn check_ledger(store: &Store, models: &[&Model]) -> Result<(), String> {
    let ledger = store.ledger(RUN).map_err(|error| error.to_string())?;
    if let Some(imbalance) = ledger.imbalance() {
        return Err(imbalance);
    }
    let events = || models.iter().flat_map(|model| model.events.values());
    let total = |of: &dyn Fn(&EventModel) -> Sum| events().map(of).fold((0, 0), add);
    let when = |pick: fn(State) -> bool| total(&|event| if pick(event.state) { event.sum() } else { (0, 0) });
    let of = |tally: Tally| (tally.fragments, tally.bytes);
    let live = |state: LiveState| of(ledger.live[state]);
    let compared = [
        ("open and ready", add(live(LiveState::Open), live(LiveState::Ready)), when(State::is_waiting)),
        ("leased", live(LiveState::Leased), when(|state| matches!(state, State::Leased(_)))),
        ("debug", live(LiveState::Debug), when(|state| state == State::Debug)),
        ("accepted", live(LiveState::Accepted), when(|state| state == State::Accepted)),
        ("rejected", of(ledger.rejected), when(|state| state == State::Rejected)),
        ("released", of(ledger.released), when(|state| state == State::Released)),
        ("removed", of(ledger.removed), total(&|event| event.removed_sum)),
        ("superseded", of(ledger.superseded), total(&|event| event.superseded_sum)),
        ("lost", of(ledger.lost), (0, 0)),
    ];
    let wrong = compared.iter().find(|(_, seen, expected)| seen != expected);
    if let Some((term, seen, expected)) = wrong {
        return Err(format!("{term}: {seen:?} fragments and bytes in the ledger, {expected:?} expected; {ledger:?}"));
    }
    let unclear = events().filter(|event| event.fuzzy || event.booked().is_none()).count() as u64;
    let booked = |complete: bool| {
        events().filter(|event| event.booked() == Some(true) && event.complete == complete).count() as u64
    };
    let unseen = |state: State| events().filter(|event| !event.seen && event.state == state).count() as u64;
    let counts = [
        ("complete", ledger.complete, booked(true), unclear),
        ("incomplete", ledger.incomplete, booked(false), unclear),
        ("never seen", ledger.never_seen, unseen(State::NeverSeen), 0),
        ("awaited", ledger.awaited, unseen(State::Open), 0),
    ];
    for (term, seen, least, unclear) in counts {
        if !(least..=least + unclear).contains(&seen) {
            return Err(format!(
                "{term}: {seen} events in the ledger, {least} expected, {unclear} unclear; {ledger:?}"
            ));
        }
    }
    if events().all(|event| !event.fuzzy && event.state != State::Emptied) {
        let open = total(&|event| if event.state == State::Open { event.sum() } else { (0, 0) });
        let live_events = ledger.live.total().events;
        let expected = events().filter(|event| !event.state.is_gone() && event.seen).count() as u64;
        if live(LiveState::Open) != open || live_events != expected {
            return Err(format!("open {open:?} and {expected} live events expected; {ledger:?}"));
        }
    }
    Ok(())
}

fn packed_source(source: u64) -> Source {
    Source::from_packed(&(source as u32).to_be_bytes())
}
