//! Several threads on the same keys and events: who wins is open, but there is one winner, and nobody sees half of
//! anything. Modest sizes: these tests also run under ThreadSanitizer, which makes them ten times slower.

mod common;

use common::fixture::RUN;
use common::{
    TempDir, assert_balanced, eventually, genuine, key, payload, put, sealed_events, small_config, sources_of,
};
use forebay_store::core::{Bounds, Completeness, Keyspace, Kind, LiveState, Primary, Token};
use forebay_store::{Config, GetAny, Lease, PutOptions, PutOutcome, Sources, Store};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const THREADS: u64 = 4;
const BYTES_MAX: usize = 3000;

fn count(fragments: u32) -> Keyspace {
    let mut keyspace = Keyspace::events("concurrent", fragments);
    keyspace.run.completeness = Completeness::Count(fragments);
    keyspace.run.complete_within = Duration::from_secs(24 * 3600);
    keyspace.deliveries_max = 15;
    keyspace
}

/// A store with its own thread and the machine's clock, on a region that is soon full.
fn open(keyspace: &Keyspace) -> (TempDir, Store) {
    let dir = TempDir::new();
    let config = Config {
        maintenance: true,
        write_heads: 4,
        put_deadline: Duration::from_secs(60),
        lease: Duration::from_secs(3600),
        max_hold: Duration::from_secs(7200),
        ..small_config()
    };
    let store = Store::create(&dir.store(), keyspace, config).unwrap();
    store.run_open(RUN, &keyspace.run).unwrap();
    (dir, store)
}

fn primary(store: &Store, event: u64) -> Primary {
    store.schema().primary(&[RUN, event]).unwrap()
}

fn number(store: &Store, primary: &Primary) -> u64 {
    store.schema().values(primary.as_bytes())[1]
}

fn put_tagged(store: &Store, event: u64, source: u64, tag: u64) -> PutOutcome {
    let key = key(RUN, event, source);
    put(store, &key, &payload(&key, tag, BYTES_MAX)).unwrap()
}

/// Runs `work(thread)` on all threads at once and collects what they return.
fn together<T: Send>(work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        let (barrier, work) = (&barrier, &work);
        let start = |thread| {
            scope.spawn(move || {
                barrier.wait();
                work(thread)
            })
        };
        let running: Vec<_> = (0..THREADS).map(start).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn of_many_puts_of_the_same_bytes_one_is_stored() {
    let (_dir, store) = open(&sealed_events());
    let keys = 300;
    let outcomes = together(|_| (0..keys).map(|event| put_tagged(&store, event, 0, event)).collect::<Vec<_>>());
    for event in 0..keys as usize {
        let of = |outcome| outcomes.iter().filter(|thread| thread[event] == outcome).count();
        assert_eq!((of(PutOutcome::Stored), of(PutOutcome::Duplicate)), (1, THREADS as usize - 1), "event {event}");
    }
    let ledger = store.ledger(RUN).unwrap();
    assert_eq!((ledger.stored.fragments, ledger.duplicate.fragments), (keys, keys * (THREADS - 1)));
    assert_balanced(&store);
}

#[test]
fn of_many_puts_of_other_bytes_one_is_stored() {
    let (_dir, store) = open(&sealed_events());
    let keys = 300;
    let won = together(|thread| {
        let one = |event| {
            let key = key(RUN, event, 0);
            let reserve = (event + thread) % 3 == 0;
            // Tags that differ by thread and never stand for no bytes.
            let bytes = payload(&key, event * 64 + thread, BYTES_MAX);
            let answer = if reserve {
                let options = PutOptions::default();
                store.reserve(&key, bytes.len(), &options).and_then(|mut reservation| {
                    reservation.copy_from_slice(&bytes);
                    reservation.commit()
                })
            } else {
                put(&store, &key, &bytes)
            };
            match answer {
                Ok(outcome) => {
                    assert_eq!(outcome, PutOutcome::Stored);
                    true
                }
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Conflict, "{error}");
                    false
                }
            }
        };
        (0..keys).map(one).collect::<Vec<_>>()
    });
    for event in 0..keys {
        let winners: Vec<u64> = (0..THREADS).filter(|thread| won[*thread as usize][event as usize]).collect();
        assert_eq!(winners.len(), 1, "event {event}");
        let fragment = store.get(&key(RUN, event, 0)).unwrap().unwrap();
        assert_eq!(genuine(&fragment, BYTES_MAX), event * 64 + winners[0]);
    }
    assert_balanced(&store);
}

