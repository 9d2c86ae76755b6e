//! Policies of a closed store change; what stored data depends on does not; a change that is cut off is whole or none.

use crate::common::{TempDir, key, put, refused, small_config};
use forebay_store::core::{Keyspace, Kind, Level, LiveState, Order, Source, SourceGroup};
use forebay_store::{PutOutcome, Store, check};
use std::time::Duration;

fn keyspace() -> Keyspace {
    let mut keyspace = Keyspace::events("policies", 1).opening_runs();
    keyspace.fragment_bytes_max = 100;
    keyspace.streams = vec!["physics".to_owned()];
    keyspace
}

/// Every policy that can be changed, changed.
fn changed() -> Keyspace {
    let mut keyspace = keyspace();
    keyspace.fragment_bytes_max = 1000;
    keyspace.deliveries_max = 1;
    keyspace.auto_open_runs = false;
    keyspace.auto_open_after = 3;
    keyspace.streams = vec!["express".to_owned()];
    keyspace.delivery.order = Order::OldestFirst;
    keyspace.run.complete_within = Duration::from_secs(7);
    let sources = vec![Source::from_packed(&[0, 0, 0, 1])];
    keyspace.groups = vec![SourceGroup { name: "one".to_owned(), sources, level: Level::Hot }];
    keyspace
}

#[test]
fn harmless_policies_change_and_everything_stored_stays() {
    let dir = TempDir::new();
    let path = dir.path().join("store");
    let store = Store::create(&path, &keyspace(), small_config()).unwrap();
    assert_eq!(put(&store, &key(1, 1, 0), b"before").unwrap(), PutOutcome::Stored);
    refused(put(&store, &key(1, 2, 0), &[1; 500]), Kind::Invalid);
    assert_eq!(put(&store, &key(1, 3, 0), b"accepted").unwrap(), PutOutcome::Stored);
    let accepted = store.schema().primary(&[1, 3]).unwrap();
    store.lease(&accepted, None).unwrap().unwrap().accept(&["physics"]).unwrap();
    refused(Store::change_policies(&path, &changed()), Kind::Unavailable);
    store.close().unwrap();
    drop(store);

    let names = [
        "auto_open_runs",
        "auto_open_after",
        "deliveries_max",
        "fragment_bytes_max",
        "groups",
        "delivery",
        "run",
        "streams",
    ];
    assert_eq!(Store::change_policies(&path, &changed()).unwrap(), names);
    assert_eq!(Store::change_policies(&path, &changed()).unwrap(), Vec::<&str>::new());
    assert_eq!(check(&path, true).unwrap().problems, Vec::<String>::new());
    let store = Store::open(&path, small_config()).unwrap();
    assert_eq!(*store.keyspace(), changed());
    assert_eq!(&*store.get(&key(1, 1, 0)).unwrap().unwrap(), b"before");
    assert_eq!(put(&store, &key(1, 2, 0), &[1; 500]).unwrap(), PutOutcome::Stored);
    refused(put(&store, &key(2, 1, 0), b"another run"), Kind::Closed);
    assert_eq!(store.ledger(1).unwrap().live[LiveState::Ready].events, 2);
    // A stream that is not declared any more keeps its events and takes no others.
    assert_eq!(store.outputs(&accepted).unwrap().unwrap()[0].0, "physics");
    let lease = store.lease(&store.schema().primary(&[1, 2]).unwrap(), None).unwrap().unwrap();
    refused(lease.accept(&["physics"]), Kind::Invalid);
    lease.accept(&["express"]).unwrap();
    assert!(store.release(&accepted).unwrap());
    store.close().unwrap();
}

#[test]
fn what_stored_data_depends_on_is_named_and_nothing_changes() {
    let dir = TempDir::new();
    let path = dir.path().join("store");
    Store::create(&path, &keyspace(), small_config()).unwrap().close().unwrap();
    let before = std::fs::read(path.join("keyspace.toml")).unwrap();
    type Change = fn(&mut Keyspace);
    let changes: [(&str, Change); 4] = [
        ("name", |keyspace| keyspace.name = "other".to_owned()),
        ("stages", |keyspace| keyspace.stages.push("final".to_owned())),
        ("announced", |keyspace| keyspace.announced = true),
        ("key and primary", |keyspace| {
            keyspace.schema =
                forebay_store::core::KeySchema::parse(&["run:u32", "event:u64", "source:u16"], &["run", "event"])
                    .unwrap()
        }),
    ];
    for (name, change) in changes {
        let mut other = changed();
        change(&mut other);
        other.groups.clear();
        let message = refused(Store::change_policies(&path, &other), Kind::Invalid);
        assert!(message.contains(&format!("({name})")), "{message}");
    }
    let mut invalid = keyspace();
    invalid.deliveries_max = 16;
    assert!(refused(Store::change_policies(&path, &invalid), Kind::Invalid).contains("1 to 15"));
    assert_eq!(std::fs::read(path.join("keyspace.toml")).unwrap(), before);
}

#[test]
fn a_change_that_is_cut_off_is_whole_or_none() {
    let dir = TempDir::new();
    let path = dir.path().join("store");
    Store::create(&path, &keyspace(), small_config()).unwrap().close().unwrap();
    let (file, next) = (path.join("keyspace.toml"), path.join("keyspace.toml.new"));
    let old = std::fs::read(&file).unwrap();
    // Before the superblock: none.
    std::fs::write(&next, changed().to_toml().unwrap()).unwrap();
    let store = Store::open(&path, small_config()).unwrap();
    assert_eq!(*store.keyspace(), keyspace());
    store.close().unwrap();
    drop(store);
    assert!(!next.exists());
    // After it, before the rename: whole. A look changes nothing.
    Store::change_policies(&path, &changed()).unwrap();
    std::fs::rename(&file, &next).unwrap();
    std::fs::write(&file, &old).unwrap();
    assert_eq!(check(&path, true).unwrap().problems, Vec::<String>::new());
    assert!(next.exists());
    let store = Store::open(&path, small_config()).unwrap();
    assert_eq!(*store.keyspace(), changed());
    store.close().unwrap();
    assert!(!next.exists());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), changed().to_toml().unwrap());
}

#[test]
fn a_store_that_was_not_closed_in_order_is_opened_first() {
    let dir = TempDir::new();
    let path = dir.path().join("store");
    let copy = dir.path().join("copy");
    let store = Store::create(&path, &keyspace(), small_config()).unwrap();
    std::fs::create_dir(&copy).unwrap();
    for name in ["keyspace.toml", "hot.fb"] {
        std::fs::copy(path.join(name), copy.join(name)).unwrap();
    }
    drop(store);
    assert!(refused(Store::change_policies(&copy, &changed()), Kind::Invalid).contains("closed in order"));
    Store::open(&copy, small_config()).unwrap().close().unwrap();
    assert_eq!(Store::change_policies(&copy, &changed()).unwrap().len(), 8);
}
