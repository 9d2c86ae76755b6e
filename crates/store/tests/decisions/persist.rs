//! What happens to an event while a fragment of it is on its way to a device holds once both are answered: also where
//! the hot level is lost.

use crate::common::fixture::RUN;
use crate::common::{eventually, key};
use crate::decisions::life::{CONTAINERS, LEASE, LOGS, Life, Plan, WITHIN, bytes, try_put, unknown, until};
use forebay_store::core::{Completeness, Kind, Level, LiveState};
use forebay_store::{Accept, PutOutcome, Sources, measure};
use std::time::{Duration, Instant};

const EVENT: u64 = 1;

/// Fragment 1 of an event is put as persisted; once it is on its way something else is done and answered; then the
/// device goes on, and the put is answered.
fn while_it_is_persisted(life: &Life, something: impl FnOnce(&Life)) -> forebay_store::core::Result<PutOutcome> {
    life.put(EVENT, 0);
    life.stall_writes(CONTAINERS);
    life.meanwhile(|store| try_put(store, EVENT, 1, true), something)
}

#[test]
fn an_event_that_is_rejected_while_a_fragment_is_persisted_does_not_come_back() {
    let life = Plan::new().create();
    let put = while_it_is_persisted(&life, |life| {
        let token = life.lease(EVENT);
        life.reject(EVENT, &token).unwrap();
    });
    assert_eq!(put.unwrap(), PutOutcome::Stored);
    life.in_every_life(|life, _| assert_eq!(life.find(EVENT), None, "the rejected event is back"));
}

/// The same where the whole device stalls: the verdict waits for it, or says that it does not know.
#[test]
fn a_verdict_that_waits_behind_a_persisted_fragment_holds_once_it_is_answered() {
    let life = &Plan::new().create();
    life.put(EVENT, 0);
    life.stall();
    let verdict = std::thread::scope(|scope| {
        let mut rejecting = None;
        let put = life.meanwhile(
            |store| try_put(store, EVENT, 1, true),
            |_| {
                let token = life.lease(EVENT);
                let verdict = scope.spawn(move || life.reject(EVENT, &token));
                // It is answered, or waits as well.
                let began = Instant::now();
                while !verdict.is_finished() && began.elapsed() < Duration::from_millis(100) {
                    std::thread::yield_now();
                }
                rejecting = Some(verdict);
            },
        );
        assert_eq!(put.unwrap(), PutOutcome::Stored);
        rejecting.unwrap().join().unwrap()
    });
    verdict.unwrap();
    life.in_every_life(|life, _| assert_eq!(life.find(EVENT), None, "the rejected event is back"));
}

#[test]
fn an_event_that_is_accepted_while_a_fragment_is_persisted_is_accepted() {
    let life = Plan::new().create();
    let put = while_it_is_persisted(&life, |life| {
        let token = life.lease(EVENT);
        life.accept(EVENT, &token).unwrap();
    });
    assert_eq!(put.unwrap(), PutOutcome::Stored);
    life.in_every_life(|life, _| {
        let found = life.find(EVENT).expect("the persisted fragment");
        assert_eq!((found.state, found.versions.get(&1)), (LiveState::Accepted, Some(&0)));
    });
}

#[test]
fn an_event_that_is_accepted_into_streams_while_a_fragment_is_persisted_has_its_outputs() {
    let life = Plan::new().create();
    let put = while_it_is_persisted(&life, |life| {
        let token = life.lease(EVENT);
        let one = Sources::only(life.schema(), [1]).unwrap();
        let streams = [("express", one), ("main", Sources::All)];
        life.accept_into(&life.name(EVENT), &token, &Accept { streams: &streams, results: &[] }).unwrap();
    });
    assert_eq!(put.unwrap(), PutOutcome::Stored);
    let outputs = life.outputs(&life.name(EVENT)).unwrap();
    assert!(outputs.as_ref().is_some_and(|outputs| outputs.len() == 2));
    life.in_every_life(|life, _| {
        assert_eq!(life.state(EVENT), Some(LiveState::Accepted));
        assert_eq!(life.outputs(&life.name(EVENT)).unwrap(), outputs);
    });
}

