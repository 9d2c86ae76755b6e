//! Leases: which worker gets which event, and for how long: `get_any`, named leases, heartbeats and time-outs.

use crate::common::fixture::Fixture;
use crate::common::{refused, refused_as, sources_of};
use crate::semantics::{single, three};
use forebay_store::core::{Filter, Kind, LiveState};
use forebay_store::{GetAny, Sources};
use std::time::Duration;

fn filtered(store: &Fixture, condition: &str) -> Vec<u64> {
    let filter = Filter::parse(&store.keyspace().attributes, &[condition]).unwrap();
    let leases = store.get_any(&GetAny { n: 10, filter, ..GetAny::default() }).unwrap();
    let mut numbers = store.numbers(&leases);
    leases.iter().for_each(|lease| lease.requeue().unwrap());
    numbers.sort_unstable();
    numbers
}

#[test]
fn get_any_gives_at_most_n_and_each_event_once() {
    let store = Fixture::new(&single());
    for event in 0..5 {
        store.stored(event, 0, b"x");
    }
    let first = store.get_any(&GetAny { n: 2, ..GetAny::default() }).unwrap();
    assert_eq!(first.len(), 2);
    let second = store.any(10);
    let mut numbers = store.numbers(&first);
    numbers.extend(store.numbers(&second));
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    assert!(store.any(10).is_empty());
    assert_eq!((store.stats().leases, store.live(LiveState::Leased).events), (5, 5));
}

#[test]
fn get_any_gives_older_events_before_much_younger_ones() {
    let store = Fixture::new(&single());
    for event in [900, 20, 500, 1, 700] {
        store.stored(event, 0, b"old");
    }
    store.advance(Duration::from_secs(60));
    for event in 0..50 {
        store.stored(2000 + event, 0, b"young");
    }
    // Nearly in order of arrival: a minute's difference shows, a microsecond's need not.
    let mut oldest: Vec<u64> = (0..5).flat_map(|_| store.numbers(&store.any(1))).collect();
    oldest.sort_unstable();
    assert_eq!(oldest, [1, 20, 500, 700, 900]);
}

#[test]
fn get_any_filters_by_attributes() {
    let store = Fixture::new(&single());
    for (event, pairs) in [
        (1, &["lumi=1", "class=physics"][..]),
        (2, &["lumi=2", "bits=4"]),
        (3, &["lumi=3", "bits=6", "class=calib-tile"]),
        (4, &[]),
    ] {
        store.stored_with(event, 0, b"x", pairs);
    }
    assert_eq!(filtered(&store, "lumi=2..3"), [2, 3]);
    assert_eq!(filtered(&store, "bits&2"), [3]);
    assert_eq!(filtered(&store, "class=physics"), [1]);
    assert!(filtered(&store, "lumi=9").is_empty());
    assert_eq!(store.any(10).len(), 4);
}

#[test]
fn get_any_waits_for_the_age_that_was_asked_for() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    store.advance(Duration::from_secs(3));
    store.stored(2, 0, b"x");
    let older = |secs| GetAny { n: 10, min_age: Duration::from_secs(secs), ..GetAny::default() };
    assert!(store.get_any(&older(4)).unwrap().is_empty());
    assert_eq!(store.numbers(&store.get_any(&older(2)).unwrap()), [1]);
    store.advance(Duration::from_secs(3));
    assert_eq!(store.numbers(&store.get_any(&older(2)).unwrap()), [2]);
}

#[test]
fn a_lease_brings_the_chosen_sources_and_reads_more_later() {
    let store = Fixture::new(&three());
    for source in 0..3 {
        store.stored_with(1, source, &[source as u8; 100], &["lumi=7"]);
    }
    let sources = Sources::only(store.schema(), [1]).unwrap();
    let lease = store.get_any(&GetAny { sources, ..GetAny::default() }).unwrap().remove(0);
    assert_eq!(sources_of(&lease.fragments), [1]);
    assert_eq!((lease.event_fragments, lease.event_bytes, lease.delivery), (3, 300, 1));
    assert_eq!(lease.attributes, store.attributes(&["lumi=7"]));
    assert_eq!(sources_of(&lease.get(&Sources::only(store.schema(), [0, 2]).unwrap()).unwrap()), [0, 2]);
    assert_eq!(sources_of(&lease.get(&Sources::All).unwrap()), [0, 1, 2]);
    assert!(lease.get(&Sources::None).unwrap().is_empty());
    let kept = lease.get(&Sources::All).unwrap();
    lease.reject().unwrap();
    assert!(kept.iter().all(|fragment| fragment.verify().is_ok()), "guards outlive the verdict");
}

#[test]
fn only_a_ready_event_can_be_leased_by_name() {
    let store = Fixture::new(&three());
    let lease = |event| store.lease(&store.primary(event), None).unwrap();
    assert!(lease(1).is_none(), "not there");
    store.stored(1, 0, b"x");
    assert!(lease(1).is_none(), "open");
    assert!(store.seal(&store.primary(1)).unwrap());
    let held = lease(1).unwrap();
    assert!(lease(1).is_none(), "leased");
    held.accept(&["main"]).unwrap();
    assert!(lease(1).is_none(), "accepted");
    assert!(store.release(&store.primary(1)).unwrap());
    assert!(lease(1).is_none(), "released");
}

