//! A device that is a directory of the file system.
//!
//! ```text
//! DIR/device.lock   one block: locked while a process has the device, and written to learn how the device can be written
//! DIR/*             the preallocated files
//! ```
//!
//! *Invariants*: one process at a time; how the device is written is decided once, at opening, by really doing it.

use super::buffer::Buffer;
use super::device::{BLOCK_BYTES, Device, FileId, Queue, check_aligned};
use super::files::Files;
use super::pwrite::PwriteQueue;
use super::uring::UringQueue;
use crate::locked::Locked;
use crate::named::Named;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The file that is locked, and that takes the first write.
const LOCK_FILE: &str = "device.lock";
/// How long the first operations may take before their way counts as refused.
const PROBE_WAIT: Duration = Duration::from_secs(10);
/// Operations that a queue may have in flight.
const DEPTH_MAX: usize = 1024;

/// By which system calls a device is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMethod {
    /// io_uring, or threads where it is refused.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// Threads that call `pwrite`.
    Pwrite,
}

/// A directory of preallocated files.
pub struct DirectoryDevice {
    files: Arc<Files>,
    named: Named,
    uring: bool,
    refused: Vec<String>,
}

impl DirectoryDevice {
    /// Takes the device in the directory `path`, which must be there: a missing one may be one that is not mounted.
    /// With `direct` its files are read and written past the page cache, unless the file system refuses that.
    ///
    /// # Errors
    /// `NotFound` without the directory; `WouldBlock` where another process has it; any other error of the system for
    /// the first write.
    pub fn open(path: &Path, method: IoMethod, direct: bool) -> io::Result<DirectoryDevice> {
        let said = |error: Errno| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = File::from(fs::open(path, flags, Mode::empty()).map_err(said)?);
        let lock = Arc::new(take_lock(path, &dir)?);
        let mut refused = Vec::new();

        let files = |direct| Ok::<_, io::Error>(Arc::new(Files::new(path, dir.try_clone()?, lock.clone(), direct)));
        let mut chosen = files(direct)?;
        if direct && let Err(error) = probe(&chosen) {
            if !matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) {
                return Err(error);
            }
            refused.push(format!("O_DIRECT: {error}"));
            chosen = files(false)?;
        }
        if !chosen.is_direct() {
            probe(&chosen)?;
        }
        let uring = match method {
            IoMethod::Pwrite => false,
            _ => match probe_uring(&chosen) {
                Ok(()) => true,
                Err(error) if method == IoMethod::Uring => {
                    return Err(io::Error::new(error.kind(), format!("{}: io_uring: {error}", path.display())));
                }
                Err(error) => {
                    refused.push(format!("io_uring: {error}"));
                    false
                }
            },
        };
        // After the lock and the first write: nobody else is at work in the directory.
        chosen.remove_unfinished()?;
        Ok(DirectoryDevice { files: chosen, named: Named::of(path, dir), uring, refused })
    }

    /// What was asked for and refused, for people: which way, and what the system said.
    pub fn refused(&self) -> &[String] {
        &self.refused
    }
}

impl Device for DirectoryDevice {
    fn name(&self) -> String {
        self.files.path().display().to_string()
    }

    fn gone(&self) -> Option<String> {
        self.named.gone()
    }

    fn let_go(&self) {
        self.files.unlock();
    }

