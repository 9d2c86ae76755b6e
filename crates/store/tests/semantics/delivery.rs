//! Which ready event goes out first, and which are held back.

use crate::common::fixture::{Fixture, RUN};
use crate::common::{key, put, refused};
use crate::semantics::{of_stage, single, staged};
use forebay_store::core::{Delivery, Filter, Keyspace, Kind, LiveState, Order};
use forebay_store::{GetAny, PutOutcome, Sources};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(10);

fn ordered(order: Order, max_wait: Duration) -> Keyspace {
    let mut keyspace = single();
    keyspace.delivery = Delivery { order, max_wait };
    keyspace.stages = vec!["fast".to_owned(), "final".to_owned()];
    keyspace
}

fn oldest_first() -> Keyspace {
    ordered(Order::OldestFirst, Duration::from_secs(60))
}

/// Numbers of all events of the first stage in the order in which they go out; they are given back.
fn order_of(store: &Fixture) -> Vec<u64> {
    let leases = store.any(100);
    let numbers = store.numbers(&leases);
    leases.iter().for_each(|lease| lease.requeue().unwrap());
    numbers
}

/// Puts whole events a little after each other.
fn one_by_one(store: &Fixture, events: &[u64]) {
    for event in events {
        store.stored(*event, 0, b"x");
        store.advance(TICK);
    }
}

#[test]
fn oldest_first_is_strict_over_all_events() {
    let mut store = Fixture::new(&oldest_first());
    let events = [900, 20, 500, 1, 2, 3, 700, 65_536];
    one_by_one(&store, &events);
    assert_eq!(order_of(&store), events);
    assert_eq!(order_of(&store), events, "given back, they have their places again");
    for event in events {
        let lease = store.any(1).remove(0);
        assert_eq!(store.number(&lease.primary), event, "one by one");
        lease.pass("final", &[]).unwrap();
    }
    assert_eq!(store.numbers(&of_stage(&store, "final")), events);
    store.reopen();
    assert_eq!(of_stage(&store, "final").len(), events.len());
}

/// An event's age is that of its first fragment, not the time at which it became ready, timed out, was given back, passed
/// on or let go by a hold.
#[test]
fn oldest_first_goes_by_the_first_fragment() {
    let mut keyspace = oldest_first();
    keyspace.run.completeness = forebay_store::core::Completeness::Count(2);
    let store = Fixture::new(&keyspace);
    one_by_one(&store, &[1, 2, 3, 4]);
    for event in [3, 1, 4, 2] {
        store.stored_with(event, 1, b"x", if event == 2 { &["lumi=2"] } else { &["lumi=1"] });
    }
    assert_eq!(order_of(&store), [1, 2, 3, 4]);
    // Given back, and timed out, in the wrong order.
    let leases = store.any(4);
    leases[0].requeue().unwrap();
    leases[2].requeue().unwrap();
    drop(leases);
    store.advance(store.config.lease * 2);
    assert_eq!(order_of(&store), [1, 2, 3, 4]);
    // A hold that is met by a look at the second only.
    let hold = store.hold(None, &["lumi=2"]).unwrap();
    let filter = Filter::parse(&store.keyspace().attributes, &["lumi=2"]).unwrap();
    assert!(store.get_any(&GetAny { n: 10, filter, ..GetAny::default() }).unwrap().is_empty());
    assert!(store.release_hold(hold).unwrap());
    assert_eq!(order_of(&store), [1, 2, 3, 4]);
    for event in [3, 2, 4, 1] {
        store.take(event).pass("final", &[]).unwrap();
    }
    assert_eq!(store.numbers(&of_stage(&store, "final")), [1, 2, 3, 4]);
}

#[test]
fn an_attribute_orders_and_the_oldest_goes_first_among_equals() {
    for (order, expected) in [
        (Order::Lowest("lumi".to_owned()), [5, 2, 4, 1, 6, 3]),
        (Order::Highest("lumi".to_owned()), [1, 6, 2, 4, 5, 3]),
    ] {
        let mut store = Fixture::new(&ordered(order, Duration::from_secs(60)));
        for (event, pairs) in
            [(3, &[][..]), (1, &["lumi=9"]), (2, &["lumi=4"]), (4, &["lumi=4"]), (6, &["lumi=9"]), (5, &["lumi=0"])]
        {
            store.stored_with(event, 0, b"x", pairs);
            store.advance(TICK);
        }
        assert_eq!(order_of(&store), expected);
        assert_eq!(order_of(&store), expected, "given back");
        let singly: Vec<u64> = (0..6).flat_map(|_| store.numbers(&store.any(1))).collect();
        assert_eq!(singly, expected);
        store.advance(store.config.lease * 2);
        store.update_attributes(&store.primary(3), &store.attributes(&["lumi=5"]), None).unwrap();
        store.update_attributes(&store.primary(1), &store.attributes(&["lumi=6"]), None).unwrap();
        let changed = if expected[0] == 5 { [5, 2, 4, 3, 1, 6] } else { [6, 1, 3, 2, 4, 5] };
        assert_eq!(order_of(&store), changed);
        store.reopen();
        // Arrival is known per life only: equals may change their places.
        let ranks: Vec<u64> = order_of(&store).into_iter().map(|event| if event == 4 { 2 } else { event }).collect();
        assert_eq!(ranks, changed.map(|event| if event == 4 { 2 } else { event }));
    }
}

