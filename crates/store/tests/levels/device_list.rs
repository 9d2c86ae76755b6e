//! `devices.toml` is not what the store was made with: nothing is served without a word.

use super::{all_down, create, events_of, two_levels};
use crate::common::fixture::RUN;
use crate::common::{TempDir, key, payload, put, refused};
use forebay_store::core::Kind;
use forebay_store::{Config, Store, measure};
use std::path::PathBuf;

const MOST: usize = 2000;
const EVENTS: u64 = 40;

fn bytes(event: u64) -> Vec<u8> {
    payload(&key(RUN, event, 0), event * 16, MOST)
}

/// A closed store with this many devices. All events but the last ten are on devices.
fn closed(dir: &TempDir, devices: usize) -> Config {
    let down = all_down(dir.path());
    let config =
        Config { demote_high: down.demote_high, demote_low: down.demote_low, ..two_levels(dir.path(), devices) };
    let store = create(dir, &events_of(1), &config);
    for event in 0..EVENTS {
        if event == EVENTS - 10 {
            measure::demote(&store);
        }
        let _ = put(&store, &key(RUN, event, 0), &bytes(event)).unwrap();
    }
    store.close().unwrap();
    // As an operator opens it: devices come from the list.
    Config { warm: Vec::new(), demote_high: 0.5, ..config }
}

fn there(store: &Store) -> u64 {
    let is_there = |event: &u64| {
        let found = store.get(&key(RUN, *event, 0)).unwrap();
        found.inspect(|found| assert_eq!(found.to_vec(), bytes(*event))).is_some()
    };
    (0..EVENTS).filter(is_there).count() as u64
}

fn list(dir: &TempDir) -> PathBuf {
    dir.store().join("devices.toml")
}

/// The list with these devices, by number.
fn write(dir: &TempDir, devices: &[usize]) {
    let row = |number: &usize| {
        let path = dir.path().join(format!("warm-{number}"));
        format!("[[device]]\npath = \"{}\"\nbytes = {}\n", path.display(), 5 << 20)
    };
    std::fs::write(list(dir), devices.iter().map(row).collect::<String>()).unwrap();
}

#[test]
fn a_store_whose_list_of_devices_is_missing_is_refused() {
    for devices in 1..3 {
        let dir = TempDir::new();
        let config = closed(&dir, devices);
        let text = std::fs::read_to_string(list(&dir)).unwrap();
        let lists: [Option<&str>; 2] = [None, Some("device = []\n")];
        for written in lists {
            match written {
                Some(written) => std::fs::write(list(&dir), written).unwrap(),
                None => std::fs::remove_file(list(&dir)).unwrap(),
            }
            let message = refused(Store::open(&dir.store(), config.clone()), Kind::Invalid);
            for word in ["devices.toml", "[[device]]", "accept_loss", &format!("made with {devices}")] {
                assert!(message.contains(word), "{word}: {message}");
            }
            let report = forebay_store::check(&dir.store(), false).unwrap();
            assert!(report.problems.iter().any(|problem| problem.contains("devices.toml")), "{:?}", report.problems);
        }
        std::fs::write(list(&dir), text).unwrap();
        let store = Store::open(&dir.store(), config).unwrap();
        assert_eq!((there(&store), store.losses().len()), (EVENTS, 0), "nothing was changed by the refusals");
    }
}

#[test]
fn without_any_of_its_devices_a_store_is_served_with_consent_and_names_the_loss() {
    let dir = TempDir::new();
    let config = closed(&dir, 2);
    std::fs::remove_file(list(&dir)).unwrap();
    let accepting = Config { accept_loss: true, ..config.clone() };
    for opening in 0..2 {
        let store = Store::open(&dir.store(), accepting.clone()).unwrap();
        assert!(store.losses().iter().any(|loss| loss.contains("all 2 devices")), "{:?}", store.losses());
        assert_eq!(there(&store), 10, "events on the hot level alone, opening {opening}");
        assert!(store.runs().iter().all(|run| run.ledger.imbalance().is_none()));
        store.close().unwrap();
        drop(store);
        // As long as it is missing, somebody has to say so.
        refused(Store::open(&dir.store(), config.clone()), Kind::Invalid);
    }
    // The same where the list is right, and nothing at all is where the devices were.
    write(&dir, &[0, 1]);
    for number in 0..2 {
        std::fs::rename(dir.path().join(format!("warm-{number}")), dir.path().join(format!("away-{number}"))).unwrap();
    }
    refused(Store::open(&dir.store(), config), Kind::Unavailable);
    let store = Store::open(&dir.store(), accepting).unwrap();
    assert!(store.losses().iter().any(|loss| loss.contains("all 2 devices")), "{:?}", store.losses());
    assert_eq!(there(&store), 10);
}

