//! A queue of writes and syncs over io_uring.
//!
//! *Invariants*: the kernel reads a buffer only while it is in its slot, and no other code has it then; a slot is
//! given out again only after its completion was seen. What the kernel was never seen to finish is leaked, not freed.
//!
//! A queue may move between threads with operations in flight, as its container does. Therefore the ring has no single
//! issuer, which also excludes deferred task work: another thread could not wait for it. Cooperative task work spares the
//! interrupts as well. What a thread left unbegun when it ended is begun again.

#![expect(unsafe_code, reason = "the kernel is given addresses of buffers")]

use super::buffer::Buffer;
use super::device::{Done, FileId, Queue, check_aligned};
use super::files::{Files, Handle};
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a queue that is dropped waits for what is in flight before it leaks the buffers. A caller that needs the
/// result has waited for it before.
const DROP_WAIT: Duration = Duration::from_millis(100);
/// The longest single wait in the kernel.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// The longest single write; what is beyond it makes a short one.
const WRITE_BYTES_MAX: usize = 1 << 30;
/// Pause where the kernel has no room for a submission just now.
const BUSY_PAUSE: Duration = Duration::from_millis(1);
/// How often an operation that was not begun, or was interrupted, is begun again.
const ATTEMPTS: u32 = 16;

/// See the module.
pub(super) struct UringQueue {
    ring: IoUring,
    files: Arc<Files>,
    slots: Vec<Option<Operation>>,
    free: Vec<usize>,
    /// What never reached the kernel.
    ready: VecDeque<Done>,
}

struct Operation {
    tag: u64,
    handle: Handle,
    /// What is written; `None` for a sync.
    write: Option<Write>,
    attempts: u32,
}

struct Write {
    buffer: Buffer,
    offset: u64,
    length: usize,
}

