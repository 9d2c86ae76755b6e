//! What a store must answer and hold, as a plain map: each operation's answer is checked against it and then applied.
//!
//! Where the design leaves an answer open, every answer that keeps its promises is taken, and the model follows it:
//! a put of the same bytes to a leased event (`Late` or `Duplicate`), whether an event of which every fragment was
//! removed is listed (`Emptied`). Of what a child of the crash test finds it does not know everything (`fuzzy`).

use super::fixture::RUN;
use super::ops::{Answer, Grant, Op};
use super::{key, payload};
use forebay_store::core::{Kind, Token};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FragmentModel {
    pub(crate) tag: u64,
    pub(crate) version: u16,
    pub(crate) bytes: u64,
    /// It came when the event was ready.
    pub(crate) late: bool,
    /// An earlier life made this version: its update may have had no answer.
    pub(crate) inherited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept,
    /// Into a stream with chosen sources.
    Choose,
    Reject,
}

/// Results of workers have sources from here on: the first from passing on, the second from accepting.
pub(crate) const RESULTS: u64 = 200;

/// A source that events of the lane do not wait for, from one of them on and up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaskModel {
    pub(crate) source: u64,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Open,
    Ready,
    Leased(Token),
    Debug,
    Accepted,
    Rejected,
    Released,
    Removed,
    NeverSeen,
    /// Every fragment was removed one by one.
    Emptied,
}

impl State {
    /// Nothing of the event is in the store any more.
    pub(crate) fn is_gone(self) -> bool {
        matches!(self, State::Rejected | State::Released | State::Removed | State::NeverSeen)
    }

    pub(crate) fn is_waiting(self) -> bool {
        matches!(self, State::Open | State::Ready)
    }
}

/// Fragments and bytes.
pub(crate) type Sum = (u64, u64);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventModel {
    pub(crate) state: State,
    pub(crate) fragments: BTreeMap<u64, FragmentModel>,
    pub(crate) removed: BTreeSet<u64>,
    /// Open, and what it waits for is not known.
    pub(crate) fuzzy: bool,
    /// Sources that it was announced with.
    pub(crate) own: Option<BTreeSet<u64>>,
    /// A fragment of it was stored.
    pub(crate) seen: bool,
    /// It has, or had, all that it waits for.
    pub(crate) complete: bool,
    /// A late fragment made it complete together with masks, in a put that was cut off: the account may not say so.
    pub(crate) unsure: bool,
    pub(crate) stage: u8,
    /// The token under which it was passed on.
    pub(crate) passed: Option<Token>,
    /// What its stream keeps, where sources were chosen, and the tag of the result that came with them.
    pub(crate) kept: Option<(Vec<u64>, Option<u64>)>,
    pub(crate) failures: u8,
    /// Tokens that gave the event back: doing so again may be answered as the first time.
    pub(crate) requeued: Vec<Token>,
    /// Tokens that were given and are not in force any more.
    pub(crate) stale: Vec<Token>,
    pub(crate) verdict: Option<(Token, Verdict)>,
    pub(crate) removed_sum: Sum,
    pub(crate) superseded_sum: Sum,
}

impl EventModel {
    pub(crate) fn sum(&self) -> Sum {
        self.fragments.values().fold((0, 0), |sum, fragment| (sum.0 + 1, sum.1 + fragment.bytes))
    }

    fn void_lease(&mut self, deliveries_max: u8) {
        if let State::Leased(token) = self.state {
            self.stale.push(token);
            self.failures += 1;
            self.state = if self.failures >= deliveries_max { State::Debug } else { State::Ready };
        }
    }

    fn remove(&mut self) {
        let sum = self.sum();
        self.removed_sum = (self.removed_sum.0 + sum.0, self.removed_sum.1 + sum.1);
        if let State::Leased(token) = self.state {
            self.stale.push(token);
        }
        self.fragments.clear();
        self.state = if self.seen { State::Removed } else { State::NeverSeen };
    }

    /// Fragments that completeness counts, removed ones included.
    fn has(&self, source: u64) -> bool {
        source < RESULTS && (self.fragments.contains_key(&source) || self.removed.contains(&source))
    }

