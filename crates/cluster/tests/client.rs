//! A client of a cluster: one hop to the home of each event, answers of all nodes as one.

use crate::common::{Cluster, NODES, decide_all, eventually, keyspace};
use forebay_client::{ClusterClient, Options};
use forebay_core::map::{Change, ClusterMap};
use forebay_core::{Bounds, FollowRun, GetAny, Key, Kind, PutOptions, PutOutcome, RunState, Sources};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const RUN: u64 = 5;
const EVENTS: u64 = 300;

fn connect(cluster: &Cluster) -> ClusterClient {
    connect_for(cluster, 10)
}

/// A client whose calls to a node have these seconds.
fn connect_for(cluster: &Cluster, seconds: u64) -> ClusterClient {
    let options = Options { deadline: Duration::from_secs(seconds), ..Options::default() };
    ClusterClient::connect(&cluster.addresses(), options).unwrap()
}

/// Keys of two sources of events that are spread over all nodes, in the order of their keys.
fn keys(run: u64) -> Vec<Key> {
    let schema = keyspace().schema;
    (0..EVENTS).flat_map(|event| [0, 1].map(|source| schema.key(&[run, event * 64, source]).unwrap())).collect()
}

fn fill(client: &ClusterClient, run: u64) {
    let keys = keys(run);
    let puts: Vec<_> = keys.iter().map(|key| (*key, key.as_bytes(), PutOptions::default())).collect();
    for outcome in client.put_many(&puts).unwrap() {
        assert_eq!(outcome.unwrap(), PutOutcome::Stored);
    }
}

#[test]
fn events_go_to_their_homes_and_come_back_as_one() {
    let cluster = Cluster::new();
    let client = connect(&cluster);
    client.run_open(RUN, &keyspace().run).unwrap();
    fill(&client, RUN);
    let keys = keys(RUN);
    // Each node has a part, and none has what is another's.
    let parts: Vec<u64> = (1..=NODES).map(|id| cluster.store(id).ledger(RUN).unwrap().stored.fragments).collect();
    assert!(parts.iter().all(|part| *part > 50) && parts.iter().sum::<u64>() == 2 * EVENTS, "{parts:?}");
    let ledger = client.ledger(RUN).unwrap();
    assert_eq!((ledger.stored.fragments, ledger.live.ready.events, ledger.imbalance()), (2 * EVENTS, EVENTS, None));
    let found = client.get_many(&keys).unwrap();
    assert!(found.iter().zip(&keys).all(|(found, key)| found.as_ref().unwrap().key() == *key));
    let walked: Vec<Key> = client.range(&Bounds::all(client.schema())).map(|found| found.unwrap().key()).collect();
    assert_eq!(walked, keys, "in the order of the keys, over all nodes");
    assert_eq!(client.events(&Bounds::all(client.schema())).unwrap().len() as u64, EVENTS);
    let one = client.schema().primary_of(&keys[0]);
    assert_eq!(client.get_event(&one, &Sources::All).unwrap().unwrap().fragments.len(), 2);
    decide_all(&client, EVENTS, &one, |_| {});
    assert!(client.get_any(&GetAny { wait: Duration::from_millis(120), ..GetAny::default() }).unwrap().is_empty());
    assert!(client.release(&one).unwrap());
    let summary = client.run_close(RUN).unwrap();
    assert_eq!((summary.ledger.rejected.events, summary.ledger.released.events), (EVENTS - 1, 1));
    assert_eq!(client.runs().unwrap()[0].state, RunState::Closed);
    assert_eq!(client.put(&keys[0], b"late", &PutOptions::default()).unwrap_err().kind(), Kind::Closed);
}

#[test]
fn an_event_that_becomes_ready_anywhere_is_found_by_who_waits() {
    let cluster = Cluster::new();
    let client = connect(&cluster);
    client.run_open(RUN, &keyspace().run).unwrap();
    for id in 1..=NODES {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let began = Instant::now();
                let leases = client.get_any(&GetAny { wait: Duration::from_secs(20), ..GetAny::default() }).unwrap();
                (leases.into_iter().map(|lease| lease.reject().unwrap()).count(), began.elapsed())
            });
            std::thread::sleep(Duration::from_millis(30));
            let event = cluster.events_at(id, RUN, 1)[0];
            for source in [0, 1] {
                let values = client.schema().values(event.as_bytes());
                let key = client.schema().key(&[values[0], values[1], source]).unwrap();
                assert_eq!(client.put(&key, b"bytes", &PutOptions::default()).unwrap(), PutOutcome::Stored);
            }
            let (found, took) = waiting.join().unwrap();
            assert!(found == 1 && took < Duration::from_secs(15), "node {id}: {found} after {took:?}");
        });
    }
}

