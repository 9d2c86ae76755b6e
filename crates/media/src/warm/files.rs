//! The open files of one directory: names to numbers, and a bounded number of descriptors.
//!
//! *Invariants*: all names are looked up from the one directory descriptor, so a directory that is renamed stays the
//! same device and one that is removed is noticed; nothing is written past a file's length; a file that was written and
//! not synced keeps its descriptor, because the kernel reports a failed write-back per descriptor.
//!
//! *On failure*: a creation that does not find its space leaves no file; one that is cut off leaves a name that ends in
//! [`UNFINISHED`], which the next opening removes.

use super::device::{FileId, check_aligned};
use crate::locked::Locked;
use parking_lot::Mutex;
use rustix::fs::{self, AtFlags, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Descriptors that one device keeps open at a time. A device may have thousands of containers, a process often only
/// 1024 descriptors.
const OPEN_MAX: usize = 128;
/// How the name of a file ends that is not allocated yet.
const UNFINISHED: &str = ".new";

/// The files of one directory.
pub(super) struct Files {
    path: PathBuf,
    dir: File,
    /// Held as long as anything uses the files, a queue included; or until the store is done.
    lock: Arc<Locked>,
    direct: bool,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    entries: Vec<Entry>,
    by_name: BTreeMap<String, u32>,
    open: usize,
    uses: u64,
}

struct Entry {
    name: String,
    length: u64,
    file: Option<Arc<File>>,
    last_use: u64,
    writes: u64,
    synced: u64,
    removed: bool,
}

/// An open file, for one operation.
#[derive(Clone)]
pub(super) struct Handle {
    pub(super) file: Arc<File>,
    id: FileId,
    /// Writes that had begun when this handle was taken.
    writes: u64,
}

impl Files {
    pub(super) fn new(path: &Path, dir: File, lock: Arc<Locked>, direct: bool) -> Files {
        Files { path: path.to_owned(), dir, lock, direct, table: Mutex::new(Table::default()) }
    }

    /// Explicitly: a child that another thread forks shares the descriptor until it executes its program, and closing here
    /// would leave the lock with it.
    pub(super) fn unlock(&self) {
        let _ = fs::flock(&**self.lock, FlockOperation::Unlock);
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn dir(&self) -> &File {
        &self.dir
    }

    pub(super) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Names of the plain files, without the unfinished ones, in order.
    pub(super) fn list(&self) -> io::Result<Vec<String>> {
        self.check_named()?;
        let mut names = self.entries()?;
        names.retain(|name| !name.ends_with(UNFINISHED));
        names.sort();
        Ok(names)
    }

    /// Removes what cut-off creations left.
    pub(super) fn remove_unfinished(&self) -> io::Result<()> {
        for name in self.entries()?.iter().filter(|name| name.ends_with(UNFINISHED)) {
            fs::unlinkat(&self.dir, name.as_str(), AtFlags::empty()).map_err(|error| self.said(name, error))?;
        }
        Ok(())
    }

    fn entries(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.dir).map_err(|error| self.said("", error))? {
            let entry = entry.map_err(|error| self.said("", error))?;
            // Names that are not text are nobody's of ours.
            let Ok(name) = entry.file_name().to_str() else { continue };
            let plain = match entry.file_type() {
                FileType::RegularFile => true,
                FileType::Unknown => fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile),
                _ => false,
            };
            if plain {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Bytes that could still be allocated; `u64::MAX` where the file system knows no limit.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        let stat = fs::fstatvfs(&self.dir).map_err(|error| self.said("", error))?;
        Ok(if stat.f_blocks == 0 { u64::MAX } else { stat.f_bavail.saturating_mul(stat.f_frsize) })
    }

    pub(super) fn create(&self, name: &str, bytes: u64) -> io::Result<FileId> {
        check_name(name)?;
        self.check_named()?;
        if bytes == 0 || check_aligned(0, bytes, &[]).is_err() {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("{name}: {bytes} bytes are not whole blocks")));
        }
        let mut table = self.table.lock();
        if fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(self.said(name, Errno::EXIST));
        }
        let full = || {
            let free = self.free_bytes().unwrap_or(0);
            let what = format!("{}: {name} wants {bytes} bytes, {free} are free", self.path.display());
            io::Error::new(ErrorKind::StorageFull, what)
        };
        // Asked before, so that a creation that cannot succeed does not fill the disk for others meanwhile.
        if self.free_bytes()? < bytes {
            return Err(full());
        }
        // Under another name until all of it is allocated: a container that is shorter than its size would fail at a write
        // that was promised space.
        let unfinished = format!("{name}{UNFINISHED}");
        let file = self.open_file(&unfinished, OFlags::CREATE | OFlags::TRUNC)?;
        let made = loop {
            match fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
                Err(Errno::INTR) => {}
                Ok(()) => break fs::renameat(&self.dir, unfinished.as_str(), &self.dir, name),
                failed => break failed,
            }
        };
        if let Err(error) = made {
            let _ = fs::unlinkat(&self.dir, unfinished.as_str(), AtFlags::empty());
            return Err(if error == Errno::NOSPC { full() } else { self.said(name, error) });
        }
        Ok(table.add(name, bytes, file))
    }

    pub(super) fn open(&self, name: &str) -> io::Result<(FileId, u64)> {
        check_name(name)?;
        let mut table = self.table.lock();
        if let Some(&id) = table.by_name.get(name)
            && let Some(entry) = table.entries.get(id as usize)
        {
            return Ok((FileId(id), entry.length));
        }
        let file = self.open_file(name, OFlags::empty())?;
        let length = fs::fstat(&file).map_err(|error| self.said(name, error))?.st_size as u64;
        Ok((table.add(name, length, file), length))
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        let mut table = self.table.lock();
        fs::unlinkat(&self.dir, name, AtFlags::empty()).map_err(|error| self.said(name, error))?;
        table.forget(name);
        Ok(())
    }

    /// The file for an operation; `write` gives offset and length of a write, which must lie within the file.
    pub(super) fn handle(&self, id: FileId, write: Option<(u64, usize)>) -> io::Result<Handle> {
        // Guards names and numbers. A file is opened again under it, which is a lookup in a directory that the kernel knows.
        let mut table = self.table.lock();
        table.uses += 1;
        let now = table.uses;
        let entry = table.entry(id)?;
        if let Some((offset, bytes)) = write {
            if offset.checked_add(bytes as u64).is_none_or(|end| end > entry.length) {
                let what = format!("{}: {bytes} bytes at {offset} of {}", entry.name, entry.length);
                return Err(io::Error::new(ErrorKind::InvalidInput, what));
            }
            entry.writes += 1;
        }
        // With the handle: a sync through it answers for the writes that had begun by now.
        entry.last_use = now;
        let writes = entry.writes;
        if let Some(file) = &entry.file {
            return Ok(Handle { file: file.clone(), id, writes });
        }
        let file = Arc::new(self.open_file(&entry.name, OFlags::empty())?);
        entry.file = Some(file.clone());
        table.open += 1;
        table.close_some();
        Ok(Handle { file, id, writes })
    }

    /// To be called when a sync through the handle has returned well.
    ///
    /// # Errors
    /// `NotFound` where the file has lost its name meanwhile: what was written will be gone with its descriptor.
    pub(super) fn synced(&self, handle: &Handle) -> io::Result<()> {
        let stat = fs::fstat(&handle.file)?;
        let mut table = self.table.lock();
        let entry = table.entry(handle.id)?;
        // The sync succeeded, on a file that no opening will find: that is not durable.
        if stat.st_nlink == 0 {
            let what = format!("{}: {} was removed by somebody else", self.path.display(), entry.name);
            return Err(io::Error::new(ErrorKind::NotFound, what));
        }
        // Only writes that had begun before the sync: a later one may have failed since, and its descriptor must stay open
        // until a sync has reported that.
        debug_assert!(handle.writes <= entry.writes, "a sync of writes that never began");
        entry.synced = entry.synced.max(handle.writes);
        Ok(())
    }

    /// Whether the directory itself is still there.
    pub(super) fn check_named(&self) -> io::Result<()> {
        let stat = fs::fstat(&self.dir).map_err(|error| self.said("", error))?;
        if stat.st_nlink == 0 {
            let what = format!("{}: the directory was removed by somebody else", self.path.display());
            return Err(io::Error::new(ErrorKind::NotFound, what));
        }
        Ok(())
    }

    fn open_file(&self, name: &str, more: OFlags) -> io::Result<File> {
        let direct = if self.direct { OFlags::DIRECT } else { OFlags::empty() };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | direct | more;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        fs::openat(&self.dir, name, flags, mode).map(File::from).map_err(|error| self.said(name, error))
    }

    fn said(&self, name: &str, error: Errno) -> io::Error {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{}: {error}", self.path.join(name).display()))
    }
}

