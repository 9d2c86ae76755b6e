//! The thread of a writer that puts objects and keeps the heartbeat.

use super::announce::Announcement;
use crate::root::object;
use crate::storage::Storage;
use bytes::Bytes;
use forebay_core::{Error, Kind, Result};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Objects between two looks at the time of the next heartbeat: several times as many as are in flight.
const AT_ONCE: usize = 256;

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

fn run(storage: &dyn Storage, announcement: Announcement, heartbeat: Duration, asked: &mpsc::Receiver<Ask>) {
    let mut thread = Thread { storage, announcement, heartbeat, beaten: Instant::now(), state: Ok(()) };
    let mut ended = false;
    loop {
        // Also where one ask follows the other without a pause.
        let due = thread.heartbeat.saturating_sub(thread.beaten.elapsed());
        match asked.recv_timeout(if ended { heartbeat } else { due }) {
            Ok(Ask::Put(objects)) => thread.put(objects),
            Ok(Ask::Settle(answer)) => {
                let said = match &thread.state {
                    Ok(()) if ended => Ok(()),
                    // A heartbeat without an answer may have one when the call is repeated.
                    Ok(()) => thread.beat(),
                    // The error stays: what failed is not written, whatever is asked next.
                    Err(error) => Err(Error::new(error.kind(), error.message())),
                };
                // Nobody waits for the answer of a writer that was dropped.
                let _ = answer.send(said);
            }
            Ok(Ask::End) => {
                // What stays is removed by `gc`, which sees that the root names the prefix.
                let _ = thread.announcement.end(storage);
                ended = true;
            }
            Err(RecvTimeoutError::Timeout) if ended => {}
            Err(RecvTimeoutError::Timeout) => thread.beat_in_passing(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// What the thread knows.
struct Thread<'a> {
    storage: &'a dyn Storage,
    announcement: Announcement,
    heartbeat: Duration,
    /// When the last heartbeat was tried.
    beaten: Instant,
    state: Result<()>,
}

impl Thread<'_> {
    fn beat(&mut self) -> Result<()> {
        self.beaten = Instant::now();
        let beaten = self.announcement.beat(self.storage);
        if let Err(error) = &beaten
            && error.kind() == Kind::Fenced
        {
            self.state = Err(Error::new(Kind::Fenced, error.message()));
        }
        beaten
    }

    /// A heartbeat that nobody waits for: one that fails is repeated at the next one, one that is refused ends the writer.
    fn beat_in_passing(&mut self) {
        if self.state.is_ok() {
            let _ = self.beat();
        } else {
            self.beaten = Instant::now();
        }
    }

    fn put(&mut self, objects: Vec<(u32, Bytes)>) {
        let mut objects = objects.into_iter().peekable();
        while self.state.is_ok() && objects.peek().is_some() {
            if self.beaten.elapsed() >= self.heartbeat {
                self.beat_in_passing();
            }
            // Some at a time: a batch may take longer than a heartbeat.
            let some: Vec<(u32, Bytes)> = objects.by_ref().take(AT_ONCE).collect();
            if self.state.is_ok() {
                self.state = self.put_some(some);
            }
        }
    }

    fn put_some(&mut self, objects: Vec<(u32, Bytes)>) -> Result<()> {
        let last = objects.iter().map(|(number, _)| *number).max().unwrap_or(0);
        self.announcement.reserve(self.storage, last)?;
        let prefix = &self.announcement.prefix;
        let named: Vec<(String, Bytes)> =
            objects.into_iter().map(|(number, bytes)| (object(prefix, number), bytes)).collect();
        self.storage.put(&named)
    }
}
