//! Frames as they come in: head, meta, payload.
//!
//! *Invariants*: a head is checked before anything that it says is believed, and its length against what the client may
//! send before memory is taken; memory for what was promised grows only as it comes; credit that arrives behind requests
//! which must wait is seen nevertheless.

use super::calls::Request;
use super::{Receiving, Session};
use crate::served::Served;
use crate::session::put::Putting;
use crate::shared::now;
use crate::transport::Transport;
use forebay_core::{Call, Error, Keyspace, Result, ServedStore};
use forebay_wire::{FRAME_HEAD_BYTES, FrameHead, FrameKind, WirePut};
use std::io;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

/// Bytes that are asked of the socket at once.
const READ_BYTES: usize = 64 << 10;
/// Payloads of other requests than puts, up to this many bytes, are taken from the inbox in one piece.
const WHOLE_BYTES: u64 = 32 << 10;
/// Bytes that are read beyond a client's window, to find the credit that arrives behind its requests.
const CREDIT_BYTES: usize = 64 << 10;

impl<T: Transport, S: ServedStore> Session<T, S> {
    /// Whether anything more is read: requests, or behind those that must wait the credit that the client gives.
    pub(super) fn wants_more(&self) -> bool {
        if self.incoming.is_eof || self.ending.is_some_and(|_| !self.outbox.lacks_credit()) {
            return false;
        }
        !self.incoming.is_blocked || self.incoming.inbox.len() < self.shared.limits.window_bytes as usize + CREDIT_BYTES
    }

    /// Whether so much waits for threads, over all connections, that nobody gets more than one.
    pub(super) fn is_crowded(&self) -> bool {
        self.shared.on_threads.load(Ordering::Relaxed) >= self.shared.limits.waiting_total()
    }

    /// Whether no further request is looked at for now.
    pub(super) fn must_wait(&self) -> bool {
        self.is_ending()
            || self.outbox.is_full()
            || self.work.waiting() >= self.shared.limits.waiting_max
            || (self.is_crowded() && self.work.on_threads > 0)
    }

    /// Looks at the frames that are there; whether anything moved.
    pub(super) fn look_at_frames(&mut self, turns: &mut usize) -> bool {
        let mut moved = false;
        let mut ended = false;
        loop {
            // Kept until the next look: what is read in between goes where this says.
            self.incoming.is_blocked = self.must_wait();
            if self.incoming.is_blocked {
                self.scan_credit();
                break;
            }
            if *turns >= super::TURN_FRAMES {
                break;
            }
            match self.look() {
                Ok(true) => {
                    moved = true;
                    ended |= matches!(self.incoming.receiving, Receiving::Head);
                    *turns += 1;
                }
                Ok(false) => break,
                Err((kind, request, error)) => {
                    self.fail(kind, request, error);
                    return true;
                }
            }
        }
        self.account();
        // What is under way must end in time; what has not begun may take as long as it likes.
        let begun = !matches!(self.incoming.receiving, Receiving::Head) || self.incoming.inbox.len() > 0;
        if self.peer.is_some() {
            // While the server does not look, the client is not late.
            if !begun || ended || self.incoming.is_blocked {
                self.incoming.receive_by = None;
            }
            if begun && self.incoming.receive_by.is_none() && !self.incoming.is_blocked {
                self.incoming.receive_by = Some(now() + self.shared.limits.frame_deadline);
            }
        }
        moved
    }

