//! Runs with a look-up table: bytes stay with the nodes that read them out, wherever the homes of their events are.

use crate::common::{Cluster, NODES, decide_all, eventually, keyspace};
use forebay_client::{AsyncClient, ClusterClient, Options};
use forebay_core::map::{Change, ClusterMap};
use forebay_core::{Bounds, GetAny, Key, Kind, Ledger, Level, Primary, PutOptions, PutOutcome, RunState, Sources};
use std::sync::Arc;
use std::time::{Duration, Instant};

const RUN: u64 = 5;
const EVENTS: u64 = 120;

fn connect(cluster: &Cluster) -> ClusterClient {
    let options = Options { deadline: Duration::from_secs(4), ..Options::default() };
    ClusterClient::connect(&cluster.addresses(), options).unwrap()
}

fn key(run: u64, event: u64, source: u64) -> Key {
    keyspace().schema.key(&[run, event * 64, source]).unwrap()
}

fn keys(run: u64) -> Vec<Key> {
    (0..EVENTS).flat_map(|event| [0, 1].map(|source| key(run, event, source))).collect()
}

/// Bytes of a key: longer than the record of their length and checksum.
fn bytes(key: &Key) -> Vec<u8> {
    key.as_bytes().repeat(9)
}

fn fill(client: &ClusterClient, run: u64) {
    let keys = keys(run);
    let values: Vec<Vec<u8>> = keys.iter().map(bytes).collect();
    let puts: Vec<_> = keys.iter().zip(&values).map(|(key, value)| (*key, &value[..], PutOptions::default())).collect();
    for outcome in client.put_many(&puts).unwrap() {
        assert_eq!(outcome.unwrap(), PutOutcome::Stored);
    }
}

fn holder(key: &Key) -> u16 {
    let source = keyspace().schema.values(key.as_bytes())[2];
    source as u16 + 1
}

fn sum(cluster: &Cluster, run: u64) -> Ledger {
    let mut all = Ledger::default();
    for id in 1..=NODES {
        all.add(&cluster.store(id).ledger(run).unwrap());
    }
    all
}

/// Fragments that the nodes keep for others, and what they have of their own, as the stores say it.
fn is_empty(cluster: &Cluster, keys: &[Key]) -> bool {
    keys.iter().all(|key| !matches!(cluster.store(holder(key)).get(key), Ok(Some(_))))
}

/// Holders are asked at the same time as the home of an event, which says what there is.
#[test]
fn what_holders_have_counts_only_where_its_home_says_so() {
    let cluster = Cluster::with_holders([1, 2]);
    let client = connect(&cluster);
    client.run_open(RUN, &keyspace().run).unwrap();
    fill(&client, RUN);
    let (placement, schema) = (cluster.map.keyspace("events").unwrap(), client.schema());
    let events: Vec<Primary> = (0..EVENTS).map(|event| schema.primary(&[RUN, event * 64]).unwrap()).collect();
    let sources = |of: &[u64]| {
        let source = |of: &u64| schema.source_of(&key(RUN, 0, *of));
        Sources::Only(of.iter().map(source).collect())
    };
    for primary in &events {
        for (wanted, count) in [(Sources::All, 2), (sources(&[0, 1]), 2), (sources(&[1]), 1), (Sources::None, 0)] {
            let event = client.get_event(primary, &wanted).unwrap().unwrap();
            assert_eq!(event.fragments.len(), count);
            assert!(event.fragments.iter().all(|found| found[..] == bytes(&found.key())[..]), "{event:?}");
        }
    }
    // Its home knows nothing of it yet: no event, although a holder has a fragment.
    let of_third = events.iter().find(|primary| placement.home(RUN, primary.as_bytes()) == 3).unwrap();
    assert!(client.remove_event(of_third).unwrap());
    for _ in 0..3 {
        assert!(client.get_event(of_third, &Sources::All).unwrap().is_none());
    }
    // A holder that has not what the home counts is asked once more, and named.
    let lost = events.iter().rfind(|primary| placement.home(RUN, primary.as_bytes()) == 3).unwrap();
    let lost = schema.join(lost, schema.rest_of(&key(RUN, 0, 0)));
    cluster.store(1).depart(3, &[forebay_store::Departed::Fragment(lost)]).unwrap();
    for _ in 0..3 {
        let error = client.get_event(&schema.primary_of(&lost), &Sources::All).unwrap_err();
        assert!(error.kind() == Kind::Corrupt && error.message().contains("node 1 does not have its bytes"), "{error}");
    }
}

