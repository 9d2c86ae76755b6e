//! What programs do with the nodes: producers, workers that die.

use crate::books::{Judged, Known, Put, PutEnd};
use crate::budget::What;
use crate::clients::{Clients, Decision, Leased};
use crate::process::wait;
use crate::world::{CALL, CALM, Plan, SOURCES, World};
use forebay_client::Fragment;
use forebay_core::{Completeness, Error, GetAny, Key, Keyspace, Kind, Lease, PutOutcome};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// Between two events.
const EVENT: Duration = Duration::from_millis(700);
const DELIVERIES_MAX: u8 = 3;
/// How much longer fragments are in simulations in which stores fill.
const BIG: u64 = 120;

/// Misses in a row after which a run masks a source.
const MISSES: u32 = 5;

/// Longest time of a call for events, beside what it asks to wait: its own, and that of giving back what cannot be read.
const GRANT: Duration = CALL.saturating_mul(2);

pub(crate) fn keyspace(plan: &Plan) -> Keyspace {
    let mut keyspace = Keyspace::events("sim", 1);
    keyspace.run.completeness = Completeness::Count(SOURCES as u32);
    if plan.has_policy() {
        let sources: Vec<Vec<u64>> = (0..SOURCES).map(|source| vec![source]).collect();
        let sources = Completeness::sources(&keyspace.schema, &sources);
        keyspace.run.completeness = sources.unwrap_or_else(|error| panic!("sources of the simulation: {error}"));
        keyspace.run.auto_mask = Some(MISSES);
    }
    keyspace.run.complete_within = Duration::from_secs(2);
    keyspace.run.stop_grace = Duration::from_millis(300);
    keyspace.deliveries_max = DELIVERIES_MAX;
    keyspace
}

pub(crate) fn random(world: &World, who: u64) -> SmallRng {
    SmallRng::seed_from_u64(world.plan.seed.wrapping_mul(0x9E37_79B9).wrapping_add(who))
}

/// Whether stores fill where nobody empties them.
fn fills(world: &World) -> bool {
    world.plan.seed.is_multiple_of(2)
}

/// The bytes of a key, and others for the same key.
fn bytes(world: &World, (run, event, source): (u64, u64, u64), other: bool) -> Vec<u8> {
    let length = 8 + (event * 7 + source * 13) % 180 * if fills(world) { BIG } else { 1 };
    (0..length).map(|at| (run * 3 + event * 5 + source * 17 + at * 11 + u64::from(other)) as u8).collect()
}

pub(crate) fn key(world: &World, (run, event, source): (u64, u64, u64)) -> Key {
    let key = world.keyspace.schema.key(&[run, event, source]);
    key.unwrap_or_else(|error| panic!("a key of the simulation: {error}"))
}

/// Puts the fragments of one source, some twice, some late, some with other bytes.
pub(crate) fn produce(world: &Rc<World>, source: u64) {
    let mut random = random(world, 100 + source);
    let Some(clients) = world.connect(&format!("producer {source}"), source == 1).map(Rc::new) else { return };
    let (mut last, mut before) = ((0, 0), 0);
    let falls_silent = world.plan.has_policy() && source == 1;
    while !world.is_over() {
        if falls_silent && random.random_bool(0.01) {
            wait(sleep(Duration::from_secs(random.random_range(2..25))));
        }
        wait(sleep(Duration::from_millis(random.random_range(50..250))));
        let Some((run, opened)) = world.run.get() else { continue };
        let event = (opened.elapsed().as_millis() / EVENT.as_millis()) as u64;
        if (run, event) == last {
            continue;
        }
        if run != last.0 {
            before = last.0;
        }
        last = (run, event);
        if random.random_bool(0.03) {
            continue;
        }
        let late = random.random_bool(0.03).then(|| Duration::from_millis(random.random_range(1000..9000)));
        let twice = random.random_bool(0.05);
        let other = random.random_bool(0.02);
        let stray = (before > 0 && random.random_bool(0.02)).then_some(before);
        let by_holder = random.random_bool(0.5);
        let (of_it, clients) = (world.clone(), clients.clone());
        // Beside the others.
        world.begin(What::Producers, move || {
            if let Some(late) = late {
                wait(sleep(late));
            }
            let run = stray.unwrap_or(run);
            let put = |other| put(&of_it, &clients, (run, event, source), other, by_holder);
            put(false);
            if twice {
                put(false);
            }
            if other {
                put(true);
            }
        });
    }
}

