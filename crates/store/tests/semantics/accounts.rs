//! The ledger split by stream, source and attribute: the rows sum to the whole, in every life.

use crate::common::fixture::{Fixture, RUN};
use crate::common::refused;
use crate::semantics::staged;
use forebay_store::core::{Keyspace, Kind, Tally};
use forebay_store::{LedgerBy, LedgerRow, ResultFragment};
use std::time::Duration;

fn by_lumi() -> Keyspace {
    Keyspace { ledger_by: Some("lumi".to_owned()), deliveries_max: 1, ..staged(2) }
}

/// Events in every state and with every end, of lumi sections 1 and 2 and of none.
fn all_sorts(store: &Fixture) {
    for event in 1..=12 {
        let lumi = format!("lumi={}", event % 3);
        let pairs: &[&str] = if event % 3 == 0 { &[] } else { &[&lumi] };
        store.stored_with(event, 0, &[1; 10], pairs);
        if event % 4 != 0 {
            store.stored(event, 1, &[2; 5]);
        }
    }
    store.advance(Duration::from_secs(11));
    store.take(1).reject().unwrap();
    store.take(2).reject().unwrap();
    store.take(3).reject().unwrap();
    store.take(4).accept(&["main"]).unwrap();
    store.take(5).accept(&["main", "express"]).unwrap();
    assert!(store.release(&store.primary(5)).unwrap());
    assert!(store.remove_event(&store.primary(6)).unwrap());
    assert!(store.remove_event(&store.primary(7)).unwrap());
    assert!(store.remove(&store.key(10, 1)).unwrap());
    store.update(&store.key(11, 0), &[3; 30], None).unwrap();
    drop(store.take(8));
    store.advance(store.config.lease * 2);
    store.take(9).pass("middle", &[ResultFragment::new(&store.source(50), &[4; 7])]).unwrap();
    store.stored(20, 0, b"open");
    let _ = store.announce(21, &[0]).unwrap();
}

/// More runs than are read in one hold of a lock.
#[test]
fn all_runs_at_once_say_what_each_says_alone() {
    let store = Fixture::new(&by_lumi());
    all_sorts(&store);
    let config = store.keyspace().run.clone();
    for run in 2..600 {
        store.run_open(run, &config).unwrap();
        let key = store.schema().key(&[run, run, 0]).unwrap();
        let _ = store.put(&key, &[1; 3], &Default::default()).unwrap();
    }
    let runs = store.runs();
    assert_eq!(runs.len(), 599);
    for status in runs {
        assert_eq!(status.ledger, store.ledger(status.run).unwrap(), "run {}", status.run);
        assert!(status.ledger.stored.fragments > 0, "run {}", status.run);
    }
}

fn sum(rows: &[LedgerRow], of: impl Fn(&LedgerRow) -> Tally) -> Tally {
    rows.iter().map(of).fold(Tally::default(), |mut sum, tally| {
        sum += tally;
        sum
    })
}

#[test]
fn rows_by_attribute_sum_to_the_ledger() {
    let mut store = Fixture::new(&by_lumi());
    all_sorts(&store);
    store.in_every_life(|store| {
        let (rows, whole) = (store.ledger_by(RUN, LedgerBy::Attribute).unwrap(), store.ledger(RUN).unwrap());
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["1", "2", "none"]);
        assert_eq!(sum(&rows, |row| row.rejected), whole.rejected);
        assert_eq!(sum(&rows, |row| row.released), whole.released);
        assert_eq!(sum(&rows, |row| row.removed), whole.removed);
        assert_eq!(sum(&rows, |row| row.live), whole.live.total());
        assert_eq!(rows.iter().map(|row| row.complete).sum::<u64>(), whole.complete);
        assert_eq!(rows.iter().map(|row| row.incomplete).sum::<u64>(), whole.incomplete);
        let events = |tally: Tally| tally.events;
        // Events 1, 4, 7, 10 in section 1; 2, 5, 8, 11 in section 2; 3, 6, 9, 12 and 20 in none.
        let ends =
            |row: &LedgerRow| (events(row.rejected), events(row.released), events(row.removed), events(row.live));
        assert_eq!([0, 1, 2].map(|at| ends(&rows[at])), [(1, 0, 1, 2), (1, 1, 0, 2), (1, 0, 1, 3)]);
        assert_eq!([0, 1, 2].map(|at| (rows[at].complete, rows[at].incomplete)), [(3, 1), (3, 1), (3, 1)]);
        assert_eq!(rows[1].released, Tally { events: 1, fragments: 2, bytes: 15 });
    });
}

#[test]
fn rows_by_source_sum_to_what_was_stored() {
    let mut store = Fixture::new(&by_lumi());
    all_sorts(&store);
    store.in_every_life(|store| {
        let (rows, whole) = (store.ledger_by(RUN, LedgerBy::Source).unwrap(), store.ledger(RUN).unwrap());
        let all = sum(&rows, |row| {
            let mut both = row.live;
            both += row.ended;
            both
        });
        assert_eq!((all.fragments, all.bytes), (whole.stored.fragments, whole.stored.bytes), "{rows:?}");
        let of = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
        assert_eq!((of("0").live.fragments, of("0").live.bytes), (7, 84));
        assert_eq!((of("1").live.fragments, of("50").live.bytes), (2, 7));
    });
}

