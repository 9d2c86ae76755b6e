//! Two stages with racing workers, beside masks, holds, samplers and the close.

use crate::common::fixture::RUN;
use crate::common::{assert_balanced, eventually, key, put, small_config};
use crate::concurrent::{THREADS, check, feed, number, open, primary, together};
use forebay_store::core::{Completeness, Keyspace, Kind, Source};
use forebay_store::{GetAny, PutOutcome, ResultFragment, RunState, Sampling, Store};
// Compiled with the test, so that ThreadSanitizer sees its locking.
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Events that wait for sources 0 to 2 and pass through two stages.
fn staged() -> Keyspace {
    let mut keyspace = Keyspace::events("concurrent", 3).opening_runs();
    keyspace.run.completeness = Completeness::first_sources(&keyspace.schema, 3).unwrap();
    keyspace.run.complete_within = Duration::from_secs(24 * 3600);
    keyspace.stages = ["fast", "final"].map(str::to_owned).into();
    keyspace.deliveries_max = 15;
    keyspace
}

fn request(stage: &str, n: usize) -> GetAny {
    GetAny { stage: Some(stage.to_owned()), n, wait: Duration::from_millis(2), ..GetAny::default() }
}

fn result(stage: u32) -> Source {
    Source::from_packed(&(100 + stage).to_be_bytes())
}

/// Works on both stages until `events` events have left the last; notes each verdict by event and stage.
fn work(store: &Store, events: u64, ended: &AtomicU64, verdicts: &Mutex<BTreeMap<(u64, u8), u32>>) {
    while ended.load(Ordering::Acquire) < events {
        for (stage, name) in (0..).zip(["fast", "final"]) {
            for lease in store.get_any(&request(name, 5)).unwrap() {
                lease.fragments.iter().filter(|fragment| fragment.len() > 8).for_each(check);
                let event = number(store, &lease.primary);
                assert_eq!(lease.stage, stage);
                match (stage, event % 7) {
                    (_, 6) if lease.delivery == 1 && verdicts.lock().get(&(event, stage + 10)).is_none() => {
                        verdicts.lock().insert((event, stage + 10), 1);
                        lease.requeue().unwrap();
                        continue;
                    }
                    (0, 0) => lease.reject().unwrap(),
                    (0, _) => lease.pass("final", &[ResultFragment::new(&result(0), b"track")]).unwrap(),
                    (_, 1) => lease.reject().unwrap(),
                    _ => lease.accept(&["main"]).unwrap(),
                }
                *verdicts.lock().entry((event, stage)).or_default() += 1;
                ended.fetch_add(u64::from(stage == 1 || event.is_multiple_of(7)), Ordering::Release);
            }
        }
    }
}

/// Each event got one verdict in each stage that it reached, and the account says so.
fn check_verdicts(store: &Store, events: u64, verdicts: &BTreeMap<(u64, u8), u32>) {
    for event in 0..events {
        let of = |stage: u8| verdicts.get(&(event, stage)).copied();
        assert_eq!(of(0), Some(1), "event {event}");
        assert_eq!(of(1), (!event.is_multiple_of(7)).then_some(1), "event {event}");
    }
    let ledger = store.ledger(RUN).unwrap();
    let rejected = (0..events).filter(|event| event % 7 < 2).count() as u64;
    assert_eq!((ledger.rejected.events, ledger.live.accepted.events), (rejected, events - rejected));
    assert_eq!(ledger.complete + ledger.incomplete, events);
    assert_balanced(store);
}

#[test]
fn each_stage_decides_each_event_once() {
    let (_dir, store) = open(&staged());
    let (events, ended, verdicts) = (400, AtomicU64::new(0), Mutex::default());
    together(|thread| {
        for event in (thread..events).step_by(THREADS as usize) {
            (0..3).for_each(|source| feed(&store, event, source, event));
        }
        work(&store, events, &ended, &verdicts);
    });
    check_verdicts(&store, events, &verdicts.into_inner());
    assert_eq!(store.ledger(RUN).unwrap().complete, events);
}

#[test]
fn masks_that_come_and_go_beside_puts_keep_no_event() {
    let (dir, store) = open(&staged());
    let (events, ended, verdicts) = (400, AtomicU64::new(0), Mutex::default());
    let late = AtomicU64::new(0);
    together(|thread| {
        match thread {
            0 => {
                for round in 0..60_u64 {
                    let source = Source::from_packed(&2_u32.to_be_bytes());
                    let from = primary(&store, round * events / 60);
                    let from = round.is_multiple_of(2).then_some(&from);
                    store.mask(RUN, &source, from).unwrap();
                    std::thread::yield_now();
                    store.unmask(RUN, &source, None).unwrap();
                }
            }
            1 => {
                for event in 0..events {
                    // The masked source comes last: in time, attached, or late.
                    (0..3).for_each(|source| {
                        let outcome = crate::concurrent::put_tagged(&store, event, source, event);
                        assert_ne!(outcome, PutOutcome::Duplicate);
                        late.fetch_add(u64::from(outcome == PutOutcome::Late), Ordering::Relaxed);
                    });
                }
            }
            _ => {}
        }
        work(&store, events, &ended, &verdicts);
    });
    check_verdicts(&store, events, &verdicts.into_inner());
    let ledger = store.ledger(RUN).unwrap();
    assert_eq!((ledger.late.fragments, ledger.incomplete), (late.into_inner(), 0), "{ledger:?}");
    store.close().unwrap();
    drop(store);
    let store = Store::open(&dir.store(), small_config()).unwrap();
    let again = store.ledger(RUN).unwrap();
    assert_eq!((again.complete, again.incomplete, again.stored), (ledger.complete, 0, ledger.stored));
    assert_balanced(&store);
}

