//! The network: streams in memory with latency, stalls, cuts, and resets at any byte.
//!
//! ```text
//! end of the client ── pipe ──▶ end of the server      each pipe: pieces with the moment at which they arrive
//!                  ◀── pipe ──
//! ```
//!
//! *Invariants*: bytes arrive in order, each once or never; after a reset neither side gets any; what a dead server writes
//! goes nowhere.

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

/// What is wrong with the network now, for all of its streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weather {
    /// Nothing arrives at the server before then, or at the client.
    pub(crate) stalled_until: [Option<Instant>; 2],
    /// New connections get no answer before then.
    pub(crate) cut_until: Option<Instant>,
    /// Most that one piece carries: a slow drain.
    pub(crate) piece_bytes: Option<usize>,
}

/// All streams.
pub(crate) struct Net {
    state: Mutex<State>,
}

struct State {
    random: SmallRng,
    weather: Weather,
    pipes: Vec<std::sync::Weak<[Pipe; 2]>>,
}

/// One direction of a stream.
struct Pipe(Mutex<Way>);

#[derive(Default)]
struct Way {
    pieces: VecDeque<(Instant, VecDeque<u8>)>,
    bytes: usize,
    is_ended: bool,
    is_reset: bool,
    /// Bytes that still pass before the stream is reset.
    reset_after: Option<usize>,
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
    pipes: Arc<[Pipe; 2]>,
    /// The pipe that it reads: 0 is the way to the server.
    reads: usize,
    /// The process at this end is dead: what it writes goes nowhere.
    is_dead: Option<Arc<AtomicBool>>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Net {
    pub(crate) fn new(seed: u64) -> Arc<Net> {
        let state = State { random: SmallRng::seed_from_u64(seed), weather: Weather::default(), pipes: Vec::new() };
        Arc::new(Net { state: Mutex::new(state) })
    }

    pub(crate) fn change_weather(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.state.lock().weather);
    }

    pub(crate) fn weather(&self) -> Weather {
        self.state.lock().weather.clone()
    }

    /// From 1 to 5 ms.
    pub(crate) fn latency(&self) -> Duration {
        Duration::from_micros(self.state.lock().random.random_range(1000..5000))
    }

    /// The end of a client, and that of a server, which is dead once `is_dead` says so.
    pub(crate) fn stream(self: &Arc<Net>, is_dead: Arc<AtomicBool>) -> (End, End) {
        let pipes = Arc::new([Pipe(Mutex::default()), Pipe(Mutex::default())]);
        let mut state = self.state.lock();
        state.pipes.retain(|known| known.strong_count() > 0);
        state.pipes.push(Arc::downgrade(&pipes));
        drop(state);
        let end = |reads, is_dead| End { net: self.clone(), pipes: pipes.clone(), reads, is_dead, timer: None };
        (end(1, None), end(0, Some(is_dead)))
    }

    /// Every stream is reset now, or once some more bytes have passed.
    pub(crate) fn reset(&self, after: Option<usize>) {
        for pipes in self.pipes() {
            match after {
                Some(bytes) => pipes[bytes % 2].0.lock().reset_after = Some(bytes),
                None => reset(&pipes),
            }
        }
    }

    /// Streams that were to be reset after more bytes than have passed since go on.
    pub(crate) fn spare(&self) {
        self.pipes().iter().flat_map(|pipes| pipes.iter()).for_each(|pipe| pipe.0.lock().reset_after = None);
    }

    fn pipes(&self) -> Vec<Arc<[Pipe; 2]>> {
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

impl AsyncRead for End {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let held = self.net.weather().stalled_until[self.reads];
        let pipes = self.pipes.clone();
        let mut way = pipes[self.reads].0.lock();
        if way.is_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let Some((at, bytes)) = way.pieces.front_mut() else {
            if way.is_ended {
                return Poll::Ready(Ok(()));
            }
            way.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        let at = held.map_or(*at, |held| held.max(*at));
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
        let (latency, weather) = (self.net.latency(), self.net.weather());
        let mut way = self.pipes[1 - self.reads].0.lock();
        if way.is_reset {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = ON_THE_WAY_MAX - way.bytes;
        if room == 0 {
            way.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let mut most = from.len().min(room).min(weather.piece_bytes.unwrap_or(usize::MAX));
        if let Some(left) = way.reset_after {
            most = most.min(left);
            way.reset_after = Some(left - most);
            if most == 0 {
                drop(way);
                reset(&self.pipes);
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
        let earliest = way.pieces.back().map_or_else(Instant::now, |last| last.0);
        way.pieces.push_back((earliest.max(Instant::now() + latency), from[..most].iter().copied().collect()));
        way.bytes += most;
        if let Some(reader) = way.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(most))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut way = self.pipes[1 - self.reads].0.lock();
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
            reset(&self.pipes);
            return;
        }
        let mut way = self.pipes[1 - self.reads].0.lock();
        way.is_ended = true;
        way.wake();
        drop(way);
        let mut way = self.pipes[self.reads].0.lock();
        way.is_reset = true;
        way.wake();
    }
}
