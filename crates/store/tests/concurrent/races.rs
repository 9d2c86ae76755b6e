//! Puts, leases, verdicts and removals against each other.

use crate::common::fixture::RUN;
use crate::common::{assert_balanced, genuine, key, payload, put, sealed_events, sources_of};
use crate::concurrent::{BYTES_MAX, THREADS, check, count, feed, number, open, primary, put_tagged, together};
use forebay_store::core::{Bounds, Kind, LiveState, Token};
use forebay_store::{GetAny, Lease, PutOptions, PutOutcome, Sources};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
            // Tags that differ by thread and are never those of no bytes.
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
        feed(&store, event, 0, event);
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
        let mut grants: Vec<(u64, Token, bool)> = Vec::new();
        if thread < 2 {
            for event in (thread..events).step_by(2) {
                feed(&store, event, 0, event);
                feed(&store, event, 1, event);
                written.fetch_add(1, Ordering::Relaxed);
            }
        }
        while decided.load(Ordering::Relaxed) < events {
            let request = GetAny { n: 3, wait: Duration::from_millis(5), ..GetAny::default() };
            for lease in store.get_any(&request).unwrap() {
                let event = number(&store, &lease.primary);
                assert_eq!(sources_of(&lease.fragments), [0, 1], "event {event}");
                lease.fragments.iter().for_each(|fragment| assert_eq!(genuine(fragment, BYTES_MAX) % 16, event % 16));
                let last =
                    !event.is_multiple_of(5) || lease.delivery > 1 || grants.iter().any(|(seen, ..)| *seen == event);
                grants.push((event, lease.token, last));
                match last {
                    // A time-out counts a delivery, a requeue does not: the same worker may see it again.
                    false => lease.requeue().unwrap(),
                    true if event.is_multiple_of(2) => lease.reject().unwrap(),
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
    assert_eq!((ledger.rejected.events, ledger.live.accepted.events), (events / 2, events / 2));
    assert_balanced(&store);
}

#[test]
fn of_many_verdicts_under_one_token_one_outcome_stands() {
    let (_dir, store) = open(&count(1));
    let events = 200;
    for event in 0..events {
        feed(&store, event, 0, event);
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

/// Streams of the test below: more than a mask has.
const STREAMS: usize = 40;

/// The first accept of all brings the stream's name: an equal one that looked for the name before, and found none, is its
/// repetition all the same.
#[test]
fn equal_accepts_at_once_into_a_new_stream_are_one_verdict() {
    for _ in 0..20 {
        let (_dir, store) = open(&count(1));
        let names: Vec<String> = (0..STREAMS).map(|number| format!("stream {number}")).collect();
        let leases: Vec<Lease> = (0..names.len() as u64)
            .map(|event| {
                feed(&store, event, 0, event);
                store.lease(&primary(&store, event), None).unwrap().unwrap()
            })
            .collect();
        let at_once = Barrier::new(THREADS as usize);
        let answers = together(|_| {
            let accept = |(lease, name): (&Lease, &String)| {
                at_once.wait();
                lease.accept(&[name])
            };
            leases.iter().zip(&names).map(accept).collect::<Vec<_>>()
        });
        for answer in answers.iter().flatten() {
            assert!(answer.is_ok(), "{answer:?}");
        }
        assert_balanced(&store);
    }
}

#[test]
fn a_put_beside_a_lease_is_either_in_the_event_or_late() {
    let (_dir, store) = open(&count(1));
    let events = 300;
    let outcomes = together(|thread| {
        let mut outcomes = Vec::new();
        for event in 0..events {
            if thread == 1 {
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
        for thread in [0, 2, 3] {
            let stored = outcomes[thread as usize][event as usize] == PutOutcome::Stored;
            assert_eq!(sources.contains(&thread), stored, "event {event}: {sources:?}");
        }
        found.fragments.iter().for_each(check);
    }
    assert_balanced(&store);
}

#[test]
fn a_put_beside_a_removal_never_brings_the_event_back() {
    let (_dir, store) = open(&sealed_events());
    let events = 300;
    for event in 0..events {
        feed(&store, event, 0, event);
    }
    together(|thread| {
        for event in 0..events {
            if thread == 0 {
                assert!(store.remove_event(&primary(&store, event)).unwrap());
            } else {
                assert_ne!(put_tagged(&store, event, thread, event), PutOutcome::Duplicate);
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
fn a_worker_that_waits_is_woken() {
    let (_dir, store) = open(&count(1));
    std::thread::scope(|scope| {
        let request = GetAny { wait: Duration::from_secs(60), ..GetAny::default() };
        let store = &store;
        let waiting = scope.spawn(move || store.get_any(&request).unwrap());
        feed(store, 1, 0, 1);
        let leases = waiting.join().unwrap();
        assert_eq!(leases.len(), 1);
        leases[0].reject().unwrap();
    });
}
