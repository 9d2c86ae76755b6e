//! Runs, masks and holds over three nodes: every node has them, in one order, also one that was away.

use crate::common::{Cluster, NODES, eventually, keyspace, met};
use forebay_client::{Client, Options};
use forebay_cluster::{Node, NodeOptions};
use forebay_core::{Kind, PutOptions, PutOutcome, RunState, Source};
use forebay_server::{Endpoint, Server, ServerConfig};
use forebay_store::{Config, Store};
use std::time::Duration;

fn state(store: &Store, run: u64) -> Option<RunState> {
    store.runs().iter().find(|known| known.run == run).map(|known| known.state)
}

#[track_caller]
fn all_are(cluster: &Cluster, run: u64, wanted: RunState) {
    for id in 1..=NODES {
        assert_eq!(state(cluster.store(id), run), Some(wanted), "node {id}");
    }
}

fn put(client: &Client, run: u64, event: u64, source: u64) -> forebay_core::Result<PutOutcome> {
    let key = client.keyspace().schema.key(&[run, event, source]).unwrap();
    client.put(&key, b"bytes", &PutOptions::default())
}

#[test]
fn what_one_node_is_asked_for_every_node_does() {
    let cluster = Cluster::new();
    let (run, config) = (5, keyspace().run);
    // Neither client is at the home: both are served.
    let asked = cluster.client(cluster.other_than_home_of(run));
    let source = Source::from_packed(&keyspace().schema.source(&[1]).unwrap());
    asked.run_open(run, &config).unwrap();
    all_are(&cluster, run, RunState::Open);
    asked.run_pause(run).unwrap();
    all_are(&cluster, run, RunState::Paused);
    asked.run_resume(run).unwrap();
    asked.mask(run, &source, None).unwrap();
    for id in 1..=NODES {
        assert_eq!(cluster.store(id).run_words(run).unwrap().masks, [(source.clone(), None, true)], "node {id}");
    }
    asked.unmask(run, &source, None).unwrap();
    let hold = asked.hold(Some(run), &[]).unwrap();
    for id in 1..=NODES {
        let holds = cluster.store(id).holds();
        assert_eq!((holds.len(), holds[0].id, holds[0].run), (1, hold, Some(run)), "node {id}");
        assert!(cluster.store(id).run_words(run).unwrap().masks.iter().all(|mask| !mask.2), "node {id}");
    }
    assert!(cluster.client(1).release_hold(hold).unwrap());
    // An error of the home is the answer, and nobody else does anything.
    let other = forebay_core::RunConfig { stage: None, ..config.clone() };
    let other = forebay_core::RunConfig { complete_within: std::time::Duration::from_secs(1), ..other };
    assert_eq!(asked.run_open(run, &other).unwrap_err().kind(), Kind::Conflict);
    assert_eq!(asked.run_stop(77).unwrap_err().kind(), Kind::Invalid);
    asked.run_stop(run).unwrap();
    all_are(&cluster, run, RunState::Stopped);
    for id in 1..=NODES {
        assert!(cluster.store(id).holds().is_empty());
    }
    asked.run_close(run).unwrap();
    all_are(&cluster, run, RunState::Closed);
}

/// No node alone misses a source as often as its run allows.
#[test]
fn a_source_that_is_missed_over_all_nodes_is_masked_on_all_and_unmasked_when_it_comes_again() {
    let mut cluster = Cluster::new();
    let run = 5;
    let schema = keyspace().schema;
    let config = forebay_core::RunConfig {
        completeness: forebay_core::Completeness::sources(&schema, &[vec![0], vec![1]]).unwrap(),
        complete_within: std::time::Duration::from_millis(200),
        auto_mask: Some(6),
        ..keyspace().run
    };
    cluster.client(1).run_open(run, &config).unwrap();
    let mut next = 0;
    let mut put_to_each = |cluster: &Cluster, source: u64, nodes: &[u16]| {
        for id in nodes {
            let events = cluster.events_at(*id, run, next + 2);
            for event in &events[next..] {
                let event = schema.values(event.as_bytes())[1];
                assert_eq!(put(&cluster.client(*id), run, event, source).unwrap(), PutOutcome::Stored, "node {id}");
            }
        }
        next += 2;
    };
    let masked = |cluster: &Cluster, id: u16| {
        let rows = cluster.store(id).sources(run).unwrap();
        rows.into_iter().find(|row| row.source == "1").unwrap().masked
    };
    let (home, away) = (cluster.home_of(run), cluster.other_than_home_of(run));
    put_to_each(&cluster, 0, &[home, away]);
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!((1..=NODES).all(|id| masked(&cluster, id).is_none()), "missed four times");
    put_to_each(&cluster, 0, &[1, 2, 3]);
    eventually("every node masks it", || (1..=NODES).all(|id| masked(&cluster, id).as_deref() == Some("by policy")));
    cluster.stop(away);
    let others: Vec<u16> = (1..=NODES).filter(|id| *id != away).collect();
    put_to_each(&cluster, 1, &others);
    put_to_each(&cluster, 1, &others);
    eventually("those that are there wait for it again", || others.iter().all(|id| masked(&cluster, *id).is_none()));
    // A home that has forgotten that it ever masked the source, as after many masks: what it masks now counts for one that was away.
    cluster.start(away);
    eventually("so does one that was away", || masked(&cluster, away).is_none());
    cluster.store(away).set_masks_by_policy(run, &[Source::from_packed(&schema.source(&[1]).unwrap())]).unwrap();
    cluster.stop(away);
    cluster.client(home).run_pause(run).unwrap();
    cluster.start(away);
    eventually("whatever it masks itself", || masked(&cluster, away).is_none());
}

