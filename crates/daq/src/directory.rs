//! The directory of a scenario's data: the one that the user named, or a temporary one that ends with the scenario.
//!
//! *Lifecycle*: made → used → removed, also when the scenario fails or is stopped; kept where stored bytes did not verify,
//! because they are the evidence.
//!
//! *On failure*: `Unavailable` that names each place that was tried and what it lacks.

use crate::figures::bytes;
use forebay_core::{Error, Kind, Result};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Room beside the hot level: superblock, keyspace file, file system's own.
const SLACK_BYTES: u64 = 8 << 20;
/// Directory names to try before giving up.
const NAMES: u32 = 1000;

/// A directory for one store.
pub(crate) struct Directory {
    path: PathBuf,
    ours: bool,
}

impl Directory {
    /// The directory given, or a fresh one in shared memory or the temporary directory with room for `hot_bytes`.
    pub(crate) fn prepare(given: Option<&Path>, hot_bytes: u64) -> Result<Directory> {
        let needed = hot_bytes.saturating_add(SLACK_BYTES);
        if let Some(path) = given {
            let room = room(path.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new(".")));
            if let Some(room) = room.filter(|room| *room < needed) {
                return Err(Error::unavailable(format!(
                    "{}: {} free, {} needed: lower the hot bytes or name another directory",
                    path.display(),
                    bytes(room),
                    bytes(needed)
                )));
            }
            return Ok(Directory { path: path.to_owned(), ours: false });
        }
        let memory = memory_free().filter(|free| *free < needed.saturating_add(needed / 8));
        let mut lacks = Vec::new();
        match memory {
            Some(free) => lacks.push(format!("shared memory: {} of memory available", bytes(free))),
            None => match fresh(Path::new("/dev/shm"), needed) {
                Ok(directory) => return Ok(directory),
                Err(lack) => lacks.push(lack),
            },
        }
        match fresh(&std::env::temp_dir(), needed) {
            Ok(directory) => return Ok(directory),
            Err(lack) => lacks.push(lack),
        }
        let message = format!("no room for a store of {}: {}", bytes(needed), lacks.join("; "));
        Err(Error::unavailable(format!("{message}; lower the hot bytes or name a directory")))
    }

    /// Runs a scenario in a directory, which is kept and named where bytes that were read are not those that were put.
    ///
    /// # Errors
    /// `Unavailable` where no directory has room, and those of the scenario.
    pub(crate) fn with<T>(
        given: Option<&Path>,
        hot_bytes: u64,
        scenario: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        let mut directory = Directory::prepare(given, hot_bytes)?;
        match scenario(directory.path()) {
            Ok(summary) => directory.remove().map(|()| summary),
            Err(error) if error.kind() == Kind::Corrupt => {
                // The bytes are the evidence.
                directory.keep();
                let place = directory.path().display();
                Err(Error::corrupt(format!("{}; the data is kept in {place}", error.message())))
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the directory where it is.
    fn keep(&mut self) {
        self.ours = false;
    }

    /// Removes the directory if the scenario made it.
    pub(crate) fn remove(mut self) -> Result<()> {
        if !std::mem::take(&mut self.ours) {
            return Ok(());
        }
        fs::remove_dir_all(&self.path)
            .map_err(|error| Error::unavailable(format!("remove {}", self.path.display())).with_source(error))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.ours {
            // On the way out of another failure, which is the one to report.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// A new private directory in `parent`, or what the parent lacks.
fn fresh(parent: &Path, needed: u64) -> std::result::Result<Directory, String> {
    let place = parent.display();
    match room(parent) {
        Some(room) if room < needed => return Err(format!("{place}: {} free", bytes(room))),
        None => return Err(format!("{place}: not there")),
        Some(_) => {}
    }
    for n in 0..NAMES {
        let path = parent.join(format!("forebay-demo-{}-{n}", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(Directory { path, ours: true }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("{place}: {error}")),
        }
    }
    Err(format!("{place}: {NAMES} demos are there already"))
}

/// Bytes free for us on the file system of a directory; `None` where it cannot be asked.
fn room(path: &Path) -> Option<u64> {
    let file_system = rustix::fs::statvfs(path).ok()?;
    Some(file_system.f_bavail.saturating_mul(file_system.f_frsize))
}

/// Memory that the machine can give without swapping, in bytes; `None` where it does not say.
fn memory_free() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_is_private_and_goes_away() {
        let one = Directory::prepare(None, 1 << 20).unwrap();
        let other = Directory::prepare(None, 1 << 20).unwrap();
        assert_ne!(one.path(), other.path());
        fs::write(one.path().join("hot.fb"), b"bytes").unwrap();
        let (first, second) = (one.path().to_owned(), other.path().to_owned());
        one.remove().unwrap();
        drop(other);
        assert!(!first.exists() && !second.exists());
    }

    #[test]
    fn a_given_or_kept_directory_stays() {
        let mut ours = Directory::prepare(None, 1 << 20).unwrap();
        let path = ours.path().to_owned();
        let given = Directory::prepare(Some(&path), 1 << 20).unwrap();
        given.remove().unwrap();
        assert!(path.is_dir());
        ours.keep();
        drop(ours);
        assert!(path.is_dir());
        fs::remove_dir(path).unwrap();
    }

    #[test]
    fn no_room_is_said_for_every_place() {
        let error = Directory::prepare(None, 1 << 60).err().unwrap();
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.message().contains("free") || error.message().contains("available"), "{error}");
        let error = Directory::prepare(Some(&std::env::temp_dir().join("not-yet/there")), 1 << 60).err().unwrap();
        assert!(error.message().contains("not-yet/there"), "{error}");
    }
}