#[test]
fn a_node_that_is_away_is_named_and_the_others_go_on() {
    let mut cluster = Cluster::new();
    let options = Options { deadline: Duration::from_millis(300), ..Options::default() };
    let client = ClusterClient::connect(&cluster.addresses(), options.clone()).unwrap();
    client.run_open(RUN, &keyspace().run).unwrap();
    let away = cluster.other_than_home_of(RUN);
    cluster.stop(away);
    let keys = keys(RUN);
    let puts: Vec<_> = keys.iter().map(|key| (*key, key.as_bytes(), PutOptions::default())).collect();
    let placement = cluster.map.keyspace("events").unwrap();
    for (key, outcome) in keys.iter().zip(client.put_many(&puts).unwrap()) {
        let home = placement.home(RUN, client.schema().primary_of(key).as_bytes());
        match outcome {
            Ok(outcome) => assert!(home != away && outcome == PutOutcome::Stored),
            Err(error) => assert!(
                home == away && matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown),
                "node {home}: {error}"
            ),
        }
    }
    // A sum is of all nodes, or of none.
    let refused = client.ledger(RUN).unwrap_err();
    assert!(refused.kind() == Kind::Unavailable && refused.message().contains(&format!("`n{away}`")), "{refused}");
    assert!(!client.get_any(&GetAny { n: 8, ..GetAny::default() }).unwrap().is_empty());
    // A new client needs one address that answers.
    let addresses = cluster.addresses();
    let new = ClusterClient::connect(&addresses, options.clone()).unwrap();
    assert!(new.get(&keys[0]).is_ok() || placement.home(RUN, client.schema().primary_of(&keys[0]).as_bytes()) == away);
    let nobody = ClusterClient::connect(&[&addresses[usize::from(away) - 1]], options).unwrap_err();
    assert!(
        nobody.kind() == Kind::Unavailable && nobody.message().contains("no node of the cluster answers"),
        "{nobody}"
    );
    let none = ClusterClient::connect::<&str>(&[], Options::default()).unwrap_err();
    assert!(none.kind() == Kind::Invalid && none.message().contains("give at least one"), "{none}");
    cluster.start(away);
    assert_eq!(client.ledger(RUN).unwrap().imbalance(), None);
}

