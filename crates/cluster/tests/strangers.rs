//! Who is not what the map says, and maps that no node may go by: nothing is put there, and nothing changes.

use crate::common::{Cluster, NODES, eventually, keyspace, met};
use forebay_client::{AsyncClient, ClusterClient, Options};
use forebay_cluster::Status;
use forebay_core::map::{Change, ClusterMap};
use forebay_core::{Keyspace, Kind, PutOptions, PutOutcome, RunConfig, RunState};
use forebay_server::{AccessToken, Endpoint, Right, Secret, Served, Server, ServerConfig};
use forebay_store::{Config, Store};
use forebay_wire::Control;
use std::sync::Arc;
use std::time::Duration;

fn soon() -> Options {
    Options { deadline: Duration::from_secs(1), ..Options::default() }
}

fn status(cluster: &Cluster, id: u16) -> Status {
    cluster.members[usize::from(id) - 1].as_ref().unwrap().node.status("events").unwrap()
}

fn trouble(cluster: &Cluster, id: u16, with: u16) -> String {
    let peers = status(cluster, id).peers;
    peers.into_iter().find(|peer| peer.node == with).unwrap().trouble.unwrap_or_default()
}

/// A run whose home is this node.
fn run_of(cluster: &Cluster, id: u16) -> u64 {
    (2..).find(|&run| cluster.home_of(run) == id).unwrap()
}

/// A server without a cluster where a node was.
fn stranger(cluster: &Cluster, id: u16, keyspace: &Keyspace) -> (Store, Server) {
    let config = Config { hot_bytes: 16 << 20, ..Config::default() };
    let store = Store::create(&cluster.dir.path().join("stranger"), keyspace, config).unwrap();
    let native = vec![Endpoint::Unix(cluster.socket(id))];
    let server = Server::start(
        vec![Served::from(store.clone())],
        ServerConfig { native, threads: 1, ..ServerConfig::default() },
    );
    (store, server.unwrap())
}

#[test]
fn nothing_is_put_into_a_store_that_is_not_the_nodes() {
    let mut cluster = met(Cluster::new());
    let client = ClusterClient::connect(&cluster.addresses(), soon()).unwrap();
    client.run_open(1, &keyspace().run).unwrap();
    let primary = cluster.events_at(3, 1, 1)[0];
    let key = keyspace().schema.parse_key(&format!("{}/0", keyspace().schema.text(primary.as_bytes()))).unwrap();
    cluster.stop(3);
    let (store, server) = stranger(&cluster, 3, &keyspace());
    // Also a client that knew the node before it was away.
    for client in [client, ClusterClient::connect(&cluster.addresses(), soon()).unwrap()] {
        let refused = client.put(&key, b"bytes", &PutOptions::default()).unwrap_err();
        let words = "is a server that is no node of a cluster, or one of an earlier version, where the map has node 3";
        assert!(refused.kind() == Kind::Unavailable && refused.message().contains(words), "{refused}");
        assert_eq!(client.ledger(1).unwrap_err().kind(), Kind::Unavailable);
    }
    // Other nodes find out with the next order.
    cluster.client(1).run_open(run_of(&cluster, 1), &keyspace().run).unwrap();
    eventually("the others say so", || trouble(&cluster, 1, 3).contains("no node of a cluster"));
    assert!(store.runs().is_empty(), "no order came there either");
    drop(server);
    store.close().unwrap();
    cluster.start(3);
    let client = ClusterClient::connect(&cluster.addresses(), Options::default()).unwrap();
    assert_eq!(client.put(&key, b"bytes", &PutOptions::default()).unwrap(), PutOutcome::Stored);
    assert_eq!(&cluster.store(3).get(&key).unwrap().unwrap()[..], b"bytes");
}

#[test]
fn a_node_at_the_address_of_another_one_is_not_taken_for_it() {
    let mut cluster = met(Cluster::new());
    cluster.stop(3);
    std::os::unix::fs::symlink(cluster.socket(2), cluster.socket(3))
        .or_else(|_| {
            std::fs::remove_file(cluster.socket(3))?;
            std::os::unix::fs::symlink(cluster.socket(2), cluster.socket(3))
        })
        .unwrap();
    let client = ClusterClient::connect(&cluster.addresses(), soon()).unwrap();
    let refused = client.runs().unwrap_err();
    assert!(refused.message().contains("is node 2, where the map has node 3"), "{refused}");
    cluster.client(1).run_open(run_of(&cluster, 1), &keyspace().run).unwrap();
    eventually("the others say so", || trouble(&cluster, 1, 3).contains("is node 2, where the map has node 3"));
}

#[test]
fn a_map_with_what_is_no_address_is_not_adopted() {
    let cluster = met(Cluster::new());
    let text = cluster.map.next_map(&Change::TakeOut { node: 2, from_run: 100 }).unwrap().to_json();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json.as_object_mut().unwrap().remove("hash");
    json["nodes"][1]["at"] = serde_json::json!(["tcp//daq02"]);
    let node = &cluster.members[0].as_ref().unwrap().node;
    let epoch = cluster.map.epoch();
    let refused = node.adopt_read(ClusterMap::from_json(&json.to_string())).unwrap_err();
    assert!(refused.message().contains("node 2 (`n2`) of the map: address `tcp//daq02`"), "{refused}");
    assert_eq!((cluster.store(1).epoch(), status(&cluster, 1).map_refused.is_some()), (epoch, true));
    // The next one, with what was mended, has the same epoch.
    node.adopt_read(ClusterMap::from_json(&text)).unwrap();
    assert_eq!((cluster.store(1).epoch(), status(&cluster, 1).map_refused), (epoch + 1, None));
    // An earlier one is no fault.
    assert_eq!(node.adopt_read(Ok((*cluster.map).clone())).unwrap_err().kind(), Kind::Fenced);
    assert_eq!(status(&cluster, 1).map_refused, None);
}

