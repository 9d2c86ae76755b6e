//! Devices that are drained while data is taken: everything stays where a reader finds it, and nothing new goes there.

use super::{all_down, create, events_of, two_levels};
use crate::common::{TempDir, assert_balanced, contents, eventually, key, payload, put, refused};
use forebay_store::core::{ClaimRequest, Kind, Level, LiveState, MovedStore, Primary};
use forebay_store::{Config, GetAny, PutOptions, PutOutcome, Sources, Store, WarmDevice};
use std::path::Path;
use std::time::Duration;

const MOST: usize = 6000;

/// Two devices, and undecided events go down at once.
fn down_on_two(dir: &Path) -> Config {
    Config { warm: two_levels(dir, 2).warm, ..all_down(dir) }
}

fn primary(store: &Store, event: u64) -> Primary {
    store.schema().primary(&[1, event]).unwrap()
}

fn bytes(event: u64, source: u64) -> Vec<u8> {
    payload(&key(1, event, source), event * 16 + source, MOST)
}

fn fill(store: &Store, events: std::ops::Range<u64>) {
    for event in events {
        for source in 0..2 {
            assert_eq!(put(store, &key(1, event, source), &bytes(event, source)).unwrap(), PutOutcome::Stored);
        }
    }
}

/// Accepts, rejects and leaves events in turn; answers those that are left, with their states.
fn decide(store: &Store, events: std::ops::Range<u64>) -> Vec<(u64, LiveState)> {
    let mut left = Vec::new();
    for event in events {
        let lease = |decide: bool| decide.then(|| store.lease(&primary(store, event), None).unwrap().unwrap());
        match event % 3 {
            0 => lease(true).unwrap().accept(&["physics"]).unwrap(),
            1 => lease(true).unwrap().reject().unwrap(),
            _ => {}
        }
        let state = [Some(LiveState::Accepted), None, Some(LiveState::Ready)][event as usize % 3];
        left.extend(state.map(|state| (event, state)));
    }
    left
}

fn check(store: &Store, left: &[(u64, LiveState)]) {
    for &(event, state) in left {
        let found = store.get_event(&primary(store, event), &Sources::All).unwrap().expect("it is there");
        let expected: Vec<(u64, Vec<u8>)> = (0..2).map(|source| (source, bytes(event, source))).collect();
        assert_eq!((contents(&found), found.state), (expected, state), "event {event}");
    }
    assert_balanced(store);
}

/// Live fragments on a device, and its containers that are not empty.
fn on(store: &Store, device: u32) -> (u32, usize) {
    let own: Vec<_> = store.containers().into_iter().filter(|container| container.device == device).collect();
    let taken = own.iter().filter(|container| container.state != "empty").count();
    (own.iter().map(|container| container.live_fragments).sum(), taken)
}

fn is_drained(store: &Store, device: usize) -> bool {
    store.warm_stats().unwrap().devices[device].drained
}