/// With one connection to each node, those who read keep none while they wait for another.
#[test]
fn readers_with_one_connection_to_each_node_do_not_wait_for_each_other() {
    let cluster = Cluster::with_holders([1, 2]);
    let options = Options { deadline: Duration::from_secs(4), connections_max: 1, ..Options::default() };
    let client = ClusterClient::connect(&cluster.addresses(), options).unwrap();
    client.run_open(RUN, &keyspace().run).unwrap();
    fill(&client, RUN);
    std::thread::scope(|scope| {
        for lane in 0..6 {
            let client = &client;
            scope.spawn(move || {
                for event in (0..EVENTS).map(|event| (event * 7 + lane * 20) % EVENTS) {
                    let primary = client.schema().primary(&[RUN, event * 64]).unwrap();
                    let event = client.get_event(&primary, &Sources::All).unwrap().unwrap();
                    assert_eq!(event.fragments.len(), 2);
                }
            });
        }
    });
}

/// What a home that lives knows nothing of is no event; what it counts and a dead holder has is an error with its name.
#[test]
fn a_dead_holder_keeps_nobody_from_what_the_home_knows() {
    let mut cluster = Cluster::with_holders([1, 3]);
    let options = Options { deadline: Duration::from_secs(12), ..Options::default() };
    let client = ClusterClient::connect(&cluster.addresses(), options).unwrap();
    client.run_open(RUN, &keyspace().run).unwrap();
    fill(&client, RUN);
    let there = cluster.events_at(2, RUN, 1)[0];
    let absent = cluster.events_at(2, RUN, EVENTS as usize).pop().unwrap();
    cluster.stop(3);
    let begun = Instant::now();
    let error = client.get_event(&there, &Sources::All).unwrap_err();
    let waited = begun.elapsed();
    assert!(error.kind() == Kind::Unavailable && error.message().contains("node 3"), "{error}");
    // Asking for a later map does not cost the time of a call again.
    assert!(waited < Duration::from_secs(20), "{waited:?}");
    let begun = Instant::now();
    assert!(client.get_event(&absent, &Sources::All).unwrap().is_none());
    assert!(begun.elapsed() < waited / 2, "{:?} of {waited:?}", begun.elapsed());
}