#[test]
fn one_address_that_nobody_answers_does_not_keep_the_others() {
    let cluster = Cluster::new();
    let addresses = cluster.addresses();
    // It takes connections, and says nothing.
    let silent = cluster.dir.path().join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
    let nobody = cluster.dir.path().join("nobody.sock");
    let others = [&nobody, &silent].map(|path| format!("unix:{}", path.display()));
    let options = Options { deadline: Duration::from_secs(120), ..Options::default() };
    let began = Instant::now();
    let client = ClusterClient::connect(&[&others[0], &others[1], &addresses[0]], options).unwrap();
    assert!(client.runs().unwrap().is_empty() && began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn who_does_not_wait_gets_events_of_any_node_that_has_some() {
    let mut cluster = Cluster::new();
    let away = cluster.other_than_home_of(RUN);
    connect(&cluster).run_open(RUN, &keyspace().run).unwrap();
    cluster.stop(away);
    let began = Instant::now();
    // A new client asks the same nodes in the same order: one of the two is asked last.
    for has in (1..=NODES).filter(|id| *id != away) {
        let primary = cluster.events_at(has, RUN, 1)[0];
        let event = keyspace().schema.values(primary.as_bytes())[1];
        for source in 0..2 {
            let key = keyspace().schema.key(&[RUN, event, source]).unwrap();
            assert_eq!(cluster.store(has).put(&key, b"bytes", &PutOptions::default()).unwrap(), PutOutcome::Stored);
        }
        let lease = connect_for(&cluster, 120).get_any(&GetAny::default()).unwrap().pop().unwrap();
        assert_eq!(lease.primary, primary);
        lease.reject().unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
}

#[test]
fn a_node_is_taken_out_of_new_runs_and_its_old_ones_come_back_with_it() {
    let mut cluster = Cluster::new();
    let client = connect_for(&cluster, 4);
    client.run_open(RUN, &keyspace().run).unwrap();
    fill(&client, RUN);
    let away = cluster.other_than_home_of(RUN);
    cluster.stop(away);
    // An operator gives one node a map of a higher epoch: it spreads with the next orders.
    let later = cluster.map.next_map(&Change::TakeOut { node: away, from_run: 100 }).unwrap();
    let later: Arc<ClusterMap> = Arc::new(later);
    let told = cluster.home_of(RUN);
    cluster.members[usize::from(told) - 1].as_ref().unwrap().node.adopt(&later).unwrap();
    let placement = later.keyspace("events").unwrap();
    assert!(keys(100).iter().all(|key| placement.home(100, client.schema().primary_of(key).as_bytes()) != away));
    // The client goes by yesterday's map: it learns of the new one where a node refuses it.
    client.run_open(100, &keyspace().run).unwrap();
    eventually("the others go by the new map", || {
        (1..=NODES).filter(|&id| id != away).all(|id| cluster.store(id).epoch() == later.epoch())
    });
    let keys = keys(100);
    let puts: Vec<_> = keys.iter().map(|key| (*key, key.as_bytes(), PutOptions::default())).collect();
    for outcome in client.put_many(&puts).unwrap() {
        assert_eq!(outcome.unwrap(), PutOutcome::Stored, "those whose home was away go to the new one");
    }
    // It has no part in this run, which needs nothing of it.
    assert_eq!(client.ledger(100).unwrap().live.ready.events, EVENTS);
    for event in client.events(&Bounds::parse(client.schema(), "100").unwrap()).unwrap() {
        client.lease(&event.primary, None).unwrap().unwrap().reject().unwrap();
    }
    client.run_stop(100).unwrap();
    assert_eq!(client.run_close(100).unwrap().ledger.rejected.events, EVENTS);
    cluster.start(away);
    eventually("it goes by the new map as well", || cluster.store(away).epoch() == later.epoch());
    let ledger = client.ledger(RUN).unwrap();
    assert_eq!((ledger.live.ready.events, ledger.imbalance()), (EVENTS, None), "it came back with what it had");
}

#[test]
fn a_node_that_goes_by_an_earlier_map_is_waited_for() {
    const NEXT: u64 = 100;
    let cluster = Cluster::new();
    let later = Arc::new(cluster.map.next_map(&Change::TakeOut { node: 3, from_run: NEXT }).unwrap());
    let client = ClusterClient::by_map(&keyspace(), &later, Options::default(), Arc::new(|_| Ok(()))).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            cluster.members.iter().flatten().for_each(|member| member.node.adopt(&later).unwrap());
            connect(&cluster).run_open(NEXT, &keyspace().run).unwrap();
        });
        // What is of node 3 by the earlier map the others refuse until then.
        let before = cluster.map.keyspace("events").unwrap();
        let moved = |key: &Key| before.home(NEXT, client.schema().primary_of(key).as_bytes()) == 3;
        let keys: Vec<Key> = keys(NEXT).into_iter().filter(moved).collect();
        assert_eq!(client.put(&keys[0], b"x", &PutOptions::default()).unwrap(), PutOutcome::Stored);
        let rest: Vec<_> = keys[1..].iter().map(|key| (*key, &b"x"[..], PutOptions::default())).collect();
        assert!(client.put_many(&rest).unwrap().into_iter().all(|one| one.unwrap() == PutOutcome::Stored));
    });
}

/// Nothing listens there for more than half of the time of a call, and the client has no connection from before.
#[test]
fn a_node_that_comes_back_within_the_deadline_is_reached() {
    let mut cluster = Cluster::new();
    let first = connect(&cluster);
    first.run_open(RUN, &keyspace().run).unwrap();
    fill(&first, RUN);
    let map = cluster.map.keyspace("events").unwrap();
    let is_away = |key: &&Key| map.home(RUN, first.schema().primary_of(key).as_bytes()) == 3;
    let key = *keys(RUN).iter().find(is_away).unwrap();
    cluster.stop(3);
    let client = connect_for(&cluster, 14);
    std::thread::scope(|scope| {
        let calls = [
            scope.spawn(|| assert!(client.get(&key).unwrap().is_some())),
            scope.spawn(|| {
                let outcome = client.put(&key, key.as_bytes(), &PutOptions::default());
                assert_eq!(outcome.unwrap(), PutOutcome::Duplicate);
            }),
            scope.spawn(|| assert_eq!(client.ledger(RUN).unwrap().stored.fragments, 2 * EVENTS)),
        ];
        std::thread::sleep(Duration::from_secs(8));
        cluster.start(3);
        calls.into_iter().for_each(|call| call.join().unwrap());
    });
}

