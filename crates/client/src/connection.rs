//! One connection, used by one call at a time: frames out, frames in, what either side takes.
//!
//! *Invariants*: no frame is sent that the server has not agreed to take; what was received is granted again with the next
//! frame, or by itself where nothing else goes out.
//!
//! *On failure*: after an error of the connection itself nothing on it can be believed; it is dropped.

use crate::address::Address;
use crate::buffer::{Buffer, Buffers};
use crate::machine::Machine;
use crate::options::Options;
use crate::retry::Failure;
use crate::socket::Socket;
use forebay_core::{Error, Kind, Result};
use forebay_wire::{FRAME_HEAD_BYTES, FrameFlags, FrameHead, FrameKind, Welcome, WireReader};
use rustls::ClientConfig;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Bytes that are read at once where it is not known how many come.
const READ_BYTES: usize = 16 << 10;
/// Frames up to this many bytes are copied together: cheaper than pieces in the system call.
const SHORT_BYTES: usize = 1024;
/// Most pieces of one system call.
const PIECES: usize = 512;

/// An answer whose payload has been received whole.
pub(crate) struct Answer<T> {
    /// Number of the request.
    pub(crate) request: u64,
    /// Its decoded meta.
    pub(crate) said: T,
    pub(crate) payload: Buffer,
    /// More answers to the same request follow.
    pub(crate) more: bool,
}

pub(crate) struct Connection {
    socket: Socket,
    address: Address,
    /// The server's hello.
    pub(crate) welcome: Arc<Welcome>,
    buffers: Arc<Buffers>,
    /// Highest epoch of a map that an answer of this server has said.
    epoch: Arc<AtomicU32>,
    read: Vec<u8>,
    start: usize,
    end: usize,
    next_request: u64,
    /// Bytes that the server still takes.
    credit: u64,
    /// Bytes that were received and not granted again.
    owed: u32,
    window: u32,
    timeout: Duration,
    deadline: Instant,
    /// Something is under way, or was when an error came.
    unclean: bool,
    pub(crate) last_used: Instant,
    machine: Arc<dyn Machine>,
}

impl Connection {
    /// Connects and says hello, for a call that ends at this moment.
    pub(crate) fn open(
        address: &Address,
        options: &Options,
        buffers: &Arc<Buffers>,
        epoch: &Arc<AtomicU32>,
        tls: Option<&Arc<ClientConfig>>,
        end: Instant,
    ) -> std::result::Result<Connection, Failure> {
        let machine = options.machine.clone();
        let deadline = end.min(machine.now() + options.connect_deadline);
        let refused = |error: Error| match error.kind() {
            Kind::Invalid => Failure::Barred(error),
            _ => Failure::Unsent(error),
        };
        let socket = Socket::connect(address, deadline, tls, &*machine).map_err(refused)?;
        let welcome = Arc::new(Welcome {
            features: 0,
            window_bytes: 4096,
            boot: 0,
            lease_ms: 0,
            keyspace: String::new(),
            version: String::new(),
            member: None,
        });
        let mut connection = Connection {
            socket,
            address: address.clone(),
            welcome,
            buffers: buffers.clone(),
            epoch: epoch.clone(),
            read: vec![0; READ_BYTES],
            start: 0,
            end: 0,
            next_request: 1,
            // Before its hello is answered a client may send one hello, and no server takes more of it than this
            // (docs/format-wire.md).
            credit: 4096,
            owed: 0,
            window: options.window_bytes,
            timeout: Duration::ZERO,
            deadline,
            unclean: false,
            last_used: machine.now(),
            machine,
        };
        let meta = options.hello().encode().map_err(Failure::Unsent)?;
        // One deadline for connecting, TLS and hello together: a server that accepts and then says nothing must not
        // hold the call longer.
        connection.begin(deadline);
        // Nothing is changed by a hello: what got no answer may be tried again.
        let unsent = |failure| match failure {
            Failure::Lost(error) => match crate::tls::refusal(address, &error) {
                Some(refusal) => Failure::Barred(refusal),
                None => Failure::Unsent(error),
            },
            Failure::Refused(error) => Failure::Barred(error),
            other => other,
        };
        let request = connection.send(FrameKind::Hello, &meta, &[]).map_err(unsent)?;
        let answer = connection.answer(request, |meta| Ok((Welcome::decode(meta)?, 0))).map_err(unsent)?;
        let welcome = answer.said;
        options.takes(address, &welcome)?;
        connection.credit = u64::from(welcome.window_bytes);
        // The hello and its answer are outside of the windows: both sides count from here on.
        connection.owed = 0;
        connection.welcome = Arc::new(welcome);
        Ok(connection)
    }

