//! Rare calls, by name, with requests and answers in JSON; and the objects that live as long as their connection.

use super::calls::say_fragments;
use super::outbox::{Answer, Payload};
use crate::served::Served;
use forebay_core::{
    Bounds, Call, ClaimRequest, CountedProducer, Error, EventStore, Filter, FollowRun, OperatedStore,
    ReportingProducer, Result, RingSources, RunConfig, SampleEvents, Sampling, ServedStore, Sources,
};
use forebay_ring::{Ring, RingPin};
use forebay_wire::{Control, ObjectOrder, WireReader, WireSample, WireWriter};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Most objects of one connection.
const OBJECTS_MAX: usize = 64;

/// What a connection opened and its end closes.
pub(super) enum Object<S: ServedStore> {
    /// Counts what is offered.
    Producer(Arc<Mutex<Option<<S as EventStore>::Producer>>>),
    /// Follows a run.
    Watch(Arc<Mutex<<S as OperatedStore>::Watch>>),
    /// Draws events.
    Sampler(Arc<Mutex<<S as OperatedStore>::Sampler>>),
    /// Keeps a stretch of a ring.
    Pin(Arc<Mutex<RingPin>>),
}

impl<S: ServedStore> Clone for Object<S> {
    fn clone(&self) -> Object<S> {
        match self {
            Object::Producer(producer) => Object::Producer(producer.clone()),
            Object::Watch(watch) => Object::Watch(watch.clone()),
            Object::Sampler(sampler) => Object::Sampler(sampler.clone()),
            Object::Pin(pin) => Object::Pin(pin.clone()),
        }
    }
}

/// Objects of one connection, by number.
pub(super) struct Objects<S: ServedStore> {
    all: Mutex<BTreeMap<u32, Object<S>>>,
}

impl<S: ServedStore> Default for Objects<S> {
    fn default() -> Objects<S> {
        Objects { all: Mutex::default() }
    }
}

impl<S: ServedStore> Objects<S> {
    fn add(&self, object: Object<S>) -> Result<u32> {
        let mut all = self.all.lock();
        if all.len() >= OBJECTS_MAX {
            let cause = format!("{OBJECTS_MAX} producers, watches, samplers and pins on one connection");
            return Err(Error::full_of("connection", "client", cause));
        }
        // Behind the highest one: a number that was just dropped must not name another object of a late frame.
        let number = all.keys().next_back().map_or(1, |last| last.wrapping_add(1));
        debug_assert!(!all.contains_key(&number), "each object has its own number");
        all.insert(number, object);
        Ok(number)
    }

    fn get(&self, number: u32) -> Result<Object<S>> {
        let unknown = || Error::invalid(format!("no object {number} on this connection"));
        // Cloned out of the lock: calls on an object may wait, and others of the connection go on.
        self.all.lock().get(&number).cloned().ok_or_else(unknown)
    }
}

/// A control, from the meta of its frame.
///
/// # Errors
/// `Invalid` for what is none.
pub(super) fn decode(meta: &[u8]) -> Result<Control> {
    serde_json::from_slice(meta).map_err(|error| Error::invalid(format!("no control: {error}")).with_source(error))
}

fn json<S: ServedStore, T: Serialize>(value: T) -> Result<Answer<S>> {
    let text = serde_json::to_vec(&value);
    text.map(Answer::of).map_err(|error| Error::internal("an answer cannot be written as JSON").with_source(error))
}

/// Makes the call, which is allowed to the holder of this token.
///
/// # Errors
/// Those of the call; `Invalid` for one that is for the other kind of keyspace.
pub(super) fn make<S: ServedStore>(
    served: &Served<S>,
    objects: &Objects<S>,
    token: &str,
    control: Control,
) -> Result<Answer<S>> {
    match (served, control) {
        (_, Control::Drop { object }) => {
            // Its end may take a while: not under the lock.
            let object = objects.all.lock().remove(&object);
            drop(object);
            json(())
        }
        (Served::Events(store), control) => of_events(store, objects, token, control),
        (Served::Ring(ring), control) => of_ring(ring, objects, control),
    }
}

fn of_ring<S: ServedStore>(ring: &Ring, objects: &Objects<S>, control: Control) -> Result<Answer<S>> {
    match control {
        Control::Stats => json(ring.stats()),
        Control::Losses => json(ring.losses()),
        Control::Ledger { run } => {
            let run = u32::try_from(run).map_err(|_| Error::invalid(format!("run {run}: a ring's are 32-bit numbers")));
            json(ring.ledger_of(run?))
        }
        Control::RingSources => json(ring.sources()),
        Control::RingChunks => json(ring.chunks()),
        Control::RingNow => json(ring.now()),
        Control::KeepPin { begin, end, sources, ms } => {
            let sources = sources.map_or(RingSources::All, RingSources::Only);
            json(ring.pin(begin, end, &sources, Duration::from_millis(ms))?.keep()?)
        }
        Control::Unpin { id } => json(ring.unpin(id)?),
        Control::Pin { begin, end, sources, ms } => {
            let sources = sources.map_or(RingSources::All, RingSources::Only);
            let pin = ring.pin(begin, end, &sources, Duration::from_millis(ms))?;
            let (id, bytes) = (pin.id(), pin.bytes());
            json((objects.add(Object::Pin(Arc::new(Mutex::new(pin))))?, id, bytes))
        }
        Control::MovePin { object, ticks, ms } => {
            let Object::Pin(pin) = objects.get(object)? else {
                return Err(Error::invalid(format!("object {object} is no pin")));
            };
            let (mut pin, duration) = (pin.lock(), Duration::from_millis(ms));
            match ticks {
                Some((begin, end)) => pin.move_to(begin, end, duration)?,
                None => pin.extend(duration)?,
            }
            json(pin.bytes())
        }
        other => Err(Served::<S>::Ring(ring.clone()).other_kind(&name_of(&other))),
    }
}

