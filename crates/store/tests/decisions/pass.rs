//! What is decided about an event while it is on its way down goes with it: its stage, its verdict, its failures.

use crate::decisions::life::{CONTAINERS, Found, LEASE, Life, Plan, until};
use forebay_store::core::{Level, LiveState};
use forebay_store::{GetAny, Sources};
use forebay_testkit::media::{Fault, Operation};
use std::time::Duration;

const EVENT: u64 = 1;

/// A ready event is planned for demotion and its image is being written; then something else is done and answered; then
/// the device goes on.
fn on_its_way_down(life: &Life, something: impl FnOnce(&Life)) {
    life.ready(EVENT);
    life.stall_writes(CONTAINERS);
    life.meanwhile(|store| store.tick(), something);
    life.tick();
    assert_eq!(life.level(EVENT, 0), Level::Warm);
}

fn pass(life: &Life) {
    let token = life.lease(EVENT);
    life.pass(EVENT, &token).unwrap();
}

#[track_caller]
fn is(found: Option<Found>, state: LiveState, stage: &str) {
    let found = found.expect("the event is there");
    assert_eq!((found.state, &*found.stage, found.versions.len()), (state, stage, 2));
}

/// Every life after this one, orderly closing included: each of them takes snapshots of the logs.
fn in_every_life_after_snapshots(life: &Life, look: impl Fn(&Life)) {
    life.in_every_life(|life, _| look(life));
    life.store.close().unwrap();
    let next = life.after_kill();
    look(&next);
    next.in_every_life(|life, _| look(life));
}

/// Stages in which the event is given out.
fn given_in(life: &Life) -> Vec<&'static str> {
    let mut stages = Vec::new();
    for stage in ["fast", "final"] {
        let request = GetAny { stage: Some(stage.to_owned()), n: 10, sources: Sources::None, ..GetAny::default() };
        for lease in life.get_any(&request).unwrap() {
            stages.push(stage);
            lease.requeue().unwrap();
        }
    }
    stages
}

#[test]
fn an_event_that_is_passed_on_its_way_down_is_in_its_stage() {
    let life = Plan::new().all_down().create();
    on_its_way_down(&life, pass);
    in_every_life_after_snapshots(&life, |life| {
        is(life.find(EVENT), LiveState::Ready, "final");
        assert_eq!(given_in(life), ["final"]);
    });
}

#[test]
fn an_event_that_is_passed_and_accepted_on_its_way_down_is_accepted_in_its_stage() {
    let life = Plan::new().all_down().create();
    on_its_way_down(&life, |life| {
        pass(life);
        let token = life.lease(EVENT);
        life.accept(EVENT, &token).unwrap();
    });
    in_every_life_after_snapshots(&life, |life| is(life.find(EVENT), LiveState::Accepted, "final"));
}

#[test]
fn an_event_that_is_passed_and_fails_on_its_way_down_is_given_out_again_in_its_stage() {
    let life = Plan::new().all_down().one_delivery().create();
    on_its_way_down(&life, |life| {
        pass(life);
        let _ = life.lease(EVENT);
        life.advance(2 * LEASE);
        life.unhindered_round();
        until("the lease runs out", || life.state(EVENT) == Some(LiveState::Debug));
    });
    in_every_life_after_snapshots(&life, |life| is(life.find(EVENT), LiveState::Debug, "final"));
    let next = life.after_kill().after_kill();
    assert!(next.replay(&next.name(EVENT)).unwrap());
    assert_eq!(given_in(&next), ["final"]);
    next.tick();
    in_every_life_after_snapshots(&next, |life| {
        is(life.find(EVENT), LiveState::Ready, "final");
        assert_eq!(given_in(life), ["final"]);
    });
}

/// The event arrives with an image that knows nothing of what was decided on its way, no other image is written, and the
/// hot level takes a snapshot of its log.
fn arrives_with_an_old_image(life: &Life, something: impl FnOnce(&Life)) {
    life.ready(EVENT);
    life.stall_writes(CONTAINERS);
    let device = &life.devices[0];
    life.meanwhile(
        |store| store.tick(),
        |life| {
            something(life);
            // The image's commit is the next; everything that should become durable after it fails.
            let begun = device.count(Operation::Sync) + 1;
            (1..5000).for_each(|nth| device.inject(Some(Operation::Sync), begun + nth, Fault::Fails));
            device.stall_writes(CONTAINERS, Duration::ZERO);
            until("the image does not arrive", || life.warm_stats().unwrap().demoted_events > 0);
            for event in 10_000..12_500 {
                life.put(event, 0);
                assert!(life.remove_event(&life.name(event)).unwrap());
            }
        },
    );
}

#[test]
fn an_event_that_was_passed_and_accepted_on_its_way_down_has_its_stage_when_no_other_image_says_so() {
    let life = Plan::new().all_down().create();
    arrives_with_an_old_image(&life, |life| {
        pass(life);
        let token = life.lease(EVENT);
        life.accept(EVENT, &token).unwrap();
    });
    life.in_lives_with_hot(|life| is(life.find(EVENT), LiveState::Accepted, "final"));
    let next = life.after_kill();
    in_every_life_after_snapshots(&next, |life| is(life.find(EVENT), LiveState::Accepted, "final"));
}

#[test]
fn an_event_that_was_passed_and_failed_on_its_way_down_has_its_stage_when_no_other_image_says_so() {
    let life = Plan::new().all_down().one_delivery().create();
    arrives_with_an_old_image(&life, |life| {
        pass(life);
        let _ = life.lease(EVENT);
        life.advance(2 * LEASE);
        life.unhindered_round();
        until("the lease runs out", || life.state(EVENT) == Some(LiveState::Debug));
    });
    life.in_lives_with_hot(|life| is(life.find(EVENT), LiveState::Debug, "final"));
    let next = life.after_kill().after_kill();
    assert!(next.replay(&next.name(EVENT)).unwrap());
    assert_eq!(given_in(&next), ["final"]);
    in_every_life_after_snapshots(&next, |life| assert_eq!(given_in(life), ["final"]));
}

