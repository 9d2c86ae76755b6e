//! What people and programs do with the server: producers, workers that die, an operator of runs, and a look at everything.

use crate::books::{Judged, Known, PutEnd};
use crate::world::{SOURCES, World};
use forebay_client::{PlainLease, Verdict, WireJudgement};
use forebay_core::{
    Bounds, Completeness, Error, GetAny, Key, Keyspace, Kind, LiveState, PutOptions, PutOutcome, Sources,
};
use forebay_store::{RunState, Store};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

/// Between two events.
const EVENT: Duration = Duration::from_millis(700);
/// A run that is stopped is closed by then, whatever comes.
const CLOSE: Duration = Duration::from_secs(1800);
const DELIVERIES_MAX: u8 = 3;

pub(crate) fn keyspace() -> Keyspace {
    let mut keyspace = Keyspace::events("sim", 1);
    keyspace.run.completeness = Completeness::Count(SOURCES as u32);
    keyspace.run.complete_within = Duration::from_secs(2);
    keyspace.run.stop_grace = Duration::from_millis(300);
    keyspace.auto_open_runs = false;
    keyspace.deliveries_max = DELIVERIES_MAX;
    keyspace
}

fn random(world: &World, who: u64) -> SmallRng {
    SmallRng::seed_from_u64(world.plan.seed.wrapping_mul(0x9E37_79B9).wrapping_add(who))
}

/// The bytes of a key, and others for the same key.
fn bytes(run: u64, event: u64, source: u64, other: bool) -> Vec<u8> {
    let length = 8 + (event * 7 + source * 13) % 180;
    (0..length).map(|at| (run * 3 + event * 5 + source * 17 + at * 11 + u64::from(other)) as u8).collect()
}

fn key(world: &World, run: u64, event: u64, source: u64) -> Key {
    let key = world.keyspace.schema.key(&[run, event, source]);
    key.unwrap_or_else(|error| panic!("a key of the simulation: {error}"))
}

/// Puts the fragments of one source, some twice, some late, some with other bytes.
pub(crate) async fn produce(world: Rc<World>, source: u64) {
    let mut random = random(&world, 100 + source);
    let client = Rc::new(world.client(source));
    let (mut last, mut before) = ((0, 0), 0);
    while !world.is_over() {
        sleep(Duration::from_millis(random.random_range(50..250))).await;
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
        let (world, client) = (world.clone(), client.clone());
        // Beside the others: many calls share a connection.
        spawn_local(async move {
            if let Some(late) = late {
                sleep(late).await;
            }
            let run = stray.unwrap_or(run);
            put(&world, &client, (run, event, source), false).await;
            if twice {
                put(&world, &client, (run, event, source), false).await;
            }
            if other {
                put(&world, &client, (run, event, source), true).await;
            }
        });
    }
}

async fn put(world: &World, client: &forebay_client::AsyncClient, name: (u64, u64, u64), other: bool) {
    let (run, event, source) = name;
    let bytes = bytes(run, event, source, other);
    world.books.borrow_mut().offered(name, &bytes);
    let began = Instant::now();
    let answer = client.put(&key(world, run, event, source), &bytes, &PutOptions::default()).await;
    world.ended("put", began, Duration::ZERO);
    let end = match &answer {
        Ok(PutOutcome::Stored | PutOutcome::Duplicate) => PutEnd::Stored,
        Ok(PutOutcome::Late) => PutEnd::Refused,
        // An earlier try may have been stored before the event was decided.
        Ok(PutOutcome::LateUnknown) => PutEnd::Unknown,
        Err(error) if error.kind() == Kind::Conflict => PutEnd::Conflict,
        Err(error) if error.kind() == Kind::OutcomeUnknown => PutEnd::Unknown,
        // Nothing was sent, or it was refused: not in the store.
        Err(_) => PutEnd::Refused,
    };
    world.note(format_args!("put {run}/{event}/{source} {}", said(&answer.map(|outcome| format!("{outcome:?}")))));
    let checked = world.books.borrow_mut().answered(name, &bytes, end);
    world.check(checked);
}

