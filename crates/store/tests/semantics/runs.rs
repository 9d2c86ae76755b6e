//! The life of a run and its account.

use crate::common::fixture::{Fixture, RUN};
use crate::common::{key, put, refused, refused_as};
use crate::semantics::{single, staged, three};
use forebay_store::core::{Completeness, Keyspace, Kind, Live, LiveState, RunConfig, Tally};
use forebay_store::{PutOptions, PutOutcome, RunState};
use std::time::Duration;

fn state(store: &Fixture, run: u64) -> Option<RunState> {
    store.runs().into_iter().find(|status| status.run == run).map(|status| status.state)
}

#[test]
fn the_first_put_opens_a_run_where_that_is_the_policy() {
    let mut store = Fixture::new(&three());
    assert!(store.runs().is_empty());
    store.stored(1, 0, b"x");
    assert_eq!(state(&store, RUN), Some(RunState::Open));
    store.reopen();
    assert_eq!(state(&store, RUN), Some(RunState::Open));
}

#[test]
fn an_unknown_run_is_refused_where_runs_are_opened_by_hand() {
    let mut keyspace = three();
    keyspace.auto_open_runs = false;
    let store = Fixture::new(&keyspace);
    refused_as(store.try_put(1, 0, b"x"), &[Kind::Invalid, Kind::Closed]);
    store.run_open(RUN, &keyspace.run).unwrap();
    store.stored(1, 0, b"x");
}

/// As a keyspace file says it that asks for no other number.
fn by_two() -> Keyspace {
    Keyspace { auto_open_runs: true, auto_open_after: 2, ..three() }
}

#[test]
fn one_flipped_bit_in_a_run_number_opens_nothing() {
    let store = Fixture::new(&by_two());
    store.run_open(RUN, &store.keyspace().run).unwrap();
    let ghost = key(RUN ^ 64, 1, 0);
    // Again and again the same fragment: one source that repeats its put is no second witness.
    for _ in 0..2 {
        let refused = store.try_put_key(&ghost).unwrap_err();
        // Over several nodes: not opened in time.
        assert!(matches!(refused.kind(), Kind::Closed | Kind::Unavailable), "{refused}");
    }
    assert_eq!(store.runs().len(), 1);
    // Another one long after says nothing either.
    store.advance(Duration::from_secs(5));
    refused_as(store.try_put_key(&key(RUN ^ 64, 1, 1)), &[Kind::Closed, Kind::Unavailable]);
    assert_eq!(store.runs().len(), 1);
}

#[test]
fn two_different_fragments_open_a_run_and_both_are_stored() {
    let store = Fixture::new(&by_two());
    let first = std::thread::scope(|scope| {
        let handle = store.named("first");
        let waits = scope.spawn(move || handle.put(&key(RUN, 1, 0), b"x", &PutOptions::default()));
        // The first has come, and waits.
        while store.runs().is_empty() {
            let _ = store.try_put_key(&key(RUN, 1, 1));
        }
        waits.join().unwrap().unwrap()
    });
    assert!(matches!(first, PutOutcome::Stored | PutOutcome::Duplicate));
    assert_eq!(state(&store, RUN), Some(RunState::Open));
}

#[test]
fn a_run_far_above_the_highest_one_does_not_open_by_itself() {
    let store = Fixture::new(&three());
    store.stored(1, 0, b"x");
    assert_eq!(store.try_put_key(&key(RUN + 1000, 1, 0)).unwrap(), PutOutcome::Stored);
    refused(store.try_put_key(&key(RUN + 2001, 1, 0)), Kind::Closed);
    store.run_open(RUN + 5000, &store.keyspace().run).unwrap();
}

#[test]
fn no_more_runs_open_by_themselves_than_can_be_real() {
    let store = Fixture::new(&three());
    let full = (1..=70).find(|&run| store.try_put_key(&key(run, 1, 0)).is_err()).expect("a limit");
    // A node of a cluster may hold one more, of which nothing is asked here.
    assert!((64..=65).contains(&full), "{full}");
    refused(store.try_put_key(&key(full, 1, 0)), Kind::Closed);
    store.run_stop(1).unwrap();
    store.run_stop(2).unwrap();
    assert_eq!(store.try_put_key(&key(full, 1, 0)).unwrap(), PutOutcome::Stored);
}