#[test]
fn whoever_waits_for_too_long_goes_before_all_others() {
    let store = Fixture::new(&ordered(Order::Highest("lumi".to_owned()), Duration::from_secs(5)));
    store.stored_with(7, 0, b"x", &["lumi=1"]);
    store.advance(TICK);
    store.stored_with(8, 0, b"x", &["lumi=2"]);
    store.advance(TICK);
    store.stored_with(9, 0, b"x", &["lumi=3"]);
    store.advance(Duration::from_secs(3));
    for event in 1000..1010 {
        store.stored_with(event, 0, b"x", &["lumi=100"]);
    }
    assert_eq!(order_of(&store)[..2], [1000, 1001]);
    store.advance(Duration::from_secs(3));
    assert_eq!(order_of(&store)[..4], [7, 8, 9, 1000], "the oldest first, whatever its value");
    // One that was given back for the longest time is still the oldest.
    let leases = store.any(3);
    leases[2].requeue().unwrap();
    leases[1].requeue().unwrap();
    leases[0].requeue().unwrap();
    assert_eq!(order_of(&store)[..4], [7, 8, 9, 1000]);
    // A hold on the oldest does not cost the others their turn.
    store.hold(None, &["lumi=1"]).unwrap();
    assert_eq!(order_of(&store)[..3], [8, 9, 1000]);
}

/// An event that became ready late is the oldest although it is listed behind younger ones.
#[test]
fn the_wait_is_counted_from_the_first_fragment() {
    let mut keyspace = ordered(Order::Highest("lumi".to_owned()), Duration::from_secs(5));
    keyspace.run.completeness = forebay_store::core::Completeness::Count(2);
    let store = Fixture::new(&keyspace);
    store.stored_with(1, 0, b"x", &["lumi=1"]);
    store.advance(Duration::from_secs(4));
    for event in [2, 3] {
        store.stored_with(event, 0, b"x", &["lumi=9"]);
        store.stored(event, 1, b"x");
    }
    store.stored(1, 1, b"x");
    assert_eq!(order_of(&store), [2, 3, 1]);
    store.advance(Duration::from_secs(2));
    assert_eq!(order_of(&store), [1, 2, 3]);
}

fn counted(store: &Fixture) -> Vec<u64> {
    store.holds().iter().map(|hold| hold.events).collect()
}

#[test]
fn holds_of_runs_and_of_attribute_ranges_keep_events_back_until_they_are_released() {
    let mut store = Fixture::new(&single());
    let held_run = store.hold(Some(2), &[]).unwrap();
    let range = store.hold(None, &["lumi=5..9"]).unwrap();
    let both = store.hold(Some(RUN), &["lumi=5", "class=physics"]).unwrap();
    store.stored_with(1, 0, b"x", &["lumi=4"]);
    store.stored_with(2, 0, b"x", &["lumi=5"]);
    store.stored_with(3, 0, b"x", &["lumi=5", "class=physics"]);
    store.stored(4, 0, b"x");
    assert_eq!(put(&store, &key(2, 1, 0), b"x").unwrap(), PutOutcome::Stored);
    let other = store.schema().primary(&[2, 1]).unwrap();
    store.in_every_life(|store| {
        let mut numbers = order_of(store);
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 4]);
        for event in [2, 3] {
            assert!(store.lease(&store.primary(event), None).unwrap().is_none());
            assert_eq!(store.state(event), Some(LiveState::Ready), "held ones are ready");
        }
        assert!(store.lease(&other, None).unwrap().is_none());
        assert_eq!(counted(store), [1, 2, 1]);
        assert_eq!((store.stats().held, store.live(LiveState::Ready).events), (3, 4));
        assert_eq!(store.holds().iter().map(|hold| hold.id).collect::<Vec<_>>(), [held_run, range, both]);
        assert_eq!(store.holds()[2].conditions, ["lumi=5", "class=physics"]);
    });
    assert!(store.release_hold(range).unwrap());
    assert!(!store.release_hold(range).unwrap());
    store.in_every_life(|store| {
        let mut numbers = order_of(store);
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 4], "another hold covers 3");
    });
    assert!(store.release_hold(both).unwrap() && store.release_hold(held_run).unwrap());
    store.in_every_life(|store| {
        assert_eq!(order_of(store).len(), 5);
        assert!(store.holds().is_empty() && store.stats().held == 0);
    });
    assert!(store.hold(None, &[]).unwrap() > both, "numbers are not used again");
}

