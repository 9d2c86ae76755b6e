//! Devices in directories: one is lost, with the hot level or without it, and one whose loss was accepted comes back.

use crate::common::fixture::RUN;
use crate::common::{TempDir, eventually, key, put};
use forebay_store::core::{Kind, Level, LiveState};
use forebay_store::{Accept, Config, PutOptions, PutOutcome, Sources, Store, WarmDevice, measure};
use std::path::Path;

const EVENTS: u64 = 160;
const BYTES: usize = 4000;

fn config(dir: &TempDir) -> Config {
    let device = |number| WarmDevice::directory(dir.path().join(format!("warm-{number}")), 5 << 20);
    Config {
        warm: (0..2).map(device).collect(),
        container_bytes: 64 << 10,
        device_log_bytes: 2 << 20,
        demote_high: 0.001,
        demote_low: 0.0,
        ..crate::common::small_config()
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        if file.path().is_file() && !file.file_name().to_string_lossy().starts_with("devices") {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

/// What a process that is killed now leaves, without what is said to be lost. Answers where it is.
fn killed(dir: &TempDir, without_hot: bool, without: &[usize]) -> TempDir {
    let left = TempDir::new();
    copy(&dir.store(), &left.store());
    if without_hot {
        std::fs::remove_file(left.store().join("hot.fb")).unwrap();
    }
    for device in (0..2).filter(|device| !without.contains(device)) {
        copy(&dir.path().join(format!("warm-{device}")), &left.path().join(format!("warm-{device}")));
    }
    // As it was made, with the directories that it has here.
    let rows: String = (0..2)
        .map(|device| {
            let path = left.path().join(format!("warm-{device}"));
            format!("[[device]]\npath = \"{}\"\nbytes = {}\n", path.display(), 5 << 20)
        })
        .collect();
    std::fs::write(left.store().join("devices.toml"), rows).unwrap();
    left
}

fn open(dir: &TempDir) -> Store {
    Store::open(&dir.store(), Config { accept_loss: true, ..config(dir) }).unwrap()
}

fn state(store: &Store, event: u64) -> Option<LiveState> {
    let name = store.schema().primary(&[RUN, event]).unwrap();
    store.get_event(&name, &Sources::None).unwrap().map(|event| event.state)
}

/// Events of one fragment on both devices; every third is rejected, every third accepted.
fn life(dir: &TempDir) -> Store {
    let store =
        Store::create(&dir.store(), &forebay_store::core::Keyspace::events("two", 1).opening_runs(), config(dir))
            .unwrap();
    for event in 0..EVENTS {
        assert_eq!(put(&store, &key(RUN, event, 0), &[event as u8; BYTES]).unwrap(), PutOutcome::Stored);
        if event % 8 == 7 {
            measure::demote(&store);
        }
    }
    store.tick();
    let used = |device| store.containers().iter().any(|one| one.device == device && one.live_fragments > 0);
    assert!(used(0) && used(1), "both devices hold something");
    for event in 0..EVENTS {
        let name = store.schema().primary(&[RUN, event]).unwrap();
        let lease = store.lease(&name, None).unwrap().expect("a ready event");
        match event % 3 {
            0 => lease.reject().unwrap(),
            1 => lease.accept(&["main"]).unwrap(),
            _ => lease.requeue().unwrap(),
        }
    }
    store
}

/// What is there is what was decided; answers how many events are not there that should be, were nothing lost.
fn decided(store: &Store, what: &str) -> usize {
    let found: Vec<_> = (0..EVENTS).map(|event| (event, state(store, event))).collect();
    let wrong: Vec<_> = found
        .iter()
        .filter(|(event, found)| match event % 3 {
            0 => found.is_some(),
            1 => found.is_some_and(|state| state != LiveState::Accepted),
            _ => found.is_some_and(|state| state != LiveState::Ready),
        })
        .collect();
    assert!(wrong.is_empty(), "{what}: {} events are other than decided: {wrong:?}", wrong.len());
    for run in store.runs() {
        assert_eq!(run.ledger.imbalance(), None, "{what}: {:?}", run.ledger);
    }
    found.iter().filter(|(event, found)| event % 3 != 0 && found.is_none()).count()
}

#[test]
fn decisions_hold_when_a_device_is_lost_after_a_kill() {
    let dir = TempDir::new();
    let store = life(&dir);
    assert_eq!(decided(&open(&killed(&dir, false, &[])), "killed"), 0);
    for lost in 0..2 {
        let left = killed(&dir, false, &[lost]);
        let missing = decided(&open(&left), &format!("killed, device {lost} lost"));
        assert!(missing > 0 && missing < EVENTS as usize * 2 / 3);
        decided(&open(&left), &format!("killed, device {lost} lost, opened again"));
    }
    drop(store);
}

/// Decisions about events on present devices, no matter which others are gone.
#[test]
fn decisions_hold_when_the_hot_level_and_a_device_are_lost() {
    let dir = TempDir::new();
    let store = life(&dir);
    assert_eq!(decided(&open(&killed(&dir, true, &[])), "without the hot level"), 0);
    for lost in 0..2 {
        let left = killed(&dir, true, &[lost]);
        decided(&open(&left), &format!("without the hot level and device {lost}"));
    }
    drop(store);
}

/// It comes back with all that it had. Nothing that was decided meanwhile, or before, is undone by it.
#[test]
fn a_device_that_returns_after_its_loss_was_accepted_undoes_nothing() {
    for lost in 0..2 {
        let dir = TempDir::new();
        life(&dir).close().unwrap();
        let place = dir.path().join(format!("warm-{lost}"));
        let elsewhere = dir.path().join("elsewhere");
        std::fs::rename(&place, &elsewhere).unwrap();
        let store = open(&dir);
        decided(&store, &format!("device {lost} is lost"));
        // What is left is decided, and lost events that come again are other ones.
        let mut ended = Vec::new();
        for event in (0..EVENTS).filter(|event| event % 3 == 2) {
            let name = store.schema().primary(&[RUN, event]).unwrap();
            if let Some(lease) = store.lease(&name, None).unwrap() {
                lease.reject().unwrap();
                ended.push(event);
            }
        }
        store.tick();
        store.close().unwrap();
        drop(store);
        std::fs::rename(&elsewhere, &place).unwrap();
        for accept_loss in [false, true, false] {
            let store = match Store::open(&dir.store(), Config { accept_loss, ..config(&dir) }) {
                Ok(store) => store,
                Err(error) => {
                    assert!(!accept_loss, "{error}");
                    let kinds = [Kind::Invalid, Kind::Corrupt, Kind::Unavailable];
                    assert!(kinds.contains(&error.kind()), "{error}");
                    assert!(error.to_string().contains("device") || error.to_string().contains("warm-"), "{error}");
                    continue;
                }
            };
            let what = format!("device {lost} is back, accept_loss {accept_loss}");
            decided(&store, &what);
            for event in &ended {
                assert_eq!(state(&store, *event), None, "{what}: event {event}, rejected meanwhile, is back");
            }
            for event in 0..EVENTS {
                if let Some(fragment) = store.get(&key(RUN, event, 0)).unwrap() {
                    assert_eq!(fragment.to_vec(), [event as u8; BYTES], "{what}: event {event}");
                }
            }
            store.tick();
            store.close().unwrap();
        }
    }
}

/// The store goes on without a device, uses its own space again, and the device comes back with old images.
#[test]
fn a_device_that_returns_brings_no_older_version_back() {
    let dir = TempDir::new();
    let store = life(&dir);
    store.close().unwrap();
    drop(store);
    let place = dir.path().join("warm-1");
    let elsewhere = dir.path().join("elsewhere");
    std::fs::rename(&place, &elsewhere).unwrap();
    let store = open(&dir);
    let mut updated = Vec::new();
    for event in (0..EVENTS).filter(|event| event % 3 == 2) {
        let name = key(RUN, event, 0);
        match store.get(&name).unwrap() {
            Some(_) => assert_eq!(store.update(&name, b"newer", None).unwrap(), 1),
            // What was lost may come again, or be late: what is answered holds.
            None if put(&store, &name, b"newer").unwrap() == PutOutcome::Late => continue,
            None => {}
        }
        updated.push(event);
    }
    store.tick();
    store.close().unwrap();
    drop(store);
    std::fs::rename(&elsewhere, &place).unwrap();
    // Without `accept_loss` the opening may be refused.
    let store = Store::open(&dir.store(), config(&dir)).unwrap_or_else(|_| open(&dir));
    for event in updated {
        let fragment = store.get(&key(RUN, event, 0)).unwrap();
        assert_eq!(fragment.map(|fragment| fragment.to_vec()), Some(b"newer".to_vec()), "event {event}");
    }
    for run in store.runs() {
        assert_eq!(run.ledger.imbalance(), None, "{:?}", run.ledger);
    }
}

/// A store with one fragment, of event 1: on the hot level and persisted on one device.
fn persisted(dir: &TempDir) -> Store {
    let wanted = Config { demote_high: 0.8, demote_low: 0.7, ..config(dir) };
    let store = Store::create(&dir.store(), &crate::common::sealed_events(), wanted).unwrap();
    let persisted = PutOptions { persisted: true, ..PutOptions::default() };
    assert_eq!(store.put(&key(RUN, 1, 0), &[1; BYTES], &persisted).unwrap(), PutOutcome::Stored);
    store
}

/// A device that was missing is there again, as it was.
fn bring_back(device: usize, from: &TempDir, to: &TempDir) {
    let name = format!("warm-{device}");
    let _ = std::fs::remove_dir_all(to.path().join(&name));
    copy(&from.path().join(&name), &to.path().join(&name));
}

/// Decided while the device that has a copy was missing: the others know it when that returns without the hot level.
#[test]
fn an_event_that_ends_while_its_device_is_missing_stays_ended_when_it_returns() {
    let dir = TempDir::new();
    let store = persisted(&dir);
    let name = store.schema().primary(&[RUN, 1]).unwrap();
    store.seal(&name).unwrap();
    for missing in 0..2 {
        let left = killed(&dir, false, &[missing]);
        let without = open(&left);
        without.lease(&name, None).unwrap().expect("its record is on the hot level").reject().unwrap();
        without.close().unwrap();
        drop(without);
        std::fs::remove_file(left.store().join("hot.fb")).unwrap();
        bring_back(missing, &dir, &left);
        assert_eq!(state(&open(&left), 1), None, "without device {missing}: the rejected event is back");
    }
}

/// Every device is lost after a kill, and comes back after a life without any: what was decided about its events holds, also
/// where nothing but the log said so, and an event of which a fragment was removed is still there.
#[test]
fn decisions_hold_when_all_devices_are_lost_and_return() {
    const PARTLY: u64 = EVENTS + 1;
    for is_closed in [false, true] {
        let dir = TempDir::new();
        let store = life(&dir);
        for source in 0..2 {
            assert_eq!(put(&store, &key(RUN, PARTLY, source), &[1; BYTES]).unwrap(), PutOutcome::Stored);
        }
        eventually(&store, "it goes down", || {
            measure::demote(&store);
            (0..2).all(|source| store.get(&key(RUN, PARTLY, source)).unwrap().unwrap().level() == Level::Warm)
        });
        assert!(store.remove(&key(RUN, PARTLY, 1)).unwrap());
        let (left, whole) = (killed(&dir, false, &[0, 1]), killed(&dir, false, &[]));
        drop(store);

        let without = open(&left);
        assert!(decided(&without, "without devices") > 0);
        // It was accepted, and nothing more comes to it.
        let accepted = (0..EVENTS).find(|event| event % 3 == 1 && state(&without, *event).is_none()).unwrap();
        // The rest of that one may go on, what was removed of it is closed.
        let rest = key(RUN, PARTLY, 2);
        assert_eq!(put(&without, &rest, &[2; 10]).unwrap(), PutOutcome::Stored);
        for key in [key(RUN, accepted, 0), key(RUN, accepted, 1), key(RUN, PARTLY, 1)] {
            assert_eq!(put(&without, &key, &[2; 10]).unwrap(), PutOutcome::Late, "{key:?}");
        }
        without.run_stop(RUN).unwrap();
        without.tick();
        let left = if is_closed { left } else { killed(&left, false, &[0, 1]) };
        drop(without);
        (0..2).for_each(|device| bring_back(device, &whole, &left));
        for _ in 0..2 {
            let store = open(&left);
            assert_eq!(decided(&store, &format!("all devices returned, closed {is_closed}")), 0);
            assert_eq!(state(&store, PARTLY), Some(LiveState::Ready));
            assert!(store.get(&key(RUN, PARTLY, 0)).unwrap().is_some());
            assert!(store.get(&key(RUN, PARTLY, 1)).unwrap().is_none());
            assert!(store.get(&rest).unwrap().is_some());
        }
    }
}

/// What was put while devices were missing stays, although they have other bytes under the same key; what becomes of the
/// event then holds, and an accepted one is accepted.
#[test]
fn a_fragment_that_is_put_while_its_device_is_missing_is_not_what_that_device_has() {
    for missing in [&[0_usize][..], &[1], &[0, 1]] {
        let dir = TempDir::new();
        let store = life(&dir);
        // Of what is accepted only its image says so.
        (0..4).for_each(|_| measure::demote(&store));
        store.close().unwrap();
        let (left, whole) = (killed(&dir, false, missing), killed(&dir, false, &[]));
        let without = open(&left);
        let mut events: Vec<u64> = (0..EVENTS / 4).filter(|event| state(&without, *event).is_none()).collect();
        // Nothing more comes to those that are known to be decided.
        events.retain(|event| put(&without, &key(RUN, *event, 0), b"newer").unwrap() == PutOutcome::Stored);
        let of = |rest| events.iter().filter(|event| *event % 3 == rest).count();
        assert!(of(0) == 0 && of(1) > 0 && of(2) > 2, "{missing:?}: {events:?}");
        // Where there is a device it goes down to that one.
        measure::demote(&without);
        without.close().unwrap();
        drop(without);
        missing.iter().for_each(|device| bring_back(*device, &whole, &left));
        let look = |store: &Store, what: &str, is_rejected: bool| {
            for &event in &events {
                let what = format!("{what}, without {missing:?}: event {event}");
                let found = store.get(&key(RUN, event, 0)).unwrap().map(|fragment| fragment.to_vec());
                let expected = if event % 3 == 1 { LiveState::Accepted } else { LiveState::Ready };
                if is_rejected && expected == LiveState::Ready {
                    assert_eq!(found, None, "{what}");
                } else {
                    assert_eq!(
                        (found.as_deref(), state(store, event)),
                        (Some(&b"newer"[..]), Some(expected)),
                        "{what}"
                    );
                }
            }
            crate::common::assert_balanced(store);
        };
        let store = open(&left);
        look(&store, "returned", false);
        let persisted = PutOptions { persisted: true, ..PutOptions::default() };
        for &event in &events {
            // Containers may have to be emptied first.
            let put = || store.put(&key(RUN, event, 0), b"newer", &persisted);
            eventually(&store, "it is persisted", || put().is_ok_and(|outcome| outcome == PutOutcome::Duplicate));
        }
        look(&open(&killed(&left, true, &[])), "without the hot level", false);
        measure::demote(&store);
        look(&open(&killed(&left, false, &[])), "down", false);
        look(&open(&killed(&left, true, &[])), "down, without the hot level", false);
        for &event in events.iter().filter(|event| *event % 3 == 2) {
            let name = store.schema().primary(&[RUN, event]).unwrap();
            store.lease(&name, None).unwrap().expect("a ready event").reject().unwrap();
        }
        look(&store, "rejected", true);
        look(&open(&killed(&left, true, &[])), "rejected, without the hot level", true);
    }
}

/// The same, decided before a device has what was put meanwhile.
#[test]
fn a_verdict_on_what_was_put_while_its_device_was_missing_holds() {
    let dir = TempDir::new();
    life(&dir).close().unwrap();
    let (left, whole) = (killed(&dir, false, &[0, 1]), killed(&dir, false, &[]));
    let without = open(&left);
    assert_eq!(put(&without, &key(RUN, 2, 0), b"newer").unwrap(), PutOutcome::Stored);
    without.close().unwrap();
    drop(without);
    (0..2).for_each(|device| bring_back(device, &whole, &left));
    let store = open(&left);
    let name = store.schema().primary(&[RUN, 2]).unwrap();
    store.lease(&name, None).unwrap().expect("a ready event").reject().unwrap();
    assert_eq!(state(&open(&killed(&left, true, &[])), 2), None, "the rejected event is back");
}

/// Which fragments an accepted event keeps is known again when its device returns.
#[test]
fn outputs_of_accepted_events_outlast_a_life_without_their_devices() {
    let dir = TempDir::new();
    let store = Store::create(&dir.store(), &crate::common::sealed_events(), config(&dir)).unwrap();
    (0..2).for_each(|source| assert_eq!(put(&store, &key(RUN, 1, source), &[1; BYTES]).unwrap(), PutOutcome::Stored));
    let name = store.schema().primary(&[RUN, 1]).unwrap();
    store.seal(&name).unwrap();
    let token = store.lease(&name, None).unwrap().expect("a sealed event").token;
    let streams = [("express", Sources::only(store.schema(), [1]).unwrap()), ("main", Sources::All)];
    store.accept_into(&name, &token, &Accept { streams: &streams, results: &[] }).unwrap();
    eventually(&store, "it goes down", || {
        measure::demote(&store);
        store.get(&key(RUN, 1, 0)).unwrap().unwrap().level() == Level::Warm
    });
    let outputs = store.outputs(&name).unwrap();
    assert!(outputs.as_ref().is_some_and(|outputs| outputs.len() == 2));
    store.close().unwrap();
    let (left, whole) = (killed(&dir, false, &[0, 1]), killed(&dir, false, &[]));
    open(&left).close().unwrap();
    (0..2).for_each(|device| bring_back(device, &whole, &left));
    assert_eq!(open(&left).outputs(&name).unwrap(), outputs);
}

/// An update beside missing devices, one of which has the version before: it returns, and then the hot level is lost.
#[test]
fn a_fragment_that_is_updated_while_its_device_is_missing_is_there_when_it_returns() {
    let dir = TempDir::new();
    let _store = persisted(&dir);
    let name = key(RUN, 1, 0);
    for missing in [&[0_usize][..], &[1], &[0, 1]] {
        let left = killed(&dir, false, missing);
        let without = open(&left);
        assert_eq!(without.update(&name, b"newer", None).unwrap(), 1);
        without.close().unwrap();
        drop(without);
        missing.iter().for_each(|device| bring_back(*device, &dir, &left));
        let found = open(&left).get(&name).unwrap().unwrap();
        assert_eq!((found.version(), found.to_vec()), (1, b"newer".to_vec()), "without {missing:?}");
        drop(found);
        std::fs::remove_file(left.store().join("hot.fb")).unwrap();
        let found = open(&left).get(&name).unwrap();
        assert!(found.is_some(), "without {missing:?}: no version is left");
    }
}
