//! Events that are announced before their fragments come, with sources of their own.

use crate::common::fixture::{Fixture, RUN};
use crate::common::{refused, sealed_events};
use crate::semantics::{single, staged, three};
use forebay_store::SourceState::{Late, Missing, Present};
use forebay_store::core::{Kind, LiveState, Source};
use forebay_store::{OpenEvent, PutOptions, PutOutcome, Sources};
use std::time::Duration;

const OPEN: Option<LiveState> = Some(LiveState::Open);
const READY: Option<LiveState> = Some(LiveState::Ready);
const TOO_LONG: Duration = Duration::from_secs(11);

#[test]
fn an_announced_event_waits_for_its_own_sources() {
    let mut store = Fixture::new(&three());
    assert_eq!(store.announce(1, &[7, 4]).unwrap(), PutOutcome::Stored);
    store.stored(1, 7, b"x");
    store.stored(1, 100, b"not expected");
    store.stored(1, 101, b"not expected");
    store.in_every_life(|store| {
        assert_eq!(store.state(1), OPEN, "three fragments, but not those that were announced");
        assert_eq!(store.states(1), [(4, Missing), (7, Present), (100, Present), (101, Present)]);
        assert_eq!(store.counts(), [0, 0, 0, 0]);
    });
    store.stored(1, 4, b"");
    store.in_every_life(|store| {
        assert_eq!((store.state(1), store.counts()), (READY, [1, 0, 0, 0]));
        assert!(store.states(1).contains(&(4, forebay_store::SourceState::Empty)));
    });
    let lease = store.take(1);
    assert!(lease.missing.is_empty());
    lease.reject().unwrap();
}

#[test]
fn an_announced_event_exists_without_fragments_and_is_never_seen_if_none_comes() {
    let mut store = Fixture::new(&three());
    assert_eq!(store.announce(1, &[0, 1]).unwrap(), PutOutcome::Stored);
    store.in_every_life(|store| {
        let event = store.get_event(&store.primary(1), &Sources::All).unwrap().expect("announced");
        assert_eq!((event.state, event.fragments.len(), event.missing.len()), (LiveState::Open, 0, 2));
        assert_eq!(store.counts(), [0, 0, 0, 1]);
        assert_eq!(store.ledger(RUN).unwrap().announced(), 1);
        assert!(store.any(1).is_empty());
        assert!(store.lease(&store.primary(1), None).unwrap().is_none());
        refused(store.run_close(RUN), Kind::Unavailable);
    });
    store.advance(TOO_LONG);
    store.in_every_life(|store| {
        assert_eq!((store.state(1), store.counts()), (None, [0, 0, 1, 0]));
        assert_eq!(store.ledger(RUN).unwrap().announced(), 1);
        store.late(1, 0, b"a ghost");
        assert_eq!(store.announce(1, &[0, 1]).unwrap(), PutOutcome::Late);
        assert_eq!(store.state(1), None);
    });
    store.run_stop(RUN).unwrap();
    let summary = store.run_close(RUN).unwrap();
    assert_eq!((summary.announced, summary.ledger.never_seen, summary.ledger.stored.fragments), (1, 1, 0));
}

#[test]
fn seal_stop_and_removal_end_what_was_never_seen() {
    let mut store = Fixture::new(&three());
    for event in 1..=3 {
        let _ = store.announce(event, &[0]).unwrap();
    }
    store.seal(&store.primary(1)).unwrap();
    assert!(store.remove_event(&store.primary(2)).unwrap());
    store.in_every_life(|store| assert_eq!(store.counts(), [0, 0, 2, 1]));
    store.run_stop(RUN).unwrap();
    store.in_every_life(|store| {
        (1..=3).for_each(|event| store.late(event, 0, b"late"));
        assert_eq!(store.counts(), [0, 0, 3, 0]);
        assert_eq!(store.ledger(RUN).unwrap().imbalance(), None);
    });
    assert_eq!(store.run_close(RUN).unwrap().ledger.never_seen, 3);
}

