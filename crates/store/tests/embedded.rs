//! Behaviour that only code in the store's process sees: fragments in place, reservations that hold their key, and
//! calls that never wait, which book nothing where they would.

use crate::common::{TempDir, key, put, refused, sealed_events, small_config};
use forebay_store::core::{Kind, crc32c};
use forebay_store::{PutOptions, PutOutcome, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

fn small() -> (TempDir, Store) {
    let dir = TempDir::new();
    let store = Store::create(&dir.store(), &sealed_events(), small_config()).unwrap();
    (dir, store)
}

#[test]
fn a_put_that_would_wait_says_so_and_is_no_offer() {
    let (_dir, store) = small();
    let options = PutOptions::default();
    let value = [7; 16 << 10];
    let mut event = 0;
    while store.try_put(&key(1, event, 0), &value, &options, Some(crc32c(&value))).unwrap().is_some() {
        event += 1;
    }
    assert!(event > 50, "{event} events found space");
    assert!(store.try_reserve(&key(1, event, 0), value.len(), &options).unwrap().is_none());
    let ledger = store.ledger(1).unwrap();
    assert_eq!((ledger.offered.fragments, ledger.refused.fragments), (event, 0));
    refused(put(&store, &key(1, event, 0), &value), Kind::Full);
    assert_eq!(store.ledger(1).unwrap().refused.fragments, 1);
}

#[test]
fn bytes_that_are_not_as_they_were_sent_are_not_stored() {
    let (_dir, store) = small();
    let (options, wrong) = (PutOptions::default(), Some(crc32c(b"sent")));
    refused(store.try_put(&key(1, 1, 0), b"came", &options, wrong), Kind::Corrupt);
    assert!(store.get(&key(1, 1, 0)).unwrap().is_none());
    assert_eq!(store.try_put(&key(1, 1, 0), b"sent", &options, wrong).unwrap(), Some(PutOutcome::Stored));
    refused(store.try_put(&key(1, 1, 0), b"came", &options, wrong), Kind::Corrupt);
    assert_eq!(store.try_put(&key(1, 1, 0), b"sent", &options, wrong).unwrap(), Some(PutOutcome::Duplicate));
    assert_eq!(store.ledger(1).unwrap().conflict.fragments, 0);
}

#[test]
fn a_put_beside_one_in_flight_would_wait() {
    let (_dir, store) = small();
    let options = PutOptions::default();
    let first = store.try_reserve(&key(1, 1, 0), 4, &options).unwrap().unwrap();
    assert!(store.try_put(&key(1, 1, 0), b"data", &options, None).unwrap().is_none());
    first.abort();
    assert_eq!(store.try_put(&key(1, 1, 0), b"data", &options, None).unwrap(), Some(PutOutcome::Stored));
}

#[test]
fn a_fragment_of_the_hot_level_is_read_in_place() {
    let (_dir, store) = small();
    assert_eq!(put(&store, &key(1, 1, 0), b"data").unwrap(), PutOutcome::Stored);
    assert!(!store.get(&key(1, 1, 0)).unwrap().unwrap().is_copied());
    assert!(!store.may_wait(&store.schema().primary(&[1, 1]).unwrap(), None));
}

#[test]
fn a_reservation_is_in_flight_and_keeps_its_run_from_closing() {
    let (_dir, store) = small();
    store.run_open(1, &sealed_events().run).unwrap();
    let reservation = store.reserve(&key(1, 1, 0), 1, &PutOptions::default()).unwrap();
    assert_eq!(store.why(&key(1, 1, 0)).unwrap().answer, "in-flight");
    refused(store.run_close(1), Kind::Unavailable);
    assert_eq!(reservation.commit().unwrap(), PutOutcome::Stored);
    refused(store.run_close(1), Kind::Unavailable);
    let event = store.schema().primary(&[1, 1]).unwrap();
    assert!(store.remove_event(&event).unwrap());
    store.run_close(1).unwrap();
}

#[derive(Default)]
struct Counted(AtomicU32);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_task_is_woken_once_when_something_is_ready() {
    let (_dir, store) = small();
    let counted = Arc::new(Counted::default());
    let waker = Waker::from(counted.clone());
    store.wake_when_ready(&waker);
    store.wake_when_ready(&waker);
    assert_eq!(put(&store, &key(1, 1, 0), b"data").unwrap(), PutOutcome::Stored);
    assert_eq!(counted.0.load(Ordering::SeqCst), 0);
    for event in [1, 2] {
        assert_eq!(put(&store, &key(1, event, 1), b"data").unwrap(), PutOutcome::Stored);
        store.seal(&store.schema().primary(&[1, event]).unwrap()).unwrap();
    }
    assert_eq!(counted.0.load(Ordering::SeqCst), 1);
}
