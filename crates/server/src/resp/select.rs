//! Events: leased by FB.GETANY, decided by FB.ACCEPT and its kin, read by FB.EVENT.

use super::failure::Failure;
use super::keys;
use super::parse::Command;
use super::replies::Replies;
use super::turn::{Answer, Flow, Turn};
use crate::session::{LOOK_AGAIN, LOOK_AGAIN_FILTERED, LeaseOf, judge, lease_any};
use forebay_core::{
    Attributes, Filter, GetAny, Key, Keyspace, Kind, LeaseHolder, Primary, ReadFragment, ServedStore, Sources, Token,
};
use forebay_wire::{WireJudgement, WireVerdict};
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Most events of one FB.GETANY.
const COUNT_MAX: usize = 10_000;

fn text(word: Option<&[u8]>) -> Result<&str, Failure> {
    Ok(keys::utf8(word.ok_or_else(Failure::syntax)?)?)
}

pub(super) fn number(word: Option<&[u8]>) -> Result<u64, Failure> {
    text(word)?.parse().map_err(|_| Failure::number())
}

/// Every word that is left: `ALL`, `NONE`, or sources and names of groups.
fn sources<'a>(keyspace: &Keyspace, words: impl Iterator<Item = &'a [u8]>) -> Result<Sources, Failure> {
    let words = words.map(keys::utf8).collect::<Result<Vec<_>, _>>()?;
    match words.as_slice() {
        [] => return Err(Failure::syntax()),
        [word] if word.eq_ignore_ascii_case("none") => return Ok(Sources::None),
        [word] if word.eq_ignore_ascii_case("all") => return Ok(Sources::All),
        _ => {}
    }
    let mut all = Vec::new();
    for word in words {
        if word.starts_with(|first: char| first.is_ascii_digit()) {
            all.push(keyspace.schema.parse_source(word)?);
        } else {
            all.extend_from_slice(&keyspace.group(word)?.sources);
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(Sources::Only(all))
}

/// How much longer a command that waits so long has patience; `None` where it waits no more.
pub(super) fn patience<S: ServedStore>(turn: &mut Turn<'_, S>, wait: Duration) -> Option<Duration> {
    if wait.is_zero() || turn.shared.stopping.load(Ordering::Acquire) {
        return None;
    }
    let now = Instant::now();
    // Kept between the runs of one command: its wait began with the first of them.
    let left = turn.patience.get_or_insert(now + wait).saturating_duration_since(now);
    (!left.is_zero()).then_some(left)
}

/// FB.GETANY [COUNT n] [STAGE s] [WAIT ms] [LEASE ms] [FILTER condition]… [SOURCES NONE | ALL | source…]
pub(super) fn get_any<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let store = turn.client.store()?.clone();
    let keyspace = store.keyspace();
    let (mut request, mut wanted, mut conditions) = (GetAny::default(), 1, Vec::new());
    let mut words = command.from(1);
    while let Some(word) = words.next() {
        match word.to_ascii_uppercase().as_slice() {
            b"COUNT" => wanted = (number(words.next())? as usize).clamp(1, COUNT_MAX),
            b"STAGE" => request.stage = Some(text(words.next())?.to_owned()),
            b"WAIT" => request.wait = Duration::from_millis(number(words.next())?).min(turn.shared.limits.wait_max),
            b"LEASE" => request.lease = Some(Duration::from_millis(number(words.next())?)),
            b"FILTER" => conditions.push(text(words.next())?),
            b"SOURCES" => request.sources = sources(keyspace, words.by_ref())?,
            _ => return Err(Failure::syntax()),
        }
    }
    request.filter = Filter::parse(&keyspace.attributes, &conditions)?;
    // The store is asked without a wait: the connection's task waits, and the command runs again.
    let wait = std::mem::take(&mut request.wait);
    request.n = wanted;
    // The limit is what a client may take at once, as in the native protocol.
    let found = lease_any(&store, &request, u64::from(turn.shared.limits.window_bytes));
    // While a node of a cluster is away, others may still have events before the wait is over.
    let is_empty = found.as_ref().map_or_else(|error| error.kind() == Kind::Unavailable, Vec::is_empty);
    if is_empty && let Some(left) = patience(turn, wait) {
        let again = if conditions.is_empty() { LOOK_AGAIN } else { LOOK_AGAIN_FILTERED };
        return Ok(Flow::Later(left.min(again.max(store.look_again_min()))));
    }
    // The command is answered: the next one has a patience of its own.
    *turn.patience = None;
    let leases = found?;
    let fragments: usize = leases.iter().map(|lease| lease.fragments.len()).sum();
    (turn.things, turn.cost) = (leases.len() as u64, 1 + leases.len() + fragments);
    turn.replies.array(leases.len());
    for mut lease in leases {
        let payload = std::mem::take(&mut lease.fragments);
        turn.sent += payload.iter().map(|fragment| fragment.len() as u64).sum::<u64>();
        write_lease::<S>(turn.replies, keyspace, &lease, payload);
    }
    Ok(Flow::Done)
}

fn write_lease<S: ServedStore>(
    replies: &mut Replies<S::Fragment>,
    keyspace: &Keyspace,
    lease: &LeaseOf<S>,
    payload: Vec<S::Fragment>,
) {
    replies.map(9);
    replies.text("primary");
    replies.text(&keyspace.schema.text(lease.primary.as_bytes()));
    replies.text("token");
    replies.text(&lease.token.to_string());
    replies.text("stage");
    replies.text(keyspace.stages.get(usize::from(lease.stage)).map_or("", |stage| stage));
    replies.text("delivery");
    replies.number(u64::from(lease.delivery));
    write_attributes(replies, keyspace, &lease.attributes);
    write_missing(replies, keyspace, &lease.missing);
    replies.text("event_fragments");
    replies.number(u64::from(lease.event_fragments));
    replies.text("event_bytes");
    replies.number(lease.event_bytes);
    write_fragments(replies, keyspace, payload);
}

fn write_attributes<F: Deref<Target = [u8]>>(replies: &mut Replies<F>, keyspace: &Keyspace, attributes: &Attributes) {
    let attributes = attributes.text(&keyspace.attributes);
    replies.text("attributes");
    replies.map(attributes.len());
    for (name, value) in &attributes {
        replies.text(name);
        replies.text(value);
    }
}

fn source_of(keyspace: &Keyspace, key: &Key) -> String {
    keyspace.schema.source_text(keyspace.schema.rest_of(key))
}

fn write_missing<F: Deref<Target = [u8]>>(replies: &mut Replies<F>, keyspace: &Keyspace, missing: &[Key]) {
    replies.text("missing");
    replies.texts(missing.iter().map(|key| source_of(keyspace, key)));
}

fn write_fragments<F: ReadFragment>(replies: &mut Replies<F>, keyspace: &Keyspace, fragments: Vec<F>) {
    replies.text("fragments");
    replies.map(fragments.len());
    for fragment in fragments {
        replies.text(&source_of(keyspace, &fragment.key()));
        replies.fragment(fragment);
    }
}

/// FB.EVENT primary [SOURCES NONE | ALL | source…]
pub(super) fn event<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let store = turn.client.store()?.clone();
    let keyspace = store.keyspace();
    let primary = keys::primary(&keyspace.schema, command.part(1))?;
    let chosen = match command.part(2) {
        [] => Sources::All,
        word if word.eq_ignore_ascii_case(b"sources") => sources(keyspace, command.from(3))?,
        _ => return Err(Failure::syntax()),
    };
    let Some(event) = store.get_event(&primary, &chosen)? else {
        turn.replies.nothing();
        return Ok(Flow::Done);
    };
    turn.cost = 1 + event.fragments.len();
    turn.sent += event.fragments.iter().map(|fragment| fragment.len() as u64).sum::<u64>();
    let replies = &mut *turn.replies;
    replies.map(8);
    replies.text("primary");
    replies.text(&keyspace.schema.text(event.primary.as_bytes()));
    replies.text("state");
    replies.text(event.state.name());
    replies.text("stage");
    replies.text(&event.stage);
    write_attributes(replies, keyspace, &event.attributes);
    replies.text("streams");
    replies.texts(event.streams.iter());
    write_missing(replies, keyspace, &event.missing);
    replies.text("sources");
    replies.map(event.sources.iter().count());
    for (source, state) in event.sources.iter() {
        replies.text(&keyspace.schema.source_text(source));
        replies.text(state.name());
    }
    write_fragments(replies, keyspace, event.fragments);
    Ok(Flow::Done)
}