#[test]
fn a_lease_that_times_out_makes_the_event_ready_and_its_token_void() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    let lease = store.take(1);
    store.advance(store.config.lease / 2);
    assert_eq!(store.state(1), Some(LiveState::Leased));
    store.advance(store.config.lease);
    assert_eq!(store.state(1), Some(LiveState::Ready));
    assert_eq!(store.stats().leases, 0);
    refused(lease.reject(), Kind::Fenced);
    refused(lease.accept(&["main"]), Kind::Fenced);
    refused(lease.requeue(), Kind::Fenced);
    refused(lease.extend(Duration::from_secs(1)), Kind::Fenced);
    refused(store.update(&store.key(1, 0), b"y", Some(&lease.token)), Kind::Fenced);
    let next = store.take(1);
    assert_eq!(next.delivery, 2);
    assert_ne!(next.token, lease.token);
    refused(lease.reject(), Kind::Fenced);
    next.reject().unwrap();
    refused(lease.reject(), Kind::Fenced);
}

#[test]
fn a_lease_has_the_duration_that_was_asked_for() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    store.stored(2, 0, b"x");
    let short = store.lease(&store.primary(1), Some(Duration::from_secs(1))).unwrap().unwrap();
    let request = GetAny { lease: Some(Duration::from_secs(60)), ..GetAny::default() };
    let long = store.get_any(&request).unwrap().remove(0);
    store.advance(Duration::from_secs(20));
    refused(short.reject(), Kind::Fenced);
    long.reject().unwrap();
}

#[test]
fn heartbeats_keep_a_lease() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    let lease = store.take(1);
    for _ in 0..10 {
        store.advance(store.config.lease * 3 / 4);
        lease.extend(store.config.lease).unwrap();
    }
    assert_eq!(store.state(1), Some(LiveState::Leased));
    let mut other = lease.token;
    other.counter += 1;
    refused(store.extend(&store.primary(1), &other, Duration::from_secs(1)), Kind::Fenced);
    lease.reject().unwrap();
}

#[test]
fn heartbeats_end_at_the_longest_hold() {
    let store = Fixture::with(&single(), |config| config.max_hold = Duration::from_secs(30));
    store.stored(1, 0, b"x");
    let lease = store.take(1);
    for _ in 0..12 {
        store.advance(Duration::from_secs(4));
        // Refused or cut short: both end the hold.
        lease.extend(Duration::from_secs(8)).ok();
    }
    assert_eq!(store.state(1), Some(LiveState::Ready));
    refused(lease.reject(), Kind::Fenced);
}

#[test]
fn deliveries_are_counted_and_the_last_failure_leads_to_the_debug_stream() {
    let mut keyspace = single();
    keyspace.deliveries_max = 3;
    let store = Fixture::new(&keyspace);
    store.stored(1, 0, b"poison");
    for delivery in 1..=3 {
        assert_eq!(store.state(1), Some(LiveState::Ready));
        let lease = store.take(1);
        assert_eq!(lease.delivery, delivery);
        store.advance(store.config.lease * 2);
    }
    assert_eq!(store.state(1), Some(LiveState::Debug));
    assert!(store.any(1).is_empty());
    assert!(store.lease(&store.primary(1), None).unwrap().is_none());
    assert_eq!(store.live(LiveState::Debug).events, 1);
}

#[test]
fn a_requeue_is_no_failure() {
    let mut keyspace = single();
    keyspace.deliveries_max = 2;
    let mut store = Fixture::new(&keyspace);
    store.stored(1, 0, b"x");
    for round in 0..20 {
        let lease = store.take(1);
        lease.requeue().unwrap();
        refused(lease.reject(), Kind::Fenced);
        drop(lease);
        assert_eq!(store.info(1).deliveries, 0);
        if round % 5 == 4 {
            store.reopen();
        }
    }
    assert_eq!(store.state(1), Some(LiveState::Ready));
    store.take(1).reject().unwrap();
}

#[test]
fn leases_of_a_thread_that_unwinds_fail_at_once() {
    let store = Fixture::new(&single());
    (1..=3).for_each(|event| store.stored(event, 0, b"x"));
    let worker = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let leases = store.any(3);
        leases.iter().find(|lease| store.number(&lease.primary) == 2).unwrap().reject().unwrap();
        panic!("a worker with a bug");
    }));
    assert!(worker.is_err());
    assert_eq!([1, 2, 3].map(|event| store.state(event)), [Some(LiveState::Ready), None, Some(LiveState::Ready)]);
    assert_eq!((store.info(1).deliveries, store.info(3).deliveries), (1, 1));
    assert_eq!((store.stats().workers_failed, store.stats().workers_silent), (2, 0));
}

