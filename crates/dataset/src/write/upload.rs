//! The thread of a writer that puts objects and keeps the heartbeat.

use super::announce::Announcement;
use crate::root::object;
use crate::storage::Storage;
use bytes::Bytes;
use forebay_core::{Error, Result};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

/// What the thread is asked.
enum Ask {
    /// Put these objects.
    Put(Vec<(u32, Bytes)>),
    /// Say how it went until now, and beat.
    Settle(SyncSender<Result<()>>),
    /// Take the announcement back.
    End,
}

/// Puts objects beside the encoding of the next batch.
pub(super) struct Uploader {
    asks: Option<SyncSender<Ask>>,
    thread: Option<JoinHandle<()>>,
    /// The next object's number.
    next: u32,
}

impl std::fmt::Debug for Uploader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Uploader(next {})", self.next)
    }
}

impl Uploader {
    pub(super) fn start(
        storage: Arc<dyn Storage>,
        announcement: Announcement,
        heartbeat: Duration,
    ) -> Result<Uploader> {
        // One batch may wait while the thread puts another.
        let (asks, asked) = mpsc::sync_channel(0);
        let thread = std::thread::Builder::new()
            .name("forebay-upload".into())
            .spawn(move || run(storage.as_ref(), announcement, heartbeat, &asked))
            .map_err(|error| Error::unavailable("no thread to upload").with_source(error))?;
        Ok(Uploader { asks: Some(asks), thread: Some(thread), next: 0 })
    }

    /// Takes the number of the next object.
    pub(super) fn number(&mut self) -> Result<u32> {
        let number = self.next;
        self.next = number.checked_add(1).ok_or_else(|| Error::full("a writer has at most 2^32 objects"))?;
        Ok(number)
    }

    /// Hands objects over; returns when the thread has taken them.
    pub(super) fn put(&mut self, objects: Vec<(u32, Vec<u8>)>) -> Result<()> {
        self.ask(Ask::Put(objects.into_iter().map(|(number, bytes)| (number, bytes.into())).collect()))
    }

    /// Waits until everything that was handed over is durable, and the writer is known to be alive.
    pub(super) fn settle(&self) -> Result<()> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.ask(Ask::Settle(answer))?;
        answered.recv().map_err(|_| gone())?
    }

    /// Takes the announcement back, after a commit.
    pub(super) fn end(&self) -> Result<()> {
        self.ask(Ask::End)
    }

    fn ask(&self, ask: Ask) -> Result<()> {
        self.asks.as_ref().and_then(|asks| asks.send(ask).ok()).ok_or_else(gone)
    }
}

impl Drop for Uploader {
    /// Waits for the put under way: an object that is written after its writer is gone would be one that `gc` may have removed already.
    fn drop(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by its calls.
            let _ = thread.join();
        }
    }
}

fn gone() -> Error {
    Error::internal("the uploading thread is gone")
}

fn run(storage: &dyn Storage, mut announcement: Announcement, heartbeat: Duration, asked: &mpsc::Receiver<Ask>) {
    let mut state: Result<()> = Ok(());
    let mut ended = false;
    loop {
        match asked.recv_timeout(heartbeat) {
            Ok(Ask::Put(objects)) => {
                if state.is_ok() {
                    state = put(storage, &mut announcement, objects);
                }
            }
            Ok(Ask::Settle(answer)) => {
                if state.is_ok() && !ended {
                    state = announcement.beat(storage);
                }
                let said = match &state {
                    Ok(()) => Ok(()),
                    // The error stays: what failed is not written, whatever is asked next.
                    Err(error) => Err(Error::new(error.kind(), error.to_string())),
                };
                // Nobody waits for the answer of a writer that was dropped.
                let _ = answer.send(said);
            }
            Ok(Ask::End) => {
                // What stays is removed by `gc`, which sees that the root names the prefix.
                let _ = announcement.end(storage);
                ended = true;
            }
            Err(RecvTimeoutError::Timeout) => {
                // A heartbeat that is late is repeated at the next one; one that is refused ends the writer.
                if let (true, Err(error)) = (state.is_ok() && !ended, announcement.beat(storage))
                    && error.kind() == forebay_core::Kind::Fenced
                {
                    state = Err(error);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn put(storage: &dyn Storage, announcement: &mut Announcement, objects: Vec<(u32, Bytes)>) -> Result<()> {
    let last = objects.iter().map(|(number, _)| *number).max().unwrap_or(0);
    announcement.reserve(storage, last)?;
    let name = |(number, bytes)| (object(&announcement.prefix, number), bytes);
    let named: Vec<(String, Bytes)> = objects.into_iter().map(name).collect();
    storage.put(&named)
}