impl Table {
    fn add(&mut self, name: &str, length: u64, file: File) -> FileId {
        let id = self.entries.len() as u32;
        self.uses += 1;
        self.entries.push(Entry {
            name: name.to_owned(),
            length,
            file: Some(Arc::new(file)),
            last_use: self.uses,
            writes: 0,
            synced: 0,
            removed: false,
        });
        self.by_name.insert(name.to_owned(), id);
        self.open += 1;
        self.close_some();
        FileId(id)
    }

    fn forget(&mut self, name: &str) {
        if let Some(id) = self.by_name.remove(name)
            && let Some(entry) = self.entries.get_mut(id as usize)
        {
            entry.removed = true;
            self.open -= usize::from(entry.file.take().is_some());
        }
    }

    fn entry(&mut self, id: FileId) -> io::Result<&mut Entry> {
        self.entries
            .get_mut(id.0 as usize)
            .filter(|entry| !entry.removed)
            .ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("file {} of a device is none", id.0)))
    }

    /// Closes what was used longest ago until the bound holds. What is in use or waits for a sync stays.
    fn close_some(&mut self) {
        debug_assert_eq!(self.open, self.entries.iter().filter(|entry| entry.file.is_some()).count());
        while self.open > OPEN_MAX {
            let idle = self.entries.iter_mut().filter(|entry| {
                entry.writes == entry.synced && entry.file.as_ref().is_some_and(|file| Arc::strong_count(file) == 1)
            });
            let Some(entry) = idle.min_by_key(|entry| entry.last_use) else { return };
            // The youngest is the one that was just opened for somebody.
            if entry.last_use == self.uses {
                return;
            }
            entry.file = None;
            self.open -= 1;
        }
    }
}

fn check_name(name: &str) -> io::Result<()> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') || name.ends_with(UNFINISHED) {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("`{name}` cannot name a file of a device")));
    }
    Ok(())
}