#[test]
fn bytes_are_read_where_they_are_and_events_decided_at_their_homes() {
    let cluster = Cluster::with_holders([1, 2]);
    let client = connect(&cluster);
    client.run_open(RUN, &keyspace().run).unwrap();
    fill(&client, RUN);
    let keys = keys(RUN);
    for key in &keys {
        assert_eq!(&cluster.store(holder(key)).get(key).unwrap().unwrap()[..], bytes(key));
    }
    let ledger = client.ledger(RUN).unwrap();
    let payload: u64 = keys.iter().map(|key| bytes(key).len() as u64).sum();
    assert_eq!((ledger.stored.fragments, ledger.stored.bytes), (2 * EVENTS, payload));
    assert_eq!((ledger.live.ready.events, ledger.imbalance()), (EVENTS, None));
    let at_homes: Vec<u64> = (1..=NODES).map(|id| cluster.store(id).ledger(RUN).unwrap().stored.fragments).collect();
    assert!(at_homes.iter().all(|part| *part > 20), "{at_homes:?}");
    // Every way to read.
    let is_whole =
        |found: &forebay_client::Fragment| found.level() == Level::Hot && found[..] == bytes(&found.key())[..];
    assert!(client.get_many(&keys).unwrap().iter().all(|found| is_whole(found.as_ref().unwrap())));
    let walked: Vec<_> = client.range(&Bounds::all(client.schema())).map(Result::unwrap).collect();
    assert!(walked.iter().map(|found| found.key()).eq(keys.iter().copied()) && walked.iter().all(is_whole));
    let one = client.schema().primary_of(&keys[0]);
    let event = client.get_event(&one, &Sources::All).unwrap().unwrap();
    assert!(event.fragments.len() == 2 && event.fragments.iter().all(is_whole));
    let mut sampler = client.sampler(&forebay_core::Sampling { rate_hz: 1000.0, ..Default::default() }).unwrap();
    let sample = sampler.next(Duration::from_secs(5)).unwrap().unwrap();
    assert!(sample.fragments.len() == 2 && sample.fragments.iter().all(is_whole));
    // A client that was given one node asks the others by itself; an async one says that it does not.
    let home = cluster.map.keyspace("events").unwrap().home(RUN, one.as_bytes());
    let alone = cluster.client(home);
    assert!(alone.get_event(&one, &Sources::All).unwrap().unwrap().fragments.iter().all(is_whole));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(async {
        let at = cluster.map.node(home).unwrap().at.last().unwrap();
        let client = AsyncClient::connect(at, Options::default()).await.unwrap();
        client.get_event(&one, &Sources::All).await.unwrap_err()
    });
    assert!(
        refused.kind() == Kind::Unavailable && refused.message().contains("another node has its bytes"),
        "{refused}"
    );
    // A client of Redis's protocol is given them by any node.
    let elsewhere = keys[..2].iter().find(|key| holder(key) != home).unwrap();
    let read = crate::common::redis::Redis::connect(&cluster.resp(home))
        .ask(&format!("GET {}", client.schema().text(elsewhere.as_bytes())));
    assert_eq!(read.as_bytes(), bytes(elsewhere));
    // Bytes that go to the wrong node are refused with the right one's number.
    let wrong = cluster.client(3).put(&keys[0], b"bytes", &PutOptions::default()).unwrap_err();
    assert!(wrong.kind() == Kind::Fenced && wrong.message().contains("node 1 holds this source"), "{wrong}");
    let unknown = client.put(&key(RUN, 0, 7), b"bytes", &PutOptions::default()).unwrap_err();
    assert!(unknown.kind() == Kind::Invalid && unknown.message().contains("does not have this source"), "{unknown}");
    assert_eq!(client.put(&keys[1], &bytes(&keys[1]), &PutOptions::default()).unwrap(), PutOutcome::Duplicate);
    let conflict = client.put(&keys[1], b"others", &PutOptions::default()).unwrap_err();
    assert_eq!(conflict.kind(), Kind::Conflict);
    let mut reserved = client.reserve(&key(RUN, EVENTS, 1), 9, &PutOptions::default()).unwrap();
    reserved.copy_from_slice(b"in place!");
    assert_eq!(reserved.commit().unwrap(), PutOutcome::Stored);
    assert_eq!(&client.get(&key(RUN, EVENTS, 1)).unwrap().unwrap()[..], b"in place!");
    let last = Bounds::parse(client.schema(), &format!("{RUN}/{}", EVENTS * 64)).unwrap();
    assert_eq!(client.remove_range(&last).unwrap(), 1, "its holder leaves that to its home");
    // What is removed is gone at once, although its holder hears of it a moment later.
    assert!(client.remove(&keys[3]).unwrap());
    assert!(client.get(&keys[3]).unwrap().is_none());
    let left = client.get_event(&client.schema().primary_of(&keys[3]), &Sources::All).unwrap().unwrap();
    assert!(left.fragments.len() == 1 && left.fragments.iter().all(is_whole));
    decide_all(&client, EVENTS, &one, |lease| {
        assert!(lease.fragments.iter().all(is_whole));
        assert!(lease.get(&Sources::All).unwrap().iter().all(is_whole));
    });
    eventually("only what was accepted is held", || is_empty(&cluster, &keys[2..]));
    assert!(client.get_event(&one, &Sources::All).unwrap().unwrap().fragments.iter().all(is_whole));
    let summary = client.run_close(RUN).unwrap();
    assert_eq!((summary.ledger.rejected.events, summary.ledger.imbalance()), (EVENTS - 1, None));
    assert!(client.release(&one).unwrap());
    eventually("nothing is held", || is_empty(&cluster, &keys));
    assert_eq!(client.put(&keys[0], b"late", &PutOptions::default()).unwrap_err().kind(), Kind::Closed);
    assert_eq!(client.runs().unwrap()[0].state, RunState::Closed);
}