#[test]
fn a_device_is_emptied_while_data_comes_and_goes() {
    let dir = TempDir::new();
    let config = down_on_two(dir.path());
    let store = create(&dir, &events_of(2), &config);
    fill(&store, 0..90);
    store.tick();
    let mut left = decide(&store, 0..90);
    store.tick();
    assert!(on(&store, 0).0 > 0 && on(&store, 1).0 > 0, "both have something");
    let lease = store.lease(&primary(&store, 2), None).unwrap().expect("a ready event, held over the move");
    let before = store.warm_stats().unwrap();
    store.drain_device(0).unwrap();
    store.drain_device(0).unwrap();
    let leaving = store.warm_stats().unwrap();
    assert_eq!(leaving.free, before.devices[1].free, "free containers are those that can be taken");
    assert!(leaving.devices[0].leaving && !leaving.devices[1].leaving);
    let written = |store: &Store| store.warm_stats().unwrap().devices[0].payload_bytes;
    let (appended, mut next) = (written(&store), 90);
    eventually(&store, "device 0 is drained", || {
        if next < 150 {
            fill(&store, next..next + 6);
            left.extend(decide(&store, next..next + 6));
            next += 6;
        }
        is_drained(&store, 0)
    });
    assert_eq!((on(&store, 0), written(&store)), ((0, 0), appended), "nothing is there, nothing came");
    check(&store, &left.iter().copied().filter(|(event, _)| *event != 2).collect::<Vec<_>>());
    assert_eq!(contents(&store.get_event(&primary(&store, 2), &Sources::All).unwrap().unwrap()).len(), 2);
    lease.requeue().unwrap();
    check(&store, &left);

    // It leaves in the next life as well, by the list and by a configuration that names the devices.
    store.close().unwrap();
    drop(store);
    for config in [Config { warm: Vec::new(), ..config.clone() }, config] {
        let store = Store::open(&dir.store(), config).unwrap();
        assert!(is_drained(&store, 0));
        fill(&store, next..next + 6);
        left.extend(decide(&store, next..next + 6));
        next += 6;
        eventually(&store, "it goes down", || store.get(&key(1, next - 1, 0)).unwrap().unwrap().level() == Level::Warm);
        assert_eq!(on(&store, 0), (0, 0));
        check(&store, &left);
        store.close().unwrap();
    }

    // Undone, it takes data again: it has more free containers than the other one.
    let store = Store::open(&dir.store(), down_on_two(dir.path())).unwrap();
    store.undo_drain(0).unwrap();
    let stats = store.warm_stats().unwrap();
    assert!(!stats.devices[0].leaving && stats.free == stats.devices[0].free + stats.devices[1].free);
    fill(&store, next..next + 60);
    left.extend(decide(&store, next..next + 60));
    eventually(&store, "it takes data", || on(&store, 0).0 > 0);
    check(&store, &left);
    drop(store);
    let store = Store::open(&dir.store(), down_on_two(dir.path())).unwrap();
    assert!(!store.warm_stats().unwrap().devices[0].leaving);
    check(&store, &left);
}

/// What a put was told to be on a device is on another one before this one is drained: also where an event is incomplete.
#[test]
fn what_was_persisted_stays_persisted() {
    let dir = TempDir::new();
    let config = two_levels(dir.path(), 2);
    let store = create(&dir, &events_of(2), &config);
    let persist = |store: &Store, event: u64, source: u64| {
        let options = PutOptions { persisted: true, ..PutOptions::default() };
        assert_eq!(store.put(&key(1, event, source), &bytes(event, source), &options).unwrap(), PutOutcome::Stored);
    };
    for event in 0..6 {
        persist(&store, event, 0);
        persist(&store, event, 1);
    }
    persist(&store, 6, 0);
    let device = u32::from(on(&store, 0).0 == 0);
    store.drain_device(device).unwrap();
    // Goes to the other one, although its writer was here.
    persist(&store, 7, 0);
    assert!(on(&store, 1 - device).0 > 0);
    eventually(&store, "what is complete has moved", || on(&store, device).0 == 1);
    assert!(!is_drained(&store, device as usize), "event 6 waits for its other source");
    persist(&store, 6, 1);
    persist(&store, 7, 1);
    eventually(&store, "all of it has moved", || is_drained(&store, device as usize));
    store.close().unwrap();
    drop(store);
    // The hot level and the drained device are gone.
    std::fs::remove_file(dir.store().join("hot.fb")).unwrap();
    std::fs::remove_dir_all(dir.path().join(format!("warm-{device}"))).unwrap();
    let store = Store::open(&dir.store(), Config { accept_loss: true, warm: Vec::new(), ..config }).unwrap();
    check(&store, &(0..8).map(|event| (event, LiveState::Ready)).collect::<Vec<_>>());
}

fn accept_all(store: &Store) {
    for lease in store.get_any(&GetAny { n: 100, ..GetAny::default() }).unwrap() {
        lease.accept(&["physics"]).unwrap();
    }
    store.tick();
}

/// Claims the oldest container and proves it; answers its device, and how many events are in custody.
fn prove_one(store: &Store) -> (u32, u64) {
    let request = ClaimRequest { duration: Duration::from_secs(60), ..ClaimRequest::default() };
    let claim = store.claim(&request).unwrap().expect("a container");
    let events = store.prove(&claim.token).unwrap();
    (store.containers().iter().find(|container| container.state == "custody").unwrap().device, events)
}

