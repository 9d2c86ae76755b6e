//! The debug stream: how events get there, what it shows, its quota, and the ways out of it.

use crate::common::fixture::{Fixture, RUN};
use crate::common::refused;
use crate::semantics::{of_stage, single, staged};
use forebay_store::core::{Keyspace, Kind, LiveState, Primary};
use forebay_store::{ResultFragment, Sources};

fn fragile(keyspace: Keyspace) -> Keyspace {
    Keyspace { deliveries_max: 1, ..keyspace }
}

/// Puts an event and lets its worker go silent.
fn fail(store: &Fixture, event: u64, value: &[u8]) {
    store.stored(event, 0, value);
    drop(store.take(event));
    store.advance(store.config.lease * 2);
    assert_eq!(store.state(event), Some(LiveState::Debug));
}

#[test]
fn it_is_listed_with_reason_stage_and_weight() {
    let mut store = Fixture::new(&fragile(staged(1)));
    store.stored(1, 0, b"ten bytes.");
    store.take(1).pass("final", &[]).unwrap();
    drop(of_stage(&store, "final"));
    store.advance(store.config.lease * 2);
    store.in_every_life(|store| {
        let listed = store.debug_events();
        assert_eq!(listed.len(), 1);
        assert_eq!(
            (listed[0].primary, &*listed[0].reason, listed[0].stage.as_str(), listed[0].deliveries),
            (store.primary(1), "worker silent", "final", 1)
        );
        assert_eq!((listed[0].tally.events, listed[0].tally.fragments, listed[0].tally.bytes), (1, 1, 10));
        let debug = store.stats().debug;
        assert_eq!(debug.tally, listed[0].tally);
        assert!(debug.alarm.expect("an alarm").contains("1 events with 10 bytes"));
        assert_eq!(store.read(1, 0).unwrap(), b"ten bytes.");
        store.late(1, 5, b"late");
        assert!(of_stage(store, "final").is_empty());
    });
    assert!(store.release(&store.primary(1)).unwrap());
    store.in_every_life(|store| {
        assert_eq!((store.debug_events().len(), store.stats().debug.alarm), (0, None));
        assert_eq!(store.ledger(RUN).unwrap().released.fragments, 1);
    });
}

#[test]
fn a_replayed_event_goes_to_workers_again_with_a_clean_record() {
    let mut store = Fixture::new(&fragile(staged(1)));
    store.stored(1, 0, b"x");
    store.take(1).pass("middle", &[ResultFragment::new(&store.source(7), b"result")]).unwrap();
    drop(of_stage(&store, "middle"));
    store.advance(store.config.lease * 2);
    assert!(store.replay(&store.primary(1)).unwrap());
    assert!(!store.replay(&store.primary(1)).unwrap(), "it is not in the debug stream any more");
    store.in_every_life(|store| {
        assert_eq!(store.state(1), Some(LiveState::Ready));
        assert_eq!((store.info(1).stage, store.info(1).deliveries, store.info(1).fragments), (1, 0, 2));
        assert!(store.debug_events().is_empty() && store.stats().debug.alarm.is_none());
    });
    let lease = of_stage(&store, "middle").remove(0);
    assert_eq!(lease.delivery, 1);
    drop(lease);
    store.advance(store.config.lease * 2);
    store.in_every_life(|store| assert_eq!(store.state(1), Some(LiveState::Debug), "it failed again"));
    assert!(store.replay(&store.primary(1)).unwrap());
    of_stage(&store, "middle")[0].accept(&["main"]).unwrap();
    store.in_every_life(|store| assert_eq!(store.state(1), Some(LiveState::Accepted)));
    assert!(!store.replay(&store.primary(1)).unwrap());
    assert!(!store.replay(&store.primary(99)).unwrap());
    refused(store.replay(&Primary::from_packed(&[1, 2, 3])), Kind::Invalid);
}