#[test]
fn a_run_has_its_own_completeness() {
    let mut store = Fixture::new(&three());
    let run = RunConfig::new(Completeness::Count(2), Duration::from_secs(100));
    store.run_open(RUN, &run).unwrap();
    store.stored(1, 0, b"x");
    store.reopen();
    store.advance(Duration::from_secs(50));
    assert_eq!(store.state(1), Some(LiveState::Open));
    store.stored(1, 1, b"x");
    assert_eq!(store.state(1), Some(LiveState::Ready));
}

#[test]
fn a_stopped_run_seals_and_takes_no_new_events() {
    let mut store = Fixture::new(&three());
    store.stored(1, 0, b"open");
    store.run_stop(RUN).unwrap();
    for source in 1..3 {
        assert_eq!(state(&store, RUN), Some(RunState::Stopped));
        refused(store.try_put(2, 0, b"new"), Kind::Closed);
        assert_eq!(store.read(2, 0), None);
        assert_eq!(store.state(1), Some(LiveState::Ready), "sealed");
        store.stored(1, source, b"a fragment of an event that is there");
        store.reopen();
    }
    let lease = store.take(1);
    assert_eq!(lease.event_fragments, 3);
    lease.reject().unwrap();
    store.late(1, 3, b"late");
}

#[test]
fn a_run_closes_when_nothing_waits_and_takes_nothing_after_that() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    store.run_stop(RUN).unwrap();
    refused(store.run_close(RUN), Kind::Unavailable);
    let lease = store.take(1);
    refused(store.run_close(RUN), Kind::Unavailable);
    lease.reject().unwrap();
    drop(lease);
    let ledger = store.run_close(RUN).unwrap().ledger;
    assert_eq!((ledger.imbalance(), ledger.rejected), (None, Tally { events: 1, fragments: 1, bytes: 1 }));
    for _ in 0..2 {
        assert_eq!(state(&store, RUN), Some(RunState::Closed));
        refused(store.try_put(2, 0, b"new"), Kind::Closed);
        refused(store.try_put(1, 0, b"x"), Kind::Closed);
        store.reopen();
    }
    assert_eq!(store.ledger(RUN).unwrap().imbalance(), None);
}

#[test]
fn an_open_event_keeps_its_run_from_closing() {
    let store = Fixture::new(&three());
    store.stored(1, 0, b"x");
    let message = refused(store.run_close(RUN), Kind::Unavailable);
    assert!(message.contains("open") || message.contains('1'), "does not name what is left: {message}");
}

#[test]
fn a_run_ends_although_an_open_event_lost_all_its_fragments() {
    let store = Fixture::new(&three());
    store.stored(1, 0, b"x");
    assert!(store.remove(&store.key(1, 0)).unwrap());
    let reservation = store.reserve(&store.key(2, 0), 10, &PutOptions::default()).unwrap();
    let (done, wait) = std::sync::mpsc::channel();
    let other = store.named("run control");
    std::thread::spawn(move || done.send(other.run_stop(RUN)));
    wait.recv_timeout(Duration::from_secs(20)).expect("run_stop comes back").unwrap();
    reservation.abort();
    store.tick();
    assert!(store.any(1).is_empty(), "there is nothing to process");
    assert_eq!(store.run_close(RUN).unwrap().ledger.removed.fragments, 1);
}

#[test]
fn accepted_events_outlive_the_closing_of_their_run() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, b"keep");
    store.take(1).accept(&["main"]).unwrap();
    store.run_stop(RUN).unwrap();
    store.run_close(RUN).unwrap();
    store.reopen();
    assert_eq!(store.read(1, 0).unwrap(), b"keep");
    assert!(store.release(&store.primary(1)).unwrap());
    assert_eq!(store.ledger(RUN).unwrap().released.fragments, 1);
}

#[test]
fn other_runs_go_on_when_one_is_closed() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    assert_eq!(put(&store, &key(2, 1, 0), b"y").unwrap(), forebay_store::PutOutcome::Stored);
    store.take(1).reject().unwrap();
    store.run_stop(RUN).unwrap();
    store.run_close(RUN).unwrap();
    assert_eq!(put(&store, &key(2, 2, 0), b"z").unwrap(), forebay_store::PutOutcome::Stored);
    assert_eq!((state(&store, RUN), state(&store, 2)), (Some(RunState::Closed), Some(RunState::Open)));
}