    /// The ledger counts it as complete or incomplete; `None` where that, or which, is open.
    pub(crate) fn booked(&self) -> Option<bool> {
        match self.state {
            State::Emptied => None,
            _ if self.unsure => None,
            state => Some(self.seen && state != State::Open),
        }
    }
}

/// One lane of events: those whose number has `lane` in its upper half.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) lane: u64,
    pub(crate) count: usize,
    pub(crate) bytes_max: usize,
    pub(crate) deliveries_max: u8,
    pub(crate) events: BTreeMap<u64, EventModel>,
    /// Events that got a verdict, in that order.
    pub(crate) judged: Vec<u64>,
    /// Events that are gone, in that order.
    pub(crate) gone: Vec<u64>,
    /// The hold on the lane.
    pub(crate) hold: Option<u64>,
    /// Only the last lane may mask: a mask covers all events from one on.
    pub(crate) may_mask: bool,
    /// The store has devices: one put of eight asks to be persisted.
    pub(crate) persists: bool,
    pub(crate) masks: Vec<MaskModel>,
}

impl Model {
    /// Events of `count` fragments of up to `bytes_max` bytes; see [`super::driver::keyspace`].
    pub(crate) fn new(lane: u64, count: usize, bytes_max: usize) -> Model {
        let (events, judged, gone, hold, masks) = Default::default();
        let deliveries_max = super::driver::DELIVERIES_MAX;
        let (may_mask, persists) = (false, false);
        Model { lane, count, bytes_max, deliveries_max, events, judged, gone, hold, may_mask, persists, masks }
    }

    /// How many fragments complete an event that was not announced: one of five has a class of its own.
    pub(crate) fn wanted(&self, event: u64) -> usize {
        if is_single(event) { 1 } else { self.count }
    }

    /// Sources that masks of now cover.
    pub(crate) fn masked(&self, event: u64) -> BTreeSet<u64> {
        let covering = self.masks.iter().filter(|mask| (mask.from..mask.until).contains(&event));
        covering.map(|mask| mask.source).collect()
    }

    /// Whether an event has all that it waits for, where these sources are masked.
    pub(crate) fn has_all(&self, event: u64, model: &EventModel, masked: &BTreeSet<u64>) -> bool {
        match &model.own {
            Some(own) => own.iter().all(|source| model.has(*source) || masked.contains(source)),
            None => {
                let there = model.fragments.keys().chain(&model.removed).filter(|source| **source < RESULTS);
                there.count() + masked.iter().filter(|source| !model.has(**source)).count() >= self.wanted(event)
            }
        }
    }

    /// Looks whether an event has all that it waits for.
    fn consider(&mut self, event: u64) {
        let has_all = |model: &EventModel| self.has_all(event, model, &self.masked(event));
        let all = self.events.get(&event).filter(|model| model.seen && !model.state.is_gone()).is_some_and(has_all);
        if let Some(model) = self.events.get_mut(&event).filter(|_| all) {
            model.complete = true;
            if model.state == State::Open {
                (model.state, model.fuzzy) = (State::Ready, false);
            }
        }
    }

    /// First number of the lane.
    pub(crate) fn base(&self) -> u64 {
        self.lane << 32
    }

    pub(crate) fn bytes_of(&self, event: u64, source: u64, tag: u64) -> Vec<u8> {
        payload(&key(RUN, event, source), tag, self.bytes_max)
    }

    /// All leases end without a verdict: time-out, or the store was opened again.
    pub(crate) fn void_leases(&mut self) {
        for event in self.events.values_mut() {
            event.void_lease(self.deliveries_max);
        }
    }

