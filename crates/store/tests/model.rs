//! Long random sequences of every operation, each answer checked against a plain map: from one thread with time-outs,
//! reopening and reading in between, and from several threads on lanes of events of their own.
//!
//! `FOREBAY_MODEL_OPERATIONS` makes the sequences longer, `FOREBAY_MODEL_SEED` adds to every seed.

use crate::common::driver::{Driver, execute, keyspace};
use crate::common::fixture::{Fixture, RUN};
use crate::common::model::{EventModel, Model};
use crate::common::ops::Answer;
use crate::common::settle::{check_ledger, lane_bounds};
use crate::common::{TempDir, genuine, key, small_config};
use forebay_store::core::{Bounds, Kind};
use forebay_store::{Config, Fragment, Store};
use rand::RngExt;
use std::time::Duration;

const COUNT: usize = 3;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// What a (source, fragment) of the model says about a fragment that was read.
fn same(model: &Model, event: u64, source: u64, fragment: &Fragment) {
    let held = &model.events[&event].fragments[&source];
    assert_eq!(fragment.key(), key(RUN, event, source));
    assert_eq!(fragment.version(), held.version, "{event}/{source}");
    assert_eq!(genuine(fragment, model.bytes_max), held_tag(held.tag), "{event}/{source}");
    assert_eq!(fragment.len() as u64, held.bytes);
}

/// Payloads without bytes carry no tag.
fn held_tag(tag: u64) -> u64 {
    if tag % 16 == crate::common::EMPTY { crate::common::EMPTY } else { tag }
}

/// A range with random bounds gives what filtering the model gives, in order.
fn read_range(store: &Store, model: &Model, driver: &mut Driver) {
    let last = model.events.keys().next_back().copied().unwrap_or(model.base() + 1);
    let mut span = |low: u64, high: u64| {
        let (a, b) = (driver.rng().random_range(low..=high), driver.rng().random_range(low..=high));
        (a.min(b), a.max(b))
    };
    let (events, sources) = (span(model.base(), last), span(0, 12));
    let bounds = Bounds::new(store.schema(), &[(RUN, RUN), events, sources]).unwrap();
    let found: Vec<Fragment> = store.range(&bounds).collect::<Result<_, _>>().unwrap();
    let inside = |(event, held): (&u64, &EventModel)| {
        let keys = held.fragments.range(sources.0..=sources.1).map(|(source, _)| (*event, *source));
        keys.collect::<Vec<_>>()
    };
    let live = model.events.range(events.0..=events.1).filter(|(_, held)| !held.state.is_gone());
    let expected: Vec<(u64, u64)> = live.flat_map(inside).collect();
    let keys: Vec<_> = found.iter().map(Fragment::key).collect();
    assert_eq!(keys, expected.iter().map(|&(event, source)| key(RUN, event, source)).collect::<Vec<_>>());
    for ((event, source), fragment) in expected.iter().zip(&found) {
        same(model, *event, *source, fragment);
    }
}

/// Single keys and lists of keys: live, removed and never seen ones.
fn read_keys(store: &Store, model: &Model, driver: &mut Driver) {
    let mut asked = Vec::new();
    for _ in 0..20 {
        let event = driver.pick(model, |_| true).unwrap_or(model.base() + 1);
        asked.push((event, driver.rng().random_range(0..6)));
    }
    let keys: Vec<_> = asked.iter().map(|&(event, source)| key(RUN, event, source)).collect();
    let found = store.get_many(&keys).unwrap();
    assert_eq!(found.len(), keys.len());
    for ((&(event, source), key), fragment) in asked.iter().zip(&keys).zip(&found) {
        let held = model.events.get(&event).filter(|held| !held.state.is_gone());
        let expected = held.is_some_and(|held| held.fragments.contains_key(&source));
        assert_eq!(fragment.is_some(), expected, "get_many {event}/{source}: {held:?}");
        assert_eq!(store.get(key).unwrap().is_some(), expected, "get {event}/{source}: {held:?}");
        if let Some(fragment) = fragment {
            same(model, event, source, fragment);
        }
    }
}

