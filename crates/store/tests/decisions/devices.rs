//! Two devices: an event that is on both is decided on both, one that is on one waits for that one alone; and
//! what one device missed never comes back by it.

use crate::common::fixture::RUN;
use crate::common::key;
use crate::decisions::life::{LEASE, LOGS, Life, Plan, unknown};
use forebay_store::core::{Kind, LiveState};
use forebay_store::{PutOptions, PutOutcome};

const EVENT: u64 = 1;

/// Payload bytes that went to a device.
fn written(life: &Life, device: usize) -> u64 {
    life.warm_stats().unwrap().devices[device].payload_bytes
}

/// Puts a persisted fragment; answers the device that it went to.
fn persisted(life: &Life, event: u64, source: u64) -> usize {
    let before = [0, 1].map(|device| written(life, device));
    life.persist(event, source);
    (0..2).find(|&device| written(life, device) > before[device]).expect("a device that took it")
}

/// Persisted fragments of other events until the next one goes to this device.
fn turn_to(life: &Life, device: usize) {
    static FILLERS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(100_000);
    for _ in 0..100 {
        let event = FILLERS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let before = written(life, device);
        let options = PutOptions { persisted: true, ..PutOptions::default() };
        match life.store.put(&key(RUN, event, 0), &[3; 9000], &options) {
            // On a busy machine no device took it in time: the next one.
            Err(error) if error.kind() == Kind::Unavailable => continue,
            outcome => assert_eq!(outcome.unwrap(), PutOutcome::Stored),
        }
        let removed = life.remove_event(&life.name(event));
        let late = removed.as_ref().is_err_and(|error| error.kind() == Kind::OutcomeUnknown);
        assert!(late || removed.unwrap());
        if written(life, device) > before {
            return;
        }
    }
    panic!("nothing goes to device {device}");
}

/// Two devices and a ready event whose fragments are persisted: the first on one device, the second on another.
fn on_devices(plan: Plan, places: [usize; 2]) -> Life {
    let life = plan.devices(2).create();
    for (source, device) in (0..).zip(places) {
        // The last filler may have filled its container.
        let mut tries = 0;
        loop {
            turn_to(&life, device);
            let event = if tries == 0 { EVENT } else { EVENT + 10_000 + tries };
            if persisted(&life, event, source) == device && event == EVENT {
                break;
            }
            assert!(event != EVENT, "the fragment went to another device than the one before it");
            tries += 1;
        }
    }
    life
}

#[test]
fn a_verdict_about_an_event_on_two_devices_is_durable_on_both() {
    for stalled in 0..2 {
        for source in 0..2 {
            let life = on_devices(Plan::new().impatient(), [0, 1]);
            let token = life.lease(EVENT);
            life.devices[stalled].stall_writes(LOGS, crate::decisions::life::DAY);
            unknown(life.reject(EVENT, &token), "a verdict that one of two devices does not have");
            assert_eq!(life.find(EVENT), None, "it is decided");
            life.in_lives_with_hot(|life| assert_eq!(life.find(EVENT), None));
            unknown(life.reject(EVENT, &token), "again");
            life.answer_again();
            life.eventually_ok("the repeated verdict", |life| life.reject(EVENT, &token));
            life.in_every_life(|life, _| {
                assert_eq!(life.version(EVENT, source), None, "the rejected event is back by device {source}");
            });
            // On each device the event is decided, also where only that one is read: the other is missing.
            for seed in 0..4 {
                let alone = life.opened_on(None, vec![life.simulated[source as usize].power_off(seed)]).unwrap();
                assert_eq!(alone.find(EVENT), None, "the rejected event is back by device {source} alone");
            }
        }
    }
}

#[test]
fn an_accept_pass_or_removal_on_two_devices_holds_without_the_hot_level() {
    for places in [[0, 1], [1, 0]] {
        let life = on_devices(Plan::new(), places);
        life.pass(EVENT, &life.lease(EVENT)).unwrap();
        life.in_every_life(|life, _| assert_eq!(life.find(EVENT).map(|found| found.stage), Some("final".to_owned())));
        assert_eq!(life.update(EVENT, 0, 1, None).unwrap(), 1);
        life.in_every_life(|life, _| assert_eq!(life.version(EVENT, 0), Some(1)));
        assert!(life.remove(EVENT, 1).unwrap());
        life.in_every_life(|life, _| assert_eq!(life.version(EVENT, 1), None));
        life.accept(EVENT, &life.lease(EVENT)).unwrap();
        life.in_every_life(|life, _| assert_eq!(life.state(EVENT), Some(LiveState::Accepted)));
        assert!(life.release(&life.name(EVENT)).unwrap());
        life.in_every_life(|life, _| assert_eq!(life.find(EVENT), None));
    }
}