#[test]
fn a_readout_node_puts_into_its_own_store_and_the_homes_hear_of_it() {
    let mut cluster = Cluster::with_holders([1, 2]);
    let client = connect(&cluster);
    client.run_open(RUN, &keyspace().run).unwrap();
    // As an embedded readout: no client, no home on the way.
    let put = |cluster: &Cluster, key: &Key| {
        let outcome = cluster.store(holder(key)).put(key, &bytes(key), &PutOptions::default()).unwrap();
        assert_eq!(outcome, PutOutcome::Stored);
    };
    let keys = keys(RUN);
    let (first, rest) = keys.split_at(keys.len() / 2);
    first.iter().for_each(|key| put(&cluster, key));
    let ready = |cluster: &Cluster| sum(cluster, RUN).live.ready.events;
    eventually("the homes know them", || ready(&cluster) == EVENTS / 2);
    // A holder goes away and comes back, while the other one goes on; then a node that leads events only.
    for away in [2, 3] {
        cluster.stop(away);
        let part = &rest[(usize::from(away) - 2) * rest.len() / 2..][..rest.len() / 2];
        part.iter().filter(|key| holder(key) != away).for_each(|key| put(&cluster, key));
        cluster.start(away);
        part.iter().filter(|key| holder(key) == away).for_each(|key| put(&cluster, key));
    }
    eventually("the homes know all", || ready(&cluster) == EVENTS);
    let ledger = sum(&cluster, RUN);
    assert_eq!((ledger.stored.fragments, ledger.late.fragments, ledger.imbalance()), (2 * EVENTS, 0, None));
    // A home that dies between a decision and its word to the holders.
    let leases = client.get_any(&GetAny { n: EVENTS as usize, ..GetAny::default() }).unwrap();
    let mut decided: Vec<Primary> = Vec::new();
    for lease in &leases {
        lease.reject().unwrap();
        decided.push(lease.primary);
    }
    drop(leases);
    cluster.stop(3);
    cluster.start(3);
    let schema = keyspace().schema;
    let of_decided: Vec<Key> = keys.iter().filter(|key| decided.contains(&schema.primary_of(key))).copied().collect();
    assert!(of_decided.len() as u64 > EVENTS / 2);
    eventually("what is decided is held nowhere", || is_empty(&cluster, &of_decided));
    // A late fragment of a decided event is gone from its holder, and counted once at its home.
    let late = of_decided[0];
    let outcome = cluster.store(holder(&late)).put(&late, &bytes(&late), &PutOptions::default()).unwrap();
    assert!(matches!(outcome, PutOutcome::Stored | PutOutcome::Late), "{outcome:?}");
    eventually("its home has refused it", || sum(&cluster, RUN).late.fragments == 1);
    eventually("nobody holds it", || is_empty(&cluster, &of_decided[..1]));
    while client
        .get_any(&GetAny { n: 64, ..GetAny::default() })
        .unwrap()
        .into_iter()
        .map(|l| l.reject().unwrap())
        .count()
        > 0
    {}
    // The close has everything told first: what came just now is ready, and is named.
    let last = [key(RUN, EVENTS, 0), key(RUN, EVENTS, 1)];
    last.iter().for_each(|key| put(&cluster, key));
    let refused = client.run_close(RUN).unwrap_err();
    assert!(refused.kind() == Kind::Unavailable && refused.message().contains("ready: 1"), "{refused}");
    client.get_any(&GetAny { wait: Duration::from_secs(5), ..GetAny::default() }).unwrap()[0].reject().unwrap();
    let summary = client.run_close(RUN).unwrap();
    assert_eq!((summary.ledger.rejected.events, summary.ledger.imbalance()), (EVENTS + 1, None));
}

