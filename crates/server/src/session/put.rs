//! Fragments that are being received: copied in from the inbox, or long ones from the socket straight into memory of the store.
//!
//! ```text
//! meta ──▶ fragments in order: those that are there whole are copied in; for a long one memory of the store is reserved,
//!          and the socket fills it, several at once
//! ```
//!
//! *Invariants*: memory is reserved for what is read next, at most [`AHEAD_BYTES`] of it and one fragment more; a
//! fragment whose put fails is passed over; the others are stored.
//!
//! *On failure*: a connection that ends in the middle gives its reservations back; nothing of them was visible.

use super::inbox::Inbox;
use super::place::Place;
use crate::served::Served;
use crate::shared::Shared;
use crate::shared::{now, since};
use crate::transport::Transport;
use forebay_core::{Error, Kind, Result, ServedStore};
use forebay_wire::WirePut;
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// Persisted fragments of at least this many bytes wait for their device in memory of the store. Of shorter ones a frame can have
/// hundreds of thousands: claimed together, each would hold its key and its segment until a thread comes to it. They wait in the
/// server's memory.
const HELD_BYTES: u32 = 2048;
/// Bytes for which memory is reserved ahead of the socket.
const AHEAD_BYTES: usize = 256 << 10;
/// Short fragments that the store prefetches together before they are put.
const TOLD: usize = 32;
/// Bytes of a failed put that are read past at once.
const DISCARD_BYTES: usize = 4096;
/// Places of one system call.
const PLACES: usize = 32;
/// Bytes that are read beyond the last fragment: the head and meta of what follows.
const TAIL_BYTES: usize = 512;

/// There is no space in the store now, and no memory to wait in.
fn no_memory(length: usize) -> Error {
    let cause = format!(
        "no space for a fragment of {length} bytes now, and the server's memory for requests that wait is taken \
         (memory_bytes_max): slow down"
    );
    Error::full_of("server memory", "readout", cause)
}

/// What a fragment's bytes go to.
enum Target<S: ServedStore> {
    /// Memory of the store.
    Place(Place<S>),
    /// Memory of the server: the put must wait.
    Held(Vec<u8>),
    /// Nowhere: the put has failed.
    Nowhere,
}

struct Open<S: ServedStore> {
    index: usize,
    target: Target<S>,
    filled: usize,
    length: usize,
}

/// A fragment whose put waits, on a thread.
pub(super) enum Waiting<S: ServedStore> {
    /// Its commit waits.
    Commit(usize, Place<S>),
    /// It waits for space, or for another put.
    Put(usize, Vec<u8>),
}

impl<S: ServedStore> Waiting<S> {
    /// Which fragment of its frame it is.
    pub(super) fn index(&self) -> usize {
        match self {
            Waiting::Commit(index, _) | Waiting::Put(index, _) => *index,
        }
    }
}

/// A put under way.
pub(super) struct Putting<S: ServedStore> {
    /// Number of the request.
    pub(super) request: u64,
    /// When its meta was there.
    pub(super) from: Instant,
    /// Bytes of its frame.
    pub(super) frame_bytes: u64,
    pub(super) puts: Vec<WirePut>,
    /// Outcomes by fragment, as the wire says them; `None` while there is none.
    pub(super) outcomes: Vec<Option<Result<u8>>>,
    next: usize,
    /// Up to which fragment the store was told what comes.
    told: usize,
    open: VecDeque<Open<S>>,
    /// What was received and must wait.
    pub(super) waiting: Vec<Waiting<S>>,
    /// Bytes of fragments that wait in the server's memory.
    pub(super) held: u64,
    /// Bytes of the frame's payload that are still to come from the inbox or the socket.
    left: u64,
    /// `Transport::DIRECT_BYTES`.
    direct_bytes: u32,
}

impl<S: ServedStore> Putting<S> {
    pub(super) fn new<T: Transport>(request: u64, frame_bytes: u64, puts: Vec<WirePut>) -> Putting<S> {
        let left = puts.iter().map(|put| u64::from(put.length)).sum();
        let outcomes = puts.iter().map(|_| None).collect();
        Putting {
            request,
            from: now(),
            frame_bytes,
            puts,
            outcomes,
            next: 0,
            told: 0,
            open: VecDeque::new(),
            waiting: Vec::new(),
            held: 0,
            left,
            direct_bytes: T::DIRECT_BYTES,
        }
    }

    /// Refuses all of them: their bytes are passed over.
    pub(super) fn refuse(&mut self, why: impl Fn() -> Error) {
        self.outcomes.iter_mut().for_each(|outcome| *outcome = Some(Err(why())));
    }

