//! Sources that events do not wait for: by hand and by policy, from an event on and up to one.

use crate::common::fixture::{Fixture, RUN};
use crate::common::refused;
use crate::semantics::{staged, three};
use forebay_store::SourceState::{Late, Masked, Missing, Present};
use forebay_store::core::{Kind, LiveState, Source};
use forebay_store::{SourceStatus, Sources};
use std::time::Duration;

const OPEN: Option<LiveState> = Some(LiveState::Open);
const READY: Option<LiveState> = Some(LiveState::Ready);

/// Puts sources 0 and 1 of events that wait for 0, 1 and 2.
fn two_of_three(store: &Fixture, event: u64) {
    store.stored(event, 0, b"x");
    store.stored(event, 1, b"x");
}

fn row(store: &Fixture, source: &str) -> SourceStatus {
    store.sources(RUN).unwrap().into_iter().find(|row| row.source == source).expect("a source of the run")
}

#[test]
fn a_mask_lets_events_go_that_wait_and_those_that_come() {
    let mut store = Fixture::new(&staged(3));
    two_of_three(&store, 1);
    store.stored(2, 0, b"x");
    store.mask(RUN, &store.source(2), None).unwrap();
    two_of_three(&store, 3);
    store.in_every_life(|store| {
        assert_eq!([1, 2, 3].map(|event| store.state(event)), [READY, OPEN, READY]);
        assert_eq!(store.states(1), [(0, Present), (1, Present), (2, Masked)]);
        assert_eq!(store.states(2), [(0, Present), (1, Missing), (2, Masked)]);
        assert_eq!(store.counts(), [2, 0, 0, 0]);
        assert_eq!(row(store, "2").masked.as_deref(), Some("by hand"));
        assert_eq!(store.runs()[0].masked, ["2"]);
    });
    assert!(store.take(1).missing.is_empty(), "a masked source is not missing");
    store.stored(2, 2, b"what it sends nevertheless is stored");
    store.stored(2, 1, b"x");
    assert_eq!(store.states(2), [(0, Present), (1, Present), (2, Present)]);
    store.stored(3, 2, b"late");
    store.in_every_life(|store| {
        assert_eq!(store.states(3), [(0, Present), (1, Present), (2, Late)]);
        assert_eq!(store.counts(), [3, 0, 0, 0]);
    });
}

#[test]
fn a_mask_covers_events_from_one_on_and_up_to_one() {
    let mut store = Fixture::new(&staged(3));
    store.run_open(RUN, &staged(3).run).unwrap();
    store.mask(RUN, &store.source(2), Some(&store.primary(5))).unwrap();
    let check = |store: &Fixture, until: u64| {
        for event in 1..=9 {
            let covered = (5..until).contains(&event);
            assert_eq!(store.state(event), if covered { READY } else { OPEN }, "event {event}");
            let state = if covered { Masked } else { Missing };
            assert_eq!(store.states(event)[2], (2, state), "event {event}");
        }
    };
    store.unmask(RUN, &store.source(2), Some(&store.primary(8))).unwrap();
    (1..=9).for_each(|event| two_of_three(&store, event));
    store.in_every_life(|store| check(store, 8));
    store.in_every_life(|store| assert_eq!(store.counts(), [3, 0, 0, 0]));
    assert!(store.runs()[0].masked.is_empty());
    // Masked again from the beginning: the rest goes.
    store.mask(RUN, &store.source(2), Some(&store.primary(8))).unwrap();
    store.in_every_life(|store| check(store, 10));
}

#[test]
fn what_a_mask_made_ready_stays_as_it_was_when_the_mask_is_lifted() {
    let mut store = Fixture::new(&staged(3));
    two_of_three(&store, 1);
    store.mask(RUN, &store.source(2), None).unwrap();
    two_of_three(&store, 2);
    store.advance(Duration::from_secs(1));
    store.unmask(RUN, &store.source(2), None).unwrap();
    two_of_three(&store, 3);
    store.in_every_life(|store| {
        assert_eq!([1, 2, 3].map(|event| store.state(event)), [READY, READY, OPEN]);
        assert_eq!(store.counts(), [2, 0, 0, 0]);
        assert_eq!(store.states(1)[2], (2, Masked), "it went without by decision");
        assert_eq!(store.states(3)[2], (2, Missing));
        assert_eq!(row(store, "2").masked, None);
    });
    assert!(store.take(2).missing.is_empty());
    store.take(1).reject().unwrap();
    store.in_every_life(|store| assert_eq!(store.ledger(RUN).unwrap().complete, 2));
}

