//! Events that pass through stages: one verdict in each, results on the way, failures counted per stage.

use crate::common::fixture::{Fixture, RUN};
use crate::common::{refused, sources_of};
use crate::semantics::{of_stage, staged};
use forebay_store::core::{Kind, LiveState, RunConfig, Source};
use forebay_store::{GetAny, Lease, ResultFragment, Sources};
use std::time::Duration;

const READY: Option<LiveState> = Some(LiveState::Ready);

fn with_one(stages_of: u64) -> Fixture {
    let store = Fixture::new(&staged(stages_of));
    (0..stages_of).for_each(|source| store.stored(1, source, b"x"));
    store
}

/// Passes on with one result of this source.
fn pass_with(
    store: &Fixture,
    lease: &Lease,
    stage: &str,
    source: u64,
    bytes: &[u8],
) -> forebay_store::core::Result<()> {
    lease.pass(stage, &[ResultFragment::new(&store.source(source), bytes)])
}

#[test]
fn an_event_passes_to_later_stages_and_is_given_out_there_only() {
    let mut store = with_one(2);
    let lease = store.take(1);
    assert_eq!(lease.stage, 0);
    lease.pass("middle", &[]).unwrap();
    drop(lease);
    store.in_every_life(|store| {
        assert_eq!(store.state(1), READY);
        let event = store.get_event(&store.primary(1), &Sources::None).unwrap().unwrap();
        assert_eq!((event.stage.as_str(), store.info(1).stage, store.info(1).deliveries), ("middle", 1, 0));
        assert!(store.any(1).is_empty() && of_stage(store, "final").is_empty());
        assert_eq!(store.stats().ready, [0, 1, 0]);
        let lease = of_stage(store, "middle").remove(0);
        assert_eq!((lease.stage, lease.delivery), (1, 1));
        lease.requeue().unwrap();
    });
    of_stage(&store, "middle")[0].pass("final", &[]).unwrap();
    store.in_every_life(|store| {
        assert!(of_stage(store, "middle").is_empty());
        assert_eq!(store.info(1).stage, 2);
        assert_eq!((store.counts(), store.live(LiveState::Ready).fragments), ([1, 0, 0, 0], 2));
    });
    of_stage(&store, "final")[0].accept(&["main"]).unwrap();
    store.in_every_life(|store| assert_eq!(store.state(1), Some(LiveState::Accepted)));
    assert!(store.release(&store.primary(1)).unwrap());
}

#[test]
fn stages_can_be_left_out_but_not_gone_back() {
    let store = with_one(1);
    let lease = store.take(1);
    for stage in ["fast", "slow", ""] {
        refused(lease.pass(stage, &[]), Kind::Invalid);
    }
    lease.pass("final", &[]).unwrap();
    let lease = of_stage(&store, "final").remove(0);
    for stage in ["fast", "middle", "final"] {
        refused(lease.pass(stage, &[]), Kind::Invalid);
    }
    refused(store.get_any(&GetAny { stage: Some("slow".to_owned()), ..GetAny::default() }), Kind::Invalid);
    lease.reject().unwrap();
    assert_eq!(store.state(1), None);
}

#[test]
fn one_verdict_per_stage_and_its_repetition_gets_the_same_answer() {
    let mut store = with_one(1);
    let first = store.take(1).token;
    let name = store.primary(1);
    let result = store.source(9);
    let results = [ResultFragment::new(&result, b"result")];
    store.pass(&name, &first, "middle", &results).unwrap();
    let again = |store: &Fixture| {
        store.pass(&name, &first, "middle", &results).unwrap();
        refused(store.pass(&name, &first, "final", &results), Kind::Fenced);
        refused(store.accept(&name, &first, &["main"]), Kind::Fenced);
        refused(store.reject(&name, &first), Kind::Fenced);
        refused(store.requeue(&name, &first), Kind::Fenced);
        assert_eq!(store.ledger(RUN).unwrap().stored.fragments, 2, "the result is stored once");
        assert_eq!(store.read(1, 9).unwrap(), b"result");
    };
    store.in_every_life(again);
    let lease = of_stage(&store, "middle").remove(0);
    again(&store);
    assert_eq!(store.state(1), Some(LiveState::Leased), "a repetition disturbs nobody");
    let second = lease.token;
    lease.reject().unwrap();
    drop(lease);
    store.in_every_life(|store| {
        store.pass(&name, &first, "middle", &results).unwrap();
        store.reject(&name, &second).unwrap();
        refused(store.pass(&name, &second, "final", &[]), Kind::Fenced);
        assert_eq!((store.state(1), store.ledger(RUN).unwrap().rejected.fragments), (None, 2));
    });
}

