//! Devices that are added: the store goes on without them, and the next opening takes them in, no matter what is cut off.

use super::{all_down, create, events_of, two_levels};
use crate::common::{TempDir, assert_balanced, contents, eventually, key, payload, put, refused, small_config};
use forebay_store::core::{Kind, Level, Primary, Result};
use forebay_store::{Config, PutOutcome, Sources, Store, WarmDevice, check, measure};
use forebay_testkit::media::{FaultyDevice, SimDevice, SimMedium};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

const MOST: usize = 6000;
const REGION_BYTES: u64 = 1 << 20;

/// Undecided events go down at once.
fn down(dir: &Path, devices: usize) -> Config {
    Config { warm: two_levels(dir, devices).warm, ..all_down(dir) }
}

/// As an operator opens it: by the list.
fn listed(config: &Config) -> Config {
    Config { warm: Vec::new(), ..config.clone() }
}

fn primary(store: &Store, event: u64) -> Primary {
    store.schema().primary(&[1, event]).unwrap()
}

fn bytes(event: u64) -> Vec<u8> {
    payload(&key(1, event, 0), event * 16, MOST)
}

/// Accepts, rejects and leaves events in turn.
fn take(store: &Store, events: std::ops::Range<u64>) {
    for event in events {
        assert_eq!(put(store, &key(1, event, 0), &bytes(event)).unwrap(), PutOutcome::Stored);
        match event % 3 {
            0 => store.lease(&primary(store, event), None).unwrap().unwrap().accept(&["physics"]).unwrap(),
            1 => store.lease(&primary(store, event), None).unwrap().unwrap().reject().unwrap(),
            _ => {}
        }
    }
    store.tick();
}

fn check_all(store: &Store, events: u64) {
    for event in 0..events {
        let found = store.get_event(&primary(store, event), &Sources::All).unwrap();
        let expected = (event % 3 != 1).then(|| vec![(0, bytes(event))]);
        assert_eq!(found.map(|found| contents(&found)), expected, "event {event}");
    }
    assert_balanced(store);
}

fn containers(store: &Store) -> Vec<usize> {
    let devices = store.warm_stats().unwrap().devices.len() as u32;
    let all = store.containers();
    (0..devices).map(|device| all.iter().filter(|one| one.device == device).count()).collect()
}

fn live_on(store: &Store, device: u32) -> u32 {
    store.containers().iter().filter(|one| one.device == device).map(|one| one.live_fragments).sum()
}

fn sound(dir: &TempDir) {
    let report = check(&dir.store(), true).unwrap();
    assert_eq!((report.problems, report.clean), (Vec::new(), true));
}

/// Two, one of another size, are added while data comes; one more to the store that has them.
#[test]
fn added_devices_take_data_from_the_next_opening_on() {
    let dir = TempDir::new();
    let config = down(dir.path(), 1);
    let store = create(&dir, &events_of(1), &config);
    let own = containers(&store)[0];
    let path = |name: &str| dir.path().join(name);
    take(&store, 0..60);
    store.add_device(&path("new"), None).unwrap();
    store.add_device(&path("new"), None).unwrap();
    store.add_device(&path("small"), Some(2 << 20)).unwrap();
    let stats = store.warm_stats().unwrap();
    assert_eq!(stats.added, [path("new").display().to_string(), path("small").display().to_string()]);
    assert_eq!((stats.devices.len(), stats.containers as usize), (1, own), "the store goes on without them");
    take(&store, 60..90);
    check_all(&store, 90);
    store.close().unwrap();
    drop(store);
    sound(&dir);

    let store = Store::open(&dir.store(), listed(&config)).unwrap();
    let sizes = containers(&store);
    assert_eq!((sizes.len(), sizes[1]), (3, own));
    assert!((1..own).contains(&sizes[2]), "{sizes:?}");
    assert_eq!((store.warm_stats().unwrap().added, store.losses()), (Vec::new(), Vec::new()));
    check_all(&store, 90);
    take(&store, 90..150);
    eventually(&store, "the emptiest takes data", || live_on(&store, 1) > 0);
    store.drain_device(0).unwrap();
    take(&store, 150..240);
    eventually(&store, "both take data", || live_on(&store, 1) > 0 && live_on(&store, 2) > 0);
    store.undo_drain(0).unwrap();
    store.add_device(&path("fourth"), None).unwrap();
    check_all(&store, 240);
    store.close().unwrap();
    drop(store);
    sound(&dir);

    // A program that names its devices goes on without the one that it does not name, and not without one that has data.
    let names: Vec<WarmDevice> =
        ["warm-0", "small", "new"].map(|name| WarmDevice::directory(path(name), 5 << 20)).into();
    let store = Store::open(&dir.store(), Config { warm: names.clone(), ..config.clone() }).unwrap();
    assert_eq!(containers(&store), sizes);
    refused(store.add_device(&path("fifth"), None), Kind::Invalid);
    store.close().unwrap();
    drop(store);
    let fewer = Config { warm: names[..2].to_vec(), ..config.clone() };
    assert!(refused(Store::open(&dir.store(), fewer), Kind::Invalid).contains("lists 2 of the 3"));
    let store = Store::open(&dir.store(), listed(&config)).unwrap();
    assert_eq!(containers(&store), [&sizes[..], &[own]].concat());
    take(&store, 240..300);
    check_all(&store, 300);

    // An added device is one like the others.
    store.drain_device(1).unwrap();
    eventually(&store, "device 1 is drained", || store.warm_stats().unwrap().devices[1].drained);
    store.exchange_device(1, &path("exchanged")).unwrap();
    store.close().unwrap();
    drop(store);
    let store = Store::open(&dir.store(), listed(&config)).unwrap();
    check_all(&store, 300);
    store.close().unwrap();
    drop(store);
    sound(&dir);
}

