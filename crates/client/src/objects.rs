//! Objects that live as long as their connection: producers, watches, samplers. Each has a connection of its own.
//!
//! *On failure*: a watch and a sampler start again on a new connection. A producer whose connection fails is listed as
//! unknown until it is there again.

use crate::client::Client;
use crate::connection::Connection;
use crate::control::{decode, encode};
use crate::fragment::{Cutter, Fragment, Sample, bytes_of};
use crate::machine::Machine;
use crate::put::NO_WAIT;
use crate::retry::Failure;
use forebay_core::{Call, Condition, Error, FollowRun, Result, RunState, RunStatus, SampleEvents, Sampling, Sources};
use forebay_wire::{Control, FrameKind, ObjectOrder, WireReader, WireSample, WireWriter};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A connection and the number of the object on it.
struct Object {
    client: Client,
    what: Control,
    link: Option<(Connection, u32)>,
}

impl Object {
    fn open(client: &Client, what: Control) -> Result<Object> {
        let mut object = Object { client: client.clone(), what, link: None };
        object.link(&client.in_one_call(NO_WAIT))?;
        Ok(object)
    }

    /// The connection, which a call of this client makes where there is none.
    fn link(&mut self, client: &Client) -> Result<&mut (Connection, u32)> {
        match self.link {
            Some(ref mut link) => Ok(link),
            None => {
                let mut connection = client.calls().own_connection()?;
                connection.begin(client.calls().end(NO_WAIT));
                let number = control(&mut connection, &self.what).map_err(Failure::error)?;
                Ok(self.link.insert((connection, number)))
            }
        }
    }

    /// Asks what comes next, on a new connection where the old one fails.
    fn next<T>(
        &mut self,
        client: &Client,
        wait: Duration,
        read: impl Fn(&[u8]) -> Result<(T, u64)>,
    ) -> Result<(T, Cutter)> {
        let meta = |number| {
            let mut out = WireWriter::new();
            out.u32(number);
            out.milliseconds(wait).map(|()| out.finish()).map_err(Failure::Refused)
        };
        let answer = client.calls().drive(Call::Watch.repeat(), wait, |retry| {
            let (connection, number) = self.link(client).map_err(Failure::Refused)?;
            connection.begin(retry.end());
            let asked = connection.send(Call::Watch, &meta(*number)?, &[]);
            let answer = asked.and_then(|request| connection.answer(request, &read));
            // The object ended with its connection: the next try makes both again. After a refusal the connection is
            // still good.
            if matches!(answer, Err(Failure::Unsent(_) | Failure::Lost(_))) {
                self.link = None;
            }
            answer
        })?;
        Ok((answer.said, Cutter::new(answer.payload)))
    }
}

pub(crate) fn control<T: DeserializeOwned>(
    connection: &mut Connection,
    what: &Control,
) -> std::result::Result<T, Failure> {
    let meta = encode(what).map_err(Failure::Refused)?;
    let request = connection.send(FrameKind::Control, &meta, &[])?;
    Ok(connection.answer(request, |meta| Ok((decode(meta)?, 0)))?.said)
}

/// Follows one run.
pub struct Watch {
    object: Object,
    last: Option<RunState>,
}

/// Yields events at a bounded rate.
pub struct Sampler {
    object: Object,
}

/// A client that puts into a run and counts what it offers. Dropped without [`Producer::finish`] it is listed as unknown.
pub struct Producer {
    object: Mutex<Object>,
    announced: AtomicU64,
    fragments: AtomicU64,
    bytes: AtomicU64,
    /// When the server was told last, in milliseconds from `from` on.
    told_ms: AtomicU64,
    from: Instant,
    machine: Arc<dyn Machine>,
}

/// How often the server is told the figures of a producer that counts.
const TOLD_MS: u64 = 1000;

impl Drop for Producer {
    fn drop(&mut self) {
        // Its last figures stay with the run, as far as they arrive.
        let _ = self.object.get_mut().link.is_some().then(|| self.tell(ObjectOrder::Count));
    }
}

impl Client {
    /// Follows a run: yields its status after each change.
    ///
    /// # Errors
    /// `Invalid` for an unknown run, `Unavailable`.
    pub fn watch(&self, run: u64) -> Result<Watch> {
        Ok(Watch { object: Object::open(self, Control::Watch { run })?, last: None })
    }

    /// Starts to sample events.
    ///
    /// # Errors
    /// As `Store::sampler`, and `Unavailable`.
    pub fn sampler(&self, sampling: &Sampling) -> Result<Sampler> {
        let control = Control::Sampler {
            conditions: sampling.filter.conditions().iter().map(|one| self.condition_text(one)).collect(),
            stage: sampling.stage.clone(),
            run: sampling.run,
            decided: sampling.decided,
            sources: match &sampling.sources {
                Sources::All => None,
                Sources::None => Some(Vec::new()),
                Sources::Only(list) => Some(list.clone()),
            },
            rate_hz: sampling.rate_hz,
            bytes_max: sampling.bytes_max,
        };
        Ok(Sampler { object: Object::open(self, control)? })
    }

    fn condition_text(&self, condition: &Condition) -> String {
        let name = |at: usize| self.keyspace().attributes.fields().get(at).map_or("", |(name, _)| name.as_str());
        match *condition {
            Condition::Within { attribute, min, max } => format!("{}={min}..{max}", name(attribute)),
            Condition::AnyBit { attribute, mask } => format!("{}&{mask:#x}", name(attribute)),
        }
    }