#[test]
fn a_watch_follows_its_run() {
    let store = Fixture::new(&single());
    store.run_open(RUN, &single().run).unwrap();
    let mut watch = store.watch(RUN).unwrap();
    assert_eq!(watch.state(), RunState::Open);
    store.run_stop(RUN).unwrap();
    // Changes may be reported one by one or together.
    let mut seen = None;
    while seen != Some(RunState::Stopped) {
        seen = Some(watch.next(Duration::from_secs(20)).expect("the run was stopped").state);
    }
    assert_eq!(watch.state(), RunState::Stopped);
}

#[test]
fn the_account_names_every_outcome() {
    let mut keyspace = single();
    keyspace.deliveries_max = 1;
    keyspace.fragment_bytes_max = 1000;
    let store = Fixture::new(&keyspace);
    for event in 1..=8 {
        store.stored(event, 0, &[0; 10]);
    }
    let _ = store.try_put(1, 0, &[0; 10]).unwrap();
    refused(store.try_put(1, 0, &[1; 7]), Kind::Conflict);
    store.update(&store.key(1, 0), &[2; 20], None).unwrap();
    store.take(2).reject().unwrap();
    store.late(2, 1, &[0; 3]);
    store.take(3).accept(&["main"]).unwrap();
    store.take(4).accept(&["main"]).unwrap();
    assert!(store.release(&store.primary(4)).unwrap());
    assert!(store.remove_event(&store.primary(5)).unwrap());
    drop(store.take(6));
    store.advance(store.config.lease * 2);
    let held = store.take(7);
    let ledger = store.ledger(RUN).unwrap();
    assert_eq!(ledger.imbalance(), None);
    let of = |tally: Tally| (tally.fragments, tally.bytes);
    assert_eq!(of(ledger.stored), (9, 100), "eight puts and an update");
    assert_eq!(of(ledger.duplicate), (1, 10));
    assert_eq!(of(ledger.conflict), (1, 7));
    assert_eq!(of(ledger.late), (1, 3));
    assert_eq!(of(ledger.superseded), (1, 10));
    assert_eq!(of(ledger.rejected), (1, 10));
    assert_eq!(of(ledger.released), (1, 10));
    assert_eq!(of(ledger.removed), (1, 10));
    assert_eq!(of(ledger.refused), (0, 0));
    let ready = Tally { events: 2, fragments: 2, bytes: 30 };
    let one = Tally::event(1, 10);
    assert_eq!(ledger.live, Live { open: Tally::default(), ready, leased: one, debug: one, accepted: one });
    held.reject().unwrap();
}

#[test]
fn refused_fragments_are_offered_too() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    store.run_stop(RUN).unwrap();
    refused(store.try_put(2, 0, &[0; 5]), Kind::Closed);
    let ledger = store.ledger(RUN).unwrap();
    assert_eq!((ledger.refused.fragments, ledger.refused.bytes, ledger.offered.fragments), (1, 5, 2));
}

const OPEN: Option<LiveState> = Some(LiveState::Open);
const READY: Option<LiveState> = Some(LiveState::Ready);

#[test]
fn in_a_pause_the_time_that_open_events_wait_stands_still() {
    let mut store = Fixture::new(&three());
    store.stored(1, 0, b"x");
    store.advance(Duration::from_secs(6));
    store.run_pause(RUN).unwrap();
    store.run_pause(RUN).unwrap();
    store.stored(2, 0, b"an event that begins in the pause");
    store.advance(Duration::from_secs(1000));
    assert_eq!((store.state(1), store.state(2)), (OPEN, OPEN));
    for source in 0..3 {
        store.stored(3, source, b"what comes is taken");
    }
    store.take(3).reject().unwrap();
    store.run_resume(RUN).unwrap();
    store.run_resume(RUN).unwrap();
    store.advance(Duration::from_secs(3));
    assert_eq!((store.state(1), store.state(2)), (OPEN, OPEN));
    store.advance(Duration::from_secs(2));
    assert_eq!((store.state(1), store.state(2)), (READY, OPEN), "6 + 5 seconds");
    store.run_pause(RUN).unwrap();
    store.in_every_life(|store| {
        assert_eq!(state(store, RUN), Some(RunState::Paused));
        store.advance(Duration::from_secs(1000));
        assert_eq!(store.state(2), OPEN);
    });
    store.run_resume(RUN).unwrap();
    store.advance(Duration::from_secs(11));
    store.in_every_life(|store| assert_eq!((store.state(2), state(store, RUN)), (READY, Some(RunState::Open))));
    assert_eq!(store.counts(), [1, 2, 0, 0]);
}

