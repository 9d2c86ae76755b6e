//! Devices that are read and never written, even if an opening would have something to finish on them.

use crate::config::WarmDevice;
use crate::levels;
use forebay_core::Result;
use forebay_media::warm::{Device, FileId, Queue, RefusingQueue};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The devices of the store in a directory, none of which can be written.
///
/// # Errors
/// `Unavailable` where one is not there, or somebody else has it; `Invalid` where its list cannot be read.
pub(super) fn devices(dir: &Path) -> Result<Vec<WarmDevice>> {
    let devices = levels::devices_of(dir)?;
    Ok(devices.into_iter().map(|inner| WarmDevice::device(Arc::new(ReadOnly { inner }), 0)).collect())
}

struct ReadOnly {
    inner: Arc<dyn Device>,
}

fn why() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "a check writes nothing")
}

fn refused<T>() -> io::Result<T> {
    Err(why())
}

impl Device for ReadOnly {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn method(&self) -> String {
        self.inner.method()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.inner.free_bytes()
    }

    fn create(&self, _: &str, _: u64) -> io::Result<FileId> {
        refused()
    }

    fn open(&self, name: &str) -> io::Result<(FileId, u64)> {
        self.inner.open(name)
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.inner.read(file, offset, into)
    }

    fn write(&self, _: FileId, _: u64, _: &[u8]) -> io::Result<usize> {
        refused()
    }

    /// There is nothing of ours to be made durable.
    fn sync(&self, _: FileId) -> io::Result<()> {
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }

    fn queue(&self, _: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(RefusingQueue::new(why, true)))
    }
}