#[test]
fn two_maps_of_one_epoch_are_told_from_each_other() {
    let mut cluster = met(Cluster::new());
    // A node that is away does not get the one of the others before it has its own.
    cluster.stop(2);
    let [one, two] = [2, 3].map(|node| cluster.map.next_map(&Change::TakeOut { node, from_run: 100 }).unwrap());
    cluster.members[0].as_ref().unwrap().node.adopt(&Arc::new(one)).unwrap();
    cluster.map = Arc::new(two);
    cluster.start(2);
    eventually("they say so", || trouble(&cluster, 1, 2).contains("two maps of epoch"));
    let other = ClusterMap::new(forebay_core::map::Hex128(0xF1), cluster.map.nodes().to_vec()).unwrap();
    let keyspace = Change::Keyspace { name: "events".into(), copies: 1, copies_min: 1, block: 6 };
    let other = (0..5).fold(other.next_map(&keyspace).unwrap(), |map, _| {
        map.next_map(&Change::TakeOut { node: 3, from_run: 100 + u64::from(map.epoch()) }).unwrap_or(map)
    });
    let refused = cluster.members[2].as_ref().unwrap().node.adopt(&Arc::new(other)).unwrap_err();
    assert!(refused.message().contains("cluster"), "{refused}");
}

#[test]
fn an_order_of_an_epoch_that_its_node_does_not_have_is_refused() {
    let cluster = met(Cluster::new());
    let run = 5;
    cluster.client(1).run_open(run, &keyspace().run).unwrap();
    let (home, to) = (cluster.home_of(run), cluster.other_than_home_of(run));
    let order = |epoch, boot| Control::Order {
        node: home,
        epoch,
        boot,
        count: 1,
        signed: "nobody".into(),
        order: Box::new(Control::RunPause { run }),
    };
    let at = &cluster.map.node(to).unwrap().at;
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let peer = tokio.block_on(async { AsyncClient::lazy(at, keyspace(), Options::default()) }).unwrap();
    let refused = tokio.block_on(peer.control(&order(99, 1000))).unwrap_err();
    assert!(refused.kind() == Kind::Fenced && refused.message().contains("epoch 99"), "{refused}");
    let state = |id| cluster.store(id).runs().iter().find(|known| known.run == run).unwrap().state;
    assert_eq!(state(to), RunState::Open);
    // Nor is its number remembered: the home's next order counts.
    cluster.client(1).run_stop(run).unwrap();
    assert!((1..=NODES).all(|id| state(id) == RunState::Stopped));
}

#[test]
fn a_run_that_is_opened_twice_through_two_nodes_is_opened_once() {
    let cluster = met(Cluster::new());
    for run in 20..28 {
        let configs =
            [1, 2].map(|seconds| RunConfig { complete_within: Duration::from_secs(seconds), ..keyspace().run });
        let opened = std::thread::scope(|scope| {
            let open = |id: u16, config: RunConfig| {
                scope.spawn({
                    let client = cluster.client(id);
                    move || client.run_open(run, &config)
                })
            };
            let [first, second] = configs.clone();
            let opening = [open(1, first), open(2, second)];
            opening.map(|opening| opening.join().unwrap())
        });
        let refused: Vec<_> = opened.iter().filter_map(|opened| opened.as_ref().err()).collect();
        assert!(matches!(&refused[..], [one] if one.kind() == Kind::Conflict), "{opened:?}");
        let won = &configs[opened.iter().position(Result::is_ok).unwrap()];
        for id in 1..=NODES {
            assert_eq!(cluster.store(id).run_words(run).unwrap().config.complete_within, won.complete_within);
        }
    }
}

#[test]
fn a_node_without_the_right_peer_gives_no_orders() {
    let token = |name: &str, rights: &[Right]| AccessToken {
        name: name.to_owned(),
        secret: Secret::new(name.as_bytes()).unwrap(),
        rights: [("*".to_owned(), rights.to_vec())].into(),
    };
    let most = [Right::Read, Right::Write, Right::Select, Right::Admin];
    let cluster = Cluster::guarded(vec![token("a-token-of-the-nodes", &most)], b"a-token-of-the-nodes");
    eventually("they say so", || trouble(&cluster, 1, 2).contains("right `peer`"));
    let options = Options { token: b"a-token-of-the-nodes".to_vec(), ..soon() };
    let client = ClusterClient::connect(&cluster.addresses(), options).unwrap();
    let run = run_of(&cluster, 1);
    let home = client.node(1).unwrap();
    home.run_open(run, &keyspace().run).unwrap();
    assert!(cluster.store(2).runs().is_empty() && cluster.store(3).runs().is_empty(), "no other node did it");
}
