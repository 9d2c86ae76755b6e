//! Random operations that a model chooses, and how each is carried out on a store.

use super::fixture::RUN;
use super::model::{EventModel, Model, RESULTS, State, Verdict};
use super::ops::{Answer, Grant, Op};
use super::{key, payload};
use forebay_store::core::{
    AttributeSchema, Bounds, Completeness, Condition, Error, Filter, Keyspace, Primary, Result, Source, Token,
};
use forebay_store::{Accept, GetAny, Lease, OpenEvent, PutOptions, PutOutcome, ResultFragment, Sources, Store};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// Worker failures after which an event of [`keyspace`] goes to the debug stream.
pub(crate) const DELIVERIES_MAX: u8 = 3;

/// The stages that events pass.
pub(crate) const STAGES: [&str; 2] = ["fast", "final"];

/// Streams that are declared behind 200 others.
const FAR: &[&str] = &["far", "farther", "farthest"];

/// The streams into which an event is accepted whole, in the order of their numbers: as a mask, a list, and an output.
pub(crate) fn streams_of(event: u64) -> Vec<&'static str> {
    match event % 8 {
        5 => FAR[..1].to_vec(),
        6 => ["main"].iter().chain(FAR).take(3).copied().collect(),
        7 => ["main"].iter().chain(FAR).copied().collect(),
        _ => vec!["main"],
    }
}

/// Events that are complete by count and carry their lane as an attribute; time never completes them. Some are of a class
/// that one fragment completes.
pub(crate) fn keyspace(count: usize) -> Keyspace {
    let mut keyspace = Keyspace::events("model", count as u32).opening_runs();
    keyspace.attributes = AttributeSchema::parse(&["lane:u8", "class"], &["other", "single"]).unwrap();
    keyspace.run.classes = vec![("single".to_owned(), Completeness::Count(1))];
    keyspace.stages = STAGES.map(str::to_owned).into();
    let between = (1..200).map(|number| format!("between-{number}"));
    keyspace.streams = ["main".to_owned()]
        .into_iter()
        .chain(between)
        .chain([FAR, &["chosen"]].concat().iter().map(|&name| name.to_owned()))
        .collect();
    keyspace.run.completeness = Completeness::Count(count as u32);
    keyspace.run.complete_within = Duration::from_secs(29 * 24 * 3600);
    keyspace.deliveries_max = DELIVERIES_MAX;
    keyspace
}

/// Chooses operations of every kind for one lane.
pub(crate) struct Driver {
    rng: SmallRng,
    next_event: u64,
    next_tag: u64,
    /// About this many events are kept alive.
    live_target: usize,
}

impl Driver {
    /// Events are numbered from `first` on, which no earlier driver of the lane has used.
    pub(crate) fn new(seed: u64, first: u64, live_target: usize) -> Driver {
        // Tags from the event number on are new as well: an event has fewer updates than numbers follow it.
        let next_tag = (first & 0xFFFF_FFFF) * 64 + 1;
        Driver { rng: SmallRng::seed_from_u64(seed), next_event: first.max(1), next_tag, live_target }
    }

    pub(crate) fn rng(&mut self) -> &mut SmallRng {
        &mut self.rng
    }

    fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// One of the events that `fits` says yes to.
    pub(crate) fn pick(&mut self, model: &Model, fits: impl Fn(&EventModel) -> bool) -> Option<u64> {
        let fitting: Vec<u64> =
            model.events.iter().filter(|(_, event)| fits(event)).map(|(number, _)| *number).collect();
        (!fitting.is_empty()).then(|| fitting[self.rng.random_range(0..fitting.len())])
    }

    fn pick_fragment(&mut self, model: &Model, fits: impl Fn(&EventModel) -> bool) -> Option<(u64, u64)> {
        let event = self.pick(model, |event| fits(event) && !event.fragments.is_empty())?;
        let sources: Vec<u64> =
            model.events[&event].fragments.keys().copied().filter(|source| *source < RESULTS).collect();
        if sources.is_empty() {
            return None;
        }
        Some((event, sources[self.rng.random_range(0..sources.len())]))
    }

