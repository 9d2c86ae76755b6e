//! Without faults: what is in the archive, and what is in the store again.

use crate::scene::{RUN, SOURCES, Scene, all, config, keyspace, options, payload};
use forebay_core::{Accept, Kind, LiveState, ResultFragment};
use forebay_mover::{MoverOptions, Restore, restore};
use forebay_store::{Config, GetAny, PutOptions, Sources, Store};
use forebay_testkit::TempDir;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn what_is_accepted_is_archived_proved_and_released() {
    let scene = Scene::new(true);
    scene.accept(0..300, &["physics"]);
    scene.accept(300..320, &["calib", "physics"]);
    scene.settle();
    let archive = scene.archive();
    let moved = scene.mover(&archive, MoverOptions { md5: true, ..options() }).run(true, &mut |_, _| {}).unwrap();
    assert_eq!((moved.proved, moved.contents.fragments), (320, 320 * SOURCES));
    assert_eq!((moved.failed, moved.given_back), (0, 0));
    scene.check(&archive, 0..320);
    assert_eq!(archive.runs().unwrap(), [RUN]);
    let manifest = archive.manifest_there(RUN).unwrap();
    assert!(manifest.objects.len() >= 3, "objects end at 300 KiB: {}", manifest.objects.len());
    let first = &manifest.objects[0];
    assert!(first.md5.as_ref().is_some_and(|md5| md5.len() == 32) && first.adler32.len() == 8);
    // Lanes name their objects in any order.
    assert_eq!(manifest.objects.iter().filter_map(|object| object.lumi).map(|lumi| lumi.0).min(), Some(0));
    let both = archive.event(&manifest, &scene.primary(310)).unwrap().unwrap();
    let mut names: Vec<String> = both.event.streams.into_iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    assert_eq!(names, ["calib", "physics"], "written once, with all its streams");
    assert_eq!(archive.unnamed(Duration::ZERO).unwrap(), (vec![], vec![]));
    // What a killed mover left: it counts for nothing, and can be removed once it is old.
    archive.place().put(&[("run-7/physics-c1-g1-0000000000000000.fba".to_owned(), "left".into())]).unwrap();
    assert!(archive.unnamed(Duration::from_secs(3600)).unwrap().0.is_empty());
    assert_eq!(archive.unnamed(Duration::ZERO).unwrap().0, ["run-7/physics-c1-g1-0000000000000000.fba"]);
    assert_eq!(archive.runs().unwrap(), [RUN]);
}

#[test]
fn an_event_in_several_streams_is_in_each_if_asked() {
    let scene = Scene::new(true);
    scene.accept(0..20, &["calib", "physics"]);
    scene.settle();
    let archive = scene.archive();
    scene.mover(&archive, MoverOptions { per_stream: true, ..options() }).run(true, &mut |_, _| {}).unwrap();
    let manifest = archive.manifest_there(RUN).unwrap();
    for stream in ["calib", "physics"] {
        let events: u64 =
            manifest.objects.iter().filter(|object| object.stream == stream).map(|object| object.contents.events).sum();
        assert_eq!(events, 20, "{stream}");
    }
}

#[test]
fn a_store_without_a_warm_level_is_moved_in_batches() {
    let scene = Scene::new(false);
    scene.accept(0..150, &["physics"]);
    let archive = scene.archive();
    let moved = scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap();
    assert_eq!(moved.proved, 150);
    scene.check(&archive, 0..150);
    assert_eq!(scene.store.ledger(RUN).unwrap().released.events, 150, "there is no custody on the hot level");
}

#[test]
fn the_debug_stream_is_moved_too() {
    let scene = Scene::new(true);
    let store = &scene.store;
    let short = Config { lease: Duration::from_millis(20), ..config(&scene.dir, true) };
    store.close().unwrap();
    let store = Store::open(&scene.dir.path().join("store"), short).unwrap();
    for event in 0..10 {
        for source in 0..SOURCES {
            let key = store.schema().key(&[RUN, event, source]).unwrap();
            let _ = store.put(&key, &payload(event, source), &PutOptions::default()).unwrap();
        }
    }
    let lost = store.get_any(&GetAny { n: 10, ..GetAny::default() }).unwrap();
    lost.into_iter().for_each(std::mem::forget);
    let scene = Scene { store, dir: scene.dir };
    scene.until("nobody could process them", || scene.store.ledger(RUN).unwrap().live.debug.events == 10);
    scene.settle();
    let archive = scene.archive();
    scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap();
    let manifest = archive.manifest_there(RUN).unwrap();
    assert!(manifest.objects.iter().all(|object| object.stream == "debug"));
    let whole = archive.event(&manifest, &scene.primary(3)).unwrap().unwrap();
    assert_eq!(whole.event.state, LiveState::Debug);
}

