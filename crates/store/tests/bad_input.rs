//! Calls, files and directories that cannot be served: a clear typed error each, and nothing lost.

use crate::common::fixture::{Fixture, RUN};
use crate::common::{TempDir, put, refused, refused_as, small_config};
use forebay_media::bytes::{Membership, Superblock};
use forebay_store::core::{Bounds, Error, Key, KeySchema, Keyspace, Kind, Primary};
use forebay_store::{Config, GetAny, PutOptions, Sources, Store};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn keyspace() -> Keyspace {
    let mut keyspace = Keyspace::events("bad-input", 1).opening_runs();
    keyspace.fragment_bytes_max = 1000;
    keyspace
}

/// A closed store of 100 events of 900 bytes, and where it lies.
fn closed_store(dir: &TempDir) -> PathBuf {
    let path = dir.store();
    let store = Store::create(&path, &keyspace(), small_config()).unwrap();
    for event in 0..100 {
        put_one(&store, event);
    }
    store.close().unwrap();
    path
}

fn put_one(store: &Store, event: u64) {
    let outcome = put(store, &crate::common::key(RUN, event, 0), &[event as u8; 900]).unwrap();
    assert_eq!(outcome, forebay_store::PutOutcome::Stored);
}

fn assert_intact(path: &Path) {
    let store = Store::open(path, small_config()).unwrap();
    for event in 0..100 {
        let fragment = store.get(&crate::common::key(RUN, event, 0)).unwrap().unwrap();
        assert_eq!(*fragment, [event as u8; 900]);
    }
    store.close().unwrap();
}

fn region(path: &Path) -> PathBuf {
    path.join("hot.fb")
}

/// A copy of a closed store's directory.
fn copied(path: &Path, to: &Path) -> PathBuf {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    to.to_owned()
}

#[test]
fn keys_of_another_schema() {
    let store = Fixture::new(&keyspace());
    store.stored(1, 0, b"x");
    let other = KeySchema::parse(&["run:u32", "event:u32", "source:u16"], &["run", "event"]).unwrap();
    let key = other.key(&[1, 1, 0]).unwrap();
    let primary = other.primary(&[1, 1]).unwrap();
    let invalid = |error: Error| assert_eq!(error.kind(), Kind::Invalid, "{error}");
    invalid(store.put(&key, b"x", &PutOptions::default()).unwrap_err());
    invalid(store.get_many(&[store.key(1, 0), key]).err().unwrap());
    refused(store.reserve(&key, 1, &PutOptions::default()), Kind::Invalid);
    refused(store.get(&key), Kind::Invalid);
    refused(store.update(&key, b"y", None), Kind::Invalid);
    refused(store.remove(&key), Kind::Invalid);
    refused(store.remove_event(&primary), Kind::Invalid);
    refused(store.seal(&primary), Kind::Invalid);
    refused(store.get_event(&primary, &Sources::All), Kind::Invalid);
    refused(store.lease(&primary, None), Kind::Invalid);
    refused(store.release(&primary), Kind::Invalid);
    refused(store.get(&Key::from_packed(&[])), Kind::Invalid);
    refused(store.get(&Key::from_packed(&[1; 32])), Kind::Invalid);
    refused(store.seal(&Primary::from_packed(&[])), Kind::Invalid);
    let message = refused(store.get(&key), Kind::Invalid);
    assert!(message.contains("16"), "does not name the length that is right: {message}");
    assert_eq!(store.read(1, 0).unwrap(), b"x");
}

#[test]
fn bounds_of_another_schema() {
    let store = Fixture::new(&keyspace());
    store.stored(1, 0, b"x");
    let other = KeySchema::parse(&["run:u32", "source:u16"], &["run"]).unwrap();
    let bounds = Bounds::all(&other);
    refused(store.remove_range(&bounds), Kind::Invalid);
    refused(store.events(&bounds), Kind::Invalid);
    let mut range = store.range(&bounds);
    refused(range.next().expect("an error, not an empty range"), Kind::Invalid);
    assert_eq!(store.read(1, 0).unwrap(), b"x");
}

#[test]
fn fragments_over_the_limit() {
    let store = Fixture::new(&keyspace());
    store.stored(1, 0, &[1; 1000]);
    for message in [
        refused(store.try_put(2, 0, &[1; 1001]), Kind::Invalid),
        refused(store.reserve(&store.key(2, 0), 1001, &PutOptions::default()), Kind::Invalid),
        refused(store.update(&store.key(1, 0), &[1; 1001], None), Kind::Invalid),
    ] {
        assert!(message.contains("1000") && message.contains("1001"), "names neither limit nor length: {message}");
    }
    assert_eq!(store.read(2, 0), None);
    assert_eq!(store.read(1, 0).unwrap(), [1; 1000]);
}

