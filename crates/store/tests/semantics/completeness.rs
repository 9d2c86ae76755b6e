//! When an event is ready, and that it stays so.

use crate::common::fixture::Fixture;
use crate::common::sources_of;
use crate::semantics::three;
use forebay_store::Sources;
use forebay_store::core::{Completeness, Keyspace, LiveState};
use std::time::Duration;

const OPEN: Option<LiveState> = Some(LiveState::Open);
const READY: Option<LiveState> = Some(LiveState::Ready);

fn by_sources(sources: u64) -> Keyspace {
    let mut keyspace = three();
    keyspace.run.completeness = Completeness::first_sources(&keyspace.schema, sources).unwrap();
    keyspace
}

fn by_seal() -> Keyspace {
    let mut keyspace = three();
    keyspace.run.completeness = Completeness::Seal;
    keyspace
}

#[test]
fn complete_by_count() {
    let store = Fixture::new(&three());
    store.stored(1, 5, b"a");
    store.stored(1, 9, b"b");
    assert_eq!(store.state(1), OPEN);
    let _ = store.try_put(1, 9, b"b").unwrap();
    assert_eq!(store.state(1), OPEN, "a duplicate is not another fragment");
    store.stored(1, 0, b"c");
    assert_eq!(store.state(1), READY);
}

#[test]
fn complete_by_source_list() {
    let store = Fixture::new(&by_sources(2));
    store.stored(1, 0, b"a");
    store.stored(1, 7, b"not expected");
    assert_eq!(store.state(1), OPEN);
    let event = store.get_event(&store.primary(1), &Sources::All).unwrap().unwrap();
    assert_eq!(event.missing, [store.key(1, 1)]);
    store.stored(1, 1, b"b");
    assert_eq!(store.state(1), READY);
    let lease = store.take(1);
    assert!(lease.missing.is_empty());
    assert_eq!(sources_of(&lease.fragments), [0, 1, 7]);
}

#[test]
fn complete_by_seal_only() {
    let store = Fixture::new(&by_seal());
    for source in 0..50 {
        store.stored(1, source, b"x");
    }
    assert_eq!(store.state(1), OPEN);
    assert!(store.seal(&store.primary(1)).unwrap());
    assert_eq!(store.state(1), READY);
    assert_eq!(store.take(1).event_fragments, 50);
}

#[test]
fn a_seal_makes_an_incomplete_event_ready_with_what_it_has() {
    let store = Fixture::new(&by_sources(4));
    store.stored(1, 2, b"x");
    assert!(store.seal(&store.primary(1)).unwrap());
    let lease = store.take(1);
    assert_eq!(sources_of(&lease.fragments), [2]);
    assert_eq!(lease.missing, [0, 1, 3].map(|source| store.key(1, source)));
    assert!(!store.seal(&store.primary(2)).unwrap(), "there is no such event");
}

#[test]
fn time_since_the_first_arrival_ends_the_wait() {
    let store = Fixture::new(&by_sources(3));
    store.stored(1, 0, b"first");
    store.advance(Duration::from_secs(6));
    store.stored(1, 1, b"a later one does not start the time again");
    store.stored(2, 0, b"another event");
    assert_eq!((store.state(1), store.state(2)), (OPEN, OPEN));
    store.advance(Duration::from_secs(5));
    assert_eq!((store.state(1), store.state(2)), (READY, OPEN));
    let lease = store.take(1);
    assert_eq!(lease.missing, [store.key(1, 2)]);
    lease.reject().unwrap();
    store.advance(Duration::from_secs(6));
    assert_eq!(store.state(2), READY);
}

#[test]
fn nothing_times_out_early() {
    let store = Fixture::new(&three());
    store.stored(1, 0, b"first");
    store.advance(Duration::from_millis(9_000));
    assert_eq!(store.state(1), OPEN);
    assert!(store.any(10).is_empty());
}

#[test]
fn ready_is_ready_after_opening_again() {
    let mut store = Fixture::new(&by_sources(2));
    store.stored(1, 0, b"complete");
    store.stored(1, 1, b"complete");
    store.stored(2, 0, b"sealed");
    assert!(store.seal(&store.primary(2)).unwrap());
    store.stored(3, 0, b"timed out");
    store.advance(Duration::from_secs(11));
    store.stored(4, 0, b"open");
    for _ in 0..3 {
        store.reopen();
        let states = [1, 2, 3, 4].map(|event| store.state(event));
        assert_eq!(states, [READY, READY, READY, OPEN]);
    }
    assert_eq!(store.take(3).missing, [store.key(3, 1)]);
}

#[test]
fn ready_stays_when_fragments_are_removed_or_replaced() {
    let mut store = Fixture::new(&three());
    for event in 1..=2 {
        for source in 0..3 {
            store.stored(event, source, b"x");
        }
    }
    assert!(store.remove(&store.key(1, 0)).unwrap());
    assert!(store.remove(&store.key(1, 1)).unwrap());
    for source in 0..3 {
        assert_eq!(store.update(&store.key(2, source), b"newer", None).unwrap(), 1);
    }
    for _ in 0..2 {
        assert_eq!((store.state(1), store.state(2)), (READY, READY));
        store.reopen();
    }
    assert_eq!(sources_of(&store.take(1).fragments), [2]);
}

/// Found by the model: whether a removed fragment counts as arrived is open, but ready stays ready.
#[test]
fn ready_with_a_fragment_that_was_removed_before_stays_ready() {
    let mut store = Fixture::new(&three());
    for event in 1..=2 {
        store.stored(event, 0, b"a");
        store.stored(event, 1, b"b");
        assert!(store.remove(&store.key(event, 0)).unwrap());
        store.stored(event, 2, b"c");
    }
    assert!(store.seal(&store.primary(2)).unwrap());
    let states = [1, 2].map(|event| store.state(event));
    assert_eq!(states[1], READY);
    for _ in 0..2 {
        store.reopen();
        assert_eq!([1, 2].map(|event| store.state(event)), states);
    }
}

#[test]
fn an_open_event_waits_again_after_opening() {
    let mut store = Fixture::new(&three());
    store.stored(1, 0, b"a");
    store.reopen();
    assert_eq!(store.state(1), OPEN);
    store.stored(1, 1, b"b");
    store.stored(1, 2, b"c");
    assert_eq!(store.state(1), READY);
    store.stored(2, 0, b"a");
    store.reopen();
    store.advance(Duration::from_secs(11));
    assert_eq!(store.state(2), READY);
}