    /// Whether its fragments are long, so that what follows it is likely to be long as well.
    pub(super) fn is_of_long_fragments(&self) -> bool {
        self.left >= self.puts.len() as u64 * u64::from(self.direct_bytes)
    }

    /// Whether all bytes are there.
    pub(super) fn is_received(&self) -> bool {
        self.next == self.puts.len() && self.open.is_empty()
    }

    /// Takes what is in the inbox; answers the puts that must wait.
    pub(super) fn take(&mut self, served: &Served<S>, shared: &Shared, inbox: &mut Inbox) -> Vec<Waiting<S>> {
        let mut waiting = Vec::new();
        loop {
            while let Some(open) = self.open.front_mut() {
                let bytes = (open.length - open.filled).min(inbox.len());
                open.fill(&inbox.bytes()[..bytes]);
                inbox.consume(bytes);
                self.left -= bytes as u64;
                if open.filled < open.length {
                    return waiting;
                }
                let Some(done) = self.open.pop_front() else { break };
                self.finish(done, &mut waiting);
            }
            let Some(put) = self.puts.get(self.next) else { return waiting };
            let length = put.length as usize;
            let refused = self.outcomes[self.next].is_some();
            if refused && length == 0 {
                self.next += 1;
                continue;
            }
            let is_whole = inbox.len() >= length;
            // A short fragment is waited for: it is copied once it is there whole.
            if !is_whole && (inbox.len() == 0 || (put.length < self.direct_bytes && !refused)) {
                return waiting;
            }
            // For a longer one memory is reserved now, and for one that will wait for a device.
            if !is_whole || refused || (put.persisted && put.length >= HELD_BYTES) {
                self.begin(served, shared);
                continue;
            }
            if self.next >= self.told && put.length < self.direct_bytes {
                self.told = (self.next + TOLD).min(self.puts.len());
                // Told in batches: the store loads index entries of later keys while it puts the first ones.
                served.prefetch(self.puts[self.next..self.told].iter().map(|put| put.key));
            }
            let value = &inbox.bytes()[..length];
            match served.try_put(put, value) {
                Ok(Some(outcome)) => self.outcomes[self.next] = Some(Ok(outcome)),
                Ok(None) if !shared.has_memory(self.held + length as u64) => {
                    self.outcomes[self.next] = Some(Err(no_memory(length)));
                }
                Ok(None) => {
                    self.held += length as u64;
                    // Copied out of the inbox: the frames behind it go on while this put waits on a thread.
                    waiting.push(Waiting::Put(self.next, value.to_vec()));
                }
                Err(error) => self.outcomes[self.next] = Some(Err(error)),
            }
            inbox.consume(length);
            self.left -= length as u64;
            self.next += 1;
        }
    }

    /// Opens the next fragment.
    fn begin(&mut self, served: &Served<S>, shared: &Shared) {
        let put = &self.puts[self.next];
        let length = put.length as usize;
        let reserved = if self.outcomes[self.next].is_some() { Ok(None) } else { served.try_reserve(put) };
        let target = match reserved {
            Ok(None) if self.outcomes[self.next].is_some() => Target::Nowhere,
            Ok(Some(place)) => Target::Place(place),
            Ok(None) if !shared.has_memory(self.held + length as u64) => {
                self.outcomes[self.next] = Some(Err(no_memory(length)));
                Target::Nowhere
            }
            Ok(None) => {
                self.held += length as u64;
                Target::Held(Vec::with_capacity(length))
            }
            Err(error) => {
                self.outcomes[self.next] = Some(Err(error));
                Target::Nowhere
            }
        };
        self.open.push_back(Open { index: self.next, target, filled: 0, length });
        self.next += 1;
    }

    fn finish(&mut self, open: Open<S>, waiting: &mut Vec<Waiting<S>>) {
        let index = open.index;
        match open.target {
            // A commit that waits for a device must not do so on the event loop.
            Target::Place(place) if place.commit_may_wait() => waiting.push(Waiting::Commit(index, place)),
            Target::Place(place) => self.outcomes[index] = Some(place.commit_checked(self.puts[index].checksum)),
            Target::Held(bytes) => waiting.push(Waiting::Put(index, bytes)),
            Target::Nowhere => {}
        }
    }

