//! A name that comes again proves nothing: stores that were set back, containers whose headers were lost.

use crate::scene::{RUN, SOURCES, Scene, archive_in, config, options};
use bytes::Bytes;
use forebay_core::{ClaimRequest, Filling, Kind, MovedStore, Result};
use forebay_dataset::storage::{self, Condition, Part, Put, Storage, Tag, Traffic};
use forebay_mover::{Archive, Contents, Manifest, ManifestObject, Moved, MoverOptions, News, audit};
use forebay_store::{Config, Store};
use forebay_testkit::TempDir;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn opened(dir: TempDir, change: impl FnOnce(&mut Config)) -> Scene {
    let mut config = config(&dir, true);
    change(&mut config);
    Scene { store: Store::open(&dir.path().join("store"), config).unwrap(), dir }
}

/// Moves all that there is; how often it was said that the store was set back.
fn moved(scene: &Scene, archive: &Archive) -> (Moved, u32) {
    let mut said = 0;
    let mut told = |_: &Moved, news: News<'_>| said += u32::from(matches!(news, News::SetBack(_)));
    let moved = scene.mover(archive, options()).run(true, &mut told).unwrap();
    (moved, said)
}

#[test]
fn a_store_that_was_restored_from_a_backup_is_noticed_and_what_is_new_is_archived() {
    let place = TempDir::new();
    let archive = archive_in(place.path());
    let scene = Scene::new(true);
    scene.accept(0..1, &["physics"]);
    scene.store.close().unwrap();
    let backup = TempDir::new();
    copy(scene.dir.path(), backup.path());

    let scene = opened(scene.dir, |_| {});
    scene.accept(1..301, &["physics"]);
    scene.settle();
    assert_eq!(moved(&scene, &archive).1, 0);
    scene.store.close().unwrap();

    // The same generations of the same containers of the same store, with other events.
    fs::remove_dir_all(scene.dir.path()).unwrap();
    copy(backup.path(), scene.dir.path());
    let scene = opened(scene.dir, |_| {});
    scene.accept(301..601, &["physics"]);
    scene.settle();
    let (moved, said) = moved(&scene, &archive);
    assert_eq!((moved.proved, said), (301, 1));
    let manifest = archive.manifest_there(RUN).unwrap();
    for event in 0..601 {
        let whole = archive.event(&manifest, &scene.primary(event)).unwrap();
        assert_eq!(whole.map(|whole| whole.payloads.len() as u64), Some(SOURCES), "event {event}");
    }
    for object in &manifest.objects {
        archive.verify(RUN, object).unwrap();
    }
    scene.store.close().unwrap();
}

#[test]
fn a_container_that_lost_its_headers_begins_a_filling_that_nobody_had() {
    let scene = Scene::new(true);
    scene.accept(0..300, &["physics"]);
    scene.settle();
    let archive = scene.archive();
    assert_eq!(moved(&scene, &archive).1, 0);
    scene.store.close().unwrap();
    let scene = opened(scene.dir, |config| config.custody_min = Duration::ZERO);
    scene.until("all is released", || {
        scene.store.tick();
        scene.store.ledger(RUN).unwrap().released.events == 300
    });
    scene.store.close().unwrap();
    let warm = scene.dir.path().join("warm");
    for entry in fs::read_dir(&warm).unwrap().map(std::result::Result::unwrap) {
        if entry.file_name().to_string_lossy().starts_with("container-") {
            let file = fs::OpenOptions::new().write(true).open(entry.path()).unwrap();
            file.write_all_at(&[0xEE; 8192], 0).unwrap();
        }
    }
    let scene = opened(scene.dir, |config| config.accept_loss = true);
    scene.accept(300..600, &["physics"]);
    scene.settle();
    let (again, said) = moved(&scene, &archive);
    assert_eq!((again.proved, said), (300, 1), "generations begin again");
    let manifest = archive.manifest_there(RUN).unwrap();
    for event in 0..600 {
        assert!(archive.event(&manifest, &scene.primary(event)).unwrap().is_some(), "event {event}");
    }
    scene.store.close().unwrap();
}

