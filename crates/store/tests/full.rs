//! Full stores: whatever fills them, decisions go through, space comes back, and inhibit says whose turn it is.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use common::fixture::{Fixture, RUN};
use common::{TempDir, eventually, put, refused, sealed_events, small_config};
use forebay_store::core::{Bounds, Completeness, Key, Keyspace, Kind, LiveState};
use forebay_store::{Config, Fragment, Inhibit, PutOptions, PutOutcome, Store};
use std::time::{Duration, Instant};

const VALUE: [u8; 2048] = [0x5A; 2048];

fn singles() -> Keyspace {
    let mut keyspace = Keyspace::events("full", 1);
    keyspace.run.completeness = Completeness::Count(1);
    keyspace.run.complete_within = Duration::from_secs(24 * 3600);
    keyspace.deliveries_max = 1;
    keyspace
}

fn marks(config: &mut Config) {
    (config.hot_high, config.hot_low) = (0.60, 0.30);
}

/// Puts events of one fragment from number `first` on until the store is full; returns how many were stored.
fn fill(store: &Fixture, first: u64) -> u64 {
    for event in first.. {
        match store.try_put(event, 0, &VALUE) {
            Ok(outcome) => assert_eq!(outcome, PutOutcome::Stored),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Full, "{error}");
                // What can be tidied up is: full is only full when that does not help either.
                store.tick();
                if store.try_put(event, 0, &VALUE).is_err() {
                    return event - first;
                }
            }
        }
        assert!(event - first < 4096, "more than the region holds");
    }
    unreachable!("the loop returns")
}

fn inhibit(store: &Fixture) -> Inhibit {
    store.tick();
    let stats = store.stats();
    let inhibit = stats.inhibit.clone().unwrap_or_else(|| panic!("no inhibit at fill {}", stats.fill));
    assert!(!inhibit.cause.is_empty() && !inhibit.owner.is_empty() && !inhibit.ends.is_empty(), "{inhibit:?}");
    assert!(stats.fill >= store.config.hot_high, "{stats:?}");
    inhibit
}

/// The store has space again, says so, and takes as much as before, but for `slack` fragments.
fn space_is_back(store: &Fixture, next: u64, before: u64) {
    eventually(store, "fill under the low mark", || store.stats().fill < store.config.hot_low);
    eventually(store, "inhibit ends", || store.stats().inhibit.is_none());
    let again = fill(store, next);
    // The decisions stay in memory and in the log: a few segments of the region's 64.
    assert!(again * 10 >= before * 9, "{again} fragments fit, {before} did before");
    common::assert_balanced(store);
}

fn reject_all(store: &Fixture) {
    loop {
        let leases = store.any(100);
        if leases.is_empty() {
            return;
        }
        leases.iter().for_each(|lease| lease.reject().unwrap());
    }
}

#[test]
fn the_answer_to_a_put_names_the_fill() {
    let store = Fixture::with(&singles(), marks);
    let count = fill(&store, 0);
    assert!(count * 2048 > (4 << 20) * 3 / 5, "full with {count} fragments of 2 KiB in 4 MiB");
    let message = refused(store.try_put(1 << 20, 0, &VALUE), Kind::Full);
    assert!(message.contains("fill") || message.contains('%'), "{message}");
    assert_eq!(store.read(1 << 20, 0), None);
    assert!(store.ledger(RUN).unwrap().refused.fragments > 0);
    // What is there stays readable.
    for event in 0..count {
        assert_eq!(store.read(event, 0).unwrap(), VALUE);
    }
}

#[test]
fn filled_with_open_events() {
    let store = Fixture::with(&sealed_events(), marks);
    let count = fill(&store, 0);
    let inhibit = inhibit(&store);
    assert!(inhibit.cause.contains("open"), "{inhibit:?}");
    for event in 0..count {
        assert!(store.seal(&store.primary(event)).unwrap());
    }
    reject_all(&store);
    space_is_back(&store, count + 1, count);
}

#[test]
fn filled_with_ready_events() {
    let store = Fixture::with(&singles(), marks);
    let count = fill(&store, 0);
    let inhibit = inhibit(&store);
    assert!(inhibit.cause.contains("ready"), "{inhibit:?}");
    assert_eq!(inhibit.owner, "selection");
    reject_all(&store);
    space_is_back(&store, count + 1, count);
}

#[test]
fn filled_with_leased_events() {
    let store = Fixture::with(&singles(), marks);
    let count = fill(&store, 0);
    let leases = store.any(count as usize);
    assert_eq!(leases.len() as u64, count);
    let inhibit = inhibit(&store);
    assert!(inhibit.cause.contains("leased"), "{inhibit:?}");
    assert_eq!(inhibit.owner, "selection");
    leases.iter().for_each(|lease| lease.reject().unwrap());
    drop(leases);
    space_is_back(&store, count + 1, count);
}

