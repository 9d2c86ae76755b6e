//! Looking at a store that nobody serves: what is counted, what is found wrong, that nothing is changed.

use crate::common::{TempDir, key, put, sealed_events, small_config};
use forebay_store::core::{Completeness, Kind};
use forebay_store::{CheckReport, Config, GetAny, PutOptions, Store, WarmDevice, check, measure};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const RUN: u64 = 1;
const FRAGMENT_BYTES: usize = 3000;

/// A store with a warm level in `dir`, to which everything undecided goes at once.
fn config(dir: &TempDir) -> Config {
    Config {
        warm: vec![WarmDevice::directory(dir.path().join("warm"), 5 << 20)],
        container_bytes: 256 << 10,
        device_log_bytes: 256 << 10,
        demote_high: 0.001,
        demote_low: 0.0,
        ..small_config()
    }
}

/// Events 0 to 39 on the warm level, of which 0 to 9 were rejected there, 40 to 49 on the hot one alone, and a persisted
/// fragment of event 50 on both.
fn filled(dir: &TempDir) -> Store {
    let mut keyspace = sealed_events();
    keyspace.run.completeness = Completeness::Count(1);
    let store = Store::create(&dir.store(), &keyspace, config(dir)).unwrap();
    for event in 0..40 {
        let _ = put(&store, &key(RUN, event, 0), &[event as u8 + 1; FRAGMENT_BYTES]).unwrap();
    }
    measure::demote(&store);
    for event in 0..10 {
        let primary = store.schema().primary(&[RUN, event]).unwrap();
        let lease = store.lease(&primary, None).unwrap().unwrap();
        lease.reject().unwrap();
    }
    for event in 40..50 {
        let _ = put(&store, &key(RUN, event, 0), &[event as u8 + 1; FRAGMENT_BYTES]).unwrap();
    }
    let options = PutOptions { persisted: true, ..PutOptions::default() };
    let _ = store.put(&key(RUN, 50, 0), &[51; FRAGMENT_BYTES], &options).unwrap();
    store
}

fn closed(dir: &TempDir) {
    let store = filled(dir);
    store.close().unwrap();
}

#[track_caller]
fn looked_at(dir: &TempDir, deep: bool) -> CheckReport {
    check(&dir.store(), deep).unwrap()
}

/// Every file of the store and its device, but the one that is locked.
fn files(dir: &TempDir) -> BTreeMap<PathBuf, Vec<u8>> {
    let of = |path: PathBuf| {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_file() && !path.ends_with("device.lock")).collect::<Vec<_>>()
    };
    let all = of(dir.store()).into_iter().chain(of(dir.path().join("warm")));
    all.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// The container that has these bytes this many times in a row, and where.
fn find(dir: &TempDir, byte: u8) -> (PathBuf, u64) {
    let row = [byte; FRAGMENT_BYTES];
    for (path, bytes) in files(dir) {
        let container = path.file_name().unwrap().to_string_lossy().starts_with("container-");
        if container && let Some(at) = bytes.windows(FRAGMENT_BYTES).position(|window| window == row) {
            return (path, at as u64);
        }
    }
    panic!("no container has the fragment of byte {byte}");
}

