//! The queue of a device with faults.

use super::faulty::{Fault, FaultyDevice, Operation, gone};
use super::unsynced::Ended;
use crate::warm::{BLOCK_BYTES, Buffer, Done, FileId, Queue};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What does not reach the device inside is answered from here, spoilt.
pub(super) struct FaultyQueue {
    device: Arc<FaultyDevice>,
    inner: Box<dyn Queue>,
    ready: VecDeque<Done>,
    begun: u64,
    /// By the tag that the queue inside knows.
    pending: BTreeMap<u64, Pending>,
}

struct Pending {
    /// The caller's.
    tag: u64,
    what: What,
}

enum What {
    /// A write by its number; `None` where it was not noted, because it cannot land.
    Write(Option<u64>),
    Sync(FileId, Ended),
}

impl FaultyQueue {
    pub(super) fn new(device: Arc<FaultyDevice>, inner: Box<dyn Queue>) -> FaultyQueue {
        FaultyQueue { device, inner, ready: VecDeque::new(), begun: 0, pending: BTreeMap::new() }
    }

    fn answer(&mut self, tag: u64, buffer: Option<Buffer>, result: io::Result<usize>) {
        self.ready.push_back(Done { tag, buffer, result });
    }

    fn keep(&mut self, tag: u64, what: What) -> u64 {
        self.begun += 1;
        self.pending.insert(self.begun, Pending { tag, what });
        self.begun
    }

    /// What the device inside has completed, under the caller's tag.
    fn returned(&mut self, done: Done) -> Option<Done> {
        let Pending { tag, what } = self.pending.remove(&done.tag)?;
        match what {
            What::Write(Some(write)) => self.device.state().writes.end(write),
            What::Sync(file, ended) if done.result.is_ok() => self.device.synced(file, &ended),
            _ => {}
        }
        let result = if self.device.is_gone() { Err(Errno::IO.into()) } else { done.result };
        Some(Done { tag, buffer: done.buffer, result })
    }
}

impl Queue for FaultyQueue {
    fn write(&mut self, tag: u64, file: FileId, offset: u64, buffer: Buffer, length: usize) {
        let lands = buffer.get(..length).is_some_and(|bytes| bytes.len().is_multiple_of(BLOCK_BYTES));
        match self.device.meet(Operation::Write) {
            Err(_) => self.answer(tag, Some(buffer), Err(gone())),
            Ok(None | Some(Fault::Stalls(_) | Fault::Vanishes)) => {
                let write = if lands { self.device.note(file, offset, length).ok() } else { None };
                let tag = self.keep(tag, What::Write(write));
                self.inner.write(tag, file, offset, buffer, length);
            }
            Ok(Some(fault)) => {
                let bytes = buffer.get(..length).unwrap_or_default();
                let result = self.device.spoil(fault, file, offset, bytes);
                self.answer(tag, Some(buffer), result);
            }
        }
    }

    fn sync(&mut self, tag: u64, file: FileId) {
        match self.device.meet(Operation::Sync) {
            Err(_) => self.answer(tag, None, Err(gone())),
            Ok(Some(Fault::Full)) => self.answer(tag, None, Err(Errno::NOSPC.into())),
            Ok(Some(Fault::Fails)) => {
                let lost = self.device.lose(file).and(Err(Errno::IO.into()));
                self.answer(tag, None, lost);
            }
            Ok(_) => {
                let ended = self.device.state().writes.ended();
                let tag = self.keep(tag, What::Sync(file, ended));
                self.inner.sync(tag, file);
            }
        }
    }

    fn complete(&mut self, wait: Duration) -> Option<Done> {
        let begun = Instant::now();
        if self.in_flight() == 0 || self.device.wait_out(wait) {
            return None;
        }
        if let Some(done) = self.ready.pop_front() {
            return Some(done);
        }
        let done = self.inner.complete(wait.saturating_sub(begun.elapsed()))?;
        self.returned(done)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.ready.len()
    }
}

impl Drop for FaultyQueue {
    /// What was begun counts as ended; the queue inside waits for it.
    fn drop(&mut self) {
        let mut state = self.device.state();
        for pending in self.pending.values() {
            if let What::Write(Some(write)) = pending.what {
                state.writes.end(write);
            }
        }
    }
}