#[test]
fn a_filling_is_written_as_sixteen_digits() {
    let text = serde_json::to_string(&Filling(0xab)).unwrap();
    assert_eq!(text, r#""00000000000000ab""#);
    assert_eq!(serde_json::from_str::<Filling>(&text).unwrap(), Filling(0xab));
    for wrong in [r#""ab""#, r#""00000000000000AB""#, r#""+0000000000000ab""#, "171"] {
        assert!(serde_json::from_str::<Filling>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn nothing_is_named_where_the_archive_is_not_any_more() {
    let scene = Scene::new(true);
    let dir = scene.dir.path().join("archive");
    let archive = archive_in(&dir);
    let mover = scene.mover(&archive, options());
    scene.accept(0..20, &["physics"]);
    scene.settle();
    assert!(mover.round().unwrap());
    let first = archive.identity().unwrap().unwrap();
    scene.accept(20..40, &["physics"]);
    scene.settle();
    // Another disk is mounted there, which is an archive too.
    fs::rename(&dir, scene.dir.path().join("away")).unwrap();
    let other = archive_in(&dir).identity().unwrap().unwrap();
    assert_ne!(first.id, other.id);
    let error = mover.round().unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.message().contains(&format!("{:?}", other.id)), "{error}");
    assert!(archive.manifest(RUN).unwrap().is_none_or(|manifest| manifest.objects.is_empty()));
    fs::remove_dir_all(&dir).unwrap();
    fs::rename(scene.dir.path().join("away"), &dir).unwrap();
    mover.run(true, &mut |_, _| {}).unwrap();
    scene.check(&archive, 0..40);
    let again = archive.create("again").unwrap_err();
    assert_eq!(again.kind(), Kind::Conflict, "{again}");
}

#[test]
fn a_manifest_that_is_gone_is_damage_and_is_made_again_from_its_objects() {
    let scene = Scene::new(true);
    let archive = scene.archive();
    scene.accept(0..200, &["physics"]);
    scene.settle();
    scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap();
    let before = archive.manifest_there(RUN).unwrap();
    assert_eq!(archive.rebuild(RUN, &mut |_, _| {}).unwrap_err().kind(), Kind::Conflict, "it has one");
    let path = scene.dir.path().join(format!("archive/run-{RUN}/manifest"));
    let whole = fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (event, damage) in [(200, None), (201, Some(flipped))] {
        match damage {
            None => fs::remove_file(&path).unwrap(),
            Some(bytes) => fs::write(&path, bytes).unwrap(),
        }
        assert_eq!(archive.manifest(RUN).unwrap_err().kind(), Kind::Corrupt);
        let (names, faults) = archive.unnamed(Duration::ZERO).unwrap();
        assert_eq!((names.len(), faults.len()), (0, 1), "what was proved stays: {faults:?}");
        // Nobody begins a new one beside what is there.
        scene.accept(event..event + 1, &["physics"]);
        scene.settle();
        assert_eq!(scene.mover(&archive, options()).round().unwrap_err().kind(), Kind::Corrupt);
        let (rebuilt, faults) = archive.rebuild(RUN, &mut |_, _| {}).unwrap();
        assert!(faults.is_empty(), "{faults:?}");
        let sorted = |manifest: &forebay_mover::Manifest| {
            let mut all: Vec<_> =
                manifest.objects.iter().map(|o| (o.name.clone(), o.adler32.clone(), o.contents, o.lumi)).collect();
            all.sort_by(|one, other| one.0.cmp(&other.0));
            all
        };
        assert_eq!((sorted(&rebuilt), &rebuilt.keyspace), (sorted(&before), &before.keyspace));
    }
    scene.mover(&archive, options()).run(true, &mut |_, _| {}).unwrap();
    scene.check(&archive, 0..202);
}

/// A disk that is away from the first object on until its id was missed: what was put meanwhile is in the bare mount point.
#[derive(Debug)]
struct Unmounted {
    disk: Arc<dyn Storage>,
    mount_point: Arc<dyn Storage>,
    /// 0 before it is away, 1 while it is, 2 after that.
    state: AtomicU32,
}

impl Unmounted {
    fn there(&self) -> &dyn Storage {
        let is_away = self.state.load(Ordering::Relaxed) == 1;
        if is_away { &*self.mount_point } else { &*self.disk }
    }
}

impl Storage for Unmounted {
    fn url(&self) -> &str {
        self.disk.url()
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Option<(Bytes, Tag)>> {
        let there = self.there().get(name, bytes_max);
        if name == "archive" {
            let _ = self.state.compare_exchange(1, 2, Ordering::Relaxed, Ordering::Relaxed);
        }
        there
    }

    fn parts(&self, parts: &[Part]) -> Result<Vec<Bytes>> {
        self.there().parts(parts)
    }

    fn put(&self, objects: &[(String, Bytes)]) -> Result<()> {
        let _ = self.state.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
        self.there().put(objects)
    }

    fn put_if(&self, name: &str, bytes: &Bytes, condition: Condition<'_>) -> Result<Put> {
        self.there().put_if(name, bytes, condition)
    }

    fn remove(&self, names: &[String]) -> Result<()> {
        self.there().remove(names)
    }

    fn age(&self, name: &str) -> Result<Option<Duration>> {
        self.there().age(name)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.there().list(folder)
    }

    fn traffic(&self) -> Traffic {
        self.there().traffic()
    }
}

#[test]
fn what_was_put_into_a_mount_point_is_put_again_once_its_disk_is_back() {
    let scene = Scene::new(true);
    let open = |name: &str| {
        let path = scene.dir.path().join(name);
        storage::open(path.to_str().unwrap(), &storage::Options::default()).unwrap()
    };
    let (disk, mount_point) = (open("disk"), open("mount-point"));
    let archive = Archive::at(Arc::new(Unmounted { disk, mount_point, state: AtomicU32::new(0) }));
    archive.create("").unwrap();
    scene.accept(0..40, &["physics"]);
    scene.settle();
    let mover = scene.mover(&archive, options());
    let error = mover.round().unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    assert_eq!(mover.moved().objects, 0, "nothing is named");
    mover.run(true, &mut |_, _| {}).unwrap();
    scene.check(&archive, 0..40);
}

#[test]
fn what_the_manifest_names_and_the_store_does_not_have_is_not_proved() {
    let scene = Scene::new(true);
    let archive = scene.archive();
    scene.accept(0..40, &["physics"]);
    scene.settle();
    let request =
        ClaimRequest { move_after: Duration::ZERO, duration: Duration::from_secs(60), ..ClaimRequest::default() };
    let claim = scene.store.claim(&request).unwrap().unwrap();
    scene.store.give_back(&claim.token).unwrap();
    let path = scene.dir.path().join(format!("archive/run-{RUN}"));
    fs::create_dir(&path).unwrap();
    // All of it is named, and one event more; or an object that has fewer events than it is said to reach over.
    for (events, end) in [(41, 41), (39, 40)] {
        let object = ManifestObject {
            name: format!("run-{RUN}/physics-c0-g1-0000000000000000.fba"),
            bytes: 1000,
            adler32: "00000001".to_owned(),
            md5: None,
            stream: "physics".to_owned(),
            contents: Contents { events, ..Contents::default() },
            first: scene.primary(0),
            last: scene.primary(39),
            lumi: None,
            store: claim.store.clone(),
            unit: claim.unit.clone(),
            of_unit: (0, end),
            written_ms: 1,
        };
        let manifest = Manifest { run: RUN, keyspace: "events".to_owned(), objects: vec![object] };
        fs::write(path.join("manifest"), manifest.encode().unwrap()).unwrap();
        let error = scene.mover(&archive, options()).round().unwrap_err();
        assert!(error.kind() == Kind::Corrupt && error.message().contains("nothing of it is proved"), "{error}");
        assert_eq!(scene.store.ledger(RUN).unwrap().in_custody.events, 0);
    }
}

#[test]
fn a_store_remembers_which_archive_its_events_are_in() {
    for warm in [true, false] {
        let (first, second) = (TempDir::new(), TempDir::new());
        let (first, second) = (archive_in(first.path()), archive_in(second.path()));
        let scene = Scene::new(warm);
        scene.accept(0..10, &["physics"]);
        assert_eq!(moved(&scene, &first).0.proved, 10);
        scene.accept(10..20, &["physics"]);
        scene.store.close().unwrap();

        // Also in the next life: a mover with another place, such as one with a slip in its address, gets nothing.
        let dir = scene.dir;
        let config = config(&dir, warm);
        let scene = Scene { store: Store::open(&dir.path().join("store"), config).unwrap(), dir };
        let refused = scene.mover(&second, options()).run(true, &mut |_, _| {}).unwrap_err();
        assert_eq!(refused.kind(), Kind::Conflict, "{refused}");
        assert!(refused.message().contains("--another-archive"), "{refused}");
        assert!(second.runs().unwrap().is_empty());
        assert_eq!(scene.store.ledger(RUN).unwrap().live.accepted.events, if warm { 20 } else { 10 });

        // Meant: from then on the first one is the other.
        let meant = MoverOptions { another_archive: true, ..options() };
        assert_eq!(scene.mover(&second, meant).run(true, &mut |_, _| {}).unwrap().proved, 10);
        let refused = scene.mover(&first, options()).run(true, &mut |_, _| {}).unwrap_err();
        assert_eq!(refused.kind(), Kind::Conflict, "{refused}");
        assert_eq!(scene.store.stats().archive, Some(second.identity().unwrap().unwrap().id));
        scene.store.close().unwrap();
    }
}

#[test]
fn an_audit_counts_nothing_that_another_store_archived() {
    for warm in [true, false] {
        let (lost, place) = (TempDir::new(), TempDir::new());
        let (lost, archive) = (archive_in(lost.path()), archive_in(place.path()));
        let (scene, other) = (Scene::new(warm), Scene::new(warm));
        scene.accept(0..20, &["physics"]);
        other.accept(0..20, &["physics"]);
        // The same events of the same run; those of the first store are in an archive that is gone.
        assert_eq!((moved(&scene, &lost).0.proved, moved(&other, &archive).0.proved), (20, 20));
        let found = |scene: &Scene, archive| audit(archive, &scene.store, RUN, &mut |_, _| {}).unwrap().problems;
        assert_eq!((found(&scene, &lost).len(), found(&other, &archive).len()), (0, 0));
        let missing = found(&scene, &archive);
        assert!(missing.iter().any(|what| what.contains("the archive has 0 with 0")), "{missing:?}");
    }
}
