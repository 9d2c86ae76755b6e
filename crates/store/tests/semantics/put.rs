//! Put, reserve, get: what is stored, what is a duplicate, a conflict or late.

use crate::common::fixture::{Fixture, RUN};
use crate::common::{contents, refused, sources_of};
use crate::semantics::{single, three};
use forebay_store::core::{Kind, LiveState, crc32c};
use forebay_store::{Arrival, Arrivals, PutOptions, PutOutcome, Sources};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn what_was_put_is_read() {
    let store = Fixture::new(&three());
    store.stored(1, 0, b"first");
    assert_eq!(store.read(1, 0).unwrap(), b"first");
    assert_eq!(store.read(1, 1), None);
    assert_eq!(store.read(2, 0), None);
}

#[test]
fn a_fragment_carries_key_status_version_and_checksum() {
    let store = Fixture::new(&three());
    let options = PutOptions { status: 0xDEAD_0001, ..PutOptions::default() };
    assert_eq!(store.put(&store.key(1, 2), b"payload", &options).unwrap(), PutOutcome::Stored);
    let fragment = store.get(&store.key(1, 2)).unwrap().unwrap();
    assert_eq!((fragment.key(), fragment.status(), fragment.version()), (store.key(1, 2), 0xDEAD_0001, 0));
    assert_eq!(fragment.checksum(), crc32c(b"payload"));
    fragment.verify().unwrap();
}

#[test]
fn the_same_bytes_again_are_a_duplicate() {
    let mut store = Fixture::new(&three());
    store.stored(1, 0, b"same");
    assert_eq!(store.try_put(1, 0, b"same").unwrap(), PutOutcome::Duplicate);
    store.reopen();
    assert_eq!(store.try_put(1, 0, b"same").unwrap(), PutOutcome::Duplicate);
    assert_eq!(store.ledger(RUN).unwrap().stored.fragments, 1);
}

#[test]
fn other_bytes_conflict_and_the_first_stay() {
    let store = Fixture::new(&three());
    store.stored(1, 0, b"first");
    refused(store.try_put(1, 0, b"other"), Kind::Conflict);
    refused(store.try_put(1, 0, b""), Kind::Conflict);
    assert_eq!(store.read(1, 0).unwrap(), b"first");
    assert_eq!(store.ledger(RUN).unwrap().conflict.fragments, 2);
}

#[test]
fn a_late_reservation_is_booked_once() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"first");
    let lease = store.take(1);
    let reservation = store.reserve(&store.key(1, 1), 7, &PutOptions::default()).unwrap();
    assert_eq!(reservation.commit().unwrap(), PutOutcome::Late);
    lease.reject().unwrap();
    let ledger = store.ledger(RUN).unwrap();
    assert_eq!((ledger.offered.fragments, ledger.late.fragments, ledger.late.bytes), (2, 1, 7));
}

#[test]
fn conflicting_copies_are_kept_but_bounded() {
    let store = Fixture::with(&three(), |config| config.conflict_share = 1.0 / 64.0);
    store.stored(1, 0, &[0; 1024]);
    refused(store.try_put(1, 0, &[1; 1024]), Kind::Conflict);
    assert_eq!(store.stats().conflicts_kept, 1);
    for value in 1..=255_u8 {
        refused(store.try_put(1, 0, &[value; 1024]), Kind::Conflict);
    }
    let kept = store.stats().conflicts_kept;
    assert!((1..=64).contains(&kept), "{kept} copies of 1 KiB kept, in 64 KiB");
    assert_eq!(store.ledger(RUN).unwrap().conflict.fragments, 256);
    assert_eq!(store.read(1, 0).unwrap(), [0; 1024]);
}

#[test]
fn a_fragment_without_bytes_is_stored_and_counts() {
    let mut store = Fixture::new(&three());
    store.stored(1, 0, b"");
    store.stored(1, 1, b"");
    assert_eq!(store.state(1), Some(LiveState::Open));
    store.stored(1, 2, b"");
    assert_eq!(store.state(1), Some(LiveState::Ready));
    assert_eq!(store.try_put(1, 0, b"").unwrap(), PutOutcome::Duplicate);
    store.reopen();
    assert_eq!(store.read(1, 1).unwrap(), b"");
}

#[test]
fn a_ready_event_without_a_lease_still_takes_fragments() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"complete");
    assert_eq!(store.state(1), Some(LiveState::Ready));
    store.stored(1, 1, b"one more");
    let lease = store.take(1);
    assert_eq!(sources_of(&lease.fragments), [0, 1]);
    lease.reject().unwrap();
}

