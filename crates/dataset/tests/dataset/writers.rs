//! Writers that die, and what `gc` makes of them.

use super::{Folder, assert_reads, events, open, small, write};
use forebay_dataset::storage::{Condition, Part, Put, Storage, Tag, Traffic};
use forebay_dataset::{Error, Kind, Result, WriteOptions, Writer, gc, storage};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn files(folder: &Folder) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut folders = vec![folder.path().to_owned()];
    while let Some(path) = folders.pop() {
        for entry in std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap()) {
            if entry.file_type().unwrap().is_dir() { folders.push(entry.path()) } else { all.push(entry.path()) }
        }
    }
    all
}

fn collect(folder: &Folder, silent: u64) -> forebay_dataset::Collected {
    gc(&folder.url(), Duration::from_millis(silent), &storage::Options::default()).unwrap()
}

#[test]
fn a_writer_without_commit_changes_nothing_and_gc_removes_it() {
    let folder = Folder::new("dropped");
    write(&folder.url(), &events(0, 300), small());
    let before = files(&folder).len();
    let mut writer = Writer::append(&folder.url(), small()).unwrap();
    writer.push("Events", &events(300, 600)).unwrap();
    drop(writer);
    assert_reads(&open(&folder.url()), &events(0, 300));
    assert_eq!(collect(&folder, 3_600_000).alive.len(), 1, "it was not silent for an hour");
    std::thread::sleep(Duration::from_millis(1100));
    let collected = collect(&folder, 100);
    assert_eq!((collected.removed.len(), collected.alive.len()), (1, 0));
    assert_eq!(files(&folder).len(), before);
    assert_reads(&open(&folder.url()), &events(0, 300));
}

#[test]
fn gc_leaves_a_writer_at_work_and_one_that_was_taken_hears_it() {
    let folder = Folder::new("beside");
    let options = WriteOptions { heartbeat: Duration::from_millis(50), ..small() };
    let mut alive = Writer::create(&folder.url(), options).unwrap();
    alive.push("Events", &events(0, 300)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(collect(&folder, 60_000).alive.len(), 1);
    let mut silent = Writer::create(&folder.url(), small()).unwrap();
    silent.push("Events", &events(0, 300)).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    // The heartbeat of the first writer may be late on a busy machine: only the silent one has to go.
    let collected = collect(&folder, 1000);
    assert!(!collected.removed.is_empty());
    assert_eq!(silent.commit("late").unwrap_err().kind(), Kind::Fenced);
    if collected.alive.len() == 1 {
        alive.commit("in time").unwrap();
        assert_reads(&open(&folder.url()), &events(0, 300));
    }
}

#[test]
fn gc_removes_nothing_that_a_version_names() {
    let folder = Folder::new("named");
    let mut writer = Writer::create(&folder.url(), small()).unwrap();
    writer.push("Events", &events(0, 300)).unwrap();
    let announced: Vec<_> = files(&folder)
        .into_iter()
        .filter(|path| path.ends_with("writers") || path.ends_with("alive"))
        .map(|path| (std::fs::read(&path).unwrap(), path))
        .collect();
    assert_eq!(announced.len(), 2);
    writer.commit("test").unwrap();
    drop(writer);
    let before = files(&folder);
    // As if the writer had died between its commit and the end of its announcement.
    announced.iter().for_each(|(bytes, path)| std::fs::write(path, bytes).unwrap());
    let prefix = std::fs::read_dir(folder.path().join("ds/w")).unwrap().next().unwrap().unwrap().file_name();
    let prefix = prefix.into_string().unwrap();
    assert_eq!(collect(&folder, 0).committed, [prefix]);
    assert_eq!(files(&folder), before);
    assert_reads(&open(&folder.url()), &events(0, 300));
}

#[test]
fn gc_without_anything_to_do_does_nothing() {
    let folder = Folder::new("nothing");
    assert_eq!(collect(&folder, 0), forebay_dataset::Collected::default());
    write(&folder.url(), &events(0, 3), small());
    assert_eq!(collect(&folder, 0), forebay_dataset::Collected::default());
}

/// A directory that counts heartbeats, and loses the answers of some.
#[derive(Debug)]
struct Listening {
    inner: Arc<dyn Storage>,
    beats: AtomicU64,
    /// Heartbeats whose answers are lost, from the second one on.
    lost: u64,
}

impl Storage for Listening {
    fn url(&self) -> &str {
        self.inner.url()
    }
    fn get(&self, name: &str, bytes_max: u64) -> Result<Option<(bytes::Bytes, Tag)>> {
        self.inner.get(name, bytes_max)
    }
    fn parts(&self, parts: &[Part]) -> Result<Vec<bytes::Bytes>> {
        self.inner.parts(parts)
    }
    fn put(&self, objects: &[(String, bytes::Bytes)]) -> Result<()> {
        self.inner.put(objects)
    }
    fn put_if(&self, name: &str, bytes: &bytes::Bytes, condition: Condition<'_>) -> Result<Put> {
        let put = self.inner.put_if(name, bytes, condition)?;
        if name.ends_with("/alive") {
            let beat = self.beats.fetch_add(1, Ordering::SeqCst);
            if (1..=self.lost).contains(&beat) {
                return Err(Error::unknown("the answer is lost"));
            }
        }
        Ok(put)
    }
    fn remove(&self, names: &[String]) -> Result<()> {
        self.inner.remove(names)
    }
    fn age(&self, name: &str) -> Result<Option<Duration>> {
        self.inner.age(name)
    }
    fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.inner.list(folder)
    }
    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}

