//! Rounds of maintenance come when something is due: the moment is exact, it brings what waits for it, and a store that does
//! nothing makes no rounds.

use crate::common::fixture::{Fixture, on_both_levels};
use crate::common::{TempDir, key, sealed_events, small_config};
use forebay_store::core::{Clock, Keyspace, LiveState};
use forebay_store::{Config, GetAny, PutOptions, PutOutcome, Store};
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_millis(60);
const GRACE: Duration = Duration::from_millis(1_700);
const LEASE: Duration = Duration::from_millis(45);

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

/// Ticks whenever the store says so, and at no other time, until `moment`. What is to happen then has not happened before, one
/// nanosecond before included, and has happened then.
#[track_caller]
fn at_this_moment(fixture: &Fixture, moment: u64, has_happened: impl Fn(&Fixture) -> bool) {
    let now = || fixture.clock.now_ns();
    let mut ticks = 0;
    loop {
        let due = fixture.next_due_ns().expect("something is due");
        assert!(due <= moment, "{} ns too late", due - moment);
        if due == moment {
            break;
        }
        fixture.clock.advance_ns(due.saturating_sub(now()));
        fixture.tick();
        ticks += 1;
        assert!(!has_happened(fixture), "{} ns too early", moment - now());
        assert!(ticks < 5_000, "a tick for each look, not for each moment");
    }
    fixture.clock.advance_ns(moment - 1 - now());
    fixture.tick();
    assert!(!has_happened(fixture), "a nanosecond too early");
    assert_eq!(fixture.next_due_ns(), Some(moment));
    fixture.clock.advance_ns(1);
    fixture.tick();
    assert!(has_happened(fixture), "it is due and does not happen");
}

#[test]
fn an_open_event_is_ready_at_its_moment() {
    let mut keyspace = sealed_events();
    keyspace.run.complete_within = WITHIN;
    let fixture = Fixture::new(&keyspace);
    for event in 1..4 {
        fixture.clock.advance_ns(1_000_003);
        fixture.stored(event, 0, b"x");
    }
    for event in 1..4 {
        let moment = event * 1_000_003 + ns(WITHIN);
        at_this_moment(&fixture, moment, |fixture| fixture.state(event) == Some(LiveState::Ready));
    }
}

#[test]
fn a_pause_moves_the_moment() {
    let mut keyspace = sealed_events();
    keyspace.run.complete_within = WITHIN;
    let fixture = Fixture::new(&keyspace);
    fixture.stored(1, 0, b"x");
    fixture.advance(WITHIN / 2);
    fixture.run_pause(1).unwrap();
    fixture.advance(WITHIN * 7);
    assert_eq!(fixture.state(1), Some(LiveState::Open));
    fixture.run_resume(1).unwrap();
    at_this_moment(&fixture, ns(WITHIN) * 8, |fixture| fixture.state(1) == Some(LiveState::Ready));
}

#[test]
fn a_stopped_run_is_sealed_when_its_grace_is_over() {
    let mut keyspace = sealed_events();
    keyspace.run.stop_grace = GRACE;
    let fixture = Fixture::new(&keyspace);
    fixture.stored(1, 0, b"x");
    fixture.advance(Duration::from_millis(10));
    fixture.run_stop(1).unwrap();
    let moment = ns(Duration::from_millis(10)) + ns(GRACE);
    at_this_moment(&fixture, moment, |fixture| fixture.state(1) == Some(LiveState::Ready));
}

#[test]
fn a_lease_runs_out_at_its_moment_also_a_shortened_one() {
    let mut keyspace = Keyspace::events("leases", 1).opening_runs();
    keyspace.deliveries_max = 10;
    let fixture = Fixture::with(&keyspace, |config| config.lease = LEASE);
    fixture.stored(1, 0, b"x");
    let ready = |fixture: &Fixture| fixture.state(1) == Some(LiveState::Ready);
    let _silent = fixture.take(1);
    at_this_moment(&fixture, fixture.clock.now_ns() + ns(LEASE), ready);
    let lease = fixture.take(1);
    let shorter = LEASE / 3;
    lease.extend(shorter).unwrap();
    at_this_moment(&fixture, fixture.clock.now_ns() + ns(shorter), ready);
}