#[test]
fn a_run_begins_with_its_first_event_on_any_node() {
    let cluster = Cluster::new();
    let run = 9;
    for id in 1..=NODES {
        let client = cluster.client(id);
        let event = client.keyspace().schema.values(cluster.events_at(id, run, 1)[0].as_bytes())[1];
        assert_eq!(put(&client, run, event, 0).unwrap(), PutOutcome::Stored, "node {id}");
    }
    all_are(&cluster, run, RunState::Open);
}

#[test]
fn a_home_that_is_down_keeps_no_run_of_another_from_opening() {
    let mut cluster = Cluster::new();
    let (here, down) = (1, 2);
    let mut runs = (1..).filter(|&run| cluster.home_of(run) == down);
    let (first, second) = (runs.next().unwrap(), runs.next().unwrap());
    let other = (1..).find(|&run| cluster.home_of(run) == 3).unwrap();
    cluster.stop(down);
    let into = &|run| {
        let store = cluster.store(here);
        let schema = keyspace().schema;
        let event = schema.values(cluster.events_at(here, run, 1)[0].as_bytes())[1];
        let key = schema.key(&[run, event, 0]).unwrap();
        // At once, but for the time in which a run's home opens it.
        store.put(&key, b"bytes", &PutOptions { deadline: Some(Duration::ZERO), ..PutOptions::default() })
    };
    // Node 1 asks the dead one for both, longer than these puts wait.
    std::thread::scope(|scope| {
        for put in [first, second].map(|run| scope.spawn(move || into(run))) {
            assert_eq!(put.join().unwrap().unwrap_err().kind(), Kind::Unavailable);
        }
    });
    assert_eq!(into(other).unwrap(), PutOutcome::Stored);
}

#[test]
fn a_node_that_refuses_the_others_keeps_no_run_from_opening() {
    let mut cluster = met(Cluster::new());
    let (home, alone) = (1, 3);
    cluster.stop(alone);
    // It comes back without the cluster, as by a mistake in its configuration.
    let config = ServerConfig { native: vec![Endpoint::Unix(cluster.socket(alone))], ..ServerConfig::default() };
    let store = Store::create(
        &cluster.dir.path().join("alone"),
        &keyspace(),
        Config { hot_bytes: 16 << 20, ..Config::default() },
    )
    .unwrap();
    let server = Server::start([store], config).unwrap();
    let run = (1..).find(|&run| cluster.home_of(run) == home).unwrap();
    cluster.client(home).run_open(run, &keyspace().run).unwrap();
    assert_eq!(state(cluster.store(2), run), Some(RunState::Open));
    drop(server);
    cluster.start(alone);
    eventually("it catches up", || state(cluster.store(alone), run) == Some(RunState::Open));
}

#[test]
fn a_node_that_was_away_catches_up_and_keeps_no_run_from_starting() {
    let mut cluster = Cluster::new();
    let (run, later) = (5, 6);
    let home = cluster.home_of(run);
    assert_eq!(cluster.home_of(later), home, "runs have their homes in blocks");
    let away = cluster.other_than_home_of(run);
    let client = cluster.client(home);
    let source = Source::from_packed(&keyspace().schema.source(&[1]).unwrap());
    client.run_open(run, &keyspace().run).unwrap();
    cluster.stop(away);
    client.mask(run, &source, None).unwrap();
    client.run_pause(run).unwrap();
    client.run_open(later, &keyspace().run).unwrap();
    let hold = client.hold(None, &[]).unwrap();
    // A close wants every node: it is named, and the run goes on.
    let refused = client.run_close(later).unwrap_err();
    assert!(
        refused.kind() == Kind::Unavailable && refused.message().contains(&format!("node {away} (`n{away}`)")),
        "{refused}"
    );
    let there = cluster.members[usize::from(home) - 1].as_ref().unwrap().node.status("events").unwrap();
    assert!(there.peers.iter().any(|peer| peer.node == away && peer.trouble.is_some()), "{there:?}");
    cluster.start(away);
    eventually("it has what it missed", || {
        let store = cluster.store(away);
        state(store, later) == Some(RunState::Open) && state(store, run) == Some(RunState::Paused)
    });
    eventually("masks and holds as well", || {
        let store = cluster.store(away);
        store.run_words(run).is_ok_and(|words| words.masks == [(source.clone(), None, true)])
            && store.holds().iter().map(|known| known.id).eq([hold])
    });
    eventually("nobody is behind", || {
        let node = &cluster.members[usize::from(home) - 1].as_ref().unwrap().node;
        node.status("events").unwrap().peers.iter().all(|peer| peer.trouble.is_none())
    });
    client.run_close(later).unwrap();
    all_are(&cluster, later, RunState::Closed);
}