/// The event and the token that most commands begin with.
fn held<S: ServedStore>(store: &S, command: Command<'_>) -> Result<(Primary, Token), Failure> {
    let primary = keys::primary(store.schema(), command.part(1))?;
    Ok((primary, keys::utf8(command.part(2))?.parse()?))
}

/// FB.ACCEPT primary token stream [stream …] | FB.REJECT primary token | FB.REQUEUE primary token |
/// FB.FAIL primary token reason | FB.PASS primary token stage
pub(super) fn decide<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let store = turn.client.store()?;
    let (primary, token) = held(store, command)?;
    let judgement = match command.part(0).to_ascii_uppercase().as_slice() {
        b"FB.ACCEPT" => {
            let streams = command.from(3).map(|name| Ok((keys::utf8(name)?.to_owned(), Sources::All)));
            WireJudgement::Accept(streams.collect::<Result<_, Failure>>()?)
        }
        b"FB.PASS" => WireJudgement::Pass(keys::utf8(command.part(3))?.to_owned()),
        b"FB.REQUEUE" => WireJudgement::Requeue,
        b"FB.FAIL" => WireJudgement::Fail(keys::utf8(command.part(3))?.to_owned()),
        _ => WireJudgement::Reject,
    };
    judge(store, &WireVerdict { primary, token, judgement, results: Vec::new() }, &[])?;
    turn.replies.ok();
    Ok(Flow::Done)
}

/// FB.EXTEND primary token milliseconds
pub(super) fn extend<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let store = turn.client.store()?;
    let (primary, token) = held(store, command)?;
    if turn.client.may_be_slow() && !turn.may_wait && store.verdict_may_wait(&primary) {
        return Ok(Flow::Wait);
    }
    store.executor().extend(&primary, &token, Duration::from_millis(number(Some(command.part(3)))?))?;
    turn.replies.ok();
    Ok(Flow::Done)
}

/// FB.SEAL primary
pub(super) fn seal<S: ServedStore>(turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
    let store = turn.client.store()?;
    let sealed = store.seal(&keys::primary(store.schema(), command.part(1))?)?;
    turn.replies.number(u64::from(sealed));
    Ok(Flow::Done)
}