#[test]
fn failures_are_counted_in_each_stage_anew() {
    let mut store = with_one(1);
    for delivery in 1..=2 {
        assert_eq!(store.take(1).delivery, delivery);
        store.advance(store.config.lease * 2);
    }
    store.take(1).pass("middle", &[]).unwrap();
    store.in_every_life(|store| assert_eq!((store.info(1).stage, store.info(1).deliveries), (1, 0)));
    for delivery in 1..=3 {
        let lease = of_stage(&store, "middle").remove(0);
        assert_eq!((lease.delivery, store.state(1)), (delivery, Some(LiveState::Leased)));
        drop(lease);
        store.advance(store.config.lease * 2);
    }
    store.in_every_life(|store| {
        let listed = store.debug_events();
        assert_eq!((listed.len(), listed[0].stage.as_str(), listed[0].deliveries), (1, "middle", 3));
        assert_eq!(listed[0].reason, "worker silent");
    });
}

#[test]
fn results_are_fragments_of_the_event_from_their_verdict_on() {
    let mut store = with_one(2);
    let lease = store.take(1);
    pass_with(&store, &lease, "middle", 50, b"tracks").unwrap();
    drop(lease);
    store.in_every_life(|store| {
        assert_eq!(store.read(1, 50).unwrap(), b"tracks");
        assert_eq!((store.info(1).fragments, store.info(1).bytes), (3, 8));
        let ledger = store.ledger(RUN).unwrap();
        assert_eq!((ledger.offered.fragments, ledger.stored.fragments, store.counts()), (3, 3, [1, 0, 0, 0]));
    });
    let lease = of_stage(&store, "middle").remove(0);
    assert_eq!(sources_of(&lease.fragments), [0, 1, 50]);
    pass_with(&store, &lease, "final", 51, b"").unwrap();
    drop(lease);
    store.in_every_life(|store| {
        assert_eq!(store.read(1, 51).unwrap(), b"");
        assert_eq!(store.info(1).fragments, 4);
    });
    of_stage(&store, "final")[0].reject().unwrap();
    store.in_every_life(|store| {
        assert_eq!((store.read(1, 50), store.ledger(RUN).unwrap().rejected.fragments), (None, 4));
        store.late(1, 50, b"x");
    });
}

#[test]
fn results_that_cannot_be_leave_nothing_behind_and_decide_nothing() {
    let mut store = with_one(2);
    let lease = store.take(1);
    let source = |number| store.source(number);
    refused(pass_with(&store, &lease, "middle", 1, b"taken"), Kind::Conflict);
    let (five, six) = (source(5), source(6));
    refused(
        lease.pass("middle", &[ResultFragment::new(&five, b"a"), ResultFragment::new(&source(0), b"taken")]),
        Kind::Conflict,
    );
    refused(lease.pass("middle", &[ResultFragment::new(&five, b"a"), ResultFragment::new(&five, b"b")]), Kind::Invalid);
    refused(lease.pass("middle", &[ResultFragment::new(&Source::from_packed(&five[1..]), b"a")]), Kind::Invalid);
    let huge = vec![0; 1 << 20];
    refused(lease.pass("middle", &[ResultFragment::new(&six, b"a"), ResultFragment::new(&five, &huge)]), Kind::Invalid);
    assert_eq!(store.state(1), Some(LiveState::Leased), "nothing is decided");
    assert_eq!((store.read(1, 5), store.ledger(RUN).unwrap().stored.fragments), (None, 2));
    let token = lease.token;
    drop(lease);
    store.crash();
    refused(store.pass(&store.primary(1), &token, "middle", &[ResultFragment::new(&five, b"a")]), Kind::Fenced);
    store.in_every_life(|store| {
        assert_eq!((store.read(1, 5), store.read(1, 6)), (None, None));
        assert_eq!((store.info(1).fragments, store.info(1).stage), (2, 0));
    });
    let lease = store.take(1);
    lease.pass("middle", &[ResultFragment::new(&five, b"a"), ResultFragment::new(&six, b"b")]).unwrap();
    drop(lease);
    store.in_every_life(|store| assert_eq!(store.info(1).fragments, 4));
}

/// A new version of a result is a result: it does not count as a fragment that the event waits for.
#[test]
fn an_updated_result_stays_a_result() {
    let mut keyspace = staged(2);
    keyspace.run.completeness = forebay_store::core::Completeness::Count(2);
    let mut store = Fixture::new(&keyspace);
    store.stored(1, 0, b"x");
    assert!(store.seal(&store.primary(1)).unwrap());
    let lease = store.take(1);
    pass_with(&store, &lease, "middle", 50, b"tracks").unwrap();
    drop(lease);
    let lease = of_stage(&store, "middle").remove(0);
    assert_eq!(store.update(&store.key(1, 50), b"better tracks", Some(&lease.token)).unwrap(), 1);
    lease.pass("final", &[]).unwrap();
    drop(lease);
    store.in_every_life(|store| {
        assert_eq!(store.read(1, 50).unwrap(), b"better tracks");
        assert_eq!(store.counts(), [0, 1, 0, 0]);
        assert_eq!(store.ledger(RUN).unwrap().superseded.fragments, 1);
    });
}