#[test]
fn of_many_leases_of_one_event_one_is_granted() {
    let (_dir, store) = open(&count(1));
    let events = 200;
    for event in 0..events {
        put_tagged(&store, event, 0, event);
    }
    let granted = together(|_| {
        let lease = |event| store.lease(&primary(&store, event), None).unwrap().is_some();
        (0..events).map(lease).collect::<Vec<_>>()
    });
    for event in 0..events as usize {
        assert_eq!(granted.iter().filter(|thread| thread[event]).count(), 1, "event {event}");
    }
    assert_eq!(store.stats().leases, events);
}

#[test]
fn get_any_gives_each_event_to_one_worker_at_a_time() {
    let (_dir, store) = open(&count(2));
    let events = 600;
    let written = AtomicU64::new(0);
    let decided = AtomicU64::new(0);
    let work = |thread: u64| {
        let mut grants = Vec::new();
        if thread < 2 {
            for event in (thread..events).step_by(2) {
                assert_eq!(put_tagged(&store, event, 0, event), PutOutcome::Stored);
                assert_eq!(put_tagged(&store, event, 1, event), PutOutcome::Stored);
                written.fetch_add(1, Ordering::Relaxed);
            }
        }
        while decided.load(Ordering::Relaxed) < events {
            let request = GetAny { n: 3, wait: Duration::from_millis(5), ..GetAny::default() };
            for lease in store.get_any(&request).unwrap() {
                let event = number(&store, &lease.primary);
                assert_eq!(sources_of(&lease.fragments), [0, 1], "event {event}");
                lease.fragments.iter().for_each(|fragment| assert_eq!(genuine(fragment, BYTES_MAX) % 16, event % 16));
                let last = event % 5 != 0 || lease.delivery > 1 || grants.iter().any(|(seen, ..)| *seen == event);
                grants.push((event, lease.token, last));
                match last {
                    // A time-out counts a delivery, a requeue does not: the same worker may see it again.
                    false => lease.requeue().unwrap(),
                    true if event % 2 == 0 => lease.reject().unwrap(),
                    true => lease.accept(&["main"]).unwrap(),
                }
                decided.fetch_add(u64::from(last), Ordering::Relaxed);
            }
        }
        grants
    };
    let grants: Vec<(u64, Token, bool)> = together(work).into_iter().flatten().collect();
    let tokens: BTreeSet<Token> = grants.iter().map(|grant| grant.1).collect();
    assert_eq!(tokens.len(), grants.len(), "a token was given twice");
    let mut verdicts = BTreeMap::new();
    for (event, _, last) in &grants {
        *verdicts.entry(*event).or_insert(0) += u32::from(*last);
    }
    assert_eq!(verdicts.len() as u64, events);
    assert!(verdicts.values().all(|verdicts| *verdicts == 1), "{verdicts:?}");
    let ledger = store.ledger(RUN).unwrap();
    assert_eq!((ledger.rejected.events, ledger.live[LiveState::Accepted as usize].events), (events / 2, events / 2));
    assert_balanced(&store);
}

