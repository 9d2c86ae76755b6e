//! What people do with the nodes: runs are opened, masked, stopped and closed; what is accepted is released.

use crate::books::Known;
use crate::budget::{What, metered};
use crate::clients::{Clients, Order};
use crate::net::Place;
use crate::process::wait;
use crate::route;
use crate::verify::{verify, verify_quiet, verify_unclosed};
use crate::work::{key, random, said};
use crate::world::{CALL, CALM, SOURCES, World, during};
use forebay_core::map::ClusterMap;
use forebay_core::{Bounds, Error, Kind, LiveState, Result};
use rand::RngExt;
use rand::rngs::SmallRng;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

/// A run that is stopped is closed by then, whatever comes.
const CLOSE: Duration = Duration::from_secs(1800);
/// So long movers have time for what is left of a run.
const MOVERS: Duration = Duration::from_secs(60);
/// Longer than between two looks at everything.
const LOOK: Duration = Duration::from_secs(10);

/// Opens runs, releases what is accepted, closes them.
pub(crate) fn operate(world: &Rc<World>) {
    let mut random = random(world, 300);
    let has_movers = world.plan.devices() > 0;
    let Some(clients) = world.connect("operator", false) else { return };
    for run in 1.. {
        world.books.borrow_mut().runs.entry(run).or_default().begun = Some(Instant::now());
        let length = Duration::from_secs(random.random_range(10..90));
        if random.random_bool(0.2) {
            remap(world, run, &mut random);
        }
        // A run that begins where nobody has the map yet is never moved by it.
        while !world.is_mapped() && !world.is_over() {
            wait(sleep(Duration::from_secs(1)));
        }
        if world.is_over() {
            return;
        }
        let opened = until_done(world, &clients, &Order::Open(run, world.keyspace.run.clone()));
        world.check(opened.map_err(|error| format!("run {run} cannot be opened: {error}")));
        world.run.set(Some((run, Instant::now())));
        let mut end = Instant::now() + length;
        let mut watched_until = Instant::now();
        while Instant::now() < end && !world.is_over() {
            wait(sleep(Duration::from_secs(random.random_range(1..8))));
            release(world, run, !has_movers);
            verify(world);
            wait(verify_quiet(world));
            // An order that later ones overtake, and then no others, which would hide what it does when it comes at last.
            let overtaken_until = world.overtaken_until.get();
            let is_overtaken = overtaken_until > Instant::now().max(watched_until);
            if is_overtaken {
                watched_until = overtaken_until + CALM + LOOK;
                end = end.max(watched_until);
            } else if Instant::now() < watched_until {
                continue;
            } else if random.random_bool(0.03) {
                remap(world, run + 1, &mut random);
            }
            if is_overtaken || random.random_bool(0.1) {
                let source = world.keyspace.schema.source_of(&key(world, (run, 0, SOURCES - 1)));
                let mask = |set| Order::Mask { run, source: source.clone(), set };
                let pairs = [
                    [mask(true), mask(false)],
                    [Order::Pause(run), Order::Resume(run)],
                    [Order::Hold(run), Order::LetGo],
                ];
                for order in &pairs[random.random_range(0..pairs.len())] {
                    let done = until_done(world, &clients, order);
                    world.check(done.map_err(|error| format!("run {run}: no {}: {error}", order.name())));
                    wait(sleep(Duration::from_secs(3)));
                }
            }
        }
        world.run.set(None);
        let stopped = until_done(world, &clients, &Order::Stop(run));
        world.check(stopped.map_err(|error| format!("run {run} cannot be stopped: {error}")));
        let stopped = Instant::now();
        loop {
            if world.is_over() {
                return;
            }
            release(world, run, !has_movers || stopped.elapsed() > MOVERS);
            // One that was asked for over a connection that others overtook may begin only now.
            let _ = ordered(world, &clients, &Order::LetGo);
            match ordered(world, &clients, &Order::Close(run)) {
                Ok(()) => break,
                // Closed before a kill that took the answer.
                Err(error) if error.kind() == Kind::Closed => break,
                Err(error) if stopped.elapsed() > CLOSE => {
                    world.check(Err(format!("run {run} cannot be closed: {error}")));
                }
                Err(error) if error.kind() == Kind::Unavailable => verify_unclosed(world, run, &error),
                Err(_) => {}
            }
            wait(sleep(Duration::from_secs(1)));
        }
        world.count(2);
        world.books.borrow_mut().closed(run);
        verify(world);
    }
}