/// The devices alone have all that was decided, also where an added one was never opened.
#[test]
fn the_hot_level_is_lost_after_a_device_was_added() {
    for opened in [false, true] {
        let dir = TempDir::new();
        let config = down(dir.path(), 1);
        let mut store = create(&dir, &events_of(1), &config);
        take(&store, 0..60);
        store.add_device(&dir.path().join("new"), None).unwrap();
        if opened {
            store.close().unwrap();
            drop(store);
            store = Store::open(&dir.store(), listed(&config)).unwrap();
        }
        take(&store, 60..120);
        eventually(&store, "all are down", || {
            (0..120)
                .filter(|event| event % 3 != 1)
                .all(|event| store.get(&key(1, event, 0)).unwrap().unwrap().level() == Level::Warm)
        });
        store.close().unwrap();
        drop(store);
        std::fs::remove_file(dir.store().join("hot.fb")).unwrap();
        let store = Store::open(&dir.store(), Config { accept_loss: true, ..listed(&config) }).unwrap();
        check_all(&store, 120);
        assert_eq!(containers(&store).len(), 2);
        take(&store, 120..180);
        store.close().unwrap();
        drop(store);
        let store = Store::open(&dir.store(), listed(&config)).unwrap();
        check_all(&store, 180);
    }
}

#[test]
fn what_cannot_be_added_is_refused() {
    let dir = TempDir::new();
    let config = down(dir.path(), 1);
    let store = create(&dir, &events_of(1), &config);
    let new = dir.path().join("new");
    assert!(refused(store.add_device(&dir.path().join("warm-0"), None), Kind::Invalid).contains("is a device"));
    assert!(refused(store.add_device(&new, Some(100_000)), Kind::Invalid).contains("0 containers"));
    let refusal = refused(store.add_device(&new, Some(1 << 40)), Kind::Invalid);
    assert!(refusal.contains("can have 16384 in all") && !new.exists(), "{refusal}");
    let other = TempDir::new();
    create(&other, &events_of(1), &down(other.path(), 1)).close().unwrap();
    assert!(refused(store.add_device(&other.path().join("warm-0"), None), Kind::Conflict).contains("holds containers"));
    drop(Store::open(&other.store(), listed(&config)).unwrap());
    // Without its list the store could not name it.
    let list = dir.store().join("devices.toml");
    let text = std::fs::read(&list).unwrap();
    std::fs::remove_file(&list).unwrap();
    assert!(refused(store.add_device(&new, None), Kind::Invalid).contains("lists 0 devices"));
    std::fs::write(&list, &text).unwrap();
    // A list that cannot be written: the directory is empty again.
    std::fs::create_dir(dir.store().join("devices.toml.new")).unwrap();
    refused(store.add_device(&new, None), Kind::Invalid);
    let left = std::fs::read_dir(&new).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| name.to_string_lossy().ends_with(".fb")).count(), 0);
    std::fs::remove_dir(dir.store().join("devices.toml.new")).unwrap();
    store.add_device(&new, None).unwrap();
    store.close().unwrap();
    refused(store.add_device(&new, None), Kind::Closed);
    drop(store);
    // A row that nobody added is no device, in a list that has one that was.
    let text = std::fs::read_to_string(&list).unwrap();
    for (path, word) in [(other.path().join("warm-0"), "another store"), (dir.path().join("none"), "is not there")] {
        std::fs::write(&list, format!("{text}[[device]]\npath = {path:?}\nbytes = 1\n")).unwrap();
        let refusal = refused(Store::open(&dir.store(), listed(&config)), Kind::Invalid);
        assert!(refusal.contains(word), "{refusal}");
    }
    std::fs::write(&list, text).unwrap();
    assert_eq!(containers(&Store::open(&dir.store(), listed(&config)).unwrap()).len(), 2);
    // No containers of a missing device are known, so none can be numbered behind them.
    std::fs::remove_dir_all(&new).unwrap();
    let store = Store::open(&dir.store(), Config { accept_loss: true, ..listed(&config) }).unwrap();
    assert!(refused(store.add_device(&dir.path().join("third"), None), Kind::Conflict).contains("missing"));

    let hot = TempDir::new();
    let store = Store::create(&hot.store(), &events_of(1), small_config()).unwrap();
    assert!(refused(store.add_device(&new, None), Kind::Invalid).contains("without devices"));
}

