//! Guards of `range`, `get` and their kin beside the close of their store.

use crate::close::{closed_or_outlasted, open_when_free, race, stored};
use crate::common::{TempDir, key, put, sealed_events, small_config};
use forebay_store::core::{Bounds, Kind, Result};
use forebay_store::{Fragment, Sources, Store};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const EVENTS: u64 = 40;

/// Takes what was read, one guard at a time; `false` once the store is closed.
type Look<'a> = &'a mut dyn FnMut(Result<Fragment>) -> bool;

/// Reads in a loop, one way or another, until the store says that it is closed; no guard is of a store that others have.
fn guards_beside_close(read: impl Fn(&Store, Look<'_>) -> bool + Send + Sync) {
    race(|round| {
        let dir = TempDir::new();
        let store = Store::create(&dir.store(), &sealed_events(), small_config()).unwrap();
        (0..EVENTS).for_each(|event| stored(put(&store, &key(1, event, 0), &[1; 3000])));
        let opened = &AtomicBool::new(false);
        let look = move |item: Result<Fragment>| match item {
            Ok(fragment) => {
                let free = opened.load(Ordering::SeqCst);
                assert!(!free, "round {round}: a guard of a store that others have");
                assert!(fragment.iter().all(|&byte| byte == 1), "bytes of another life");
                assert!(!opened.load(Ordering::SeqCst), "round {round}: opened under a guard");
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::Closed, "{error}");
                false
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (store, read) = (&store, &read);
                scope.spawn(move || while read(store, &mut { look }) {});
            }
            std::thread::sleep(Duration::from_micros(300 + round * 20));
            closed_or_outlasted(store.close());
            let next = open_when_free(|| Store::open(&dir.store(), small_config()));
            opened.store(true, Ordering::SeqCst);
            next.remove_range(&Bounds::all(next.schema())).unwrap();
            (0..4 * EVENTS).for_each(|event| stored(put(&next, &key(2, event, 0), &[2; 3000])));
        });
    });
}

/// Guards that are given out beside a close never show memory that another life can have.
#[test]
fn ranges_beside_close_never_show_another_life() {
    guards_beside_close(|store, look| store.range(&Bounds::all(store.schema())).all(look));
}

#[test]
fn gets_and_events_beside_close_never_show_another_life() {
    guards_beside_close(|store, look| {
        let primary = store.schema().primary(&[1, 8]).unwrap();
        let event = || store.get_event(&primary, &Sources::All).map(|event| event.unwrap().fragments.remove(0));
        look(store.get(&key(1, 7, 0)).map(Option::unwrap)) && look(event())
    });
}
