//! Updates beside persisted puts, cut off, and read back: of the versions that were answered for one is always found.

use crate::decisions::life::{CONTAINERS, Life, Plan, bytes, killed, try_put, unknown};
use forebay_media::limits::PAYLOAD_ALIGN;
use forebay_store::PutOutcome;
use forebay_store::core::{Kind, Level, LiveState};
use forebay_testkit::media::SimDevice;
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
        said.send((medium.killed_now(), killed(&devices))).unwrap();
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

/// What a kill leaves, with one bit flipped in the bytes of a fragment on the hot level.
fn with_rot(life: &Life, rotten: &[u8]) -> Image {
    let mut hot = life.medium.killed_now();
    let at = (0..hot.len()).step_by(PAYLOAD_ALIGN).find(|&at| hot[at..].starts_with(rotten)).unwrap();
    hot[at] ^= 1;
    (hot, killed(&life.simulated))
}

/// A persisted fragment rots on the hot level: nothing is lost, and nobody has to accept a loss.
#[test]
fn a_persisted_fragment_that_rots_on_the_hot_level_is_read_from_its_device() {
    let mut life = Plan::new().create();
    life.ready_persisted(EVENT);
    // Its segment is sealed.
    (100..120).for_each(|event| life.ready(event));
    life.tick();
    let (hot, devices) = with_rot(&life, &bytes(EVENT, 0, 0));
    life.plan.config.verify = true;
    let next = life.opened_on(Some(hot), devices).unwrap();
    assert_eq!(next.losses(), Vec::<String>::new());
    assert_eq!((next.level(EVENT, 0), next.level(EVENT, 1)), (Level::Warm, Level::Hot));
    next.in_every_life(|life, hot| {
        assert_eq!(life.find(EVENT).unwrap().versions, [(0, 0), (1, 0)].into());
        assert_eq!(life.ledger().lost.fragments, 0);
        assert_eq!(life.ledger().stored.fragments, if hot { 42 } else { 2 });
    });
    let (hot, devices) = with_rot(&life, &bytes(101, 0, 0));
    let refused = life.opened_on(Some(hot), devices).err().unwrap();
    assert_eq!(refused.kind(), Kind::Corrupt, "{refused}");
}

/// Only the hot level has the last versions, and the last one rots there: the one before them is found on its device, and goes
/// on from there like any other.
#[test]
fn a_version_that_rots_on_the_hot_level_uncovers_the_one_before() {
    for (told, kept_back) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
        let what = format!("{told} updates that a device has, then {kept_back} that none has");
        let mut life = Plan::new().create();
        life.ready_persisted(EVENT);
        (1..=told).for_each(|version| assert_eq!(life.update(EVENT, 0, version, None).unwrap(), version));
        life.devices.iter().for_each(|device| device.refuse_writes(CONTAINERS));
        let last = told + kept_back;
        (told + 1..=last).for_each(|version| unknown(life.update(EVENT, 0, version, None), &what));
        life.answer_again();
        let (hot, devices) = with_rot(&life, &bytes(EVENT, 0, last));
        (life.plan.config.verify, life.plan.config.accept_loss) = (true, true);
        let open = || life.opened_on(Some(hot.clone()), killed(&devices)).unwrap();
        let is = |life: &Life, version: u16| assert_eq!(life.version(EVENT, 0), Some(version), "{what}");

        let next = open();
        next.in_every_life(|life, _| is(life, told));
        // The version that rotted is gone.
        let updated = next.update(EVENT, 0, last, None).unwrap();
        assert_eq!(updated, last, "{what}");
        next.in_every_life(|life, _| is(life, updated));

        let next = open();
        next.accept(EVENT, &next.lease(EVENT)).unwrap();
        (0..10).for_each(|_| next.tick());
        assert_eq!(next.level(EVENT, 1), Level::Warm, "{what}");
        next.in_every_life(|life, _| {
            is(life, told);
            assert_eq!(life.state(EVENT), Some(LiveState::Accepted), "{what}");
        });
        next.close().unwrap();
    }
}
