//! What an event waits for, by its class.

use crate::common::fixture::{Fixture, RUN};
use crate::common::refused;
use crate::semantics::staged;
use forebay_store::SourceState::{Missing, Present};
use forebay_store::core::{Completeness, Keyspace, Kind, LiveState};
use forebay_store::{OpenEvent, PutOutcome, ResultFragment};

const OPEN: Option<LiveState> = Some(LiveState::Open);
const READY: Option<LiveState> = Some(LiveState::Ready);

/// Four sources for all, sources 8 and 9 for calibration.
fn by_class() -> Keyspace {
    let mut keyspace = staged(4);
    let calib = Completeness::sources(&keyspace.schema, &[vec![8], vec![9]]).unwrap();
    keyspace.run.classes = vec![("calib-tile".to_owned(), calib)];
    keyspace
}

#[test]
fn the_event_itself_comes_before_its_class_and_its_class_before_the_run() {
    let mut store = Fixture::new(&by_class());
    let class = store.attributes(&["class=calib-tile"]);
    let own = [store.source(5)];
    let name = store.primary(3);
    let how = OpenEvent { sources: Some(&own), attributes: Some(&class) };
    assert_eq!(store.open_event(&name, &how).unwrap(), PutOutcome::Stored);
    store.stored_with(2, 8, b"x", &["class=calib-tile"]);
    store.stored_with(1, 0, b"x", &["class=physics"]);
    store.in_every_life(|store| {
        assert_eq!(store.states(1), [(0, Present), (1, Missing), (2, Missing), (3, Missing)]);
        assert_eq!(store.states(2), [(8, Present), (9, Missing)]);
        assert_eq!(store.states(3), [(5, Missing)]);
        assert_eq!(store.counts(), [0, 0, 0, 1]);
    });
    store.stored(3, 5, b"x");
    store.stored(2, 9, b"x");
    (1..4).for_each(|source| store.stored(1, source, b"x"));
    store.in_every_life(|store| {
        assert_eq!([1, 2, 3].map(|event| store.state(event)), [READY; 3]);
        assert_eq!(store.counts(), [3, 0, 0, 0]);
    });
}

#[test]
fn a_class_that_comes_with_a_later_fragment_is_asked_from_then_on() {
    let mut store = Fixture::new(&by_class());
    store.stored(1, 8, b"x");
    assert_eq!(store.states(1).len(), 5);
    store.stored_with(1, 0, b"x", &["class=calib-tile"]);
    store.in_every_life(|store| {
        assert_eq!((store.state(1), store.states(1)), (OPEN, vec![(0, Present), (8, Present), (9, Missing)]));
    });
    store.stored(1, 9, b"x");
    store.in_every_life(|store| assert_eq!((store.state(1), store.counts()), (READY, [1, 0, 0, 0])));
    store.stored(2, 8, b"x");
    store.stored(2, 9, b"x");
    assert_eq!(store.state(2), OPEN);
    store.update_attributes(&store.primary(2), &store.attributes(&["class=calib-tile"]), None).unwrap();
    store.in_every_life(|store| assert_eq!((store.state(2), store.counts()), (READY, [2, 0, 0, 0])));
}

/// A class that is set when the event is ready asks for other sources: it stays ready, in every life.
#[test]
fn ready_stays_ready_when_the_class_asks_for_more() {
    let mut store = Fixture::new(&by_class());
    for event in 1..=2 {
        (0..4).for_each(|source| store.stored(event, source, b"x"));
    }
    store.update_attributes(&store.primary(1), &store.attributes(&["class=calib-tile"]), None).unwrap();
    store.stored_with(2, 8, b"x", &["class=calib-tile"]);
    store.in_every_life(|store| {
        assert_eq!([1, 2].map(|event| store.state(event)), [READY; 2]);
        assert_eq!(store.counts(), [0, 2, 0, 0]);
    });
    store.stored(2, 9, b"late");
    store.in_every_life(|store| assert_eq!(store.counts(), [1, 1, 0, 0]));
}

/// Results of workers are no fragments that an event waits for, also where a class gives the rule and after opening.
#[test]
fn results_do_not_complete_an_event() {
    let mut keyspace = staged(4);
    keyspace.run.completeness = Completeness::Count(3);
    keyspace.run.classes = vec![("calib-tile".to_owned(), Completeness::Count(2))];
    let mut store = Fixture::new(&keyspace);
    store.stored_with(1, 0, b"x", &["class=calib-tile"]);
    store.stored(2, 0, b"x");
    store.stored(3, 0, b"x");
    let _ = store.announce(3, &[0, 1]).unwrap();
    for event in 1..=3 {
        assert!(store.seal(&store.primary(event)).unwrap());
        let lease = store.take(event);
        let results = [100, 101].map(|source| store.source(source));
        let results: Vec<ResultFragment<'_>> =
            results.iter().map(|source| ResultFragment::new(source, b"a result")).collect();
        lease.pass("middle", &results).unwrap();
    }
    store.in_every_life(|store| assert_eq!(store.counts(), [0, 3, 0, 0]));
    // A result under the name of a source that is waited for is not that source's fragment.
    let lease = store.take(3);
    lease.pass("final", &[ResultFragment::new(&store.source(1), b"made up")]).unwrap();
    drop(lease);
    for event in 1..=3 {
        store.update_attributes(&store.primary(event), &store.attributes(&["lumi=9"]), None).unwrap();
    }
    store.update_attributes(&store.primary(2), &store.attributes(&["class=calib-tile"]), None).unwrap();
    store.in_every_life(|store| assert_eq!(store.counts(), [0, 3, 0, 0]));
}

#[test]
fn rules_for_classes_that_are_not_there_are_refused() {
    let store = Fixture::new(&by_class());
    let mut run = by_class().run;
    run.classes.push(("calib-tile".to_owned(), Completeness::Count(1)));
    refused(store.run_open(RUN, &run), Kind::Invalid);
    run.classes = vec![("beam-gas".to_owned(), Completeness::Count(1))];
    refused(store.run_open(RUN, &run), Kind::Invalid);
    assert!(store.runs().is_empty());
}