#[test]
fn of_many_verdicts_under_one_token_one_outcome_stands() {
    let (_dir, store) = open(&count(1));
    let events = 200;
    for event in 0..events {
        put_tagged(&store, event, 0, event);
    }
    let take = |event| store.lease(&primary(&store, event), None).unwrap().unwrap();
    let leases: Vec<Lease> = (0..events).map(take).collect();
    let answers = together(|thread| {
        let decide = |lease: &Lease| {
            let answer = match thread {
                0 | 1 => lease.accept(&["main"]),
                2 => lease.reject(),
                _ => lease.requeue(),
            };
            if let Err(error) = &answer {
                assert_eq!(error.kind(), Kind::Fenced, "{error}");
            }
            answer.is_ok()
        };
        leases.iter().map(decide).collect::<Vec<_>>()
    });
    for event in 0..events as usize {
        let answers: Vec<bool> = answers.iter().map(|thread| thread[event]).collect();
        // Both accepts are the same verdict: the second is a repetition and succeeds as well.
        let state = store.get_event(&leases[event].primary, &Sources::None).unwrap().map(|event| event.state);
        match state {
            Some(LiveState::Accepted) => assert_eq!(answers, [true, true, false, false], "event {event}"),
            Some(LiveState::Ready) => assert_eq!(answers, [false, false, false, true], "event {event}"),
            None => assert_eq!(answers, [false, false, true, false], "event {event}"),
            other => panic!("event {event} is {other:?}"),
        }
    }
    assert_balanced(&store);
}

#[test]
fn a_put_beside_a_lease_is_either_in_the_event_or_late() {
    let (_dir, store) = open(&count(1));
    let events = 300;
    let outcomes = together(|thread| {
        let mut outcomes = Vec::new();
        for event in 0..events {
            if thread == 0 {
                put_tagged(&store, event, 0, event);
            } else if thread == 1 {
                loop {
                    if let Some(lease) = store.lease(&primary(&store, event), None).unwrap() {
                        lease.accept(&["main"]).unwrap();
                        break;
                    }
                    std::thread::yield_now();
                }
            } else {
                outcomes.push(put_tagged(&store, event, thread, event));
            }
        }
        outcomes
    });
    for event in 0..events {
        let found = store.get_event(&primary(&store, event), &Sources::All).unwrap().unwrap();
        assert_eq!(found.state, LiveState::Accepted);
        let sources = sources_of(&found.fragments);
        for thread in 2..THREADS {
            let stored = outcomes[thread as usize][event as usize] == PutOutcome::Stored;
            assert_eq!(sources.contains(&thread), stored, "event {event}: {sources:?}");
        }
        found.fragments.iter().for_each(|fragment| drop(genuine(fragment, BYTES_MAX)));
    }
    assert_balanced(&store);
}

#[test]
fn a_put_beside_a_removal_never_brings_the_event_back() {
    let (_dir, store) = open(&sealed_events());
    let events = 300;
    for event in 0..events {
        put_tagged(&store, event, 0, event);
    }
    together(|thread| {
        for event in 0..events {
            if thread == 0 {
                assert!(store.remove_event(&primary(&store, event)).unwrap());
            } else {
                put_tagged(&store, event, thread, event);
            }
        }
    });
    assert_eq!(store.range(&Bounds::all(store.schema())).count(), 0);
    for event in 0..events {
        assert_eq!(put_tagged(&store, event, 9, event), PutOutcome::Late);
    }
    let ledger = store.ledger(RUN).unwrap();
    assert_eq!(ledger.removed, forebay_store::core::Tally { events, ..ledger.stored });
    assert_balanced(&store);
}