/// Only the first device knows that the event is accepted: it gets the next fragment, although it is the turn of the second.
#[test]
fn a_device_knows_the_verdict_before_it_has_more_of_the_event() {
    let life = Plan::new().impatient().devices(2).create();
    life.put(EVENT, 1);
    turn_to(&life, 0);
    assert_eq!(persisted(&life, EVENT, 0), 0);
    turn_to(&life, 1);
    life.accept(EVENT, &life.lease(EVENT)).unwrap();
    life.devices[1].stall_writes(LOGS, crate::decisions::life::DAY);
    let _ = life.try_put(EVENT, 1, true).unwrap();
    let states =
        life.simulated.iter().map(|device| life.opened_on(None, vec![device.power_off(1)]).unwrap().state(EVENT));
    assert_eq!(states.collect::<Vec<_>>(), [Some(LiveState::Accepted), None], "each device alone");
    life.answer_again();
}

/// Containers in which nothing lives any more are used again once their device knows why: an event comes back whole, if at all.
#[test]
fn half_of_an_event_is_not_overwritten_before_its_end_is_known() {
    let life = on_devices(Plan::new().impatient(), [0, 1]);
    let token = life.lease(EVENT);
    life.devices.iter().for_each(|device| device.refuse_writes(LOGS));
    unknown(life.reject(EVENT, &token), "a verdict that no device has");
    // What is put now fills the containers, closes them, and takes what is free.
    let options = PutOptions { persisted: true, ..PutOptions::default() };
    for event in 0..400 {
        let _ = life.store.put(&key(RUN, 200_000 + event, 0), &[3; 9000], &options);
        if event % 8 == 0 {
            life.tick();
        }
    }
    for seed in 0..4 {
        let found = life.after_loss_of_hot(seed).find(EVENT).map(|found| found.versions.len());
        assert!(found.is_none_or(|fragments| fragments == 2), "seed {seed}: {found:?} of two fragments");
    }
    // With their logs, devices get their containers back.
    let free = |life: &Life| life.warm_stats().unwrap().free;
    let before = free(&life);
    for event in 0..400 {
        let _ = life.remove_event(&life.name(200_000 + event));
    }
    life.answer_again();
    crate::common::eventually(&life.store, "containers are used again", || free(&life) > before);
}

/// The device that does not answer has nothing of the event.
#[test]
fn a_decision_waits_for_no_device_that_has_nothing_of_its_event() {
    for device in 0..2 {
        let life = on_devices(Plan::new(), [device; 2]);
        let tokens = life.lease(EVENT);
        life.devices[1 - device].stall(crate::decisions::life::DAY);
        let verdict = life.unhindered("a verdict about an event of another device", |store| {
            store.reject(&store.schema().primary(&[RUN, EVENT]).unwrap(), &tokens)
        });
        verdict.unwrap();
        life.in_every_life(|life, _| assert_eq!(life.find(EVENT), None));
    }
}

