//! Updates beside persisted puts, cut off, and read back: of the versions that were answered for one is always found.

use crate::life::{CONTAINERS, Life, Plan, bytes, try_put, unknown};
use forebay_store::PutOutcome;
use forebay_store::core::Level;
use forebay_store::sim::SimDevice;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

const EVENT: u64 = 3;

/// Media as a kill leaves them just before one step of a call on the hot level.
type Image = (Vec<u8>, Vec<Arc<SimDevice>>);

/// Steps that an update takes on the hot level.
fn steps_of_an_update(life: &Life) -> u64 {
    let before = life.medium.steps();
    assert_eq!(life.update(EVENT, 0, 1, None).unwrap(), 1);
    life.medium.steps() - before
}

/// What an update leaves when it is cut off before its `step`.
fn cut_update(life: &Life, step: u64) -> Image {
    let (said, found) = mpsc::channel();
    let (medium, devices) = (life.medium.clone(), life.simulated.clone());
    life.medium.before_step(life.medium.steps() + step, move || {
        let devices = devices.iter().map(|device| device.power_off(1)).collect();
        said.send((medium.killed_now(), devices)).unwrap();
    });
    assert_eq!(life.update(EVENT, 0, 1, None).unwrap(), 1);
    found.try_recv().unwrap()
}

/// At every step of an update of what a device has: the hot level may be lost in the life after it.
fn cut_anywhere(make: impl Fn() -> Life) {
    for step in 1..=steps_of_an_update(&make()) {
        let life = make();
        let (hot, devices) = cut_update(&life, step);
        let next = life.opened_on(Some(hot), devices).unwrap();
        let version = next.version(EVENT, 0);
        assert!(version.is_some(), "step {step}: no version of a persisted fragment");
        next.balanced();
        assert_eq!(next.after_kill().version(EVENT, 0), version, "step {step}: another version after a kill");
        for seed in 0..2 {
            let lost = next.after_loss_of_hot(seed);
            assert!(
                lost.version(EVENT, 0).is_some(),
                "step {step}: no version without the hot level, {version:?} with it"
            );
            lost.balanced();
        }
        // It can be updated from there, and a device has that.
        let later = next.update(EVENT, 0, version.unwrap() + 1, None).unwrap();
        next.in_every_life(|life, _| assert_eq!(life.version(EVENT, 0), Some(later), "step {step}"));
    }
}

#[test]
fn an_update_of_a_persisted_fragment_is_cut_off_anywhere() {
    cut_anywhere(|| {
        let life = Plan::new().create();
        life.ready_persisted(EVENT);
        life
    });
}

#[test]
fn an_update_of_a_demoted_fragment_is_cut_off_anywhere() {
    cut_anywhere(|| {
        let life = Plan::new().all_down().create();
        life.ready(EVENT);
        (0..10).for_each(|_| life.tick());
        assert_eq!(life.level(EVENT, 0), Level::Warm);
        life
    });
}

/// A put of the version before asks to be persisted while an update replaces it: both are answered for.
#[test]
fn a_fragment_is_persisted_between_the_steps_of_its_update() {
    let make = || {
        let life = Plan::new().create();
        life.ready(EVENT);
        life
    };
    let mut staged = false;
    for step in 1..=steps_of_an_update(&make()) {
        let life = make();
        let (store, (said, put)) = (life.store.clone(), mpsc::channel());
        life.medium.before_step(life.medium.steps() + step, move || {
            let (done, is_done) = mpsc::channel::<()>();
            std::thread::spawn(move || {
                said.send(try_put(&store, EVENT, 0, true)).unwrap();
                drop(done);
            });
            // Under the lock of the event it goes on after the update.
            let _ = is_done.recv_timeout(Duration::from_millis(100));
        });
        assert_eq!(life.update(EVENT, 0, 1, None).unwrap(), 1, "step {step}");
        // It may come after the update: then it is a conflict.
        let is_persisted = put.recv().unwrap().is_ok_and(|outcome| outcome == PutOutcome::Duplicate);
        staged |= is_persisted;
        life.in_lives_with_hot(|life| assert_eq!(life.version(EVENT, 0), Some(1), "step {step}"));
        if is_persisted {
            life.in_every_life(|life, _| assert_eq!(life.version(EVENT, 0), Some(1), "step {step}"));
        }
    }
    assert!(staged, "the put never came between");
}

/// Only the hot level has the last version, and it rots there: the one before is found on its device.
#[test]
fn a_version_that_rots_on_the_hot_level_uncovers_the_one_before() {
    let mut life = Plan::new().create();
    life.ready_persisted(EVENT);
    life.devices.iter().for_each(|device| device.refuse_writes(CONTAINERS));
    unknown(life.update(EVENT, 0, 1, None), "no device takes the update");
    life.answer_again();
    let (mut hot, devices) =
        (life.medium.killed_now(), life.simulated.iter().map(|device| device.power_off(1)).collect());
    let rotten = bytes(EVENT, 0, 1);
    let at = hot.windows(rotten.len()).position(|window| window == rotten).unwrap();
    hot[at] ^= 1;
    life.plan.config.verify = true;
    life.plan.config.accept_loss = true;
    let next = life.opened_on(Some(hot), devices).unwrap();
    assert_eq!(next.version(EVENT, 0), Some(0), "{:?}", next.losses());
    next.in_every_life(|life, _| assert_eq!(life.version(EVENT, 0), Some(0)));
}