    /// The next operation; with `pressure` the store is full, and only what makes space is chosen.
    pub(crate) fn next_op(&mut self, model: &Model, pressure: bool) -> Op {
        let live = model.events.values().filter(|event| !event.state.is_gone()).count();
        loop {
            let dice = self.rng.random_range(if pressure || live > self.live_target { 42..100 } else { 0..100 });
            let op = match dice {
                0..34 => Some(self.new_fragment(model)),
                34..42 => self.again(model),
                42..48 if !pressure => self.update(model),
                48..52 => self
                    .pick_fragment(model, |event| event.state.is_waiting() && event.fragments.len() > 1)
                    .map(|(event, source)| Op::Remove { event, source }),
                52..54 => self.pick(model, |event| event.state.is_waiting()).map(|event| Op::RemoveEvent { event }),
                54 => self.range(model),
                55..60 => self.pick(model, |event| event.state == State::Open).map(|event| Op::Seal { event }),
                60..68 => self.pick(model, |event| event.state == State::Ready).map(|event| Op::Lease { event }),
                68..74 => Some(Op::GetAny { n: self.rng.random_range(1..4), stage: self.rng.random_range(0..2) }),
                74..78 => self.unlikely(model),
                78 => Some(self.rarely(model, pressure)),
                79..86 => {
                    let event = self.pick(model, |event| matches!(event.state, State::Debug | State::Accepted));
                    let replay = event.is_some_and(|event| model.events[&event].state == State::Debug);
                    let replay = replay && self.rng.random_bool(0.6);
                    event.map(|event| if replay { Op::Replay { event } } else { Op::Release { event } })
                }
                86.. => self.verdict(model),
                _ => None,
            };
            if let Some(op) = op {
                return op;
            }
        }
    }

    /// Holds, masks, replays.
    fn rarely(&mut self, model: &Model, pressure: bool) -> Op {
        let dice = self.rng.random_range(0..8);
        if let Some(id) = model.hold.filter(|_| dice < 6 || pressure) {
            return Op::ReleaseHold { id };
        }
        match dice {
            0 if !pressure => Op::Hold,
            1..4 if model.may_mask => {
                let (source, ahead) = (self.rng.random_range(0..4), self.rng.random_range(0..20));
                let from = self.next_event.saturating_sub(10).max(model.base() + 1) + ahead;
                match model.masks.iter().find(|mask| mask.source == source && mask.until == u64::MAX) {
                    Some(mask) => Op::Unmask { source, from: from.max(mask.from) },
                    None => Op::Mask { source, from },
                }
            }
            _ => {
                let event = self.pick(model, |event| event.state == State::Debug);
                Op::Replay { event: event.unwrap_or(model.base() | 0xFFFF_FF00) }
            }
        }
    }

    fn announce(&mut self, model: &Model) -> Op {
        let sources: Vec<u64> = (0..6).filter(|_| self.rng.random_bool(0.4)).collect();
        let sources = if sources.is_empty() { vec![2] } else { sources };
        if self.rng.random_bool(0.3)
            && let Some(event) = self.pick(model, |_| true)
        {
            let sources = match &model.events[&event].own {
                Some(own) if self.rng.random_bool(0.7) => own.iter().copied().collect(),
                _ => sources,
            };
            return Op::Announce { event, sources };
        }
        self.next_event += 1;
        Op::Announce { event: self.next_event, sources }
    }

    fn new_fragment(&mut self, model: &Model) -> Op {
        let tag = self.tag();
        if self.rng.random_bool(0.12) {
            return self.announce(model);
        }
        let reserve = self.rng.random_bool(0.2);
        if self.rng.random_bool(0.6)
            && let Some(event) = self.pick(model, |event| event.state.is_waiting() && event.fragments.len() < 12)
        {
            let model = &model.events[&event];
            let free = |source: &u64| !model.fragments.contains_key(source) && !model.removed.contains(source);
            let source = (0..).find(free).unwrap_or_default();
            return Op::Put { event, source, tag, reserve };
        }
        self.next_event += 1;
        Op::Put { event: self.next_event, source: self.rng.random_range(0..3), tag, reserve }
    }

    /// A key that was put before: the same bytes, other bytes, or too late.
    fn again(&mut self, model: &Model) -> Option<Op> {
        let (event, source) = match self.rng.random_range(0..4) {
            0 => (*model.gone.get(self.rng.random_range(0..model.gone.len().max(1)))?, self.rng.random_range(0..4)),
            1 => {
                let event = self.pick(model, |event| !event.removed.is_empty())?;
                (event, *model.events[&event].removed.first()?)
            }
            _ => self.pick_fragment(model, |_| true)?,
        };
        let tag = match model.events[&event].fragments.get(&source) {
            Some(held) if self.rng.random_bool(0.7) => held.tag,
            _ => self.tag(),
        };
        Some(Op::Put { event, source, tag, reserve: false })
    }

