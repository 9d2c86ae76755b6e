//! A device is gone for good: what is elsewhere is served, with an operator's consent, and the loss is named.

use super::{all_down, create, events_of, two_levels};
use crate::common::fixture::RUN;
use crate::common::{TempDir, key, payload, put, refused};
use forebay_store::core::Kind;
use forebay_store::{Config, Store, measure};

const MOST: usize = 3000;

fn fill(store: &Store, events: std::ops::Range<u64>) {
    for event in events {
        let key = key(RUN, event, 0);
        let _ = put(store, &key, &payload(&key, event * 16, MOST)).unwrap();
    }
}

/// Events that are there, each with the bytes that were put.
fn there(store: &Store, events: std::ops::Range<u64>) -> Vec<u64> {
    let is_there = |event: &u64| {
        let key = key(RUN, *event, 0);
        let found = store.get(&key).unwrap();
        found.inspect(|found| assert_eq!(found.to_vec(), payload(&key, event * 16, MOST))).is_some()
    };
    events.filter(is_there).collect()
}

#[test]
fn a_store_without_one_of_its_devices_is_served_with_consent() {
    for lost in 0..2 {
        let dir = TempDir::new();
        let config =
            Config { demote_high: all_down(dir.path()).demote_high, demote_low: 0.0, ..two_levels(dir.path(), 2) };
        let store = create(&dir, &events_of(1), &config);
        // Round by round, so that containers of both devices are filled.
        for round in 0..40 {
            fill(&store, round * 10..(round + 1) * 10);
            measure::demote(&store);
        }
        fill(&store, 400..410);
        let on = |store: &Store, device: u32| -> u64 {
            store.containers().iter().filter(|one| one.device == device).map(|one| u64::from(one.live_fragments)).sum()
        };
        let gone = on(&store, lost);
        assert!(gone > 0 && on(&store, 1 - lost) > 0, "both devices hold something");
        store.close().unwrap();
        drop(store);
        let place = dir.path().join(format!("warm-{lost}"));
        std::fs::rename(&place, dir.path().join("elsewhere")).unwrap();

        let message = refused(Store::open(&dir.store(), config.clone()), Kind::Unavailable);
        assert!(message.contains(&*place.to_string_lossy()), "{message}");
        let accepting = Config { accept_loss: true, ..config.clone() };
        for opening in 0..2 {
            let store = Store::open(&dir.store(), accepting.clone()).unwrap();
            let named = format!("warm device {lost} of 2 is not there");
            assert!(store.losses().iter().any(|loss| loss.contains(&named)), "{:?}", store.losses());
            let left = there(&store, 0..410);
            assert_eq!(left.len() as u64, 410 - gone - opening * 2, "opening {opening} without device {lost}");
            assert!(left.contains(&405), "events on the hot level alone");
            // It goes on: puts, verdicts, demotion to the device that is left.
            for event in &left[..2] {
                let primary = store.schema().primary(&[RUN, *event]).unwrap();
                store.lease(&primary, None).unwrap().unwrap().reject().unwrap();
            }
            measure::demote(&store);
            for status in store.runs() {
                assert_eq!(status.ledger.imbalance(), None);
            }
            store.close().unwrap();
        }
        // An empty directory may be a disk that is not mounted: its loss is not accepted.
        std::fs::create_dir(&place).unwrap();
        refused(Store::open(&dir.store(), accepting), Kind::Invalid);
    }
}