fn put(world: &World, clients: &Clients, name: (u64, u64, u64), other: bool, by_holder: bool) {
    let (run, event, source) = name;
    let bytes = bytes(world, name, other);
    world.books.borrow_mut().offered(name, &bytes);
    let (began, was_calm) = (Instant::now(), world.calm() > CALM);
    let key = key(world, name);
    let places = world.places(&world.keyspace.schema.primary_of(&key), source);
    let is_held_elsewhere = places[0] != places[1];
    let is_held = by_holder && is_held_elsewhere;
    // A home that has never heard of the run counts nothing of it.
    let is_known = world.life(places[1]).is_some_and(|life| life.store.ledger(run).is_ok());
    let answer = clients.put(places[0], &key, &bytes, is_held);
    // A client of one node is made in a call of its own.
    world.ended("put", began, if is_held { 2 * CALL } else { CALL });
    let end = match &answer {
        // What its home says is not known.
        Ok(PutOutcome::Stored | PutOutcome::Duplicate) if is_held => PutEnd::Held,
        Ok(PutOutcome::Stored) => PutEnd::Stored,
        Ok(PutOutcome::Duplicate) => PutEnd::Duplicate,
        Ok(PutOutcome::Late) => PutEnd::Late,
        // An earlier try may have been stored before the event was decided.
        Ok(PutOutcome::LateUnknown) => PutEnd::Unknown,
        Err(error) if error.kind() == Kind::OutcomeUnknown || error.earlier_try_unknown() => PutEnd::Unknown,
        Err(error) if error.kind() == Kind::Conflict => PutEnd::Conflict,
        Err(error) if matches!(error.kind(), Kind::Full | Kind::Closed) => PutEnd::Refused,
        // Nothing was sent, or it was refused: not in the store.
        Err(_) => PutEnd::NotTaken,
    };
    let text = said(&answer.map(|outcome| format!("{outcome:?}")));
    world.note(format_args!("put {run}/{event}/{source} {places:?} {text}"));
    let put = Put { key: name, bytes: &bytes, began, is_apart: is_held_elsewhere, is_known };
    take_sent(world);
    let checked = world.books.borrow_mut().answered(put, end);
    world.check(checked);
    // Nobody waits for space here, nor for a run that is being closed. A home that is full has what its holder says later.
    let may_wait = is_held_elsewhere && fills(world) || world.run.get().is_none_or(|(open, _)| open != run);
    if was_calm && world.calm() > CALM && !may_wait && matches!(&text[..], "Unavailable" | "OutcomeUnknown") {
        world.check(Err(format!("{run}/{event}/{source}: {text}, and no fault has been there for {:?}", world.calm())));
    }
}

/// Puts that were sent meanwhile are brought to the books.
pub(crate) fn take_sent(world: &World) {
    let schema = &world.keyspace.schema;
    for (to, put) in world.ways.net.take_puts() {
        let values = schema.values(put.key.as_bytes());
        let name = (values[0], values[1], values[2]);
        let of = world.places(&schema.primary_of(&put.key), name.2);
        world.books.borrow_mut().sent(name, to, of, &put);
    }
}

