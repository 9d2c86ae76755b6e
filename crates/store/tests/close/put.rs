//! Puts, updates, results and conflicts beside the close of their store.

use crate::close::{closed_or_outlasted, open_when_free, race, stored};
use crate::common::{TempDir, assert_balanced, key, put, sealed_events, small_config};
use forebay_store::core::{Bounds, Kind, Result};
use forebay_store::{PutOptions, PutOutcome, Store};
use std::time::Duration;

const THREADS: u64 = 6;
const PUTS: u64 = 200;

/// A put that meets the close does not end its record in the next life, which may have acknowledged that record.
#[test]
fn puts_beside_close_leave_the_next_life_alone() {
    race(|round| {
        let dir = TempDir::new();
        let store = Store::create(&dir.store(), &sealed_events(), small_config()).unwrap();
        let of = |thread: u64, number: u64| key(1, number, thread);
        let put_all = |thread: u64| {
            for number in 0..PUTS {
                match put(&store, &of(thread, number), &[thread as u8; 100]) {
                    Ok(outcome) => assert_eq!(outcome, PutOutcome::Stored),
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Closed, "{error}");
                        return number;
                    }
                }
            }
            PUTS
        };
        std::thread::scope(|scope| {
            let putting: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || put_all(thread))).collect();
            std::thread::sleep(Duration::from_micros(50 + round * 10));
            closed_or_outlasted(store.close());
            let next = open_when_free(|| Store::open(&dir.store(), small_config()));
            // What the last life had in flight is put again: from here on it is acknowledged.
            for (thread, number) in (0..THREADS).flat_map(|thread| (0..PUTS).map(move |number| (thread, number))) {
                let again = put(&next, &of(thread, number), &[thread as u8; 100]).unwrap();
                assert_ne!(again, PutOutcome::Late);
            }
            let acknowledged: Vec<u64> = putting.into_iter().map(|thread| thread.join().unwrap()).collect();
            next.close().unwrap();
            drop(next);
            let third = open_when_free(|| Store::open(&dir.store(), small_config()));
            for (thread, number) in (0..THREADS).flat_map(|thread| (0..PUTS).map(move |number| (thread, number))) {
                let fragment = third.get(&of(thread, number)).unwrap();
                assert!(
                    fragment.is_some_and(|fragment| fragment.iter().all(|&byte| byte == thread as u8)),
                    "round {round}: {number}/{thread} is gone; the first life acknowledged {acknowledged:?}"
                );
            }
            assert_balanced(&third);
        });
    });
}

/// The same for what writes records otherwise: reservations, updates, and bytes that are kept for a person.
#[test]
fn other_writers_beside_close_leave_the_next_life_alone() {
    race(|round| {
        let dir = TempDir::new();
        let store = Store::create(&dir.store(), &sealed_events(), small_config()).unwrap();
        (0..8).for_each(|event| stored(put(&store, &key(1, event, 0), &[0; 100])));
        let until_closed = |call: &dyn Fn(u64) -> Result<()>| {
            for number in 0.. {
                match call(number).map_err(|error| error.kind()) {
                    Err(Kind::Closed) => return,
                    Err(Kind::Conflict | Kind::Full) | Ok(()) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
        };
        let update = |number: u64| store.update(&key(1, number % 8, 0), &[number as u8; 100], None).map(drop);
        let conflict = |number: u64| put(&store, &key(1, number % 8, 0), &[255 - number as u8; 50]).map(drop);
        let reserve = |number: u64| {
            let reservation = store.reserve(&key(2, number, 0), 100, &PutOptions::default())?;
            // Every other one is given up.
            if number.is_multiple_of(2) { reservation.commit().map(drop) } else { Ok(()) }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| until_closed(&update));
            scope.spawn(|| until_closed(&conflict));
            scope.spawn(|| until_closed(&reserve));
            std::thread::sleep(Duration::from_micros(100 + round * 10));
            closed_or_outlasted(store.close());
            let next = open_when_free(|| Store::open(&dir.store(), small_config()));
            let found = |store: &Store| {
                let all = store.range(&Bounds::all(store.schema())).map(|fragment| {
                    let fragment = fragment.unwrap();
                    fragment.verify().unwrap();
                    (fragment.key(), fragment.to_vec())
                });
                (all.collect::<Vec<_>>(), format!("{:?}", store.conflicts()))
            };
            let before = found(&next);
            next.close().unwrap();
            drop(next);
            let third = open_when_free(|| Store::open(&dir.store(), small_config()));
            assert_eq!(found(&third), before, "round {round}");
            assert_balanced(&third);
        });
    });
}