fn flip(path: &Path, at: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

/// Goes on in another directory with what a killed process leaves: nothing closed.
fn killed(from: &TempDir) -> TempDir {
    let to = TempDir::new();
    for place in ["store", "warm"] {
        std::fs::create_dir(to.path().join(place)).unwrap();
        for entry in std::fs::read_dir(from.path().join(place)).unwrap().map(|entry| entry.unwrap()) {
            if entry.path().is_file() {
                std::fs::copy(entry.path(), to.path().join(place).join(entry.file_name())).unwrap();
            }
        }
    }
    let list = std::fs::read_to_string(to.store().join("devices.toml")).unwrap();
    let moved = list.replace(from.path().to_str().unwrap(), to.path().to_str().unwrap());
    assert_ne!(list, moved);
    std::fs::write(to.store().join("devices.toml"), moved).unwrap();
    to
}

#[test]
fn both_levels_are_counted() {
    let dir = TempDir::new();
    closed(&dir);
    for deep in [false, true] {
        let report = looked_at(&dir, deep);
        assert_eq!(report.problems, Vec::<String>::new());
        assert!(report.clean);
        assert_eq!((report.devices, report.containers), (1, 17));
        assert_eq!(report.warm_live, 31, "30 events on that level alone, one fragment on both levels: {report:?}");
        assert!(report.warm_entries >= 41 && report.images >= 41, "{report:?}");
        assert_eq!(report.live, 42, "10 and one on the hot level, 31 on the warm one: {report:?}");
        assert!(report.decisions >= 10, "{report:?}");
    }
}

#[test]
fn a_check_changes_nothing() {
    let dir = TempDir::new();
    let store = filled(&dir);
    let left = killed(&dir);
    drop(store);
    for place in [&dir, &left] {
        let before = files(place);
        for deep in [false, true] {
            let report = looked_at(place, deep);
            assert_eq!(report.problems, Vec::<String>::new());
            assert_eq!(report.warm_live, 31);
        }
        let after = files(place);
        for (path, bytes) in &before {
            assert!(after.get(path) == Some(bytes), "{} is another now", path.display());
        }
        assert_eq!(before.len(), after.len());
    }
    assert!(!looked_at(&left, false).clean);
    let store = Store::open(&left.store(), Config { warm: Vec::new(), ..config(&left) }).unwrap();
    assert_eq!(store.get_any(&GetAny { n: 100, ..GetAny::default() }).unwrap().len(), 41);
}

#[test]
fn a_served_store_is_not_looked_at() {
    let dir = TempDir::new();
    let _store = filled(&dir);
    let error = check(&dir.store(), false).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
}

#[test]
fn rot_in_a_payload_of_the_warm_level_is_named_by_a_deep_check() {
    let dir = TempDir::new();
    closed(&dir);
    let (path, at) = find(&dir, 21);
    flip(&path, at + 100);
    assert_eq!(looked_at(&dir, false).problems, Vec::<String>::new());
    let report = looked_at(&dir, true);
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    let number: u32 = path.file_stem().unwrap().to_str().unwrap()["container-".len()..].parse().unwrap();
    let problem = &report.problems[0];
    let name = format!("container {number} of device 0 ({})", dir.path().join("warm").display());
    assert!(problem.starts_with(&name) && problem.contains("1/20/0") && problem.contains("checksum"), "{problem}");
}

#[test]
fn rot_in_what_was_rejected_is_no_problem() {
    let dir = TempDir::new();
    closed(&dir);
    let (path, at) = find(&dir, 5);
    flip(&path, at + 100);
    assert_eq!(looked_at(&dir, true).problems, Vec::<String>::new());
}

#[test]
fn rot_in_a_persisted_copy_is_a_problem_though_the_other_is_whole() {
    let dir = TempDir::new();
    closed(&dir);
    let (path, at) = find(&dir, 51);
    flip(&path, at + 100);
    let report = looked_at(&dir, true);
    assert!(report.problems.len() == 1 && report.problems[0].contains("1/50/0"), "{:?}", report.problems);
}

#[test]
fn rot_in_a_directory_is_named_and_its_events_are_counted_all_the_same() {
    let dir = TempDir::new();
    closed(&dir);
    let (path, _) = find(&dir, 21);
    let bytes = std::fs::read(&path).unwrap();
    let directory = bytes.chunks(4096).position(|block| block.starts_with(b"FBDR")).unwrap();
    flip(&path, directory as u64 * 4096 + 40);
    let report = looked_at(&dir, false);
    assert!(report.problems.len() == 1 && report.problems[0].contains("its directory"), "{:?}", report.problems);
    assert_eq!(report.warm_live, 31);
}

#[test]
fn a_header_of_an_image_that_rotted_is_found_by_a_deep_check() {
    let dir = TempDir::new();
    closed(&dir);
    let (path, at) = find(&dir, 21);
    let bytes = std::fs::read(&path).unwrap();
    let image = bytes[..at as usize].windows(4).rposition(|window| window == b"FBEV").unwrap();
    flip(&path, image as u64 + 20);
    assert_eq!(looked_at(&dir, false).problems, Vec::<String>::new());
    let report = looked_at(&dir, true);
    assert!(report.problems.iter().any(|problem| problem.contains("head or the table")), "{:?}", report.problems);
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let dir = TempDir::new();
    closed(&dir);
    std::fs::rename(dir.path().join("warm"), dir.path().join("elsewhere")).unwrap();
    let report = looked_at(&dir, false);
    assert!(report.problems.len() == 1 && report.problems[0].contains("is not there"), "{:?}", report.problems);
}

#[test]
fn without_its_hot_level_the_warm_one_is_looked_at() {
    let dir = TempDir::new();
    closed(&dir);
    std::fs::remove_file(dir.store().join("hot.fb")).unwrap();
    let report = looked_at(&dir, true);
    assert!(report.problems.len() == 1 && report.problems[0].contains("hot level is gone"), "{:?}", report.problems);
    assert!(report.warm_entries >= 41, "{report:?}");
    let (path, at) = find(&dir, 21);
    flip(&path, at);
    assert_eq!(looked_at(&dir, true).problems.len(), 2);
}