/// What a kill before the list was changed leaves: the store is as it was, and the directory is never taken for the device that
/// got its number later.
#[test]
fn a_directory_that_never_became_a_device_is_refused() {
    let dir = TempDir::new();
    let config = down(dir.path(), 1);
    let store = create(&dir, &events_of(1), &config);
    take(&store, 0..30);
    let list = dir.store().join("devices.toml");
    let text = std::fs::read(&list).unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    store.add_device(&first, None).unwrap();
    store.close().unwrap();
    drop(store);
    std::fs::write(&list, &text).unwrap();
    let store = Store::open(&dir.store(), listed(&config)).unwrap();
    assert_eq!(containers(&store).len(), 1);
    assert!(refused(store.add_device(&first, None), Kind::Conflict).contains("empty this one"));
    store.add_device(&second, None).unwrap();
    store.close().unwrap();
    drop(store);
    let right = std::fs::read_to_string(&list).unwrap();
    let store = Store::open(&dir.store(), listed(&config)).unwrap();
    take(&store, 30..90);
    eventually(&store, "it takes data", || live_on(&store, 1) > 0);
    store.close().unwrap();
    drop(store);
    // Served instead of the other one, it would miss all that was taken.
    std::fs::write(&list, right.replace("second", "first")).unwrap();
    let refusal = refused(Store::open(&dir.store(), listed(&config)), Kind::Invalid);
    assert!(refusal.contains("was to become device 1"), "{refusal}");
    std::fs::remove_file(dir.store().join("hot.fb")).unwrap();
    refused(Store::open(&dir.store(), Config { accept_loss: true, ..listed(&config) }), Kind::Invalid);
    std::fs::write(&list, right).unwrap();
    check_all(&Store::open(&dir.store(), Config { accept_loss: true, ..listed(&config) }).unwrap(), 90);
}

/// What a cut leaves of all media, and how many devices the list had.
type Left = (Vec<u8>, Vec<Arc<SimDevice>>, usize);

struct Scene {
    medium: Arc<SimMedium>,
    devices: Vec<Arc<SimDevice>>,
    config: Config,
}

impl Scene {
    fn new(config: Config) -> (Scene, Store) {
        let medium = SimMedium::new(REGION_BYTES);
        let devices: Vec<_> = (0..4).map(|at| SimDevice::new(&format!("device-{at}"), 2 << 20)).collect();
        let scene = Scene { medium, devices, config };
        let first = scene.config(&scene.devices[..2]);
        let store = Store::create_on(scene.medium.clone(), &events_of(1), first).unwrap();
        take(&store, 0..12);
        (scene, store)
    }

    fn config(&self, devices: &[Arc<SimDevice>]) -> Config {
        let warm = devices.iter().map(|device| WarmDevice::device(device.clone(), 400 << 10));
        Config { warm: warm.collect(), ..self.config.clone() }
    }

    /// Two devices are added, the store is closed, and opened with them.
    fn grow(&self, store: Store, listed: &Mutex<usize>) {
        for number in 2..4 {
            measure::add_device(&store, &WarmDevice::device(self.devices[number].clone(), 400 << 10)).unwrap();
            *listed.lock() = number + 1;
        }
        store.close().unwrap();
        drop(store);
        drop(Store::open_on(self.medium.clone(), &events_of(1), self.config(&self.devices)).unwrap());
    }
}

