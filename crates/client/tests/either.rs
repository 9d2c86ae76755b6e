//! Handles of one store, some in its process and some over a socket, in one list of one type: who works with them does not ask.

use engine::{Config, Store};
use forebay_client::core::{Bounds, CountedProducer, Either, EventStore, GetAny, Keyspace, PutOptions, PutOutcome};
use forebay_client::core::{ReadFragment, Sources};
use forebay_client::{Client, Options};
use forebay_server::{Endpoint, Server, ServerConfig};
use std::time::Duration;

const EVENTS: u64 = 40;

#[test]
fn a_list_of_handles_here_and_there_does_the_work_of_one() {
    let dir = std::env::temp_dir().join(format!("forebay-either-{}", std::process::id()));
    std::fs::remove_dir_all(&dir).ok();
    let config = Config { hot_bytes: 16 << 20, ..Config::default() };
    let store = Store::create(&dir.join("store"), &Keyspace::events("either", 2).opening_runs(), config).unwrap();
    let native = vec![Endpoint::Unix(dir.join("socket"))];
    let server = Server::start([store.clone()], ServerConfig { native, ..ServerConfig::default() }).unwrap();
    let address = server.endpoints().next().unwrap().1.to_string();
    let client = Client::connect(&address, Options::default()).unwrap();
    let handles = [Either::Here(store.clone()), Either::There(client)];
    work(&handles);
    assert_eq!(store.ledger(1).unwrap().imbalance(), None);
    drop(handles);
    server.stop(Duration::from_secs(1));
    store.close().unwrap();
    std::fs::remove_dir_all(&dir).ok();
}

/// A readout and a filter that take their calls to the handles in turn.
fn work<S: EventStore>(handles: &[S]) {
    let schema = handles[0].keyspace().schema.clone();
    handles[0].run_open(1, &handles[0].keyspace().run.clone()).unwrap();
    let producer = handles[1].producer(1, "all of them").unwrap();
    for event in 0..EVENTS {
        for source in 0..2 {
            let handle = &handles[((event + source) % 2) as usize];
            let key = schema.key(&[1, event, source]).unwrap();
            let value = [event as u8; 5000];
            assert_eq!(handle.put(&key, &value, &PutOptions::default()).unwrap(), PutOutcome::Stored);
            producer.offered(value.len() as u64);
        }
    }
    producer.finish().unwrap();
    for handle in handles {
        let seen: Vec<_> = handle.range(&Bounds::all(&schema)).map(|fragment| fragment.unwrap().key()).collect();
        assert!(seen.len() == 2 * EVENTS as usize && seen.is_sorted());
    }
    let mut decided = 0;
    while decided < EVENTS {
        let handle = &handles[(decided % 2) as usize];
        let request = GetAny { sources: Sources::only(&schema, [0]).unwrap(), ..GetAny::default() };
        for lease in handle.get_any(&request).unwrap() {
            decided += 1;
            let whole = lease.get(&Sources::All).unwrap();
            assert!(lease.fragments.len() == 1 && whole.len() == 2 && whole.iter().all(|one| one.verify().is_ok()));
            if whole[0][0] % 2 == 0 { lease.accept(&["physics"]).unwrap() } else { lease.reject().unwrap() }
        }
    }
    let kept = handles[1].get_event(&schema.primary(&[1, 2]).unwrap(), &Sources::All).unwrap().unwrap();
    assert_eq!((kept.fragments.len(), kept.streams), (2, vec!["physics".to_owned()]));
    for handle in handles {
        assert_eq!(handle.ledger(1).unwrap().rejected.events, EVENTS / 2);
    }
}