#[test]
fn what_is_read_beside_writes_and_removals_is_whole() {
    let (_dir, store) = open(&sealed_events());
    let (events, done) = (4000_u64, AtomicBool::new(false));
    let (written, removed) = (AtomicU64::new(0), AtomicU64::new(0));
    let held = together(|thread| {
        let store = store.named(&format!("reader-{thread}"));
        let mut rng = SmallRng::seed_from_u64(thread);
        let mut guards = Vec::new();
        match thread {
            0 => {
                for event in 0..events {
                    assert_eq!(put_tagged(&store, event, 0, event), PutOutcome::Stored);
                    written.store(event + 1, Ordering::Release);
                }
            }
            1 => {
                for event in 0..events {
                    while written.load(Ordering::Acquire) <= event {
                        std::thread::yield_now();
                    }
                    let fragment = store.get(&key(RUN, event, 0)).unwrap().expect("written before");
                    genuine(&fragment, BYTES_MAX);
                    assert!(store.remove(&key(RUN, event, 0)).unwrap());
                    removed.store(event + 1, Ordering::Release);
                }
                done.store(true, Ordering::Release);
            }
            _ => {
                while !done.load(Ordering::Acquire) {
                    let gone = removed.load(Ordering::Acquire);
                    let event =
                        rng.random_range(gone.saturating_sub(20)..written.load(Ordering::Acquire).max(gone) + 1);
                    match store.get(&key(RUN, event, 0)).unwrap() {
                        Some(fragment) => {
                            assert!(event >= gone, "event {event} was removed");
                            genuine(&fragment, BYTES_MAX);
                            if guards.len() < 40 && rng.random_bool(0.05) {
                                guards.push(fragment);
                            }
                        }
                        None => assert!(event >= written.load(Ordering::Acquire).min(gone), "event {event} is lost"),
                    }
                }
            }
        }
        guards
    });
    // Memory under these guards was dead for most of the time, and was not used again.
    for guard in held.iter().flatten() {
        genuine(guard, BYTES_MAX);
    }
    drop(held);
    eventually(&store, "all guards are gone", || store.stats().holders.iter().all(|holder| holder.guards == 0));
    assert_balanced(&store);
}

#[test]
fn versions_go_up_and_are_whole() {
    let (_dir, store) = open(&sealed_events());
    let keys = 8;
    for event in 0..keys {
        put_tagged(&store, event, 0, 0);
    }
    let done = AtomicU64::new(0);
    together(|thread| {
        let mut last = vec![0; keys as usize];
        if thread < 2 {
            // Two writers, each with its own half of the keys, so that version and tag go together.
            for round in 1..=300_u64 {
                for event in (thread..keys).step_by(2) {
                    let key = key(RUN, event, 0);
                    let bytes = payload(&key, round * 16, BYTES_MAX);
                    assert_eq!(u64::from(store.update(&key, &bytes, None).unwrap()), round);
                }
            }
            done.fetch_add(1, Ordering::Release);
        } else {
            while done.load(Ordering::Acquire) < 2 {
                for event in 0..keys {
                    let fragment = store.get(&key(RUN, event, 0)).unwrap().expect("updates never take a key away");
                    assert_eq!(genuine(&fragment, BYTES_MAX), u64::from(fragment.version()) * 16);
                    assert!(fragment.version() >= last[event as usize], "an older version came back");
                    last[event as usize] = fragment.version();
                }
            }
        }
    });
    assert_eq!(store.ledger(RUN).unwrap().superseded.fragments, keys * 300);
    assert_balanced(&store);
}

#[test]
fn ranges_beside_writes_are_in_order_and_miss_nothing() {
    let (_dir, store) = open(&sealed_events());
    let (events, done) = (200_u64, AtomicBool::new(false));
    let written = AtomicU64::new(0);
    together(|thread| {
        if thread == 0 {
            for event in 0..events {
                // Out of order, so that the tree grows in all places.
                let scattered = event * 7919 % events;
                for source in 0..3 {
                    put_tagged(&store, scattered, source, event);
                }
                written.store(event + 1, Ordering::Release);
            }
            done.store(true, Ordering::Release);
        } else if thread == 1 {
            // Another run beside it comes and goes.
            let bounds = Bounds::parse(store.schema(), "2").unwrap();
            while !done.load(Ordering::Acquire) {
                let first = written.load(Ordering::Acquire) * 100;
                for event in first..first + 20 {
                    put(&store, &key(2, event, 0), b"short-lived").map(drop).unwrap();
                }
                store.remove_range(&bounds).unwrap();
            }
        } else {
            let bounds = Bounds::parse(store.schema(), &format!("{RUN}/*/*")).unwrap();
            while !done.load(Ordering::Acquire) {
                let before = written.load(Ordering::Acquire);
                let found: Vec<_> = store.range(&bounds).map(|fragment| fragment.unwrap()).collect();
                assert!(found.windows(2).all(|pair| pair[0].key() < pair[1].key()), "not in order");
                found.iter().for_each(|fragment| drop(genuine(fragment, BYTES_MAX)));
                let keys: BTreeSet<_> = found.iter().map(|fragment| fragment.key()).collect();
                for event in (0..before).map(|event| event * 7919 % events) {
                    assert!((0..3).all(|source| keys.contains(&key(RUN, event, source))), "event {event} is missing");
                }
            }
        }
    });
    assert_balanced(&store);
}

