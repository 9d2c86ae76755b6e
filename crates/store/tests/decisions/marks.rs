//! Masks, classes and holds over crashes: what was answered is in force in every life with the hot level, what an event
//! became by them stays, and what is on a device says so alone.

use crate::common::eventually;
use crate::common::fixture::RUN;
use crate::decisions::life::{DAY, LOGS, Life, Plan, unknown};
use forebay_store::core::{AttributeSchema, Completeness, Kind, Level, LiveState, Result};
use forebay_store::{PutOptions, SourceState, Sources, Store};

const EVENT: u64 = 1;

/// Sources 0 and 1 for all, 8 and 9 for calibration.
fn by_class() -> Plan {
    let mut plan = Plan::new();
    let schema = &plan.keyspace.schema;
    plan.keyspace.run.completeness = Completeness::sources(schema, &[vec![0], vec![1]]).unwrap();
    let calib = Completeness::sources(schema, &[vec![8], vec![9]]).unwrap();
    plan.keyspace.run.classes = vec![("calib".to_owned(), calib)];
    plan.keyspace.attributes = AttributeSchema::parse(&["lumi:u32", "class"], &["physics", "calib"]).unwrap();
    plan
}

fn mask(store: &Store, source: u64) -> Result<()> {
    store.mask(RUN, &store.schema().source(&[source]).unwrap(), None)
}

fn masked(life: &Life) -> Vec<String> {
    life.runs().into_iter().find(|run| run.run == RUN).unwrap().masked
}

fn source_state(life: &Life, event: u64, source: u64) -> SourceState {
    let found = life.get_event(&life.name(event), &Sources::None).unwrap().expect("a live event");
    found.sources.of(&life.schema().source(&[source]).unwrap())
}

fn put_as(life: &Life, event: u64, source: u64, pairs: &[&str], persisted: bool) {
    let attributes = life.attributes(pairs);
    life.put_as(event, source, &PutOptions { attributes: Some(&attributes), persisted, ..PutOptions::default() });
}

#[test]
fn a_mask_beside_a_device_in_trouble_is_in_force_in_every_life_with_the_hot_level() {
    for stalls in [false, true] {
        let life = by_class().impatient().create();
        life.persist(EVENT, 0);
        life.put(2, 0);
        for device in &life.devices {
            if stalls { device.stall_writes(LOGS, DAY) } else { device.refuse_writes(LOGS) }
        }
        unknown(mask(&life.store, 1), "a mask beside a device in trouble");
        life.in_lives_with_hot(|life| {
            assert_eq!(masked(life).len(), 1);
            assert_eq!([EVENT, 2].map(|event| life.state(event)), [Some(LiveState::Ready); 2]);
            assert_eq!(source_state(life, EVENT, 1), SourceState::Masked);
        });
        life.answer_again();
        life.eventually_ok("the repeated mask", |life| mask(&life.store, 1));
        assert_eq!(life.ledger().imbalance(), None);
        // A person lifts it: no later life has it.
        life.store.unmask(RUN, &life.schema().source(&[1]).unwrap(), None).unwrap();
        life.in_lives_with_hot(|life| {
            assert!(masked(life).is_empty());
            assert_eq!(life.state(EVENT), Some(LiveState::Ready), "ready stays ready");
        });
    }
}

/// Ready by a mask, and then wholly on a device: it is ready there, and masked is what it is.
#[test]
fn an_event_that_a_mask_made_ready_stays_that_where_it_goes() {
    for lift in [false, true] {
        let life = by_class().all_down().create();
        life.put(EVENT, 0);
        mask(&life.store, 1).unwrap();
        assert_eq!(life.state(EVENT), Some(LiveState::Ready));
        if lift {
            life.store.unmask(RUN, &life.schema().source(&[1]).unwrap(), None).unwrap();
        }
        life.tick();
        assert_eq!(life.level(EVENT, 0), Level::Warm);
        let counts = (life.ledger().complete, life.ledger().incomplete);
        life.in_every_life(|life, hot| {
            assert_eq!(life.state(EVENT), Some(LiveState::Ready), "with the hot level {hot}");
            if hot {
                assert_eq!((life.ledger().complete, life.ledger().incomplete), counts);
                assert_eq!(source_state(life, EVENT, 1), SourceState::Masked);
            }
        });
        life.accept(EVENT, &life.lease(EVENT)).unwrap();
        life.tick();
        life.in_every_life(|life, _| assert_eq!(life.state(EVENT), Some(LiveState::Accepted)));
    }
}

