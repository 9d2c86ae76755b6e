//! Inhibit where both levels are full: whose turn it is, and that it ends.

use crate::common::{TempDir, eventually, key, put, refused};
use crate::levels::{create, events_of, two_levels};
use forebay_store::core::{Bounds, Kind};
use forebay_store::{Config, InhibitClass, PutOutcome, Store};
use std::time::Duration;

/// Accepts the events from `first` on as they come, until a put finds no space; answers the number of the next.
fn accept_until_full(store: &Store, first: u64) -> u64 {
    for event in first.. {
        let once = || put(store, &key(1, event, 0), &[7; 8 << 10]);
        if once().is_err() {
            // What can go down does; full is only full when that does not help.
            store.tick();
            if let Err(error) = once() {
                assert!(matches!(error.kind(), Kind::Full), "{error}");
                return event;
            }
        }
        store.lease(&primary(store, event), None).unwrap().unwrap().accept(&["main"]).unwrap();
        if event % 16 == 0 {
            store.tick();
        }
        assert!(event - first < 4096, "more than both levels hold");
    }
    unreachable!("the loop returns")
}

fn primary(store: &Store, event: u64) -> forebay_store::core::Primary {
    store.schema().primary(&[1, event]).unwrap()
}

#[test]
fn a_full_warm_level_inhibits_for_the_archive_until_it_is_emptied() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(1), &two_levels(dir.path(), 1));
    let events = accept_until_full(&store, 0);
    let stats = store.stats();
    let inhibit = stats.inhibit.expect("both levels are full");
    assert_eq!((inhibit.class, &*inhibit.scope, &*inhibit.owner), (InhibitClass::WarmFull, "warm level", "archive"));
    assert!(inhibit.cause.contains("% accepted") && inhibit.cause.starts_with("warm fill "), "{inhibit}");
    assert!(events * 8192 > 4 << 20, "{events} events are less than the hot level alone holds");
    let message = refused(put(&store, &key(1, events, 0), &[7; 8 << 10]), Kind::Full);
    for words in ["warm level: warm fill", "owner: archive; ends when accepted events are taken over and released"] {
        assert!(message.contains(words), "{words} in {message}");
    }
    // At once, as an archive would that takes whole containers.
    assert_eq!(store.remove_range(&Bounds::parse(store.schema(), "*").unwrap()).unwrap(), events);
    eventually(&store, "inhibit ends", || store.stats().inhibit.is_none());
    assert!(store.stats().warm.unwrap().fill <= 0.75);
    let stats = store.stats();
    assert_eq!(stats.dead_time.total(), Duration::from_nanos(stats.inhibited_ns));
    assert!(!stats.dead_time.of(InhibitClass::WarmFull).is_zero());
    // And takes as much again.
    let again = accept_until_full(&store, events) - events;
    assert!(again * 10 >= events * 8, "{again} after {events}");
}

/// Demotion keeps the hot level below its mark as long as the warm one has room: no dead time.
#[test]
fn while_warm_has_room_nobody_is_held() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(1), &two_levels(dir.path(), 1));
    // More than the hot level holds, undecided.
    for event in 0..600 {
        assert_eq!(put(&store, &key(1, event, 0), &[7; 8 << 10]).unwrap(), PutOutcome::Stored);
        if event % 8 == 0 {
            store.tick();
        }
        assert_eq!(store.stats().inhibit, None, "{event}: {:?}", store.stats().fill);
    }
    assert_eq!(store.stats().dead_time.total(), Duration::ZERO);
    store.remove_range(&Bounds::parse(store.schema(), "*").unwrap()).unwrap();
}

#[test]
fn marks_of_demotion_must_agree_with_those_of_inhibit() {
    let dir = TempDir::new();
    let config = Config { demote_high: 0.95, ..two_levels(dir.path(), 1) };
    let message = refused(Store::create(&dir.store(), &events_of(1), config), Kind::Invalid);
    assert!(message.contains("demote_high 0.95 and hot_high 0.9"), "{message}");
    let good = two_levels(dir.path(), 1);
    create(&dir, &events_of(1), &good).close().unwrap();
    // The devices are known from the store itself.
    let config = Config { warm: Vec::new(), hot_low: 0.4, ..good };
    let message = refused(Store::open(&dir.store(), config), Kind::Invalid);
    assert!(message.contains("demote_low 0.5 and hot_low 0.4"), "{message}");
}
