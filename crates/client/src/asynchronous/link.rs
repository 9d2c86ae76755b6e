//! A connection that many calls share.
//!
//! *Invariants*: no more is sent than the server takes; a frame that was begun is sent whole, or the connection ends.
//!
//! *On failure*: all calls on it fail, each told whether it was sent.

use super::connector::{Connector, Reader, Writer};
use super::reading::{Frame, Reading, broken};
use crate::options::Options;
use crate::retry::Failure;
use forebay_core::{Call, Error, Kind, Result};
use forebay_wire::{FRAME_HEAD_BYTES, FrameFlags, FrameHead, FrameKind, Welcome};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

/// Credit is counted in units of this many bytes.
const UNIT_BYTES: u64 = 64;
/// Pieces shorter than this are sent together: each piece by itself costs a call of the system, and a record of TLS.
const PIECE_BYTES: usize = 16 << 10;
/// Most bytes that are received before they are granted again; of a small window half.
const GRANT_BYTES_MAX: u64 = 1 << 20;
/// The number of the hello among the requests of a connection.
const HELLO: u64 = 1;

type Answered = oneshot::Sender<Result<Parts>>;

/// An answer: its meta, and its payload as far as it has come.
pub(super) struct Parts {
    pub(super) meta: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

pub(super) struct Link {
    writer: Arc<tokio::sync::Mutex<Writer>>,
    waiting: Arc<Mutex<Waiting>>,
    next: AtomicU64,
    /// Credit: what the server still takes, in units.
    credit: Arc<Semaphore>,
    /// Bytes that it takes at most.
    window: u64,
    /// Bytes that were received and not granted again.
    owed: Arc<AtomicU64>,
    /// Calls that are under way go on; others take another connection.
    is_retired: AtomicBool,
    tasks: [tokio::task::JoinHandle<()>; 2],
}

/// A request whose answer is not whole. It holds its credit until then, whether or not somebody waits: the server takes as much again only
/// then, and what was given up is bounded by it.
pub(super) struct Asked {
    pub(super) sender: Answered,
    pub(super) parts: Parts,
    /// When nobody waits for it any more.
    pub(super) end: Instant,
    pub(super) _credit: OwnedSemaphorePermit,
}

#[derive(Default)]
pub(super) struct Waiting {
    /// In the order in which they began: so are they told that the connection is over.
    pub(super) calls: BTreeMap<u64, Asked>,
    /// Why nothing more comes.
    pub(super) over: Option<String>,
}

impl Waiting {
    /// Whether a call had its time, nobody waits for it any more, and it has no answer.
    fn has_unanswered(&self) -> bool {
        let now = Instant::now();
        self.calls.values().any(|asked| asked.end <= now && asked.sender.is_closed())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl Link {
    /// Connects and says hello. Nothing is changed by that: what fails may be tried again, unless it is refused.
    pub(super) async fn open(connector: &dyn Connector, options: &Options) -> std::result::Result<Link, Failure> {
        let refused = |error: Error| match error.kind() {
            Kind::Invalid => Failure::Barred(error),
            _ => Failure::Unsent(error),
        };
        let opening = async {
            let (mut reader, mut writer) = connector.connect().await.map_err(refused)?;
            let welcome = hello(connector, options, &mut reader, &mut writer).await?;
            options.takes(&connector.name(), &welcome)?;
            connector.answered();
            Ok((reader, writer, welcome))
        };
        let late = |_| {
            let within = options.connect_deadline;
            Failure::Unsent(Error::unavailable(format!("{} does not say hello within {within:?}", connector.name())))
        };
        let (reader, writer, welcome) =
            tokio::time::timeout(options.connect_deadline, opening).await.map_err(late)??;
        let (waiting, owed) = (Arc::<Mutex<Waiting>>::default(), Arc::<AtomicU64>::default());
        let (writer, due) = (Arc::new(tokio::sync::Mutex::new(writer)), Arc::<Notify>::default());
        let granting = grant(writer.clone(), waiting.clone(), owed.clone(), due.clone());
        let grant_bytes = u64::from(options.window_bytes / 2).min(GRANT_BYTES_MAX);
        let (window, heard) = (options.window_bytes, waiting.clone());
        let reading = Reading { reader, waiting: heard, owed: owed.clone(), due, window, grant_bytes };
        let window = u64::from(welcome.window_bytes);
        Ok(Link {
            writer,
            waiting,
            next: (HELLO + 1).into(),
            credit: Arc::new(Semaphore::new((window / UNIT_BYTES) as usize)),
            window,
            owed,
            is_retired: false.into(),
            tasks: [tokio::spawn(reading.run()), tokio::spawn(granting)],
        })
    }

    /// Whether it serves no further calls.
    pub(super) fn is_over(&self) -> bool {
        self.is_retired.load(Ordering::Acquire) || self.waiting.lock().over.is_some()
    }

    /// No further calls. It does not wait: a call that gives up has no time left.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
        // Calls that wait for credit take another connection as well.
        self.credit.close();
    }

    /// Sends a request, if the server takes it before `end`, and waits for its answer. `begun` is set once a byte of it went out.
    pub(super) async fn ask(
        &self,
        end: Instant,
        begun: &AtomicBool,
        call: Call,
        meta: &[u8],
        payload: &[&[u8]],
    ) -> std::result::Result<Parts, Failure> {
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        let bytes: usize = payload.iter().map(|piece| piece.len()).sum();
        let too_long = || {
            let (bytes, most) = (bytes + meta.len() + FRAME_HEAD_BYTES, self.window);
            let why = format!("a request of {bytes} bytes; the server takes {most} at once: put less into one call");
            Failure::Refused(Error::invalid(why))
        };
        let mut head = FrameHead::new(call, FrameFlags::REQUEST, request)
            .with(meta, u32::try_from(bytes).map_err(|_| too_long())?);
        if head.frame_bytes() > self.window {
            return Err(too_long());
        }
        // Rounding must not ask for more than there is.
        let units = head.frame_bytes().div_ceil(UNIT_BYTES).min(self.window / UNIT_BYTES);
        let over = |why: String| Failure::Unsent(Error::unavailable(why));
        // Nothing of this call is sent. It may be held up by one for which nobody waits any more: later calls get a new connection.
        let late = |_| {
            self.retire();
            over("earlier calls of the connection were not sent, or not answered, in time".to_owned())
        };
        // Nor would it get any while a call that had its time holds it: who gives up a call before its end retires nothing.
        if (self.credit.available_permits() as u64) < units && self.waiting.lock().has_unanswered() {
            self.retire();
        }
        let credit = self.credit.clone().acquire_many_owned(u32::try_from(units).unwrap_or(u32::MAX));
        let credit = timeout_at(end, credit).await.map_err(late)?;
        let _credit = credit.map_err(|_| over("the connection takes no more calls".to_owned()))?;
        let (sender, receiver) = oneshot::channel();
        {
            let mut writer = timeout_at(end, self.writer.lock()).await.map_err(late)?;
            {
                // Under one lock: a reader that ended in between would never tell this call. Under the writer's as well: behind a
                // frame that was cut off there is nothing more to send.
                let mut waiting = self.waiting.lock();
                if let Some(why) = &waiting.over {
                    return Err(over(why.clone()));
                }
                debug_assert!(!waiting.calls.contains_key(&request), "each request has its own number");
                let parts = Parts { meta: Vec::new(), payload: Vec::new() };
                waiting.calls.insert(request, Asked { sender, parts, end, _credit });
            }
            // Taken under the writer's lock: credit must go out in the frame that took it, and only once.
            head.credit = u32::try_from(self.owed.swap(0, Ordering::AcqRel)).unwrap_or(u32::MAX);
            let sent = whole(&self.waiting, send(&mut writer, &head, meta, payload, begun)).await;
            sent.map_err(|error| match begun.load(Ordering::Relaxed) {
                true => Failure::Lost(broken(error)),
                false => Failure::Unsent(broken(error)),
            })?;
        }
        match receiver.await {
            Ok(Ok(parts)) => Ok(parts),
            Ok(Err(error)) => Err(Failure::Refused(error)),
            Err(_) => {
                let why = self.waiting.lock().over.clone().unwrap_or_default();
                Err(Failure::Lost(Error::unavailable(why)))
            }
        }
    }
}

/// Lets the server send more whenever that is due: also in the middle of answers that are longer than the window, and while
/// nothing else goes out that would say so.
async fn grant(
    writer: Arc<tokio::sync::Mutex<Writer>>,
    waiting: Arc<Mutex<Waiting>>,
    owed: Arc<AtomicU64>,
    due: Arc<Notify>,
) {
    loop {
        due.notified().await;
        // The lock before the swap: what is taken out must be the next frame to go out.
        let mut writer = writer.lock().await;
        let owed = owed.swap(0, Ordering::AcqRel);
        if owed == 0 {
            continue;
        }
        let mut head = FrameHead::new(FrameKind::Credit, FrameFlags::REQUEST, 0);
        head.credit = u32::try_from(owed).unwrap_or(u32::MAX);
        // Behind a frame that was cut off it would be taken for the rest of that one.
        if waiting.lock().over.is_some()
            || whole(&waiting, send(&mut writer, &head, &[], &[], &AtomicBool::default())).await.is_err()
        {
            return;
        }
    }
}

/// Sends the client's hello, and reads what the server takes.
async fn hello(
    connector: &dyn Connector,
    options: &Options,
    reader: &mut Reader,
    writer: &mut Writer,
) -> std::result::Result<Welcome, Failure> {
    let meta = options.hello().encode().map_err(Failure::Barred)?;
    let head = FrameHead::new(FrameKind::Hello, FrameFlags::REQUEST, HELLO).with(&meta, 0);
    let sent = send(writer, &head, &meta, &[], &AtomicBool::default()).await;
    // A server that refused the client's certificate has said so before it closed: that is read even where nothing was taken.
    let frame = match Frame::read(reader, options.window_bytes).await {
        Ok(frame) => frame,
        Err(error) => {
            let lost = |error| sent.map_or_else(|sent| Failure::Unsent(broken(sent)), |()| Failure::Unsent(error));
            return Err(connector.refusal(&error).map_or_else(|| lost(error), Failure::Barred));
        }
    };
    match frame.head.flags.is_error() {
        true if frame.head.request == HELLO => Err(Failure::Barred(frame.error())),
        true => Err(Failure::Unsent(frame.error())),
        false => Welcome::decode(&frame.meta).map_err(Failure::Unsent),
    }
}

/// A frame is sent to its end. Dropped in the middle of it, or when that fails, nothing more is sent.
async fn whole(waiting: &Mutex<Waiting>, sending: impl Future<Output = std::io::Result<()>>) -> std::io::Result<()> {
    let whole = Whole { waiting };
    let sent = sending.await;
    std::mem::forget(whole);
    if let Err(error) = &sent {
        // Answers that came before may still be read: the reader tells the calls when nothing more comes.
        waiting.lock().over.get_or_insert_with(|| format!("the connection failed: {error}"));
    }
    sent
}

/// Sends a frame, with what is short of it in one piece. `begun` is set once a byte of it was taken.
async fn send(
    writer: &mut Writer,
    head: &FrameHead,
    meta: &[u8],
    payload: &[&[u8]],
    begun: &AtomicBool,
) -> std::io::Result<()> {
    let mut piece = head.encode().to_vec();
    piece.extend_from_slice(meta);
    for part in payload {
        if piece.len() + part.len() <= PIECE_BYTES {
            piece.extend_from_slice(part);
            continue;
        }
        write_all(writer, &piece, begun).await?;
        piece.clear();
        match part.len() < PIECE_BYTES {
            true => piece.extend_from_slice(part),
            false => writer.write_all(part).await?,
        }
    }
    write_all(writer, &piece, begun).await?;
    // TLS keeps what the socket did not take at once.
    writer.flush().await
}

async fn write_all(writer: &mut Writer, mut piece: &[u8], begun: &AtomicBool) -> std::io::Result<()> {
    if !piece.is_empty() && !begun.load(Ordering::Relaxed) {
        let taken = writer.write(piece).await?;
        if taken == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        begun.store(true, Ordering::Relaxed);
        piece = &piece[taken..];
    }
    writer.write_all(piece).await
}

/// A frame that is being sent: what is given up in the middle of it leaves nothing that the server could read.
struct Whole<'a> {
    waiting: &'a Mutex<Waiting>,
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock();
        // The first reason stays. Ending the senders wakes all calls; each learns that it has no answer.
        waiting.over.get_or_insert_with(|| "a frame was given up while it was being sent".to_owned());
        waiting.calls.clear();
    }
}
