//! The network: streams in memory with latency, stalls, cuts, and resets at any byte.
//!
//! ```text
//! end of the client ── pipe ──▶ end of the server      each pipe: pieces with the moment at which they arrive
//!                  ◀── pipe ──
//! ```
//!
//! *Invariants*: bytes arrive in order, each once or never; after a reset neither side gets any; what a dead server writes
//! goes nowhere; what goes somewhere is read beside (`wire.rs`).

use crate::books::Checked;
use crate::wire::{Seen, Watch};
use forebay_core::Keyspace;
use forebay_wire::WirePut;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes that are on their way in one direction: more wait at the sender, as with a socket.
const ON_THE_WAY_MAX: usize = 64 << 10;

/// Where a stream has an end: [`OUTSIDE`] for all clients, and the nodes.
pub(crate) type Place = usize;

/// Clients of the cluster.
pub(crate) const OUTSIDE: Place = 0;
/// Clients, and as many nodes as a simulation has at most.
const PLACES: usize = 4;

/// What is wrong with the network now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weather {
    /// Nothing arrives before then, from a place at another.
    stalled_until: [[Option<Instant>; PLACES]; PLACES],
    /// New connections to a place get no answer before then.
    cut_until: [Option<Instant>; PLACES],
    /// Most that one piece of a stream to or from a place carries: a slow drain.
    piece_bytes: [Option<usize>; PLACES],
}

impl Weather {
    /// Nothing of one place arrives at another one before then, or any longer time that was said before.
    pub(crate) fn stall(&mut self, from: Place, to: Place, until: Instant) {
        let stalled = &mut self.stalled_until[from][to];
        *stalled = (*stalled).max(Some(until));
    }

    /// Nothing arrives at a place before then.
    pub(crate) fn stall_into(&mut self, to: Place, until: Instant) {
        (0..PLACES).for_each(|from| self.stall(from, to, until));
    }

    /// Nothing of a place arrives before then.
    pub(crate) fn stall_out_of(&mut self, from: Place, until: Instant) {
        (0..PLACES).for_each(|to| self.stall(from, to, until));
    }

    /// New connections to a place get no answer before then.
    pub(crate) fn cut(&mut self, to: Place, until: Instant) {
        self.cut_until[to] = self.cut_until[to].max(Some(until));
    }

    /// Streams to and from a place carry pieces of at most this number of bytes.
    pub(crate) fn drain(&mut self, place: Place, piece_bytes: Option<usize>) {
        self.piece_bytes[place] = piece_bytes;
    }
}

/// All streams.
pub(crate) struct Net {
    state: Mutex<State>,
    keyspace: Keyspace,
}

struct State {
    random: SmallRng,
    weather: Weather,
    pipes: Vec<std::sync::Weak<Pipes>>,
    /// Puts that were sent since they were taken last, with the place to which.
    puts: Vec<(Place, WirePut)>,
    /// The first thing that no side may do.
    wrong: Option<String>,
}

/// Both directions of a stream.
struct Pipes {
    /// Where its client is, and its server.
    between: [Place; 2],
    /// The way to the server, and that to the client.
    ways: [Pipe; 2],
    watch: Mutex<Watch>,
}

/// One direction of a stream.
#[derive(Default)]
struct Pipe(Mutex<Way>);