/// A closed run's events are not given to workers any more: its account is final.
#[test]
fn an_event_of_a_closed_run_is_not_replayed() {
    let mut store = Fixture::new(&fragile(single()));
    fail(&store, 1, b"poison");
    store.run_stop(RUN).unwrap();
    let summary = store.run_close(RUN).unwrap();
    assert_eq!(summary.ledger.live.debug.events, 1);
    store.in_every_life(|store| {
        refused(store.replay(&store.primary(1)), Kind::Closed);
        assert_eq!(store.state(1), Some(LiveState::Debug));
        assert_eq!(store.read(1, 0).unwrap(), b"poison");
        assert_eq!(store.ledger(RUN).unwrap().imbalance(), None);
    });
    assert!(store.release(&store.primary(1)).unwrap());
    store.in_every_life(|store| assert_eq!(store.ledger(RUN).unwrap().released.events, 1));
}

#[test]
fn an_event_on_which_processes_die_ends_there_as_well() {
    let mut store = Fixture::new(&Keyspace { deliveries_max: 2, ..staged(1) });
    store.stored(1, 0, b"x");
    store.take(1).pass("middle", &[]).unwrap();
    for delivery in 1..=2 {
        assert_eq!(of_stage(&store, "middle")[0].delivery, delivery);
        store.crash();
    }
    store.in_every_life(|store| {
        assert_eq!(store.debug_events()[0].reason, "process died");
        assert_eq!(store.debug_events()[0].stage, "middle");
    });
    assert!(store.replay(&store.primary(1)).unwrap());
    store.in_every_life(|store| assert_eq!((store.info(1).deliveries, store.info(1).stage), (0, 1)));
    of_stage(&store, "middle")[0].reject().unwrap();
}

#[test]
fn past_its_quota_it_inhibits_until_somebody_has_looked() {
    let store = Fixture::with(&fragile(single()), |config| config.debug_share = 1.0 / 64.0);
    store.run_open(RUN, &single().run).unwrap();
    let quota = store.stats().debug.quota_bytes;
    assert!((60_000..70_000).contains(&quota), "a 64th of 4 MiB, not {quota}");
    let mut events = 0;
    while store.live(LiveState::Debug).bytes <= quota {
        assert_eq!(store.stats().inhibit, None, "{events} events");
        fail(&store, events, &[0; 4096]);
        events += 1;
    }
    let inhibit = store.stats().inhibit.expect("past its quota");
    assert_eq!(inhibit.owner, "debug stream");
    assert!(inhibit.cause.contains("debug") && inhibit.ends.contains("replays"), "{inhibit:?}");
    assert!(store.stats().debug.alarm.expect("an alarm").contains("past its quota"));
    store.stored(1000, 0, b"it inhibits, it does not refuse");
    store.take(1000).reject().unwrap();
    assert!(store.replay(&store.primary(0)).unwrap());
    assert!(store.stats().inhibit.is_some(), "hysteresis");
    assert!(store.release(&store.primary(1)).unwrap());
    assert!(store.remove_event(&store.primary(2)).unwrap());
    store.tick();
    assert_eq!(store.stats().inhibit, None);
    assert!(store.stats().debug.alarm.is_some(), "there is still something to look at");
    store.take(0).reject().unwrap();
}

#[test]
fn conflicting_copies_raise_the_alarm_too_and_are_listed() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, b"right");
    refused(store.try_put(1, 0, b"wrong"), Kind::Conflict);
    refused(store.try_put(1, 0, b"wrong"), Kind::Conflict);
    store.in_every_life(|store| {
        let kept = store.conflicts();
        assert_eq!((kept.len(), kept[0].key, kept[0].bytes), (1, store.key(1, 0), 5));
        assert!(store.stats().debug.alarm.is_some());
        let event = store.get_event(&store.primary(1), &Sources::All).unwrap().unwrap();
        assert_eq!(*event.fragments[0], *b"right");
    });
    store.take(1).reject().unwrap();
    store.run_stop(RUN).unwrap();
    store.run_close(RUN).unwrap();
    store.in_every_life(|store| assert_eq!((store.conflicts().len(), store.stats().debug.alarm), (0, None)));
}