/// A control as the wire names it.
fn name_of(control: &Control) -> String {
    let value = serde_json::to_value(control).unwrap_or_default();
    value.get("call").and_then(|call| call.as_str()).unwrap_or_default().to_owned()
}

fn of_events<S: ServedStore>(store: &S, objects: &Objects<S>, token: &str, control: Control) -> Result<Answer<S>> {
    let schema = store.schema();
    // Changes of runs are signed by the token: a client chooses its own name as it likes.
    let signed = || store.named(token);
    match control {
        Control::RunOpen { run, config } => json(signed().run_open(run, &RunConfig::from_toml(&config, schema)?)?),
        Control::RunPause { run } => json(store.run_pause(run)?),
        Control::RunResume { run } => json(store.run_resume(run)?),
        Control::RunStop { run } => json(store.run_stop(run)?),
        Control::RunClose { run } => json(store.run_close(run)?),
        Control::RunSummary { run } => json(store.run_summary(run)?),
        Control::Runs => json(store.runs()?),
        Control::Ledger { run } => json(store.ledger(run)?),
        Control::LedgerBy { run, by } => json(store.ledger_by(run, by)?),
        Control::Sources { run } => json(store.sources(run)?),
        Control::Mask { run, source, from, set: true } => json(signed().mask(run, &source, from.as_ref())?),
        Control::Mask { run, source, from, set: false } => json(signed().unmask(run, &source, from.as_ref())?),
        Control::Prescale { run, name, factor, from } => json(signed().prescale(run, &name, factor, from.as_ref())?),
        Control::Hold { run, conditions } => {
            let conditions: Vec<&str> = conditions.iter().map(String::as_str).collect();
            json(store.hold(run, &conditions)?)
        }
        Control::ReleaseHold { id } => json(store.release_hold(id)?),
        Control::DrainDevice { device, set: true } => json(store.drain_device(device)?),
        Control::DrainDevice { device, set: false } => json(store.undo_drain(device)?),
        Control::ExchangeDevice { device, to } => json(store.exchange_device(device, Path::new(&to))?),
        Control::AddDevice { to, bytes } => json(store.add_device(Path::new(&to), bytes)?),
        Control::Holds => json(store.holds()?),
        Control::DebugEvents => json(store.debug_events()?),
        Control::Conflicts => json(store.conflicts()?),
        Control::Why { key } => json(store.why(&key)?),
        Control::Outputs { primary } => {
            let said = |sources| match sources {
                Sources::All => None,
                Sources::None => Some(Vec::new()),
                Sources::Only(list) => Some(list),
            };
            let outputs = store.outputs(&primary)?;
            json(outputs.map(|all| all.into_iter().map(|(name, sources)| (name, said(sources))).collect::<Vec<_>>()))
        }
        Control::Stats => json(store.stats()?),
        Control::Segments => json(store.segments()?),
        Control::Containers => json(store.containers()?),
        Control::Marks => json(store.marks()?),
        Control::ReleaseRange { bounds, stream, after } => {
            let bounds = Bounds::new(schema, &bounds)?;
            json(store.release_range(&bounds, stream.as_deref(), after.as_ref())?)
        }
        Control::Claim { device, move_after_ms, ms, archive, another } => {
            let (move_after, duration) = (Duration::from_millis(move_after_ms), Duration::from_millis(ms));
            json(store.claim(&ClaimRequest { device, move_after, duration, archive, another })?)
        }
        Control::Claimed { token, after } => json(store.claimed(&token, after)?),
        Control::ExtendClaim { token, ms } => json(store.extend_claim(&token, Duration::from_millis(ms))?),
        Control::Prove { token } => json(store.prove(&token)?),
        Control::GiveBack { token } => json(store.give_back(&token)?),
        Control::Losses => json(store.losses()?),
        Control::Producer { run, name } => {
            let producer = store.producer(run, &name)?;
            json(objects.add(Object::Producer(Arc::new(Mutex::new(Some(producer)))))?)
        }
        Control::Report { object, announced, fragments, bytes, order } => {
            json(report(objects, object, [announced, fragments, bytes], order)?)
        }
        Control::Watch { run } => json(objects.add(Object::Watch(Arc::new(Mutex::new(store.watch(run)?))))?),
        Control::Sampler { conditions, stage, run, decided, sources, rate_hz, bytes_max } => {
            let sampling = Sampling {
                filter: Filter::parse(&store.keyspace().attributes, &conditions)?,
                stage,
                run,
                decided,
                sources: sources.map_or(Sources::All, Sources::Only),
                rate_hz,
                // A sample is copied into the server's memory before it goes out.
                bytes_max: bytes_max.min(SAMPLE_BYTES_MAX),
            };
            json(objects.add(Object::Sampler(Arc::new(Mutex::new(store.sampler(&sampling)?))))?)
        }
        Control::AsHome { .. }
        | Control::Order { .. }
        | Control::Learn { .. }
        | Control::TellHomes { .. }
        | Control::CompareHeld { .. }
        | Control::Depart { .. }
        | Control::BeginClose { .. }
        | Control::AbandonClose { .. }
        | Control::Misses { .. }
        | Control::MasksByPolicy { .. }
        | Control::HoldAs { .. }
        | Control::Cluster
        | Control::Map => Err(Error::invalid("this is between the nodes of a cluster, and this server is in none")),
        other @ (Control::RingSources
        | Control::RingChunks
        | Control::RingNow
        | Control::Pin { .. }
        | Control::MovePin { .. }
        | Control::KeepPin { .. }
        | Control::Unpin { .. }
        | Control::Drop { .. }) => Err(Served::Events(store.clone()).other_kind(&name_of(&other))),
    }
}

