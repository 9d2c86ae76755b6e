//! An ordinary file: the kernel writes a page back when it likes, and a power loss takes what it has not written.
//!
//! Nothing that was acknowledged over such a medium is promised to survive the machine. What is promised: a power loss
//! while the store is open is *noticed*, no matter which pages it left, also in the life that follows an orderly close.

use super::{REGION_BYTES, config};
use crate::common::fixture::RUN;
use crate::common::{key, payload, put};
use forebay_store::core::{Keyspace, Kind};
use forebay_store::{Config, PutOutcome, Store};
use forebay_testkit::media::SimMedium;
use std::sync::Arc;

const SEEDS: u64 = 48;
/// Events of the first life, of which the first three are rejected; then those of the second one, with one rejected.
const FIRST: u64 = 12;
const SECOND: u64 = 30;
const MOST: usize = 3000;

fn keyspace() -> Keyspace {
    Keyspace::events("file", 1).opening_runs()
}

fn open(medium: &Arc<SimMedium>, accept_loss: bool) -> forebay_store::core::Result<Store> {
    Store::open_on(medium.clone(), &keyspace(), Config { accept_loss, ..config() })
}

fn bytes(event: u64) -> Vec<u8> {
    payload(&key(RUN, event, 0), event * 16, MOST)
}

fn fill(store: &Store, events: std::ops::Range<u64>) {
    for event in events {
        assert_eq!(put(store, &key(RUN, event, 0), &bytes(event)).unwrap(), PutOutcome::Stored);
    }
}

fn reject(store: &Store, event: u64) {
    let primary = store.schema().primary(&[RUN, event]).unwrap();
    store.lease(&primary, None).unwrap().unwrap().reject().unwrap();
}

/// Events that are there, each with the bytes that were put.
fn there(store: &Store) -> Vec<u64> {
    let is_there = |event: &u64| {
        let found = store.get(&key(RUN, *event, 0)).unwrap();
        found.inspect(|found| assert_eq!(found.to_vec(), bytes(*event), "event {event} with other bytes")).is_some()
    };
    (0..FIRST + SECOND).filter(is_there).collect()
}

/// The file that a first life left, closed in order.
fn closed() -> Arc<SimMedium> {
    let medium = SimMedium::file(REGION_BYTES);
    let store = Store::create_on(medium.clone(), &keyspace(), config()).unwrap();
    fill(&store, 0..FIRST);
    (0..3).for_each(|event| reject(&store, event));
    store.close().unwrap();
    medium
}

#[test]
fn an_orderly_close_is_durable() {
    let medium = closed();
    for seed in 0..SEEDS {
        let next = medium.after_power_loss(medium.crash_now(seed));
        let store = open(&next, false).unwrap();
        assert!(store.losses().is_empty());
        assert_eq!(there(&store), (3..FIRST).collect::<Vec<_>>());
    }
}

#[test]
fn a_power_loss_in_the_life_after_an_orderly_close_is_noticed() {
    let medium = closed();
    let (mut served, mut lost) = (0, 0);
    for seed in 0..SEEDS {
        let second = medium.after_power_loss(medium.crash_now(seed));
        let store = open(&second, false).unwrap();
        fill(&store, FIRST..FIRST + SECOND);
        reject(&store, FIRST);
        // Full segments are sealed: of these every entry counts, and one without its payload is a loss with a name.
        store.tick();
        let image = second.crash_now(seed * 7 + 1);
        drop(store);
        let refused = open(&second.after_power_loss(image.clone()), false).err();
        let refused = refused.unwrap_or_else(|| panic!("seed {seed}: served without a word"));
        assert_eq!(refused.kind(), Kind::Corrupt);
        assert!(refused.message().contains("restarted"), "seed {seed}: {refused}");
        // With consent every payload is compared, what does not verify is named, and the account has it.
        match open(&second.after_power_loss(image), true) {
            Ok(store) => {
                let _ = there(&store);
                let ledger = store.ledger(RUN).unwrap();
                assert_eq!(ledger.imbalance(), None, "seed {seed}");
                assert!(ledger.lost.fragments <= store.losses().len() as u64, "seed {seed}: {:?}", store.losses());
                (served, lost) = (served + 1, lost + ledger.lost.fragments);
            }
            // A decision log that is damaged is not bridged.
            Err(error) => assert_eq!(error.kind(), Kind::Corrupt, "seed {seed}"),
        }
    }
    assert!(served > 4 && lost > 0, "{served} served, {lost} lost: this proves little");
}

#[test]
fn a_power_loss_at_any_step_of_an_opening_is_noticed_or_harmless() {
    let medium = closed();
    let steps = {
        let medium = medium.after_power_loss(medium.crash_now(1));
        let _store = open(&medium, false).unwrap();
        medium.steps()
    };
    assert!(steps > 3);
    for step in 1..=steps {
        for seed in 0..8 {
            let second = medium.after_power_loss(medium.crash_now(seed));
            second.arm(step, step * 31 + seed);
            let store = open(&second, false).unwrap();
            let image = second.crash_image().unwrap();
            drop(store);
            match open(&second.after_power_loss(image), false) {
                Ok(store) => assert_eq!(there(&store), (3..FIRST).collect::<Vec<_>>(), "step {step}"),
                Err(error) => assert!(error.message().contains("restarted"), "step {step}: {error}"),
            }
        }
    }
}

#[test]
fn a_killed_process_over_a_file_loses_nothing() {
    let medium = closed();
    let second = medium.after_power_loss(medium.crash_now(1));
    let store = open(&second, false).unwrap();
    fill(&store, FIRST..FIRST + SECOND);
    reject(&store, FIRST);
    let left = second.after_kill(second.killed_now());
    drop(store);
    let store = open(&left, false).unwrap();
    assert_eq!(there(&store), (3..FIRST).chain(FIRST + 1..FIRST + SECOND).collect::<Vec<_>>());
}

#[test]
fn a_power_loss_in_the_first_life_is_noticed() {
    for seed in 0..SEEDS {
        let medium = SimMedium::file(REGION_BYTES);
        let store = Store::create_on(medium.clone(), &keyspace(), config()).unwrap();
        fill(&store, 0..FIRST);
        let image = medium.crash_now(seed);
        drop(store);
        // A region without a superblock would be taken for a creation that was cut off, and be made again.
        assert!(image[..8192].iter().any(|&byte| byte != 0), "seed {seed}");
        let refused = open(&medium.after_power_loss(image), false).expect_err("served without a word");
        assert!(refused.message().contains("restarted"), "seed {seed}: {refused}");
    }
}