    /// A call begins: all of it must be over by then.
    pub(crate) fn begin(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Whether the connection can serve another call.
    pub(crate) fn is_clean(&self) -> bool {
        // Bytes that are left over would be taken for the answer to the next call.
        !self.unclean && self.start == self.end
    }

    /// Whether the server is still there, as far as one can see.
    pub(crate) fn is_alive(&self) -> bool {
        self.socket.is_quiet()
    }

    /// Bytes of a request that the server takes at once.
    pub(crate) fn window_bytes(&self) -> u64 {
        u64::from(self.welcome.window_bytes)
    }

    /// Bytes that the server still takes before it has answered something.
    pub(crate) fn credit(&self) -> u64 {
        self.credit
    }

    fn arm(&mut self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(self.machine.now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Set again only where it matters: a call of the system each time would cost as much as a small answer.
        if left < self.timeout || self.timeout < left / 2 || self.timeout.is_zero() {
            self.socket.set_timeout(left)?;
            self.timeout = left;
        }
        Ok(())
    }

    fn lost(&mut self, error: io::Error) -> Failure {
        self.unclean = true;
        // A server that refuses a certificate says so and closes: the write fails first, and the reason is still
        // unread.
        let is_closed = matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
        let error = is_closed.then(|| self.socket.last_word()).flatten().unwrap_or(error);
        let what = match error.kind() {
            // A socket with a time limit reports `WouldBlock` on Linux, and `TimedOut` elsewhere.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("{} did not answer in time", self.address),
            _ => format!("the connection to {} failed: {error}", self.address),
        };
        Failure::Lost(Error::unavailable(what).with_source(error))
    }

    /// Sends a request; answers its number.
    pub(crate) fn send(
        &mut self,
        kind: impl Into<FrameKind>,
        meta: &[u8],
        payload: &[&[u8]],
    ) -> std::result::Result<u64, Failure> {
        let request = self.next_request;
        self.next_request += 1;
        let bytes: usize = payload.iter().map(|piece| piece.len()).sum();
        let payload_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let mut head = FrameHead::new(kind, FrameFlags::REQUEST, request).with(meta, payload_bytes);
        // Refused here: the server would end the connection for it, and with it the other requests that are under way.
        if head.frame_bytes() > self.credit || bytes > u32::MAX as usize {
            return Err(Failure::Refused(Error::invalid(format!(
                "a request of {} bytes; the server takes {} at once: put less into one call",
                bytes + meta.len() + FRAME_HEAD_BYTES,
                self.credit
            ))));
        }
        // Credit goes with a frame that is sent anyway; a frame of its own is needed only for long answers (`grant`).
        head.credit = std::mem::take(&mut self.owed);
        debug_assert!(head.frame_bytes() <= self.credit, "a request beyond the credit ends the connection");
        self.credit -= head.frame_bytes();
        // Before the write: part of a frame may have gone out when an error comes, and then the stream is of no use.
        self.unclean = true;
        let head = head.encode();
        self.write_all(&head, meta, payload).map_err(|error| self.lost(error))?;
        Ok(request)
    }

    fn write_all(&mut self, head: &[u8], meta: &[u8], payload: &[&[u8]]) -> io::Result<()> {
        self.arm()?;
        let bytes: usize = head.len() + meta.len() + payload.iter().map(|piece| piece.len()).sum::<usize>();
        if bytes <= SHORT_BYTES {
            // One write of one piece: with `TCP_NODELAY` two small writes would be two packets.
            let mut short = [0; SHORT_BYTES];
            let mut at = 0;
            for piece in [head, meta].into_iter().chain(payload.iter().copied()) {
                short[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
            self.socket.write_all(&short[..bytes])?;
            return self.socket.flush();
        }
        let mut pieces = [head, meta].into_iter().chain(payload.iter().copied()).filter(|piece| !piece.is_empty());
        let mut places: Vec<IoSlice<'_>> = Vec::with_capacity((payload.len() + 2).min(PIECES));
        loop {
            places.extend(pieces.by_ref().take(PIECES - places.len()).map(IoSlice::new));
            if places.is_empty() {
                return self.socket.flush();
            }
            let mut left = &mut places[..];
            match self.socket.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => IoSlice::advance_slices(&mut left, bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // The places point into the caller's bytes: those that went out are dropped, and one that went out in part
            // keeps its rest.
            let kept = left.len();
            places.drain(..places.len() - kept);
            // A reader that takes a few bytes at a time satisfies the time limit of each write, so the deadline is
            // checked as well.
            if self.machine.now() >= self.deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Makes room and reads until this many bytes are there in one piece.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        while self.end - self.start < wanted {
            // Moved to the front first: the buffer grows only if the whole frame does not fit.
            if self.start > 0 {
                self.read.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            if wanted > self.read.len() {
                self.read.resize(wanted, 0);
            }
            self.arm()?;
            match self.socket.read(&mut self.read[self.end..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.end += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next head that belongs to one of these requests.
    fn head(&mut self, requests: &[u64]) -> std::result::Result<FrameHead, Failure> {
        loop {
            self.fill(FRAME_HEAD_BYTES).map_err(|error| self.lost(error))?;
            let mut bytes = [0; FRAME_HEAD_BYTES];
            bytes.copy_from_slice(&self.read[self.start..self.start + FRAME_HEAD_BYTES]);
            let head = FrameHead::decode(&bytes, u64::from(self.window)).map_err(|error| self.garbled(error))?;
            self.start += FRAME_HEAD_BYTES;
            if head.epoch > self.epoch.load(Ordering::Relaxed) {
                self.epoch.fetch_max(head.epoch, Ordering::Relaxed);
            }
            // Capped at the window: a server that grants too much must not make this client send more than it
            // announced.
            self.credit = (self.credit + u64::from(head.credit)).min(self.window_bytes());
            // Counted with the head, before the payload is read: the server's window counts whole frames.
            self.owed = self.owed.saturating_add(u32::try_from(head.frame_bytes()).unwrap_or(u32::MAX));
            if head.flags.is_answer() && requests.contains(&head.request) {
                return Ok(head);
            }
            // What belongs to no request: the server leaves, grants credit, or could not read what it got.
            self.fill(head.meta_bytes as usize).map_err(|error| self.lost(error))?;
            let meta = self.read[self.start..self.start + head.meta_bytes as usize].to_vec();
            self.start += head.meta_bytes as usize;
            if head.flags.is_error() {
                self.unclean = true;
                let said = WireReader::new(&meta).error().unwrap_or_else(|error| error);
                return Err(Failure::Lost(said));
            }
            match head.kind {
                FrameKind::Credit => {}
                // The answers under way still come. Afterwards the connection counts as idle, so that its next user
                // looks whether it is open.
                FrameKind::Goodbye => self.last_used = self.last_used.checked_sub(LEAVING).unwrap_or(self.last_used),
                _ => return Err(self.garbled(Error::corrupt("an answer to a request that was not made"))),
            }
        }
    }

    fn garbled(&mut self, error: Error) -> Failure {
        self.unclean = true;
        Failure::Lost(error)
    }

    /// Receives an answer; `read` says what its meta says, and how many bytes of payload follow in all.
    pub(crate) fn answer<T>(
        &mut self,
        request: u64,
        read: impl FnOnce(&[u8]) -> Result<(T, u64)>,
    ) -> std::result::Result<Answer<T>, Failure> {
        self.answer_of(&[request], read)
    }

    /// The same for the first answer to one of several requests.
    pub(crate) fn answer_of<T>(
        &mut self,
        requests: &[u64],
        read: impl FnOnce(&[u8]) -> Result<(T, u64)>,
    ) -> std::result::Result<Answer<T>, Failure> {
        let head = self.head(requests)?;
        let request = head.request;
        let length = head.meta_bytes as usize;
        self.fill(length).map_err(|error| self.lost(error))?;
        let meta = &self.read[self.start..self.start + length];
        // Checked before it is decoded: a length in a damaged meta would put every later frame in the wrong place.
        if let Err(error) = head.check_meta(meta) {
            return Err(self.garbled(error));
        }
        if head.flags.is_error() {
            let said = WireReader::new(meta).error();
            self.start += length;
            // A refusal ends its own request only. With others under way their answers are still to be read.
            self.unclean = requests.len() > 1;
            return Err(match said {
                Ok(error) => Failure::Refused(error),
                Err(error) => self.garbled(error),
            });
        }
        let (said, bytes) = match read(meta) {
            Ok(said) => said,
            Err(error) => return Err(self.garbled(error)),
        };
        self.start += length;
        // One buffer for the whole answer, whose meta says the length: the frames that follow are read straight to
        // their place.
        let mut payload = self.buffers.take(usize::try_from(bytes).unwrap_or(usize::MAX));
        let mut more = head.flags.has_more();
        let mut filled = self.payload(head.payload_bytes, &mut payload, 0)?;
        while filled < payload.len() {
            if !more {
                return Err(self.garbled(Error::corrupt("an answer ends before its payload")));
            }
            self.grant()?;
            let next = self.head(&[request])?;
            if next.meta_bytes > 0 || next.flags.is_error() {
                return Err(self.garbled(Error::corrupt("an answer ends before its payload")));
            }
            filled = self.payload(next.payload_bytes, &mut payload, filled)?;
            more = next.flags.has_more();
        }
        self.unclean = more || requests.len() > 1;
        debug_assert!(filled == payload.len(), "an answer is handed out whole");
        self.last_used = self.machine.now();
        Ok(Answer { request, said, payload, more })
    }

    /// Receives payload to its place.
    fn payload(&mut self, bytes: u32, to: &mut Buffer, filled: usize) -> std::result::Result<usize, Failure> {
        let end = filled + bytes as usize;
        // Before anything is copied: the length comes from the server.
        if end > to.len() {
            return Err(self.garbled(Error::corrupt("an answer has more payload than it says")));
        }
        let here = (self.end - self.start).min(bytes as usize);
        to[filled..filled + here].copy_from_slice(&self.read[self.start..self.start + here]);
        self.start += here;
        let mut at = filled + here;
        while at < end {
            let read = self.arm().and_then(|()| self.socket.read(&mut to[at..end]));
            match read {
                Ok(0) => return Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => at += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(error)),
            }
        }
        Ok(end)
    }

    /// Lets the server send more, where half of what it may send has come.
    pub(crate) fn grant(&mut self) -> std::result::Result<(), Failure> {
        // Half of the window: the server can send the other half while this credit is on its way to it.
        if self.owed < self.window / 2 {
            return Ok(());
        }
        let mut head = FrameHead::new(FrameKind::Credit, FrameFlags::REQUEST, 0);
        head.credit = std::mem::take(&mut self.owed);
        let head = head.encode();
        self.write_all(&head, &[], &[]).map_err(|error| self.lost(error))
    }
}

/// A connection whose server leaves is taken for one that was not used for so long: it is looked at before its next call.
const LEAVING: Duration = Duration::from_secs(3600);