pub(crate) fn said(answer: &Result<String, Error>) -> String {
    match answer {
        Ok(outcome) => outcome.clone(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// Takes events, thinks, decides; dies or falls asleep now and then.
pub(crate) fn select(world: &Rc<World>, worker: u64) {
    let mut random = random(world, 200 + worker);
    while let Some(clients) = world.connect(&format!("worker {worker}"), worker == 1) {
        work(world, worker, &clients, &mut random);
    }
}

/// One life of a worker.
fn work(world: &World, worker: u64, clients: &Clients, random: &mut SmallRng) {
    while !world.is_over() {
        wait(sleep_until(world.strike_until.get()));
        let stored = world.run.get().map(|(run, _)| (run, world.books.borrow().stored(run)));
        let most = Duration::from_millis(2000);
        let request = GetAny { n: random.random_range(1..5), wait: most, ..GetAny::default() };
        let began = Instant::now();
        let answer = clients.get_any(&request);
        world.ended("get_any", began, GRANT + most);
        let leases = match answer {
            Ok(leases) => leases,
            Err(error) => {
                world.note(format_args!("worker {worker}: get_any {:?}", error.kind()));
                continue;
            }
        };
        for lease in &leases {
            match lease {
                Leased::Plain(lease) => take(world, worker, lease, stored.as_ref(), began),
                Leased::Kept(lease) => take(world, worker, lease, stored.as_ref(), began),
            }
        }
        for lease in &leases {
            let think = match random.random_range(0..100) {
                // It dies with its events.
                0..4 => return,
                // It sleeps past its lease.
                4..7 => Duration::from_secs(random.random_range(4..30)),
                _ => Duration::from_millis(random.random_range(1..200)),
            };
            wait(sleep(think));
            let decision = match random.random_range(0..100) {
                0..30 => Decision::Accept,
                30..34 => Decision::Requeue,
                _ => Decision::Reject,
            };
            judge(world, clients, worker, lease, decision);
        }
    }
}

type Stored = (u64, std::collections::BTreeMap<u64, std::collections::BTreeSet<u64>>);

fn take<H>(world: &World, worker: u64, lease: &Lease<Fragment, H>, stored: Option<&Stored>, began: Instant) {
    world.count(1);
    let values = world.keyspace.schema.values(lease.primary.as_bytes());
    let (run, event) = (values[0], values[1]);
    let source = |key: Key| world.keyspace.schema.values(key.as_bytes())[2];
    let fragments: Vec<(u64, Vec<u8>)> =
        lease.fragments.iter().map(|fragment| (source(fragment.key()), fragment.to_vec())).collect();
    let sources: Vec<u64> = fragments.iter().map(|fragment| fragment.0).collect();
    world.note(format_args!("worker {worker}: {run}/{event} {} {sources:?} delivery {}", lease.token, lease.delivery));
    let before = stored.filter(|stored| stored.0 == run);
    let before = before.and_then(|stored| stored.1.get(&event));
    let checked = world.books.borrow_mut().granted(
        (run, event),
        (world.home(&lease.primary), lease.token),
        &fragments,
        before,
        began,
    );
    world.check(checked);
    if lease.delivery > DELIVERIES_MAX {
        world.check(Err(format!("{run}/{event}: delivery {} of at most {DELIVERIES_MAX}", lease.delivery)));
    }
}

fn judge(world: &World, clients: &Clients, worker: u64, lease: &Leased, decision: Decision) {
    let (primary, token) = match lease {
        Leased::Plain(lease) => (lease.primary, lease.token),
        Leased::Kept(lease) => (lease.primary, lease.token),
    };
    let values = world.keyspace.schema.values(primary.as_bytes());
    let name = (values[0], values[1]);
    let judged = match decision {
        Decision::Accept => Some(Judged::Accepted),
        Decision::Reject => Some(Judged::Rejected),
        Decision::Requeue => None,
    };
    if let Some(judged) = judged {
        world.books.borrow_mut().judges(name, token, judged);
    }
    let began = Instant::now();
    let answer = clients.decide(lease, decision);
    world.ended("verdict", began, CALL);
    let known = match &answer {
        Ok(()) => Known::Yes,
        Err(error) if error.kind() == Kind::OutcomeUnknown => Known::Perhaps,
        Err(_) => Known::No,
    };
    let text = said(&answer.map(|()| "done".to_owned()));
    world.note(format_args!("worker {worker}: {}/{} {judged:?} {token} {text}", name.0, name.1));
    if let Some(judged) = judged {
        let checked = world.books.borrow_mut().judged(name, token, judged, known);
        world.check(checked);
    }
}