#[test]
fn a_client_hears_of_a_node_that_its_map_does_not_have() {
    let cluster = Cluster::new();
    let client = connect(&cluster);
    client.run_open(RUN, &keyspace().run).unwrap();
    fill(&client, RUN);
    let later = Arc::new(cluster.map.next_map(&Change::TakeOut { node: 1, from_run: 1000 }).unwrap());
    cluster.members.iter().flatten().for_each(|member| member.node.adopt(&later).unwrap());
    // Before the third node was added.
    let nodes = cluster.map.nodes()[..2].to_vec();
    let change = Change::Keyspace { name: "events".into(), copies: 1, copies_min: 1, block: 6 };
    let before = ClusterMap::new(cluster.map.cluster(), nodes).unwrap().next_map(&change).unwrap();
    let yesterday = || ClusterClient::by_map(&keyspace(), &before, Options::default(), Arc::new(|_| Ok(()))).unwrap();
    assert_eq!(yesterday().ledger(RUN).unwrap(), client.ledger(RUN).unwrap());
    let bounds = Bounds::parse(client.schema(), &RUN.to_string()).unwrap();
    assert_eq!(yesterday().events(&bounds).unwrap().len() as u64, EVENTS);
    assert_eq!(yesterday().range(&bounds).map(Result::unwrap).count() as u64, 2 * EVENTS);
    let late = yesterday();
    let mut leases = Vec::new();
    eventually("it is given the events of all nodes", || {
        let request = GetAny { n: 8, sources: Sources::None, ..GetAny::default() };
        leases.extend(late.get_any(&request).unwrap());
        leases.len() as u64 == EVENTS
    });
    assert_eq!(late.epoch(), later.epoch());
}

#[test]
fn a_run_is_followed_over_all_nodes() {
    let cluster = Cluster::new();
    let client = connect(&cluster);
    client.run_open(RUN, &keyspace().run).unwrap();
    let mut watch = client.watch(RUN).unwrap();
    assert_eq!(watch.next(Duration::from_secs(5)).unwrap().unwrap().state, RunState::Open);
    fill(&client, RUN);
    let status = watch.next(Duration::from_secs(5)).unwrap().unwrap();
    assert_eq!(status.ledger.stored.fragments, 2 * EVENTS);
    let sources = client.sources(RUN).unwrap();
    assert!(sources.len() == 2 && sources.iter().all(|source| source.fragments == EVENTS), "{sources:?}");
    client.run_stop(RUN).unwrap();
    assert_eq!(watch.next(Duration::from_secs(5)).unwrap().unwrap().state, RunState::Stopped);
    assert_eq!(client.stats().unwrap().events[forebay_core::LiveState::Ready].events, EVENTS);
}

/// It takes connections and says nothing, as a process that hangs.
#[test]
fn a_node_that_says_nothing_does_not_keep_those_who_ask_for_events() {
    let mut cluster = Cluster::new();
    let client = connect_for(&cluster, 2);
    client.run_open(RUN, &keyspace().run).unwrap();
    fill(&client, RUN);
    cluster.stop(3);
    let (listener, calls) = (cluster.listener(3), Arc::new((AtomicUsize::new(0), AtomicBool::new(false))));
    let seen = calls.clone();
    let silent = std::thread::spawn(move || {
        let mut kept = Vec::new();
        while !seen.1.load(Ordering::SeqCst) {
            kept.push(listener.accept());
            seen.0.fetch_add(1, Ordering::SeqCst);
        }
    });
    for _ in 0..30 {
        let found = client.get_any(&GetAny { sources: Sources::None, ..GetAny::default() }).unwrap();
        assert_eq!(found.len(), 1);
        found[0].reject().unwrap();
    }
    // Of a third of the calls it would be the first node.
    let asked = calls.0.load(Ordering::SeqCst);
    assert!((1..=3).contains(&asked), "{asked}");
    // Once the others have nothing more, it is named.
    let error = loop {
        match client.get_any(&GetAny { n: 100, sources: Sources::None, ..GetAny::default() }) {
            Ok(leases) => leases.iter().for_each(|lease| lease.reject().unwrap()),
            Err(error) => break error,
        }
    };
    assert!(error.kind() == Kind::Unavailable && error.message().contains("n3.sock"), "{error}");
    // It comes back: a call that waits already finds what it has.
    std::thread::scope(|scope| {
        let request = GetAny { wait: Duration::from_secs(60), sources: Sources::None, ..GetAny::default() };
        let waiting = scope.spawn(move || client.get_any(&request).unwrap().len());
        calls.1.store(true, Ordering::SeqCst);
        drop(UnixStream::connect(cluster.socket(3)).unwrap());
        silent.join().unwrap();
        cluster.start(3);
        assert_eq!(waiting.join().unwrap(), 1);
    });
}
