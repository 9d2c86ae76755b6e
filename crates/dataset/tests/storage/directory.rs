//! A directory: what only files have.

use crate::storage::conformance;
use bytes::Bytes;
use forebay_core::{Kind, crc32c};
use forebay_dataset::storage::{self, Condition, Options, Part, Put, Storage};
use forebay_testkit::TempDir;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn open(path: &Path) -> Arc<dyn Storage> {
    storage::open(path.to_str().unwrap(), &Options::default()).unwrap()
}

#[test]
fn conforms() {
    let dir = TempDir::new();
    // Not there yet, and neither is what it is in.
    let path = dir.path().join("a/b/dataset");
    assert_eq!(open(&path).get("root", 10).unwrap(), None);
    conformance::check(&|| open(&path));
    conformance::check_listing(&*open(&path));
    let url = format!("file://{}", path.display());
    assert!(storage::open(&url, &Options::default()).unwrap().get("objects/large", u64::MAX).unwrap().is_some());
}

/// Does nothing, except as a child of the next test.
#[test]
fn writer_in_a_process_of_its_own() {
    if let (Ok(path), Ok(writer)) = (std::env::var("FOREBAY_RACE_PATH"), std::env::var("FOREBAY_RACE_WRITER")) {
        conformance::append(&*open(Path::new(&path)), "root", writer.parse().unwrap(), 20);
    }
}

fn start_writer(path: &Path, writer: u32) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "storage::directory::writer_in_a_process_of_its_own"]);
    command.env("FOREBAY_RACE_PATH", path).env("FOREBAY_RACE_WRITER", writer.to_string());
    command.stdout(std::process::Stdio::null()).spawn().unwrap()
}

#[test]
fn processes_that_race_do_not_lose_each_other() {
    let dir = TempDir::new();
    let children: Vec<Child> = (0..2).map(|writer| start_writer(dir.path(), writer)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    conformance::check_log(&*open(dir.path()), "root", 2, 20);
}

#[test]
fn a_killed_writer_leaves_no_lock_and_no_half_object() {
    let dir = TempDir::new();
    let mut child = start_writer(dir.path(), 0);
    let place = open(dir.path());
    let from = Instant::now();
    while place.get("root", 1 << 20).unwrap().is_none() && from.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let (there, tag) = place.get("root", 1 << 20).unwrap().unwrap();
    assert!(there.ends_with(b"\n"));
    assert!(matches!(place.put_if("root", &"new".into(), Condition::Unchanged(&tag)).unwrap(), Put::Done(_)));
}

#[test]
fn a_lock_that_is_held_too_long_has_words() {
    let dir = TempDir::new();
    let lock = File::create(dir.path().join(".lock")).unwrap();
    lock.lock().unwrap();
    let options = Options { deadline: Duration::from_millis(50), ..Options::default() };
    let place = storage::open(dir.path().to_str().unwrap(), &options).unwrap();
    let error = place.put_if("root", &Bytes::new(), Condition::Absent).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.message().contains(".lock"), "{error}");
    drop(lock);
    assert!(matches!(place.put_if("root", &Bytes::new(), Condition::Absent).unwrap(), Put::Done(_)));
}

#[test]
fn tags_tell_objects_apart_that_end_with_their_own_checksum() {
    let dir = TempDir::new();
    let place = open(dir.path());
    // The CRC of both, with theirs at the end, is the same.
    let sealed = |text: &str| Bytes::from([text.as_bytes(), &crc32c(text.as_bytes()).to_le_bytes()].concat());
    let (one, other) = (sealed("version 1"), sealed("version 2"));
    assert_eq!(crc32c(&one), crc32c(&other));
    let Put::Done(first) = place.put_if("root", &one, Condition::Absent).unwrap() else { panic!() };
    let Put::Done(second) = place.put_if("root", &other, Condition::Unchanged(&first)).unwrap() else { panic!() };
    assert_ne!(first, second);
}

#[test]
fn age_is_by_the_clock_of_the_file_system() {
    let dir = TempDir::new();
    let place = open(dir.path());
    place.put(&[("object".to_owned(), Bytes::new())]).unwrap();
    let file = File::options().write(true).open(dir.path().join("object")).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.set_modified(modified - Duration::from_secs(3600)).unwrap();
    let age = place.age("object").unwrap().unwrap();
    assert!((3600..3700).contains(&age.as_secs()), "{age:?}");
    file.set_modified(modified + Duration::from_secs(3600)).unwrap();
    assert_eq!(place.age("object").unwrap().unwrap(), Duration::ZERO);
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["object"]);
}

#[test]
fn what_a_killed_put_left_goes_with_its_object() {
    let dir = TempDir::new();
    let place = open(dir.path());
    fs::write(dir.path().join(".stripe.new"), "half").unwrap();
    place.remove(&["stripe".to_owned()]).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_place_that_cannot_be_written_has_words() {
    let dir = TempDir::new();
    fs::write(dir.path().join("file"), "not a folder").unwrap();
    let place = open(&dir.path().join("file"));
    assert_eq!(place.get("object", 10).unwrap(), None);
    let error = place.put(&[("object".to_owned(), Bytes::new())]).unwrap_err();
    assert!(error.message().contains("file"), "{error}");
    assert_ne!(error.kind(), Kind::Corrupt);
}

#[test]
fn a_read_of_many_columns_is_few_calls() {
    let dir = TempDir::new();
    let place = open(dir.path());
    place.put(&[("group".to_owned(), vec![7; 1500 * 1000].into())]).unwrap();
    let parts: Vec<Part> =
        (0..1500).map(|at| Part { name: "group".to_owned(), range: at * 1000..at * 1000 + 950 }).collect();
    let came = place.parts(&parts).unwrap();
    assert!(came.iter().all(|part| part.len() == 950));
    let traffic = place.traffic();
    assert!(traffic.reads <= 2 && traffic.bytes_read <= 1500 * 1000, "{traffic:?}");
}