#[test]
fn a_stopped_run_completes_its_events_within_its_grace() {
    let mut keyspace = three();
    keyspace.run.stop_grace = Duration::from_secs(5);
    keyspace.run.complete_within = Duration::from_secs(1000);
    let mut store = Fixture::new(&keyspace);
    for event in 1..=3 {
        store.stored(event, 0, b"x");
    }
    let _ = store.announce(4, &[0]).unwrap();
    store.run_stop(RUN).unwrap();
    store.run_stop(RUN).unwrap();
    refused(store.try_put(5, 0, b"new"), Kind::Closed);
    store.advance(Duration::from_secs(4));
    store.stored(1, 1, b"x");
    store.stored(1, 2, b"x");
    store.in_every_life(|store| {
        assert_eq!([1, 2, 3, 4].map(|event| store.state(event)), [READY, OPEN, OPEN, OPEN]);
        assert_eq!(store.counts(), [1, 0, 0, 1]);
        refused(store.run_close(RUN), Kind::Unavailable);
        refused(store.run_pause(RUN), Kind::Closed);
        refused(store.run_resume(RUN), Kind::Closed);
    });
    // A process that comes back begins the grace again.
    store.advance(Duration::from_secs(4));
    assert_eq!(store.state(2), OPEN);
    store.stored(2, 1, b"x");
    store.advance(Duration::from_secs(2));
    store.in_every_life(|store| {
        assert_eq!([1, 2, 3, 4].map(|event| store.state(event)), [READY, READY, READY, None]);
        assert_eq!(store.counts(), [1, 2, 1, 0]);
    });
    store.stored(2, 2, b"late, before anybody has it");
    store.any(10).iter().for_each(|lease| lease.reject().unwrap());
    let summary = store.run_close(RUN).unwrap();
    assert_eq!((summary.ledger.complete, summary.ledger.incomplete, summary.ledger.never_seen), (2, 1, 1));
    assert_eq!(summary.announced, 4);
}

#[test]
fn several_runs_go_on_at_once_each_by_its_own_configuration() {
    let mut store = Fixture::new(&staged(3));
    store.run_open(1, &RunConfig::new(Completeness::Count(1), Duration::from_secs(10))).unwrap();
    store.run_open(2, &RunConfig::new(Completeness::Count(2), Duration::from_secs(10))).unwrap();
    store.run_open(3, &RunConfig::new(Completeness::Seal, Duration::from_secs(20))).unwrap();
    for run in 1..=4 {
        assert_eq!(put(&store, &key(run, 1, 0), b"x").unwrap(), PutOutcome::Stored);
    }
    store.mask(4, &store.source(1), None).unwrap();
    store.run_pause(2).unwrap();
    store.advance(Duration::from_secs(11));
    let states = |store: &Fixture| {
        [1, 2, 3, 4].map(|run| {
            let name = store.schema().primary(&[run, 1]).unwrap();
            store.get_event(&name, &forebay_store::Sources::None).unwrap().map(|event| event.state)
        })
    };
    store.in_every_life(|store| {
        assert_eq!(states(store), [READY, OPEN, OPEN, READY]);
        let runs = [1, 2, 3, 4].map(|run| state(store, run).unwrap());
        assert_eq!(runs, [RunState::Open, RunState::Paused, RunState::Open, RunState::Open]);
        assert_eq!(store.ledger(1).unwrap().complete + store.ledger(4).unwrap().incomplete, 2);
    });
}