/// An event whose class asks for other sources, persisted one by one and decided beside a device in trouble.
#[test]
fn a_class_and_its_verdict_hold_in_every_life() {
    let life = by_class().impatient().create();
    put_as(&life, EVENT, 8, &["class=calib", "lumi=5"], true);
    put_as(&life, EVENT, 9, &[], true);
    put_as(&life, 2, 8, &["class=calib"], false);
    put_as(&life, 2, 9, &[], false);
    assert_eq!([EVENT, 2].map(|event| life.state(event)), [Some(LiveState::Ready); 2]);
    let attributes = |life: &Life| {
        let found = life.get_event(&life.name(EVENT), &Sources::None).unwrap().expect("a live event");
        format!("{:?}", found.attributes)
    };
    let told = attributes(&life);
    life.in_lives_with_hot(|life| {
        assert_eq!(attributes(life), told);
        assert_eq!([EVENT, 2].map(|event| life.state(event)), [Some(LiveState::Ready); 2]);
    });
    let token = life.lease(EVENT);
    life.devices[0].refuse_writes(LOGS);
    unknown(life.accept(EVENT, &token), "an accept beside a failing device");
    life.in_lives_with_hot(|life| {
        assert_eq!((life.state(EVENT), attributes(life)), (Some(LiveState::Accepted), told.clone()));
    });
    life.answer_again();
    life.eventually_ok("the repeated accept", |life| life.accept(EVENT, &token));
    eventually(&life.store, "it goes down", || life.level(EVENT, 8) == Level::Warm);
    // Whole on the device: its attributes went along.
    life.in_every_life(|life, _| {
        assert_eq!((life.state(EVENT), attributes(life)), (Some(LiveState::Accepted), told.clone()));
    });
}

/// A class that comes after its event went down makes no event ready or open again in any life.
#[test]
fn a_class_that_comes_beside_a_device_in_trouble_changes_no_state() {
    let life = by_class().impatient().all_down().create();
    life.ready(EVENT);
    life.tick();
    life.devices[0].refuse_writes("");
    let class = life.attributes(&["class=calib"]);
    let answer = life.store.update_attributes(&life.name(EVENT), &class, None);
    assert!(answer.as_ref().is_ok() || answer.as_ref().is_err_and(|error| error.kind() == Kind::OutcomeUnknown));
    let read = |life: &Life| {
        let found = life.get_event(&life.name(EVENT), &Sources::None).unwrap().expect("a live event");
        (found.state, format!("{:?}", found.attributes))
    };
    let told = read(&life);
    assert_eq!(told.0, LiveState::Ready);
    life.in_lives_with_hot(|life| assert_eq!(read(life), told));
    life.answer_again();
    life.tick();
    life.tick();
    life.in_lives_with_hot(|life| assert_eq!(read(life), told));
    life.in_every_life(|life, _| assert_eq!(life.state(EVENT), Some(LiveState::Ready)));
}

#[test]
fn a_hold_beside_a_device_in_trouble_is_in_force_in_every_life_with_the_hot_level() {
    let life = by_class().impatient().all_down().create();
    put_as(&life, EVENT, 0, &["lumi=5"], false);
    put_as(&life, EVENT, 1, &[], false);
    life.tick();
    life.devices[0].refuse_writes(LOGS);
    unknown(life.store.hold(None, &["lumi=5"]), "a hold beside a device in trouble");
    let any = |life: &Life| life.get_any(&forebay_store::GetAny { n: 4, ..Default::default() }).unwrap().len();
    life.in_lives_with_hot(|life| {
        assert_eq!(life.holds().len(), 1);
        assert_eq!(any(life), 0, "a held event is given out");
    });
    life.answer_again();
    let hold = life.holds()[0].id;
    life.eventually_ok("the hold ends", |life| life.store.release_hold(hold));
    life.in_lives_with_hot(|life| assert!(life.holds().is_empty()));
    assert_eq!(any(&life), 1);
}