#[test]
fn a_list_that_lacks_a_device_is_refused_and_with_consent_the_device_is_named() {
    for left in 0..2 {
        let dir = TempDir::new();
        let config = closed(&dir, 2);
        write(&dir, &[left]);
        let message = refused(Store::open(&dir.store(), config.clone()), Kind::Invalid);
        assert!(message.contains("devices.toml") && message.contains("1 of the 2"), "{message}");
        let store = Store::open(&dir.store(), Config { accept_loss: true, ..config.clone() }).unwrap();
        let named = format!("warm device {} of 2 is not there", 1 - left);
        assert!(store.losses().iter().any(|loss| loss.contains(&named)), "{:?}", store.losses());
        assert!((10..=EVENTS).contains(&there(&store)));
        assert!(store.runs().iter().all(|run| run.ledger.imbalance().is_none()));
    }
}

#[test]
fn a_list_in_another_order_is_the_same_list() {
    let dir = TempDir::new();
    let config = closed(&dir, 3);
    for order in [[2, 0, 1], [1, 2, 0], [0, 1, 2]] {
        write(&dir, &order);
        let store = Store::open(&dir.store(), config.clone()).unwrap();
        assert_eq!((there(&store), store.losses().len()), (EVENTS, 0), "{order:?}");
        measure::demote(&store);
        store.close().unwrap();
        drop(store);
        assert_eq!(forebay_store::check(&dir.store(), true).unwrap().problems, Vec::<String>::new(), "{order:?}");
    }
}

#[test]
fn a_list_with_a_device_twice_or_one_too_many_is_refused() {
    let dir = TempDir::new();
    let config = closed(&dir, 2);
    let other = TempDir::new();
    let _ = closed(&other, 1);
    for accept_loss in [false, true] {
        let config = Config { accept_loss, ..config.clone() };
        write(&dir, &[0, 0]);
        let message = refused(Store::open(&dir.store(), config.clone()), Kind::Invalid);
        assert!(message.contains("devices.toml") && message.contains("twice"), "{message}");
        write(&dir, &[0, 1, 7]);
        let message = refused(Store::open(&dir.store(), config.clone()), Kind::Invalid);
        assert!(message.contains("lists 3 devices") && message.contains("made with 2"), "{message}");
        // A device of another store instead of its own.
        write(&dir, &[0]);
        let mut text = std::fs::read_to_string(list(&dir)).unwrap();
        let path = other.path().join("warm-0");
        text.push_str(&format!("[[device]]\npath = \"{}\"\nbytes = {}\n", path.display(), 5 << 20));
        std::fs::write(list(&dir), text).unwrap();
        let message = refused(Store::open(&dir.store(), config), Kind::Invalid);
        assert!(message.contains("another store"), "{message}");
    }
    write(&dir, &[0, 1]);
    assert_eq!(there(&Store::open(&dir.store(), config).unwrap()), EVENTS);
}

#[test]
fn a_store_without_a_warm_level_takes_no_list() {
    let dir = TempDir::new();
    let config = crate::common::small_config();
    create(&dir, &events_of(1), &config).close().unwrap();
    let other = TempDir::new();
    let _ = closed(&other, 1);
    std::fs::copy(list(&other), list(&dir)).unwrap();
    let message = refused(Store::open(&dir.store(), config), Kind::Invalid);
    assert!(message.contains("devices.toml") && message.contains("without a warm level"), "{message}");
}