#[test]
fn an_event_that_is_passed_while_a_fragment_is_persisted_is_in_its_stage() {
    let life = Plan::new().create();
    let put = while_it_is_persisted(&life, |life| {
        let token = life.lease(EVENT);
        life.pass(EVENT, &token).unwrap();
    });
    assert_eq!(put.unwrap(), PutOutcome::Stored);
    life.in_every_life(|life, standing| {
        let found = life.find(EVENT).expect("the persisted fragment");
        assert_eq!((&*found.stage, found.versions.get(&1)), ("final", Some(&0)), "{standing:?}");
    });
}

/// Ready without its second source, which is masked meanwhile.
#[test]
fn an_event_that_a_mask_completes_while_a_fragment_is_persisted_is_ready() {
    let mut plan = Plan::new();
    let schema = &plan.keyspace.schema;
    plan.keyspace.run.completeness = Completeness::sources(schema, &[vec![0], vec![1], vec![2]]).unwrap();
    let life = plan.create();
    let put = while_it_is_persisted(&life, |life| {
        life.mask(RUN, &life.schema().source(&[2]).unwrap(), None).unwrap();
    });
    assert_eq!(put.unwrap(), PutOutcome::Stored);
    assert_eq!(life.state(EVENT), Some(LiveState::Ready));
    measure::take_snapshot(&life).unwrap();
    life.in_every_life(|life, hot| {
        let found = life.find(EVENT).expect("the persisted fragment");
        // Without the hot level its first fragment is missing, and no mask is about that one.
        assert_eq!(found.state == LiveState::Ready, hot, "{found:?}");
    });
    let life = life.after_loss_of_hot(1);
    life.put(EVENT, 0);
    assert_eq!(life.state(EVENT), Some(LiveState::Ready), "the mask is in force");
}

#[test]
fn an_event_that_goes_to_debug_while_a_fragment_is_persisted_is_there() {
    let life = Plan::new().one_delivery().create();
    let put = while_it_is_persisted(&life, |life| {
        let _ = life.lease(EVENT);
        life.advance(2 * LEASE);
        life.unhindered_round();
    });
    assert_eq!(put.unwrap(), PutOutcome::Stored);
    assert_eq!(life.state(EVENT), Some(LiveState::Debug));
    life.tick();
    life.in_every_life(|life, _| assert_eq!(life.state(EVENT), Some(LiveState::Debug)));
}

#[test]
fn an_event_that_is_removed_while_a_fragment_is_persisted_does_not_come_back() {
    let life = Plan::new().create();
    let put = while_it_is_persisted(&life, |life| assert!(life.remove_event(&life.name(EVENT)).unwrap()));
    assert_eq!(put.unwrap(), PutOutcome::Stored);
    life.in_every_life(|life, _| assert_eq!(life.find(EVENT), None, "the removed event is back"));
}

#[test]
fn a_fragment_that_is_removed_while_it_is_persisted_does_not_come_back() {
    let life = Plan::new().create();
    let put = while_it_is_persisted(&life, |life| assert!(life.remove(EVENT, 1).unwrap()));
    assert_eq!(put.unwrap(), PutOutcome::Stored);
    life.in_every_life(|life, hot| {
        assert_eq!(life.version(EVENT, 1), None, "the removed fragment is back");
        assert_eq!(life.try_put(EVENT, 1, false).unwrap() == PutOutcome::Late, hot || life.find(EVENT).is_some());
    });
}

/// The put was answered, and so was the update: the new version is what a device has.
#[test]
fn a_fragment_that_is_updated_while_it_is_persisted_has_its_new_version() {
    let life = &Plan::new().create();
    let put = std::thread::scope(|scope| {
        let mut updating = None;
        let put = while_it_is_persisted(life, |_| {
            // Whether the new version waits for the device is the store's affair.
            updating = Some(scope.spawn(|| life.update(EVENT, 1, 1, None)));
            std::thread::sleep(Duration::from_millis(50));
        });
        assert_eq!(updating.unwrap().join().unwrap().unwrap(), 1);
        put
    });
    assert_eq!(put.unwrap(), PutOutcome::Stored);
    life.in_every_life(|life, _| assert_eq!(life.version(EVENT, 1), Some(1)));
}

