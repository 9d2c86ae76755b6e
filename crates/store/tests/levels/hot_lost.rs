//! The hot level is gone, as memory is after the loss of power: what devices have is served, and nothing else.

use super::{all_down, create, events_of};
use crate::common::fixture::RUN;
use crate::common::{TempDir, key, payload, put, refused};
use forebay_store::core::{Kind, LiveState, Primary, Token};
use forebay_store::{Config, ContainerStatus, PutOptions, PutOutcome, Sources, Store};

const MOST: usize = 3000;

fn primary(store: &Store, event: u64) -> Primary {
    store.schema().primary(&[RUN, event]).unwrap()
}

fn bytes(event: u64, source: u64) -> Vec<u8> {
    payload(&key(RUN, event, source), event * 16 + source, MOST)
}

fn event_of_two(store: &Store, event: u64) {
    for source in 0..2 {
        let _ = put(store, &key(RUN, event, source), &bytes(event, source)).unwrap();
    }
}

fn lease(store: &Store, event: u64) -> Token {
    store.lease(&primary(store, event), None).unwrap().unwrap().token
}

fn state(store: &Store, event: u64) -> Option<LiveState> {
    let found = store.get_event(&primary(store, event), &Sources::All).unwrap()?;
    for fragment in &found.fragments {
        let source = store.schema().values(fragment.key().as_bytes())[2];
        assert_eq!(fragment.to_vec(), bytes(event, source), "{event}/{source}");
    }
    Some(found.state)
}

/// Events 0..4 are undecided on warm, 4 and 5 accepted there, 6 rejected there, 7 accepted and released, 8 debug, 9 ready
/// on the hot level alone, 10 open with one persisted fragment of two.
fn life(dir: &TempDir) -> (Config, [Token; 2]) {
    let config = Config { lease: std::time::Duration::from_millis(20), ..all_down(dir.path()) };
    let mut keyspace = events_of(2);
    keyspace.deliveries_max = 1;
    let store = create(dir, &keyspace, &config);
    (0..9).for_each(|event| event_of_two(&store, event));
    store.tick();
    let accepted = lease(&store, 4);
    store.accept(&primary(&store, 4), &accepted, &["main"]).unwrap();
    store.tick();
    let five = lease(&store, 5);
    store.accept(&primary(&store, 5), &five, &["main"]).unwrap();
    let rejected = lease(&store, 6);
    store.reject(&primary(&store, 6), &rejected).unwrap();
    let seven = lease(&store, 7);
    store.accept(&primary(&store, 7), &seven, &["main"]).unwrap();
    assert!(store.release(&primary(&store, 7)).unwrap());
    let _ = lease(&store, 8);
    std::thread::sleep(config.lease * 2);
    store.tick();
    assert_eq!(state(&store, 8), Some(LiveState::Debug));
    event_of_two(&store, 9);
    let options = PutOptions { persisted: true, ..PutOptions::default() };
    let _ = store.put(&key(RUN, 10, 0), &bytes(10, 0), &options).unwrap();
    let _ = put(&store, &key(RUN, 10, 1), &[]);
    // As the loss of power leaves it: nothing is closed.
    let left = dir.path().join("left");
    std::fs::create_dir_all(&left).unwrap();
    for file in std::fs::read_dir(dir.path().join("warm-0")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), left.join(file.file_name())).unwrap();
    }
    drop(store);
    for file in std::fs::read_dir(&left).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), dir.path().join("warm-0").join(file.file_name())).unwrap();
    }
    std::fs::remove_file(dir.store().join("hot.fb")).unwrap();
    (config, [accepted, rejected])
}

#[test]
fn a_lost_hot_level_is_served_only_with_consent() {
    let dir = TempDir::new();
    let (config, _) = life(&dir);
    let message = refused(Store::open(&dir.store(), config.clone()), Kind::Corrupt);
    assert!(message.contains("accept_loss"), "{message}");
    assert!(!dir.store().join("hot.fb").exists(), "a refused opening makes nothing");
    let store = Store::open(&dir.store(), Config { accept_loss: true, ..config }).unwrap();
    assert!(store.losses().iter().any(|loss| loss.contains("hot level")), "{:?}", store.losses());
}

#[test]
fn what_devices_have_is_served_and_decisions_are_in_force() {
    let dir = TempDir::new();
    let (config, [accepted, rejected]) = life(&dir);
    let accepting = Config { accept_loss: true, ..config.clone() };
    let mut store = Store::open(&dir.store(), accepting).unwrap();
    for opening in 0..3 {
        for event in 0..4 {
            assert_eq!(state(&store, event), Some(LiveState::Ready), "event {event}, opening {opening}");
        }
        assert_eq!([4, 5].map(|event| state(&store, event)), [Some(LiveState::Accepted); 2]);
        assert_eq!([6, 7, 9].map(|event| state(&store, event)), [None; 3], "opening {opening}");
        assert_eq!(state(&store, 8), Some(LiveState::Debug));
        assert_eq!(store.get(&key(RUN, 10, 0)).unwrap().unwrap().to_vec(), bytes(10, 0));
        assert_eq!(store.get(&key(RUN, 10, 1)).unwrap().map(|fragment| fragment.len()), None);
        for event in [6, 7] {
            let again = put(&store, &key(RUN, event, 0), &bytes(event, 0)).unwrap();
            assert_eq!(again, PutOutcome::Late, "event {event} does not come back");
        }
        store.accept(&primary(&store, 4), &accepted, &["main"]).unwrap();
        refused(store.reject(&primary(&store, 4), &accepted), Kind::Fenced);
        store.reject(&primary(&store, 6), &rejected).unwrap();
        for run in store.runs() {
            assert_eq!(run.ledger.imbalance(), None, "{:?}", run.ledger);
        }
        store.tick();
        store.close().unwrap();
        drop(store);
        store = Store::open(&dir.store(), config.clone()).unwrap();
    }
    // It goes on like any other.
    event_of_two(&store, 20);
    let _ = put(&store, &key(RUN, 10, 1), &bytes(10, 1)).unwrap();
    store.tick();
    for event in [0, 1, 2, 3, 10, 20] {
        let token = lease(&store, event);
        assert!(token.boot > accepted.boot, "a token of a life before could be in force");
        store.reject(&primary(&store, event), &token).unwrap();
    }
    for event in [4, 5, 8] {
        assert!(store.release(&primary(&store, event)).unwrap());
    }
    store.run_stop(RUN).unwrap();
    let ledger = store.run_close(RUN).unwrap().ledger;
    assert_eq!(ledger.imbalance(), None);
    store.tick();
    let rest: Vec<_> = store.containers().into_iter().filter(|container| container.state != "empty").collect();
    let idle = |container: &ContainerStatus| container.state == "filling" && container.live_fragments == 0;
    assert!(rest.iter().all(idle), "everything is decided: {rest:?}");
}