#[test]
fn a_run_is_restored_as_another_one() {
    let scene = Scene::new(true);
    scene.accept(0..60, &["physics"]);
    scene.settle();
    let archive = scene.archive();
    scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap();
    let dir = TempDir::new();
    let other = Store::create(&dir.path().join("store"), &keyspace(), config(&dir, false)).unwrap();
    let how = Restore { run: RUN, as_run: 99, stage: Some("second".to_owned()) };
    let done = restore(&archive, &other, &how, &mut |_| true).unwrap();
    assert_eq!((done.events, done.fragments), (60, 60 * SOURCES));
    for event in 0..60 {
        let primary = other.schema().primary(&[99, event]).unwrap();
        let there: Vec<Vec<u8>> = (0..SOURCES).map(|source| payload(event, source)).collect();
        assert_eq!(all(&other, &primary), there);
    }
    let ready = other.get_any(&GetAny { n: 100, stage: Some("second".to_owned()), ..GetAny::default() });
    let leases = ready.unwrap();
    assert_eq!(leases.len(), 60, "ready in the stage that was asked for");
    assert!(leases[0].attributes.get(0).is_some());
    drop(leases);
    assert_eq!(other.ledger(99).unwrap().imbalance(), None);
    let again = restore(&archive, &other, &how, &mut |_| true).unwrap_err();
    assert_eq!(again.kind(), Kind::Conflict);
    let known = Restore { run: 4711, ..how };
    let nothing = restore(&archive, &other, &Restore { as_run: 100, ..known }, &mut |_| true).unwrap_err();
    assert!(nothing.message().contains("nothing of run 4711"), "{nothing}");
}

#[test]
fn no_worker_gets_a_part_of_what_is_restored() {
    let scene = Scene::new(true);
    let schema = scene.store.schema();
    for event in 0..60 {
        for source in 0..SOURCES {
            let key = schema.key(&[RUN, event, source]).unwrap();
            let _ = scene.store.put(&key, &payload(event, source), &PutOptions::default()).unwrap();
        }
        let result = schema.source_of(&schema.key(&[RUN, event, 99]).unwrap());
        let results = [ResultFragment::new(&result, b"a result")];
        let lease = scene.store.lease(&scene.primary(event), None).unwrap().unwrap();
        lease.accept_into(&Accept { streams: &[("physics", Sources::All)], results: &results }).unwrap();
    }
    scene.settle();
    let archive = scene.archive();
    scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap();
    let dir = TempDir::new();
    let other = Store::create(&dir.path().join("store"), &keyspace(), config(&dir, false)).unwrap();
    let of_first = GetAny { n: 8, ..GetAny::default() };
    let restored = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let farm = scope.spawn(|| {
            while !restored.load(Ordering::Acquire) {
                assert!(other.get_any(&of_first).unwrap().is_empty(), "no event is ever in a stage before its own");
            }
        });
        let how = Restore { run: RUN, as_run: 98, stage: Some("second".to_owned()) };
        let done = restore(&archive, &other, &how, &mut |_| true);
        restored.store(true, Ordering::Release);
        assert_eq!(done.unwrap().events, 60);
        farm.join().unwrap();
    });
    let seen = std::thread::scope(|scope| {
        let farm = scope.spawn(|| {
            let (mut seen, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(60));
            while seen.len() < 60 && Instant::now() < deadline {
                for lease in other.get_any(&of_first).unwrap() {
                    seen.push(lease.event_fragments);
                    lease.reject().unwrap();
                }
            }
            seen
        });
        let how = Restore { run: RUN, as_run: 99, stage: None };
        restore(&archive, &other, &how, &mut |_| true).unwrap();
        farm.join().unwrap()
    });
    assert_eq!(seen, [SOURCES as u32 + 1; 60]);
}