#[test]
fn what_is_held_by_a_node_that_is_away_is_given_back_and_named() {
    let mut cluster = Cluster::with_holders([1, 2]);
    let options = Options { deadline: Duration::from_millis(400), ..Options::default() };
    let client = ClusterClient::connect(&cluster.addresses(), options).unwrap();
    client.run_open(RUN, &keyspace().run).unwrap();
    fill(&client, RUN);
    // An event whose home is a node that holds none of its bytes.
    let event = cluster.events_at(3, RUN, 1)[0];
    let number = client.schema().values(event.as_bytes())[1] / 64;
    cluster.stop(2);
    let refused = client.get(&key(RUN, number, 1)).unwrap_err();
    assert!(refused.kind() == Kind::Unavailable && refused.message().contains("node 2"), "{refused}");
    assert_eq!(client.get(&key(RUN, number, 0)).unwrap().unwrap()[..], bytes(&key(RUN, number, 0)));
    let refused = client.lease(&event, None).unwrap_err();
    assert!(refused.kind() == Kind::Unavailable && refused.message().contains("node 2"), "{refused}");
    // Its lease is given back at once, and is no failure of a worker.
    assert_eq!(cluster.store(3).ledger(RUN).unwrap().live.leased.events, 0);
    // Bytes that have no holder now are not taken, and nothing is known of them.
    let put = client.put(&key(RUN, EVENTS, 1), b"bytes", &PutOptions::default()).unwrap_err();
    assert!(matches!(put.kind(), Kind::Unavailable | Kind::OutcomeUnknown), "{put}");
    cluster.start(2);
    let lease = client.lease(&event, None).unwrap().unwrap();
    assert_eq!((lease.delivery, lease.fragments.len()), (1, 2));
    lease.reject().unwrap();
    // The home is away: its bytes are taken, and it hears of them when it is back.
    let event = cluster.events_at(3, RUN, EVENTS as usize + 1)[EVENTS as usize];
    let number = client.schema().values(event.as_bytes())[1] / 64;
    cluster.stop(3);
    let away = key(RUN, number, 1);
    let put = client.put(&away, &bytes(&away), &PutOptions::default()).unwrap_err();
    assert!(put.kind() == Kind::OutcomeUnknown && put.message().contains("node 2 has the bytes"), "{put}");
    cluster.start(3);
    eventually("it is told by the holder", || client.get(&away).is_ok_and(|found| found.is_some()));
    assert_eq!(client.put(&away, &bytes(&away), &PutOptions::default()).unwrap(), PutOutcome::Duplicate);
}

/// The key of the n-th event that has its home at a node, of this source.
fn of_home(cluster: &Cluster, home: u16, n: usize, source: u64) -> Key {
    let event = cluster.events_at(home, RUN, n + 1)[n];
    let schema = keyspace().schema;
    schema.key(&[RUN, schema.values(event.as_bytes())[1], source]).unwrap()
}