/// Most bytes of a sample, even if the client asks for more.
const SAMPLE_BYTES_MAX: u64 = 64 << 20;

/// The error for a token without the right.
pub(super) fn no_right(call: Call) -> Error {
    Error::invalid(format!(
        "`{}` needs the right `{}`, which this token has not here",
        call.name(),
        call.right().name()
    ))
}

fn report<S: ServedStore>(
    objects: &Objects<S>,
    number: u32,
    [announced, fragments, bytes]: [u64; 3],
    order: ObjectOrder,
) -> Result<()> {
    let Object::Producer(producer) = objects.get(number)? else {
        return Err(Error::invalid(format!("object {number} is no producer")));
    };
    let mut producer = producer.lock();
    let at_work = producer.as_ref().ok_or_else(|| Error::closed("this producer gave its last report"))?;
    // The client sends what was counted since its last report that arrived: sums are kept here.
    at_work.announced(announced);
    at_work.offered_many(fragments, bytes);
    match order {
        ObjectOrder::Count => Ok(()),
        ObjectOrder::Report => at_work.report(),
        ObjectOrder::Finish => match producer.take() {
            // Taken out first: after its last report every further one is refused.
            Some(producer) => producer.finish(),
            None => Ok(()),
        },
    }
}

/// Which object a `watch` frame asks, and how long it waits.
///
/// # Errors
/// `Invalid` for an object that there is not, and for one from which nothing comes.
pub(super) fn asked<S: ServedStore>(objects: &Objects<S>, meta: &[u8]) -> Result<(Object<S>, Duration)> {
    let (number, wait) = WireReader::whole(meta, |read| Ok((read.u32()?, read.milliseconds()?)))?;
    match objects.get(number)? {
        Object::Producer(_) | Object::Pin(_) => Err(Error::invalid(format!("nothing comes from object {number}"))),
        object => Ok((object, wait)),
    }
}

/// What a `watch` frame is answered where nothing came.
pub(super) fn nothing<S: ServedStore>(object: &Object<S>) -> Result<Answer<S>> {
    match object {
        Object::Sampler(_) => {
            let mut out = WireWriter::new();
            out.option(None::<()>, |_, ()| Ok(()))?;
            Ok(Answer::of(out.finish()))
        }
        _ => json(()),
    }
}

/// What an object has next, within the wait: the answer to a `watch` frame; `None` where nothing came.
pub(super) fn next<S: ServedStore>(store: &S, object: &Object<S>, wait: Duration) -> Result<Option<Answer<S>>> {
    match object {
        Object::Producer(_) | Object::Pin(_) => Ok(None),
        Object::Watch(watch) => watch.lock().next(wait)?.map(json).transpose(),
        Object::Sampler(sampler) => {
            let Some(sample) = sampler.lock().next(wait)? else { return Ok(None) };
            let (mut out, mut payload) = (WireWriter::new(), Payload::default());
            out.option(Some(sample), |out, sample| {
                let wire = WireSample {
                    primary: sample.primary,
                    state: sample.state.into_owned(),
                    stage: sample.stage,
                    attributes: sample.attributes,
                    fragments: say_fragments(sample.fragments, &mut payload),
                    sources: sample.sources,
                    left_out: sample.left_out,
                    event_fragments: sample.event_fragments,
                    event_bytes: sample.event_bytes,
                };
                wire.encode(out, store.keyspace())
            })?;
            Ok(Some(Answer { payload, ..Answer::of(out.finish()) }))
        }
    }
}
