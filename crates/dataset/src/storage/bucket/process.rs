//! What belongs to one process: the runtime that drives requests, connections, locks. A child that was forked has the memory
//! of its parent but none of its threads: it makes its own, and leaves the parent's alone.
//!
//! ```text
//! PerProcess ─▶ entry of the parent ─▶ entry of its child ─▶ …      each with a process id
//! ```
//!
//! *Invariants*: an entry is never touched by another process, not even dropped there: its locks may be held by threads that
//! only the parent has, and its sockets carry the parent's requests. The list itself has no lock that a fork could leave held.

use forebay_core::{Error, Result};
use std::future::Future;
use std::sync::OnceLock;
use std::sync::mpsc;
use tokio::runtime::{Builder, Runtime};

/// Threads for requests. One is enough for sockets; more take part in the checksums of what is put.
const THREADS_MAX: usize = 4;

/// A value for each process that uses it.
pub(super) struct PerProcess<T> {
    first: OnceLock<Box<Entry<T>>>,
}

struct Entry<T> {
    process: u32,
    value: T,
    next: OnceLock<Box<Entry<T>>>,
}

impl<T> PerProcess<T> {
    pub(super) const fn new() -> PerProcess<T> {
        PerProcess { first: OnceLock::new() }
    }

    /// This process's value, made where there is none.
    pub(super) fn get(&self, make: impl Fn() -> Result<T>) -> Result<&T> {
        let process = std::process::id();
        let mut place = &self.first;
        loop {
            if let Some(entry) = place.get() {
                if entry.process == process {
                    return Ok(&entry.value);
                }
                place = &entry.next;
                continue;
            }
            // Made before it is set, not within: a fork in the middle would leave the place blocked for ever. Where another
            // thread was first, its value is found in the next round.
            place.set(Box::new(Entry { process, value: make()?, next: OnceLock::new() })).ok();
        }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let process = std::process::id();
        let mut next = self.first.take();
        while let Some(entry) = next {
            let Entry { process: of, value, next: mut after } = *entry;
            if of != process {
                std::mem::forget(value);
            }
            next = after.take();
        }
    }
}

/// Runs a future on the threads of this process and waits for it. The caller may itself be a thread of a runtime.
pub(super) fn run<T: Send + 'static>(future: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    static RUNTIME: PerProcess<Runtime> = PerProcess::new();
    let make = || {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let runtime =
            Builder::new_multi_thread().worker_threads(threads).thread_name("forebay-s3").enable_all().build();
        runtime.map_err(|error| Error::unavailable("cannot start threads for requests").with_source(error))
    };
    let (answer, answers) = mpsc::sync_channel(1);
    RUNTIME.get(make)?.spawn(async move { answer.send(future.await).ok() });
    answers.recv().map_err(|_| Error::internal("a request of S3 ended without an answer"))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn many_threads_get_one_value() {
        let value = PerProcess::new();
        let made = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| value.get(|| Ok(made.fetch_add(1, Ordering::Relaxed))).unwrap());
            }
        });
        let first = value.get(|| Ok(100)).unwrap();
        assert!(*first < made.load(Ordering::Relaxed));
    }

    #[test]
    fn a_request_that_panics_is_an_error() {
        let error = run::<()>(async { panic!("as asked") }).unwrap_err();
        assert_eq!(error.kind(), forebay_core::Kind::Internal);
    }
}