    fn update(&mut self, model: &Model) -> Option<Op> {
        let tag = self.tag();
        let (event, source) =
            self.pick_fragment(model, |event| event.state.is_waiting() || matches!(event.state, State::Leased(_)))?;
        let token = match model.events[&event].state {
            State::Leased(token) if self.rng.random_bool(0.9) => Some(token),
            _ => None,
        };
        Some(Op::Update { event, source, tag, token })
    }

    /// A range of whole events of which none is leased, in the debug stream or accepted.
    fn range(&mut self, model: &Model) -> Option<Op> {
        let from = self.pick(model, |event| event.state.is_waiting())?;
        let plain = |event: &EventModel| event.state.is_waiting() || event.state.is_gone();
        let to = model.events.range(from..).take_while(|(_, event)| plain(event)).take(4).last()?.0;
        Some(Op::RemoveRange { from, to: *to })
    }

    /// What finds nothing or must be refused.
    fn unlikely(&mut self, model: &Model) -> Option<Op> {
        let unknown = model.base() | 0xFFFF_FF00;
        match self.rng.random_range(0..8) {
            0 => Some(Op::Seal { event: unknown }),
            1 => Some(Op::Remove { event: unknown, source: 1 }),
            2 => Some(Op::Update { event: unknown, source: 1, tag: 1, token: None }),
            3 => Some(Op::Lease { event: self.pick(model, |event| event.state != State::Ready && !event.fuzzy)? }),
            4 => Some(Op::Release { event: self.pick(model, |event| event.state.is_waiting())? }),
            5 => {
                let event = self.pick(model, |event| !event.stale.is_empty())?;
                Some(verdict_of(event, *model.events[&event].stale.last()?, self.rng.random_range(0..3)))
            }
            6 => {
                let event = self.pick(model, |event| event.passed.is_some())?;
                let result = self.rng.random_bool(0.5).then(|| self.tag());
                Some(Op::Pass { event, token: model.events[&event].passed?, result })
            }
            _ => {
                let event = *model.judged.last()?;
                let (token, given) = model.events[&event].verdict?;
                if let (Verdict::Choose, Some((keep, result))) = (given, model.events[&event].kept.clone()) {
                    return Some(Op::AcceptInto { event, token, keep, result });
                }
                let same = if given == Verdict::Accept { 0 } else { 1 };
                Some(verdict_of(event, token, if self.rng.random_bool(0.5) { same } else { 1 - same }))
            }
        }
    }

    fn verdict(&mut self, model: &Model) -> Option<Op> {
        let event = self.pick(model, |event| matches!(event.state, State::Leased(_)))?;
        let State::Leased(token) = model.events[&event].state else { return None };
        let result = self.rng.random_bool(0.4).then(|| self.tag());
        if model.events[&event].stage == 0 && self.rng.random_bool(0.4) {
            return Some(Op::Pass { event, token, result });
        }
        if self.rng.random_bool(0.2) {
            let keep = (0..5).filter(|_| self.rng.random_bool(0.5)).collect();
            return Some(Op::AcceptInto { event, token, keep, result });
        }
        Some(verdict_of(event, token, [0, 0, 1, 1, 1, 1, 2][self.rng.random_range(0..7)]))
    }
}

fn verdict_of(event: u64, token: Token, which: usize) -> Op {
    match which {
        0 => Op::Accept { event, token },
        1 => Op::Reject { event, token },
        _ => Op::Requeue { event, token },
    }
}

/// Carries an operation out; errors are answers too, by their kind.
pub(crate) fn execute(store: &Store, model: &Model, op: &Op) -> Answer {
    run(store, model, op).unwrap_or_else(|error: Error| Answer::Failed(error.kind()))
}

