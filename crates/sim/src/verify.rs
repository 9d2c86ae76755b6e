//! A look at everything: each event at its home and its holders, each account, each run on all nodes.

use crate::books::{Found, is_of};
use crate::budget::{What, timed};
use crate::net::Place;
use crate::node::Life;
use crate::work::{key, take_sent};
use crate::world::{CALM, SOURCES, World};
use forebay_core::{Bounds, Elsewhere, Error, Ledger, Level, Sources};
use forebay_store::{RunState, RunStatus};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Looks at everything that holds at any moment.
pub(crate) fn verify(world: &World) {
    timed(What::Checks, || look(world));
}

fn look(world: &World) {
    let lives = world.lives();
    take_sent(world);
    let mut checked = Ok(());
    for (place, life) in &lives {
        checked = checked.and(life.check()).and_then(|()| verify_closed(world, *place, life));
        checked = checked.and_then(|()| verify_map(world, *place, life));
        checked = checked.map_err(|what| format!("node {place}: {what}"));
    }
    let runs: Vec<(u64, Vec<u64>)> =
        world.books.borrow().runs.iter().map(|(run, book)| (*run, book.events.keys().copied().collect())).collect();
    for (run, events) in runs {
        for event in events {
            checked = checked.and_then(|()| verify_event(world, run, event));
        }
        checked = checked.and_then(|()| verify_homes(world, &lives, run));
        // The account is that of all nodes.
        if lives.len() == world.members.len() {
            checked = checked.and_then(|()| verify_account(world, &lives, run));
        }
    }
    world.check(world.ways.net.check());
    // A node that died meanwhile answered as it liked.
    if lives.iter().all(|(_, life)| !life.is_dead()) {
        world.check(checked);
    }
}

/// An event lives at its home only.
fn verify_homes(world: &World, lives: &[(Place, Rc<Life>)], run: u64) -> Result<(), String> {
    let bounds = Bounds::parse(&world.keyspace.schema, &run.to_string()).map_err(|error| error.to_string())?;
    for (place, life) in lives {
        let events = life.store.events(&bounds).map_err(|error| format!("run {run} on node {place}: {error}"))?;
        if let Some(event) = events.iter().find(|event| world.home(&event.primary) != *place) {
            let (name, home) = (world.keyspace.schema.text(event.primary.as_bytes()), world.home(&event.primary));
            return Err(format!("{name}: {} on node {place}, and its home is node {home}", event.state.name()));
        }
    }
    Ok(())
}

/// A node goes by a map that there is, and never by an earlier one than before.
fn verify_map(world: &World, place: Place, life: &Life) -> Result<(), String> {
    let (written, adopted) = (world.map.borrow().clone(), life.store.adopted_map());
    let before = world.members[place - 1].epoch.replace(life.store.epoch());
    match (written, adopted) {
        (None, None) => Ok(()),
        (Some(written), Some((map, _)))
            if (before..=written.epoch()).contains(&map.epoch())
                && (map.epoch() < written.epoch() || map.hash() == written.hash()) =>
        {
            Ok(())
        }
        (written, adopted) => {
            let [written, adopted] = [written, adopted.map(|(map, _)| map)].map(|map| map.map(|map| map.epoch()));
            Err(format!("a map of epoch {adopted:?} after {before}; the last one that was written has {written:?}"))
        }
    }
}

/// A run that was just not closed is closed nowhere, unless a fault came in between.
pub(crate) fn verify_unclosed(world: &World, run: u64, refused: &Error) {
    let is_closed = |status: &RunStatus| status.run == run && status.state == RunState::Closed;
    let closed = world.lives().into_iter().find(|(_, life)| life.store.runs().iter().any(is_closed));
    if let Some((place, _)) = closed.filter(|_| world.calm() > CALM) {
        world.check(Err(format!("run {run}: its close was refused, and node {place} has closed it: {refused}")));
    }
}

fn verify_closed(world: &World, place: Place, life: &Life) -> Result<(), String> {
    let states = life.store.runs();
    for (&run, book) in &world.books.borrow().runs {
        // Nodes without a part in it are told of the close when they are reached.
        let is_told = |closed: Instant| world.has_part(run, place) || closed.elapsed().min(world.calm()) > CALM;
        let is_closed = book.closed.is_some_and(is_told);
        if is_closed && states.iter().any(|status| status.run == run && status.state != RunState::Closed) {
            return Err(format!("run {run}: closed, and open again"));
        }
    }
    Ok(())
}