    /// Checks an answer and follows it.
    pub(crate) fn apply(&mut self, op: &Op, answer: &Answer) -> Result<(), String> {
        let event = match op {
            Op::GetAny { .. } | Op::RemoveRange { .. } | Op::Hold | Op::ReleaseHold { .. } => 0,
            Op::Mask { .. } | Op::Unmask { .. } => 0,
            Op::Announce { event, .. } | Op::Pass { event, .. } | Op::AcceptInto { event, .. } => *event,
            Op::Replay { event } => *event,
            Op::Put { event, .. } | Op::Update { event, .. } | Op::Remove { event, .. } => *event,
            Op::RemoveEvent { event } | Op::Seal { event } | Op::Lease { event } | Op::Release { event } => *event,
            Op::Accept { event, .. } | Op::Reject { event, .. } | Op::Requeue { event, .. } => *event,
        };
        let before = self.events.get(&event).cloned();
        let right = match *op {
            Op::Put { event, source, tag, .. } => self.put(event, source, tag, answer),
            Op::Update { event, source, tag, token } => self.update(event, source, tag, token, answer),
            Op::Remove { event, source } => self.remove(event, source, answer),
            Op::RemoveEvent { event } => self.remove_event(event, answer),
            Op::RemoveRange { from, to } => self.remove_range(from, to, answer),
            Op::Seal { event } => self.seal(event, answer),
            Op::Lease { event } => self.lease(event, answer),
            Op::GetAny { n, stage } => self.get_any(n, stage, answer),
            Op::Announce { event, ref sources } => self.announce(event, sources, answer),
            Op::Pass { event, token, result } => self.pass(event, token, result, answer),
            Op::AcceptInto { event, token, ref keep, result } => self.choose(event, token, keep, result, answer),
            Op::Replay { event } => self.replay(event, answer),
            Op::Hold => self.set_hold(answer),
            Op::ReleaseHold { id } => self.release_hold(id, answer),
            Op::Mask { source, from } => self.mask(source, from, answer),
            Op::Unmask { source, from } => self.unmask(source, from, answer),
            Op::Accept { event, token } => self.judge(event, token, Verdict::Accept, answer),
            Op::Reject { event, token } => self.judge(event, token, Verdict::Reject, answer),
            Op::Requeue { event, token } => self.requeue(event, token, answer),
            Op::Release { event } => self.release(event, answer),
        };
        if self.events.get(&event).is_some_and(|now| now.state.is_gone())
            && before.as_ref().is_none_or(|before| !before.state.is_gone())
        {
            self.gone.push(event);
        }
        if right { Ok(()) } else { Err(format!("{op:?} answered {answer:?}; the event is {before:?}")) }
    }

    fn put(&mut self, event: u64, source: u64, tag: u64, answer: &Answer) -> bool {
        if *answer == Answer::Failed(Kind::Full) {
            return true;
        }
        let bytes = self.bytes_of(event, source, tag);
        let held = self.events.get(&event).and_then(|model| model.fragments.get(&source));
        let same = held.is_some_and(|held| self.bytes_of(event, source, held.tag) == bytes);
        let differs = held.is_some() && !same;
        let model = self.events.entry(event).or_default();
        match model.state {
            State::Open | State::Ready if model.removed.contains(&source) => *answer == Answer::Late,
            State::Open | State::Ready if same => *answer == Answer::Duplicate,
            State::Open | State::Ready if differs => *answer == Answer::Failed(Kind::Conflict),
            State::Open | State::Ready => {
                let late = model.state == State::Ready;
                model.fragments.insert(
                    source,
                    FragmentModel { tag, version: 0, bytes: bytes.len() as u64, late, inherited: false },
                );
                model.seen = true;
                self.consider(event);
                *answer == Answer::Stored
            }
            State::Leased(_) | State::Debug | State::Accepted => {
                *answer == Answer::Late
                    || same && *answer == Answer::Duplicate
                    || differs && *answer == Answer::Failed(Kind::Conflict)
            }
            State::Rejected | State::Released | State::Removed | State::NeverSeen | State::Emptied => {
                *answer == Answer::Late
            }
        }
    }

    fn update(&mut self, event: u64, source: u64, tag: u64, token: Option<Token>, answer: &Answer) -> bool {
        if *answer == Answer::Failed(Kind::Full) {
            return true;
        }
        let bytes = self.bytes_of(event, source, tag);
        let held = self.events.get(&event).and_then(|model| model.fragments.get(&source));
        // A store with devices takes this for a repeat: a kill may have cut off the first update's answer. The repeat changes
        // nothing, so it needs no lease.
        if held.is_some_and(|held| {
            self.persists
                && held.inherited
                && held.version > 0
                && *answer == Answer::Version(held.version)
                && self.bytes_of(event, source, held.tag) == bytes
        }) {
            return true;
        }
        let bytes = bytes.len() as u64;
        let failed = matches!(answer, Answer::Failed(_));
        let Some(model) = self.events.get_mut(&event) else { return *answer == Answer::Failed(Kind::Invalid) };
        match model.state {
            State::Open | State::Ready if token.is_none() => {}
            State::Leased(held) if token == Some(held) => {}
            State::Leased(_) => return *answer == Answer::Failed(Kind::Fenced),
            _ => return failed,
        }
        let Some(fragment) = model.fragments.get_mut(&source) else {
            return *answer == Answer::Failed(Kind::Invalid);
        };
        model.superseded_sum = (model.superseded_sum.0 + 1, model.superseded_sum.1 + fragment.bytes);
        *fragment = FragmentModel { tag, version: fragment.version + 1, bytes, inherited: false, ..*fragment };
        *answer == Answer::Version(fragment.version)
    }