#[test]
fn fragments_that_no_segment_holds() {
    let mut keyspace = keyspace();
    keyspace.fragment_bytes_max = 64 << 20;
    let store = Fixture::with(&keyspace, |config| config.segment_bytes = Some(64 << 10));
    let message = refused(store.try_put(1, 0, &vec![0; 64 << 10]), Kind::Invalid);
    assert!(message.contains("segment"), "does not say what limits: {message}");
    refused(store.reserve(&store.key(1, 0), usize::MAX, &PutOptions::default()), Kind::Invalid);
    store.stored(1, 0, &vec![0; 48 << 10]);
}

#[test]
fn requests_for_nothing() {
    let store = Fixture::new(&keyspace());
    store.stored(1, 0, b"x");
    assert!(store.get_many(&[]).unwrap().is_empty());
    match store.get_any(&GetAny { n: 0, ..GetAny::default() }) {
        Ok(leases) => assert!(leases.is_empty()),
        error => drop(refused(error, Kind::Invalid)),
    }
    assert_eq!(store.any(1).len(), 1);
}

#[test]
fn impossible_configurations() {
    let dir = TempDir::new();
    let create = |change: &dyn Fn(&mut Config)| {
        let mut config = small_config();
        change(&mut config);
        refused(Store::create(&dir.path().join("refused"), &keyspace(), config), Kind::Invalid)
    };
    create(&|config| config.hot_bytes = 0);
    create(&|config| config.segment_bytes = Some(0));
    create(&|config| config.segment_bytes = Some(100));
    create(&|config| config.segment_bytes = Some(1 << 40));
    let mut wrong = keyspace();
    wrong.deliveries_max = 0;
    refused(Store::create(&dir.path().join("refused"), &wrong, small_config()), Kind::Invalid);
    wrong = keyspace();
    wrong.run.complete_within = Duration::ZERO;
    refused(Store::create(&dir.path().join("refused"), &wrong, small_config()), Kind::Invalid);
    // None of these left anything that blocks later calls.
    Store::create(&dir.path().join("refused"), &keyspace(), small_config()).unwrap().close().unwrap();
}

#[test]
fn a_directory_that_is_open_already() {
    let dir = TempDir::new();
    let path = closed_store(&dir);
    let first = Store::open(&path, small_config()).unwrap();
    let message = refused(Store::open(&path, small_config()), Kind::Unavailable);
    assert!(message.contains(path.to_str().unwrap()), "does not name the directory: {message}");
    assert!(first.get(&crate::common::key(RUN, 1, 0)).unwrap().is_some());
    first.close().unwrap();
    drop(first);
    assert_intact(&path);
}

#[test]
fn a_directory_that_holds_a_store_already() {
    let dir = TempDir::new();
    let path = closed_store(&dir);
    refused_as(Store::create(&path, &keyspace(), small_config()), &[Kind::Invalid, Kind::Conflict]);
    assert_intact(&path);
}

#[test]
fn a_directory_that_is_not_there_or_holds_no_store() {
    let dir = TempDir::new();
    let missing = dir.path().join("missing");
    let message = refused(Store::open(&missing, small_config()), Kind::Invalid);
    assert!(message.contains("missing"), "does not name the directory: {message}");
    assert!(!missing.exists(), "opening makes nothing");
    refused(Store::open(dir.path(), small_config()), Kind::Invalid);
    refused(forebay_store::check(&missing, true), Kind::Invalid);
}

