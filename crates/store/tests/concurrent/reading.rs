//! Readers beside writers, removals, evacuation and close.

use crate::common::fixture::RUN;
use crate::common::{assert_balanced, eventually, genuine, key, payload, put, sealed_events, small_config};
use crate::concurrent::{BYTES_MAX, THREADS, check, count, feed, open, primary, together};
use forebay_store::core::{Bounds, Kind};
use forebay_store::{PutOutcome, Store};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
                    feed(&store, event, 0, event);
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
                    let there = written.load(Ordering::Acquire);
                    let event = rng.random_range(gone.saturating_sub(20)..there.max(gone) + 1);
                    match store.get(&key(RUN, event, 0)).unwrap() {
                        Some(fragment) => {
                            assert!(event >= gone, "event {event} was removed");
                            genuine(&fragment, BYTES_MAX);
                            // Each guard may keep a segment of its own: few enough that the writer always finds others.
                            if guards.len() < 10 && rng.random_bool(0.05) {
                                guards.push(fragment);
                            }
                        }
                        // Written before, and not even being removed after.
                        None => assert!(event >= there || event <= removed.load(Ordering::Acquire), "{event} is lost"),
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
        feed(&store, event, 0, 0);
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
                    feed(&store, scattered, source, event);
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
                    assert_ne!(put(&store, &key(2, event, 0), b"short-lived").unwrap(), PutOutcome::Duplicate);
                }
                store.remove_range(&bounds).unwrap();
            }
        } else {
            let bounds = Bounds::parse(store.schema(), &format!("{RUN}/*/*")).unwrap();
            while !done.load(Ordering::Acquire) {
                let before = written.load(Ordering::Acquire);
                let found: Vec<_> = store.range(&bounds).map(|fragment| fragment.unwrap()).collect();
                assert!(found.windows(2).all(|pair| pair[0].key() < pair[1].key()), "not in order");
                found.iter().for_each(check);
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
    let long_lived = |event: u64| event.is_multiple_of(25);
    together(|thread| {
        let store = store.named(&format!("thread-{thread}"));
        let mut kept = Vec::new();
        for step in 0..per_thread {
            let event = thread * 1_000_000 + step;
            feed(&store, event, 0, event);
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
            found.iter().for_each(check);
        }
    }
    assert_balanced(&store);
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
            // The others need not fill the region while they wait for the close.
            if thread > 0 && written == 2000 {
                return written;
            }
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
