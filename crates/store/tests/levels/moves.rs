//! Events that go down and are read, leased and decided there.

use super::{all_down, create, events_of, two_levels};
use crate::common::{TempDir, assert_balanced, contents, key, payload, put};
use forebay_store::core::{Level, LiveState};
use forebay_store::{Config, GetAny, Sources, Store, WarmDevice};
use std::time::{Duration, Instant};

const MOST: usize = 3000;

fn fill(store: &Store, events: u64) {
    for event in 0..events {
        for source in 0..4 {
            let key = key(1, event, source);
            let _stored = put(store, &key, &payload(&key, event * 16 + source, MOST)).unwrap();
        }
    }
}

fn check(store: &Store, event: u64) {
    let primary = store.schema().primary(&[1, event]).unwrap();
    let found = store.get_event(&primary, &Sources::All).unwrap().unwrap();
    let expected: Vec<(u64, Vec<u8>)> =
        (0..4).map(|source| (source, payload(&key(1, event, source), event * 16 + source, MOST))).collect();
    assert_eq!(contents(&found), expected, "event {event}");
}

#[test]
fn accepted_events_go_down_and_read_the_same() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(4), &two_levels(dir.path(), 1));
    fill(&store, 20);
    for lease in store.get_any(&GetAny { n: 20, ..GetAny::default() }).unwrap() {
        lease.accept(&["physics"]).unwrap();
    }
    store.tick();
    for event in 0..20 {
        check(&store, event);
        let one = store.get(&key(1, event, 1)).unwrap().unwrap();
        assert_eq!(one.level(), Level::Warm, "event {event}");
    }
    assert_balanced(&store);
    store.close().unwrap();
    drop(store);
    let store = Store::open(&dir.store(), two_levels(dir.path(), 1)).unwrap();
    for event in 0..20 {
        check(&store, event);
        let primary = store.schema().primary(&[1, event]).unwrap();
        assert_eq!(store.get_event(&primary, &Sources::None).unwrap().unwrap().state, LiveState::Accepted);
    }
    assert_balanced(&store);
    for event in 0..20 {
        let primary = store.schema().primary(&[1, event]).unwrap();
        assert!(store.release(&primary).unwrap());
    }
    store.tick();
    assert_balanced(&store);
}

#[test]
fn undecided_events_are_leased_and_decided_where_they_are() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(4), &all_down(dir.path()));
    fill(&store, 30);
    store.tick();
    for event in 0..30 {
        check(&store, event);
        assert_eq!(store.get(&key(1, event, 0)).unwrap().unwrap().level(), Level::Warm, "event {event}");
    }
    let leases = store.get_any(&GetAny { n: 30, ..GetAny::default() }).unwrap();
    assert_eq!(leases.len(), 30);
    for (number, lease) in leases.iter().enumerate() {
        assert_eq!(lease.fragments.len(), 4);
        match number % 3 {
            0 => lease.accept(&["physics"]).unwrap(),
            1 => lease.reject().unwrap(),
            _ => lease.requeue().unwrap(),
        }
    }
    assert_balanced(&store);
    // As a crash leaves it: nothing is closed.
    std::mem::forget(store.clone());
    drop(leases);
}

/// What waits is more than there is room for: what fits goes. As one batch it would be tried again for ever.
#[test]
fn of_a_batch_that_does_not_fit_goes_what_does() {
    let dir = TempDir::new();
    let warm = vec![WarmDevice::directory(dir.path().join("warm-0"), 2 << 20)];
    let store = create(&dir, &events_of(4), &Config { warm, ..two_levels(dir.path(), 1) });
    fill(&store, 200);
    for lease in store.get_any(&GetAny { n: 200, ..GetAny::default() }).unwrap() {
        lease.accept(&["physics"]).unwrap();
    }
    store.tick();
    let down = |event: &u64| store.get(&key(1, *event, 0)).unwrap().unwrap().level() == Level::Warm;
    let gone = (0..200).filter(down).count();
    assert!((20..200).contains(&gone), "{gone}");
    // Room that comes is used by the rest, in as many turns as it takes.
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.ledger(1).unwrap().released.events < 200 {
        for event in (0..200).filter(|event| store.get(&key(1, *event, 0)).unwrap().is_some()).filter(down) {
            assert!(store.release(&store.schema().primary(&[1, event]).unwrap()).unwrap());
        }
        store.tick();
        assert!(Instant::now() < deadline, "{:?}", store.ledger(1).unwrap());
    }
    assert_balanced(&store);
}