#[test]
fn stragglers_survive_evacuation_under_load() {
    let (_dir, store) = open(&count(1));
    let per_thread = 2500_u64;
    let long_lived = |event: u64| event % 25 == 0;
    together(|thread| {
        let store = store.named(&format!("thread-{thread}"));
        let mut kept = Vec::new();
        for step in 0..per_thread {
            let event = thread * 1_000_000 + step;
            assert_eq!(put_tagged(&store, event, 0, event), PutOutcome::Stored);
            if long_lived(step) {
                kept.push(event);
            } else {
                let lease = store.lease(&primary(&store, event), None).unwrap().expect("ready at once");
                lease.reject().unwrap();
            }
            if step % 50 == 0 {
                for event in &kept {
                    let fragment = store.get(&key(RUN, *event, 0)).unwrap().expect("a straggler");
                    assert_eq!(genuine(&fragment, BYTES_MAX) % 16, event % 16);
                }
            }
        }
    });
    // Some 15 MB went through 4 MiB.
    assert!(store.stats().evacuated > 0, "{:?}", store.stats());
    for thread in 0..THREADS {
        for step in 0..per_thread {
            let found = store.get(&key(RUN, thread * 1_000_000 + step, 0)).unwrap();
            assert_eq!(found.is_some(), long_lived(step), "thread {thread}, step {step}");
            found.iter().for_each(|fragment| drop(genuine(fragment, BYTES_MAX)));
        }
    }
    assert_balanced(&store);
}

#[test]
fn a_worker_that_waits_is_woken() {
    let (_dir, store) = open(&count(1));
    std::thread::scope(|scope| {
        let request = GetAny { wait: Duration::from_secs(60), ..GetAny::default() };
        let store = &store;
        let waiting = scope.spawn(move || store.get_any(&request).unwrap());
        put_tagged(store, 1, 0, 1);
        let leases = waiting.join().unwrap();
        assert_eq!(leases.len(), 1);
        leases[0].reject().unwrap();
    });
}

#[test]
fn closing_beside_calls_ends_them_in_order() {
    let (dir, store) = open(&sealed_events());
    let written = together(|thread| {
        let mut written = 0;
        loop {
            if thread == 0 && written == 200 {
                store.close().unwrap();
            }
            let key = key(RUN, thread * 1_000_000 + written, 0);
            match put(&store, &key, &payload(&key, 1, 300)) {
                Ok(outcome) => assert_eq!(outcome, PutOutcome::Stored),
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Closed, "{error}");
                    return written;
                }
            }
            written += 1;
        }
    });
    drop(store);
    let store = Store::open(&dir.store(), small_config()).unwrap();
    for (thread, written) in (0..).zip(&written) {
        for event in 0..*written {
            let fragment = store.get(&key(RUN, thread * 1_000_000 + event, 0)).unwrap().expect("it was acknowledged");
            genuine(&fragment, 300);
        }
    }
    assert_eq!(store.ledger(RUN).unwrap().stored.fragments, written.iter().sum::<u64>());
    assert_balanced(&store);
}