    fn remove(&mut self, event: u64, source: u64, answer: &Answer) -> bool {
        let Some(model) = self.events.get_mut(&event) else { return *answer == Answer::Absent };
        let waiting = model.state.is_waiting();
        let Some(fragment) = model.fragments.get(&source).copied() else { return *answer == Answer::Absent };
        if !waiting && matches!(answer, Answer::Failed(_)) {
            return true;
        }
        model.fragments.remove(&source);
        model.removed.insert(source);
        model.removed_sum = (model.removed_sum.0 + 1, model.removed_sum.1 + fragment.bytes);
        if waiting && model.fragments.is_empty() {
            model.state = State::Emptied;
        }
        *answer == Answer::Done
    }

    fn remove_event(&mut self, event: u64, answer: &Answer) -> bool {
        match self.events.get_mut(&event) {
            Some(model) if model.state == State::Emptied => {
                model.state = State::Removed;
                matches!(answer, Answer::Done | Answer::Absent)
            }
            Some(model) if model.state.is_gone() => *answer == Answer::Absent,
            Some(model) if !model.state.is_waiting() && matches!(answer, Answer::Failed(_)) => true,
            Some(model) => {
                model.remove();
                *answer == Answer::Done
            }
            None => *answer == Answer::Absent,
        }
    }

    /// Drivers name ranges without leased, debug or accepted events.
    fn remove_range(&mut self, from: u64, to: u64, answer: &Answer) -> bool {
        let mut removed = 0;
        for (event, model) in self.events.range_mut(from..=to) {
            if model.state.is_waiting() {
                removed += model.sum().0;
                model.remove();
                self.gone.push(*event);
            }
        }
        *answer == Answer::Count(removed)
    }

    fn seal(&mut self, event: u64, answer: &Answer) -> bool {
        match self.events.get_mut(&event) {
            Some(model) if model.state.is_waiting() => {
                let to = if model.seen { State::Ready } else { State::NeverSeen };
                (model.state, model.fuzzy) = (to, false);
                *answer == Answer::Done
            }
            Some(model) if model.state.is_gone() => *answer == Answer::Absent,
            Some(_) => matches!(answer, Answer::Done | Answer::Absent),
            None => *answer == Answer::Absent,
        }
    }

    fn grant(&mut self, grant: &Grant) -> bool {
        if self.hold.is_some() {
            return false;
        }
        let Some(model) = self.events.get_mut(&grant.event) else { return false };
        let may = model.state == State::Ready || model.fuzzy || model.state == State::Emptied;
        let delivery =
            grant.delivery == model.failures + 1 || !model.requeued.is_empty() && grant.delivery > model.failures;
        // Whether a kill met an event under lease is not seen where it is not known to be ready.
        let unseen = model.fuzzy && grant.delivery > model.failures;
        if unseen {
            model.failures = grant.delivery - 1;
        }
        (model.state, model.fuzzy) = (State::Leased(grant.token), false);
        may && (delivery || unseen) && !model.stale.contains(&grant.token)
    }

    fn lease(&mut self, event: u64, answer: &Answer) -> bool {
        let model = self.events.get(&event);
        match answer {
            Answer::Grants(grants) => grants.len() == 1 && grants[0].event == event && self.grant(&grants[0]),
            Answer::Absent => self.hold.is_some() || model.is_none_or(|model| model.state != State::Ready),
            _ => false,
        }
    }