/// What the archive has is released, not written once more.
#[test]
fn what_is_in_custody_on_it_is_let_go() {
    let dir = TempDir::new();
    let store = create(&dir, &events_of(2), &two_levels(dir.path(), 2));
    fill(&store, 0..10);
    accept_all(&store);
    let (device, events) = prove_one(&store);
    assert_eq!(events, 10);
    let written = store.warm_stats().unwrap().demoted_bytes;
    store.drain_device(device).unwrap();
    eventually(&store, "it is drained", || is_drained(&store, device as usize));
    let (ledger, stats) = (store.ledger(1).unwrap(), store.warm_stats().unwrap());
    assert_eq!((ledger.released.events, ledger.in_custody.events), (10, 0));
    assert_eq!((stats.custody_shortened, stats.demoted_bytes), (1, written));
    assert_balanced(&store);
}

/// The archive has only a part of each event: they move, and nothing of them is released.
#[test]
fn what_is_partly_in_custody_moves() {
    let dir = TempDir::new();
    let config = Config { container_bytes: 64 << 10, ..two_levels(dir.path(), 2) };
    let store = create(&dir, &events_of(2), &config);
    let bytes = |event: u64, source: u64| vec![(event * 2 + source) as u8; 40_000];
    for event in 0..3 {
        for source in 0..2 {
            let _stored = put(&store, &key(1, event, source), &bytes(event, source)).unwrap();
        }
    }
    accept_all(&store);
    let (device, events) = prove_one(&store);
    assert_eq!(events, 0, "an event has two containers");
    store.drain_device(device).unwrap();
    eventually(&store, "it is drained", || is_drained(&store, device as usize));
    for event in 0..3 {
        let found = store.get_event(&primary(&store, event), &Sources::All).unwrap().unwrap();
        assert_eq!(contents(&found), [(0, bytes(event, 0)), (1, bytes(event, 1))]);
    }
    assert_eq!(store.ledger(1).unwrap().released.events, 0);
    assert_balanced(&store);
}

#[test]
fn a_drain_that_cannot_end_is_refused() {
    let dir = TempDir::new();
    let config = Config {
        warm: [2, 3]
            .map(|megabytes| WarmDevice::directory(dir.path().join(format!("warm-{megabytes}")), megabytes << 20))
            .into(),
        ..down_on_two(dir.path())
    };
    let store = create(&dir, &events_of(2), &config);
    assert!(refused(store.drain_device(2), Kind::Invalid).contains("there are 2"));
    store.drain_device(1).unwrap();
    assert!(refused(store.drain_device(0), Kind::Invalid).contains("only one that takes data"));
    store.undo_drain(1).unwrap();
    refused(store.undo_drain(2), Kind::Invalid);
    // Without its list a store could not remember it.
    let list = dir.store().join("devices.toml");
    let text = std::fs::read(&list).unwrap();
    std::fs::remove_file(&list).unwrap();
    assert!(refused(store.drain_device(0), Kind::Invalid).contains("does not list"));
    assert!(!store.warm_stats().unwrap().devices[0].leaving);
    std::fs::write(&list, text).unwrap();
    for event in 0..400 {
        fill(&store, event..event + 1);
        store.tick();
    }
    let error = store.drain_device(1).unwrap_err();
    assert_eq!(error.kind(), Kind::Full, "{error}");
    assert_eq!(error.shortage().map(|shortage| shortage.level.as_str()), Some("warm level"));
    assert!(error.message().contains("bytes more are free"), "{error}");
    assert!(!store.warm_stats().unwrap().devices[1].leaving);
    let hot = TempDir::new();
    let store = Store::create(&hot.store(), &events_of(2), crate::common::small_config()).unwrap();
    refused(store.drain_device(0), Kind::Invalid);
}

fn generations(store: &Store, device: u32) -> Vec<u32> {
    store.containers().iter().filter(|one| one.device == device).map(|one| one.generation).collect()
}