/// One device refuses everything from some moment on: what is acknowledged after that holds, what is not is decided.
#[test]
fn what_is_acknowledged_beside_a_failing_device_holds() {
    for failing in 0..2 {
        let life = Plan::new().impatient().one_delivery().all_down().devices(2).create();
        for event in 0..40 {
            life.ready(event * 16);
            if event % 8 == 7 {
                life.tick();
            }
        }
        life.tick();
        let tokens: Vec<_> = (0..40).map(|event| (event * 16, life.lease(event * 16))).collect();
        life.devices[failing].refuse_writes("");
        let mut told = Vec::new();
        for (at, (event, token)) in tokens.iter().enumerate() {
            let answer = match at % 4 {
                0 => life.reject(*event, token),
                1 => life.accept(*event, token),
                2 => life.pass(*event, token),
                _ => life.remove_event(&life.name(*event)).map(drop),
            };
            let known = answer.is_ok();
            if !known {
                unknown(answer, "beside a failing device");
            }
            told.push((*event, at % 4, known));
        }
        assert!(told.iter().any(|told| told.2), "device {} has nothing", 1 - failing);
        let holds = |life: &Life, hot: bool| {
            for &(event, how, known) in told.iter().filter(|told| hot || told.2) {
                let found = life.find(event).map(|found| (found.state, found.stage));
                let expected = match how {
                    1 => Some((LiveState::Accepted, "fast".to_owned())),
                    2 => Some((LiveState::Ready, "final".to_owned())),
                    _ => None,
                };
                assert_eq!(found, expected, "event {event}, known {known}, with the hot level {hot}");
            }
        };
        life.in_every_life(|life, hot| holds(life, hot));
        let _ = life.store.close();
        holds(&life.after_kill(), true);
    }
}

/// A log that was left behind is never read over what was decided after it.
#[test]
fn a_log_that_was_left_behind_overrides_nothing() {
    for rounds in [0, 1, 30] {
        let life = Plan::new().impatient().one_delivery().create();
        life.ready_persisted(EVENT);
        let _ = life.lease(EVENT);
        life.advance(2 * LEASE);
        life.tick();
        assert_eq!(life.state(EVENT), Some(LiveState::Debug), "as the device heard");
        life.devices[0].refuse_writes("");
        let _ = life.replay(&life.name(EVENT));
        assert_eq!(life.state(EVENT), Some(LiveState::Ready), "it is decided");
        (0..rounds).for_each(|_| life.tick());
        let token = life.lease(EVENT);
        let _ = life.accept(EVENT, &token);
        (0..rounds).for_each(|_| life.tick());
        life.in_lives_with_hot(|life| assert_eq!(life.state(EVENT), Some(LiveState::Accepted), "{rounds} rounds"));
        life.answer_again();
        life.eventually_ok("the repeated verdict", |life| life.accept(EVENT, &token));
        life.in_every_life(|life, _| assert_eq!(life.state(EVENT), Some(LiveState::Accepted), "{rounds} rounds"));
    }
}

/// The same where the process dies in between, and each opening finds the device in trouble.
#[test]
fn a_log_that_stays_behind_over_openings_overrides_nothing() {
    let life = Plan::new().impatient().one_delivery().create();
    life.ready_persisted(EVENT);
    let _ = life.lease(EVENT);
    life.advance(2 * LEASE);
    life.tick();
    assert_eq!(life.state(EVENT), Some(LiveState::Debug));
    let refuse = |device: &forebay_testkit::media::FaultyDevice| device.refuse_writes(LOGS);
    let second = life.after_kill_on(refuse).unwrap();
    let _ = second.replay(&second.name(EVENT));
    let third = second.after_kill_on(refuse).unwrap();
    assert_eq!(third.state(EVENT), Some(LiveState::Ready), "the replay is decided");
    let token = third.lease(EVENT);
    let _ = third.accept(EVENT, &token);
    third.in_lives_with_hot(|life| assert_eq!(life.state(EVENT), Some(LiveState::Accepted)));
    third.answer_again();
    third.eventually_ok("the repeated verdict", |life| life.accept(EVENT, &token));
    third.in_every_life(|life, _| assert_eq!(life.state(EVENT), Some(LiveState::Accepted)));
}

/// A life whose number no device could note hands out tokens; without the hot level no later life has the same number.
#[test]
fn a_token_of_a_life_that_no_device_knows_is_never_in_force_again() {
    let life = Plan::new().impatient().create();
    life.ready_persisted(EVENT);
    let refuse = |device: &forebay_testkit::media::FaultyDevice| device.refuse_writes(LOGS);
    let second = life.after_kill_on(refuse).unwrap();
    let token = second.lease(EVENT);
    for seed in 0..4 {
        let third = second.after_loss_of_hot(seed);
        assert!(third.boot() > token.boot, "life {} follows life {} and knows its tokens", third.boot(), token.boot);
        let other = third.lease(EVENT);
        assert_ne!(other, token, "two grants have the same token");
        let fenced = third.accept(EVENT, &token);
        assert!(fenced.is_err_and(|error| error.kind() == Kind::Fenced));
    }
}