    /// One step with what is in the inbox; `false` where more must come first.
    fn look(&mut self) -> std::result::Result<bool, (FrameKind, u64, Error)> {
        match std::mem::replace(&mut self.incoming.receiving, Receiving::Head) {
            Receiving::Head => {
                let Some(bytes) = self.incoming.inbox.bytes().first_chunk::<FRAME_HEAD_BYTES>() else {
                    return Ok(false);
                };
                // Before its hello a client may send little: it has shown no token yet.
                let window = if self.peer.is_some() { u64::from(self.shared.limits.window_bytes) } else { 4096 };
                let head = FrameHead::decode(bytes, window).map_err(|error| (FrameKind::Hello, 0, error))?;
                self.outbox.epoch = self.peer.as_ref().map_or(0, |peer| self.shared.epoch(peer.served.name()));
                // Credit of a frame is taken once: here, or earlier by `scan_credit` while the frame waited.
                if self.incoming.scanned == 0 {
                    if self.peer.is_some() {
                        self.outbox.grant(head.credit);
                    }
                    self.incoming.scanned = head.frame_bytes() as usize;
                }
                self.take(FRAME_HEAD_BYTES);
                // Before its meta is read: a frame beyond the credit must take no memory.
                self.spend(&head).map_err(|error| (head.kind, head.request, error))?;
                self.incoming.receiving = Receiving::Meta(head);
                Ok(true)
            }
            Receiving::Meta(head) => {
                let wanted = head.meta_bytes as usize;
                if self.incoming.inbox.len() < wanted {
                    self.incoming.receiving = Receiving::Meta(head);
                    return Ok(false);
                }
                let failed = |error| (head.kind, head.request, error);
                head.check_meta(&self.incoming.inbox.bytes()[..wanted]).map_err(failed)?;
                self.meta(head).map_err(failed)?;
                Ok(true)
            }
            Receiving::Payload(head, meta) => {
                let wanted = head.payload_bytes as usize;
                if self.incoming.inbox.len() < wanted {
                    self.incoming.receiving = Receiving::Payload(head, meta);
                    return Ok(false);
                }
                let payload = self.incoming.inbox.bytes()[..wanted].to_vec();
                self.take(wanted);
                self.request(Request { head, meta, payload });
                Ok(true)
            }
            Receiving::Put(mut putting) => {
                let before = self.incoming.inbox.len();
                let Some(peer) = &self.peer else { return Ok(false) };
                let waiting = putting.take(&peer.served, &self.shared, &mut self.incoming.inbox);
                self.incoming.scanned = self.incoming.scanned.saturating_sub(before - self.incoming.inbox.len());
                putting.waiting.extend(waiting);
                if putting.is_received() {
                    let waiting = std::mem::take(&mut putting.waiting);
                    self.received(putting, waiting);
                    return Ok(true);
                }
                self.incoming.receiving = Receiving::Put(putting);
                Ok(before != self.incoming.inbox.len())
            }
        }
    }

    fn take(&mut self, bytes: usize) {
        self.incoming.inbox.consume(bytes);
        self.incoming.scanned = self.incoming.scanned.saturating_sub(bytes);
    }

    /// A frame takes of what the client may send.
    fn spend(&mut self, head: &FrameHead) -> Result<()> {
        if head.flags.is_answer() {
            return Err(Error::invalid("an answer, where a client asks"));
        }
        let bare = matches!(head.kind, FrameKind::Credit | FrameKind::Goodbye);
        if head.payload_bytes > 0 && (bare || head.kind == FrameKind::Hello) || head.meta_bytes > 0 && bare {
            return Err(Error::invalid(format!("a {:?} with {} bytes that it has not", head.kind, head.frame_bytes())));
        }
        if bare {
            return Ok(());
        }
        let most = self.meta_bytes_max();
        if head.meta_bytes > most {
            let bytes = head.meta_bytes;
            return Err(Error::invalid(format!(
                "a request that says {bytes} bytes beside its payload; {most} are allowed: put less into one request"
            )));
        }
        let bytes = head.frame_bytes();
        // The client keeps this account as well. If the two differ, one of them is wrong, and the connection ends.
        let left = self.incoming.credit.checked_sub(bytes).ok_or_else(|| {
            Error::invalid(format!(
                "a frame of {bytes} bytes where {} more are allowed: wait for answers",
                self.incoming.credit
            ))
        })?;
        self.incoming.credit = left;
        Ok(())
    }

    /// Most bytes of a request's meta: what it says takes some times as much memory once it is understood.
    fn meta_bytes_max(&self) -> u32 {
        self.shared.limits.window_bytes / 4
    }

    /// A frame whose meta is there.
    fn meta(&mut self, head: FrameHead) -> Result<()> {
        let length = head.meta_bytes as usize;
        let meta = &self.incoming.inbox.bytes()[..length];
        let Some(peer) = &self.peer else {
            let meta = meta.to_vec();
            self.take(length);
            self.incoming.receive_by = None;
            return self.hello(head, &meta);
        };
        match head.kind {
            FrameKind::Credit => self.take(length),
            FrameKind::Goodbye => {
                self.take(length);
                self.end("goodbye");
            }
            FrameKind::Hello => return Err(Error::invalid("a second hello")),
            FrameKind::Call(Call::Put) => {
                let mut puts = match &peer.served {
                    Served::Events(store) => {
                        let Keyspace { schema, attributes, .. } = store.keyspace();
                        WirePut::decode_all(meta, head.payload_bytes, schema, attributes)?
                    }
                    Served::Ring(ring) => {
                        WirePut::decode_all_of_ring(meta, head.payload_bytes, &ring.keyspace().source)?
                    }
                };
                let wait_max = self.shared.limits.wait_max;
                // Cut to what the server allows: each waiting put may hold a thread and memory for its deadline.
                puts.iter_mut().for_each(|put| put.deadline = put.deadline.map(|deadline| deadline.min(wait_max)));
                let fenced = self.shared.check_epoch(head.epoch).err();
                let allowed = peer.rights.allow(Call::Put.right());
                self.take(length);
                self.shared.metrics.bytes(head.frame_bytes(), 0);
                let mut putting = Box::new(Putting::new::<T>(head.request, head.frame_bytes(), puts));
                // Refused fragment by fragment, and their bytes passed over: the frames behind this one stay readable.
                if !allowed {
                    let error = super::control::no_right(Call::Put);
                    self.shared.refuse("native", "right", error.message());
                    putting.refuse(|| super::control::no_right(Call::Put));
                }
                if let Some(error) = fenced {
                    putting.refuse(|| Error::fenced(error.message()));
                }
                // A guess about the next frame: how much is read ahead of it (`read_ahead`).
                self.incoming.long_fragments = putting.is_of_long_fragments();
                self.incoming.receiving = Receiving::Put(putting);
            }
            _ => {
                self.incoming.long_fragments = false;
                let meta = meta.to_vec();
                self.take(length);
                self.shared.metrics.bytes(head.frame_bytes(), 0);
                if head.payload_bytes == 0 {
                    self.request(Request { head, meta, payload: Vec::new() });
                } else {
                    self.incoming.receiving = Receiving::Payload(head, meta);
                }
            }
        }
        Ok(())
    }