fn run(store: &Store, model: &Model, op: &Op) -> Result<Answer> {
    let name = |event: u64| -> Result<Primary> { store.schema().primary(&[RUN, event]) };
    let yes = |yes: bool| if yes { Answer::Done } else { Answer::Absent };
    Ok(match op {
        Op::Put { event, source, tag, reserve } => {
            let key = key(RUN, *event, *source);
            let bytes = payload(&key, *tag, model.bytes_max);
            let attributes = model.attributes(store, *event);
            let persisted = model.persists && !*reserve && tag % 8 == 0;
            let status = *tag as u32;
            let options = PutOptions { attributes: Some(&attributes), status, persisted, ..PutOptions::default() };
            let outcome = if *reserve {
                let mut reservation = store.reserve(&key, bytes.len(), &options)?;
                reservation.copy_from_slice(&bytes);
                reservation.commit()?
            } else {
                store.put(&key, &bytes, &options)?
            };
            match outcome {
                PutOutcome::Stored => Answer::Stored,
                PutOutcome::Duplicate => Answer::Duplicate,
                PutOutcome::Late => Answer::Late,
                PutOutcome::LateUnknown => panic!("no answer was lost here"),
            }
        }
        Op::Update { event, source, tag, token } => {
            let key = key(RUN, *event, *source);
            Answer::Version(store.update(&key, &payload(&key, *tag, model.bytes_max), token.as_ref())?)
        }
        Op::Remove { event, source } => yes(store.remove(&key(RUN, *event, *source))?),
        Op::RemoveEvent { event } => yes(store.remove_event(&name(*event)?)?),
        Op::RemoveRange { from, to } => {
            let bounds = Bounds::new(store.schema(), &[(RUN, RUN), (*from, *to), (0, u64::from(u32::MAX))])?;
            Answer::Count(store.remove_range(&bounds)?)
        }
        Op::Seal { event } => yes(store.seal(&name(*event)?)?),
        Op::Lease { event } => match store.lease(&name(*event)?, None)? {
            Some(lease) => Answer::Grants(vec![grant(store, &lease)]),
            None => Answer::Absent,
        },
        Op::GetAny { n, stage } => {
            let lane = u128::from(model.lane);
            let filter = Filter::new(vec![Condition::Within { attribute: 0, min: lane, max: lane }]);
            let leases = store.get_any(&GetAny {
                n: *n,
                filter,
                stage: Some(STAGES[usize::from(*stage)].to_owned()),
                ..GetAny::default()
            })?;
            Answer::Grants(leases.iter().map(|lease| grant(store, lease)).collect())
        }
        Op::Accept { event, token } => {
            store.accept(&name(*event)?, token, &streams_of(*event)).map(|()| Answer::Done)?
        }
        Op::Reject { event, token } => store.reject(&name(*event)?, token).map(|()| Answer::Done)?,
        Op::Requeue { event, token } => store.requeue(&name(*event)?, token).map(|()| Answer::Done)?,
        Op::Release { event } => yes(store.release(&name(*event)?)?),
        Op::Announce { event, sources } => {
            let sources = packed(store, sources)?;
            match store.open_event(&name(*event)?, &OpenEvent { sources: Some(&sources), attributes: None })? {
                PutOutcome::Stored => Answer::Stored,
                PutOutcome::Duplicate => Answer::Duplicate,
                PutOutcome::Late => Answer::Late,
                PutOutcome::LateUnknown => panic!("no answer was lost here"),
            }
        }
        Op::Pass { event, token, result } => {
            let (source, bytes) = a_result(model, *event, RESULTS, *result);
            let results =
                result.iter().map(|_| ResultFragment::new(&source, &bytes)).collect::<Vec<ResultFragment<'_>>>();
            store.pass(&name(*event)?, token, STAGES[1], &results).map(|()| Answer::Done)?
        }
        Op::AcceptInto { event, token, keep, result } => {
            let (source, bytes) = a_result(model, *event, RESULTS + 1, *result);
            let results =
                result.iter().map(|_| ResultFragment::new(&source, &bytes)).collect::<Vec<ResultFragment<'_>>>();
            let streams = [("chosen", Sources::Only(packed(store, keep)?))];
            let accept = Accept { streams: &streams, results: &results };
            store.accept_into(&name(*event)?, token, &accept).map(|()| Answer::Done)?
        }
        Op::Replay { event } => yes(store.replay(&name(*event)?)?),
        Op::Hold => Answer::Count(u64::from(store.hold(None, &[&format!("lane={}", model.lane)])?)),
        Op::ReleaseHold { id } => yes(store.release_hold(*id as u32)?),
        Op::Mask { source, from } => {
            store.mask(RUN, &store.schema().source(&[*source])?, Some(&name(*from)?)).map(|()| Answer::Done)?
        }
        Op::Unmask { source, from } => {
            store.unmask(RUN, &store.schema().source(&[*source])?, Some(&name(*from)?)).map(|()| Answer::Done)?
        }
    })
}

fn packed(store: &Store, sources: &[u64]) -> Result<Vec<Source>> {
    sources.iter().map(|source| store.schema().source(&[*source])).collect()
}

/// Source and bytes of a worker's result.
fn a_result(model: &Model, event: u64, source: u64, tag: Option<u64>) -> (Source, Vec<u8>) {
    let bytes = tag.map_or_else(Vec::new, |tag| model.bytes_of(event, source, tag));
    (Source::from_packed(&(source as u32).to_be_bytes()), bytes)
}

fn grant(store: &Store, lease: &Lease) -> Grant {
    let event = store.schema().values(lease.primary.as_bytes())[1];
    Grant { event, token: lease.token, delivery: lease.delivery }
}