/// A persisted fragment stays persisted through updates, one after the other.
#[test]
fn an_updated_version_of_a_persisted_fragment_is_persisted() {
    let life = Plan::new().create();
    life.ready_persisted(EVENT);
    for version in 1..4 {
        assert_eq!(life.update(EVENT, 0, version, None).unwrap(), version);
        life.in_every_life(|life, _| assert_eq!(life.version(EVENT, 0), Some(version)));
    }
    let token = life.lease(EVENT);
    assert_eq!(life.update(EVENT, 1, 1, Some(&token)).unwrap(), 1);
    life.in_every_life(|life, _| assert_eq!((life.version(EVENT, 0), life.version(EVENT, 1)), (Some(3), Some(1))));
    life.accept(EVENT, &token).unwrap();
    life.tick();
    life.in_every_life(|life, _| {
        let found = life.find(EVENT).unwrap();
        assert_eq!((found.state, found.versions), (LiveState::Accepted, [(0, 3), (1, 1)].into()));
    });
}

/// An update whose outcome is unknown may be repeated without the lease; one that was answered is an update like others.
#[test]
fn the_bytes_in_force_are_a_repeat_only_while_their_update_has_no_answer() {
    let life = Plan::new().impatient().create();
    life.ready_persisted(EVENT);
    let token = life.lease(EVENT);
    assert_eq!(life.update(EVENT, 0, 1, Some(&token)).unwrap(), 1);
    assert_eq!(life.update(EVENT, 0, 1, None).unwrap_err().kind(), Kind::Fenced);
    assert_eq!(life.update(EVENT, 0, 1, Some(&token)).unwrap(), 2);
    life.devices.iter().for_each(|device| device.refuse_writes(CONTAINERS));
    unknown(life.update(EVENT, 0, 3, Some(&token)), "the update");
    assert_eq!(life.update(EVENT, 0, 4, None).unwrap_err().kind(), Kind::Fenced, "other bytes need the lease");
    unknown(life.update(EVENT, 0, 3, None), "its repeat");
    life.in_lives_with_hot(|life| assert_eq!(life.version(EVENT, 0), Some(3)));
    let next = life.after_kill();
    let _ = next.lease(EVENT);
    assert_eq!(next.update(EVENT, 0, 3, None).unwrap(), 3, "a repeat after the kill");
    next.in_every_life(|life, _| assert_eq!(life.version(EVENT, 0), Some(3)));
}

/// The same for one that went down with its event after it was persisted.
#[test]
fn an_updated_version_of_a_persisted_fragment_that_was_demoted_is_persisted() {
    let life = Plan::new().all_down().create();
    life.ready_persisted(EVENT);
    life.tick();
    assert_eq!(life.level(EVENT, 0), forebay_store::core::Level::Warm);
    assert_eq!(life.update(EVENT, 0, 1, None).unwrap(), 1);
    life.in_every_life(|life, _| assert_eq!(life.version(EVENT, 0), Some(1)));
}

#[test]
fn an_update_of_an_open_event_with_a_persisted_fragment_is_persisted() {
    let life = Plan::new().create();
    life.persist(EVENT, 0);
    assert_eq!(life.update(EVENT, 0, 1, None).unwrap(), 1);
    life.in_every_life(|life, _| {
        let found = life.find(EVENT).expect("the persisted fragment");
        assert_eq!((found.state, found.versions), (LiveState::Open, [(0, 1)].into()));
    });
}

/// An event of which everything was removed ends by time while another fragment of it is on its way.
#[test]
fn an_event_that_ends_by_time_while_a_fragment_is_persisted_takes_it_or_not() {
    let life = Plan::new().create();
    let outcome = while_it_is_persisted(&life, |life| {
        assert!(life.remove(EVENT, 0).unwrap());
        assert!(life.remove(EVENT, 1).unwrap());
        life.advance(2 * WITHIN);
        life.unhindered_round();
    });
    assert_eq!(outcome.unwrap(), PutOutcome::Stored);
    let put = life.try_put(EVENT, 2, true).unwrap();
    let there = (put == PutOutcome::Stored).then_some(0);
    life.in_every_life(|life, _| {
        assert_eq!(life.version(EVENT, 0), None);
        assert_eq!(life.version(EVENT, 1), None);
        assert_eq!(life.version(EVENT, 2), there, "the put answered {put:?}");
    });
}