#[test]
fn an_announcement_again_is_a_duplicate_and_another_one_a_conflict() {
    let mut store = Fixture::new(&three());
    let attributes = store.attributes(&["lumi=3"]);
    let sources = [store.source(1), store.source(2)];
    let how = OpenEvent { sources: Some(&sources), attributes: Some(&attributes) };
    assert_eq!(store.open_event(&store.primary(1), &how).unwrap(), PutOutcome::Stored);
    store.in_every_life(|store| {
        assert_eq!(store.open_event(&store.primary(1), &how).unwrap(), PutOutcome::Duplicate);
        assert_eq!(store.announce(1, &[2, 1]).unwrap(), PutOutcome::Duplicate, "in another order");
        refused(store.announce(1, &[1, 2, 3]), Kind::Conflict);
        refused(store.announce(1, &[1]), Kind::Conflict);
        let other = store.attributes(&["lumi=4"]);
        let other = OpenEvent { attributes: Some(&other), ..how.clone() };
        refused(store.open_event(&store.primary(1), &other), Kind::Conflict);
        refused(store.put_with(1, 1, b"x", &["lumi=4"]), Kind::Conflict);
        assert_eq!(store.counts(), [0, 0, 0, 1]);
        let event = store.get_event(&store.primary(1), &Sources::None).unwrap().unwrap();
        assert_eq!(event.attributes, store.attributes(&["lumi=3"]));
    });
    store.stored(1, 1, b"x");
    store.stored(1, 2, b"x");
    assert_eq!(store.announce(1, &[1, 2]).unwrap(), PutOutcome::Duplicate, "ready, and announced like that");
    let lease = store.take(1);
    assert_eq!(store.announce(1, &[1, 2]).unwrap(), PutOutcome::Late, "leased");
    lease.reject().unwrap();
    assert_eq!(store.announce(1, &[1, 2]).unwrap(), PutOutcome::Late, "decided");
}

#[test]
fn what_cannot_be_announced_is_refused() {
    let store = Fixture::new(&three());
    let name = store.primary(1);
    refused(store.announce(1, &[]), Kind::Invalid);
    let narrow = [Source::from_packed(&[0; 3])];
    refused(store.open_event(&name, &OpenEvent { sources: Some(&narrow), attributes: None }), Kind::Invalid);
    let many: Vec<u64> = (0..24_001).collect();
    refused(store.announce(1, &many), Kind::Invalid);
    assert_eq!(store.state(1), None);
    store.run_open(RUN, &three().run).unwrap();
    store.run_stop(RUN).unwrap();
    refused(store.announce(1, &[0]), Kind::Closed);
    store.run_close(RUN).unwrap();
    refused(store.announce(1, &[0]), Kind::Closed);
    let plain = Fixture::new(&sealed_events());
    refused(plain.announce(1, &[0]), Kind::Invalid);
    let mut announced = sealed_events();
    announced.announced = true;
    let mut announced = Fixture::new(&announced);
    let _ = announced.announce(1, &[3, 70_000]).unwrap();
    announced.stored(1, 3, b"x");
    announced.in_every_life(|store| assert_eq!(store.states(1), [(3, Present), (70_000, Missing)]));
    announced.stored(1, 70_000, b"x");
    announced.in_every_life(|store| assert_eq!((store.state(1), store.counts()), (READY, [1, 0, 0, 0])));
}

#[test]
fn what_is_there_counts_for_a_later_announcement() {
    let mut store = Fixture::new(&three());
    store.stored(1, 0, b"x");
    store.stored(1, 5, b"x");
    assert_eq!(store.announce(1, &[0, 5]).unwrap(), PutOutcome::Stored);
    store.in_every_life(|store| assert_eq!((store.state(1), store.counts()), (READY, [1, 0, 0, 0])));
}

