//! A put that meets a grant between its claim and its publication, staged by making both apart.

use super::holder::Size;
use super::put::Claim;
use crate::{Config, GetAny, PutOptions, PutOutcome, Store};
use forebay_core::map::{Change, ClusterMap, Hex128, Node, NodeState};
use forebay_core::{Elsewhere, Keyspace, Level, Report};
use forebay_testkit::media::SimMedium;
use std::sync::Arc;

/// A store that leads all events of a run, of which another node holds source 1.
fn store() -> Store {
    let config = Config { hot_bytes: 16 << 20, maintenance: false, ..Config::default() };
    let store =
        Store::create_on(SimMedium::new(config.hot_bytes), &Keyspace::events("granted", 4).opening_runs(), config)
            .unwrap();
    let node = |id: u16, holds, state| Node {
        id,
        name: format!("n{id}"),
        at: vec![format!("tcp://n{id}:7440")],
        domain: format!("d{id}"),
        holds,
        state,
    };
    let nodes = vec![node(1, store.holding(), NodeState::Active), node(2, (Hex128(7), 0), NodeState::Active)];
    let keyspace = Change::Keyspace { name: "granted".into(), copies: 1, copies_min: 1, block: 0 };
    let sources = vec![("0".to_owned(), vec![1]), ("1".to_owned(), vec![2])];
    let table = Change::Table { keyspace: "granted".into(), from_run: 0, sources };
    let map = ClusterMap::new(Hex128(9), nodes).and_then(|map| map.next_map(&keyspace)?.next_map(&table)).unwrap();
    store.adopt_map(&Arc::new(map)).unwrap();
    store.run_open(1, &store.keyspace().run.clone()).unwrap();
    store
}

/// What another node holds, and whose event a worker gets while it is told, is late, and stays so when the event is given back.
#[test]
fn what_becomes_late_between_claim_and_publication_is_closed_as_well() {
    let store = store();
    let (engine, schema) = (store.engine(), store.schema());
    let key = |event, source| schema.key(&[1, event, source]).unwrap();
    let at_home = |event: &u64| {
        assert_eq!(store.put(&key(*event, 0), &[7; 100], &PutOptions::default()).unwrap(), PutOutcome::Stored);
        store.seal(&schema.primary_of(&key(*event, 0))).is_ok()
    };
    let late = key((0..64).find(at_home).unwrap(), 1);
    let primary = schema.primary_of(&late);
    let away = Elsewhere { length: 100, checksum: 5 }.to_bytes();
    for report in [Report::Later, Report::Prompt] {
        let options = PutOptions { level: Some(Level::Elsewhere), report, ..PutOptions::default() };
        let before = store.ledger(1).unwrap().late.fragments;
        let size = Size { here: Elsewhere::BYTES as u32, counted: 100 };
        let claimed = match engine.try_claim(&late, size, &options).unwrap() {
            Ok(Claim::Claimed(claimed)) => claimed,
            Ok(Claim::Late) if report == Report::Prompt => continue,
            _ => panic!("the key is free, or closed"),
        };
        let lease = store.get_any(&GetAny::default()).unwrap().pop().unwrap();
        let crc = engine.placement.copy_payload(&claimed.place, &away);
        assert_eq!(engine.publish(&claimed, crc).unwrap(), PutOutcome::Late);
        assert_eq!(store.ledger(1).unwrap().late.fragments, before, "what is asked about is not counted");
        lease.requeue().unwrap();
        assert_eq!(store.put(&late, &away, &options).unwrap(), PutOutcome::Late);
    }
    assert_eq!(store.get_event(&primary, &forebay_core::Sources::All).unwrap().unwrap().fragments.len(), 1);
    assert_eq!(store.ledger(1).unwrap().imbalance(), None);
}
