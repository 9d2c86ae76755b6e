//! A queue of writes and syncs over threads that call `pwrite` and `fdatasync`, where io_uring is refused.
//!
//! *Invariants*: a buffer in flight belongs to its job; a device that never answers keeps one thread and that job, and
//! nobody frees the memory under it.

use super::buffer::Buffer;
use super::device::{Done, FileId, Queue};
use super::directory;
use super::files::Files;
use super::uring::check_write;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Threads of one queue.
const THREADS_MAX: usize = 8;
const STACK_BYTES: usize = 256 << 10;
/// How long a queue that is dropped waits for what is in flight. A caller that needs the result has waited for it before.
const DROP_WAIT: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct PwriteQueue {
    jobs: Arc<JobQueue>,
    depth: usize,
    in_flight: usize,
    threads: usize,
}

struct JobQueue {
    files: Arc<Files>,
    state: Mutex<Jobs>,
    /// There is a job, or the queue is dropped.
    work: Condvar,
    /// There is an answer.
    answer: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    done: VecDeque<Done>,
    idle: usize,
    ended: bool,
}

struct Job {
    tag: u64,
    file: FileId,
    /// Buffer, offset and length; `None` for a sync.
    write: Option<(Buffer, u64, usize)>,
}

impl PwriteQueue {
    pub(super) fn new(files: Arc<Files>, depth: usize) -> PwriteQueue {
        let jobs = JobQueue { files, state: Mutex::new(Jobs::default()), work: Condvar::new(), answer: Condvar::new() };
        PwriteQueue { jobs: Arc::new(jobs), depth, in_flight: 0, threads: 0 }
    }

    fn begin(&mut self, job: Job) {
        let full = self.in_flight >= self.depth;
        self.in_flight += 1;
        let mut state = self.jobs.state.lock();
        if full {
            state.done.push_back(job.fail(io::Error::new(ErrorKind::QuotaExceeded, "the queue is full")));
            return;
        }
        state.waiting.push_back(job);
        if state.idle < state.waiting.len() && self.threads < self.depth.min(THREADS_MAX) {
            let jobs = self.jobs.clone();
            let name = "forebay-pwrite".to_owned();
            match std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || jobs.serve()) {
                Ok(_) => self.threads += 1,
                // The threads that there are will come to it.
                Err(_) if self.threads > 0 => {}
                Err(error) => {
                    let failed = state.waiting.pop_back().map(|job| job.fail(error));
                    state.done.extend(failed);
                }
            }
        }
        drop(state);
        self.jobs.work.notify_one();
    }
}

impl JobQueue {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            let Some(job) = state.waiting.pop_front() else {
                if state.ended {
                    return;
                }
                state.idle += 1;
                self.work.wait(&mut state);
                state.idle -= 1;
                continue;
            };
            // Not held during the call of the system: a device that hangs keeps this thread, not the queue.
            drop(state);
            let done = job.run(&self.files);
            state = self.state.lock();
            state.done.push_back(done);
            self.answer.notify_all();
        }
    }
}

impl Job {
    fn run(self, files: &Files) -> Done {
        match self.write {
            Some((buffer, offset, length)) => {
                let result = check_write(&buffer, offset, length)
                    .and_then(|()| directory::write(files, self.file, offset, &buffer[..length]));
                Done { tag: self.tag, buffer: Some(buffer), result }
            }
            None => {
                let result = directory::sync(files, self.file).map(|()| 0);
                Done { tag: self.tag, buffer: None, result }
            }
        }
    }

    fn fail(self, error: io::Error) -> Done {
        Done { tag: self.tag, buffer: self.write.map(|write| write.0), result: Err(error) }
    }
}

impl Queue for PwriteQueue {
    fn write(&mut self, tag: u64, file: FileId, offset: u64, buffer: Buffer, length: usize) {
        self.begin(Job { tag, file, write: Some((buffer, offset, length)) });
    }

    fn sync(&mut self, tag: u64, file: FileId) {
        self.begin(Job { tag, file, write: None });
    }

    fn complete(&mut self, wait: Duration) -> Option<Done> {
        if self.in_flight == 0 {
            return None;
        }
        let begun = Instant::now();
        let mut state = self.jobs.state.lock();
        loop {
            if let Some(done) = state.done.pop_front() {
                debug_assert!(self.in_flight > 0, "an answer to an operation that never began");
                self.in_flight -= 1;
                return Some(done);
            }
            let left = wait.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return None;
            }
            self.jobs.answer.wait_for(&mut state, left);
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for PwriteQueue {
    fn drop(&mut self) {
        let begun = Instant::now();
        while self.in_flight > 0 && begun.elapsed() < DROP_WAIT {
            let _ = self.complete(DROP_WAIT.saturating_sub(begun.elapsed()));
        }
        self.jobs.state.lock().ended = true;
        self.jobs.work.notify_all();
    }
}