#[test]
fn a_hold_takes_nothing_back_and_covers_what_comes_back() {
    let mut store = Fixture::new(&single());
    store.stored_with(1, 0, b"x", &["lumi=5"]);
    store.stored_with(2, 0, b"x", &["lumi=5"]);
    store.stored_with(3, 0, b"x", &["lumi=5"]);
    let (decided, back, silent) = (store.take(1), store.take(2), store.take(3));
    let hold = store.hold(None, &["lumi=5"]).unwrap();
    decided.accept(&["main"]).unwrap();
    back.requeue().unwrap();
    store.advance(store.config.lease * 2);
    drop((decided, back, silent));
    store.in_every_life(|store| {
        assert!(store.any(10).is_empty());
        assert_eq!(counted(store), [2]);
    });
    // Out of the range, and into it.
    store.update_attributes(&store.primary(2), &store.attributes(&["lumi=6"]), None).unwrap();
    store.in_every_life(|store| assert_eq!(order_of(store), [2]));
    store.update_attributes(&store.primary(2), &store.attributes(&["lumi=5"]), None).unwrap();
    store.in_every_life(|store| assert!(order_of(store).is_empty()));
    assert!(store.release_hold(hold).unwrap());
    let numbers = order_of(&store);
    assert_eq!(numbers.len(), 2);
    assert_eq!([2, 3].map(|event| store.info(event).deliveries), [0, 1]);
}

#[test]
fn held_events_are_decided_otherwise_like_any_others() {
    let mut store = Fixture::new(&staged(1));
    for event in 1..=4 {
        store.stored_with(event, 0, b"x", &["lumi=5"]);
    }
    let hold = store.hold(None, &["lumi=5"]).unwrap();
    assert!(store.any(10).is_empty());
    assert!(store.remove_event(&store.primary(1)).unwrap());
    store.stored(2, 9, b"late, attached");
    store.update(&store.key(2, 0), b"newer", None).unwrap();
    store.run_stop(RUN).unwrap();
    refused(store.run_close(RUN), Kind::Unavailable);
    store.in_every_life(|store| {
        assert!(store.any(10).is_empty());
        assert_eq!((store.stats().held, store.info(2).fragments), (3, 2));
    });
    assert!(store.release_hold(hold).unwrap());
    store.take(2).pass("middle", &[]).unwrap();
    let hold = store.hold(Some(RUN), &[]).unwrap();
    assert!(of_stage(&store, "middle").is_empty(), "held in every stage");
    assert!(store.release_hold(hold).unwrap());
    assert_eq!(of_stage(&store, "middle").len(), 1);
}

#[test]
fn what_cannot_be_held_is_refused() {
    let store = Fixture::new(&single());
    for conditions in [&["lumi"][..], &["energy=5"], &["lumi=a..b"], &["lumi=5", "class=beam"]] {
        refused(store.hold(None, conditions), Kind::Invalid);
    }
    assert!(store.holds().is_empty());
    for _ in 0..1024 {
        store.hold(Some(3), &[]).unwrap();
    }
    let full = store.hold(None, &[]).unwrap_err();
    assert_eq!(full.kind(), Kind::Full);
    let shortage = full.shortage().unwrap();
    assert_eq!((&shortage.level[..], &shortage.owner[..], &shortage.cause[..]), ("holds", "operator", full.message()));
    let first = store.holds()[0].id;
    assert!(store.release_hold(first).unwrap());
    store.hold(None, &[]).unwrap();
    let other = store.named("other");
    store.close().unwrap();
    refused(other.hold(None, &[]), Kind::Closed);
    refused(other.release_hold(2), Kind::Closed);
}

#[test]
fn the_longest_hold_is_another_limit_than_the_heartbeat() {
    let mut keyspace = single();
    keyspace.deliveries_max = 1;
    let store = Fixture::with(&keyspace, |config| config.max_hold = Duration::from_secs(30));
    store.stored(1, 0, b"x");
    store.stored(2, 0, b"x");
    let (busy, silent) = (store.take(1), store.take(2));
    for _ in 0..12 {
        store.advance(Duration::from_secs(4));
        busy.extend(Duration::from_secs(8)).ok();
    }
    refused(busy.extend(Duration::from_secs(8)), Kind::Fenced);
    refused(silent.reject(), Kind::Fenced);
    let stats = store.stats();
    assert_eq!((stats.workers_silent, stats.held_too_long, stats.leases), (1, 1, 0));
    let reasons: Vec<_> = store.debug_events().into_iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["held too long", "worker silent"]);
    assert!(store.get_event(&store.primary(1), &Sources::All).unwrap().is_some());
}