/// Fills a segment with what is removed again, around a fragment that `between` puts.
fn amid_rubbish(life: &Life, between: impl FnOnce()) {
    let rubbish = |event: u64| {
        let options = forebay_store::PutOptions::default();
        let _ = life.store.put(&key(RUN, event, 0), &[7; 4000], &options).unwrap();
    };
    (1000..1002).for_each(rubbish);
    between();
    (1002..1010).for_each(rubbish);
    (1000..1010).for_each(|event| assert!(life.remove_event(&life.name(event)).unwrap()));
}

/// The record moves to another segment while its copy is written.
#[test]
fn a_fragment_that_is_evacuated_while_it_is_persisted_is_persisted() {
    let life = Plan::new().evacuating().create();
    life.put(EVENT, 0);
    life.stall_writes(CONTAINERS);
    let put = life.meanwhile(
        |store| try_put(store, EVENT, 1, true),
        |life| {
            amid_rubbish(life, || {});
            let before = life.stats().evacuated;
            until("nothing was evacuated", || {
                life.unhindered_round();
                life.stats().evacuated > before
            });
        },
    );
    assert_eq!(put.unwrap(), PutOutcome::Stored);
    life.in_every_life(|life, _| assert_eq!(life.version(EVENT, 1), Some(0), "a persisted fragment is lost"));
    // What nobody needs any more is used again, and what is needed is not.
    for round in 0..40 {
        for event in 2000 + round * 10..2010 + round * 10 {
            life.ready_persisted(event);
            assert!(life.remove_event(&life.name(event)).unwrap());
        }
        life.tick();
    }
    assert!(life.containers().iter().any(|container| container.generation > 1), "no container was used again");
    life.in_every_life(|life, _| assert_eq!(life.version(EVENT, 1), Some(0), "a persisted fragment is overwritten"));
    assert_eq!(life.try_put(EVENT, 1, true).unwrap(), PutOutcome::Duplicate);
}

/// Many at once, some rejected, some evacuated, some updated while they are on their way: each is what was answered.
#[test]
fn a_group_of_persisted_fragments_is_what_was_answered_of_each() {
    const EVENTS: u64 = 12;
    let life = Plan::new().create();
    (0..EVENTS).for_each(|event| life.put(event, 0));
    life.stall_writes(CONTAINERS);
    let life = &life;
    std::thread::scope(|scope| {
        let putting: Vec<_> =
            (0..EVENTS).map(|event| scope.spawn(move || try_put(&life.store, event, 1, true))).collect();
        life.until_somebody_waits();
        for event in 0..EVENTS {
            until("the put is not visible", || life.find(event).is_some_and(|found| found.versions.len() == 2));
            let token = life.lease(event);
            match event % 4 {
                0 => life.reject(event, &token).unwrap(),
                1 => life.accept(event, &token).unwrap(),
                2 => life.pass(event, &token).unwrap(),
                _ => life.store.requeue(&life.name(event), &token).unwrap(),
            }
        }
        life.answer_again();
        for put in putting {
            assert_eq!(put.join().unwrap().unwrap(), PutOutcome::Stored);
        }
    });
    life.in_every_life(|life, _| {
        for event in 0..EVENTS {
            let found = life.find(event);
            assert_eq!(found.is_none(), event % 4 == 0, "event {event}: {found:?}");
            let Some(found) = found else { continue };
            assert_eq!(found.versions.get(&1), Some(&0), "event {event}: {found:?}");
            assert_eq!(found.state == LiveState::Accepted, event % 4 == 1, "event {event}: {found:?}");
            assert_eq!(found.stage == "final", event % 4 == 2, "event {event}: {found:?}");
        }
    });
}