fn verify_event(world: &World, run: u64, event: u64) -> Result<(), String> {
    let schema = &world.keyspace.schema;
    let Ok(primary) = schema.primary(&[run, event]) else { return Ok(()) };
    let home = world.home(&primary);
    let Some(life) = world.life(home) else { return Ok(()) };
    let read = life.store.get_event(&primary, &Sources::All);
    let read = read.map_err(|error| format!("{run}/{event} cannot be read: {error}"))?;
    let mut fragments = Vec::new();
    for fragment in read.iter().flat_map(|read| &read.fragments) {
        let source = schema.values(fragment.key().as_bytes())[2];
        if fragment.level() != Level::Elsewhere {
            fragments.push((source, Found::Bytes(fragment.to_vec())));
            continue;
        }
        let name = format!("{run}/{event}/{source}");
        let away = Elsewhere::from_bytes(fragment).ok_or_else(|| format!("{name}: no length and checksum"))?;
        let [holder, _] = world.places(&primary, source);
        if let Some(life) = world.life(holder) {
            let held = life.store.get(&fragment.key());
            let held = held.map_err(|error| format!("{name}: node {holder}: {error}"))?;
            match held {
                Some(held) if is_of(&away, &held) => {}
                other => return Err(format!("{name}: node {holder} has {other:?}, and its home counts {away:?}")),
            }
        }
        fragments.push((source, Found::Away(away)));
    }
    let found = read.as_ref().map(|read| (read.state, fragments));
    world.books.borrow().check_event((run, event), found, world.calm())
}

fn verify_account(world: &World, lives: &[(Place, Rc<Life>)], run: u64) -> Result<(), String> {
    let mut sum = Ledger::default();
    for (place, life) in lives {
        // A node that was away for all of the run has none.
        let Ok(ledger) = life.store.ledger(run) else { continue };
        ledger.imbalance().map_or(Ok(()), |what| Err(format!("run {run} on node {place}: {what}")))?;
        sum.add(&ledger);
    }
    let was_calm = world.books.borrow().check_account(run, &sum, world.calm())?;
    if was_calm {
        world.count(4);
    }
    Ok(())
}

/// Looks at what holds once nothing has been wrong for a while, and nobody gives orders: all nodes have the same runs and
/// masks, and nothing of closed runs is held.
pub(crate) async fn verify_quiet(world: &World) {
    if world.calm() < CALM || world.members.len() == 1 {
        return;
    }
    world.count(3);
    timed(What::Checks, || world.check(verify_let_go(world)));
    let mut same = timed(What::Checks, || verify_same(world));
    // What the policy of a run decides is under way for a moment.
    for _ in 0..3 {
        if same.is_err() {
            sleep(Duration::from_secs(1)).await;
            same = timed(What::Checks, || verify_same(world));
        }
    }
    if world.calm() > CALM {
        world.check(same);
    }
}

fn verify_same(world: &World) -> Result<(), String> {
    let Some((run, opened)) = world.run.get().filter(|(_, opened)| opened.elapsed() > CALM) else { return Ok(()) };
    let status = |life: &Life| {
        let status = life.store.runs().into_iter().find(|status| status.run == run);
        let holds: Vec<_> = life.store.holds().iter().map(|hold| hold.id).collect();
        status.map(|status| (status.state, status.masked, holds, life.store.epoch()))
    };
    let states: Vec<_> = world.lives().iter().map(|(place, life)| (*place, status(life))).collect();
    if let Some((place, _)) = states.iter().find(|state| state.1.is_none()) {
        return Err(format!("run {run}, open for {:?}: node {place} does not know it", opened.elapsed()));
    }
    match states.windows(2).find(|two| two[0].1 != two[1].1) {
        Some(two) => Err(format!("run {run}, open for {:?}: nodes differ: {two:?}", opened.elapsed())),
        None => Ok(()),
    }
}

fn verify_let_go(world: &World) -> Result<(), String> {
    for (&run, book) in &world.books.borrow().runs {
        if book.closed.is_none_or(|closed| closed.elapsed() < CALM) {
            continue;
        }
        for (event, source) in book.events.keys().flat_map(|&event| (0..SOURCES).map(move |source| (event, source))) {
            let key = key(world, (run, event, source));
            let has = |place| matches!(world.life(place).map(|life| life.store.get(&key)), Some(Ok(Some(_))));
            let home = world.home(&world.keyspace.schema.primary_of(&key));
            // What is accepted stays until it is released.
            if world.life(home).is_none() || has(home) {
                continue;
            }
            if let Some(member) = world.members.iter().find(|member| has(member.place)) {
                let place = member.place;
                return Err(format!("{run}/{event}/{source}: ended at node {home}, and node {place} has its bytes"));
            }
        }
    }
    Ok(())
}