#[test]
fn places_where_no_store_can_be_made() {
    let dir = TempDir::new();
    let file = dir.path().join("file");
    fs::write(&file, b"in the way").unwrap();
    for path in [file.clone(), file.join("below"), PathBuf::from("/proc/forebay")] {
        let message =
            refused_as(Store::create(&path, &keyspace(), small_config()), &[Kind::Invalid, Kind::Unavailable]);
        assert!(message.contains(path.to_str().unwrap()), "does not name the place: {message}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"in the way");
}

#[test]
fn a_region_of_another_length() {
    let dir = TempDir::new();
    let path = closed_store(&dir);
    let length = fs::metadata(region(&path)).unwrap().len();
    for (at, wrong) in [0, 100, 4096, 8192, length / 2, length - 1, length + (64 << 10)].into_iter().enumerate() {
        let copy = copied(&path, &dir.path().join(format!("copy-{at}")));
        OpenOptions::new().write(true).open(region(&copy)).unwrap().set_len(wrong).unwrap();
        let message = refused_as(Store::open(&copy, small_config()), &[Kind::Invalid, Kind::Corrupt]);
        assert!(message.len() > 20, "{wrong} bytes: {message}");
        assert_eq!(fs::metadata(region(&copy)).unwrap().len(), wrong, "left as it was found");
    }
    assert_intact(&path);
}

#[test]
fn a_region_of_another_version_or_of_somebody_else() {
    let dir = TempDir::new();
    let path = closed_store(&dir);
    let open_with = |name: &str, bytes: &[u8], offset: u64| {
        let copy = copied(&path, &dir.path().join(name));
        let file = OpenOptions::new().write(true).open(region(&copy)).unwrap();
        // Both superblock copies.
        for at in [0, 4096] {
            file.write_all_at(bytes, at + offset).unwrap();
        }
        refused_as(Store::open(&copy, small_config()), &[Kind::Invalid, Kind::Corrupt])
    };
    let message = open_with("version", &2_u32.to_le_bytes(), 8);
    assert!(message.contains("version 2") && message.contains("reads 3 to 6"), "{message}");
    assert!(
        message.contains("open it with that version") && message.contains("make a new one"),
        "does not say what to do: {message}"
    );
    open_with("magic", b"somebody", 0);
    // Of a random identity: one byte alone may be what it was.
    open_with("checksum", &[0xFF; 8], 20);
    assert_intact(&path);
}

#[test]
fn a_node_of_a_cluster_is_not_served_alone() {
    let dir = TempDir::new();
    let path = closed_store(&dir);
    let copy = copied(&path, &dir.path().join("member"));
    let bytes = fs::read(region(&copy)).unwrap();
    let member = Some(Membership { epoch: 7, node: 3, cluster: [9; Membership::CLUSTER_BYTES] });
    let file = OpenOptions::new().write(true).open(region(&copy)).unwrap();
    for at in [0, 4096] {
        let superblock = Superblock { member, ..Superblock::decode(&bytes[at..]).unwrap() };
        file.write_all_at(&superblock.encode(), at as u64).unwrap();
    }
    let message = refused_as(Store::open(&copy, small_config()), &[Kind::Corrupt]);
    assert!(message.contains("map.json cannot be read") && message.contains("put the present map"), "{message}");
    assert_intact(&path);
}

#[test]
fn one_broken_superblock_copy_is_survived() {
    for at in [0, 4096] {
        let dir = TempDir::new();
        let path = closed_store(&dir);
        let file = OpenOptions::new().write(true).open(region(&path)).unwrap();
        file.write_all_at(&[0; 128], at).unwrap();
        assert_intact(&path);
    }
}

#[test]
fn a_region_of_another_keyspace() {
    let dir = TempDir::new();
    let path = closed_store(&dir);
    let other = dir.path().join("other");
    let mut changed = keyspace();
    changed.schema = KeySchema::parse(&["run:u32", "event:u32", "source:u16"], &["run", "event"]).unwrap();
    Store::create(&other, &changed, small_config()).unwrap().close().unwrap();
    let copy = copied(&path, &dir.path().join("copy"));
    fs::copy(other.join("keyspace.toml"), copy.join("keyspace.toml")).unwrap();
    refused_as(Store::open(&copy, small_config()), &[Kind::Invalid, Kind::Corrupt]);
    fs::write(copy.join("keyspace.toml"), "name = 7").unwrap();
    refused_as(Store::open(&copy, small_config()), &[Kind::Invalid, Kind::Corrupt]);
    fs::remove_file(copy.join("keyspace.toml")).unwrap();
    refused_as(Store::open(&copy, small_config()), &[Kind::Invalid, Kind::Corrupt]);
    fs::copy(path.join("keyspace.toml"), copy.join("keyspace.toml")).unwrap();
    assert_intact(&copy);
}

/// A closed store with sealed segments, and the offset of a sealed segment with live entries in its region.
fn store_with_sealed_segment(dir: &TempDir) -> (PathBuf, u64, u64) {
    let path = dir.store();
    let config = Config { write_heads: 1, ..small_config() };
    let store = Store::create(&path, &keyspace(), config).unwrap();
    for event in 0..600 {
        put_one(&store, event);
    }
    store.tick();
    let bytes = store.stats().segment_bytes;
    let sealed = store.segments().into_iter().find(|segment| segment.state == "sealed" && segment.live > 0);
    let offset = 8192 + u64::from(sealed.expect("600 KB fill several segments of 64 KiB").segment) * bytes;
    store.close().unwrap();
    (path, offset, bytes)
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(region(path)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn rot_in_the_directory_of_a_sealed_segment_fails_closed() {
    let dir = TempDir::new();
    let (path, offset, bytes) = store_with_sealed_segment(&dir);
    // The first entry is at the end of the segment; byte 12 of it is the payload's length.
    flip(&path, offset + bytes - 48 + 12);
    let message = refused(Store::open(&path, small_config()), Kind::Corrupt);
    assert!(message.contains("segment"), "does not say where: {message}");
    let problems = forebay_store::check(&path, false).map_or(1, |report| report.problems.len());
    assert!(problems > 0);
}

#[test]
fn rot_in_a_payload_is_noticed_by_whoever_looks() {
    let dir = TempDir::new();
    let (path, offset, _) = store_with_sealed_segment(&dir);
    flip(&path, offset + 4096 + 5);
    let report = forebay_store::check(&path, true).unwrap();
    assert!(!report.problems.is_empty());
    refused(Store::open(&path, Config { verify: true, ..small_config() }), Kind::Corrupt);
    let store = Store::open(&path, small_config()).unwrap();
    let all = Bounds::all(store.schema());
    let broken = store.range(&all).filter(|fragment| match fragment {
        Ok(fragment) => fragment.verify().is_err_and(|error| error.kind() == Kind::Corrupt),
        Err(error) => error.kind() == Kind::Corrupt,
    });
    assert_eq!(broken.count(), 1);
    store.close().unwrap();
}