    fn get_any(&mut self, n: usize, stage: u8, answer: &Answer) -> bool {
        let Answer::Grants(grants) = answer else { return false };
        let free = |model: &EventModel| model.state == State::Ready && model.stage == stage;
        let some_ready = self.hold.is_none() && self.events.values().any(free);
        let of_stage = |grant: &Grant| self.events.get(&grant.event).is_some_and(|model| model.stage == stage);
        let right = grants.iter().all(of_stage) && grants.len() <= n && (!grants.is_empty() || !some_ready);
        // All of them are leased now, regardless of what was expected.
        grants.iter().fold(right, |right, grant| self.grant(grant) && right)
    }

    fn judge(&mut self, event: u64, token: Token, verdict: Verdict, answer: &Answer) -> bool {
        let Some(model) = self.events.get_mut(&event) else { return *answer == Answer::Failed(Kind::Fenced) };
        if model.state == State::Leased(token) {
            model.verdict = Some((token, verdict));
            model.state = if verdict == Verdict::Reject { State::Rejected } else { State::Accepted };
            self.judged.push(event);
            return *answer == Answer::Done;
        }
        match model.verdict {
            Some(given) if given == (token, verdict) => *answer == Answer::Done,
            _ => *answer == Answer::Failed(Kind::Fenced),
        }
    }

    fn requeue(&mut self, event: u64, token: Token, answer: &Answer) -> bool {
        match self.events.get_mut(&event) {
            Some(model) if model.state == State::Leased(token) => {
                model.state = State::Ready;
                model.requeued.push(token);
                model.stale.push(token);
                *answer == Answer::Done
            }
            Some(model) if model.requeued.contains(&token) && *answer == Answer::Done => true,
            _ => *answer == Answer::Failed(Kind::Fenced),
        }
    }

    fn release(&mut self, event: u64, answer: &Answer) -> bool {
        match self.events.get_mut(&event) {
            Some(model) if matches!(model.state, State::Accepted | State::Debug) => {
                model.state = State::Released;
                *answer == Answer::Done
            }
            _ => *answer == Answer::Absent,
        }
    }

    fn announce(&mut self, event: u64, sources: &[u64], answer: &Answer) -> bool {
        if *answer == Answer::Failed(Kind::Full) {
            return true;
        }
        let own: BTreeSet<u64> = sources.iter().copied().collect();
        let model = self.events.entry(event).or_default();
        if !model.state.is_waiting() {
            // Of an emptied event it is open whether it still waits.
            return *answer == Answer::Late || model.state == State::Emptied;
        }
        match &model.own {
            Some(before) if *before == own => *answer == Answer::Duplicate,
            Some(_) => *answer == Answer::Failed(Kind::Conflict),
            None => {
                (model.own, model.complete, model.unsure) = (Some(own), false, false);
                self.consider(event);
                *answer == Answer::Stored
            }
        }
    }

    fn add_result(&mut self, event: u64, source: u64, tag: u64) {
        let bytes = self.bytes_of(event, source, tag).len() as u64;
        let result = FragmentModel { tag, version: 0, bytes, late: false, inherited: false };
        self.events.entry(event).or_default().fragments.insert(source, result);
    }

    fn pass(&mut self, event: u64, token: Token, result: Option<u64>, answer: &Answer) -> bool {
        let Some(model) = self.events.get_mut(&event) else { return *answer == Answer::Failed(Kind::Fenced) };
        if model.state != State::Leased(token) {
            let again = model.passed == Some(token);
            return *answer == if again { Answer::Done } else { Answer::Failed(Kind::Fenced) };
        }
        if model.stage > 0 {
            return *answer == Answer::Failed(Kind::Invalid);
        }
        if *answer == Answer::Failed(Kind::Full) {
            return result.is_some();
        }
        (model.state, model.stage, model.failures, model.passed) = (State::Ready, 1, 0, Some(token));
        model.stale.push(token);
        if let Some(tag) = result {
            self.add_result(event, RESULTS, tag);
        }
        *answer == Answer::Done
    }

