//! Answers on their way to the client.
//!
//! ```text
//! answer ──cut into frames──▶ held, until the client has credit for the next ──▶ queue ──writev──▶ socket
//! ```
//!
//! *Invariants*: no more bytes are on their way than the client has agreed to take; payloads of fragments go out from
//! where they are, small ones are copied together.

use crate::slices::Slice;
use crate::transport::{Transport, poll_write_from};
use forebay_core::mutants::is_planted;
use forebay_core::{Error, Kind, ServedStore};
use forebay_wire::{FRAME_HEAD_BYTES, FrameFlags, FrameHead, FrameKind, WireWriter};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Payloads below this many bytes are copied together: cheaper than a piece of their own in the system call.
const COPIED_BYTES: usize = 1024;
/// Most payload bytes of a frame.
const FRAME_PAYLOAD_BYTES: u64 = 1 << 20;
/// Most pieces of one system call.
const PIECES: usize = 128;
/// Bytes that are on their way before no further request is looked at.
const UNSENT_BYTES: u64 = 2 << 20;

/// What keeps bytes where they stand.
pub(crate) enum Guard<S: ServedStore> {
    /// A fragment of an event.
    Fragment(Arc<S::Fragment>),
    /// One of a slice of a ring's window, by its place there.
    Slice(Arc<Slice>, usize),
}

impl<S: ServedStore> Clone for Guard<S> {
    fn clone(&self) -> Guard<S> {
        match self {
            Guard::Fragment(fragment) => Guard::Fragment(fragment.clone()),
            Guard::Slice(slice, at) => Guard::Slice(slice.clone(), *at),
        }
    }
}

impl<S: ServedStore> Deref for Guard<S> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Guard::Fragment(fragment) => fragment,
            Guard::Slice(slice, at) => slice.window.sources[0].fragment(*at).map_or(&[], |fragment| fragment.bytes),
        }
    }
}

/// Bytes that go out.
pub(crate) enum Piece<S: ServedStore> {
    /// Copied.
    Copied(Vec<u8>),
    /// Where they stand, from and to.
    Guard(Guard<S>, usize, usize),
}

impl<S: ServedStore> Piece<S> {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Copied(bytes) => bytes,
            // What a ring's entry says is read again: it may have been damaged since.
            Piece::Guard(guard, from, to) => guard.get(*from..*to).unwrap_or_default(),
        }
    }
}

/// Payloads of an answer, in order.
pub(crate) struct Payload<S: ServedStore> {
    pieces: Vec<Piece<S>>,
    bytes: u64,
}

impl<S: ServedStore> Default for Payload<S> {
    fn default() -> Payload<S> {
        Payload { pieces: Vec::new(), bytes: 0 }
    }
}

impl<S: ServedStore> Payload<S> {
    /// Adds the bytes of a fragment.
    pub(crate) fn push(&mut self, fragment: S::Fragment) {
        self.add(fragment, |fragment| Guard::Fragment(Arc::new(fragment)));
    }

    /// Adds the bytes of a fragment of a ring.
    pub(super) fn push_of_ring(&mut self, slice: &Arc<Slice>, at: usize) {
        self.add(Guard::Slice(slice.clone(), at), |guard| guard);
    }

    fn add<B: Deref<Target = [u8]>>(&mut self, bytes: B, guard: impl FnOnce(B) -> Guard<S>) {
        let length = bytes.len();
        self.bytes += length as u64;
        // A long payload keeps its guard until it is sent, so its bytes go from the store's memory to the socket.
        if length >= COPIED_BYTES {
            self.pieces.push(Piece::Guard(guard(bytes), 0, length));
            return;
        }
        match self.pieces.last_mut() {
            Some(Piece::Copied(copied)) => copied.extend_from_slice(&bytes),
            _ => self.pieces.push(Piece::Copied(bytes.to_vec())),
        }
    }

    /// How much it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What is answered to a request.
pub(crate) struct Answer<S: ServedStore> {
    /// Its meta, or the error that replaces it.
    pub(crate) meta: Result<Vec<u8>, Error>,
    /// What follows.
    pub(crate) payload: Payload<S>,
    /// More answers to the same request follow.
    pub(crate) more: bool,
    /// Kinds of the errors that it says of single things.
    pub(crate) failed: Vec<Kind>,
}

impl<S: ServedStore> Answer<S> {
    /// A meta alone.
    pub(crate) fn of(meta: Vec<u8>) -> Answer<S> {
        Answer { meta: Ok(meta), payload: Payload::default(), more: false, failed: Vec::new() }
    }