#[test]
fn an_event_that_is_accepted_on_its_way_down_is_accepted() {
    let life = Plan::new().all_down().create();
    on_its_way_down(&life, |life| {
        let token = life.lease(EVENT);
        life.accept(EVENT, &token).unwrap();
    });
    in_every_life_after_snapshots(&life, |life| is(life.find(EVENT), LiveState::Accepted, "fast"));
}

#[test]
fn an_event_that_is_rejected_on_its_way_down_does_not_come_back() {
    let life = Plan::new().all_down().create();
    life.ready(EVENT);
    life.stall_writes(CONTAINERS);
    life.meanwhile(
        |store| store.tick(),
        |life| {
            let token = life.lease(EVENT);
            life.reject(EVENT, &token).unwrap();
        },
    );
    life.tick();
    in_every_life_after_snapshots(&life, |life| assert_eq!(life.find(EVENT), None, "the rejected event is back"));
}

#[test]
fn a_fragment_that_is_removed_or_updated_on_its_way_down_is_what_was_answered() {
    let life = Plan::new().all_down().create();
    life.ready(EVENT);
    life.put(EVENT, 2);
    life.stall_writes(CONTAINERS);
    life.meanwhile(
        |store| store.tick(),
        |life| {
            assert!(life.remove(EVENT, 0).unwrap());
            assert_eq!(life.update(EVENT, 1, 1, None).unwrap(), 1);
        },
    );
    life.tick();
    life.in_lives_with_hot(|life| {
        assert_eq!(life.find(EVENT).unwrap().versions.into_iter().collect::<Vec<_>>(), [(1, 1), (2, 0)]);
    });
    life.in_every_life(|life, _| {
        let found = life.find(EVENT).expect("what went down");
        assert_eq!(found.versions.get(&0), None, "the removed fragment is back");
        assert_ne!(found.versions.get(&1), Some(&0), "the version that was replaced is back");
    });
}

/// A worker that failed counts, wherever the event was meanwhile.
#[test]
fn a_failure_on_the_way_down_is_remembered() {
    let life = Plan::new().all_down().create();
    on_its_way_down(&life, |life| {
        let _ = life.lease(EVENT);
        life.advance(2 * LEASE);
        life.unhindered_round();
        until("the lease runs out", || life.state(EVENT) == Some(LiveState::Ready));
    });
    let delivery = |life: &Life| {
        let lease = life.store.lease(&life.name(EVENT), None).unwrap().expect("a ready event");
        lease.requeue().unwrap();
        lease.delivery
    };
    assert_eq!(delivery(&life), 2);
    life.in_lives_with_hot(|life| assert_eq!(delivery(life), 2));
    life.store.close().unwrap();
    life.in_lives_with_hot_after_close(|life| assert_eq!(delivery(life), 2));
}

/// Several stages and events at once, each decided at another point of its way.
#[test]
fn a_batch_on_its_way_down_is_what_was_answered_of_each_event() {
    const EVENTS: u64 = 20;
    let life = Plan::new().all_down().create();
    (0..EVENTS).for_each(|event| life.ready(event));
    let verdict = |life: &Life, event: u64| {
        if event.is_multiple_of(5) {
            return;
        }
        let token = life.lease(event);
        match event % 5 {
            1 => life.reject(event, &token).unwrap(),
            2 => life.accept(event, &token).unwrap(),
            _ => life.pass(event, &token).unwrap(),
        }
        if event % 5 == 4 {
            let token = life.lease(event);
            life.accept(event, &token).unwrap();
        }
    };
    life.stall_writes(CONTAINERS);
    life.meanwhile(|store| store.tick(), |life| (0..EVENTS).for_each(|event| verdict(life, event)));
    life.tick();
    in_every_life_after_snapshots(&life, |life| {
        for event in 0..EVENTS {
            let found = life.find(event).map(|found| (found.state, found.stage));
            let expected = match event % 5 {
                0 => Some((LiveState::Ready, "fast")),
                1 => None,
                2 => Some((LiveState::Accepted, "fast")),
                3 => Some((LiveState::Ready, "final")),
                _ => Some((LiveState::Accepted, "final")),
            };
            assert_eq!(found, expected.map(|(state, stage)| (state, stage.to_owned())), "event {event}");
        }
    });
}

/// Without any device in trouble: the stage is the device's as well, no matter how much of the event is there.
#[test]
fn a_pass_of_an_event_of_which_something_is_on_a_device_holds_without_the_hot_level() {
    for sources in 1..=2 {
        let life = Plan::new().create();
        (0..2).for_each(|source| if source < sources { life.persist(EVENT, source) } else { life.put(EVENT, source) });
        pass(&life);
        life.in_every_life(|life, _| assert_eq!(life.find(EVENT).unwrap().stage, "final"));
        let token = life.lease(EVENT);
        life.accept(EVENT, &token).unwrap();
        life.in_every_life(|life, _| {
            let found = life.find(EVENT).unwrap();
            assert_eq!((found.state, &*found.stage), (LiveState::Accepted, "final"));
        });
        life.tick();
        in_every_life_after_snapshots(&life, |life| {
            let found = life.find(EVENT).unwrap();
            assert_eq!((found.state, &*found.stage), (LiveState::Accepted, "final"));
        });
    }
}