#[test]
fn nothing_is_due_where_nothing_waits() {
    let fixture = Fixture::on_hot_alone(&sealed_events(), |_| {});
    // The first rounds look at what opening left.
    for _ in 0..5 {
        fixture.advance(Duration::from_secs(1));
    }
    assert_eq!(fixture.next_due_ns(), None);
    fixture.stored(1, 0, b"x");
    assert!(fixture.next_due_ns().is_some(), "a run is open");
}

fn with_a_thread(keyspace: &Keyspace) -> (TempDir, Store) {
    let dir = TempDir::new();
    let config = Config { maintenance: true, lease: LEASE, ..small_config() };
    let store = Store::create(&dir.store(), keyspace, config).unwrap();
    (dir, store)
}

#[track_caller]
fn stored(store: &Store, event: u64) {
    assert_eq!(store.put(&key(1, event, 0), b"x", &PutOptions::default()).unwrap(), PutOutcome::Stored);
}

/// Rounds in a second, once those of what happened before are over.
fn rounds_in_a_second(store: &Store) -> u64 {
    std::thread::sleep(Duration::from_millis(300));
    let before = store.maintenance_rounds();
    std::thread::sleep(Duration::from_secs(1));
    store.maintenance_rounds() - before
}

#[test]
fn a_store_that_does_nothing_makes_no_rounds() {
    let (_dir, store) = with_a_thread(&sealed_events());
    let rounds = rounds_in_a_second(&store);
    assert!(rounds <= 3, "{rounds} rounds without a run");
    stored(&store, 1);
    let rounds = rounds_in_a_second(&store);
    assert!(rounds <= 10, "{rounds} rounds with an open run, whose sources are looked at 4 times");
}

/// How much later than after `time` a worker gets the event that becomes ready then, at best of some.
fn latest(store: &Store, time: Duration, begin: impl Fn(u64)) -> Duration {
    let wait = GetAny { wait: Duration::from_secs(10), ..GetAny::default() };
    let once = |event| {
        // The thread of the store is asleep by now, and to the next look at sources if nobody wakes it.
        std::thread::sleep(Duration::from_millis(30));
        let from = Instant::now();
        begin(event);
        let lease = store.get_any(&wait).unwrap().remove(0);
        let took = from.elapsed();
        lease.reject().unwrap();
        assert!(took >= time, "{took:?} is before its time");
        took - time
    };
    (1..9).map(once).min().unwrap()
}

#[test]
fn an_event_is_ready_in_time_while_nothing_else_happens() {
    let mut keyspace = sealed_events();
    keyspace.run.complete_within = WITHIN;
    let (_dir, store) = with_a_thread(&keyspace);
    stored(&store, 0);
    store.remove_event(&store.schema().primary(&[1, 0]).unwrap()).unwrap();
    let late = latest(&store, WITHIN, |event| {
        stored(&store, event);
    });
    assert!(late * 4 < LEASE, "{late:?} late, at best of eight");
}

#[test]
fn a_lease_that_runs_out_is_given_again_in_time() {
    let mut keyspace = Keyspace::events("leases", 1).opening_runs();
    keyspace.deliveries_max = 10;
    let (_dir, store) = with_a_thread(&keyspace);
    let late = latest(&store, LEASE, |event| {
        stored(&store, event);
        std::mem::forget(store.get_any(&GetAny::default()).unwrap());
    });
    assert!(late * 4 < LEASE, "{late:?} late, at best of eight");
}

#[test]
fn with_devices_a_store_is_ticked_ten_times_a_second_while_it_rests() {
    if !on_both_levels() {
        return;
    }
    let fixture = Fixture::new(&sealed_events());
    (0..5).for_each(|_| fixture.advance(Duration::from_secs(1)));
    let due = fixture.next_due_ns().unwrap();
    assert_eq!(due - fixture.clock.now_ns(), 100_000_000);
}