/// An announcement that comes after the event was ready names sources that it lacks: it stays ready, in every life, and
/// is counted as what it is.
#[test]
fn ready_stays_ready_when_an_announcement_asks_for_more() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    assert_eq!(store.counts(), [1, 0, 0, 0]);
    assert_eq!(store.announce(1, &[0, 1]).unwrap(), PutOutcome::Stored);
    store.in_every_life(|store| {
        assert_eq!((store.state(1), store.counts()), (READY, [0, 1, 0, 0]));
        assert_eq!(store.states(1), [(0, Present), (1, Missing)]);
    });
    store.stored(1, 1, b"late");
    store.in_every_life(|store| {
        assert_eq!((store.state(1), store.counts()), (READY, [1, 0, 0, 0]));
        assert_eq!(store.states(1), [(0, Present), (1, Late)]);
    });
    store.take(1).reject().unwrap();
    store.in_every_life(|store| assert_eq!(store.counts(), [1, 0, 0, 0]));
}

#[test]
fn late_fragments_are_attached_while_nobody_holds_the_event() {
    let mut store = Fixture::new(&staged(4));
    store.stored(1, 0, b"x");
    store.stored(1, 1, b"x");
    store.advance(TOO_LONG);
    store.in_every_life(|store| assert_eq!((store.state(1), store.counts()), (READY, [0, 1, 0, 0])));
    store.stored(1, 2, b"");
    store.in_every_life(|store| {
        assert_eq!(store.states(1), [(0, Present), (1, Present), (2, Late), (3, Missing)]);
        assert_eq!(store.counts(), [0, 1, 0, 0]);
    });
    let lease = store.take(1);
    assert_eq!(lease.sources.count(Late), 1);
    store.late(1, 3, b"while it is leased");
    lease.requeue().unwrap();
    drop(lease);
    store.stored(1, 3, b"x");
    store.in_every_life(|store| {
        assert_eq!(store.states(1), [(0, Present), (1, Present), (2, Late), (3, Late)]);
        assert_eq!(store.counts(), [1, 0, 0, 0], "it has got the rest");
        assert_eq!(store.ledger(RUN).unwrap().stored.fragments, 4);
    });
}

#[test]
fn nothing_late_ever_opens_an_event() {
    let mut store = Fixture::new(&single());
    for event in 1..=4 {
        store.stored(event, 0, b"x");
    }
    store.take(1).reject().unwrap();
    assert!(store.remove_event(&store.primary(2)).unwrap());
    store.take(3).accept(&["main"]).unwrap();
    assert!(store.release(&store.primary(3)).unwrap());
    let _ = store.announce(5, &[0]).unwrap();
    store.advance(TOO_LONG);
    let ghosts = |store: &Fixture| {
        for event in [1, 2, 3, 5] {
            for source in [0, 1, 99] {
                store.late(event, source, b"x");
            }
            let reservation = store.reserve(&store.key(event, 7), 3, &PutOptions::default()).unwrap();
            assert_eq!(reservation.commit().unwrap(), PutOutcome::Late);
            assert_eq!(store.announce(event, &[0]).unwrap(), PutOutcome::Late);
            assert_eq!(store.state(event), None, "event {event} is back");
        }
    };
    store.in_every_life(ghosts);
    store.take(4).reject().unwrap();
    store.run_stop(RUN).unwrap();
    store.run_close(RUN).unwrap();
    store.in_every_life(|store| {
        for event in [1, 2, 3, 4, 5, 6] {
            refused(store.try_put(event, 0, b"x"), Kind::Closed);
            refused(store.announce(event, &[0]), Kind::Closed);
            assert_eq!(store.state(event), None);
        }
        assert_eq!(store.counts(), [4, 0, 1, 0]);
    });
}

#[test]
fn a_reservation_beside_an_announcement_keeps_the_event() {
    let mut store = Fixture::new(&three());
    let reservation = store.reserve(&store.key(1, 0), 10, &PutOptions::default()).unwrap();
    assert_eq!(store.announce(1, &[0]).unwrap(), PutOutcome::Stored);
    reservation.abort();
    store.in_every_life(|store| assert_eq!((store.state(1), store.counts()), (OPEN, [0, 0, 0, 1])));
    store.stored(1, 0, b"x");
    store.in_every_life(|store| assert_eq!((store.state(1), store.counts()), (READY, [1, 0, 0, 0])));
}