impl UringQueue {
    /// A ring for `depth` operations at a time.
    ///
    /// # Errors
    /// What the system says where it refuses io_uring; `Unsupported` where its version cannot wait with a deadline.
    pub(super) fn new(files: Arc<Files>, depth: usize) -> io::Result<UringQueue> {
        let entries = depth as u32;
        let ring = IoUring::builder()
            // No interrupt for a completion: the thread looks when it waits.
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .dontfork()
            .build(entries)
            // Kernels before 5.19 know neither flag.
            .or_else(|_| IoUring::builder().dontfork().build(entries))?;
        // Without the first a silent device would block the thread forever; without the second completions could be lost.
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(ErrorKind::Unsupported, "this kernel's io_uring cannot wait with a deadline"));
        }
        let slots = (0..depth).map(|_| None).collect();
        Ok(UringQueue { ring, files, slots, free: (0..depth).rev().collect(), ready: VecDeque::new() })
    }

    fn begin(&mut self, operation: Operation) {
        let Some(slot) = self.free.pop() else {
            self.refuse(operation, io::Error::new(ErrorKind::QuotaExceeded, "the queue is full"));
            return;
        };
        if let Some(refused) = self.submit(slot, operation) {
            self.free.push(slot);
            self.refuse(refused, io::Error::other("the ring is full"));
        }
    }

    /// Puts the operation into its slot and before the kernel; answers it back if the ring has no entry left.
    fn submit(&mut self, slot: usize, operation: Operation) -> Option<Operation> {
        // The memory of an operation stays in its slot: an occupied one would be freed while the kernel reads it.
        debug_assert!(self.slots[slot].is_none(), "slot {slot} belongs to an operation in flight");
        let entry = entry(&operation).user_data(slot as u64);
        // SAFETY: the buffer's memory stays where it is, unwritten and unfreed, until this entry's completion empties the
        // slot; `drop` leaks what remains. The descriptor is kept open by the handle beside it.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            return Some(operation);
        }
        self.slots[slot] = Some(operation);
        // Where the kernel is short of memory the entry stays in the ring, and the next wait submits it.
        let _ = self.ring.submit();
        None
    }

    fn refuse(&mut self, operation: Operation, error: io::Error) {
        let buffer = operation.write.map(|write| write.buffer);
        self.ready.push_back(Done { tag: operation.tag, buffer, result: Err(error) });
    }

    /// The next completion that the kernel has reported.
    fn take(&mut self) -> Option<Done> {
        loop {
            let entry = self.ring.completion().next()?;
            let slot = entry.user_data() as usize;
            // The slot is empty from here on: the kernel has said that it reads the buffer no more.
            let Some(mut operation) = self.slots.get_mut(slot).and_then(Option::take) else { continue };
            let result = entry.result();
            if is_unbegun(result, &operation) && operation.attempts < ATTEMPTS {
                operation.attempts += 1;
                match self.submit(slot, operation) {
                    None => continue,
                    Some(left) => operation = left,
                }
            }
            self.free.push(slot);
            let mut result = if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result as usize) };
            // A sync that succeeded on a file without a name is no durability: `synced` looks.
            if operation.write.is_none() && result.is_ok() {
                result = self.files.synced(&operation.handle).map(|()| 0);
            }
            return Some(Done { tag: operation.tag, buffer: operation.write.map(|write| write.buffer), result });
        }
    }

    /// Submits what is in the ring and waits until the kernel has reported something, or until the time is over.
    fn enter(&mut self, wait: Duration) {
        let entered = if wait.is_zero() {
            self.ring.submit()
        } else {
            let wait = Timespec::from(wait.min(WAIT_MAX));
            self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&wait))
        };
        let Err(error) = entered else { return };
        let errno = Errno::from_io_error(&error);
        if !matches!(errno, Some(Errno::TIME | Errno::INTR)) {
            // The kernel is short of memory or its queue is full: both pass by themselves.
            std::thread::sleep(wait.min(BUSY_PAUSE));
        }
    }

    fn in_kernel(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

fn entry(operation: &Operation) -> squeue::Entry {
    let file = Fd(operation.handle.file.as_raw_fd());
    match &operation.write {
        Some(write) => {
            let length = write.length.min(WRITE_BYTES_MAX) as u32;
            opcode::Write::new(file, write.buffer.as_ptr(), length).offset(write.offset).build()
        }
        None => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
    }
}

/// Whether this result says that the operation has not happened, and nothing went wrong: a signal came, or the thread
/// that submitted it ended before the kernel began it.
fn is_unbegun(result: i32, operation: &Operation) -> bool {
    let is = |errno: Errno| result == -errno.raw_os_error();
    is(Errno::INTR) || is(Errno::CANCELED) || (operation.write.is_some() && is(Errno::AGAIN))
}

impl Queue for UringQueue {
    fn write(&mut self, tag: u64, file: FileId, offset: u64, buffer: Buffer, length: usize) {
        let checked =
            check_write(&buffer, offset, length).and_then(|()| self.files.handle(file, Some((offset, length))));
        match checked {
            Ok(handle) => {
                let write = Some(Write { buffer, offset, length });
                self.begin(Operation { tag, handle, write, attempts: 0 });
            }
            Err(error) => self.ready.push_back(Done { tag, buffer: Some(buffer), result: Err(error) }),
        }
    }

    fn sync(&mut self, tag: u64, file: FileId) {
        match self.files.handle(file, None) {
            Ok(handle) => self.begin(Operation { tag, handle, write: None, attempts: 0 }),
            Err(error) => self.ready.push_back(Done { tag, buffer: None, result: Err(error) }),
        }
    }

    fn complete(&mut self, wait: Duration) -> Option<Done> {
        if let Some(done) = self.ready.pop_front() {
            return Some(done);
        }
        let begun = Instant::now();
        while self.in_kernel() > 0 {
            if let Some(done) = self.take() {
                return Some(done);
            }
            let left = wait.saturating_sub(begun.elapsed());
            self.enter(left);
            if left.is_zero() {
                return self.take();
            }
        }
        None
    }

    fn in_flight(&self) -> usize {
        self.in_kernel() + self.ready.len()
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        let begun = Instant::now();
        while self.in_kernel() > 0 && begun.elapsed() < DROP_WAIT {
            self.ready.clear();
            let _ = self.complete(DROP_WAIT.saturating_sub(begun.elapsed()));
        }
        for operation in self.slots.drain(..).flatten() {
            // The kernel may still read it: a leak of a few buffers is better than a write of freed memory to a disk.
            std::mem::forget(operation);
        }
    }
}

/// Whether the first `length` bytes of the buffer can be written at `offset`.
pub(super) fn check_write(buffer: &Buffer, offset: u64, length: usize) -> io::Result<()> {
    let Some(bytes) = buffer.get(..length) else {
        let what = format!("{length} bytes of a buffer of {}", buffer.len());
        return Err(io::Error::new(ErrorKind::InvalidInput, what));
    };
    check_aligned(offset, length as u64, bytes)
}
