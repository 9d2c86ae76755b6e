//! Latches of inhibit beside devices in trouble: set for a cause, told once, ended when it ends, and never by a life that
//! was not told.

use crate::common::eventually;
use crate::common::fixture::RUN;
use crate::common::key;
use crate::decisions::life::{CONTAINERS, DAY, Life, Plan, until};
use forebay_store::core::{Completeness, Kind};
use forebay_store::{InhibitClass, PutOptions};
use std::time::Duration;

fn plan() -> Plan {
    let mut plan = Plan::new().impatient();
    plan.keyspace.run.completeness = Completeness::Count(1);
    plan.config.put_deadline = Duration::ZERO;
    plan.device_bytes = 4 << 20;
    plan.config.demote_high = 0.3;
    plan.config.demote_low = 0.1;
    plan
}

/// Puts events from `first` on until one finds no space; answers the number of the next.
fn fill(life: &Life, first: u64, round: impl Fn(&Life)) -> u64 {
    for event in first.. {
        match life.store.put(&key(RUN, event, 0), &[7; 4000], &PutOptions::default()) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), Kind::Full, "{error}");
                return event;
            }
        }
        if event % 16 == 0 {
            round(life);
        }
    }
    unreachable!("a store is full some day")
}

fn class(life: &Life) -> Option<InhibitClass> {
    life.tick();
    life.stats().inhibit.map(|inhibit| inhibit.class)
}

#[test]
fn a_store_that_fills_up_behind_a_stalled_device_inhibits_until_it_answers() {
    let mut plan = plan();
    plan.config.device_stall = Duration::from_millis(200);
    let life = plan.create();
    let first = fill_some(&life);
    life.stall_writes("");
    let full = fill(&life, first, |_| {});
    life.unhindered_round();
    let stalled = || life.stats().inhibit.is_some_and(|inhibit| inhibit.class == InhibitClass::DeviceStalled);
    until("nobody says that the device stalls", || {
        life.unhindered_round();
        stalled()
    });
    // Verdicts on the hot level go on beside it.
    for event in (first..full).rev().take(8) {
        if let Some(token) = life.lease_of(event) {
            // One that was on its way down when the device stalled is decided as well, and said to be unknown there.
            let rejected = life.reject(event, &token);
            assert!(rejected.is_ok() || rejected.is_err_and(|error| error.kind() == Kind::OutcomeUnknown));
        }
    }
    life.answer_again();
    eventually(&life.store, "inhibit ends", || life.stats().inhibit.is_none());
    let stats = life.stats();
    assert_eq!(stats.dead_time.total(), Duration::from_nanos(stats.inhibited_ns), "every instant has one class");
    life.balanced();
}

fn fill_some(life: &Life) -> u64 {
    for event in 0..20 {
        let _ = life.store.put(&key(RUN, event, 0), &[7; 4000], &PutOptions::default()).unwrap();
    }
    life.tick();
    20
}

/// What a latch says follows from what is there, in the next life as well.
#[test]
fn a_store_that_is_killed_while_it_inhibits_inhibits_for_what_it_finds() {
    let life = plan().create();
    let first = fill_some(&life);
    life.stall_writes("");
    fill(&life, first, |_| {});
    assert!(class(&life).is_some());
    // The device answers in the next life: what is ready goes down, and nobody is inhibited forever.
    let next = life.after_kill();
    eventually(&next.store, "inhibit ends", || next.stats().inhibit.is_none());
    next.balanced();
    // The same device is still in trouble: it is reported again.
    let next = life.after_kill_on(|device| device.stall_writes(CONTAINERS, DAY)).unwrap();
    eventually(&next.store, "inhibit begins", || next.stats().inhibit.is_some());
    next.answer_again();
    eventually(&next.store, "inhibit ends", || next.stats().inhibit.is_none());
    next.balanced();
}

/// Decisions that a device does not hear of give their space on the hot level back all the same.
#[test]
fn verdicts_whose_durability_is_unknown_end_inhibit() {
    let mut plan = plan();
    // Nothing goes down by itself; what is persisted is on both levels.
    (plan.config.demote_high, plan.config.demote_low) = (0.89, 0.5);
    let life = plan.create();
    let mut last = 0;
    for event in 0.. {
        let options = PutOptions { persisted: event % 2 == 0 && event < 60, ..PutOptions::default() };
        if life.store.put(&key(RUN, event, 0), &[7; 4000], &options).is_err() || life.stats().inhibit.is_some() {
            break;
        }
        last = event;
    }
    life.devices[0].refuse_writes("");
    for event in 0..=last {
        let Some(token) = life.lease_of(event) else { continue };
        if let Err(error) = life.reject(event, &token) {
            assert_eq!(error.kind(), Kind::OutcomeUnknown, "event {event}: {error}");
        }
        assert_eq!(life.find_state(event), None, "event {event} is decided");
    }
    eventually(&life.store, "inhibit ends", || life.stats().inhibit.is_none());
    life.in_lives_with_hot(|life| {
        assert_eq!((0..=last).filter(|event| life.find_state(*event).is_some()).count(), 0);
    });
}
