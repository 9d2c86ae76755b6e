//! Events that go down and are read, leased and decided there.

use super::{all_down, create, events_of, two_levels};
use crate::common::{TempDir, assert_balanced, contents, key, payload, put};
use forebay_store::core::{Level, LiveState};
use forebay_store::{GetAny, Sources, Store};

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