#[test]
fn a_leased_event_takes_no_fragments() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"complete");
    let lease = store.take(1);
    store.late(1, 1, b"late");
    assert_eq!(store.read(1, 1), None);
    lease.requeue().unwrap();
    assert_eq!(store.ledger(RUN).unwrap().late.fragments, 1);
}

#[test]
fn a_decided_event_takes_no_fragments() {
    let mut store = Fixture::new(&single());
    for event in 1..=4 {
        store.stored(event, 0, b"complete");
    }
    store.take(1).reject().unwrap();
    store.take(2).accept(&["physics"]).unwrap();
    store.take(3).accept(&["physics"]).unwrap();
    assert!(store.release(&store.primary(3)).unwrap());
    assert!(store.remove_event(&store.primary(4)).unwrap());
    for _ in 0..2 {
        for event in 1..=4 {
            store.late(event, 1, b"late");
            assert_eq!(store.read(event, 1), None);
        }
        for event in [1, 3, 4] {
            store.late(event, 0, b"complete");
        }
        store.reopen();
    }
}

#[test]
fn an_event_in_the_debug_stream_takes_no_fragments() {
    let mut keyspace = single();
    keyspace.deliveries_max = 1;
    let mut store = Fixture::new(&keyspace);
    store.stored(1, 0, b"poison");
    drop(store.take(1));
    store.advance(store.config.lease * 2);
    assert_eq!(store.state(1), Some(LiveState::Debug));
    store.late(1, 1, b"late");
    store.reopen();
    store.late(1, 1, b"late");
}

#[test]
fn a_reservation_is_filled_in_place() {
    let mut store = Fixture::new(&three());
    let mut reservation = store.reserve(&store.key(1, 0), 5, &PutOptions::default()).unwrap();
    assert_eq!(reservation.len(), 5);
    assert!(store.get(&store.key(1, 0)).unwrap().is_none(), "visible before its commit");
    reservation.copy_from_slice(b"bytes");
    assert_eq!(reservation.commit().unwrap(), PutOutcome::Stored);
    assert_eq!(store.read(1, 0).unwrap(), b"bytes");
    store.reopen();
    assert_eq!(store.read(1, 0).unwrap(), b"bytes");
    assert_eq!(store.try_put(1, 0, b"bytes").unwrap(), PutOutcome::Duplicate);
}

#[test]
fn a_reservation_given_up_leaves_nothing() {
    let mut store = Fixture::new(&three());
    store.reserve(&store.key(1, 0), 100, &PutOptions::default()).unwrap().abort();
    drop(store.reserve(&store.key(1, 0), 100, &PutOptions::default()).unwrap());
    assert_eq!(store.read(1, 0), None);
    store.stored(1, 0, b"by put");
    store.reopen();
    assert_eq!(store.read(1, 0).unwrap(), b"by put");
    assert_eq!(store.ledger(RUN).unwrap().stored.fragments, 1);
}

#[test]
fn a_reservation_over_a_lost_race_publishes_nothing() {
    let store = Fixture::new(&three());
    store.stored(1, 0, b"complete");
    store.stored(1, 1, b"complete");
    let reservation = store.reserve(&store.key(1, 2), 4, &PutOptions::default()).unwrap();
    assert!(store.seal(&store.primary(1)).unwrap());
    let lease = store.take(1);
    // The event is leased now, so that its worker sees a fixed set of fragments.
    assert_eq!(reservation.commit().unwrap(), PutOutcome::Late);
    assert_eq!(sources_of(&lease.get(&Sources::All).unwrap()), [0, 1]);
    lease.reject().unwrap();
    assert_eq!(store.read(1, 2), None);
}

#[test]
fn attributes_merge_and_a_differing_value_conflicts() {
    let mut store = Fixture::new(&three());
    assert_eq!(store.put_with(1, 0, b"a", &["lumi=7"]).unwrap(), PutOutcome::Stored);
    assert_eq!(store.put_with(1, 1, b"b", &["lumi=7", "class=calib-tile"]).unwrap(), PutOutcome::Stored);
    refused(store.put_with(1, 2, b"c", &["lumi=8"]), Kind::Conflict);
    assert_eq!(store.read(1, 2), None);
    store.stored(1, 3, b"without");
    for _ in 0..2 {
        let event = store.get_event(&store.primary(1), &Sources::None).unwrap().unwrap();
        assert_eq!(event.attributes, store.attributes(&["lumi=7", "class=calib-tile"]));
        store.reopen();
    }
}