fn listening(folder: &Folder, lost: u64) -> Arc<Listening> {
    let inner = storage::open(&folder.url(), &storage::Options::default()).unwrap();
    Arc::new(Listening { inner, beats: AtomicU64::new(0), lost })
}

#[test]
fn a_writer_that_never_pauses_beats() {
    let folder = Folder::new("beats");
    let storage = listening(&folder, 0);
    let options =
        WriteOptions { batch_events: Some(256), heartbeat: Duration::from_millis(60), ..WriteOptions::default() };
    let mut writer = Writer::on(Arc::clone(&storage) as Arc<dyn Storage>, options).unwrap();
    // Fewer objects than are reserved at first, each of them before the next heartbeat would be due.
    for turn in 0..40 {
        writer.push("Events", &events(turn * 256, 256)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let beats = storage.beats.load(Ordering::SeqCst);
    assert!(beats > 3, "{beats} heartbeats in 0.8 s and more");
    writer.commit("beats").unwrap();
}

#[test]
fn a_heartbeat_whose_answer_is_lost_is_no_end_of_the_writer() {
    for lost in [1, 2] {
        let folder = Folder::new(&format!("lost-beat-{lost}"));
        let storage = listening(&folder, lost);
        let options = WriteOptions { heartbeat: Duration::from_millis(30), ..small() };
        let mut writer = Writer::on(Arc::clone(&storage) as Arc<dyn Storage>, options).unwrap();
        while storage.beats.load(Ordering::SeqCst) <= lost + 1 {
            std::thread::sleep(Duration::from_millis(5));
        }
        writer.push("Events", &events(0, 300)).unwrap();
        writer.commit("after lost answers").unwrap();
        assert_reads(&open(&folder.url()), &events(0, 300));
    }
    // The one before a commit: unknown at first, and a repeat goes on.
    let folder = Folder::new("lost-beat-commit");
    let mut writer = Writer::on(listening(&folder, 1), small()).unwrap();
    writer.push("Events", &events(0, 300)).unwrap();
    assert_eq!(writer.commit("once").unwrap_err().kind(), Kind::OutcomeUnknown);
    assert_eq!(writer.commit("twice").unwrap().version, 0);
    assert_reads(&open(&folder.url()), &events(0, 300));
}

#[test]
fn nothing_is_pushed_after_a_commit() {
    let folder = Folder::new("after-commit");
    let mut writer = Writer::create(&folder.url(), small()).unwrap();
    writer.push("Events", &events(0, 300)).unwrap();
    assert_eq!(writer.commit("first").unwrap().version, 0);
    assert_eq!(writer.push("Events", &events(300, 300)).unwrap_err().kind(), Kind::Closed);
    assert_eq!(writer.commit("again").unwrap().version, 0);
    assert_reads(&open(&folder.url()), &events(0, 300));
}