    /// An error.
    pub(crate) fn error(error: Error) -> Answer<S> {
        Answer { meta: Err(error), ..Answer::of(Vec::new()) }
    }
}

struct Frame<S: ServedStore> {
    head: FrameHead,
    meta: Vec<u8>,
    pieces: Vec<Piece<S>>,
}

/// Answers of one connection.
pub(super) struct Outbox<S: ServedStore> {
    held: VecDeque<Frame<S>>,
    queue: VecDeque<Piece<S>>,
    /// Bytes of the first piece that went out.
    gone: usize,
    /// The stream may keep some of what it took: TLS does.
    is_kept: bool,
    unsent: u64,
    /// Bytes that the client still takes.
    credit: u64,
    /// Bytes that it takes at most.
    window: u64,
    /// The client gives no more credit: what it has none for cannot go out.
    is_last: bool,
    /// Something could not: what comes after it makes no sense any more.
    is_over: bool,
    /// Of the map that the node went by when the last request came.
    pub(super) epoch: u32,
}

impl<S: ServedStore> Outbox<S> {
    pub(super) fn new() -> Outbox<S> {
        // Before its hello a client takes an answer to it.
        Outbox {
            held: VecDeque::new(),
            queue: VecDeque::new(),
            gone: 0,
            is_kept: false,
            unsent: 0,
            credit: 64 << 10,
            window: 64 << 10,
            is_last: false,
            is_over: false,
            epoch: 0,
        }
    }

    /// Bytes that the client takes at most.
    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// No more credit will come: what has none is dropped.
    pub(super) fn expect_no_credit(&mut self) {
        self.is_last = true;
        self.release();
    }

    /// Whether something waits for credit.
    pub(super) fn lacks_credit(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether something had to be dropped.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The client said how much it takes.
    pub(super) fn open(&mut self, window: u32) {
        (self.credit, self.window) = (u64::from(window), u64::from(window));
    }

    /// The client takes more.
    pub(super) fn grant(&mut self, credit: u32) {
        if !self.is_last {
            // Capped: a client that grants more than it announced must not make the server hold more for it.
            self.credit = (self.credit + u64::from(credit)).min(self.window);
            self.release();
        }
    }

    /// Queues the answer to a request; `credit` is what the client may send again.
    pub(super) fn answer(&mut self, kind: FrameKind, request: u64, answer: Answer<S>, credit: u32) {
        let Answer { meta, payload, more, .. } = answer;
        let meta = match meta {
            Ok(meta) if meta.len() as u64 + FRAME_HEAD_BYTES as u64 > self.window / 2 => {
                let (bytes, window) = (meta.len(), self.window);
                let error = Error::invalid(format!(
                    "the answer says {bytes} bytes beside its payload and the client takes {window}: ask for less at once"
                ));
                return self.answer(kind, request, Answer::error(error), credit);
            }
            Ok(meta) => meta,
            Err(error) => {
                let mut out = WireWriter::new();
                out.error(&error);
                self.frame(
                    FrameHead { credit, ..FrameHead::new(kind, FrameFlags::ERROR, request) },
                    out.finish(),
                    vec![],
                    0,
                );
                return self.release();
            }
        };
        // No frame has more than half of the window: so the session never waits forever for a client that returns
        // credit by halves.
        let room = self.window / 2 - FRAME_HEAD_BYTES as u64;
        let mut most = FRAME_PAYLOAD_BYTES.min(room - meta.len() as u64);
        let mut left = payload.bytes;
        let mut pieces = payload.pieces.into_iter().collect::<VecDeque<_>>();
        let mut meta = Some(meta);
        loop {
            let (part, bytes) = if left <= most { (pieces.drain(..).collect(), left) } else { cut(&mut pieces, most) };
            left -= bytes;
            most = FRAME_PAYLOAD_BYTES.min(room);
            // Credit for the request goes with its last frame: only then is the request's memory free.
            let flags = if left > 0 || more { FrameFlags::MORE } else { FrameFlags::ANSWER };
            let credit = if left > 0 || more { 0 } else { credit };
            self.frame(
                FrameHead { credit, ..FrameHead::new(kind, flags, request) },
                meta.take().unwrap_or_default(),
                part,
                bytes as u32,
            );
            if left == 0 {
                return self.release();
            }
        }
    }

    fn frame(&mut self, head: FrameHead, meta: Vec<u8>, pieces: Vec<Piece<S>>, payload_bytes: u32) {
        if self.is_over && !head.flags.is_error() {
            return;
        }
        let head = FrameHead { epoch: self.epoch, ..head.with(&meta, payload_bytes) };
        self.held.push_back(Frame { head, meta, pieces });
    }

    /// Moves what the client has credit for to the queue.
    fn release(&mut self) {
        while let Some(frame) = self.held.front() {
            let bytes = frame.head.frame_bytes();
            if bytes > self.credit {
                if self.is_last {
                    self.is_over = true;
                    // An error ends the connection and is short, so it is sent with or without credit.
                    self.held.retain(|frame| frame.head.flags.is_error());
                    self.held.truncate(1);
                    self.credit = u64::MAX;
                    continue;
                }
                return;
            }
            let Some(frame) = self.held.pop_front() else { return };
            // What a client has no credit for would wait in its socket in front of what it needs.
            debug_assert!(bytes <= self.credit, "no more goes out than the client has agreed to take");
            self.credit -= if is_planted("credit-kept") { 0 } else { bytes };
            debug_assert!(self.credit <= self.window || self.is_over, "credit stays within the window");
            self.unsent += bytes;
            let tail = match self.queue.back_mut() {
                Some(Piece::Copied(tail)) if tail.len() < 16 << 10 => tail,
                _ => {
                    self.queue.push_back(Piece::Copied(Vec::with_capacity(256 + frame.meta.len())));
                    let Some(Piece::Copied(tail)) = self.queue.back_mut() else { return };
                    tail
                }
            };
            tail.extend_from_slice(&frame.head.encode());
            tail.extend_from_slice(&frame.meta);
            self.queue.extend(frame.pieces);
        }
    }

    /// Whether no further request should be looked at before some of this is gone.
    pub(super) fn is_full(&self) -> bool {
        !self.held.is_empty() || self.unsent > UNSENT_BYTES
    }

    /// Whether a stream of answers should pause.
    pub(super) fn is_ahead(&self) -> bool {
        !self.held.is_empty() || self.unsent > UNSENT_BYTES / 4
    }

    /// Whether nothing is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queue.is_empty()
    }