#[test]
fn late_fragments_are_attached_between_stages() {
    let mut store = Fixture::new(&staged(3));
    store.stored(1, 0, b"x");
    store.stored(1, 2, b"x");
    assert!(store.seal(&store.primary(1)).unwrap());
    let lease = store.take(1);
    assert_eq!(lease.missing, [store.key(1, 1)]);
    store.late(1, 1, b"leased");
    lease.pass("middle", &[]).unwrap();
    drop(lease);
    store.stored(1, 1, b"late");
    store.in_every_life(|store| {
        assert_eq!(store.states(1)[1], (1, forebay_store::SourceState::Late));
        assert_eq!((store.counts(), store.info(1).stage), ([1, 0, 0, 0], 1));
    });
    assert!(of_stage(&store, "middle")[0].missing.is_empty());
}

#[test]
fn stage_and_failures_survive_removal_update_and_new_first_fragments() {
    let mut store = Fixture::new(&staged(3));
    for source in 1..=2 {
        store.stored(1, source, b"x");
    }
    assert!(store.seal(&store.primary(1)).unwrap());
    store.take(1).pass("middle", &[]).unwrap();
    drop(of_stage(&store, "middle"));
    store.advance(store.config.lease * 2);
    let check = |store: &Fixture| assert_eq!((store.info(1).stage, store.info(1).deliveries), (1, 1));
    store.stored(1, 0, b"a new first fragment");
    store.in_every_life(check);
    assert!(store.remove(&store.key(1, 1)).unwrap());
    store.in_every_life(check);
    store.update(&store.key(1, 0), b"newer", None).unwrap();
    store.in_every_life(check);
    assert!(store.remove(&store.key(1, 0)).unwrap());
    store.in_every_life(check);
    let lease = of_stage(&store, "middle").remove(0);
    assert_eq!((lease.delivery, sources_of(&lease.fragments)), (2, vec![2]));
    lease.requeue().unwrap();
    drop(lease);
    store.in_every_life(check);
}

#[test]
fn a_named_lease_takes_an_event_in_whatever_stage() {
    let store = with_one(1);
    store.take(1).pass("final", &[]).unwrap();
    let lease = store.take(1);
    assert_eq!(lease.stage, 2);
    store.advance(Duration::from_secs(1));
    lease.extend(Duration::from_secs(5)).unwrap();
    lease.accept(&["main"]).unwrap();
}

#[test]
fn a_run_says_in_which_stage_its_events_begin() {
    let mut keyspace = staged(2);
    keyspace.run.stage = Some("middle".to_owned());
    let mut store = Fixture::new(&keyspace);
    // One that waits, one that is complete, one that a seal made ready, one that was taken.
    store.stored(1, 0, b"x");
    (0..2).for_each(|source| store.stored(2, source, b"x"));
    store.stored(3, 0, b"x");
    assert!(store.seal(&store.primary(3)).unwrap());
    (0..2).for_each(|source| store.stored(4, source, b"x"));
    store.lease(&store.primary(4), None).unwrap().unwrap().requeue().unwrap();
    store.in_every_life(|store| {
        assert_eq!([1, 2, 3, 4].map(|event| store.info(event).stage), [1; 4]);
        assert_eq!((store.state(1), store.stats().ready), (Some(LiveState::Open), vec![0, 3, 0]));
        assert!(store.any(1).is_empty() && of_stage(store, "final").is_empty());
    });
    store.stored(1, 1, b"x");
    let leases = of_stage(&store, "middle");
    assert_eq!(leases.len(), 4);
    refused(leases[0].pass("middle", &[]), Kind::Invalid);
    leases.iter().for_each(|lease| lease.pass("final", &[]).unwrap());
    drop(leases);
    store.in_every_life(|store| assert_eq!(store.stats().ready, [0, 0, 4]));
    // A run without a stage of its own begins in the first; one of a stage that is not there is refused.
    let other = RunConfig { stage: Some("slow".to_owned()), ..staged(2).run };
    let unknown = store.run_open(2, &other).unwrap_err();
    assert!(unknown.kind() == Kind::Invalid && unknown.message().contains("no stage `slow`"), "{unknown}");
    refused(store.run_open(RUN, &staged(2).run), Kind::Conflict);
}