#[test]
fn a_run_with_something_left_on_one_node_is_closed_on_none() {
    let cluster = Cluster::new();
    let run = 5;
    let home = cluster.home_of(run);
    let client = cluster.client(home);
    client.run_open(run, &keyspace().run).unwrap();
    let elsewhere = cluster.other_than_home_of(run);
    let there = cluster.client(elsewhere);
    let event = there.keyspace().schema.values(cluster.events_at(elsewhere, run, 1)[0].as_bytes())[1];
    assert_eq!(put(&there, run, event, 0).unwrap(), PutOutcome::Stored);
    let refused = client.run_close(run).unwrap_err();
    assert!(
        refused.message().contains(&format!("node {elsewhere}")) && refused.message().contains("open: 1"),
        "{refused}"
    );
    // Every node takes events of it again.
    for id in 1..=NODES {
        let client = cluster.client(id);
        let event = client.keyspace().schema.values(cluster.events_at(id, run, 2)[1].as_bytes())[1];
        assert_eq!(put(&client, run, event, 0).unwrap(), PutOutcome::Stored);
    }
    // The home asks itself first.
    let refused = client.run_close(run).unwrap_err();
    assert!(refused.message().contains(&format!("stays as it is: node {home} (`n{home}`): ")), "{refused}");
    all_are(&cluster, run, RunState::Open);
}

#[test]
fn a_run_is_stopped_although_its_home_is_away() {
    let mut cluster = Cluster::new();
    let run = 5;
    let home = cluster.home_of(run);
    let client = cluster.client(cluster.other_than_home_of(run));
    client.run_open(run, &keyspace().run).unwrap();
    cluster.stop(home);
    client.run_stop(run).unwrap();
    for id in (1..=NODES).filter(|&id| id != home) {
        eventually("the others stop it as well", || state(cluster.store(id), run) == Some(RunState::Stopped));
    }
    // Other changes want the home.
    assert_eq!(client.run_resume(run).unwrap_err().kind(), Kind::Unavailable);
    cluster.start(home);
    eventually("its home stops it when it is back", || state(cluster.store(home), run) == Some(RunState::Stopped));
    eventually("and closes it", || client.run_close(run).is_ok());
    all_are(&cluster, run, RunState::Closed);
}

#[test]
fn what_is_another_nodes_is_refused_with_its_home() {
    let cluster = Cluster::new();
    let run = 5;
    let client = cluster.client(1);
    client.run_open(run, &keyspace().run).unwrap();
    let event = client.keyspace().schema.values(cluster.events_at(2, run, 1)[0].as_bytes())[1];
    let refused = put(&client, run, event, 0).unwrap_err();
    assert!(refused.kind() == Kind::Fenced && refused.message().contains("its home is node 2"), "{refused}");
    // Orders are between nodes: a client of the wrong rights is told so, and one with all rights gives no order out of turn.
    let order = forebay_wire::Control::Order {
        node: 2,
        epoch: 2,
        boot: 1,
        count: 1,
        signed: "nobody".into(),
        order: Box::new(forebay_wire::Control::RunPause { run }),
    };
    let tokio = runtime();
    let at = &cluster.map.node(cluster.other_than_home_of(run)).unwrap().at;
    let peer = forebay_client::AsyncClient::lazy(at, keyspace(), Options::default()).unwrap();
    let home = cluster.home_of(run);
    let wrong = (1..=NODES).find(|&id| id != home).unwrap();
    let forbidden = match order {
        forebay_wire::Control::Order { epoch, boot, count, signed, order, .. } => {
            forebay_wire::Control::Order { node: wrong, epoch, boot, count, signed, order }
        }
        other => other,
    };
    let refused = tokio.block_on(peer.control(&forbidden)).unwrap_err();
    assert!(refused.kind() == Kind::Fenced && refused.message().contains("gives an order about it"), "{refused}");
    let alone = forebay_wire::Control::BeginClose { run };
    assert_eq!(tokio.block_on(peer.control(&alone)).unwrap_err().kind(), Kind::Invalid);
    all_are(&cluster, run, RunState::Open);
}

#[test]
fn a_copy_of_a_store_is_no_second_node() {
    let mut cluster = Cluster::new();
    cluster.stop(3);
    let copy = cluster.dir.path().join("copy");
    let copied =
        std::process::Command::new("cp").arg("-r").arg(cluster.dir.path().join("n3")).arg(&copy).status().unwrap();
    assert!(copied.success());
    cluster.start(3);
    let store = Store::open(&copy, Config { hot_bytes: 16 << 20, ..Config::default() }).unwrap();
    let refused = Node::start(vec![store], &cluster.map, NodeOptions::default()).err().unwrap();
    assert!(
        refused.kind() == Kind::Conflict && refused.message().contains("another process is node 3 (`n3`)"),
        "{refused}"
    );
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