#[test]
fn what_was_acknowledged_outlives_a_stop_and_a_close_of_its_home() {
    let mut cluster = Cluster::with_holders([1, 2]);
    let client = connect(&cluster);
    client.run_open(RUN, &keyspace().run).unwrap();
    let keys: Vec<Key> = (0..30).map(|n| of_home(&cluster, 3, n, 1)).collect();
    cluster.stop(3);
    for key in &keys[1..] {
        let outcome = cluster.store(2).put(key, &bytes(key), &PutOptions::default()).unwrap();
        assert_eq!(outcome, PutOutcome::Stored);
    }
    client.run_stop(RUN).unwrap();
    cluster.start(3);
    eventually("the home has all that was taken before the stop", || {
        cluster.store(3).ledger(RUN).is_ok_and(|ledger| ledger.live.ready.events == 29)
    });
    let ledger = cluster.store(3).ledger(RUN).unwrap();
    assert_eq!((ledger.late.fragments, ledger.refused.fragments, ledger.imbalance()), (0, 0, None));
    // A home whose store is closed refuses for good nothing that its holder has.
    client.run_open(RUN + 1, &keyspace().run).unwrap();
    let placement = cluster.map.keyspace("events").unwrap().clone();
    let schema = keyspace().schema;
    let key = (0..).map(|event| schema.key(&[RUN + 1, event * 64, 1]).unwrap());
    let key = { key }.find(|key| placement.home(RUN + 1, schema.primary_of(key).as_bytes()) == 3).unwrap();
    cluster.store(3).close().unwrap();
    let unknown = client.put(&key, &bytes(&key), &PutOptions::default()).unwrap_err();
    assert!(unknown.kind() == Kind::OutcomeUnknown && unknown.message().contains("node 2 has the bytes"), "{unknown}");
    cluster.stop(3);
    cluster.start(3);
    eventually("its home hears of it", || client.get(&key).is_ok_and(|found| found.is_some()));
}

#[test]
fn a_full_home_hears_of_what_completes_its_events() {
    let cluster = Cluster::with_holders([3, 2]);
    let client = connect(&cluster);
    client.run_open(RUN, &keyspace().run).unwrap();
    let events = cluster.events_at(3, RUN, 1000);
    let schema = keyspace().schema;
    let key = |n: usize, source| schema.key(&[RUN, schema.values(events[n].as_bytes())[1], source]).unwrap();
    let no_wait = PutOptions { deadline: Some(Duration::ZERO), ..PutOptions::default() };
    let full = (0..).find(|&n| cluster.store(3).put(&key(n, 0), &[7; 200_000], &no_wait).is_err()).unwrap();
    // The other source is ahead, with events that have no place at the home; then it brings what completes those that have.
    for n in (full..full + 400).chain(0..full) {
        assert_eq!(cluster.store(2).put(&key(n, 1), b"other", &PutOptions::default()).unwrap(), PutOutcome::Stored);
    }
    eventually("all that the home has is complete", || {
        cluster.store(3).ledger(RUN).unwrap().live.ready.events == full as u64
    });
}

#[test]
fn a_fragment_that_its_holder_lacks_stops_nobody() {
    let cluster = Cluster::with_holders([1, 2]);
    let client = connect(&cluster);
    client.run_open(RUN, &keyspace().run).unwrap();
    let pairs: Vec<[Key; 2]> = (0..10).map(|n| [0, 1].map(|source| of_home(&cluster, 3, n, source))).collect();
    for key in pairs.iter().flatten() {
        assert_eq!(client.put(key, &bytes(key), &PutOptions::default()).unwrap(), PutOutcome::Stored);
    }
    eventually("what clients told is known", || {
        cluster.store(2).untold(3, forebay_core::Report::Later, Duration::ZERO, 1).unwrap().is_empty()
    });
    // As after a loss that an operator accepted.
    cluster.store(2).depart(3, &[forebay_store::Departed::Fragment(pairs[0][1])]).unwrap();
    let mut decided = 0;
    for _ in 0..40 {
        for lease in client.get_any(&GetAny::default()).into_iter().flatten() {
            lease.reject().unwrap();
            decided += 1;
        }
    }
    assert_eq!(decided, 9, "all others are decided");
    // It is a delivery that failed, and no event that goes round for ever.
    let ledger = cluster.store(3).ledger(RUN).unwrap();
    assert_eq!((ledger.live.ready.events, ledger.live.leased.events), (0, 1));
    let lacking = client.get(&pairs[0][1]).unwrap_err();
    assert!(
        lacking.kind() == Kind::Corrupt && lacking.message().contains("node 2 does not have its bytes"),
        "{lacking}"
    );
}

