//! The reader of a connection: takes frames and hands each to the call that waits for it.

use super::connector::Reader;
use super::link::{Asked, Waiting};
use forebay_core::{Error, Result};
use forebay_wire::{FRAME_HEAD_BYTES, FrameHead, WireReader};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;

/// A frame as it came.
pub(super) struct Frame {
    pub(super) head: FrameHead,
    pub(super) meta: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    /// Reads one, of at most as many bytes as may be under way.
    pub(super) async fn read(reader: &mut Reader, window: u32) -> Result<Frame> {
        let mut bytes = [0; FRAME_HEAD_BYTES];
        reader.read_exact(&mut bytes).await.map_err(broken)?;
        let head = FrameHead::decode(&bytes, u64::from(window))?;
        let mut meta = vec![0; head.meta_bytes as usize];
        reader.read_exact(&mut meta).await.map_err(broken)?;
        // Before the payload is read: after a damaged meta nothing on the connection can be believed.
        head.check_meta(&meta)?;
        let mut payload = vec![0; head.payload_bytes as usize];
        reader.read_exact(&mut payload).await.map_err(broken)?;
        Ok(Frame { head, meta, payload })
    }

    /// The error in an error frame.
    pub(super) fn error(&self) -> Error {
        WireReader::new(&self.meta).error().unwrap_or_else(|error| error)
    }
}

/// A connection that reads or writes nothing more.
pub(super) fn broken(error: io::Error) -> Error {
    Error::unavailable(format!("the connection failed: {error}")).with_source(error)
}

/// The task that reads a connection to its end.
pub(super) struct Reading {
    pub(super) reader: Reader,
    pub(super) waiting: Arc<Mutex<Waiting>>,
    pub(super) owed: Arc<AtomicU64>,
    /// Told when so much is owed that it has to be granted.
    pub(super) due: Arc<Notify>,
    pub(super) grant_bytes: u64,
    pub(super) window: u32,
}

impl Reading {
    pub(super) async fn run(mut self) {
        let why = match self.read().await {
            Ok(()) => "the server has gone".to_owned(),
            Err(error) => error.message().to_owned(),
        };
        let mut waiting = self.waiting.lock();
        waiting.over = Some(why);
        // A waiting call notices that its channel has ended.
        waiting.calls.clear();
    }

    async fn read(&mut self) -> Result<()> {
        loop {
            let frame = Frame::read(&mut self.reader, self.window).await?;
            let head = frame.head;
            let owed = self.owed.fetch_add(head.frame_bytes(), Ordering::AcqRel) + head.frame_bytes();
            // Otherwise the next request takes the credit along. `notify_one` keeps one notice, so none is lost.
            if owed >= self.grant_bytes {
                self.due.notify_one();
            }
            let mut waiting = self.waiting.lock();
            let Some(Asked { sender, mut parts, end, _credit }) = waiting.calls.remove(&head.request) else {
                if head.flags.is_error() && head.request == 0 {
                    return Err(frame.error());
                }
                // A goodbye, or credit.
                continue;
            };
            if head.flags.is_error() {
                // Nobody may wait any more.
                let _ = sender.send(Err(frame.error()));
                continue;
            }
            // Of a call that was given up only the end counts, which gives its credit back.
            if !sender.is_closed() {
                if parts.meta.is_empty() {
                    parts.meta = frame.meta;
                }
                if parts.payload.is_empty() {
                    parts.payload = frame.payload
                } else {
                    parts.payload.extend_from_slice(&frame.payload)
                }
            }
            if head.flags.has_more() {
                waiting.calls.insert(head.request, Asked { sender, parts, end, _credit });
            } else {
                let _ = sender.send(Ok(parts));
            }
        }
    }
}
