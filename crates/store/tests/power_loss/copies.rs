//! A copy in conflict, kept for a person: after a cut at any step of what moves it, it is there once.

use super::{REGION_BYTES, config};
use crate::common::fixture::RUN;
use crate::common::{key, payload, put, refused};
use forebay_store::core::{Keyspace, Kind};
use forebay_store::{Config, PutOutcome, Store};
use forebay_testkit::media::SimMedium;
use std::sync::Arc;

const BYTES: usize = 3000;

fn keyspace() -> Keyspace {
    Keyspace::events("copies", 1).opening_runs()
}

/// The steps of the round that moves the copy, in a life on this medium.
fn live(medium: &Arc<SimMedium>) -> (u64, u64) {
    let config = Config { conflict_share: 1.0 / 16.0, ..config() };
    let store = Store::create_on(medium.clone(), &keyspace(), config).unwrap();
    store.run_open(RUN, &keyspace().run).unwrap();
    let stored = |event| {
        let key = key(RUN, event, 0);
        assert_eq!(put(&store, &key, &payload(&key, 1, BYTES)).unwrap(), PutOutcome::Stored);
    };
    let reject = |event| {
        let primary = store.schema().primary(&[RUN, event]).unwrap();
        store.lease(&primary, None).unwrap().unwrap().reject().unwrap();
    };
    stored(0);
    refused(put(&store, &key(RUN, 0, 0), b"other bytes"), Kind::Conflict);
    // What lies beside it goes, then the region fills up.
    (1..10).for_each(stored);
    (1..10).for_each(reject);
    let round = |event| {
        stored(event);
        let (before, moved) = (medium.steps(), store.stats().evacuated);
        store.tick();
        (store.stats().evacuated > moved).then(|| (before, medium.steps()))
    };
    (10..).find_map(round).unwrap()
}

#[test]
fn a_copy_that_is_moved_is_there_once() {
    let (first, last) = live(&SimMedium::new(REGION_BYTES));
    for (step, seed) in (first..=last).flat_map(|step| (0..8).map(move |seed| (step, seed))) {
        let medium = SimMedium::new(REGION_BYTES);
        medium.arm(step, seed);
        live(&medium);
        let Some(image) = medium.crash_image() else { continue };
        let store = Store::open_on(SimMedium::from_image(image), &keyspace(), config()).unwrap();
        assert_eq!(store.conflicts().len(), 1, "step {step} of {first} to {last}");
    }
}
