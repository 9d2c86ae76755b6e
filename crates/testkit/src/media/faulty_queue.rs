//! The queue of a device with faults.

use super::faulty::{Fault, FaultyDevice, Operation, gone};
use super::unsynced::Ended;
use forebay_media::warm::{BLOCK_BYTES, Buffer, Done, FileId, Queue};
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
    /// What has to wait until its file takes writes again, in order.
    held: VecDeque<Held>,
    /// By the tag that the queue inside knows.
    pending: BTreeMap<u64, Pending>,
}

struct Pending {
    /// The caller's.
    tag: u64,
    what: What,
}

/// An operation that has not reached the device inside.
struct Held {
    tag: u64,
    file: FileId,
    /// Of a write; `None` for a sync.
    bytes: Option<(u64, Buffer, usize)>,
}

enum What {
    /// A write by its number; `None` where it was not noted, because it cannot land.
    Write(Option<u64>),
    Sync(FileId, Ended),
}

impl FaultyQueue {
    pub(super) fn new(device: Arc<FaultyDevice>, inner: Box<dyn Queue>) -> FaultyQueue {
        FaultyQueue { device, inner, ready: VecDeque::new(), begun: 0, held: VecDeque::new(), pending: BTreeMap::new() }
    }

    /// Passes an operation on, or keeps it while its file takes no writes.
    fn pass_on(&mut self, held: Held) {
        if self.device.takes_no_writes(held.file).is_some() {
            self.device.state().held += 1;
            self.held.push_back(held);
        } else {
            self.reach(held);
        }
    }

    /// What was kept goes on where its file takes writes again.
    fn let_go(&mut self) {
        for _ in 0..self.held.len() {
            let Some(held) = self.held.pop_front() else { return };
            self.device.state().held -= 1;
            self.pass_on(held);
        }
    }

    fn reach(&mut self, Held { tag, file, bytes }: Held) {
        let refused = if self.device.is_gone() {
            Some(gone())
        } else {
            self.device.refuses_writes(file).then(|| Errno::IO.into())
        };
        match (refused, bytes) {
            (Some(error), bytes) => self.answer(tag, bytes.map(|(_, buffer, _)| buffer), Err(error)),
            (None, Some((offset, buffer, length))) => {
                let lands = buffer.get(..length).is_some_and(|bytes| bytes.len().is_multiple_of(BLOCK_BYTES));
                let write = if lands { self.device.note(file, offset, length).ok() } else { None };
                let tag = self.keep(tag, What::Write(write));
                self.inner.write(tag, file, offset, buffer, length);
            }
            (None, None) => {
                let ended = self.device.state().writes.ended();
                let tag = self.keep(tag, What::Sync(file, ended));
                self.inner.sync(tag, file);
            }
        }
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
        self.let_go();
        match self.device.meet(Operation::Write) {
            Err(_) => self.answer(tag, Some(buffer), Err(gone())),
            Ok(None | Some(Fault::Stalls(_) | Fault::Vanishes)) => {
                self.pass_on(Held { tag, file, bytes: Some((offset, buffer, length)) });
            }
            Ok(Some(fault)) => {
                let bytes = buffer.get(..length).unwrap_or_default();
                let result = self.device.spoil(fault, file, offset, bytes);
                self.answer(tag, Some(buffer), result);
            }
        }
    }

    fn sync(&mut self, tag: u64, file: FileId) {
        self.let_go();
        match self.device.meet(Operation::Sync) {
            Err(_) => self.answer(tag, None, Err(gone())),
            Ok(Some(Fault::Full)) => self.answer(tag, None, Err(Errno::NOSPC.into())),
            Ok(Some(Fault::Fails)) => {
                let lost = self.device.lose(file).and(Err(Errno::IO.into()));
                self.answer(tag, None, lost);
            }
            Ok(_) => self.pass_on(Held { tag, file, bytes: None }),
        }
    }

    fn complete(&mut self, wait: Duration) -> Option<Done> {
        let begun = Instant::now();
        if self.in_flight() == 0 || self.device.wait_out(wait) {
            return None;
        }
        self.let_go();
        if self.ready.is_empty() && self.inner.in_flight() == 0 {
            let files: Vec<FileId> = self.held.iter().map(|held| held.file).collect();
            self.device.wait_for_writes(&files, wait.saturating_sub(begun.elapsed()));
            self.let_go();
        }
        if let Some(done) = self.ready.pop_front() {
            return Some(done);
        }
        if self.inner.in_flight() == 0 {
            return None;
        }
        let done = self.inner.complete(wait.saturating_sub(begun.elapsed()))?;
        self.returned(done)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.ready.len() + self.held.len()
    }
}

impl Drop for FaultyQueue {
    /// What was begun counts as ended; the queue inside waits for it.
    fn drop(&mut self) {
        let mut state = self.device.state();
        state.held -= self.held.len();
        for pending in self.pending.values() {
            if let What::Write(Some(write)) = pending.what {
                state.writes.end(write);
            }
        }
    }
}
