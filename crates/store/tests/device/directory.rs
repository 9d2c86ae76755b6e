//! The device that is a directory.

use crate::device::conformance::{DROP_WAIT, drop_in_flight, pattern, read_all, suite, write_all};
use forebay_store::{BLOCK_BYTES, Buffer, Device, DirectoryDevice, Done, FileId, IoMethod, Queue};
use forebay_testkit::media::{FaultyDevice, ShiftingDevice};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A directory of its own, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(base: &Path, name: &str) -> Dir {
        let path = base.join(format!("forebay-device-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn here(name: &str) -> Dir {
        Dir::new(&std::env::temp_dir(), name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(dir: &Dir, method: IoMethod, direct: bool) -> DirectoryDevice {
    DirectoryDevice::open(&dir.0, method, direct).unwrap()
}

fn conforms(base: &Path, name: &str, method: IoMethod, direct: bool, called: &str) {
    let dir = Dir::new(base, name);
    let device = open(&dir, method, direct);
    assert_eq!(device.method(), called, "{:?}", device.refused());
    suite(&(Arc::new(device) as Arc<dyn Device>));
}

#[test]
fn conforms_through_the_ring_direct() {
    conforms(&std::env::temp_dir(), "ring-direct", IoMethod::Uring, true, "io_uring, direct");
}

#[test]
fn conforms_through_the_ring_buffered() {
    conforms(&std::env::temp_dir(), "ring-buffered", IoMethod::Uring, false, "io_uring, buffered");
}

#[test]
fn conforms_through_threads_direct() {
    conforms(&std::env::temp_dir(), "threads-direct", IoMethod::Pwrite, true, "pwrite, direct");
}

#[test]
fn conforms_through_threads_buffered() {
    conforms(&std::env::temp_dir(), "threads-buffered", IoMethod::Pwrite, false, "pwrite, buffered");
}

#[test]
fn conforms_in_memory_whatever_is_granted_there() {
    let dir = Dir::new(Path::new("/dev/shm"), "memory");
    suite(&(Arc::new(open(&dir, IoMethod::Auto, true)) as Arc<dyn Device>));
}

#[test]
fn conforms_shifted_and_with_faults_around_it() {
    let dir = Dir::here("shifted");
    let device = FaultyDevice::new(Arc::new(open(&dir, IoMethod::Auto, true)));
    suite(&(ShiftingDevice::new(device, 11) as Arc<dyn Device>));
}

/// A directory whose writes through a queue land only after the queue that was dropped has stopped to wait for them.
struct Late(Arc<DirectoryDevice>);

struct LateQueue {
    device: Arc<DirectoryDevice>,
    held: Vec<(FileId, u64, Buffer, usize)>,
}

impl Device for Late {
    fn name(&self) -> String {
        self.0.name()
    }

    fn method(&self) -> String {
        self.0.method()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<FileId> {
        self.0.create(name, bytes)
    }

    fn open(&self, name: &str) -> io::Result<(FileId, u64)> {
        self.0.open(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(file, offset, into)
    }

    fn write(&self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(file, offset, bytes)
    }

    fn sync(&self, file: FileId) -> io::Result<()> {
        self.0.sync(file)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.0.sync_names()
    }

    fn queue(&self, _: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(LateQueue { device: self.0.clone(), held: Vec::new() }))
    }
}

impl Queue for LateQueue {
    fn write(&mut self, _: u64, file: FileId, offset: u64, buffer: Buffer, length: usize) {
        self.held.push((file, offset, buffer, length));
    }

    fn sync(&mut self, _: u64, _: FileId) {}

    fn complete(&mut self, _: Duration) -> Option<Done> {
        None
    }

    fn in_flight(&self) -> usize {
        self.held.len()
    }
}

impl Drop for LateQueue {
    fn drop(&mut self) {
        let (device, held) = (self.device.clone(), std::mem::take(&mut self.held));
        std::thread::sleep(DROP_WAIT);
        std::thread::spawn(move || {
            std::thread::sleep(DROP_WAIT / 4);
            for (file, offset, buffer, length) in held {
                write_all(device.as_ref(), file, offset, &buffer[..length]);
            }
        });
    }
}

#[test]
fn what_a_dropped_queue_does_not_wait_for_lands_later() {
    let dir = Dir::here("late");
    drop_in_flight(&Late(Arc::new(open(&dir, IoMethod::Pwrite, false))));
}

#[test]
fn one_process_has_a_device() {
    let dir = Dir::here("lock");
    let device = open(&dir, IoMethod::Auto, true);
    let error = DirectoryDevice::open(&dir.0, IoMethod::Auto, true).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let text = error.to_string();
    assert!(text.contains(&format!("process {} (", std::process::id())), "{text}");
    assert!(text.contains(&dir.0.display().to_string()), "{text}");

    let queue = device.queue(1).unwrap();
    drop(device);
    assert!(DirectoryDevice::open(&dir.0, IoMethod::Auto, true).is_err(), "a queue has it as well");
    drop(queue);
    open(&dir, IoMethod::Auto, true);
}

#[test]
fn a_missing_directory_is_not_made() {
    let path = std::env::temp_dir().join(format!("forebay-device-{}-none", std::process::id()));
    let error = DirectoryDevice::open(&path, IoMethod::Auto, true).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(!path.exists());
}

#[test]
fn files_survive_the_device() {
    let dir = Dir::here("again");
    let bytes = pattern(4 * BLOCK_BYTES, 3);
    {
        let device = open(&dir, IoMethod::Auto, true);
        let file = device.create("container.fb", 16 * BLOCK).unwrap();
        write_all(&device, file, 4 * BLOCK, &bytes);
        device.sync(file).unwrap();
        device.sync_names().unwrap();
    }
    std::fs::write(dir.0.join("half.fb.new"), b"cut off").unwrap();
    std::fs::create_dir(dir.0.join("folder")).unwrap();
    let device = open(&dir, IoMethod::Pwrite, false);
    assert_eq!(device.list().unwrap(), ["container.fb"], "a cut-off creation is no file");
    assert!(!dir.0.join("half.fb.new").exists());
    let (file, length) = device.open("container.fb").unwrap();
    assert_eq!(length, 16 * BLOCK);
    assert!(read_all(&device, file, 4 * BLOCK, bytes.len())[..] == bytes[..]);
}

#[test]
fn all_bytes_are_allocated() {
    use std::os::unix::fs::MetadataExt;
    let dir = Dir::here("allocated");
    let device = open(&dir, IoMethod::Auto, true);
    device.create("container.fb", 1 << 20).unwrap();
    let data = std::fs::metadata(dir.0.join("container.fb")).unwrap();
    assert_eq!(data.len(), 1 << 20);
    assert!(data.blocks() * 512 >= 1 << 20, "{} blocks", data.blocks());
}

#[test]
fn what_does_not_fit_is_named_and_leaves_nothing() {
    let dir = Dir::here("full");
    let device = open(&dir, IoMethod::Auto, true);
    let wanted = 1u64 << 60;
    let error = device.create("container.fb", wanted).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    let text = error.to_string();
    assert!(text.contains(&wanted.to_string()) && text.contains("are free"), "{text}");
    assert_eq!(device.list().unwrap(), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 1, "only the lock");
}

#[test]
fn more_files_than_descriptors() {
    let dir = Dir::here("many");
    let device = open(&dir, IoMethod::Auto, true);
    let descriptors = || {
        let ours = |entry: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_link(entry.ok()?.path()).ok().filter(|target| target.starts_with(&dir.0))
        };
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(ours).count()
    };
    let mut files = Vec::new();
    for number in 0..300 {
        files.push(device.create(&format!("container-{number:06}.fb"), BLOCK).unwrap());
    }
    assert!(descriptors() < 160, "{} descriptors", descriptors());
    for (number, &file) in files.iter().enumerate() {
        write_all(&device, file, 0, &pattern(BLOCK_BYTES, number as u64));
    }
    assert!(descriptors() > 290, "what is not synced stays open: {} descriptors", descriptors());
    for &file in &files {
        device.sync(file).unwrap();
    }
    for (number, &file) in files.iter().enumerate() {
        assert!(read_all(&device, file, 0, BLOCK_BYTES)[..] == pattern(BLOCK_BYTES, number as u64)[..]);
    }
    device.create("one-more.fb", BLOCK).unwrap();
    assert!(descriptors() < 160, "{} descriptors", descriptors());
}

/// A file without a name takes writes and loses them with its descriptor: a sync must not say that they are safe.
fn vanished(method: IoMethod) {
    let dir = Dir::here(if method == IoMethod::Uring { "vanished-ring" } else { "vanished-threads" });
    let device = open(&dir, method, true);
    let file = device.create("container.fb", 4 * BLOCK).unwrap();
    let mut queue = device.queue(2).unwrap();
    std::fs::remove_dir_all(&dir.0).unwrap();
    queue.write(1, file, 0, Buffer::new(BLOCK_BYTES), BLOCK_BYTES);
    queue.complete(Duration::from_secs(20)).unwrap();
    queue.sync(2, file);
    let error = queue.complete(Duration::from_secs(20)).unwrap().result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(device.sync(file).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(device.list().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(device.sync_names().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(device.create("other.fb", BLOCK).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_directory_that_vanishes_is_noticed_by_the_ring() {
    vanished(IoMethod::Uring);
}

#[test]
fn a_directory_that_vanishes_is_noticed_by_the_threads() {
    vanished(IoMethod::Pwrite);
}