    fn choose(&mut self, event: u64, token: Token, keep: &[u64], result: Option<u64>, answer: &Answer) -> bool {
        let Some(model) = self.events.get_mut(&event) else { return *answer == Answer::Failed(Kind::Fenced) };
        if model.state != State::Leased(token) {
            let chosen = model.kept.as_ref().is_some_and(|kept| kept.0 == keep && kept.1.is_some() == result.is_some());
            let again = model.verdict == Some((token, Verdict::Choose)) && chosen;
            return *answer == if again { Answer::Done } else { Answer::Failed(Kind::Fenced) };
        }
        if *answer == Answer::Failed(Kind::Full) {
            return true;
        }
        model.verdict = Some((token, Verdict::Choose));
        (model.state, model.kept) = (State::Accepted, Some((keep.to_vec(), result)));
        self.judged.push(event);
        if let Some(tag) = result {
            self.add_result(event, RESULTS + 1, tag);
        }
        *answer == Answer::Done
    }

    fn replay(&mut self, event: u64, answer: &Answer) -> bool {
        match self.events.get_mut(&event) {
            Some(model) if model.state == State::Debug => {
                (model.state, model.failures) = (State::Ready, 0);
                *answer == Answer::Done
            }
            _ => *answer == Answer::Absent,
        }
    }

    fn set_hold(&mut self, answer: &Answer) -> bool {
        let Answer::Count(id) = answer else { return *answer == Answer::Failed(Kind::Full) };
        self.hold = Some(*id);
        true
    }

    fn release_hold(&mut self, id: u64, answer: &Answer) -> bool {
        if *answer == Answer::Failed(Kind::Full) {
            return true;
        }
        let held = self.hold == Some(id);
        self.hold = self.hold.filter(|held| *held != id);
        *answer == if held { Answer::Done } else { Answer::Absent }
    }

    fn mask(&mut self, source: u64, from: u64, answer: &Answer) -> bool {
        if *answer == Answer::Failed(Kind::Full) {
            return true;
        }
        match self.masks.iter_mut().find(|mask| mask.source == source && mask.until == u64::MAX) {
            Some(standing) => standing.from = standing.from.min(from),
            None => self.masks.push(MaskModel { source, from, until: u64::MAX }),
        }
        let open: Vec<u64> =
            self.events.iter().filter(|(_, model)| model.state == State::Open).map(|(event, _)| *event).collect();
        open.into_iter().for_each(|event| self.consider(event));
        *answer == Answer::Done
    }

    fn unmask(&mut self, source: u64, from: u64, answer: &Answer) -> bool {
        if *answer == Answer::Failed(Kind::Full) {
            return true;
        }
        if let Some(mask) = self.masks.iter_mut().find(|mask| mask.source == source && mask.until == u64::MAX) {
            mask.until = from;
        }
        *answer == Answer::Done
    }

    /// The same model after an operation that was cut off and took effect in full.
    pub(crate) fn assuming(&self, op: &Op) -> Model {
        let mut after = self.clone();
        let answer = match op {
            Op::Put { event, source, .. } => match self.events.get(event) {
                Some(model) if !model.state.is_waiting() || model.removed.contains(source) => return after,
                Some(model) if model.fragments.contains_key(source) => return after,
                _ => Answer::Stored,
            },
            Op::Update { event, source, .. } => {
                match self.events.get(event).and_then(|model| model.fragments.get(source)) {
                    Some(fragment) => Answer::Version(fragment.version + 1),
                    None => return after,
                }
            }
            Op::Announce { event, .. } => match self.events.get(event) {
                Some(model) if !model.state.is_waiting() || model.own.is_some() => return after,
                _ => Answer::Stored,
            },
            Op::Hold => return after,
            Op::RemoveRange { from, to } => {
                let inside = self.events.range(*from..=*to).filter(|(_, model)| model.state.is_waiting());
                Answer::Count(inside.map(|(_, model)| model.sum().0).sum())
            }
            Op::Lease { .. } | Op::GetAny { .. } => {
                let may = |event: &u64| !matches!(op, Op::Lease { event: named } if named != event);
                for (_, model) in after.events.iter_mut().filter(|(event, _)| may(event)) {
                    if model.state == State::Ready || model.fuzzy {
                        (model.state, model.fuzzy) = (State::Leased(Token::NONE), false);
                    }
                }
                return after;
            }
            _ => Answer::Done,
        };
        // Where it could not have succeeded, nothing can have changed.
        if after.apply(op, &answer).is_err() { self.clone() } else { after }
    }
}

/// Events of the class that one fragment completes.
pub(crate) fn is_single(event: u64) -> bool {
    event.is_multiple_of(5)
}
