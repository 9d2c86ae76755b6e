//! Executes requests on the store: decodes each, makes the call and encodes the answer, on any thread.
//!
//! *Not here*: puts (`put.rs`), what streams (`stream.rs`), what is rare (`control.rs`), what may take long to be there
//! (`long.rs`).

use super::outbox::{Answer, Payload};
use forebay_core::{
    Accept, Call, Error, Event, EventStore, GetAny, Key, Keyspace, Kind, Lease, LeaseHolder, OpenEvent, ReadFragment,
    Result, ResultFragment, ServedStore, Sources, Token, check_sent,
};
use forebay_wire::{
    FrameHead, WireEvent, WireExtend, WireFragment, WireJudgement, WireLease, WireOpen, WireOutcome, WireReader,
    WireRemove, WireUpdate, WireVerdict, WireWriter,
};
use std::time::Duration;

/// A lease on an event of such a store.
pub(crate) type LeaseOf<S> = Lease<<S as EventStore>::Fragment, <S as EventStore>::Holder>;

/// A request that has arrived whole.
pub(crate) struct Request {
    pub(crate) head: FrameHead,
    pub(crate) meta: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// Whether a request must be made on a thread, because it may wait for space, for a device, or take long.
pub(super) fn waits<S: ServedStore>(store: &S, call: Call, request: &Request, has_warm: bool) -> bool {
    match call {
        Call::Update | Call::Remove | Call::OpenEvent | Call::Release | Call::Replay => true,
        Call::Get | Call::GetEvent | Call::Lease | Call::LeaseGet => has_warm && touches_warm(store, call, request),
        _ => false,
    }
}

fn touches_warm<S: ServedStore>(store: &S, call: Call, request: &Request) -> bool {
    let schema = store.schema();
    // Read twice, here and where it is answered: a thread for each read would cost more than decoding a list of keys.
    // What cannot be decoded is refused there.
    let mut read = WireReader::new(&request.meta);
    if call == Call::Get {
        let keys = read.list(2, |read| read.key(schema)).unwrap_or_default();
        return keys.iter().any(|key| store.may_wait(&schema.primary_of(key), Some(schema.rest_of(key))));
    }
    // The others begin with a primary key, a list of them with its length.
    if call == Call::GetEvent {
        let events = read.list(3, |read| Ok((read.primary(schema)?, read.sources(schema)?))).unwrap_or_default();
        return events.iter().any(|(primary, _)| store.may_wait(primary, None));
    }
    read.primary(schema).is_ok_and(|primary| store.may_wait(&primary, None))
}

/// Makes the call for a client that takes `most` bytes at once; this many things were asked for in it.
pub(super) fn make<S: ServedStore>(store: &S, call: Call, request: &Request, most: u64) -> (Result<Answer<S>>, u64) {
    let keyspace = store.keyspace();
    let mut things = 1;
    let answer = match call {
        Call::Get => get(store, keyspace, &request.meta, &mut things, most),
        Call::GetEvent => get_event(store, keyspace, &request.meta, &mut things, most),
        Call::Update => update(store, keyspace, request),
        Call::Remove => remove(store, keyspace, &request.meta),
        Call::OpenEvent => open_event(store, keyspace, &request.meta, &mut things),
        Call::Lease => lease(store, keyspace, &request.meta, most),
        Call::LeaseGet => lease_get(store, keyspace, &request.meta),
        Call::Extend => extend(store, keyspace, &request.meta, &mut things),
        Call::Seal | Call::Release | Call::Replay => by_name(store, keyspace, call, &request.meta, &mut things),
        other => Err(Error::invalid(format!("a request of kind {other:?}, which this server does not answer"))),
    };
    (answer, things)
}

/// What a fragment is, as answers say it.
pub(super) fn wire_fragment(fragment: &impl ReadFragment) -> WireFragment {
    WireFragment {
        length: fragment.len() as u32,
        checksum: fragment.checksum(),
        status: fragment.status(),
        version: fragment.version(),
        level: fragment.level(),
    }
}

/// Fragments as an answer says them, and their bytes.
pub(super) fn say_fragments<S: ServedStore>(
    fragments: Vec<S::Fragment>,
    payload: &mut Payload<S>,
) -> Vec<(Key, WireFragment)> {
    let said = fragments.iter().map(|fragment| (fragment.key(), wire_fragment(fragment))).collect();
    fragments.into_iter().for_each(|fragment| payload.push(fragment));
    said
}

/// The answer that says a meta, and has payload.
fn answer<S: ServedStore>(out: WireWriter, payload: Payload<S>) -> Answer<S> {
    Answer { payload, ..Answer::of(out.finish()) }
}

/// Outcomes of single things, as an answer says them, and what failed among them.
struct Outcomes {
    out: WireWriter,
    failed: Vec<Kind>,
}

impl Outcomes {
    /// This many, of about this many bytes each.
    fn new(count: usize, bytes: usize) -> Outcomes {
        let mut out = WireWriter::with_capacity(4 + bytes * count);
        out.u32(count as u32);
        Outcomes { out, failed: Vec::new() }
    }

