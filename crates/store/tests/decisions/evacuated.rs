//! Records move between segments while their event is on its way down: it arrives all the same, without an opening.

use crate::common::eventually;
use crate::common::fixture::RUN;
use crate::common::key;
use crate::decisions::life::{CONTAINERS, LEASE, Life, Plan, bytes, until};
use forebay_store::PutOptions;
use forebay_store::core::{Level, LiveState};

const EVENT: u64 = 1;

/// The event's image is being written when its records move: what is put beside them goes again, so that their segment is
/// mostly dead.
fn evacuated_on_its_way(life: &Life) {
    life.stall_writes(CONTAINERS);
    life.meanwhile(
        |store| store.tick(),
        |life| {
            for event in 1000..1010 {
                let options = PutOptions::default();
                let _ = life.store.put(&key(RUN, event, 0), &[7; 4000], &options).unwrap();
            }
            (1000..1010).for_each(|event| assert!(life.remove_event(&life.name(event)).unwrap()));
            let before = life.stats().evacuated;
            until("nothing was evacuated", || {
                life.unhindered_round();
                life.stats().evacuated > before
            });
        },
    );
}

#[test]
fn an_accepted_event_that_is_evacuated_on_its_way_down_arrives() {
    let life = Plan::new().evacuating().create();
    life.ready(EVENT);
    let token = life.lease(EVENT);
    life.accept(EVENT, &token).unwrap();
    evacuated_on_its_way(&life);
    for _ in 0..10 {
        life.tick();
    }
    assert_eq!([0, 1].map(|source| life.level(EVENT, source)), [Level::Warm; 2], "it stays on the hot level");
    life.in_every_life(|life, _| {
        let found = life.find(EVENT).expect("an accepted event");
        assert_eq!((found.state, found.versions.len()), (LiveState::Accepted, 2));
    });
}

#[test]
fn an_event_in_debug_that_is_evacuated_on_its_way_down_arrives() {
    let life = Plan::new().evacuating().one_delivery().create();
    life.ready(EVENT);
    let _ = life.lease(EVENT);
    life.advance(2 * LEASE);
    evacuated_on_its_way(&life);
    for _ in 0..10 {
        life.tick();
    }
    assert_eq!([0, 1].map(|source| life.level(EVENT, source)), [Level::Warm; 2], "it stays on the hot level");
    life.in_every_life(|life, _| assert_eq!(life.state(EVENT), Some(LiveState::Debug)));
}

/// What was put for the warm level goes there, no matter what happened to its record on the way.
#[test]
fn a_fragment_for_the_warm_level_that_is_evacuated_on_its_way_down_arrives() {
    let life = Plan::new().evacuating().create();
    let options = PutOptions { level: Some(Level::Warm), ..PutOptions::default() };
    let _ = life.store.put(&key(RUN, EVENT, 0), &bytes(EVENT, 0, 0), &options).unwrap();
    evacuated_on_its_way(&life);
    for _ in 0..10 {
        life.tick();
    }
    assert_eq!(life.level(EVENT, 0), Level::Warm, "it stays on the hot level");
    life.in_every_life(|life, _| assert_eq!(life.version(EVENT, 0), Some(0)));
}

/// An event that goes down under pressure stays selectable, and is found once.
#[test]
fn a_ready_event_that_is_evacuated_on_its_way_down_is_found_once() {
    let mut plan = Plan::new().evacuating();
    plan.config.demote_high = 0.3;
    let life = plan.create();
    let mut next = 2000;
    life.ready(EVENT);
    // Pressure: what is ready goes down, the event among it.
    while life.stats().fill < 0.5 {
        life.ready(next);
        next += 1;
    }
    evacuated_on_its_way(&life);
    eventually(&life.store, "the hot level is relieved", || life.stats().fill < 0.3);
    life.in_lives_with_hot(|life| {
        let found = life.find(EVENT).expect("the event");
        assert_eq!((found.state, found.versions.len()), (LiveState::Ready, 2));
    });
    life.reject(EVENT, &life.lease(EVENT)).unwrap();
    life.in_every_life(|life, _| assert_eq!(life.find(EVENT), None));
}
