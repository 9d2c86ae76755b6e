//! Writing and syncing with a deadline: the queue of one log, and the commit that it carries out.
//!
//! *Invariants*: one operation is in flight at a time; a sync begins only after the whole of the write completed; what an
//! earlier caller left in flight has ended before anything else begins (`settle`).

use crate::warm::{BLOCK_BYTES, Buffer, Device, FileId, Queue};
use std::io;
use std::time::Instant;

/// Times in a row that a device may answer a write with less than one block.
const IDLE_WRITES_MAX: u32 = 16;

/// How far it came.
#[derive(Debug)]
pub(super) enum Step {
    /// Everything is durable.
    Done,
    /// The deadline came first; the same can be gone on with later.
    Late,
    /// The device refused; nothing of it counts.
    Failed(String),
}

/// The queue of one log.
pub(super) struct Io {
    queue: Box<dyn Queue>,
    tag: u64,
}

impl Io {
    pub(super) fn new(device: &dyn Device) -> io::Result<Io> {
        Ok(Io { queue: device.queue(1)?, tag: 0 })
    }

    /// Waits for what an earlier caller left in flight; whether it has ended.
    pub(super) fn settle(&mut self, deadline: Instant) -> bool {
        while self.queue.in_flight() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.queue.complete(left).is_none() && left.is_zero() {
                return false;
            }
        }
        true
    }
}

/// Bytes on their way to a file, then its sync.
pub(super) struct Transfer {
    file: FileId,
    offset: u64,
    buffer: Option<Buffer>,
    length: usize,
    written: usize,
    idle: u32,
    /// The operation in flight.
    tag: Option<u64>,
    sync: bool,
}

impl Transfer {
    /// Writes the first `length` bytes of `buffer`, then makes the file durable if `sync` says so.
    pub(super) fn new(file: FileId, offset: u64, buffer: Buffer, length: usize, sync: bool) -> Transfer {
        debug_assert!(length.is_multiple_of(BLOCK_BYTES) && length <= buffer.len());
        Transfer { file, offset, buffer: Some(buffer), length, written: 0, idle: 0, tag: None, sync }
    }

    /// The buffer, for another use.
    pub(super) fn into_buffer(self) -> Option<Buffer> {
        self.buffer
    }

    /// Goes on until it is done, refused or late.
    pub(super) fn drive(&mut self, io: &mut Io, deadline: Instant) -> Step {
        loop {
            let tag = match self.tag {
                Some(tag) => tag,
                None if self.written == self.length && !self.sync => return Step::Done,
                None if !io.settle(deadline) => return Step::Late,
                None => self.begin(io),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(done) = io.queue.complete(left) else {
                if io.queue.in_flight() == 0 {
                    return Step::Failed("the queue forgot an operation".to_owned());
                }
                if left.is_zero() {
                    return Step::Late;
                }
                continue;
            };
            // The answer to an operation of a caller that gave up: `settle` waits for it before another one begins.
            if done.tag != tag {
                continue;
            }
            self.tag = None;
            if let Some(step) = self.ended(done.buffer, done.result) {
                return step;
            }
        }
    }

    fn begin(&mut self, io: &mut Io) -> u64 {
        // One at a time: a sync that is queued beside its write says nothing about that write.
        debug_assert_eq!(io.queue.in_flight(), 0, "an operation begins beside another one");
        io.tag += 1;
        match self.buffer.take_if(|_| self.written < self.length) {
            Some(buffer) => {
                let offset = self.offset + self.written as u64;
                io.queue.write(io.tag, self.file, offset, buffer, self.length - self.written);
            }
            None => {
                debug_assert_eq!(self.written, self.length, "a sync before all of the write has completed");
                io.queue.sync(io.tag, self.file);
            }
        }
        self.tag = Some(io.tag);
        io.tag
    }

    fn ended(&mut self, buffer: Option<Buffer>, result: io::Result<usize>) -> Option<Step> {
        if self.written == self.length {
            return Some(match result {
                Ok(_) => Step::Done,
                Err(error) => Step::Failed(format!("the sync failed: {error}")),
            });
        }
        self.buffer = buffer;
        let moved = match result {
            // Whole blocks only: the rest of a block that was written in part is written again from its beginning.
            Ok(bytes) => bytes.min(self.length - self.written) / BLOCK_BYTES * BLOCK_BYTES,
            Err(error) => return Some(Step::Failed(format!("the write failed: {error}"))),
        };
        self.idle = if moved == 0 { self.idle + 1 } else { 0 };
        if self.idle == IDLE_WRITES_MAX {
            return Some(Step::Failed("the device writes nothing and says nothing".to_owned()));
        }
        self.written += moved;
        let Some(buffer) = &mut self.buffer else {
            return Some(Step::Failed("the queue kept a buffer".to_owned()));
        };
        // What is left moves to the buffer's beginning, where the queue writes from.
        if moved > 0 && self.written < self.length {
            buffer.copy_within(moved..moved + self.length - self.written, 0);
        }
        None
    }
}
