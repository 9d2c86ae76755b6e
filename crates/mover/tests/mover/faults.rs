//! Places that fail, lie or lose answers; movers that stop, come late, or meet.

use crate::scene::{RUN, SOURCES, Scene, config, keyspace, options, payload};
use forebay_core::{Kind, MovedStore};
use forebay_dataset::storage::Options;
use forebay_mover::{Archive, MoverOptions, audit};
use forebay_store::{Config, PutOptions, Store};
use forebay_testkit::TempDir;
use forebay_testkit::s3::{self, Fault, StandIn};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// A bucket with an archive, before anything fails.
fn made() -> StandIn {
    let stand_in = StandIn::new();
    bucket(&stand_in).create("").unwrap();
    stand_in
}

fn bucket(stand_in: &StandIn) -> Archive {
    bucket_within(stand_in, Duration::from_secs(5))
}

fn bucket_within(stand_in: &StandIn, deadline: Duration) -> Archive {
    let pairs = [
        ("AWS_ACCESS_KEY_ID", "AKTEST".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "a secret of tests".to_owned()),
        ("AWS_ENDPOINT_URL", stand_in.endpoint()),
    ];
    let environment: BTreeMap<String, String> =
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let options = Options {
        environment: Some(environment),
        backoff: Duration::from_millis(2),
        backoff_max: Duration::from_millis(20),
        stall: Duration::from_millis(300),
        deadline,
        ..Options::default()
    };
    Archive::open("s3://bucket/archive", &options).unwrap()
}

fn scene() -> Scene {
    let scene = Scene::new(true);
    scene.accept(0..200, &["physics"]);
    scene.settle();
    scene
}

#[test]
fn each_fault_of_a_server_ends_with_everything_in_the_archive_once() {
    let status = |status: u16, code: &str| s3::Kind::Status { status, code: code.to_owned() };
    let faults = [
        ("503 for every second request", Fault::next("", s3::Kind::slow_down()).after(1).times(9)),
        ("resets", Fault::next("PUT", s3::Kind::Reset).times(3)),
        ("a stall in the middle", Fault::next("PUT", s3::Kind::Stall).after(1)),
        ("the answer of a put is lost", Fault::next("PUT", s3::Kind::LoseAnswer).of(".fba").times(2)),
        ("the answer of a manifest's put is lost", Fault::next("PUT", s3::Kind::LoseAnswer).of("manifest").times(2)),
        ("a read back is cut", Fault::next("GET", s3::Kind::Cut).of(".fba").times(2)),
        ("a read back comes with another byte", Fault::next("GET", s3::Kind::Flip).of(".fba").times(2)),
        ("a put arrives with another byte", Fault::next("PUT", s3::Kind::FlipSent).of(".fba").times(2)),
        ("a full server", Fault::next("PUT", status(507, "InsufficientStorage")).of(".fba").times(3)),
    ];
    for (what, fault) in faults {
        let (scene, stand_in) = (scene(), made());
        // Else a changed body would be refused by its signature, before it could be stored.
        stand_in.trust_bodies(true);
        stand_in.fault(fault);
        let archive = bucket(&stand_in);
        let mover = scene.mover(&archive, options());
        // A mover of a farm goes on after a failure.
        let mut rounds = 0;
        loop {
            match mover.round() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => assert!(rounds < 20, "{what}: {error}"),
            }
            rounds += 1;
        }
        scene.check(&archive, 0..200);
    }
}

/// The way to the place is gone from a request on, which is carried out or not: whatever the mover had done by then, the next one
/// goes on, and everything is there once.
#[test]
fn a_mover_that_is_cut_off_at_any_request_leaves_the_rest_to_the_next() {
    for carried_out in [false, true] {
        let mut cut_off = 0;
        for requests in 0.. {
            let (scene, stand_in) = (Scene::new(true), made());
            scene.accept(0..40, &["physics"]);
            scene.settle();
            let first = if carried_out { s3::Kind::LoseAnswer } else { s3::Kind::Reset };
            stand_in.fault(Fault::next("", first).after(requests));
            // Its turn comes once the first is over.
            stand_in.fault(Fault::next("", s3::Kind::Reset).times(10_000));
            let how = MoverOptions { object_bytes: 100 << 10, patience: Duration::ZERO, ..options() };
            let dying = scene
                .mover(&bucket_within(&stand_in, Duration::from_millis(20)), how.clone())
                .run(true, &mut |_, _| {});
            stand_in.clear_faults();
            let archive = bucket(&stand_in);
            scene.mover(&archive, how).run(true, &mut |_, _| {}).unwrap();
            scene.check(&archive, 0..40);
            match dying {
                Ok(moved) if moved.objects > 0 => break,
                // On a busy machine nothing could be claimed yet.
                Ok(_) => assert!(requests < 1000, "nothing is ever claimed"),
                Err(_) => cut_off += 1,
            }
        }
        assert!(cut_off > 10, "{cut_off} requests");
    }
}