    fn say<T>(&mut self, outcome: &Result<T>, write: impl FnOnce(&mut WireWriter, &T)) {
        self.failed.extend(outcome.as_ref().err().map(Error::kind));
        self.out.outcome(outcome, write);
    }

    fn finish<S: ServedStore>(self, payload: Payload<S>) -> Answer<S> {
        Answer { failed: self.failed, ..answer(self.out, payload) }
    }
}

/// A client must ask again for things that do not fit its window behind others: an answer is made as a whole, and
/// holds what it reads until the client has taken it.
fn check_fits<S: ServedStore>(payload: &Payload<S>, most: u64) -> Result<()> {
    if payload.bytes() < most {
        return Ok(());
    }
    let bytes = payload.bytes();
    let cause = format!("the answer has {bytes} bytes and the client takes {most}: ask for this in another request");
    Err(Error::full_of("connection", "client", cause))
}

/// Keys from which on asking ahead is worth its time.
pub(super) const AHEAD_MIN: usize = 4;

fn get<S: ServedStore>(store: &S, keyspace: &Keyspace, meta: &[u8], things: &mut u64, most: u64) -> Result<Answer<S>> {
    let mut read = WireReader::new(meta);
    let count = read.count(2)?;
    *things = count as u64;
    let (mut out, mut payload) = (Outcomes::new(count, 18), Payload::default());
    // All keys before the first look: a frame that is wrong is refused whole, and the prefetch needs them.
    let keys: Vec<Result<Key>> = (0..count).map(|_| read.key(&keyspace.schema)).collect();
    read.end()?;
    if count >= AHEAD_MIN {
        store.prefetch(&keys.iter().flatten().copied().collect::<Vec<_>>());
    }
    for key in keys {
        // Each key has an outcome of its own: one that is of another schema must not hide the others.
        let found = key.and_then(|key| check_fits(&payload, most).and_then(|()| store.get(&key)));
        out.say(&found, |out, found| {
            out.u8(u8::from(found.is_some()));
            if let Some(fragment) = found {
                out.fragment(&wire_fragment(fragment));
            }
        });
        if let Ok(Some(fragment)) = found {
            payload.push(fragment);
        }
    }
    Ok(out.finish(payload))
}

fn wire_event<S: ServedStore>(keyspace: &Keyspace, event: Event<S::Fragment>, payload: &mut Payload<S>) -> WireEvent {
    WireEvent {
        primary: event.primary,
        state: event.state,
        stage: keyspace.stage(&event.stage).unwrap_or_default(),
        attributes: event.attributes,
        streams: event.streams,
        fragments: say_fragments(event.fragments, payload),
        missing: event.missing,
        sources: event.sources,
    }
}

fn get_event<S: ServedStore>(
    store: &S,
    keyspace: &Keyspace,
    meta: &[u8],
    things: &mut u64,
    most: u64,
) -> Result<Answer<S>> {
    let events = WireReader::whole(meta, |read| {
        read.list(3, |read| Ok((read.primary(&keyspace.schema)?, read.sources(&keyspace.schema)?)))
    })?;
    *things = events.len() as u64;
    let (mut out, mut payload) = (Outcomes::new(events.len(), 64), Payload::default());
    for (primary, sources) in events {
        let found = check_fits(&payload, most).and_then(|()| store.get_event(&primary, &sources));
        let found = found.map(|found| found.map(|event| wire_event(keyspace, event, &mut payload)));
        let mut encoded = Ok(());
        out.say(&found, |out, found| encoded = out.option(found.as_ref(), |out, event| event.encode(out, keyspace)));
        encoded?;
    }
    Ok(out.finish(payload))
}

fn update<S: ServedStore>(store: &S, keyspace: &Keyspace, request: &Request) -> Result<Answer<S>> {
    let mut out = WireWriter::new();
    match WireUpdate::decode(&request.meta, keyspace)? {
        WireUpdate::Fragment { key, token, checksum } => {
            // Before the store is changed: an update has no second chance to be refused.
            check_sent(&request.payload, checksum)?;
            out.u16(store.update(&key, &request.payload, token.as_ref())?);
        }
        WireUpdate::Attributes { primary, token, attributes } => {
            store.update_attributes(&primary, &attributes, token.as_ref())?;
            out.u16(0);
        }
    }
    Ok(Answer::of(out.finish()))
}

fn remove<S: ServedStore>(store: &S, keyspace: &Keyspace, meta: &[u8]) -> Result<Answer<S>> {
    let removed = match WireRemove::decode(meta, keyspace)? {
        WireRemove::Fragment(key) => u64::from(store.remove(&key)?),
        WireRemove::Event(primary) => u64::from(store.remove_event(&primary)?),
        WireRemove::Range(bounds) => store.remove_range(&bounds)?,
    };
    let mut out = WireWriter::new();
    out.u64(removed);
    Ok(Answer::of(out.finish()))
}

fn open_event<S: ServedStore>(store: &S, keyspace: &Keyspace, meta: &[u8], things: &mut u64) -> Result<Answer<S>> {
    let events = WireOpen::decode_all(meta, keyspace)?;
    *things = events.len() as u64;
    let mut out = Outcomes::new(events.len(), 2);
    for event in events {
        let how = OpenEvent { sources: event.sources.as_deref(), attributes: event.attributes.as_ref() };
        out.say(&store.open_event(&event.primary, &how), |out, outcome| out.u8(outcome.to_byte()));
    }
    Ok(out.finish(Payload::default()))
}

/// Events that are leased first: what they have says how many more may be.
const FIRST_EVENTS: usize = 16;
/// Most bytes of meta for a lease without its attributes, fragments and sources; for a fragment; for a missing one.
const LEASE_BYTES: u64 = 128;
const FRAGMENT_BYTES: u64 = 48;
const MISSING_BYTES: u64 = 33;

/// Leases up to as many events as are asked for: no more once they have `most` bytes, which is what the client takes.
///
/// # Errors
/// Those of `get_any`; `Invalid` for an event of which more must be said than the client takes.
pub(crate) fn lease_any<S: ServedStore>(store: &S, request: &GetAny, most: u64) -> Result<Vec<LeaseOf<S>>> {
    if request.n <= FIRST_EVENTS {
        return that_fit(store, store.get_any(request)?, most);
    }
    let mut leases: Vec<LeaseOf<S>> = Vec::new();
    let mut step = FIRST_EVENTS;
    let mut asked = request.clone();
    loop {
        asked.n = step.min(request.n - leases.len());
        let found = match store.get_any(&asked) {
            // What is leased already must be said.
            Err(_) if !leases.is_empty() => Vec::new(),
            found => found?,
        };
        // Fewer than asked: nothing more is ready now.
        let is_all = found.len() < asked.n;
        leases.extend(found);
        let bytes: u64 = leases.iter().map(|lease| payload_bytes::<S>(lease) + 2 * said_bytes(store, lease)).sum();
        if is_all || leases.len() >= request.n || bytes >= most {
            return that_fit(store, leases, most);
        }
        // Something is found: waiting for more would hold it back.
        asked.wait = Duration::ZERO;
        let each = bytes / leases.len() as u64;
        step = usize::try_from((most - bytes) / each.max(1)).unwrap_or(usize::MAX).max(1);
    }
}

fn payload_bytes<S: ServedStore>(lease: &LeaseOf<S>) -> u64 {
    lease.fragments.iter().map(|fragment| fragment.len() as u64).sum()
}

/// Bytes that an answer says of a lease, at most.
fn said_bytes<S: ServedStore>(store: &S, lease: &LeaseOf<S>) -> u64 {
    let (fragments, missing) = (lease.fragments.len() as u64, lease.missing.len() as u64);
    let beside = store.keyspace().attributes.packed_bytes() + lease.sources.packed().len();
    LEASE_BYTES + beside as u64 + FRAGMENT_BYTES * fragments + MISSING_BYTES * missing
}

/// The leases of which can be said what there is to say; the others are given back unharmed.
fn that_fit<S: ServedStore>(store: &S, mut leases: Vec<LeaseOf<S>>, most: u64) -> Result<Vec<LeaseOf<S>>> {
    let mut said = SAID_BYTES_MIN;
    let fit = leases.iter().take_while(|lease| {
        said += said_bytes(store, lease);
        said <= most / 2
    });
    let fit = fit.count();
    if fit == leases.len() {
        return Ok(leases);
    }
    // Given back, not left to run out: that would count as a failed delivery of a worker that never had the event.
    for lease in leases.drain(fit..) {
        // Where that fails the lease comes back by its time.
        let _ = lease.requeue();
    }
    if fit == 0 {
        let text =
            format!("more must be said of the next event than the client takes, of {most} bytes: take a larger window");
        return Err(Error::invalid(text));
    }
    Ok(leases)
}

/// Bytes of an answer that says nothing: a head and a count.
const SAID_BYTES_MIN: u64 = 64;

/// Leases as an answer says them.
pub(super) fn say_leases<S: ServedStore>(keyspace: &Keyspace, leases: Vec<LeaseOf<S>>) -> Result<Answer<S>> {
    let (mut out, mut payload) = (WireWriter::new(), Payload::default());
    out.u32(leases.len() as u32);
    for lease in leases {
        wire_lease(lease, &mut payload).encode(&mut out, keyspace)?;
    }
    Ok(answer(out, payload))
}

fn wire_lease<S: ServedStore>(lease: LeaseOf<S>, payload: &mut Payload<S>) -> WireLease {
    WireLease {
        event: WireEvent {
            primary: lease.primary,
            state: forebay_core::LiveState::Leased,
            stage: lease.stage,
            attributes: lease.attributes,
            streams: Vec::new(),
            fragments: say_fragments(lease.fragments, payload),
            missing: lease.missing,
            sources: lease.sources,
        },
        token: lease.token,
        delivery: lease.delivery,
        event_fragments: lease.event_fragments,
        event_bytes: lease.event_bytes,
    }
}

fn lease<S: ServedStore>(store: &S, keyspace: &Keyspace, meta: &[u8], most: u64) -> Result<Answer<S>> {
    let (primary, duration) =
        WireReader::whole(meta, |read| Ok((read.primary(&keyspace.schema)?, read.milliseconds()?)))?;
    let lease = store.lease(&primary, Some(duration).filter(|duration| *duration > Duration::ZERO))?;
    say_leases(keyspace, that_fit(store, lease.into_iter().collect(), most)?)
}

fn lease_get<S: ServedStore>(store: &S, keyspace: &Keyspace, meta: &[u8]) -> Result<Answer<S>> {
    let schema = &keyspace.schema;
    let (primary, token, sources) =
        WireReader::whole(meta, |read| Ok((read.primary(schema)?, read.token()?, read.sources(schema)?)))?;
    let mut payload = Payload::default();
    let said = say_fragments(store.executor().lease_get(&primary, &token, &sources)?, &mut payload);
    let mut out = WireWriter::new();
    out.fragments(&said)?;
    Ok(answer(out, payload))
}

fn extend<S: ServedStore>(store: &S, keyspace: &Keyspace, meta: &[u8], things: &mut u64) -> Result<Answer<S>> {
    let leases = WireExtend::decode_all(meta, keyspace)?;
    *things = leases.len() as u64;
    let mut out = Outcomes::new(leases.len(), 1);
    for lease in leases {
        out.say(&store.executor().extend(&lease.primary, &lease.token, lease.duration), |_, ()| {});
    }
    Ok(out.finish(Payload::default()))
}

/// Whether verdicts must be given on a thread: they bring results, which take space; they wait for a device or for puts; or
/// there are enough of them that others would wait for them.
pub(super) fn verdicts_wait<S: ServedStore>(store: &S, request: &Request, verdicts: &[WireVerdict]) -> bool {
    !request.payload.is_empty()
        || verdicts.len() > VERDICTS_MAX
        || verdicts.iter().any(|verdict| store.verdict_may_wait(&verdict.primary))
}

/// Verdicts of a frame that take long enough to hold others up, where there are more.
const VERDICTS_MAX: usize = 4096;

/// Gives verdicts, whose results are in the payload.
pub(super) fn judge_all<S: ServedStore>(store: &S, verdicts: &[WireVerdict], mut payload: &[u8]) -> Answer<S> {
    let mut out = Outcomes::new(verdicts.len(), 1);
    for verdict in verdicts {
        let mut results: Vec<ResultFragment<'_>> = Vec::with_capacity(verdict.results.len());
        let mut whole = Ok(());
        for (source, length, checksum) in &verdict.results {
            // Cut short where the payload is too short; the checksum then refuses this verdict and not its neighbours.
            let (bytes, rest) = payload.split_at((*length as usize).min(payload.len()));
            payload = rest;
            whole = whole.and_then(|()| check_sent(bytes, *checksum));
            results.push(ResultFragment { source, bytes });
        }
        let outcome = whole.and_then(|()| judge(store, verdict, &results));
        out.say(&outcome, |_, ()| {});
    }
    out.finish(Payload::default())
}

/// Gives one verdict.
///
/// # Errors
/// Those of the verdict.
pub(crate) fn judge<S: ServedStore>(store: &S, verdict: &WireVerdict, results: &[ResultFragment<'_>]) -> Result<()> {
    let (executor, primary, token): (_, _, &Token) = (store.executor(), &verdict.primary, &verdict.token);
    match &verdict.judgement {
        WireJudgement::Accept(streams) => {
            let streams: Vec<(&str, Sources)> =
                streams.iter().map(|(name, sources)| (name.as_str(), sources.clone())).collect();
            executor.accept_into(primary, token, &Accept { streams: &streams, results })
        }
        WireJudgement::Reject => executor.reject(primary, token),
        WireJudgement::Requeue => executor.requeue(primary, token),
        WireJudgement::Fail(reason) => executor.fail(primary, token, reason),
        WireJudgement::Pass(stage) => executor.pass(primary, token, stage, results),
    }
}

/// Calls that take names of events and answer whether there was something to do.
fn by_name<S: ServedStore>(
    store: &S,
    keyspace: &Keyspace,
    call: Call,
    meta: &[u8],
    things: &mut u64,
) -> Result<Answer<S>> {
    let events = WireReader::whole(meta, |read| read.list(2, |read| read.primary(&keyspace.schema)))?;
    *things = events.len() as u64;
    let mut out = Outcomes::new(events.len(), 2);
    for primary in &events {
        let outcome = match call {
            Call::Seal => store.seal(primary),
            Call::Release => store.release(primary),
            _ => store.replay(primary),
        };
        out.say(&outcome, |out, done| out.u8(u8::from(*done)));
    }
    Ok(out.finish(Payload::default()))
}

/// What a request is about, for the audit log.
pub(super) fn about<S: ServedStore>(store: &S, call: Call, request: &Request) -> String {
    let keyspace = store.keyspace();
    let schema = &keyspace.schema;
    let meta = &request.meta;
    let said = match call {
        Call::Remove => WireRemove::decode(meta, keyspace).map(|what| match what {
            WireRemove::Fragment(key) => schema.text(key.as_bytes()),
            WireRemove::Event(primary) => schema.text(primary.as_bytes()),
            WireRemove::Range(bounds) => format!("{:?} to {:?}", bounds.lower(), bounds.upper()),
        }),
        Call::Update => WireUpdate::decode(meta, keyspace).map(|what| match what {
            WireUpdate::Fragment { key, .. } => schema.text(key.as_bytes()),
            WireUpdate::Attributes { primary, attributes, .. } => {
                format!("{} {:?}", schema.text(primary.as_bytes()), attributes.text(&keyspace.attributes))
            }
        }),
        _ => {
            let events = WireReader::whole(meta, |read| read.list(2, |read| read.primary(schema)));
            events.map(|events| {
                events.iter().map(|primary| schema.text(primary.as_bytes())).collect::<Vec<_>>().join(" ")
            })
        }
    };
    said.unwrap_or_else(|error| error.message().to_owned())
}