/// The new device has the numbers of the old one, the fillings of its containers are counted on, and the old one is never taken for
/// it again.
#[test]
fn a_drained_device_is_exchanged() {
    let dir = TempDir::new();
    let config = down_on_two(dir.path());
    let listed = Config { warm: Vec::new(), ..config.clone() };
    let store = create(&dir, &events_of(2), &config);
    let to = dir.path().join("new");
    fill(&store, 0..60);
    let mut left = decide(&store, 0..60);
    store.tick();
    let refusal = refused(store.exchange_device(0, &to), Kind::Conflict);
    assert!(refusal.contains("not drained") && !to.exists(), "{refusal}");
    store.drain_device(0).unwrap();
    eventually(&store, "device 0 is drained", || is_drained(&store, 0));
    let before = generations(&store, 0);
    assert!(before.iter().any(|generation| *generation > 0));
    refused(store.exchange_device(7, &to), Kind::Invalid);
    refused(store.exchange_device(0, &dir.path().join("warm-1")), Kind::Invalid);
    let other = TempDir::new();
    drop(create(&other, &events_of(2), &two_levels(other.path(), 1)));
    assert!(
        refused(store.exchange_device(0, &other.path().join("warm-0")), Kind::Conflict).contains("holds containers")
    );
    drop(Store::open(&other.store(), Config::default()).unwrap());
    store.exchange_device(0, &to).unwrap();
    store.exchange_device(0, &to).unwrap();
    refused(store.exchange_device(0, &dir.path().join("newer")), Kind::Conflict);
    refused(store.undo_drain(0), Kind::Conflict);
    // The store goes on without it until it is opened again.
    fill(&store, 60..90);
    left.extend(decide(&store, 60..90));
    store.tick();
    assert_eq!(on(&store, 0), (0, 0));
    check(&store, &left);
    store.close().unwrap();
    drop(store);

    let refusal = refused(Store::open(&dir.store(), config.clone()), Kind::Invalid);
    assert!(refusal.contains("was exchanged for"), "{refusal}");
    std::fs::remove_dir_all(dir.path().join("warm-0")).unwrap();
    let store = Store::open(&dir.store(), listed.clone()).unwrap();
    let status = store.warm_stats().unwrap().devices[0].clone();
    assert_eq!((status.name, status.leaving), (to.display().to_string(), false));
    assert_eq!(generations(&store, 0), before, "archives name them");
    check(&store, &left);
    fill(&store, 90..180);
    left.extend(decide(&store, 90..180));
    eventually(&store, "it takes data", || on(&store, 0).0 > 0);
    assert!(generations(&store, 0).iter().zip(&before).all(|(now, before)| now >= before));
    eventually(&store, "all are down", || {
        left.iter().all(|(event, _)| store.get(&key(1, *event, 0)).unwrap().unwrap().level() == Level::Warm)
    });
    check(&store, &left);
    store.close().unwrap();
    drop(store);

    // The devices alone have it all as well.
    std::fs::remove_file(dir.store().join("hot.fb")).unwrap();
    let store = Store::open(&dir.store(), Config { accept_loss: true, ..listed }).unwrap();
    check(&store, &left);
}

/// The hot level is lost before the new device was ever opened: what was decided before and after the exchange is in force.
#[test]
fn an_exchange_survives_the_loss_of_the_hot_level() {
    let dir = TempDir::new();
    let config = down_on_two(dir.path());
    let store = create(&dir, &events_of(2), &config);
    fill(&store, 0..60);
    let mut left = decide(&store, 0..60);
    store.drain_device(0).unwrap();
    eventually(&store, "device 0 is drained", || is_drained(&store, 0));
    store.exchange_device(0, &dir.path().join("new")).unwrap();
    fill(&store, 60..90);
    store.tick();
    left.extend(decide(&store, 60..90));
    eventually(&store, "all are down", || {
        left.iter().all(|(event, _)| store.get(&key(1, *event, 0)).unwrap().unwrap().level() == Level::Warm)
    });
    store.close().unwrap();
    drop(store);
    std::fs::remove_dir_all(dir.path().join("warm-0")).unwrap();
    std::fs::remove_file(dir.store().join("hot.fb")).unwrap();
    let store = Store::open(&dir.store(), Config { accept_loss: true, warm: Vec::new(), ..config }).unwrap();
    check(&store, &left);
    for event in (1..90).step_by(3) {
        assert!(store.get_event(&primary(&store, event), &Sources::None).unwrap().is_none(), "{event} was rejected");
    }
}