#[test]
fn what_arrives_changed_is_never_named() {
    let (scene, stand_in) = (scene(), made());
    stand_in.trust_bodies(true);
    stand_in.fault(Fault::next("PUT", s3::Kind::FlipSent).of(".fba").times(1000));
    let archive = bucket(&stand_in);
    let mover = scene.mover(&archive, options());
    let error = mover.round().unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    let moved = mover.moved();
    assert_eq!((moved.failed, moved.objects, moved.given_back), (3, 0, 1));
    assert!(archive.manifest(RUN).unwrap().is_none_or(|manifest| manifest.objects.is_empty()));
    assert_eq!(scene.store.ledger(RUN).unwrap().in_custody.events, 0);
    stand_in.clear_faults();
    mover.run(true, &mut |_, _| {}).unwrap();
    scene.check(&archive, 0..200);
}

#[test]
fn a_server_that_refuses_the_mover_stops_nothing() {
    let (scene, stand_in) = (scene(), made());
    let denied = s3::Kind::Status { status: 403, code: "AccessDenied".to_owned() };
    stand_in.fault(Fault::next("PUT", denied).after(1).times(1000));
    let archive = bucket(&stand_in);
    let mover = scene.mover(&archive, options());
    let error = mover.run(true, &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("AccessDenied") || error.to_string().contains("403"), "{error}");
    // The claim was given back: it is another mover's at once, who goes on behind what is named.
    stand_in.clear_faults();
    let named: u64 = archive.manifest(RUN).unwrap().map_or(0, |manifest| manifest.objects.len() as u64);
    let other = scene.mover(&archive, options());
    other.run(true, &mut |_, _| {}).unwrap();
    scene.check(&archive, 0..200);
    assert_eq!(other.moved().objects + named, archive.manifest_there(RUN).unwrap().objects.len() as u64);
}

#[test]
fn a_bucket_that_ignores_conditions_is_refused_before_anything_is_claimed() {
    let (scene, stand_in) = (scene(), made());
    stand_in.ignore_conditions(true);
    let error = scene.mover(&bucket(&stand_in), options()).run(false, &mut |_, _| {}).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert!(error.message().contains("ignores the condition"), "{error}");
    assert!(stand_in.names().iter().all(|name| !name.ends_with(".fba")));
    assert_eq!(scene.store.ledger(RUN).unwrap().in_custody.events, 0);
}

#[test]
fn many_movers_share_the_containers() {
    let (scene, stand_in) = (scene(), made());
    let archive = bucket(&stand_in);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap());
        }
    });
    scene.check(&archive, 0..200);
}

#[test]
fn one_that_comes_late_is_fenced_and_names_nothing_twice() {
    let (scene, stand_in) = (scene(), made());
    let archive = bucket(&stand_in);
    // Its claim lasts shorter than the server stalls, and its heartbeats come too late.
    let sleepy = MoverOptions { claim: Duration::from_millis(1), patience: Duration::from_secs(2), ..options() };
    let slow = scene.mover(&archive, sleepy);
    stand_in.set_delay(Duration::from_millis(20));
    let late = slow.round();
    stand_in.set_delay(Duration::ZERO);
    if let Err(error) = &late {
        assert_eq!(error.kind(), Kind::Fenced, "{error}");
    }
    scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap();
    scene.check(&archive, 0..200);
}

#[test]
fn what_changes_or_goes_after_its_proof_is_found_by_name() {
    let (scene, stand_in) = (scene(), made());
    let archive = bucket(&stand_in);
    scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap();
    let manifest = archive.manifest_there(RUN).unwrap();
    let [one, other, third] = &manifest.objects[..3] else { panic!("{} objects", manifest.objects.len()) };
    let key = |name: &str| format!("bucket/archive/{name}");
    let mut bytes = stand_in.object(&key(&one.name)).unwrap().to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    stand_in.set_object(&key(&one.name), bytes);
    let error = archive.verify(RUN, one).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    archive.place().remove(std::slice::from_ref(&other.name)).unwrap();
    assert!(archive.verify(RUN, other).unwrap_err().message().contains("not there"));
    archive.verify(RUN, third).unwrap();
    let inventory = archive.inventory(&manifest).unwrap();
    assert!(inventory.faults.iter().any(|fault| fault.name == other.name), "{inventory:?}");
    assert!(inventory.fragments < 200 * SOURCES);
}

