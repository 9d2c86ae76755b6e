//! Restarts that the medium does not survive: a machine that restarted, a creation that was cut off, a file system that
//! holds nothing but mappings.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::TempDir;
use forebay_core::{Keyspace, Kind};
use forebay_media::bytes::Superblock;
use forebay_store::{Config, PutOptions, PutOutcome, Store};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn config() -> Config {
    Config { hot_bytes: 4 << 20, segment_bytes: Some(64 << 10), maintenance: false, ..Config::default() }
}

fn put(store: &Store, event: u64, bytes: &[u8]) {
    let key = store.schema().key(&[1, event, 0]).unwrap();
    assert_eq!(store.put(&key, bytes, &PutOptions::default()).unwrap(), PutOutcome::Stored);
}

fn read(store: &Store, event: u64) -> Option<Vec<u8>> {
    let key = store.schema().key(&[1, event, 0]).unwrap();
    store.get(&key).unwrap().map(|fragment| fragment.to_vec())
}

/// A store as a machine that went down leaves it: open, with another boot id. 40 events of 4 KiB fill two segments.
fn left_by_a_restart(dir: &TempDir) -> PathBuf {
    let (from, to) = (dir.path().join("running"), dir.path().join("left"));
    let store = Store::create(&from, &Keyspace::events("events", 1).opening_runs(), config()).unwrap();
    for event in 0..40 {
        put(&store, event, &[event as u8; 4096]);
    }
    store.tick();
    fs::create_dir(&to).unwrap();
    for name in ["keyspace.toml", "hot.fb"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    store.close().unwrap();
    with_another_boot_id(&to);
    to
}

/// What is in a store's directory, as the same machine finds it after its next start.
fn with_another_boot_id(path: &Path) {
    let file = File::options().read(true).write(true).open(path.join("hot.fb")).unwrap();
    for copy in [0, 4096] {
        let mut bytes = [0; Superblock::BYTES];
        file.read_exact_at(&mut bytes, copy).unwrap();
        if let Ok(mut superblock) = Superblock::decode(&bytes) {
            superblock.machine_boot = [b'0'; 36];
            file.write_all_at(&superblock.encode(), copy).unwrap();
        }
    }
}

#[test]
fn after_a_restart_nothing_is_served_before_the_loss_is_accepted() {
    let dir = TempDir::new();
    let left = left_by_a_restart(&dir);
    let refused = Store::open(&left, config()).unwrap_err();
    assert_eq!(refused.kind(), Kind::Corrupt);
    assert!(refused.message().contains("restarted") && refused.message().contains("accept_loss"), "{refused}");
    let report = forebay_store::check(&left, true).unwrap();
    assert!(report.problems.iter().any(|problem| problem.contains("restarted")), "{report:?}");
    let store = Store::open(&left, Config { accept_loss: true, ..config() }).unwrap();
    assert!(store.losses().is_empty());
    assert_eq!(store.ledger(1).unwrap().stored.fragments, 40);
    assert!((0..40).all(|event| read(&store, event).unwrap() == [event as u8; 4096]));
    store.close().unwrap();
    // Once accepted and closed in order, it is a store like any other.
    Store::open(&left, config()).unwrap();
}

#[test]
fn what_a_restart_took_is_listed_booked_and_not_served() {
    let dir = TempDir::new();
    let left = left_by_a_restart(&dir);
    // Pages that the kernel had not written: the payload of event 3, in the first segment, which is sealed.
    let file = File::options().read(true).write(true).open(left.join("hot.fb")).unwrap();
    let bytes = fs::read(left.join("hot.fb")).unwrap();
    let at = bytes.windows(4096).position(|window| window == [3; 4096]).expect("the payload is in the region");
    file.write_all_at(&[0; 4096], at as u64).unwrap();
    let store = Store::open(&left, Config { accept_loss: true, ..config() }).unwrap();
    let losses = store.losses();
    assert!(losses.len() == 1 && losses[0].contains("1/3/0"), "{losses:?}");
    let ledger = store.ledger(1).unwrap();
    assert_eq!((ledger.lost.fragments, ledger.lost.bytes, ledger.stored.fragments), (1, 4096, 40));
    assert_eq!(ledger.imbalance(), None);
    assert_eq!(read(&store, 3), None);
    let why = store.why(&store.schema().key(&[1, 3, 0]).unwrap()).unwrap();
    assert!(why.answer == "lost" && why.incidents[0].contains("lost"), "{why:?}");
    assert!((0..40).filter(|event| *event != 3).all(|event| read(&store, event).is_some()));
}

/// An ext4 on a file, unmounted at the end. The file has what a disk would have: nothing that is in the page cache only.
struct Disk(PathBuf);

impl Disk {
    fn mount(image: &Path, at: PathBuf) -> Disk {
        fs::create_dir(&at).unwrap();
        let mounted = Command::new("mount").args(["-o", "loop"]).args([image, &at]).status().unwrap();
        assert!(mounted.success(), "as root, a file can be mounted");
        Disk(at)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_power_loss_in_the_life_after_an_orderly_close_is_noticed_on_a_disk() {
    let dir = TempDir::new();
    let image = dir.path().join("disk");
    File::create(&image).unwrap().set_len(32 << 20).unwrap();
    assert!(Command::new("mkfs.ext4").arg("-q").arg(&image).status().unwrap().success());
    let disk = Disk::mount(&image, dir.path().join("mounted"));
    let path = disk.0.join("store");
    let store = Store::create(&path, &Keyspace::events("events", 1).opening_runs(), config()).unwrap();
    put(&store, 1, b"one");
    store.close().unwrap();
    drop(store);
    let store = Store::open(&path, config()).unwrap();
    put(&store, 2, b"two");
    // The disk as it is at this moment is what a power loss leaves.
    let left = dir.path().join("left");
    fs::copy(&image, &left).unwrap();
    store.close().unwrap();
    drop(store);
    let left = Disk::mount(&left, dir.path().join("after"));
    let path = left.0.join("store");
    with_another_boot_id(&path);
    let refused = Store::open(&path, config()).expect_err("served without a word");
    assert!(refused.kind() == Kind::Corrupt && refused.message().contains("restarted"), "{refused}");
    let store = Store::open(&path, Config { accept_loss: true, ..config() }).unwrap();
    assert_eq!(read(&store, 1).unwrap(), b"one");
    store.close().unwrap();
}

#[test]
fn a_creation_that_was_cut_off_can_be_repeated() {
    let dir = TempDir::new();
    let path = dir.path().join("store");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("hot.fb"), vec![0; 100_000]).unwrap();
    assert_eq!(Store::open(&path, config()).unwrap_err().kind(), Kind::Invalid);
    let store = Store::create(&path, &Keyspace::events("events", 1).opening_runs(), config()).unwrap();
    put(&store, 1, b"x");
}

/// A hugetlbfs with room for the test, unmounted at the end.
struct HugePages(PathBuf);

impl HugePages {
    fn mount(at: &Path) -> HugePages {
        let pages = "/proc/sys/vm/nr_hugepages";
        let before: u64 = fs::read_to_string(pages).unwrap().trim().parse().unwrap();
        fs::write(pages, (before + 8).to_string()).expect("as root, huge pages can be reserved");
        fs::create_dir(at).unwrap();
        let mounted = Command::new("mount").args(["-t", "hugetlbfs", "none"]).arg(at).status().unwrap();
        assert!(mounted.success(), "as root, hugetlbfs can be mounted");
        HugePages(at.to_owned())
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // Detached: a process that was killed may still let go of its mapping.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        let _ = fs::write("/proc/sys/vm/nr_hugepages", "0");
    }
}

#[test]
fn a_store_on_hugetlbfs_is_opened_again_after_a_close() {
    let dir = TempDir::new();
    let huge = HugePages::mount(&dir.path().join("huge"));
    let path = dir.path().join("store");
    let config = Config { region_dir: Some(huge.0.clone()), hot_bytes: 5 << 20, ..config() };
    let store = Store::create(&path, &Keyspace::events("events", 1).opening_runs(), config.clone()).unwrap();
    for event in 0..100 {
        put(&store, event, &[event as u8; 5000]);
    }
    // A guard that is never dropped keeps the lock of the region after the close.
    std::mem::forget(store.get(&store.schema().key(&[1, 0, 0]).unwrap()));
    store.close().unwrap();
    drop(store);
    assert_eq!(Store::open(&path, config.clone()).unwrap_err().kind(), Kind::Unavailable, "a guard is still there");
    let path = dir.path().join("second");
    let store = Store::create(
        &path,
        &Keyspace::events("events", 1).opening_runs(),
        Config { hot_bytes: 4 << 20, ..config.clone() },
    );
    let store = store.unwrap();
    put(&store, 7, &[7; 5000]);
    store.close().unwrap();
    let store = Store::open(&path, config).unwrap();
    assert_eq!(read(&store, 7).unwrap(), [7; 5000]);
}