#[test]
fn filled_with_accepted_events() {
    let store = Fixture::with(&singles(), marks);
    let count = fill(&store, 0);
    for lease in store.any(count as usize) {
        lease.accept(&["main"]).unwrap();
    }
    let inhibit = inhibit(&store);
    assert!(inhibit.cause.contains("accepted"), "{inhibit:?}");
    assert_eq!(inhibit.owner, "archive");
    for event in 0..count {
        assert!(store.release(&store.primary(event)).unwrap());
    }
    space_is_back(&store, count + 1, count);
}

#[test]
fn filled_with_debug_events() {
    let store = Fixture::with(&singles(), marks);
    let count = fill(&store, 0);
    drop(store.any(count as usize));
    store.advance(store.config.lease * 2);
    assert_eq!(store.live(LiveState::Debug).events, count);
    let inhibit = inhibit(&store);
    assert!(inhibit.cause.contains("debug"), "{inhibit:?}");
    assert_eq!(inhibit.owner, "debug stream");
    for event in 0..count {
        assert!(store.release(&store.primary(event)).unwrap());
    }
    space_is_back(&store, count + 1, count);
}

#[test]
fn filled_with_dead_bytes_under_guards() {
    let store = Fixture::with(&singles(), |config| {
        marks(config);
        config.pinned_share = 1.0;
    });
    let count = fill(&store, 0);
    let display = store.named("event-display");
    let keys: Vec<Key> = (0..count).map(|event| store.key(event, 0)).collect();
    let guards: Vec<Fragment> = display.get_many(&keys).unwrap().into_iter().flatten().collect();
    assert_eq!(guards.len() as u64, count);
    reject_all(&store);
    store.tick();
    let stats = store.stats();
    assert!(stats.segments_pinned > 0, "{stats:?}");
    let holder = stats.holders.iter().find(|holder| holder.holder == "event-display").expect("the holder is named");
    assert_eq!((holder.guards, holder.bytes), (count, count * 2048));
    let inhibit = inhibit(&store);
    assert!(inhibit.owner.contains("event-display"), "{inhibit:?}");
    for guard in &guards {
        assert_eq!(**guard, VALUE, "memory under a guard was used again");
    }
    drop(guards);
    space_is_back(&store, count + 1, count);
    assert!(store.stats().holders.iter().all(|holder| holder.guards == 0));
}

#[test]
fn past_their_quota_guards_are_copies() {
    let store = Fixture::with(&singles(), |config| config.pinned_share = 1.0 / 64.0);
    let count = fill(&store, 0);
    let mut guards = Vec::new();
    // A guard in every segment, whose events then die.
    for event in (0..count / 2).step_by(8) {
        guards.push(store.get(&store.key(event, 0)).unwrap().unwrap());
    }
    let bounds = Bounds::parse(store.schema(), &format!("{RUN}/0-{}", count / 2)).unwrap();
    store.remove_range(&bounds).unwrap();
    store.tick();
    let later = store.get(&store.key(count - 1, 0)).unwrap().unwrap();
    assert!(later.is_copied());
    assert_eq!(*later, VALUE);
    later.verify().unwrap();
    drop(guards);
    eventually(&store, "guards are in place again", || {
        !store.get(&store.key(count - 1, 0)).unwrap().unwrap().is_copied()
    });
}

#[test]
fn filled_by_a_reservation_that_nobody_commits() {
    let store = Fixture::with(&singles(), marks);
    let reservation = store.reserve(&store.key(1 << 30, 0), 2048, &PutOptions::default()).unwrap();
    for round in 0..3 {
        let first = round * 10_000;
        let count = fill(&store, first);
        assert!(count > 1000, "round {round}: {count}");
        let bounds = Bounds::parse(store.schema(), &format!("{RUN}/{first}-{}", first + count)).unwrap();
        assert_eq!(store.remove_range(&bounds).unwrap(), count);
        eventually(&store, "fill under the low mark", || store.stats().fill < store.config.hot_low);
    }
    reservation.abort();
}

#[test]
fn fragments_of_existing_events_have_space_when_new_events_have_none() {
    let store = Fixture::with(&sealed_events(), marks);
    let count = fill(&store, 0);
    for event in 0..4 {
        store.stored(event, 1, &VALUE);
    }
    refused(store.try_put(count + 1, 0, &VALUE), Kind::Full);
    // That reserve ends as well; decisions still have theirs.
    let mut extra = 0;
    while extra < 4096 && store.try_put(extra % count, 2 + extra / count, &VALUE).is_ok() {
        extra += 1;
    }
    assert!(extra < 4096);
    for event in 0..count {
        assert!(store.seal(&store.primary(event)).unwrap());
    }
    reject_all(&store);
    space_is_back(&store, count + 10, count);
}

