//! Calls that meet the close of their store at the worst moment, staged through the lock of their cell.

use super::holder::Size;
use super::put::Claim;
use crate::{Config, PutOptions, Store};
use forebay_core::{Bounds, Keyspace, Kind};
use forebay_testkit::media::SimMedium;
use std::sync::Barrier;
use std::time::Duration;

fn store() -> Store {
    let config = Config { hot_bytes: 16 << 20, maintenance: false, ..Config::default() };
    Store::create_on(SimMedium::new(config.hot_bytes), &Keyspace::events("closing", 4).opening_runs(), config).unwrap()
}

/// A put that has written its record and waits for the lock is in flight: a close must wait for it.
#[test]
fn a_put_lets_go_of_its_record_after_it_has_the_lock() {
    let store = store();
    let engine = store.engine();
    let key = store.schema().key(&[1, 1, 0]).unwrap();
    engine.open_unknown_run(1, b"").unwrap();
    let Ok(Ok(Claim::Claimed(claimed))) = engine.try_claim(&key, Size::of(100), &PutOptions::default()) else {
        panic!("the key is free");
    };
    let cell = engine.shards.cell_of(&key.as_bytes()[..store.schema().primary_bytes()]);
    let mut shard = cell.lock();
    let begins = Barrier::new(2);
    std::thread::scope(|scope| {
        let publishes = scope.spawn(|| {
            begins.wait();
            engine.publish(&claimed, 0)
        });
        begins.wait();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(engine.placement.hot.segment(claimed.place.location.segment).in_flight(), 1, "it still writes");
        shard.closed = true;
        drop(shard);
        assert_eq!(publishes.join().unwrap().unwrap_err().kind(), Kind::Closed);
    });
    assert!(!engine.placement.hot.segment(claimed.place.location.segment).is_used());
}

/// A range that found the store open, and is held up before it takes its guards, takes none.
#[test]
fn a_range_asks_under_the_lock_whether_its_store_is_closed() {
    let store = store();
    let key = store.schema().key(&[1, 1, 0]).unwrap();
    assert_eq!(store.put(&key, &[7; 100], &PutOptions::default()).unwrap(), crate::PutOutcome::Stored);
    let mut range = store.range(&Bounds::all(store.schema()));
    let cell = store.engine().shards.cell_of(&key.as_bytes()[..store.schema().primary_bytes()]);
    let mut shard = cell.lock();
    let begins = &Barrier::new(2);
    std::thread::scope(|scope| {
        let reads = scope.spawn(move || {
            begins.wait();
            range.next().map(|item| item.map(drop))
        });
        begins.wait();
        std::thread::sleep(Duration::from_millis(50));
        shard.closed = true;
        drop(shard);
        assert_eq!(reads.join().unwrap().unwrap().unwrap_err().kind(), Kind::Closed);
    });
}

/// If closing stops waiting for a call, it names the call; that call then answers that the store is closed.
#[test]
fn a_close_that_a_call_outlasts_says_so() {
    let store = store();
    let engine = store.engine();
    let key = store.schema().key(&[1, 1, 0]).unwrap();
    engine.open_unknown_run(1, b"").unwrap();
    let Ok(Ok(Claim::Claimed(claimed))) = engine.try_claim(&key, Size::of(100), &PutOptions::default()) else {
        panic!("the key is free");
    };
    let error = store.close().unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert_eq!(store.kept().calls, 1);
    assert_eq!(engine.publish(&claimed, 0).unwrap_err().kind(), Kind::Closed);
    assert_eq!(store.kept().calls, 0);
}