/// For media of which a cut is looked at in full.
fn simulated() -> Config {
    Config {
        segment_bytes: Some(16 << 10),
        write_heads: 1,
        maintenance: false,
        demote_high: 0.001,
        demote_low: 0.0,
        container_bytes: 64 << 10,
        device_log_bytes: 64 << 10,
        ..small_config()
    }
}

/// The power fails at each step of each medium while two devices are added and taken in.
#[test]
fn a_cut_at_any_step_of_growing_is_made_good_by_the_next_opening() {
    let config = simulated();
    let mut cuts = [0; 3];
    // Medium 4 is the hot level.
    for at in 0..5 {
        for step in 1.. {
            let (scene, store) = Scene::new(config.clone());
            let (left, listed) = (Arc::new(Mutex::new(None::<Left>)), Arc::new(Mutex::new(2)));
            let (medium, devices) = (scene.medium.clone(), scene.devices.clone());
            let (cut, now) = (left.clone(), listed.clone());
            let hook = move || {
                let devices = devices.iter().enumerate().map(|(at, device)| device.power_off(step + at as u64));
                *cut.lock() = Some((medium.crash_now(step), devices.collect(), *now.lock()));
            };
            match scene.devices.get(at) {
                Some(device) => device.before_step(device.steps() + step, move |_| hook()),
                None => scene.medium.before_step(scene.medium.steps() + step, hook),
            }
            scene.grow(store, &listed);
            let Some((image, devices, listed)) = left.lock().take() else { break };
            let config = scene.config(&devices[..listed]);
            let what = format!("step {step} of medium {at}, {listed} listed");
            let found = |store: Result<Store>, next: std::ops::Range<u64>| {
                let store = store.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(containers(&store).len(), listed, "{what}");
                check_all(&store, next.start);
                take(&store, next.clone());
                check_all(&store, next.end);
                store.close().unwrap();
            };
            let image = SimMedium::from_image(image);
            // Of what is left, with and without the hot level.
            let copy: Vec<_> = devices.iter().map(|device| device.power_off(1)).collect();
            let without = Config { accept_loss: true, ..scene.config(&copy[..listed]) };
            let empty = SimMedium::new(REGION_BYTES);
            found(Store::open_without_hot_on(empty, &events_of(1), without), 12..24);
            found(Store::open_on(image.clone(), &events_of(1), config.clone()), 12..24);
            found(Store::open_on(image, &events_of(1), config), 24..36);
            cuts[listed - 2] += 1;
        }
    }
    assert!(cuts.iter().all(|cuts| *cuts > 10), "by how many were added: {cuts:?}");
}

/// A device refuses the block that makes it count the new ones: nothing is served, nothing has changed.
#[test]
fn a_device_that_cannot_be_told_is_named() {
    for at in [0, 2] {
        let (scene, store) = Scene::new(simulated());
        let added = WarmDevice::device(scene.devices[2].clone(), 0);
        measure::add_device(&store, &added).unwrap();
        store.close().unwrap();
        drop(store);
        let faulty = FaultyDevice::new(scene.devices[at].clone());
        faulty.refuse_writes("device.fb");
        let mut config = scene.config(&scene.devices[..3]);
        config.warm[at] = WarmDevice::device(faulty.clone(), 0);
        let open = || Store::open_on(scene.medium.clone(), &events_of(1), config.clone());
        assert!(refused(open(), Kind::Unavailable).contains("device.fb cannot be written"));
        faulty.heal();
        let store = open().unwrap();
        assert_eq!(containers(&store).len(), 3);
        check_all(&store, 12);
    }
}

/// Another life must not read or change the list while this one does.
#[test]
fn close_waits_for_a_device_that_is_being_added() {
    let (scene, store) = Scene::new(simulated());
    let (begun, ended) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
    let (at_begin, at_end) = (begun.clone(), ended.clone());
    scene.devices[2].before_step(3, move |_| {
        at_begin.wait();
        std::thread::sleep(Duration::from_millis(300));
        at_end.store(true, Ordering::SeqCst);
    });
    let closing = store.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begun.wait();
            closing.close().unwrap();
            assert!(ended.load(Ordering::SeqCst), "closed while a device was made");
        });
        // It may still succeed: what the list says counts.
        let _ = measure::add_device(&store, &WarmDevice::device(scene.devices[2].clone(), 0));
    });
    refused(measure::add_device(&store, &WarmDevice::device(scene.devices[3].clone(), 0)), Kind::Closed);
}
