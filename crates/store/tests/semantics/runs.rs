//! The life of a run and its account.

use crate::common::fixture::{Fixture, RUN};
use crate::common::{key, put, refused, refused_as};
use crate::{single, three};
use forebay_store::core::{Completeness, Kind, LiveState, RunConfig, Tally};
use forebay_store::{PutOptions, RunState};
use std::time::Duration;

fn state(store: &Fixture, run: u64) -> Option<RunState> {
    store.runs().into_iter().find(|status| status.run == run).map(|status| status.state)
}

#[test]
fn the_first_put_opens_a_run_where_that_is_the_policy() {
    let mut store = Fixture::new(&three());
    assert!(store.runs().is_empty());
    store.stored(1, 0, b"x");
    assert_eq!(state(&store, RUN), Some(RunState::Open));
    store.reopen();
    assert_eq!(state(&store, RUN), Some(RunState::Open));
}

#[test]
fn an_unknown_run_is_refused_where_runs_are_opened_by_hand() {
    let mut keyspace = three();
    keyspace.auto_open_runs = false;
    let store = Fixture::new(&keyspace);
    refused_as(store.try_put(1, 0, b"x"), &[Kind::Invalid, Kind::Closed]);
    store.run_open(RUN, &keyspace.run).unwrap();
    store.stored(1, 0, b"x");
}

#[test]
fn a_run_has_its_own_completeness() {
    let mut store = Fixture::new(&three());
    let run = RunConfig::new(Completeness::Count(2), Duration::from_secs(100));
    store.run_open(RUN, &run).unwrap();
    store.stored(1, 0, b"x");
    store.reopen();
    store.advance(Duration::from_secs(50));
    assert_eq!(store.state(1), Some(LiveState::Open));
    store.stored(1, 1, b"x");
    assert_eq!(store.state(1), Some(LiveState::Ready));
}

#[test]
fn a_stopped_run_seals_and_takes_no_new_events() {
    let mut store = Fixture::new(&three());
    store.stored(1, 0, b"open");
    store.run_stop(RUN).unwrap();
    for source in 1..3 {
        assert_eq!(state(&store, RUN), Some(RunState::Stopped));
        refused(store.try_put(2, 0, b"new"), Kind::Closed);
        assert_eq!(store.read(2, 0), None);
        assert_eq!(store.state(1), Some(LiveState::Ready), "sealed");
        store.stored(1, source, b"a fragment of an event that is there");
        store.reopen();
    }
    let lease = store.take(1);
    assert_eq!(lease.event_fragments, 3);
    lease.reject().unwrap();
    store.late(1, 3, b"late");
}

#[test]
fn a_run_closes_when_nothing_waits_and_takes_nothing_after_that() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    store.run_stop(RUN).unwrap();
    refused(store.run_close(RUN), Kind::Unavailable);
    let lease = store.take(1);
    refused(store.run_close(RUN), Kind::Unavailable);
    lease.reject().unwrap();
    drop(lease);
    let ledger = store.run_close(RUN).unwrap().ledger;
    assert_eq!((ledger.imbalance(), ledger.rejected), (None, Tally { events: 1, fragments: 1, bytes: 1 }));
    for _ in 0..2 {
        assert_eq!(state(&store, RUN), Some(RunState::Closed));
        refused(store.try_put(2, 0, b"new"), Kind::Closed);
        refused(store.try_put(1, 0, b"x"), Kind::Closed);
        store.reopen();
    }
    assert_eq!(store.ledger(RUN).unwrap().imbalance(), None);
}

#[test]
fn an_open_event_keeps_its_run_from_closing() {
    let store = Fixture::new(&three());
    store.stored(1, 0, b"x");
    let message = refused(store.run_close(RUN), Kind::Unavailable);
    assert!(message.contains("open") || message.contains('1'), "does not name what is left: {message}");
}

#[test]
fn a_run_ends_although_an_open_event_lost_all_its_fragments() {
    let store = Fixture::new(&three());
    store.stored(1, 0, b"x");
    assert!(store.remove(&store.key(1, 0)).unwrap());
    let reservation = store.reserve(&store.key(2, 0), 10, &PutOptions::default()).unwrap();
    let (done, wait) = std::sync::mpsc::channel();
    let other = store.named("run control");
    std::thread::spawn(move || done.send(other.run_stop(RUN)));
    wait.recv_timeout(Duration::from_secs(20)).expect("run_stop comes back").unwrap();
    reservation.abort();
    store.tick();
    assert!(store.any(1).is_empty(), "there is nothing to process");
    assert_eq!(store.run_close(RUN).unwrap().ledger.removed.fragments, 1);
}

