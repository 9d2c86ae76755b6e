//! Writers that die, and what `gc` makes of them.

use super::{Folder, assert_reads, events, open, small, write};
use forebay_dataset::{Kind, WriteOptions, Writer, gc, storage};
use std::path::PathBuf;
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