/// By its own map the node that takes the bytes is their home too, by the nodes' map only their holder.
#[test]
fn what_a_client_with_an_earlier_map_puts_is_stored_only_where_its_home_says_so() {
    let cluster = Cluster::with_holders([1, 2]);
    let event = cluster.events_at(2, RUN, 1)[0];
    let [first, second] = [0, 1].map(|source| {
        let schema = keyspace().schema;
        schema.key(&[RUN, schema.values(event.as_bytes())[1], source]).unwrap()
    });
    let with_table = connect(&cluster);
    let nodes = cluster.map.nodes().to_vec();
    let change = Change::Keyspace { name: "events".into(), copies: 1, copies_min: 1, block: 6 };
    let before = ClusterMap::new(cluster.map.cluster(), nodes).unwrap().next_map(&change).unwrap();
    let options = Options { deadline: Duration::from_secs(4), ..Options::default() };
    let without_table = ClusterClient::by_map(&keyspace(), &before, options, Arc::new(|_| Ok(()))).unwrap();
    for client in [&with_table, &without_table] {
        assert_eq!(client.home_of(event.as_bytes()), 2);
    }
    let later = Arc::new(cluster.map.next_map(&Change::TakeOut { node: 2, from_run: RUN }).unwrap());
    cluster.members.iter().flatten().for_each(|member| member.node.adopt(&later).unwrap());
    let client = connect(&cluster);
    client.run_open(RUN, &keyspace().run).unwrap();
    assert_eq!(client.put(&first, &bytes(&first), &PutOptions::default()).unwrap(), PutOutcome::Stored);
    assert!(client.seal(&event).unwrap());
    let lease = client.lease(&event, None).unwrap().unwrap();
    assert_eq!(lease.fragments.len(), 1);
    for earlier in [&with_table, &without_table] {
        let outcome = earlier.put(&second, &bytes(&second), &PutOptions::default()).unwrap();
        assert!(outcome.is_late(), "{outcome:?}");
        assert_eq!(earlier.epoch(), later.epoch());
    }
    lease.reject().unwrap();
}

/// A node that is full inhibits the trigger of all: the summary over all nodes has its dead time, wherever the home of the run is.
#[test]
fn the_dead_time_of_a_run_is_that_of_the_node_that_inhibited_longest() {
    let cluster = Cluster::with_holders([1, 2]);
    let client = connect(&cluster);
    client.run_open(RUN, &keyspace().run).unwrap();
    let home = cluster.home_of(RUN);
    let full = [1, 2].into_iter().find(|&id| id != home).unwrap();
    let store = cluster.store(full);
    let big = vec![7; 100 << 10];
    for event in 0.. {
        if store.stats().inhibit.is_some() {
            break;
        }
        let outcome = store.put(&key(RUN, event, u64::from(full) - 1), &big, &PutOptions::default()).unwrap();
        assert_eq!(outcome, PutOutcome::Stored);
    }
    let alone = |id: u16| cluster.client(id).run_summary(RUN).unwrap();
    eventually("some dead time", || alone(full).dead_ns() > 50_000_000);
    let before = alone(full);
    assert_eq!(alone(home).dead_ns(), 0, "the home is not full");
    let check = |whole: &forebay_core::RunSummary| {
        assert!(whole.dead_ns() >= before.dead_ns() && whole.ran_ns >= whole.dead_ns(), "{whole:?}");
        let (row, of_node) = (&whole.dead_time[0], &before.dead_time[0]);
        assert_eq!(row.level, format!("{} of node `n{full}`", of_node.level));
        assert_eq!((&row.owner, row.cause), (&of_node.owner, of_node.cause));
    };
    check(&client.run_summary(RUN).unwrap());
    client.run_stop(RUN).unwrap();
    let mut closed = Err(forebay_core::Error::internal("not tried"));
    eventually("the run is closed", || {
        // Homes hear of the last ones in a moment.
        client.remove_range(&Bounds::all(client.schema())).unwrap();
        closed = client.run_close(RUN);
        closed.is_ok()
    });
    check(&closed.unwrap());
    check(&client.run_summary(RUN).unwrap());
    // The file of the close is that of the run's home alone.
    assert_eq!(cluster.store(home).run_summary(RUN).unwrap().dead_time, []);
}