/// Writes a later map for runs from this one on, unless there is one. In half of the cases some nodes get it late.
fn remap(world: &Rc<World>, run: u64, random: &mut SmallRng) {
    let Some(map) = world.map.borrow().clone() else { return };
    if world.mapped_from.replace(run) == run {
        return;
    }
    let next = match route::next_map(&map, run, random.random_range(1..=world.members.len())) {
        Ok(next) => Arc::new(next),
        Err(error) => return world.check(Err(format!("no map for run {run}: {error}"))),
    };
    world.note(format_args!("map of epoch {} from run {run}", next.epoch()));
    *world.map.borrow_mut() = Some(next.clone());
    let is_slow = random.random_bool(0.5);
    for place in world.plan.places() {
        let late = Duration::from_millis(if is_slow { random.random_range(0..40_000) } else { 0 });
        spawn_local(metered(What::Operator, during(world.clone(), bring(world.clone(), place, next.clone(), late))));
    }
}

/// A node has the file of a map after this time; if it is there it is told, else it finds the file when it begins.
async fn bring(world: Rc<World>, place: Place, map: Arc<ClusterMap>, late: Duration) {
    if !late.is_zero() {
        sleep(late).await;
    }
    let file = &world.members[place - 1].file;
    if file.borrow().as_ref().is_some_and(|known| known.epoch() >= map.epoch()) {
        return;
    }
    *file.borrow_mut() = Some(map.clone());
    world.note(format_args!("node {place} gets the map of epoch {}", map.epoch()));
    let Some((_, life)) = world.processes().into_iter().find(|(there, _)| *there == place) else { return };
    let adopted = life.node.as_ref().map_or(Ok(()), |node| node.adopt(&map));
    if !life.is_dead() {
        world.check(adopted.map_err(|error| format!("node {place} does not adopt epoch {}: {error}", map.epoch())));
    }
}

fn ordered(world: &World, clients: &Clients, order: &Order) -> Result<()> {
    let began = Instant::now();
    let answer = clients.order(order);
    let name = order.name();
    // To let go is to ask for the holds, and to end each of them; a lost answer may have made one more.
    let calls = if matches!(order, Order::LetGo) { 4 } else { 1 };
    world.ended(name, began, calls * CALL);
    world.note(format_args!(
        "operator: {name} {}",
        said(&answer.as_ref().map(|()| "done".to_owned()).map_err(Error::again))
    ));
    answer
}

/// Repeats a call of the operator until it is done: while nodes are down, or away, and until the end of the simulation.
fn until_done(world: &World, clients: &Clients, order: &Order) -> Result<()> {
    loop {
        match ordered(world, clients, order) {
            Err(error) if matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown | Kind::Full) => {}
            answer => return answer,
        }
        if world.is_over() {
            return Ok(());
        }
        wait(sleep(Duration::from_millis(300)));
    }
}

/// Releases those that failed too often, and accepted events where no mover does.
fn release(world: &World, run: u64, accepted: bool) {
    let Ok(bounds) = Bounds::parse(&world.keyspace.schema, &run.to_string()) else { return };
    for (_, life) in world.lives() {
        let Ok(events) = life.store.events(&bounds) else { continue };
        let is_released = |state| state == LiveState::Debug || state == LiveState::Accepted && accepted;
        for event in events.iter().filter(|event| is_released(event.state)) {
            let number = world.keyspace.schema.values(event.primary.as_bytes())[1];
            // Before the call: a kill in its middle leaves it either way.
            world.books.borrow_mut().released((run, number), Known::Perhaps);
            let released = life.store.release(&event.primary);
            if life.is_dead() {
                break;
            }
            if matches!(released, Ok(true)) {
                world.books.borrow_mut().released((run, number), Known::Yes);
            }
        }
    }
}