    /// Enters a producer in the books of a run, under a name of its own.
    ///
    /// # Errors
    /// As `Store::producer`, and `Unavailable`.
    pub fn producer(&self, run: u64, name: &str) -> Result<Producer> {
        let object = Object::open(self, Control::Producer { run, name: name.to_owned() })?;
        let (announced, fragments, bytes, told_ms) = Default::default();
        let machine = self.pool().options.machine.clone();
        let (object, from) = (Mutex::new(object), machine.now());
        Ok(Producer { object, announced, fragments, bytes, told_ms, from, machine })
    }
}

impl Watch {
    /// The run's status once it differs from the last one given; `None` at the end of the wait, or where the server is
    /// away.
    pub fn next(&mut self, wait: Duration) -> Option<RunStatus> {
        let client = self.object.client.in_one_call(wait);
        let (status, _) = self.object.next(&client, wait, |meta| Ok((decode::<Option<RunStatus>>(meta)?, 0))).ok()?;
        self.last = status.as_ref().map(|status| status.state).or(self.last);
        status
    }

    /// The state of the run at the last look; looks if there was none.
    pub fn state(&self) -> RunState {
        let Control::Watch { run } = &self.object.what else { return RunState::Closed };
        let runs = self.object.client.runs().unwrap_or_default();
        let now = runs.into_iter().find(|status| status.run == *run).map(|status| status.state);
        now.or(self.last).unwrap_or(RunState::Closed)
    }
}

impl FollowRun for Watch {
    fn next(&mut self, wait: Duration) -> Result<Option<RunStatus>> {
        Ok(self.next(wait))
    }
}

impl SampleEvents for Sampler {
    type Fragment = Fragment;

    fn next(&mut self, wait: Duration) -> Result<Option<Sample>> {
        self.next(wait)
    }
}

impl Sampler {
    /// The next event, not before its time by the rate; `None` where `wait` is over without one.
    ///
    /// # Errors
    /// As the store's sampler, and `Unavailable`.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Sample>> {
        let client = self.object.client.in_one_call(wait);
        let keyspace = client.keyspace();
        let (sample, mut cutter) = self.object.next(&client, wait, |meta| {
            let sample = WireReader::whole(meta, |read| read.option(|read| WireSample::decode(read, keyspace)))?;
            let bytes = sample.as_ref().map_or(0, |sample| bytes_of(&sample.fragments));
            Ok((sample, bytes))
        })?;
        let Some(sample) = sample else { return Ok(None) };
        let mut fragments = cutter.all(sample.fragments)?;
        client.fetch_list(&mut fragments)?;
        Ok(Some(Sample {
            primary: sample.primary,
            state: sample.state.into(),
            stage: sample.stage,
            attributes: sample.attributes,
            fragments,
            sources: sample.sources,
            left_out: sample.left_out,
            event_fragments: sample.event_fragments,
            event_bytes: sample.event_bytes,
        }))
    }
}

impl Producer {
    /// It offered a fragment of this many bytes, regardless of the answer. It is reported to the server once a second.
    pub fn offered(&self, bytes: u64) {
        self.fragments.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let now_ms = self.machine.now().saturating_duration_since(self.from).as_millis() as u64;
        let told_ms = self.told_ms.load(Ordering::Relaxed);
        // One thread wins the exchange and reports for all: the others count on without a lock.
        let due = now_ms >= told_ms.saturating_add(TOLD_MS);
        if due && self.told_ms.compare_exchange(told_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            // What does not arrive goes with the next one.
            let _ = self.count();
        }
    }

    /// It announced this many events.
    pub fn announced(&self, events: u64) {
        self.announced.fetch_add(events, Ordering::Relaxed);
    }

    /// Tells the server its figures, not durably.
    ///
    /// # Errors
    /// `Closed` also where the run is closed, `Unavailable`.
    pub fn count(&self) -> Result<()> {
        self.tell(ObjectOrder::Count)
    }

    /// Reports its figures durably: after a crash they are the last known ones.
    ///
    /// # Errors
    /// `Closed` also where the run is closed, `Full` without space to journal it, `Unavailable`.
    pub fn report(&self) -> Result<()> {
        self.tell(ObjectOrder::Report)
    }

    /// The last report: its figures are final.
    ///
    /// # Errors
    /// As [`Producer::report`].
    pub fn finish(self) -> Result<()> {
        self.tell(ObjectOrder::Finish)
    }

    fn tell(&self, order: ObjectOrder) -> Result<()> {
        let mut object = self.object.lock();
        // Taken out before they are sent: counts that arrive during the call belong to the next report.
        let figures = [&self.announced, &self.fragments, &self.bytes].map(|figure| figure.swap(0, Ordering::Relaxed));
        let [announced, fragments, bytes] = figures;
        let client = object.client.in_one_call(NO_WAIT);
        // On a connection that is gone nothing could be told: a new one is made before anything is sent.
        if object.link.as_ref().is_some_and(|(connection, _)| !connection.is_alive()) {
            object.link = None;
        }
        let told = object.link(&client).and_then(|(connection, number)| {
            connection.begin(client.calls().end(NO_WAIT));
            let report = Control::Report { object: *number, announced, fragments, bytes, order };
            match control::<()>(connection, &report) {
                Ok(()) => Ok(()),
                Err(Failure::Refused(error)) => Err(error),
                Err(failure) => Err(Error::unknown(format!(
                    "whether the producer's figures arrived is not known: {}",
                    failure.error().message()
                ))),
            }
        });
        if let Err(error) = &told
            && matches!(error.kind(), forebay_core::Kind::OutcomeUnknown | forebay_core::Kind::Unavailable)
        {
            // The figures go with the next report. The server counts on from those that it had.
            for (figure, value) in [&self.announced, &self.fragments, &self.bytes].into_iter().zip(figures) {
                figure.fetch_add(value, Ordering::Relaxed);
            }
            object.link = None;
        }
        told
    }
}