#[test]
fn runs_that_cannot_be_opened_are_refused() {
    let store = Fixture::new(&three());
    store.run_open(RUN, &three().run).unwrap();
    store.run_open(RUN, &three().run).unwrap();
    let other = RunConfig::new(Completeness::Count(7), Duration::from_secs(1));
    refused(store.run_open(RUN, &other), Kind::Conflict);
    store.run_pause(RUN).unwrap();
    store.run_open(RUN, &three().run).unwrap();
    assert_eq!(state(&store, RUN), Some(RunState::Paused), "opening again changes nothing");
    refused(store.run_open(RUN, &other), Kind::Conflict);
    refused(store.run_open(1 << 32, &other), Kind::Invalid);
    let seconds = Duration::from_secs;
    for (completeness, within, grace) in [
        (Completeness::Count(0), seconds(1), seconds(0)),
        (Completeness::Count(24_001), seconds(1), seconds(0)),
        (Completeness::Count(1), seconds(0), seconds(0)),
        (Completeness::Count(1), seconds(31 * 24 * 3600), seconds(0)),
        (Completeness::Count(1), Duration::from_micros(1500), seconds(0)),
        (Completeness::Count(1), seconds(1), seconds(25 * 3600)),
    ] {
        let mut config = RunConfig::new(completeness, within);
        config.stop_grace = grace;
        refused(store.run_open(9, &config), Kind::Invalid);
    }
    for answer in [store.run_pause(9), store.run_resume(9), store.run_stop(9), store.run_close(9).map(|_| ())] {
        refused(answer, Kind::Invalid);
    }
    refused(store.ledger(9), Kind::Invalid);
    refused(store.watch(9), Kind::Invalid);
}

#[test]
fn a_run_is_not_closed_before_its_summary_is_written() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"rejected");
    store.take(1).reject().unwrap();
    store.run_stop(RUN).unwrap();
    let path = store.path().join("runs");
    std::fs::write(&path, "a file where the summaries should be").unwrap();
    refused(store.run_close(RUN), Kind::Invalid);
    assert_eq!(state(&store, RUN), Some(RunState::Stopped));
    store.late(1, 5, b"still known");
    std::fs::remove_file(&path).unwrap();
    let summary = store.run_close(RUN).unwrap();
    let text = std::fs::read_to_string(path.join("run-1.json")).unwrap();
    let written: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(written, serde_json::to_value(&summary).unwrap());
    assert_eq!(summary.ledger.late.fragments, 1);
}

#[test]
fn a_closed_run_answers_closed_to_everything_and_leaves_its_summary() {
    let mut store = Fixture::new(&single());
    store.stored(1, 0, b"kept");
    store.stored(2, 0, b"rejected");
    store.take(1).accept(&["main"]).unwrap();
    store.take(2).reject().unwrap();
    store.run_stop(RUN).unwrap();
    store.late(2, 5, b"still known");
    let reservation = store.reserve(&store.key(1, 7), 4, &PutOptions::default()).unwrap();
    drop(reservation);
    let summary = store.run_close(RUN).unwrap();
    assert_eq!((summary.announced, summary.streams[0].live.bytes, summary.ledger.late.fragments), (2, 4, 1));
    store.in_every_life(|store| {
        assert_eq!((state(store, RUN), store.run_summary(RUN).unwrap()), (Some(RunState::Closed), summary.clone()));
        let source = store.source(0);
        for answer in [
            store.run_open(RUN, &single().run),
            store.run_pause(RUN),
            store.run_resume(RUN),
            store.run_stop(RUN),
            store.run_close(RUN).map(|_| ()),
            store.mask(RUN, &source, None),
            store.unmask(RUN, &source, None),
            store.producer(RUN, "late").map(|_| ()),
            store.announce(3, &[0]).map(|_| ()),
            store.try_put(3, 0, b"x").map(|_| ()),
            store.try_put(1, 9, b"x").map(|_| ()),
        ] {
            refused(answer, Kind::Closed);
        }
        assert_eq!(store.read(1, 0).unwrap(), b"kept");
        assert_eq!((store.counts(), store.ledger(RUN).unwrap().imbalance()), ([2, 0, 0, 0], None));
    });
}

#[test]
fn a_report_to_a_closed_run_says_so() {
    let store = Fixture::new(&single());
    store.stored(1, 0, b"x");
    let producer = store.producer(RUN, "crate-1").unwrap();
    producer.offered(1);
    store.take(1).reject().unwrap();
    let summary = store.run_close(RUN).unwrap();
    assert_eq!((summary.producers.len(), summary.producers[0].finished), (1, false));
    refused(producer.finish(), Kind::Closed);
}
