//! Why a fragment is, or is not, in the store: every answer, with what is remembered of puts that were not stored.

use crate::common::fixture::{Fixture, RUN};
use crate::common::{key, refused};
use crate::semantics::staged;
use forebay_store::core::{Key, Kind};
use std::time::Duration;

fn answers(store: &Fixture, expected: &[(u64, u64, &str)]) {
    for (event, source, answer) in expected {
        let why = store.why(&store.key(*event, *source)).unwrap();
        assert_eq!(why.answer, *answer, "{event}/{source}: {why:?}");
        assert!(why.because.len() > 10, "{why:?}");
    }
}

#[test]
fn every_place_where_a_fragment_can_be() {
    let mut store = Fixture::new(&staged(3));
    assert_eq!(store.why(&key(77, 1, 0)).unwrap().answer, "run-unknown");
    for event in 1..=4 {
        store.stored(event, 0, b"x");
        store.stored(event, 1, b"x");
    }
    let _ = store.announce(7, &[0, 1]).unwrap();
    store.advance(Duration::from_secs(11));
    store.take(2).reject().unwrap();
    store.take(3).accept(&["main"]).unwrap();
    assert!(store.release(&store.primary(3)).unwrap());
    assert!(store.remove_event(&store.primary(4)).unwrap());
    store.stored(5, 0, b"x");
    store.stored(5, 1, b"x");
    assert!(store.remove(&store.key(5, 1)).unwrap());
    let _ = store.announce(8, &[3]).unwrap();
    store.mask(RUN, &store.source(2), Some(&store.primary(6))).unwrap();
    store.stored(6, 0, b"x");
    let expected = [
        (1, 0, "present"),
        (1, 2, "missing"),
        (1, 9, "not-expected"),
        (2, 0, "rejected"),
        (2, 9, "rejected"),
        (3, 0, "moved"),
        (4, 1, "removed-event"),
        (5, 0, "present"),
        (5, 1, "removed"),
        (5, 2, "missing"),
        (6, 1, "missing"),
        (6, 2, "masked"),
        (7, 0, "never-seen"),
        (8, 3, "missing"),
        (8, 0, "not-expected"),
        (99, 0, "never-announced"),
    ];
    store.in_every_life(|store| answers(store, &expected));
    refused(store.why(&Key::from_packed(&[1, 2, 3])), Kind::Invalid);
    let other = store.named("other");
    let name = store.key(1, 0);
    store.run_stop(RUN).unwrap();
    store.any(10).iter().for_each(|lease| lease.reject().unwrap());
    store.tick();
    store.any(10).iter().for_each(|lease| lease.reject().unwrap());
    store.run_close(RUN).unwrap();
    drop(other);
    store.in_every_life(|store| answers(store, &[(1, 0, "run-closed"), (99, 0, "run-closed")]));
    store.close().unwrap();
    refused(store.why(&name), Kind::Closed);
}

#[test]
fn puts_that_were_not_stored_are_remembered_in_words() {
    let mut store = Fixture::new(&staged(1));
    store.stored(1, 0, b"right");
    refused(store.try_put(1, 0, b"wrong"), Kind::Conflict);
    let lease = store.take(1);
    store.late(1, 5, b"12345");
    lease.reject().unwrap();
    drop(lease);
    store.late(1, 5, b"1234567");
    store.run_stop(RUN).unwrap();
    refused(store.try_put(2, 0, b"x"), Kind::Closed);
    let check = |store: &Fixture| {
        let of = |event, source| store.why(&store.key(event, source)).unwrap().incidents;
        assert!(of(1, 0)[0].contains("conflict"), "{:?}", of(1, 0));
        let late = of(1, 5);
        assert_eq!(late.len(), 2);
        assert!(late[0].contains("late") && late[0].contains("5 bytes") && late[0].contains("leased"), "{late:?}");
        assert!(late[1].contains("7 bytes") && late[1].contains("decided"), "{late:?}");
        assert!(of(2, 0)[0].contains("stopped"));
        assert!(of(3, 0).is_empty());
    };
    check(&store);
    store.reopen();
    check(&store);
    assert!(store.why(&store.key(2, 0)).unwrap().incidents[0].starts_with("before the store was opened"));
    store.run_close(RUN).unwrap();
    refused(store.try_put(2, 0, b"x"), Kind::Closed);
    assert!(store.why(&store.key(2, 0)).unwrap().incidents[1].contains("closed"));
}

#[test]
fn the_memory_of_single_puts_is_bounded() {
    let store = Fixture::new(&staged(1));
    store.stored(1, 0, b"x");
    store.take(1).reject().unwrap();
    for source in 0..3000 {
        store.late(1, source, b"x");
    }
    let remembered = |source| store.why(&store.key(1, source)).unwrap().incidents.len();
    assert_eq!((remembered(2999), remembered(2500), remembered(0)), (1, 1, 0));
    assert_eq!(store.ledger(RUN).unwrap().late.fragments, 3000);
}

#[test]
fn a_source_that_nobody_names_is_not_expected_and_not_masked() {
    let store = Fixture::new(&forebay_store::core::Keyspace::events("count", 2).opening_runs());
    store.stored(1, 0, b"x");
    store.stored(1, 1, b"x");
    answers(&store, &[(1, 0, "present"), (1, 7, "not-expected")]);
}