#[test]
fn a_manifest_from_hostile_hands_is_refused() {
    let (scene, stand_in) = (scene(), made());
    let archive = bucket(&stand_in);
    scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap();
    let manifest = archive.manifest_there(RUN).unwrap();
    let name = format!("bucket/archive/run-{RUN}/manifest");
    let good = stand_in.object(&name).unwrap();
    let refused = |bytes: Vec<u8>, kind: Kind, words: &str| {
        stand_in.set_object(&name, bytes);
        let error = archive.manifest(RUN).unwrap_err();
        assert!(error.kind() == kind && error.message().contains(words), "{error}");
    };
    refused(b"{}".to_vec(), Kind::Invalid, "none of Forebay's");
    refused(Vec::new(), Kind::Invalid, "none of Forebay's");
    refused(good[..good.len() - 1].to_vec(), Kind::Corrupt, "does not verify");
    let mut foreign = manifest.clone();
    foreign.objects[0].name = "run-8/../../etc/passwd".to_owned();
    refused(foreign.encode().unwrap().to_vec(), Kind::Corrupt, "no object of the run");
    let mut other = manifest.clone();
    other.run = 8;
    refused(other.encode().unwrap().to_vec(), Kind::Corrupt, "of run 8");
    // Right checksums, wrong sizes: the object itself contradicts.
    let mut lying = manifest.clone();
    lying.objects[0].bytes = u64::MAX;
    lying.objects[1].contents.fragments += 1;
    stand_in.set_object(&name, lying.encode().unwrap());
    let lying = archive.manifest_there(RUN).unwrap();
    for object in &lying.objects[..2] {
        assert_eq!(archive.verify(RUN, object).unwrap_err().kind(), Kind::Corrupt);
        assert!(archive.object(RUN, object).is_err());
    }
}

#[test]
fn while_a_container_is_claimed_its_events_may_go() {
    let (scene, stand_in) = (scene(), made());
    let archive = bucket(&stand_in);
    // Removed and released between the listing and the read: never archived, never missed.
    let request = forebay_core::ClaimRequest { duration: Duration::from_secs(30), ..Default::default() };
    let claim = scene.store.claim(&request).unwrap().unwrap();
    assert!(scene.store.remove_event(&scene.primary(0)).unwrap() && scene.store.release(&scene.primary(1)).unwrap());
    scene.store.give_back(&claim.token).unwrap();
    scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap();
    let manifest = archive.manifest_there(RUN).unwrap();
    assert_eq!(archive.inventory(&manifest).unwrap().events, 198);
    assert!(archive.event(&manifest, &scene.primary(0)).unwrap().is_none());
    let ledger = scene.store.ledger(RUN).unwrap();
    assert_eq!((ledger.in_custody.events, ledger.released.events, ledger.imbalance()), (198, 1, None));
}

/// A mover names an object and dies; what it passed over comes back to the debug stream, and the store is opened again. The next
/// mover goes on behind what is named: that event must not be taken for archived.
#[test]
fn what_a_mover_passed_over_is_the_archives_when_it_comes_back() {
    let (dir, stand_in) = (TempDir::new(), made());
    // Without threads nothing goes down between the steps.
    let config = Config { maintenance: false, ..config(&dir, true) };
    let place = dir.path().join("store");
    let store = Store::create(&place, &keyspace(), config.clone()).unwrap();
    let mut scene = Scene { dir, store };
    for event in 0..5 {
        for source in 0..SOURCES {
            let key = scene.store.schema().key(&[RUN, event, source]).unwrap();
            let _ = scene.store.put(&key, &payload(event, source), &PutOptions::default()).unwrap();
        }
    }
    let fail = |scene: &Scene, event| {
        let lease = scene.store.lease(&scene.primary(event), Some(Duration::from_millis(1))).unwrap().unwrap();
        // Without a verdict: it is left to its time-out.
        drop(lease);
        std::thread::sleep(Duration::from_millis(5));
    };
    (0..5).for_each(|event| fail(&scene, event));
    scene.until("they are in the debug stream, on the warm level", || {
        scene.store.tick();
        let stats = scene.store.warm_stats().unwrap();
        scene.store.ledger(RUN).unwrap().live.debug.events == 5 && stats.demoted_events == 5
    });
    assert!(scene.store.replay(&scene.primary(0)).unwrap());
    // The manifest has its objects, and says so to nobody: its answer is lost, and it is not read again.
    stand_in.fault(Fault::next("PUT", s3::Kind::LoseAnswer).of("manifest").after(1));
    let denied = s3::Kind::Status { status: 403, code: "AccessDenied".to_owned() };
    stand_in.fault(Fault::next("GET", denied).of("manifest").after(2).times(1000));
    let archive = bucket(&stand_in);
    scene.mover(&archive, options()).round().unwrap_err();
    stand_in.clear_faults();
    let named = archive.manifest_there(RUN).unwrap();
    assert_eq!(named.objects.iter().map(|object| object.contents.events).sum::<u64>(), 4, "all but the one replayed");
    // Its worker dies with the store: the opening finds it failed once more.
    fail(&scene, 0);
    scene.store.close().unwrap();
    scene.store = Store::open(&place, config).unwrap();
    assert_eq!(scene.store.ledger(RUN).unwrap().live.debug.events, 5);
    let deadline = Instant::now() + Duration::from_secs(60);
    while scene.store.ledger(RUN).unwrap().live.total().events > 0 {
        let _ = scene.mover(&archive, options()).round();
        scene.store.tick();
        let ledger = scene.store.ledger(RUN).unwrap();
        if ledger.in_custody.events == 5 {
            break;
        }
        assert!(Instant::now() < deadline, "{ledger:?}");
    }
    let inventory = archive.inventory(&archive.manifest_there(RUN).unwrap()).unwrap();
    assert_eq!((inventory.events, inventory.fragments), (5, 5 * SOURCES));
}