#[test]
fn holds_that_are_set_and_released_beside_workers_lose_nothing() {
    let (_dir, store) = open(&staged());
    let (events, ended, verdicts) = (400, AtomicU64::new(0), Mutex::default());
    for event in 0..events {
        (0..3).for_each(|source| feed(&store, event, source, event));
    }
    together(|thread| {
        if thread == 0 {
            for _ in 0..100 {
                let run = store.hold(Some(RUN), &[]).unwrap();
                let all = store.hold(None, &[]).unwrap();
                std::thread::yield_now();
                assert!(store.release_hold(run).unwrap());
                assert!(store.release_hold(all).unwrap());
            }
        }
        work(&store, events, &ended, &verdicts);
    });
    check_verdicts(&store, events, &verdicts.into_inner());
    assert_eq!((store.stats().held, store.holds().len(), store.stats().ready), (0, 0, vec![0, 0]));
}

#[test]
fn under_a_hold_nobody_gets_anything() {
    let (_dir, store) = open(&staged());
    let held = store.hold(None, &[]).unwrap();
    let given = AtomicU64::new(0);
    together(|thread| {
        for event in 0..100 {
            match thread {
                0 => (0..3).for_each(|source| feed(&store, event, source, event)),
                _ => {
                    let leases = store.get_any(&GetAny { n: 3, ..GetAny::default() }).unwrap();
                    let named = store.lease(&primary(&store, event), None).unwrap();
                    given.fetch_add(leases.len() as u64 + u64::from(named.is_some()), Ordering::Relaxed);
                }
            }
        }
    });
    assert_eq!(given.into_inner(), 0);
    assert!(store.release_hold(held).unwrap());
    let mut n = 0;
    eventually(&store, "all come out", || {
        let leases = store.get_any(&GetAny { n: 100, ..GetAny::default() }).unwrap();
        leases.iter().for_each(|lease| lease.reject().unwrap());
        n += leases.len();
        n == 100
    });
    assert_balanced(&store);
}

#[test]
fn samplers_race_verdicts_and_the_close_and_pin_nothing() {
    let (dir, store) = open(&staged());
    let done = AtomicBool::new(false);
    let seen = together(|thread| {
        let mut seen = 0_u64;
        match thread {
            0 => {
                for event in 0..1500 {
                    (0..3).for_each(|source| feed(&store, event, source, event));
                    let lease = store.lease(&primary(&store, event), None).unwrap().expect("ready");
                    lease.pass("final", &[]).unwrap();
                    let lease = store.lease(&primary(&store, event), None).unwrap().expect("in the second stage");
                    lease.reject().unwrap();
                }
                done.store(true, Ordering::Release);
                store.close().unwrap();
            }
            live => {
                let sampling = Sampling { decided: live > 1, rate_hz: 1e6, ..Sampling::default() };
                let mut sampler = store.sampler(&sampling).unwrap();
                loop {
                    match sampler.next(Duration::from_millis(20)) {
                        Ok(None) => {}
                        Ok(Some(sample)) => {
                            sample.fragments.iter().for_each(check);
                            let states: &[&str] =
                                if live > 1 { &["passed", "rejected"] } else { &["open", "ready", "leased"] };
                            assert!(states.contains(&&*sample.state), "{}", sample.state);
                            seen += 1;
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), Kind::Closed, "{error}");
                            assert!(done.load(Ordering::Acquire), "closed before its time");
                            break;
                        }
                    }
                }
            }
        }
        seen
    });
    assert!(seen[2] + seen[3] > 0, "decided events were seen: {seen:?}");
    drop(store);
    // No pin is left: another opening gets the region.
    let store = Store::open(&dir.store(), small_config()).unwrap();
    assert_eq!(store.ledger(RUN).unwrap().rejected.events, 1500);
    assert_balanced(&store);
}

#[test]
fn a_run_that_is_closed_beside_puts_and_verdicts_takes_all_or_nothing() {
    let (_dir, store) = open(&staged());
    let closed = AtomicBool::new(false);
    let stored = together(|thread| {
        let mut stored = 0;
        match thread {
            // Two of them, who must not open the doors that the other one has shut.
            0 | 3 => {
                while !closed.load(Ordering::Acquire) {
                    match store.run_close(RUN) {
                        Ok(summary) => {
                            assert_eq!(summary.ledger.imbalance(), None);
                            assert!(!closed.swap(true, Ordering::AcqRel), "closed twice");
                        }
                        Err(error) if error.kind() == Kind::Closed => break,
                        Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{error}"),
                    }
                }
            }
            1 => {
                for event in 0..10_000_u64 {
                    match put(&store, &key(RUN, event, event % 3), b"x") {
                        Ok(outcome) => stored += u64::from(outcome == PutOutcome::Stored),
                        Err(error) => {
                            // Also beside an attempt to close it that fails.
                            assert_eq!(error.kind(), Kind::Closed, "{error}");
                            assert_ne!(store.runs()[0].state, RunState::Open, "{error}");
                            break;
                        }
                    }
                    if event == 500 {
                        store.run_stop(RUN).unwrap();
                    }
                }
            }
            _ => {
                while !closed.load(Ordering::Acquire) {
                    for lease in store.get_any(&request("fast", 8)).unwrap() {
                        lease.reject().unwrap();
                    }
                }
            }
        }
        stored
    });
    let ledger = store.ledger(RUN).unwrap();
    assert_eq!((ledger.stored.fragments, ledger.rejected.fragments), (stored[1], stored[1]));
    assert_eq!(ledger.incomplete, stored[1]);
    assert_eq!(store.runs()[0].state, RunState::Closed);
    assert_balanced(&store);
}