    fn method(&self) -> String {
        let calls = if self.uring { "io_uring" } else { "pwrite" };
        let cache = if self.files.is_direct() { "direct" } else { "buffered" };
        format!("{calls}, {cache}")
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = self.files.list()?;
        names.retain(|name| name != LOCK_FILE);
        Ok(names)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.files.free_bytes()
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<FileId> {
        self.files.create(name, bytes)
    }

    fn open(&self, name: &str) -> io::Result<(FileId, u64)> {
        self.files.open(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        read(&self.files, file, offset, into)
    }

    fn write(&self, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        write(&self.files, file, offset, bytes)
    }

    fn sync(&self, file: FileId) -> io::Result<()> {
        sync(&self.files, file)
    }

    fn sync_names(&self) -> io::Result<()> {
        // The directory by its descriptor: renames and creations are durable with it, even if its path has changed.
        fs::fsync(self.files.dir())?;
        self.files.check_named()
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        if depth == 0 || depth > DEPTH_MAX {
            let what = format!("a queue of depth {depth}: 1 to {DEPTH_MAX} are possible");
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        Ok(if self.uring {
            Box::new(UringQueue::new(self.files.clone(), depth)?)
        } else {
            Box::new(PwriteQueue::new(self.files.clone(), depth))
        })
    }
}

fn read(files: &Files, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    check_aligned(offset, into.len() as u64, into)?;
    let handle = files.handle(file, None)?;
    Ok(rustix::io::retry_on_intr(|| rustix::io::pread(&handle.file, &mut *into, offset))?)
}

pub(super) fn write(files: &Files, file: FileId, offset: u64, bytes: &[u8]) -> io::Result<usize> {
    check_aligned(offset, bytes.len() as u64, bytes)?;
    let handle = files.handle(file, Some((offset, bytes.len())))?;
    Ok(rustix::io::retry_on_intr(|| rustix::io::pwrite(&handle.file, bytes, offset))?)
}

pub(super) fn sync(files: &Files, file: FileId) -> io::Result<()> {
    let handle = files.handle(file, None)?;
    // Data only: files are allocated at their full length, so that no write changes a size that would have to be durable.
    fs::fdatasync(&handle.file)?;
    files.synced(&handle)
}

/// A process that ends lets its devices go a moment later.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// Locks the device for this process and leaves word of it.
fn take_lock(path: &Path, dir: &File) -> io::Result<Locked> {
    let said = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.join(LOCK_FILE).display()));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let open = || fs::openat(dir, LOCK_FILE, flags, mode).map(File::from).map_err(|error| said(error.into()));
    let lock = match Locked::take(open()?, LOCK_WAIT) {
        Ok(lock) => lock,
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            let mut text = [0; 256];
            let length = open()?.read(&mut text).unwrap_or(0);
            let line = text.get(..length).unwrap_or_default().split(|&byte| byte == b'\n').next().unwrap_or_default();
            let holder = String::from_utf8_lossy(line).replace(|letter: char| letter.is_control(), "");
            let holder = if holder.is_empty() { "another process".to_owned() } else { holder };
            let what = format!("{}: the device is in use, perhaps by {holder}", path.display());
            return Err(io::Error::new(ErrorKind::WouldBlock, what));
        }
        Err(error) => return Err(said(error)),
    };
    // On a full disk the block of an earlier life is there already.
    if lock.metadata()?.len() != BLOCK_BYTES as u64 {
        lock.set_len(0)?;
        let empty = fs::FallocateFlags::empty();
        fs::fallocate(&*lock, empty, 0, BLOCK_BYTES as u64).map_err(|error| said(error.into()))?;
    }
    Ok(lock)
}

/// The block of the lock file: who holds it.
fn lock_block() -> Buffer {
    let mut block = Buffer::new(BLOCK_BYTES);
    let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let line = format!("process {} ({})\n", std::process::id(), program.trim());
    for (to, from) in block.iter_mut().zip(line.bytes()) {
        *to = from;
    }
    block
}

/// Writes the lock's block as the containers will be written, and reads it back.
fn probe(files: &Files) -> io::Result<()> {
    let (file, _) = files.open(LOCK_FILE)?;
    let block = lock_block();
    let mut found = Buffer::new(BLOCK_BYTES);
    // Not taken on trust: some file systems accept the flag and then refuse or shift the first transfer.
    let moved = (write(files, file, 0, &block)?, read(files, file, 0, &mut found)?);
    if moved != (BLOCK_BYTES, BLOCK_BYTES) || found[..] != block[..] {
        let what = format!("{}: the first block does not read as it was written", files.path().display());
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    Ok(())
}

/// The same through a ring, with a sync.
fn probe_uring(files: &Arc<Files>) -> io::Result<()> {
    let (file, _) = files.open(LOCK_FILE)?;
    let mut queue = UringQueue::new(files.clone(), 2)?;
    let silent = || io::Error::new(ErrorKind::TimedOut, "the first operation did not end");
    queue.write(0, file, 0, lock_block(), BLOCK_BYTES);
    if queue.complete(PROBE_WAIT).ok_or_else(silent)?.result? != BLOCK_BYTES {
        return Err(io::Error::new(ErrorKind::WriteZero, "the first write was short"));
    }
    queue.sync(1, file);
    queue.complete(PROBE_WAIT).ok_or_else(silent)?.result?;
    Ok(())
}