#[test]
fn an_event_is_read_with_the_sources_that_were_asked_for() {
    let store = Fixture::new(&three());
    for source in [3, 1, 2] {
        store.stored(5, source, &[source as u8; 10]);
    }
    let read = |sources: &Sources| store.get_event(&store.primary(5), sources).unwrap().unwrap();
    assert_eq!(contents(&read(&Sources::All)), [(1, vec![1; 10]), (2, vec![2; 10]), (3, vec![3; 10])], "in key order");
    assert_eq!(sources_of(&read(&Sources::only(store.schema(), [3, 1, 9]).unwrap()).fragments), [1, 3]);
    assert!(read(&Sources::None).fragments.is_empty());
    assert_eq!(read(&Sources::None).state, LiveState::Ready);
    assert!(store.get_event(&store.primary(6), &Sources::All).unwrap().is_none());
}

#[test]
fn many_keys_are_answered_in_their_order() {
    let store = Fixture::new(&three());
    store.stored(1, 0, b"a");
    store.stored(2, 1, b"b");
    let asked = [(2, 1), (9, 9), (1, 0), (2, 1)].map(|(event, source)| store.key(event, source));
    let found = store.get_many(&asked).unwrap();
    let bytes: Vec<_> = found.iter().map(|fragment| fragment.as_ref().map(|fragment| fragment.to_vec())).collect();
    assert_eq!(bytes, [Some(b"b".to_vec()), None, Some(b"a".to_vec()), Some(b"b".to_vec())]);
}

#[test]
fn every_size_up_to_the_limit_comes_back() {
    let mut keyspace = three();
    keyspace.fragment_bytes_max = 40_000;
    let mut store = Fixture::new(&keyspace);
    let sizes = [0, 1, 7, 8, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097, 10_240, 39_999, 40_000];
    let bytes = |size: usize| (0..size).map(|at| (at * 31 + size) as u8).collect::<Vec<_>>();
    for (source, size) in sizes.into_iter().enumerate() {
        store.stored(1, source as u64, &bytes(size));
    }
    store.reopen();
    for (source, size) in sizes.into_iter().enumerate() {
        assert_eq!(store.read(1, source as u64).unwrap(), bytes(size), "{size} bytes");
    }
}

#[test]
fn arrivals_are_reported_once_per_stored_fragment() {
    #[derive(Default)]
    struct Log(Mutex<Vec<(u64, u32, u32, u32)>>);
    impl Arrivals for Log {
        fn arrived(&self, arrival: &Arrival) {
            let source = u64::from(*arrival.key.as_bytes().last().unwrap());
            self.0.lock().unwrap().push((source, arrival.length, arrival.checksum, arrival.status));
        }
    }
    let log = Arc::new(Log::default());
    let store = Fixture::with(&three(), |config| config.arrivals = Some(log.clone()));
    let options = PutOptions { status: 9, deadline: Some(Duration::ZERO), ..PutOptions::default() };
    assert_eq!(store.put(&store.key(1, 0), b"first", &options).unwrap(), PutOutcome::Stored);
    assert_eq!(store.try_put(1, 0, b"first").unwrap(), PutOutcome::Duplicate);
    refused(store.try_put(1, 0, b"other"), Kind::Conflict);
    store.stored(1, 1, b"");
    assert_eq!(*log.0.lock().unwrap(), [(0, 5, crc32c(b"first"), 9), (1, 0, crc32c(b""), 0)]);
}

#[test]
fn bytes_that_changed_on_their_way_are_not_stored() {
    let store = Fixture::new(&three());
    store.run_open(RUN, &store.keyspace().run.clone()).unwrap();
    let checksum = crc32c(b"bytes");
    let filled = |bytes: &[u8]| {
        let mut reservation = store.reserve(&store.key(1, 0), 5, &PutOptions::default()).unwrap();
        reservation.copy_from_slice(bytes);
        reservation
    };
    refused(filled(b"bytez").commit_checked(checksum), Kind::Corrupt);
    assert_eq!((store.read(1, 0), store.ledger(RUN).unwrap().offered.fragments), (None, 0));
    assert_eq!(filled(b"bytes").commit_checked(checksum).unwrap(), PutOutcome::Stored);
    assert_eq!(filled(b"bytes").commit_checked(checksum).unwrap(), PutOutcome::Duplicate);
    refused(filled(b"bytez").commit_checked(checksum), Kind::Corrupt);
    assert_eq!(store.read(1, 0).unwrap(), b"bytes");
}
