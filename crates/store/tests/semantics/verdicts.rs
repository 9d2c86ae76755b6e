//! What a verdict does, that there is one per event, and that its repetition gets the same answer.

use crate::common::fixture::{Fixture, RUN};
use crate::common::refused;
use crate::semantics::single;
use forebay_store::Sources;
use forebay_store::core::{Kind, LiveState, Token};

#[test]
fn a_rejected_event_is_gone() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, &[1; 5000]);
    store.take(1).reject().unwrap();
    for _ in 0..2 {
        assert_eq!(store.read(1, 0), None);
        assert!(store.get_event(&store.primary(1), &Sources::All).unwrap().is_none());
        assert!(!store.release(&store.primary(1)).unwrap());
        assert!(!store.seal(&store.primary(1)).unwrap());
        let ledger = store.ledger(RUN).unwrap();
        assert_eq!((ledger.rejected.fragments, ledger.rejected.bytes), (1, 5000));
        store.reopen();
    }
}

#[test]
fn an_accepted_event_stays_until_the_archive_has_it() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, b"keep me");
    store.take(1).accept(&["physics", "express"]).unwrap();
    for _ in 0..2 {
        assert_eq!(store.state(1), Some(LiveState::Accepted));
        assert_eq!(store.read(1, 0).unwrap(), b"keep me");
        assert!(store.any(1).is_empty());
        store.reopen();
    }
    assert!(store.release(&store.primary(1)).unwrap());
    for _ in 0..2 {
        assert!(!store.release(&store.primary(1)).unwrap());
        assert_eq!(store.read(1, 0), None);
        assert_eq!(store.ledger(RUN).unwrap().released.fragments, 1);
        store.reopen();
    }
}

#[test]
fn a_debug_event_stays_until_it_is_released() {
    let mut keyspace = single();
    keyspace.deliveries_max = 1;
    let mut store = Fixture::new(&keyspace);
    store.stored(1, 0, b"poison");
    let lease = store.take(1);
    store.advance(store.config.lease * 2);
    refused(lease.reject(), Kind::Fenced);
    drop(lease);
    for _ in 0..2 {
        assert_eq!(store.state(1), Some(LiveState::Debug));
        assert_eq!(store.read(1, 0).unwrap(), b"poison");
        store.reopen();
    }
    assert!(store.release(&store.primary(1)).unwrap());
    assert_eq!(store.read(1, 0), None);
    store.reopen();
    assert_eq!(store.read(1, 0), None);
}

#[test]
fn only_accepted_and_debug_events_are_released() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"ready");
    assert!(!store.release(&store.primary(1)).unwrap());
    let lease = store.take(1);
    assert!(!store.release(&store.primary(1)).unwrap());
    assert!(!store.release(&store.primary(2)).unwrap());
    assert_eq!(store.read(1, 0).unwrap(), b"ready");
    lease.reject().unwrap();
}

#[test]
fn the_same_verdict_again_gets_the_same_answer() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, b"a");
    store.stored(2, 0, b"b");
    let (rejected, accepted) = (store.take(1).token, store.take(2).token);
    store.reject(&store.primary(1), &rejected).unwrap();
    store.accept(&store.primary(2), &accepted, &["main"]).unwrap();
    for _ in 0..3 {
        store.reject(&store.primary(1), &rejected).unwrap();
        store.accept(&store.primary(2), &accepted, &["main"]).unwrap();
        let ledger = store.ledger(RUN).unwrap();
        assert_eq!((ledger.rejected.fragments, ledger.live.accepted.fragments), (1, 1));
        store.reopen();
    }
}

#[test]
fn another_verdict_is_fenced() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, b"a");
    store.stored(2, 0, b"b");
    let (rejected, accepted) = (store.take(1).token, store.take(2).token);
    store.reject(&store.primary(1), &rejected).unwrap();
    store.accept(&store.primary(2), &accepted, &["main"]).unwrap();
    for _ in 0..2 {
        refused(store.accept(&store.primary(1), &rejected, &["main"]), Kind::Fenced);
        refused(store.requeue(&store.primary(1), &rejected), Kind::Fenced);
        refused(store.reject(&store.primary(2), &accepted), Kind::Fenced);
        refused(store.requeue(&store.primary(2), &accepted), Kind::Fenced);
        assert_eq!(store.read(2, 0).unwrap(), b"b");
        store.reopen();
    }
}

#[test]
fn tokens_of_other_events_and_of_nobody_are_fenced() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"a");
    store.stored(2, 0, b"b");
    let (first, second) = (store.take(1), store.take(2));
    refused(store.reject(&store.primary(1), &second.token), Kind::Fenced);
    refused(store.reject(&store.primary(1), &Token::NONE), Kind::Fenced);
    refused(store.reject(&store.primary(9), &first.token), Kind::Fenced);
    let future = Token { boot: first.token.boot + 1, ..first.token };
    refused(store.reject(&store.primary(1), &future), Kind::Fenced);
    let elsewhere = Token { epoch: first.token.epoch + 1, ..first.token };
    refused(store.reject(&store.primary(1), &elsewhere), Kind::Fenced);
    first.reject().unwrap();
    second.reject().unwrap();
}

#[test]
fn a_verdict_repeated_on_another_event_is_fenced() {
    let mut store = Fixture::new(&single());
    for event in [1, 2, 300] {
        store.stored(event, 0, b"x");
    }
    let token = store.take(1).token;
    store.reject(&store.primary(1), &token).unwrap();
    for _ in 0..2 {
        // 2 is a neighbour, 300 is far away, 4 was never seen.
        for event in [2, 300, 4] {
            refused(store.reject(&store.primary(event), &token), Kind::Fenced);
        }
        assert_eq!((store.state(2), store.state(300)), (Some(LiveState::Ready), Some(LiveState::Ready)));
        store.reopen();
    }
}

#[test]
fn a_requeued_event_is_ready_for_the_next_worker() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"a");
    let first = store.take(1);
    first.requeue().unwrap();
    assert_eq!(store.state(1), Some(LiveState::Ready));
    let second = store.take(1);
    refused(first.reject(), Kind::Fenced);
    refused(first.accept(&["main"]), Kind::Fenced);
    second.reject().unwrap();
}

#[test]
fn many_verdicts_are_remembered_over_many_openings() {
    let mut store = Fixture::new(&single());
    let mut given = Vec::new();
    for round in 0..5_u64 {
        for event in 0..200 {
            store.stored(round * 1000 + event, 0, b"x");
        }
        for lease in store.any(200) {
            lease.reject().unwrap();
            given.push((lease.primary, lease.token));
        }
        store.reopen();
        for (primary, token) in given.iter().rev().take(16) {
            store.reject(primary, token).unwrap();
            refused(store.accept(primary, token, &["main"]), Kind::Fenced);
        }
        // Older answers may be forgotten, but no event is ever decided otherwise.
        for (primary, token) in &given {
            refused(store.accept(primary, token, &["main"]), Kind::Fenced);
        }
    }
    assert_eq!(store.ledger(RUN).unwrap().rejected.events, 1000);
    assert_eq!(store.stats().decided_events, 1000);
}