/// Bytes that rot on a device keep their container from the archive, and no other one.
#[test]
fn a_container_that_cannot_be_read_keeps_no_other_from_the_archive() {
    let (scene, stand_in) = (Scene::new(true), made());
    scene.accept(0..1500, &["physics"]);
    scene.settle();
    // The longest, which is no part of another one.
    let all = (0..1500).flat_map(|event| (0..SOURCES).map(move |source| (event, source)));
    let (event, source) = all.max_by_key(|(event, source)| payload(*event, *source).len()).unwrap();
    let rotten = payload(event, source);
    let files = std::fs::read_dir(scene.dir.path().join("warm")).unwrap().map(|entry| entry.unwrap().path());
    let mut places = files.filter_map(|file| {
        let bytes = std::fs::read(&file).unwrap();
        bytes.windows(rotten.len()).position(|window| window == rotten).map(|at| (file, at as u64))
    });
    let (file, at) = places.next().expect("it is on the warm level");
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&[!rotten[0]], at).unwrap();
    file.sync_all().unwrap();
    let archive = bucket(&stand_in);
    let mover = scene.mover(&archive, options());
    let mut refused = 0;
    // As a mover that runs: it goes on after a failure.
    while refused < 3 {
        match mover.round() {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                assert_eq!(error.kind(), Kind::Corrupt, "{error}");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 3, "it is tried again");
    let ledger = scene.store.ledger(RUN).unwrap();
    let gone = ledger.in_custody.events + ledger.released.events;
    let left = scene.store.containers().iter().filter(|container| container.state == "full").count();
    assert_eq!((left, ledger.imbalance()), (1, None));
    assert!(gone > 900 && gone < 1500, "{ledger:?}");
    // The event is named, and an operator ends it: the rest of its container goes too.
    assert!(scene.store.remove_event(&scene.primary(event)).unwrap());
    mover.run(true, &mut |_, _| {}).unwrap();
    let ledger = scene.store.ledger(RUN).unwrap();
    assert_eq!(ledger.in_custody.events + ledger.released.events, 1499);
    let inventory = archive.inventory(&archive.manifest_there(RUN).unwrap()).unwrap();
    assert_eq!((inventory.events, inventory.repeated), (1499, 0));
}

/// What is archived and not proved cannot stand for what was released without an archive.
#[test]
fn an_audit_finds_what_was_released_without_an_archive() {
    let (scene, stand_in) = (Scene::new(true), made());
    let archive = bucket(&stand_in);
    let found = |problems: usize| {
        let found = audit(&archive, &scene.store, RUN, &mut |_, _| {}).unwrap();
        assert_eq!(found.problems.len(), problems, "{:?}", found.problems);
        found
    };
    scene.accept(0..50, &["physics"]);
    scene.settle();
    scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap();
    assert_eq!(found(0).still_there.0, 50 * SOURCES, "in custody");
    scene.accept(50..150, &["physics"]);
    scene.settle();
    // Named, and then the place refuses: never proved.
    stand_in.fault(Fault::next("PUT", s3::Kind::LoseAnswer).of("manifest"));
    let denied = s3::Kind::Status { status: 403, code: "AccessDenied".to_owned() };
    stand_in.fault(Fault::next("GET", denied).of("manifest").after(2).times(1000));
    scene.mover(&archive, options()).round().unwrap_err();
    stand_in.clear_faults();
    assert!(found(0).inventory.events > 50);
    scene.accept(150..160, &["physics"]);
    for event in 150..160 {
        assert!(scene.store.release(&scene.primary(event)).unwrap());
    }
    assert!(found(1).problems[0].starts_with(&format!("{} fragments", 10 * SOURCES)));
}
