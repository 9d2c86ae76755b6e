//! Blocking code on the simulator's one thread: a process has a stack of its own, and gives the thread up where it waits.
//!
//! ```text
//! task of the simulator ── resumes ──▶ process: its code ──▶ wait(future) ── not ready: back to the task, which is woken with it
//! ```
//!
//! *Invariant*: a process is never left in its middle: its end is waited for (`World::begin`).

use crate::net::{End, Place};
use crate::node::Ways;
use forebay_client::{Address, Machine, Part, Stream};
use forebay_core::{Error, Result, Timer};
use generator::{Generator, Gn};
use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::SmallRng;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout, timeout_at};

/// Of each stack, in words of eight bytes; what is not used costs nothing.
const STACK_WORDS: usize = 64 << 10;

type Code = Box<dyn FnOnce()>;

#[derive(Default)]
struct Beginning {
    next: u64,
    codes: BTreeMap<u64, Code>,
}

thread_local! {
    /// Code of processes that have not begun: it need not be `Send`, and no process leaves this thread.
    static BEGINNING: RefCell<Beginning> = RefCell::default();
    /// Stacks of processes that are over: to make one costs as much as a put.
    static FREE: RefCell<Vec<Generator<'static, (), ()>>> = RefCell::default();
    /// Wakes the process that runs.
    static WAKER: RefCell<Waker> = RefCell::new(Waker::noop().clone());
}

/// A process, as a task: over when its code is.
pub(crate) struct Process(Option<Generator<'static, (), ()>>);

impl Process {
    pub(crate) fn new(code: impl FnOnce() + 'static) -> Process {
        let number = BEGINNING.with_borrow_mut(|all| {
            all.next += 1;
            all.codes.insert(all.next, Box::new(code));
            all.next
        });
        let begin = move || {
            let code = BEGINNING.with_borrow_mut(|all| all.codes.remove(&number));
            code.into_iter().for_each(|code| code());
        };
        let free = FREE.with_borrow_mut(Vec::pop);
        let mut stack = free.unwrap_or_else(|| Gn::<()>::new_opt(STACK_WORDS, || ()));
        stack.init_code(begin);
        Process(Some(stack))
    }
}

impl Future for Process {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        WAKER.set(context.waker().clone());
        let Some(stack) = &mut self.0 else { return Poll::Ready(()) };
        stack.resume();
        if !stack.is_done() {
            return Poll::Pending;
        }
        FREE.with_borrow_mut(|free| free.extend(self.0.take()));
        Poll::Ready(())
    }
}

/// Waits within a process.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        let waker = WAKER.with_borrow(Waker::clone);
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => give_way(),
        }
    }
}

/// Others go on until the process is woken.
#[expect(deprecated, reason = "the other form needs a value of the first function in every one that waits")]
fn give_way() {
    generator::yield_with(());
}

/// The machine of a process.
pub(crate) struct Host {
    pub(crate) ways: Ways,
    pub(crate) random: Mutex<SmallRng>,
}

impl Timer for Host {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn block_at_most(&self, _: Instant) -> Option<Duration> {
        None
    }
}

impl Machine for Host {
    fn sleep(&self, time: Duration) {
        wait(sleep(time));
    }

    fn draw(&self) -> f64 {
        self.random.lock().random()
    }

    fn beside(&self, parts: Vec<Part<'_>>) {
        let mut parts: Vec<_> = parts.into_iter().map(|part| Gn::<()>::new_opt(STACK_WORDS, part)).collect();
        loop {
            parts.iter_mut().for_each(|part| _ = part.resume());
            parts.retain(|part| !part.is_done());
            if parts.is_empty() {
                return;
            }
            give_way();
        }
    }

    fn connect(&self, address: &Address, end: Instant) -> Option<Result<Box<dyn Stream>>> {
        let made = wait(timeout_at(end.into(), self.ways.connect(None, place_of(address)?)));
        let made = made.unwrap_or_else(|_| Err(Error::unavailable(format!("{address} does not answer in time"))));
        Some(made.map(|end| Box::new(Socket { end, timeout: Duration::ZERO }) as Box<dyn Stream>))
    }
}

/// The address of a node.
pub(crate) fn address_of(place: Place) -> String {
    format!("tcp://node-{place}")
}

fn place_of(address: &Address) -> Option<Place> {
    let Address::Tcp(host, _) = address else { return None };
    host.strip_prefix("node-")?.parse().ok()
}

/// A stream whose reads and writes block the process.
struct Socket {
    end: End,
    timeout: Duration,
}

impl Socket {
    fn in_time<T>(done: std::result::Result<io::Result<T>, tokio::time::error::Elapsed>) -> io::Result<T> {
        done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Socket::in_time(wait(timeout(self.timeout, self.end.read(buffer))))
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Socket::in_time(wait(timeout(self.timeout, self.end.write(bytes))))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Socket {
    fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    fn is_quiet(&self) -> bool {
        self.end.is_quiet()
    }
}
