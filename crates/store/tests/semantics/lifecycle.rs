//! Opening, closing, and what guards and reservations see of it.

use crate::common::fixture::Fixture;
use crate::common::{assert_balanced, put, refused};
use crate::semantics::{single, three};
use forebay_store::core::{Bounds, Kind, Token};
use forebay_store::{GetAny, PutOptions, Sources, Store};

#[test]
fn every_call_after_close_answers_closed() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    let other = store.named("other");
    store.close().unwrap();
    let (key, primary) = (store.key(2, 0), store.primary(1));
    let all = Bounds::all(store.schema());
    for handle in [&*store, &other] {
        refused(handle.put(&key, b"y", &PutOptions::default()), Kind::Closed);
        refused(handle.reserve(&key, 1, &PutOptions::default()), Kind::Closed);
        refused(handle.get(&key), Kind::Closed);
        refused(handle.get_event(&primary, &Sources::All), Kind::Closed);
        refused(handle.get_any(&GetAny::default()), Kind::Closed);
        refused(handle.lease(&primary, None), Kind::Closed);
        refused(handle.reject(&primary, &Token { epoch: 0, boot: 1, counter: 1 }), Kind::Closed);
        refused(handle.update(&key, b"z", None), Kind::Closed);
        refused(handle.remove(&key), Kind::Closed);
        refused(handle.remove_event(&primary), Kind::Closed);
        refused(handle.remove_range(&all), Kind::Closed);
        refused(handle.seal(&primary), Kind::Closed);
        refused(handle.events(&all), Kind::Closed);
        refused(handle.run_stop(1), Kind::Closed);
        for item in handle.range(&all) {
            refused(item, Kind::Closed);
        }
    }
}

#[test]
fn commit_after_close_answers_closed_and_stores_nothing() {
    let mut store = Fixture::new(&single());
    let mut reservation = store.reserve(&store.key(1, 0), 4, &PutOptions::default()).unwrap();
    store.close().unwrap();
    reservation.copy_from_slice(b"data");
    refused(reservation.commit(), Kind::Closed);
    store.reopen();
    assert_eq!(store.read(1, 0), None);
    store.stored(1, 0, b"again");
}

#[test]
fn a_reservation_from_before_never_harms_the_next_opening() {
    let store = Fixture::new(&single());
    let mut reservation = store.reserve(&store.key(1, 0), 4000, &PutOptions::default()).unwrap();
    store.close().unwrap();
    let next = match Store::open(&store.path(), store.config.clone()) {
        // The store waits for its reservations.
        Err(error) => return assert_eq!(error.kind(), Kind::Unavailable, "{error}"),
        Ok(next) => next,
    };
    let value = |event: u64| [event as u8; 4000];
    let count = (0..).find(|event| put(&next, &store.key(*event, 1), &value(*event)).is_err()).unwrap();
    reservation.fill(0xEE);
    refused(reservation.commit(), Kind::Closed);
    for event in 0..count {
        let fragment = next.get(&store.key(event, 1)).unwrap().unwrap();
        fragment.verify().unwrap();
        assert_eq!(*fragment, value(event));
    }
    next.close().unwrap();
    drop(next);
    assert_eq!(forebay_store::check(&store.path(), true).unwrap().problems, Vec::<String>::new());
}

#[test]
fn guards_stay_valid_after_the_last_handle_is_gone() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, &[7; 20_000]);
    let fragment = store.get(&store.key(1, 0)).unwrap().unwrap();
    let event = store.get_event(&store.primary(1), &Sources::All).unwrap().unwrap();
    store.close().unwrap();
    store.shut();
    assert!(fragment.iter().all(|byte| *byte == 7));
    fragment.verify().unwrap();
    assert_eq!(event.fragments[0].len(), 20_000);
    // While guards are out the directory may stay locked, so that nobody writes under them.
    match Store::open(&store.path(), store.config.clone()) {
        Ok(next) => assert_eq!(*fragment, *next.get(&store.key(1, 0)).unwrap().unwrap()),
        error => drop(refused(error, Kind::Unavailable)),
    }
    drop((fragment, event));
    store.reopen();
    assert_eq!(store.read(1, 0).unwrap(), [7; 20_000]);
}

#[test]
fn dropping_the_last_handle_closes() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    let clone = store.named("clone");
    store.shut();
    refused(Store::open(&store.path(), store.config.clone()), Kind::Unavailable);
    drop(clone);
    store.reopen();
    assert_eq!(store.read(1, 0).unwrap(), b"x");
}

#[test]
fn each_opening_raises_the_boot_generation() {
    let mut store = Fixture::new(&single());
    let mut last = store.stats().boot;
    for _ in 0..3 {
        store.reopen();
        let boot = store.stats().boot;
        assert!(boot > last, "{boot} after {last}");
        last = boot;
    }
    store.stored(1, 0, b"x");
    assert_eq!(store.take(1).token.boot, last);
}

#[test]
fn a_store_keeps_its_keyspace() {
    let mut store = Fixture::new(&three());
    store.reopen();
    assert_eq!(*store.keyspace(), three());
    assert_eq!(*store.schema(), three().schema);
}

#[test]
fn check_reads_a_closed_store_and_finds_nothing_wrong() {
    let mut store = Fixture::new(&single());
    for event in 1..=200 {
        store.stored(event, 0, &[event as u8; 3000]);
    }
    for lease in store.any(100) {
        lease.reject().unwrap();
    }
    store.close().unwrap();
    store.shut();
    for deep in [false, true] {
        let report = forebay_store::check(&store.path(), deep).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        assert_eq!(report.live, 100);
        assert!(report.decisions >= 100 && report.entries >= 100 && report.segments > 0);
    }
    store.reopen();
    assert_balanced(&store);
}

#[test]
fn a_full_history_survives_many_openings() {
    let mut store = Fixture::new(&single());
    for round in 0..10_u64 {
        for event in 0..20 {
            store.stored(round * 100 + event, 0, &[round as u8; 500]);
        }
        for lease in store.any(10) {
            let event = store.number(&lease.primary);
            if event.is_multiple_of(2) { lease.reject().unwrap() } else { lease.accept(&["main"]).unwrap() }
        }
        store.reopen();
        assert_balanced(&store);
    }
    let ledger = store.ledger(1).unwrap();
    assert_eq!((ledger.stored.fragments, ledger.stored.bytes), (200, 100_000));
    assert_eq!(ledger.rejected.fragments + ledger.live.accepted.fragments, 100);
}
