//! Producers of a run, and what each reports as offered; a producer that died is listed as unknown.

use crate::common::fixture::{Fixture, RUN};
use crate::common::refused;
use crate::semantics::single;
use forebay_store::ProducerStatus;
use forebay_store::core::Kind;

fn listed(store: &Fixture) -> Vec<ProducerStatus> {
    store.runs()[0].producers.clone()
}

fn brief(status: &ProducerStatus) -> (&str, bool, bool, u64, u64, u64) {
    (&status.name, status.finished, status.unknown, status.announced, status.fragments, status.bytes)
}

fn opened() -> Fixture {
    let store = Fixture::new(&single());
    store.run_open(RUN, &single().run).unwrap();
    store
}

#[test]
fn reports_are_listed_while_at_work_and_final_when_finished() {
    let mut store = opened();
    let (first, second) = (store.producer(RUN, "readout-1").unwrap(), store.producer(RUN, "readout-2").unwrap());
    first.announced(3);
    first.offered(100);
    first.offered(20);
    second.offered(7);
    assert_eq!(brief(&listed(&store)[0]), ("readout-1", false, false, 3, 2, 120));
    first.finish().unwrap();
    assert_eq!(brief(&listed(&store)[0]), ("readout-1", true, false, 3, 2, 120));
    second.report().unwrap();
    second.offered(1);
    drop(second);
    assert_eq!(brief(&listed(&store)[1]), ("readout-2", false, true, 0, 2, 8), "gone without its last report");
    store.reopen();
    assert_eq!(brief(&listed(&store)[1]), ("readout-2", false, true, 0, 2, 8));
    store.in_every_life(|store| assert_eq!(brief(&listed(store)[0]), ("readout-1", true, false, 3, 2, 120)));
}

#[test]
fn after_a_kill_the_last_report_is_what_is_known() {
    let mut store = opened();
    let producer = store.producer(RUN, "readout").unwrap();
    producer.offered(10);
    producer.report().unwrap();
    producer.offered(10);
    let silent = store.producer(RUN, "silent").unwrap();
    silent.offered(10);
    store.crash();
    drop((producer, silent));
    store.in_every_life(|store| {
        let listed = listed(store);
        let found: Vec<_> = listed.iter().map(brief).collect();
        assert_eq!(found, [("readout", false, true, 0, 1, 10), ("silent", false, true, 0, 0, 0)]);
    });
    // It comes back under its name and goes on from there.
    let producer = store.producer(RUN, "readout").unwrap();
    producer.offered(5);
    producer.finish().unwrap();
    store.in_every_life(|store| assert_eq!(brief(&listed(store)[0]), ("readout", true, false, 0, 2, 15)));
    store.run_stop(RUN).unwrap();
    let summary = store.run_close(RUN).unwrap();
    assert_eq!((summary.producers.len(), summary.announced_by_producers), (2, None));
    assert!(summary.producers[1].unknown);
}

#[test]
fn producers_that_cannot_be_are_refused() {
    let store = opened();
    refused(store.producer(9, "readout"), Kind::Invalid);
    refused(store.producer(RUN, ""), Kind::Invalid);
    refused(store.producer(RUN, &"n".repeat(65)), Kind::Invalid);
    let producer = store.producer(RUN, "readout").unwrap();
    refused(store.producer(RUN, "readout"), Kind::Conflict);
    drop(producer);
    let producer = store.producer(RUN, "readout").unwrap();
    store.run_stop(RUN).unwrap();
    let late = store.producer(RUN, "late").unwrap();
    late.finish().unwrap();
    store.run_close(RUN).unwrap();
    refused(store.producer(RUN, "other"), Kind::Closed);
    store.close().unwrap();
    refused(producer.report(), Kind::Closed);
    refused(producer.finish(), Kind::Closed);
    refused(store.producer(RUN, "other"), Kind::Closed);
}