#[test]
fn masks_reduce_a_count_too() {
    let mut store = Fixture::new(&three());
    two_of_three(&store, 1);
    store.mask(RUN, &store.source(9), None).unwrap();
    store.in_every_life(|store| assert_eq!((store.state(1), store.counts()), (READY, [1, 0, 0, 0])));
    store.stored(2, 9, b"masked, but there");
    store.stored(2, 0, b"x");
    store.in_every_life(|store| assert_eq!(store.state(2), OPEN, "two of three are there, none is absent by mask"));
}

#[test]
fn an_event_of_which_every_source_is_masked_waits_for_something_to_process() {
    let mut store = Fixture::new(&staged(2));
    let _ = store.announce(1, &[0, 1]).unwrap();
    store.mask(RUN, &store.source(0), None).unwrap();
    store.mask(RUN, &store.source(1), None).unwrap();
    store.in_every_life(|store| assert_eq!((store.state(1), store.counts()), (OPEN, [0, 0, 0, 1])));
    store.stored(1, 5, b"x");
    store.in_every_life(|store| assert_eq!((store.state(1), store.counts()), (READY, [1, 0, 0, 0])));
}

/// Found by the model: what was complete without a fragment, all its sources masked, stayed so when they were unmasked.
#[test]
fn an_event_without_fragments_waits_again_when_its_sources_are_unmasked() {
    let mut store = Fixture::new(&staged(3));
    let _ = store.announce(5, &[0, 1]).unwrap();
    for source in 0..2 {
        store.mask(RUN, &store.source(source), Some(&store.primary(4))).unwrap();
    }
    for source in 0..2 {
        store.unmask(RUN, &store.source(source), Some(&store.primary(4))).unwrap();
    }
    store.in_every_life(|store| assert_eq!(store.states(5), [(0, Missing), (1, Missing)]));
    store.stored(5, 0, b"x");
    store.in_every_life(|store| assert_eq!((store.state(5), store.counts()), (OPEN, [0; 4])));
}

#[test]
fn masks_are_set_and_lifted_twice_without_harm_and_refused_where_they_cannot_be() {
    let store = Fixture::new(&staged(3));
    let source = store.source(2);
    refused(store.mask(RUN, &source, None), Kind::Invalid);
    store.run_open(RUN, &staged(3).run).unwrap();
    store.unmask(RUN, &source, None).unwrap();
    for _ in 0..3 {
        store.mask(RUN, &source, None).unwrap();
    }
    refused(store.mask(RUN, &Source::from_packed(&[0; 3]), None), Kind::Invalid);
    refused(store.unmask(RUN, &Source::from_packed(&[0; 5]), None), Kind::Invalid);
    refused(store.sources(7), Kind::Invalid);
    for _ in 0..3 {
        store.unmask(RUN, &source, None).unwrap();
    }
    store.run_pause(RUN).unwrap();
    store.mask(RUN, &source, None).unwrap();
    store.run_stop(RUN).unwrap();
    store.unmask(RUN, &source, None).unwrap();
    let summary = store.run_close(RUN).unwrap();
    assert_eq!(summary.masks.len(), 4, "{:?}", summary.masks);
    refused(store.mask(RUN, &source, None), Kind::Closed);
    refused(store.unmask(RUN, &source, None), Kind::Closed);
}

fn by_policy(misses: u32) -> forebay_store::core::Keyspace {
    let mut keyspace = staged(3);
    keyspace.run.auto_mask = Some(misses);
    keyspace
}

/// The policy has judged: nodes of a cluster are asked each 100 ms.
fn judged(store: &Fixture) {
    store.tick();
    if std::env::var_os("FOREBAY_TEST_NODES").is_some() {
        std::thread::sleep(Duration::from_millis(400));
    }
}

const TOO_LONG: Duration = Duration::from_secs(11);