#[derive(Default)]
struct Way {
    pieces: VecDeque<(Instant, VecDeque<u8>)>,
    bytes: usize,
    is_ended: bool,
    is_reset: bool,
    /// Bytes that still pass before the stream is reset.
    reset_after: Option<usize>,
    /// Nothing of it arrives before then.
    late_until: Option<Instant>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Way {
    fn wake(&mut self) {
        [self.reader.take(), self.writer.take()].into_iter().flatten().for_each(Waker::wake);
    }
}

/// One end of a stream.
pub(crate) struct End {
    net: Arc<Net>,
    pipes: Arc<Pipes>,
    /// The pipe that it reads: 0 is the way to the server.
    reads: usize,
    /// The process at this end is dead: what it writes goes nowhere.
    is_dead: Option<Arc<AtomicBool>>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Net {
    pub(crate) fn new(seed: u64, keyspace: Keyspace) -> Arc<Net> {
        let state = State {
            random: SmallRng::seed_from_u64(seed),
            weather: Weather::default(),
            pipes: Vec::new(),
            puts: Vec::new(),
            wrong: None,
        };
        Arc::new(Net { state: Mutex::new(state), keyspace })
    }

    /// Puts that were sent since this was asked last, with the place to which.
    pub(crate) fn take_puts(&self) -> Vec<(Place, WirePut)> {
        std::mem::take(&mut self.state.lock().puts)
    }

    /// What a side of a stream has done that none may.
    pub(crate) fn check(&self) -> Checked {
        self.state.lock().wrong.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn change_weather(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.state.lock().weather);
    }

    /// Until when new connections to a place get no answer.
    pub(crate) fn cut_until(&self, to: Place) -> Option<Instant> {
        self.state.lock().weather.cut_until[to].filter(|until| *until > Instant::now())
    }

    fn stalled_until(&self, from: Place, to: Place) -> Option<Instant> {
        self.state.lock().weather.stalled_until[from][to]
    }

    fn piece_bytes(&self, between: [Place; 2]) -> usize {
        let of = self.state.lock().weather.piece_bytes;
        between.iter().filter_map(|place| of[*place]).min().unwrap_or(usize::MAX)
    }

    /// From 1 to 5 ms.
    pub(crate) fn latency(&self) -> Duration {
        Duration::from_micros(self.state.lock().random.random_range(1000..5000))
    }

    /// The end of a client, and that of a server, at these places; each is dead once its process is.
    pub(crate) fn stream(self: &Arc<Net>, between: [Place; 2], is_dead: [Option<Arc<AtomicBool>>; 2]) -> (End, End) {
        let pipes = Arc::new(Pipes { between, ways: Default::default(), watch: Mutex::default() });
        let mut state = self.state.lock();
        state.pipes.retain(|known| known.strong_count() > 0);
        state.pipes.push(Arc::downgrade(&pipes));
        drop(state);
        let end = |reads, is_dead| End { net: self.clone(), pipes: pipes.clone(), reads, is_dead, timer: None };
        let [client, server] = is_dead;
        (end(1, client), end(0, server))
    }

    /// Nothing arrives at a place before then, or any longer time that was said before, over the streams that are there: new
    /// ones overtake them.
    pub(crate) fn delay(&self, to: Place, until: Instant) {
        let pipes = self.pipes();
        let ways = pipes.iter().flat_map(|pipes| pipes.ways.iter().zip(pipes.between.iter().rev()));
        for (way, _) in ways.filter(|(_, place)| **place == to) {
            let late = &mut way.0.lock().late_until;
            *late = (*late).max(Some(until));
        }
    }

    /// Every stream to or from a place is reset now, or once some more bytes have passed.
    pub(crate) fn reset(&self, place: Place, after: Option<usize>) {
        for pipes in self.pipes().into_iter().filter(|pipes| pipes.between.contains(&place)) {
            match after {
                Some(bytes) => pipes.ways[bytes % 2].0.lock().reset_after = Some(bytes),
                None => reset(&pipes.ways),
            }
        }
    }

    /// Streams of a place that were to be reset after more bytes than have passed since go on.
    pub(crate) fn spare(&self, place: Place) {
        let pipes = self.pipes();
        let of_it = pipes.iter().filter(|pipes| pipes.between.contains(&place));
        of_it.flat_map(|pipes| &pipes.ways).for_each(|pipe| pipe.0.lock().reset_after = None);
    }

    fn pipes(&self) -> Vec<Arc<Pipes>> {
        let mut state = self.state.lock();
        state.pipes.retain(|known| known.strong_count() > 0);
        state.pipes.iter().filter_map(std::sync::Weak::upgrade).collect()
    }
}

fn reset(pipes: &[Pipe; 2]) {
    for pipe in pipes {
        let mut way = pipe.0.lock();
        way.is_reset = true;
        (way.pieces, way.bytes) = (VecDeque::new(), 0);
        way.wake();
    }
}

impl End {
    /// Whether the other side is there, and nothing of it has arrived that was not read.
    pub(crate) fn is_quiet(&self) -> bool {
        let way = self.pipes.ways[self.reads].0.lock();
        let has_arrived = way.pieces.front().is_some_and(|(at, _)| *at <= Instant::now());
        !(way.is_reset || has_arrived || way.is_ended && way.pieces.is_empty())
    }