/// An update of a fragment that no device has is told to the devices that have others of its event. Lost with the hot
/// level and put again as persisted, it is no version that ended.
#[test]
fn a_fragment_that_is_put_anew_after_its_update_went_with_the_hot_level_stays() {
    let first = Plan::new().create();
    first.persist(EVENT, 0);
    first.put(EVENT, 1);
    assert_eq!(first.update(EVENT, 1, 1, None).unwrap(), 1);
    let second = first.after_loss_of_hot(1);
    assert_eq!(second.find(EVENT).unwrap().versions, [(0, 0)].into());
    second.persist(EVENT, 1);
    second.in_every_life(|life, _| assert_eq!(life.find(EVENT).unwrap().versions, [(0, 0), (1, 1)].into()));
}

/// A worker takes the event while the update's copy is written: the answer and every later life say the same.
#[test]
fn an_update_whose_event_is_leased_meanwhile_is_what_its_answer_says() {
    let life = Plan::new().all_down().create();
    life.ready_persisted(EVENT);
    (0..10).for_each(|_| life.tick());
    assert_eq!(life.level(EVENT, 0), Level::Warm);
    life.stall_writes(CONTAINERS);
    let answer = life.meanwhile(
        |store| store.update(&key(RUN, EVENT, 0), &bytes(EVENT, 0, 1), None),
        |life| {
            let _ = life.lease(EVENT);
        },
    );
    let wanted = u16::from(answer.is_ok());
    life.in_every_life(|life, _| assert_eq!(life.version(EVENT, 0), Some(wanted), "answered {answer:?}"));
}

/// No device takes the new version: the one before stays on its device, also where the event's fragments were on none but it.
#[test]
fn an_update_that_no_device_takes_leaves_the_version_before_on_its_device() {
    let life = Plan::new().impatient().all_down().create();
    life.ready_persisted(EVENT);
    eventually(&life.store, "it goes down", || life.level(EVENT, 0) == Level::Warm);
    life.devices.iter().for_each(|device| device.refuse_writes(CONTAINERS));
    unknown(life.update(EVENT, 0, 1, None), "the update");
    unknown(life.update(EVENT, 0, 2, None), "the next one");
    (0..10).for_each(|_| life.tick());
    life.in_lives_with_hot(|life| assert_eq!(life.version(EVENT, 0), Some(2)));
    for life in [&life, &life.after_kill()] {
        (0..4).for_each(|seed| {
            let version = life.after_loss_of_hot(seed).version(EVENT, 0);
            assert!(version.is_some(), "both versions are lost, seed {seed}");
        });
    }
}

/// The repeat in the next life, on a device that still refuses, says no more than the first answer.
#[test]
fn a_verdict_is_unknown_in_the_next_life_too_until_the_device_has_it() {
    let life = Plan::new().impatient().create();
    life.ready_persisted(EVENT);
    let token = life.lease(EVENT);
    life.devices.iter().for_each(|device| device.refuse_writes(LOGS));
    unknown(life.reject(EVENT, &token), "the verdict");
    let next = life.after_kill_on(|device| device.refuse_writes(LOGS)).unwrap();
    unknown(next.reject(EVENT, &token), "its repeat");
    next.answer_again();
    next.eventually_ok("the repeat", |life| life.reject(EVENT, &token));
    (0..4).for_each(|seed| assert_eq!(next.after_loss_of_hot(seed).find(EVENT), None, "the rejected event is back"));
}

/// What was decided before anything of the event set out: the put is answered once a device knows that as well.
#[test]
fn a_fragment_counts_as_persisted_once_its_device_knows_what_was_decided_before() {
    let accept = |life: &Life| life.accept(EVENT, &life.lease(EVENT)).unwrap();
    let remove = |life: &Life| assert!(life.remove(EVENT, 1).unwrap());
    for (decide, state) in [(&accept as &dyn Fn(&Life), LiveState::Accepted), (&remove, LiveState::Ready)] {
        let life = Plan::new().impatient().create();
        // The device knows the run.
        life.persist(EVENT + 1, 0);
        life.ready(EVENT);
        decide(&life);
        life.stall_writes(LOGS);
        let error = life.try_put(EVENT, 0, true).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "no device knows what was decided: {error}");
        // A device that does not know has nothing of the event, no matter what is cut off.
        assert_eq!(life.after_loss_of_hot(0).state(EVENT), None);
        life.answer_again();
        life.eventually_ok("the put", |life| life.try_put(EVENT, 0, true).map(drop));
        life.in_every_life(|life, _| {
            let found = life.find(EVENT).expect("the persisted fragment");
            assert_eq!((found.state, found.versions.get(&0)), (state, Some(&0)));
            if state == LiveState::Ready {
                assert_eq!(life.try_put(EVENT, 1, false).unwrap(), PutOutcome::Late);
            }
        });
    }
}