    /// Reads what comes next to where it belongs.
    pub(super) fn receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let blocked = self.incoming.is_blocked;
        if let (Receiving::Put(putting), Some(peer), false) = (&mut self.incoming.receiving, &self.peer, blocked) {
            let before = self.incoming.inbox.len();
            let read =
                putting.poll_receive(&peer.served, &self.shared, &mut self.incoming.inbox, &mut self.stream, context);
            if let Poll::Ready(Ok(read)) = read {
                self.incoming.scanned =
                    self.incoming.scanned.saturating_sub(read - (self.incoming.inbox.len() - before));
            }
            return read;
        }
        let wanted = match &self.incoming.receiving {
            _ if blocked => self.incoming.inbox.len() + READ_BYTES,
            Receiving::Head | Receiving::Put(_) => FRAME_HEAD_BYTES,
            Receiving::Meta(head) => head.meta_bytes as usize,
            Receiving::Payload(head, _) => head.payload_bytes as usize,
        };
        // No more memory than twice what came: a promise alone takes none.
        let wanted = wanted.clamp(FRAME_HEAD_BYTES, READ_BYTES.max(2 * self.incoming.inbox.len()));
        let more = wanted.saturating_sub(READ_BYTES) as u64;
        self.incoming.is_starved =
            more > self.incoming.inbox.memory() && !self.shared.has_memory(more - self.incoming.inbox.memory());
        if self.incoming.is_starved {
            // Asked again in a while: others give memory back.
            return Poll::Pending;
        }
        self.incoming.inbox.reserve(wanted);
        self.account();
        let most = if wanted as u64 > WHOLE_BYTES {
            wanted.saturating_sub(self.incoming.inbox.len()).max(READ_BYTES)
        } else {
            self.read_ahead()
        };
        let mut places = [self.incoming.inbox.spare(most.max(wanted.saturating_sub(self.incoming.inbox.len())))];
        let read = match self.stream.poll_read_into(context, &mut places) {
            Poll::Ready(Ok(read)) => read,
            other => return other,
        };
        self.incoming.inbox.added(read);
        Poll::Ready(Ok(read))
    }

    /// How much is read at once where nothing says what comes: after a long fragment little, so that the next one goes
    /// straight to its place.
    fn read_ahead(&self) -> usize {
        if self.incoming.long_fragments { 512 } else { READ_BYTES }
    }

    /// Tells the server how much memory this connection's requests take.
    pub(super) fn account(&mut self) {
        let receiving = match &self.incoming.receiving {
            Receiving::Put(putting) => putting.held,
            _ => 0,
        };
        let jobs: u64 = self.work.jobs.values().map(|job| job.putting.held).sum();
        let now = self.incoming.inbox.memory() + receiving + jobs + self.work.on_threads_bytes;
        // Written only on a change: the counter is shared by all threads.
        if now != self.incoming.accounted {
            self.shared.account(self.incoming.accounted, now);
            self.incoming.accounted = now;
        }
    }

    /// Looks at the heads of frames that wait, for the credit that they bring: an answer that waits for it must see it.
    fn scan_credit(&mut self) {
        if self.peer.is_none() {
            return;
        }
        let window = u64::from(self.shared.limits.window_bytes);
        while let Some(bytes) =
            self.incoming.inbox.bytes().get(self.incoming.scanned..).and_then(|rest| rest.first_chunk())
        {
            // What is wrong is told when its turn comes.
            let Ok(head) = FrameHead::decode(bytes, window) else { return };
            self.outbox.grant(head.credit);
            self.incoming.scanned += head.frame_bytes() as usize;
        }
    }
}
