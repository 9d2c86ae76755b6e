//! A writer that dies at any request: the dataset opens as before or with all of the new version, and `gc` leaves nothing behind.

use super::{Folder, assert_reads, events, open, small, write};
use forebay_core::{Error, Result};
use forebay_dataset::storage::{self, Condition, Part, Put, Storage, Tag, Traffic};
use forebay_dataset::{WriteOptions, Writer, gc};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A storage whose user dies at a request that writes: it is carried out, in part or not at all, and nothing after it.
#[derive(Debug)]
struct Mortal {
    inner: Arc<dyn Storage>,
    left: AtomicU64,
    /// Whether the last request is carried out, its answer being lost.
    carried_out: bool,
}

impl Mortal {
    /// Whether the caller lives, dies now or is dead.
    fn turn(&self) -> Result<bool> {
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(1) => Ok(true),
            Ok(_) => Ok(false),
            Err(_) => Err(Error::unavailable("dead")),
        }
    }
}

impl Storage for Mortal {
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
        for one in objects.chunks(1) {
            let last = self.turn()?;
            if !last || self.carried_out {
                self.inner.put(one)?;
            }
            if last {
                return Err(Error::unavailable("dying"));
            }
        }
        Ok(())
    }
    fn put_if(&self, name: &str, bytes: &bytes::Bytes, condition: Condition<'_>) -> Result<Put> {
        let last = self.turn()?;
        if !last {
            return self.inner.put_if(name, bytes, condition);
        }
        if self.carried_out {
            self.inner.put_if(name, bytes, condition)?;
        }
        Err(Error::unavailable("dying"))
    }
    fn remove(&self, names: &[String]) -> Result<()> {
        let last = self.turn()?;
        if !last || self.carried_out {
            self.inner.remove(names)?;
        }
        if last { Err(Error::unavailable("dying")) } else { Ok(()) }
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

/// Appends 600 events; whether the commit was acknowledged.
fn append(folder: &Folder, left: u64, carried_out: bool) -> bool {
    let inner = storage::open(&folder.url(), &storage::Options::default()).unwrap();
    let mortal = Arc::new(Mortal { inner, left: AtomicU64::new(left), carried_out });
    let Ok(mut writer) = Writer::on(mortal, small()) else { return false };
    writer.push("Events", &events(300, 600)).and_then(|()| writer.commit("more")).is_ok()
}

#[test]
fn a_writer_that_dies_at_any_request_leaves_the_old_or_the_new_dataset() {
    for carried_out in [false, true] {
        for left in 1.. {
            let folder = Folder::new(&format!("dies-{left}-{carried_out}"));
            write(&folder.url(), &events(0, 300), small());
            let done = append(&folder, left, carried_out);
            let dataset = open(&folder.url());
            let has = dataset.events("Events").unwrap();
            assert!(has == 900 || has == 300 && !done, "{has} events after {left} requests, acknowledged: {done}");
            assert_reads(&dataset, &whole(has));
            std::thread::sleep(Duration::from_millis(5));
            let collected = gc(&folder.url(), Duration::ZERO, &storage::Options::default()).unwrap();
            assert!(collected.alive.is_empty());
            assert_reads(&open(&folder.url()), &whole(has));
            assert_eq!(open(&folder.url()).verify(&mut |_, _| {}).unwrap().damages, []);
            // The dataset takes another writer, and nothing of the dead one is left beside what versions name.
            assert!(append(&folder, u64::MAX, false));
            let writers = std::fs::read_dir(folder.path().join("ds/w"))
                .unwrap()
                .filter(|writer| std::fs::read_dir(writer.as_ref().unwrap().path()).unwrap().count() > 0);
            assert_eq!(writers.count(), if has == 900 { 3 } else { 2 }, "after {left} requests");
            if done && left > 30 {
                break;
            }
        }
    }
}

/// Events of a dataset with this many, as the writers of this file make them.
fn whole(n: u64) -> Vec<(forebay_dataset::Product, forebay_dataset::Array)> {
    if n == 900 { super::events_of(&[(0, 300), (300, 600)]) } else { events(0, 300) }
}

/// The child of the test below: appends until it is killed.
#[test]
fn child_that_is_killed() {
    let Ok(url) = std::env::var("FOREBAY_DATASET_CHILD") else { return };
    for turn in 0_u64.. {
        let mut writer =
            Writer::append(&url, WriteOptions { heartbeat: Duration::from_millis(20), ..small() }).unwrap();
        writer.push("Events", &events(300 * (turn + 1), 300)).unwrap();
        let _ = writer.commit("child");
    }
}

#[test]
fn processes_that_are_killed_leave_whole_versions() {
    let folder = Folder::new("killed");
    write(&folder.url(), &events(0, 300), small());
    for turn in 0..8_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["dataset::deaths::child_that_is_killed", "--exact", "--nocapture"])
            .env("FOREBAY_DATASET_CHILD", folder.url())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(40 + 37 * turn));
        child.kill().unwrap();
        child.wait().unwrap();
        let dataset = open(&folder.url());
        assert_eq!(dataset.events("Events").unwrap() % 300, 0);
        assert_eq!(dataset.verify(&mut |_, _| {}).unwrap().damages, []);
    }
    gc(&folder.url(), Duration::ZERO, &storage::Options::default()).unwrap();
    assert_eq!(open(&folder.url()).verify(&mut |_, _| {}).unwrap().damages, []);
}