#[test]
fn a_fragment_that_was_removed_before_its_event_went_down_stays_closed() {
    let life = Plan::new().all_down().create();
    life.ready(EVENT);
    assert!(life.remove(EVENT, 1).unwrap());
    life.tick();
    assert_eq!(life.level(EVENT, 0), Level::Warm);
    life.in_every_life(|life, _| {
        assert_eq!(life.find(EVENT).expect("what went down").versions.len(), 1);
        assert_eq!(life.try_put(EVENT, 1, false).unwrap(), PutOutcome::Late);
    });
}

/// The hot level takes along whole what nothing of was on a device: no part of it is left of which devices know.
#[test]
fn an_event_that_was_accepted_and_shortened_on_the_hot_level_alone_goes_with_it() {
    let life = Plan::new().create();
    life.ready(EVENT);
    life.accept(EVENT, &life.lease(EVENT)).unwrap();
    assert!(life.remove(EVENT, 1).unwrap());
    life.in_every_life(|life, hot| assert_eq!(life.state(EVENT), hot.then_some(LiveState::Accepted)));
}

/// An image of it is on the device, and no call has acknowledged it: what the event was forgiven since holds.
#[test]
fn an_image_that_was_given_up_says_nothing_of_deliveries() {
    let life = Plan::new().impatient().one_delivery().create();
    life.persist(EVENT + 1, 0);
    life.ready(EVENT);
    let token = life.lease(EVENT);
    // Something that the device has to know before the image counts.
    assert!(life.remove(EVENT, 1).unwrap());
    life.stall_writes(LOGS);
    assert_eq!(life.try_put(EVENT, 0, true).unwrap_err().kind(), Kind::Unavailable);
    life.requeue(&life.name(EVENT), &token).unwrap();
    life.answer_again();
    life.eventually_ok("the put", |life| life.try_put(EVENT, 0, true).map(drop));
    // Marks are told and not waited for: the next decision takes them along.
    life.eventually_ok("the removal", |life| life.remove_event(&life.name(EVENT + 1)).map(drop));
    life.in_every_life(|life, _| assert_eq!(life.state(EVENT), Some(LiveState::Ready)));
}

/// The log says its marks from then on, and no word beside a record: also what changes after a snapshot has them.
#[test]
fn marks_of_an_event_whose_image_was_given_up_are_the_last_ones() {
    let life = Plan::new().impatient().one_delivery().create();
    life.persist(EVENT + 1, 0);
    life.ready(EVENT);
    assert!(life.remove(EVENT, 1).unwrap());
    life.stall_writes(LOGS);
    assert_eq!(life.try_put(EVENT, 0, true).unwrap_err().kind(), Kind::Unavailable);
    life.answer_again();
    let token = life.lease(EVENT);
    measure::take_snapshot(&life).unwrap();
    life.requeue(&life.name(EVENT), &token).unwrap();
    life.in_lives_with_hot(|life| assert_eq!(life.state(EVENT), Some(LiveState::Ready)));
}

/// Several put the same fragment while the device has its hands full: one image has it once.
#[test]
fn a_fragment_that_is_put_as_persisted_several_times_at_once_is_persisted() {
    let mut plan = Plan::new();
    plan.config.persist_delay = Duration::from_millis(100);
    let life = &plan.create();
    std::thread::scope(|scope| {
        let puts: Vec<_> = (0..4).map(|_| scope.spawn(|| life.try_put(EVENT, 0, true))).collect();
        let stored = puts.into_iter().map(|put| put.join().unwrap().unwrap()).filter(|put| *put == PutOutcome::Stored);
        assert_eq!(stored.count(), 1);
    });
    life.in_every_life(|life, _| assert_eq!(life.version(EVENT, 0), Some(0)));
}