    /// Whether bytes wait for the socket.
    pub(super) fn has_unsent(&self) -> bool {
        !self.queue.is_empty() || self.is_kept
    }

    /// Writes what the socket takes; `Pending` where something is left.
    pub(super) fn poll_flush<T: Transport>(
        &mut self,
        stream: &mut T,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<u64>> {
        let mut sent = 0;
        while !self.queue.is_empty() {
            let mut places = [IoSlice::new(&[]); PIECES];
            let mut count = 0;
            for (place, piece) in places.iter_mut().zip(&self.queue) {
                let from = if count == 0 { self.gone } else { 0 };
                *place = IoSlice::new(&piece.bytes()[from..]);
                count += 1;
            }
            let written = match &places[..count] {
                // One piece costs less by a call for one.
                [piece] => Pin::new(&mut *stream).poll_write(context, piece),
                pieces => poll_write_from(stream, context, pieces),
            };
            match written {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(bytes)) => {
                    sent += bytes as u64;
                    // TLS may have taken the bytes into a record of its own: only a flush brings them to the socket.
                    self.is_kept = true;
                    self.sent(bytes);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if sent > 0 => return Poll::Ready(Ok(sent)),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.is_kept {
            match Pin::new(stream).poll_flush(context) {
                Poll::Ready(flushed) => {
                    flushed?;
                    self.is_kept = false;
                }
                Poll::Pending if sent > 0 => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(sent))
    }

    fn sent(&mut self, bytes: usize) {
        debug_assert!(bytes as u64 <= self.unsent, "the socket takes no more than there is");
        self.unsent -= bytes as u64;
        self.gone += bytes;
        while let Some(piece) = self.queue.front() {
            let length = piece.bytes().len();
            // The piece went out in part: its guard stays until all of it did.
            if self.gone < length {
                return;
            }
            self.gone -= length;
            self.queue.pop_front();
        }
    }
}

/// Takes this many bytes away at the front.
fn cut<S: ServedStore>(pieces: &mut VecDeque<Piece<S>>, most: u64) -> (Vec<Piece<S>>, u64) {
    let mut part = Vec::new();
    let mut left = most as usize;
    while left > 0 {
        match pieces.pop_front() {
            None => break,
            Some(piece) if piece.bytes().len() <= left => {
                left -= piece.bytes().len();
                part.push(piece);
            }
            Some(Piece::Copied(mut bytes)) => {
                let rest = bytes.split_off(left);
                part.push(Piece::Copied(bytes));
                pieces.push_front(Piece::Copied(rest));
                left = 0;
            }
            Some(Piece::Guard(guard, from, to)) => {
                part.push(Piece::Guard(guard.clone(), from, from + left));
                pieces.push_front(Piece::Guard(guard, from + left, to));
                left = 0;
            }
        }
    }
    (part, most - left as u64)
}
