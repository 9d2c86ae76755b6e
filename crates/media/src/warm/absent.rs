//! Devices that take nothing: one that is not there and whose loss is accepted, and the queue of all that refuse.

use super::buffer::Buffer;
use super::device::{Device, Done, FileId, Queue};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// A queue in which every write fails, and every sync ends as it is told to.
pub struct RefusingQueue {
    done: VecDeque<Done>,
    why: fn() -> io::Error,
    syncs: bool,
}

impl RefusingQueue {
    /// Writes fail with what `why` answers; syncs as well, unless they have nothing to do.
    pub fn new(why: fn() -> io::Error, syncs: bool) -> RefusingQueue {
        RefusingQueue { done: VecDeque::new(), why, syncs }
    }
}

impl Queue for RefusingQueue {
    fn write(&mut self, tag: u64, _: FileId, _: u64, buffer: Buffer, _: usize) {
        self.done.push_back(Done { tag, buffer: Some(buffer), result: Err((self.why)()) });
    }

    fn sync(&mut self, tag: u64, _: FileId) {
        // A full device has nothing to write back: a sync of it succeeds, and says nothing about writes that were refused.
        let result = if self.syncs { Ok(0) } else { Err((self.why)()) };
        self.done.push_back(Done { tag, buffer: None, result });
    }

    fn complete(&mut self, _: Duration) -> Option<Done> {
        self.done.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}

/// A device that is not there.
pub struct AbsentDevice {
    name: String,
}

impl AbsentDevice {
    /// A device of this name that is not there.
    pub fn new(name: String) -> AbsentDevice {
        AbsentDevice { name }
    }
}

fn absent() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the device is not there")
}

impl Device for AbsentDevice {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn method(&self) -> String {
        "missing".to_owned()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Err(absent())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Err(absent())
    }

    fn create(&self, _: &str, _: u64) -> io::Result<FileId> {
        Err(absent())
    }

    fn open(&self, _: &str) -> io::Result<(FileId, u64)> {
        Err(absent())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(absent())
    }

    fn read(&self, _: FileId, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Err(absent())
    }

    fn write(&self, _: FileId, _: u64, _: &[u8]) -> io::Result<usize> {
        Err(absent())
    }

    fn sync(&self, _: FileId) -> io::Result<()> {
        Err(absent())
    }

    fn sync_names(&self) -> io::Result<()> {
        Err(absent())
    }

    fn queue(&self, _: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(RefusingQueue::new(absent, false)))
    }
}