    /// Reads the next bytes of the stream to their destination. Answers how many came, 0 at the end of the stream.
    pub(super) fn poll_receive<T: Transport>(
        &mut self,
        served: &Served<S>,
        shared: &Shared,
        inbox: &mut Inbox,
        stream: &mut T,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        debug_assert!(inbox.len() == 0 || self.open.is_empty(), "what is in the inbox comes first");
        let short = self.open.is_empty() && self.puts.get(self.next).is_some_and(|put| put.length < self.direct_bytes);
        if short {
            // The rest of the frame, of which all that fits, and some of what follows.
            inbox.reserve(self.direct_bytes as usize);
            let read = ready!(stream.poll_read_into(context, &mut [inbox.spare(usize::MAX)]))?;
            inbox.added(read);
            return Poll::Ready(Ok(read));
        }
        let mut ahead: usize = self.open.iter().map(|open| open.length - open.filled).sum();
        while ahead < AHEAD_BYTES
            && self.open.len() + 1 < PLACES
            && let Some(put) = self.puts.get(self.next)
            && (put.length >= self.direct_bytes || put.length == 0)
        {
            // Several at once: one system call can then fill several fragments.
            ahead += put.length as usize;
            self.begin(served, shared);
        }
        let last = self.next == self.puts.len();
        inbox.reserve(TAIL_BYTES);
        let mut places: Vec<IoSliceMut<'_>> = Vec::with_capacity(PLACES);
        // A fragment whose put failed is still in the stream, and must be read past.
        let mut nowhere = Vec::new();
        let mut discard = Some(&mut nowhere);
        let mut until_discard = false;
        for open in &mut self.open {
            let (filled, left) = (open.filled, open.length - open.filled);
            match &mut open.target {
                Target::Place(place) => places.push(IoSliceMut::new(&mut place[filled..])),
                Target::Held(bytes) => {
                    bytes.resize(open.length, 0);
                    places.push(IoSliceMut::new(&mut bytes[filled..]));
                }
                Target::Nowhere => {
                    let Some(discard) = discard.take() else { break };
                    let most = left.min(DISCARD_BYTES);
                    until_discard = true;
                    discard.resize(most, 0);
                    places.push(IoSliceMut::new(discard));
                    if most < left {
                        break;
                    }
                }
            }
            if until_discard {
                break;
            }
        }
        // The tail reads the head of the next frame along, which saves a system call for each frame.
        if last && !until_discard {
            places.push(inbox.spare(TAIL_BYTES));
        }
        let read = ready!(stream.poll_read_into(context, &mut places))?;
        drop(places);
        let mut bytes = read;
        for open in &mut self.open {
            let part = bytes.min(open.length - open.filled);
            open.filled += part;
            bytes -= part;
            self.left -= part as u64;
        }
        debug_assert!(bytes <= TAIL_BYTES, "what is left over was read to the inbox");
        inbox.added(bytes);
        Poll::Ready(Ok(read))
    }
}

impl<S: ServedStore> Open<S> {
    fn fill(&mut self, bytes: &[u8]) {
        match &mut self.target {
            Target::Place(place) => place[self.filled..self.filled + bytes.len()].copy_from_slice(bytes),
            Target::Held(held) => {
                held.truncate(self.filled);
                held.extend_from_slice(bytes);
            }
            Target::Nowhere => {}
        }
        self.filled += bytes.len();
    }
}

/// Ends puts that wait, on a thread, one after another; their deadlines run from the same time on.
pub(super) fn wait_all<S: ServedStore>(
    served: &Served<S>,
    waiting: Vec<(WirePut, Waiting<S>)>,
    from: Instant,
) -> Vec<(usize, Result<u8>)> {
    // One waited for space as long as the store waits by itself: so have those behind it.
    let mut waited = false;
    let one = |(mut put, one): (WirePut, Waiting<S>)| {
        let own = put.deadline.map(|deadline| deadline.saturating_sub(since(from)));
        let is_default = own.is_none();
        // The store is full for all of them: waiting the full time again for each would hold this thread many times as
        // long.
        put.deadline = own.or(waited.then_some(Duration::ZERO));
        let (index, outcome) = wait(served, &put, one);
        waited |= is_default && outcome.as_ref().is_err_and(|error| error.kind() == Kind::Full);
        (index, outcome)
    };
    waiting.into_iter().map(one).collect()
}

/// Ends a put that waits, on a thread.
fn wait<S: ServedStore>(served: &Served<S>, put: &WirePut, waiting: Waiting<S>) -> (usize, Result<u8>) {
    match waiting {
        Waiting::Commit(index, place) => (index, place.commit_checked(put.checksum)),
        Waiting::Put(index, bytes) => (index, served.put(put, &bytes)),
    }
}