/// One event breaks each worker that has it, at once and for as long as it is given out.
#[test]
fn an_event_that_breaks_each_worker_gets_to_the_debug_stream() {
    let mut keyspace = single();
    keyspace.deliveries_max = 3;
    let store = Fixture::new(&keyspace);
    (1..=10).for_each(|event| store.stored(event, 0, b"x"));
    let mut broken = 0;
    while store.live(LiveState::Ready).events > 0 {
        let worker = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for lease in store.any(1) {
                assert_ne!(store.number(&lease.primary), 5, "a worker with a bug");
                lease.reject().unwrap();
            }
        }));
        broken += u64::from(worker.is_err());
    }
    let debug = store.debug_events();
    assert_eq!((broken, debug.len(), debug[0].primary), (3, 1, store.primary(5)));
    assert_eq!((&*debug[0].reason, debug[0].deliveries), ("worker failed", 3));
    assert!(debug[0].said.contains("an_event_that_breaks_each_worker"), "{}", debug[0].said);
}

#[test]
fn a_worker_says_that_it_failed_and_why() {
    let mut keyspace = single();
    keyspace.deliveries_max = 2;
    let mut store = Fixture::new(&keyspace);
    store.stored(1, 0, b"x");
    let first = store.take(1);
    first.fail("no tracks").unwrap();
    refused(first.fail("no tracks"), Kind::Fenced);
    // Ready at once, and the delivery is durable.
    store.crash();
    assert_eq!((store.state(1), store.info(1).deliveries), (Some(LiveState::Ready), 1));
    let long = "é".repeat(400);
    store.take(1).fail(&long).unwrap();
    let debug = store.debug_events();
    assert_eq!((&*debug[0].reason, &debug[0].said), ("worker failed", &"é".repeat(256)));
    store.in_every_life(|store| assert_eq!(&*store.debug_events()[0].reason, "worker failed"));
    assert!(store.replay(&store.primary(1)).unwrap());
    store.take(1).fail("still none").unwrap();
    assert_eq!(store.info(1).deliveries, 1, "a clean record");
}

#[test]
fn the_rest_of_a_batch_is_given_back_after_an_error() {
    let mut keyspace = single();
    keyspace.deliveries_max = 1;
    let store = Fixture::new(&keyspace);
    (1..=3).for_each(|event| store.stored(event, 0, b"x"));
    let leases = store.get_any(&GetAny { n: 3, ..GetAny::default() }).unwrap();
    assert_eq!(leases.len(), 3);
    refused(leases[1].pass("no such stage", &[]), Kind::Invalid);
    let failed = store.number(&leases[1].primary);
    drop(leases);
    for event in 1..=3 {
        let (state, deliveries) = if event == failed { (LiveState::Leased, 1) } else { (LiveState::Ready, 0) };
        assert_eq!((store.state(event), store.info(event).deliveries), (Some(state), deliveries), "event {event}");
    }
    // The one that the call failed for is left to its time-out.
    store.advance(store.config.lease * 2);
    assert_eq!(store.state(failed), Some(LiveState::Debug));
    // Without an error a drop says nothing: another part of the worker may hold the token.
    let leases = store.get_any(&GetAny { n: 3, ..GetAny::default() }).unwrap();
    assert_eq!(leases.len(), 2);
    drop(leases);
    store.advance(store.config.lease * 2);
    assert_eq!(store.live(LiveState::Debug).events, 3);
}

#[test]
fn opening_again_voids_leases_and_counts_them_as_failures() {
    let mut keyspace = single();
    keyspace.deliveries_max = 3;
    let mut store = Fixture::new(&keyspace);
    store.stored(1, 0, b"x");
    let mut tokens = Vec::new();
    for delivery in 1..=3 {
        let lease = store.take(1);
        assert_eq!(lease.delivery, delivery);
        tokens.push(lease.token);
        drop(lease);
        store.reopen();
        for token in &tokens {
            refused(store.reject(&store.primary(1), token), Kind::Fenced);
            refused(store.accept(&store.primary(1), token, &["main"]), Kind::Fenced);
            refused(store.requeue(&store.primary(1), token), Kind::Fenced);
            refused(store.extend(&store.primary(1), token, Duration::from_secs(1)), Kind::Fenced);
        }
    }
    assert_eq!(store.state(1), Some(LiveState::Debug));
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 3);
}

#[test]
fn no_more_leases_are_out_than_allowed() {
    let store = Fixture::with(&single(), |config| config.leases_max = 2);
    for event in 0..5 {
        store.stored(event, 0, b"x");
    }
    let held = store.get_any(&GetAny { n: 5, ..GetAny::default() }).unwrap();
    assert_eq!(held.len(), 2);
    match store.get_any(&GetAny::default()) {
        Ok(more) => assert!(more.is_empty()),
        error => drop(refused_as(error, &[Kind::Unavailable, Kind::Full])),
    }
    held[0].reject().unwrap();
    assert_eq!(store.get_any(&GetAny { n: 5, ..GetAny::default() }).unwrap().len(), 1);
}