#[test]
fn accepted_events_outlive_the_closing_of_their_run() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, b"keep");
    store.take(1).accept(&["main"]).unwrap();
    store.run_stop(RUN).unwrap();
    store.run_close(RUN).unwrap();
    store.reopen();
    assert_eq!(store.read(1, 0).unwrap(), b"keep");
    assert!(store.release(&store.primary(1)).unwrap());
    assert_eq!(store.ledger(RUN).unwrap().released.fragments, 1);
}

#[test]
fn other_runs_go_on_when_one_is_closed() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    assert_eq!(put(&store, &key(2, 1, 0), b"y").unwrap(), forebay_store::PutOutcome::Stored);
    store.take(1).reject().unwrap();
    store.run_stop(RUN).unwrap();
    store.run_close(RUN).unwrap();
    assert_eq!(put(&store, &key(2, 2, 0), b"z").unwrap(), forebay_store::PutOutcome::Stored);
    assert_eq!((state(&store, RUN), state(&store, 2)), (Some(RunState::Closed), Some(RunState::Open)));
}

#[test]
fn a_watch_follows_its_run() {
    let store = Fixture::new(&single());
    store.run_open(RUN, &single().run).unwrap();
    let mut watch = store.watch(RUN).unwrap();
    assert_eq!(watch.state(), RunState::Open);
    store.run_stop(RUN).unwrap();
    // Changes may be reported one by one or together.
    let mut seen = None;
    while seen != Some(RunState::Stopped) {
        seen = Some(watch.next(Duration::from_secs(20)).expect("the run was stopped").state);
    }
    assert_eq!(watch.state(), RunState::Stopped);
}

#[test]
fn the_account_names_every_outcome() {
    let mut keyspace = single();
    keyspace.deliveries_max = 1;
    keyspace.fragment_bytes_max = 1000;
    let store = Fixture::new(&keyspace);
    for event in 1..=8 {
        store.stored(event, 0, &[0; 10]);
    }
    let _ = store.try_put(1, 0, &[0; 10]).unwrap();
    refused(store.try_put(1, 0, &[1; 7]), Kind::Conflict);
    store.update(&store.key(1, 0), &[2; 20], None).unwrap();
    store.take(2).reject().unwrap();
    store.late(2, 1, &[0; 3]);
    store.take(3).accept(&["main"]).unwrap();
    store.take(4).accept(&["main"]).unwrap();
    assert!(store.release(&store.primary(4)).unwrap());
    assert!(store.remove_event(&store.primary(5)).unwrap());
    drop(store.take(6));
    store.advance(store.config.lease * 2);
    let held = store.take(7);
    let ledger = store.ledger(RUN).unwrap();
    assert_eq!(ledger.imbalance(), None);
    let of = |tally: Tally| (tally.fragments, tally.bytes);
    assert_eq!(of(ledger.stored), (9, 100), "eight puts and an update");
    assert_eq!(of(ledger.duplicate), (1, 10));
    assert_eq!(of(ledger.conflict), (1, 7));
    assert_eq!(of(ledger.late), (1, 3));
    assert_eq!(of(ledger.superseded), (1, 10));
    assert_eq!(of(ledger.rejected), (1, 10));
    assert_eq!(of(ledger.released), (1, 10));
    assert_eq!(of(ledger.removed), (1, 10));
    assert_eq!(of(ledger.refused), (0, 0));
    let live = ledger.live.map(|tally| (tally.events, tally.fragments, tally.bytes));
    assert_eq!(live, [(0, 0, 0), (2, 2, 30), (1, 1, 10), (1, 1, 10), (1, 1, 10)]);
    held.reject().unwrap();
}

#[test]
fn refused_fragments_are_offered_too() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    store.run_stop(RUN).unwrap();
    refused(store.try_put(2, 0, &[0; 5]), Kind::Closed);
    let ledger = store.ledger(RUN).unwrap();
    assert_eq!((ledger.refused.fragments, ledger.refused.bytes, ledger.offered.fragments), (1, 5, 2));
}