/// An update is a fragment of its source as well: nothing is without a name while no crash took figures.
#[test]
fn updates_are_booked_under_their_source() {
    let mut store = Fixture::new(&by_lumi());
    all_sorts(&store);
    for _ in 0..2 {
        let rows = store.ledger_by(RUN, LedgerBy::Source).unwrap();
        assert!(rows.iter().all(|row| row.name != "unknown"), "{rows:?}");
        let first = &rows[0];
        assert_eq!((first.live.fragments + first.ended.fragments, first.live.bytes + first.ended.bytes), (14, 154));
        store.reopen();
    }
}

#[test]
fn streams_count_what_they_keep_and_what_was_released_from_them() {
    let mut store = Fixture::new(&by_lumi());
    all_sorts(&store);
    store.in_every_life(|store| {
        let rows = store.ledger_by(RUN, LedgerBy::Stream).unwrap();
        let brief: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.live.events, row.released.events)).collect();
        assert_eq!(brief, [("main", 1, 1), ("express", 0, 1)]);
    });
}

#[test]
fn accounts_that_are_not_kept_are_refused() {
    let store = Fixture::new(&staged(1));
    refused(store.ledger_by(RUN, LedgerBy::Source), Kind::Invalid);
    store.stored(1, 0, b"x");
    refused(store.ledger_by(RUN, LedgerBy::Attribute), Kind::Invalid);
    assert!(store.ledger_by(RUN, LedgerBy::Stream).unwrap().is_empty());
}

#[test]
fn the_summary_of_a_run_has_all_its_accounts() {
    let mut store = Fixture::new(&by_lumi());
    all_sorts(&store);
    store.mask(RUN, &store.source(1), None).unwrap();
    store.run_stop(RUN).unwrap();
    while let Some(lease) = store.any(1).pop() {
        lease.reject().unwrap();
    }
    crate::semantics::of_stage(&store, "middle")[0].reject().unwrap();
    let producer = store.producer(RUN, "readout-1").unwrap();
    producer.announced(14);
    producer.finish().unwrap();
    let summary = store.run_close(RUN).unwrap();
    assert_eq!((summary.announced, summary.announced_by_producers), (14, Some(14)));
    assert_eq!((summary.ledger.imbalance(), summary.ledger.never_seen), (None, 1));
    assert_eq!(summary.groups, store.ledger_by(RUN, LedgerBy::Attribute).unwrap());
    assert_eq!(summary.streams, store.ledger_by(RUN, LedgerBy::Stream).unwrap());
    assert!(summary.sources.iter().any(|row| row.source == "50" && row.fragments == 1));
    let masks: Vec<_> = summary.masks.iter().map(|mask| (&*mask.source, mask.masked, &mask.from)).collect();
    assert_eq!(masks, [("1", true, &None)]);
    assert_eq!(summary.producers.len(), 1);
    store.reopen();
    assert_eq!(store.ledger(RUN).unwrap(), summary.ledger);
}

/// What a run's sources did is not forgotten with its close; what is released later has ended.
#[test]
fn a_closed_run_keeps_its_rows_by_source() {
    let mut store = Fixture::new(&staged(2));
    for event in 1..=3 {
        store.stored(event, 0, &[1; 10]);
        store.stored(event, 1, &[2; 5]);
    }
    store.run_stop(RUN).unwrap();
    store.take(1).accept(&["main"]).unwrap();
    store.take(2).accept(&["main"]).unwrap();
    store.take(3).reject().unwrap();
    let rows = |store: &Fixture| {
        let rows = store.ledger_by(RUN, LedgerBy::Source).unwrap();
        let row =
            |row: LedgerRow| (row.name, (row.live.fragments, row.live.bytes), (row.ended.fragments, row.ended.bytes));
        rows.into_iter().map(row).collect::<Vec<_>>()
    };
    let row = |name: &str, live, ended| (name.to_owned(), live, ended);
    let two_live = [row("0", (2, 20), (1, 10)), row("1", (2, 10), (1, 5))];
    assert_eq!(rows(&store), two_live);
    let sources = |store: &Fixture| -> Vec<_> {
        store.sources(RUN).unwrap().into_iter().map(|row| (row.source, row.fragments, row.bytes)).collect()
    };
    let before = [("0".to_owned(), 3, 30), ("1".to_owned(), 3, 15)];
    assert_eq!(sources(&store), before);
    let _ = store.run_close(RUN).unwrap();
    store.in_every_life(|store| assert_eq!((rows(store), sources(store)), (two_live.to_vec(), before.to_vec())));
    assert!(store.release(&store.primary(2)).unwrap());
    store.in_every_life(|store| assert_eq!(rows(store), [row("0", (1, 10), (2, 20)), row("1", (1, 5), (2, 10))]));
}