fn said(answer: &Result<String, Error>) -> String {
    match answer {
        Ok(outcome) => outcome.clone(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// Takes events, thinks, decides; dies or falls asleep now and then.
pub(crate) async fn select(world: Rc<World>, worker: u64) {
    let mut random = random(&world, 200 + worker);
    let client = world.client(50 + worker);
    while !world.is_over() {
        let stored = world.run.get().map(|(run, _)| (run, world.books.borrow().stored(run)));
        let request = GetAny { n: random.random_range(1..5), wait: Duration::from_secs(2), ..GetAny::default() };
        let began = Instant::now();
        let answer = client.get_any(&request).await;
        world.ended("get_any", began, request.wait);
        let leases = match answer {
            Ok(leases) => leases,
            Err(error) => {
                world.note(format_args!("worker {worker}: get_any {:?}", error.kind()));
                continue;
            }
        };
        leases.iter().for_each(|lease| take(&world, worker, lease, stored.as_ref()));
        for lease in leases {
            let think = match random.random_range(0..100) {
                // It dies with the event.
                0..4 => continue,
                // It sleeps past its lease.
                4..7 => Duration::from_secs(random.random_range(4..30)),
                _ => Duration::from_millis(random.random_range(1..200)),
            };
            sleep(think).await;
            let draw = random.random_range(0..100);
            judge(&world, &client, worker, &lease, draw).await;
        }
    }
}

type Stored = (u64, std::collections::BTreeMap<u64, std::collections::BTreeSet<u64>>);

fn take(world: &World, worker: u64, lease: &PlainLease, stored: Option<&Stored>) {
    world.count(1);
    let values = world.keyspace.schema.values(lease.primary.as_bytes());
    let (run, event) = (values[0], values[1]);
    let source = |key: Key| world.keyspace.schema.values(key.as_bytes())[2];
    let fragments: Vec<(u64, Vec<u8>)> =
        lease.fragments.iter().map(|fragment| (source(fragment.key()), fragment.to_vec())).collect();
    let sources: Vec<u64> = fragments.iter().map(|fragment| fragment.0).collect();
    world.note(format_args!("worker {worker}: {run}/{event} {} {sources:?} delivery {}", lease.token, lease.delivery));
    let before = stored.filter(|stored| stored.0 == run).and_then(|stored| stored.1.get(&event));
    let checked = world.books.borrow_mut().granted((run, event), lease.token, &fragments, before);
    world.check(checked);
    if lease.delivery > DELIVERIES_MAX {
        world.check(Err(format!("{run}/{event}: delivery {} of at most {DELIVERIES_MAX}", lease.delivery)));
    }
}

async fn judge(world: &World, client: &forebay_client::AsyncClient, worker: u64, lease: &PlainLease, draw: u32) {
    let values = world.keyspace.schema.values(lease.primary.as_bytes());
    let name = (values[0], values[1]);
    let (judged, judgement) = match draw {
        0..30 => (Some(Judged::Accepted), WireJudgement::Accept(vec![("main".to_owned(), Sources::All)])),
        30..34 => (None, WireJudgement::Requeue),
        _ => (Some(Judged::Rejected), WireJudgement::Reject),
    };
    if let Some(judged) = judged {
        world.books.borrow_mut().judges(name, lease.token, judged);
    }
    let began = Instant::now();
    let answer = client.decide(&[Verdict::about(lease, judgement)]).await;
    world.ended("verdict", began, Duration::ZERO);
    let answer = answer.and_then(|mut all| all.pop().unwrap_or_else(|| Err(Error::internal("no outcome"))));
    let known = match &answer {
        Ok(()) => Known::Yes,
        Err(error) if error.kind() == Kind::OutcomeUnknown => Known::Perhaps,
        Err(_) => Known::No,
    };
    let text = said(&answer.map(|()| "done".to_owned()));
    world.note(format_args!("worker {worker}: {}/{} {judged:?} {} {text}", name.0, name.1, lease.token));
    if let Some(judged) = judged {
        let checked = world.books.borrow_mut().judged(name, lease.token, judged, known);
        world.check(checked);
    }
}

/// Opens runs, releases what is accepted, closes them.
pub(crate) async fn operate(world: Rc<World>) {
    let mut random = random(&world, 300);
    for run in 1.. {
        let length = Duration::from_secs(random.random_range(10..90));
        until(&world, &format!("open {run}"), |store| store.run_open(run, &world.keyspace.run)).await;
        world.run.set(Some((run, Instant::now())));
        let end = Instant::now() + length;
        while Instant::now() < end && !world.is_over() {
            sleep(Duration::from_secs(random.random_range(1..8))).await;
            release(&world, run);
            verify(&world);
            if random.random_bool(0.1) {
                let source = world.keyspace.schema.source_of(&key(&world, run, 0, SOURCES - 1));
                until(&world, "mask", |store| store.mask(run, &source, None)).await;
                sleep(Duration::from_secs(3)).await;
                until(&world, "unmask", |store| store.unmask(run, &source, None)).await;
            }
        }
        world.run.set(None);
        until(&world, &format!("stop {run}"), |store| store.run_stop(run)).await;
        let stopped = Instant::now();
        loop {
            if world.is_over() {
                return;
            }
            release(&world, run);
            let Some(life) = world.life() else {
                sleep(Duration::from_secs(1)).await;
                continue;
            };
            let closed = life.store.run_close(run);
            if life.is_dead() {
                continue;
            }
            match closed {
                Ok(summary) => {
                    world.note(format_args!("closed {run}: {:?}", summary.ledger.stored));
                    let balanced = summary.ledger.imbalance().map_or(Ok(()), Err);
                    world.check(balanced.and_then(|()| world.books.borrow().check_stored(run, summary.ledger.stored)));
                    break;
                }
                // Closed before a kill that took the answer.
                Err(error) if error.kind() == Kind::Closed => break,
                Err(error) if stopped.elapsed() > CLOSE => {
                    world.check(Err(format!("run {run} cannot be closed: {error}")))
                }
                Err(_) => {}
            }
            sleep(Duration::from_secs(1)).await;
        }
        world.count(2);
        world.books.borrow_mut().closed(run);
        verify(&world);
    }
}

/// Repeats a call of the operator until it is done: while the node is down, or died meanwhile.
async fn until(world: &World, what: &str, call: impl Fn(&Store) -> forebay_core::Result<()>) {
    while !world.is_over() {
        if let Some(life) = world.life() {
            let answer = call(&life.store);
            if !life.is_dead() {
                world.note(format_args!("{what}: {}", said(&answer.map(|()| "done".to_owned()))));
                return;
            }
        }
        sleep(Duration::from_millis(300)).await;
    }
}

/// Releases accepted events, as a mover does, and those that failed too often.
fn release(world: &World, run: u64) {
    let Some(life) = world.life() else { return };
    let Ok(bounds) = Bounds::parse(&world.keyspace.schema, &run.to_string()) else { return };
    let Ok(events) = life.store.events(&bounds) else { return };
    for event in events.iter().filter(|event| matches!(event.state, LiveState::Accepted | LiveState::Debug)) {
        let number = world.keyspace.schema.values(event.primary.as_bytes())[1];
        // Before the call: a kill in its middle leaves it either way.
        world.books.borrow_mut().released((run, number), Known::Perhaps);
        let released = life.store.release(&event.primary);
        if life.is_dead() {
            return;
        }
        if matches!(released, Ok(true)) {
            world.books.borrow_mut().released((run, number), Known::Yes);
        }
    }
}

/// Looks at everything: each event, each account.
pub(crate) fn verify(world: &World) {
    let Some(life) = world.life() else { return };
    world.check(life.check());
    let store = &life.store;
    let books = world.books.borrow();
    let schema = &world.keyspace.schema;
    let mut checked = Ok(());
    let states = store.runs();
    for (&run, book) in &books.runs {
        for &event in book.events.keys() {
            let Ok(primary) = schema.primary(&[run, event]) else { continue };
            let source = |fragment: &forebay_store::Fragment| schema.values(fragment.key().as_bytes())[2];
            let one = match store.get_event(&primary, &Sources::All) {
                Ok(found) => books.check_event((run, event), found.as_ref(), world.calm(), source),
                Err(error) => Err(format!("{run}/{event} cannot be read: {error}")),
            };
            checked = checked.and(one);
        }
        let is_open = states.iter().any(|status| status.run == run && status.state != RunState::Closed);
        if book.is_closed && is_open {
            checked = checked.and(Err(format!("run {run}: closed, and open again")));
        }
        if let Ok(ledger) = store.ledger(run) {
            let balanced = ledger.imbalance().map_or(Ok(()), |what| Err(format!("run {run}: {what}")));
            checked = checked.and(balanced).and_then(|()| books.check_stored(run, ledger.stored));
        }
    }
    drop(books);
    if !life.is_dead() {
        world.check(checked);
    }
}