/// One sequence from one thread; `bytes_max` against the region's 4 MiB decides how often it is full.
fn sequence(seed: u64, operations: u64, bytes_max: usize, live_target: usize, change: fn(&mut Config)) {
    let seed = seed + number("FOREBAY_MODEL_SEED", 0);
    let mut fixture = Fixture::with(&keyspace(COUNT), change);
    fixture.run_open(RUN, &fixture.keyspace().run.clone()).unwrap();
    let mut model = Model::new(0, COUNT, bytes_max);
    model.may_mask = true;
    let mut driver = Driver::new(seed, 1, live_target);
    let mut pressure = false;
    let fail = |turn: u64, what: &str, wrong: String| panic!("seed {seed}, operation {turn}, {what}: {wrong}");
    for turn in 0..number("FOREBAY_MODEL_OPERATIONS", operations) {
        let op = driver.next_op(&model, pressure);
        let answer = execute(&fixture, &model, &op);
        model.apply(&op, &answer).unwrap_or_else(|wrong| fail(turn, "answer", wrong));
        pressure = answer == Answer::Failed(Kind::Full);
        if turn % 16 == 0 || pressure {
            fixture.tick();
        }
        match driver.rng().random_range(0..1200) {
            0..24 => read_range(&fixture, &model, &mut driver),
            24..48 => read_keys(&fixture, &model, &mut driver),
            48..50 => {
                fixture.advance(fixture.config.lease * 2);
                model.void_leases();
                model.audit(&fixture).unwrap_or_else(|wrong| fail(turn, "leases timed out", wrong));
            }
            50..54 => {
                if driver.rng().random_bool(0.5) {
                    fixture.crash();
                } else {
                    fixture.reopen();
                }
                model.void_leases();
                model.audit(&fixture).unwrap_or_else(|wrong| fail(turn, "reopened", wrong));
                model.probe(&fixture, 16).unwrap_or_else(|wrong| fail(turn, "reopened", wrong));
                check_ledger(&fixture, &[&model]).unwrap_or_else(|wrong| fail(turn, "reopened", wrong));
            }
            _ => {}
        }
        if turn % 250 == 0 {
            model.audit(&fixture).unwrap_or_else(|wrong| fail(turn, "audit", wrong));
            check_ledger(&fixture, &[&model]).unwrap_or_else(|wrong| fail(turn, "ledger", wrong));
        }
    }
    model.probe(&fixture, 32).unwrap_or_else(|wrong| fail(u64::MAX, "at the end", wrong));
    model.audit(&fixture).unwrap_or_else(|wrong| fail(u64::MAX, "at the end", wrong));
    check_ledger(&fixture, &[&model]).unwrap_or_else(|wrong| fail(u64::MAX, "at the end", wrong));
    assert!(model.gone.len() > 20 && model.judged.len() > 20, "the sequence decided next to nothing");
}

#[test]
fn small_fragments_with_room_to_spare() {
    for seed in 0..4 {
        sequence(seed, 5000, 300, 120, |_| {});
    }
}

#[test]
fn large_fragments_that_recycle_segments() {
    for seed in 10..13 {
        sequence(seed, 4000, 12_000, 60, |_| {});
    }
}

#[test]
fn fragments_that_fill_the_region() {
    for seed in 20..23 {
        sequence(seed, 3000, 40_000, 100, |_| {});
    }
}

#[test]
fn one_write_head_and_flushed_lines() {
    let change = |config: &mut Config| {
        config.write_heads = 1;
        config.flush = forebay_store::FlushPolicy::Always;
    };
    for seed in 30..32 {
        sequence(seed, 3000, 4000, 80, change);
    }
}

#[test]
fn payloads_verified_at_every_opening() {
    let change = |config: &mut Config| config.verify = true;
    for seed in 40..42 {
        sequence(seed, 3000, 2000, 80, change);
    }
}

/// Each thread has a lane of events in the same run; they share segments, the log, the ledger and time.
fn lanes(seed: u64, threads: u64, operations: u64, bytes_max: usize) {
    let dir = TempDir::new();
    let config = Config {
        maintenance: true,
        put_deadline: Duration::from_millis(20),
        lease: Duration::from_secs(3600),
        max_hold: Duration::from_secs(7200),
        ..small_config()
    };
    let store = Store::create(&dir.store(), &keyspace(COUNT), config.clone()).unwrap();
    store.run_open(RUN, &store.keyspace().run.clone()).unwrap();
    let one_lane = |lane: u64| {
        let store = store.named(&format!("lane-{lane}"));
        let mut model = Model::new(lane, COUNT, bytes_max);
        model.may_mask = lane == threads - 1;
        let mut driver = Driver::new(seed * 100 + lane, model.base() + 1, 40);
        let mut pressure = false;
        for turn in 0..operations {
            let op = driver.next_op(&model, pressure);
            let answer = execute(&store, &model, &op);
            let right = model.apply(&op, &answer);
            right.unwrap_or_else(|wrong| panic!("seed {seed}, lane {lane}, operation {turn}: {wrong}"));
            pressure = answer == Answer::Failed(Kind::Full);
            match driver.rng().random_range(0..400) {
                0..8 => read_range(&store, &model, &mut driver),
                8..16 => read_keys(&store, &model, &mut driver),
                16 => model.audit(&store).unwrap_or_else(|wrong| panic!("seed {seed}, lane {lane}: {wrong}")),
                _ => {}
            }
        }
        model
    };
    let mut models: Vec<Model> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|lane| scope.spawn(move || one_lane(lane))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let check = |store: &Store, models: &[Model]| {
        check_ledger(store, &models.iter().collect::<Vec<_>>()).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        for model in models {
            model.audit(store).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        }
    };
    check(&store, &models);
    store.close().unwrap();
    drop(store);
    let store = Store::open(&dir.store(), config).unwrap();
    models.iter_mut().for_each(Model::void_leases);
    check(&store, &models);
    for model in &models {
        model.probe(&store, 32).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        assert_eq!(store.range(&lane_bounds(&store, model.lane)).count(), {
            let live = model.events.values().filter(|event| !event.state.is_gone());
            live.map(|event| event.fragments.len()).sum::<usize>()
        });
    }
    store.close().unwrap();
}

#[test]
fn two_threads_on_events_of_their_own() {
    for seed in 50..53 {
        lanes(seed, 2, 3000, 2000);
    }
}

#[test]
fn four_threads_that_recycle_segments() {
    for seed in 60..62 {
        lanes(seed, 4, 2000, 8000);
    }
}