    /// These bytes are on their way.
    fn watch(&self, sent: &[u8]) {
        let side = 1 - self.reads;
        let Seen { puts, wrong } = self.pipes.watch.lock().sent(side, sent, &self.net.keyspace);
        if puts.is_empty() && wrong.is_none() {
            return;
        }
        let [client, server] = self.pipes.between;
        let mut state = self.net.state.lock();
        state.puts.extend(puts.into_iter().map(|put| (server, put)));
        if state.wrong.is_none() {
            state.wrong = wrong.map(|wrong| format!("between {client} and {server}: {wrong}"));
        }
    }
}

impl AsyncRead for End {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let pipes = self.pipes.clone();
        let held = self.net.stalled_until(pipes.between[self.reads], pipes.between[1 - self.reads]);
        let mut way = pipes.ways[self.reads].0.lock();
        if way.is_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let late = way.late_until;
        let Some((at, bytes)) = way.pieces.front_mut() else {
            if way.is_ended {
                return Poll::Ready(Ok(()));
            }
            way.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        let at = held.max(late).map_or(*at, |held| held.max(*at));
        if at > Instant::now() {
            way.reader = Some(context.waker().clone());
            drop(way);
            let mut timer = Box::pin(sleep_until(at));
            if timer.as_mut().poll(context).is_pending() {
                self.timer = Some(timer);
                return Poll::Pending;
            }
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let most = to.remaining().min(bytes.len());
        to.put_slice(&bytes.make_contiguous()[..most]);
        bytes.drain(..most);
        if bytes.is_empty() {
            way.pieces.pop_front();
        }
        way.bytes -= most;
        if let Some(writer) = way.writer.take() {
            writer.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_dead.as_ref().is_some_and(|dead| dead.load(Ordering::SeqCst)) {
            return Poll::Ready(Ok(from.len()));
        }
        let (latency, piece_bytes) = (self.net.latency(), self.net.piece_bytes(self.pipes.between));
        let mut way = self.pipes.ways[1 - self.reads].0.lock();
        if way.is_reset {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = ON_THE_WAY_MAX - way.bytes;
        if room == 0 {
            way.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let mut most = from.len().min(room).min(piece_bytes);
        if let Some(left) = way.reset_after {
            most = most.min(left);
            way.reset_after = Some(left - most);
            if most == 0 {
                drop(way);
                reset(&self.pipes.ways);
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
        let earliest = way.pieces.back().map_or_else(Instant::now, |last| last.0);
        way.pieces.push_back((earliest.max(Instant::now() + latency), from[..most].iter().copied().collect()));
        way.bytes += most;
        if let Some(reader) = way.reader.take() {
            reader.wake();
        }
        drop(way);
        self.watch(&from[..most]);
        Poll::Ready(Ok(most))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut way = self.pipes.ways[1 - self.reads].0.lock();
        way.is_ended = true;
        way.wake();
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // A socket that nobody has any more.
        let is_dead = self.is_dead.as_ref().is_some_and(|dead| dead.load(Ordering::SeqCst));
        if is_dead {
            reset(&self.pipes.ways);
            return;
        }
        let mut way = self.pipes.ways[1 - self.reads].0.lock();
        way.is_ended = true;
        way.wake();
        drop(way);
        let mut way = self.pipes.ways[self.reads].0.lock();
        way.is_reset = true;
        way.wake();
    }
}