#[test]
fn a_full_store_opens_and_can_be_emptied() {
    let mut store = Fixture::with(&singles(), marks);
    let count = fill(&store, 0);
    store.reopen();
    assert!(store.stats().fill >= 0.6);
    refused(store.try_put(count + 1, 0, &VALUE), Kind::Full);
    for event in 0..count {
        assert_eq!(store.read(event, 0).unwrap(), VALUE);
    }
    reject_all(&store);
    store.reopen();
    space_is_back(&store, count + 10, count);
}

#[test]
fn single_removals_go_through_in_a_full_store() {
    let store = Fixture::with(&sealed_events(), marks);
    let count = fill(&store, 0);
    for event in 0..count {
        assert!(store.remove(&store.key(event, 0)).unwrap(), "{event}");
    }
    space_is_back(&store, count + 1, count);
}

#[test]
fn filling_and_emptying_for_ever_gives_the_same_capacity() {
    let mut store = Fixture::with(&singles(), marks);
    let first = fill(&store, 0);
    let mut next = 0;
    for round in 0..40 {
        let bounds = Bounds::parse(store.schema(), &format!("{RUN}/{next}-{}", next + 9999)).unwrap();
        match round % 3 {
            0 => assert!(store.remove_range(&bounds).unwrap() >= first * 9 / 10),
            1 => reject_all(&store),
            _ => {
                for event in store.events(&bounds).unwrap() {
                    assert!(store.remove_event(&event.primary).unwrap());
                }
            }
        }
        eventually(&store, "everything is free", || store.stats().fill < store.config.hot_low);
        if round % 10 == 9 {
            store.reopen();
        }
        next += 10_000;
        let count = fill(&store, next);
        assert!(count * 100 >= first * 93, "round {round}: {count} fragments fit, {first} did at first");
    }
    assert!(store.stats().decided_events > 0);
}

#[test]
fn stragglers_are_evacuated_so_that_holes_become_space() {
    let store = Fixture::with(&singles(), marks);
    let count = fill(&store, 0);
    // One event in sixteen stays: more than one per segment.
    for event in (0..count).filter(|event| event % 16 != 0) {
        assert!(store.remove_event(&store.primary(event)).unwrap());
    }
    eventually(&store, "segments are emptied", || store.stats().fill < store.config.hot_low);
    assert!(store.stats().evacuated > 0);
    let more = fill(&store, count + 1);
    assert!(more * 4 >= count * 3, "{more} of {count} fit beside a sixteenth");
    for event in (0..count).step_by(16) {
        assert_eq!(store.read(event, 0).unwrap(), VALUE);
    }
}

fn on_the_machines_clock(maintenance: bool) -> (TempDir, Store) {
    let dir = TempDir::new();
    let config = Config { maintenance, hot_bytes: 1 << 20, segment_bytes: Some(32 << 10), ..small_config() };
    let store = Store::create(&dir.store(), &singles(), config).unwrap();
    (dir, store)
}

fn fill_now(store: &Store) -> u64 {
    let now = PutOptions { deadline: Some(Duration::ZERO), ..PutOptions::default() };
    (0..).find(|event| store.put(&common::key(RUN, *event, 0), &VALUE, &now).is_err()).unwrap()
}

#[test]
fn a_put_waits_for_its_deadline_and_no_longer() {
    let (_dir, store) = on_the_machines_clock(false);
    let count = fill_now(&store);
    for wait in [0, 60, 200].map(Duration::from_millis) {
        let start = Instant::now();
        let options = PutOptions { deadline: Some(wait), ..PutOptions::default() };
        refused(store.put(&common::key(RUN, count + 1, 0), &VALUE, &options), Kind::Full);
        let waited = start.elapsed();
        assert!(waited >= wait && waited < wait + Duration::from_secs(20), "{waited:?} for {wait:?}");
    }
}

#[test]
fn a_put_that_waits_gets_the_space_that_comes() {
    let (_dir, store) = on_the_machines_clock(true);
    let count = fill_now(&store);
    let options = PutOptions { deadline: Some(Duration::from_secs(60)), ..PutOptions::default() };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.put(&common::key(RUN, count + 1, 0), &VALUE, &options).unwrap());
        for event in 0..count {
            let primary = store.schema().primary(&[RUN, event]).unwrap();
            store.lease(&primary, None).unwrap().expect("a ready event").reject().unwrap();
        }
        assert_eq!(waiting.join().unwrap(), PutOutcome::Stored);
    });
    assert_eq!(put(&store, &common::key(RUN, count + 1, 0), &VALUE).unwrap(), PutOutcome::Duplicate);
    common::assert_balanced(&store);
}