#[test]
fn a_source_that_is_missed_in_a_row_is_masked_and_unmasked_when_it_comes_again() {
    let mut store = Fixture::new(&by_policy(3));
    for event in 1..=2 {
        two_of_three(&store, event);
    }
    store.advance(TOO_LONG);
    judged(&store);
    assert!(store.runs()[0].masked.is_empty(), "two in a row");
    (0..3).for_each(|source| store.stored(3, source, b"x"));
    judged(&store);
    for event in 4..=5 {
        two_of_three(&store, event);
        store.advance(TOO_LONG);
        judged(&store);
    }
    assert!(store.runs()[0].masked.is_empty(), "it came in between: two in a row again");
    two_of_three(&store, 6);
    store.advance(TOO_LONG);
    judged(&store);
    two_of_three(&store, 7);
    store.in_every_life(|store| {
        assert_eq!(store.runs()[0].masked, ["2"]);
        assert_eq!(row(store, "2").masked.as_deref(), Some("by policy"));
        assert_eq!(store.state(7), READY);
        assert_eq!(store.counts(), [2, 5, 0, 0]);
    });
    judged(&store);
    for event in 8..=9 {
        (0..3).for_each(|source| store.stored(event, 2 - source, b"x"));
    }
    judged(&store);
    assert_eq!(store.runs()[0].masked, ["2"], "two have come again");
    store.stored(10, 2, b"x");
    judged(&store);
    store.in_every_life(|store| assert!(store.runs()[0].masked.is_empty()));
    two_of_three(&store, 11);
    assert_eq!(store.state(11), OPEN, "waited for again");
}

#[test]
fn the_policy_leaves_a_persons_mask_as_it_is() {
    let store = Fixture::new(&by_policy(3));
    let source = store.schema().source(&[2]).unwrap();
    two_of_three(&store, 1);
    store.mask(RUN, &source, Some(&store.primary(100))).unwrap();
    for event in 2..=6 {
        two_of_three(&store, event);
    }
    store.advance(TOO_LONG);
    judged(&store);
    assert_eq!(row(&store, "2").masked.as_deref(), Some("by hand from 1/100"));
    two_of_three(&store, 7);
    assert_eq!(store.state(7), OPEN, "not before the first event of the mask");
}

/// A readout that is down loses whole events: that is no reason to break up those that come after it.
#[test]
fn events_that_are_never_seen_do_not_mask_anything() {
    let mut store = Fixture::new(&by_policy(3));
    for event in 1..=10 {
        let _ = store.announce(event, &[0, 1, 2]).unwrap();
    }
    store.advance(TOO_LONG);
    assert_eq!(store.counts(), [0, 0, 10, 0]);
    store.tick();
    store.in_every_life(|store| assert!(store.runs()[0].masked.is_empty()));
}

#[test]
fn sources_say_who_is_late_missing_and_silent() {
    let mut store = Fixture::new(&staged(3));
    for event in 1..=3 {
        two_of_three(&store, event);
    }
    store.stored(3, 2, b"0123456789");
    store.advance(TOO_LONG);
    store.stored(1, 2, b"late");
    refused(store.try_put(1, 0, b"other"), Kind::Conflict);
    store.take(3).reject().unwrap();
    store.late(3, 2, b"x");
    let check = |store: &Fixture| {
        let (first, last) = (row(store, "0"), row(store, "2"));
        assert_eq!((first.fragments, first.bytes, first.missing, first.late, first.conflicts), (3, 3, 0, 0, 1));
        assert_eq!((last.fragments, last.bytes, last.missing, last.late, last.conflicts), (2, 14, 2, 2, 0));
        assert_eq!(store.sources(RUN).unwrap().len(), 3);
    };
    check(&store);
    assert_eq!(row(&store, "0").last_key.as_deref(), Some("1/3"));
    assert_eq!(row(&store, "0").age, Some(Duration::ZERO), "seen by the look of this moment");
    store.advance(Duration::from_secs(5));
    assert_eq!(row(&store, "0").age, Some(Duration::from_secs(5)));
    store.reopen();
    check(&store);
    store.reopen();
    check(&store);
    assert!(store.get_event(&store.primary(1), &Sources::None).unwrap().is_some());
}
