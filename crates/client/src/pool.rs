//! Connections to one server: repeats and deadlines of calls.
//!
//! ```text
//! call ──▶ a connection that is free, or a new one ──▶ request, answer ──▶ back to the free ones
//!            └ it failed: pause, another connection, the same call again, where that is safe
//! ```
//!
//! *Invariants*: every call ends by its deadline; a call that may have taken effect and cannot be repeated safely is
//! answered `OutcomeUnknown`, never repeated. The answer to a repeat says that an earlier try has none
//! (`tests/network/unknown.rs`).

use crate::address::Address;
use crate::buffer::Buffers;
use crate::connection::{Answer, Connection, Failure};
use crate::options::Options;
use forebay_core::{Call, Error, Kind, Repeat, Result};
use forebay_wire::{Welcome, WireReader};
use parking_lot::{Condvar, Mutex};
use rand::RngExt;
use rustls::ClientConfig;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// The connections of a client.
pub(crate) struct Pool {
    pub(crate) address: Address,
    pub(crate) options: Options,
    /// What the server said first.
    pub(crate) welcome: Arc<Welcome>,
    /// Mean length of the fragments that were read last: as many are asked for at once.
    pub(crate) fragment_bytes: AtomicU64,
    tls: Option<Arc<ClientConfig>>,
    buffers: Arc<Buffers>,
    connections: Mutex<Connections>,
    freed: Condvar,
}

#[derive(Default)]
struct Connections {
    free: Vec<Connection>,
    /// Free ones and those at work.
    all: usize,
    is_closed: bool,
}

/// What is expected of fragments before any was read, in bytes.
const FRAGMENT_BYTES: u64 = 10 << 10;
/// Connections that were not used for so long are looked at before their next call.
const IDLE: Duration = Duration::from_millis(100);

impl Pool {
    /// Connects to a server.
    ///
    /// # Errors
    /// `Invalid` for an ill-formed address, a token or keyspace that the server refuses, a certificate that either side
    /// refuses, `Unavailable` where nobody answers within the deadline.
    pub(crate) fn connect(address: &str, options: Options) -> Result<Pool> {
        let address: Address = address.parse()?;
        let buffers = Arc::new(Buffers::default());
        let tls = matches!(address, Address::Tls(..)).then(|| crate::tls::config(&options.tls)).transpose()?;
        let end = Instant::now() + options.deadline;
        let mut pauses = Pauses::new(&options);
        let connection = loop {
            match Connection::open(&address, &options, &buffers, tls.as_ref()) {
                Ok(connection) => break connection,
                Err(Failure::Refused(error)) => return Err(error),
                Err(Failure::Unsent(error) | Failure::Lost(error)) => pauses.pause(end, error)?,
            }
        };
        let welcome = connection.welcome.clone();
        let connections = Mutex::new(Connections { free: vec![connection], all: 1, is_closed: false });
        let fragment_bytes = AtomicU64::new(FRAGMENT_BYTES);
        Ok(Pool { address, options, welcome, fragment_bytes, tls, buffers, connections, freed: Condvar::new() })
    }

    /// Free connections are closed, further calls answer `Closed`.
    pub(crate) fn close(&self) {
        let mut pool = self.connections.lock();
        pool.is_closed = true;
        pool.all -= pool.free.len();
        pool.free.clear();
        drop(pool);
        self.freed.notify_all();
    }

    /// Time for a call that itself waits so long.
    pub(crate) fn deadline(&self, wait: Duration) -> Instant {
        let far = Duration::from_secs(365 * 24 * 3600);
        Instant::now() + self.options.deadline.saturating_add(wait).min(far)
    }

    /// Makes a call, again and again until its deadline where that is safe. `make` is passed whether it is a repeat: whether an
    /// earlier try was sent, so that it may have taken effect, and has no answer.
    pub(crate) fn call<T>(
        &self,
        repeat: Repeat,
        wait: Duration,
        mut make: impl FnMut(&mut Connection, bool) -> std::result::Result<T, Failure>,
    ) -> Result<T> {
        let end = self.deadline(wait);
        let mut pauses = Pauses::new(&self.options);
        let mut is_repeat = false;
        loop {
            let failure = match self.checkout(end, repeat == Repeat::Never) {
                Ok(mut connection) => {
                    connection.begin(end);
                    let answer = make(&mut connection, is_repeat);
                    self.give_back(connection);
                    match answer {
                        Ok(answer) => return Ok(answer),
                        Err(failure) => failure,
                    }
                }
                // A server that takes us no more says nothing about what was sent before.
                Err(Failure::Refused(error)) if is_repeat => return Err(unknown(&error)),
                Err(failure) => failure,
            };
            let error = match failure {
                Failure::Refused(error) => return Err(if is_repeat { error.of_repeat() } else { error }),
                Failure::Unsent(error) => error,
                Failure::Lost(error) if repeat == Repeat::Never => return Err(unknown(&error)),
                Failure::Lost(error) => {
                    is_repeat = repeat == Repeat::Safe;
                    error
                }
            };
            if let Err(error) = pauses.pause(end, error) {
                return Err(if is_repeat { unknown(&error) } else { error });
            }
        }
    }

    /// Makes a call that is one request with one answer, without payload either way. Answers as well whether it is that to a
    /// repeat.
    pub(crate) fn ask<T>(
        &self,
        call: Call,
        wait: Duration,
        meta: &[u8],
        read: impl Fn(&mut WireReader<'_>) -> Result<T>,
    ) -> Result<(T, bool)> {
        self.ask_as(call.repeat(), call, wait, meta, read)
    }

    /// The same for a request whose repetition does something else than the table of calls says.
    pub(crate) fn ask_as<T>(
        &self,
        repeat: Repeat,
        call: Call,
        wait: Duration,
        meta: &[u8],
        read: impl Fn(&mut WireReader<'_>) -> Result<T>,
    ) -> Result<(T, bool)> {
        self.call(repeat, wait, |connection, is_repeat| {
            let request = connection.send(call, meta, &[])?;
            let answer: Answer<T> =
                connection.answer(request, |meta| Ok((WireReader::whole(meta, |r| read(r))?, 0)))?;
            Ok((answer.said, is_repeat))
        })
    }

    /// A connection of one's own, outside of the pool.
    pub(crate) fn own_connection(&self) -> Result<Connection> {
        let end = self.deadline(Duration::ZERO);
        let mut pauses = Pauses::new(&self.options);
        loop {
            match self.open() {
                Ok(connection) => return Ok(connection),
                Err(Failure::Refused(error)) => return Err(error),
                Err(Failure::Unsent(error) | Failure::Lost(error)) => pauses.pause(end, error)?,
            }
        }
    }

    fn open(&self) -> std::result::Result<Connection, Failure> {
        Connection::open(&self.address, &self.options, &self.buffers, self.tls.as_ref())
    }

    fn checkout(&self, end: Instant, careful: bool) -> std::result::Result<Connection, Failure> {
        let mut pool = self.connections.lock();
        loop {
            if pool.is_closed {
                return Err(Failure::Refused(Error::closed("the client is closed; connect again")));
            }
            if let Some(connection) = pool.free.pop() {
                if (careful || connection.last_used.elapsed() > IDLE) && !connection.is_alive() {
                    pool.all -= 1;
                    continue;
                }
                return Ok(connection);
            }
            if pool.all < self.options.connections_max {
                pool.all += 1;
                drop(pool);
                let opened = self.open();
                if opened.is_err() {
                    self.forget();
                }
                return opened;
            }
            if self.freed.wait_until(&mut pool, end).timed_out() {
                return Err(Failure::Unsent(Error::unavailable(format!(
                    "all {} connections are at work (connections_max)",
                    self.options.connections_max
                ))));
            }
        }
    }

    fn give_back(&self, connection: Connection) {
        if !connection.is_clean() {
            return self.forget();
        }
        let mut pool = self.connections.lock();
        if pool.is_closed {
            pool.all -= 1;
        } else {
            pool.free.push(connection);
        }
        drop(pool);
        self.freed.notify_one();
    }

    fn forget(&self) {
        self.connections.lock().all -= 1;
        self.freed.notify_one();
    }
}

/// The same call may be made again: whether it took effect is not known.
pub(crate) fn unknown(error: &Error) -> Error {
    Error::unknown(format!("whether the call took effect is not known: {}", error.message()))
}

/// Pauses between repeats: they double, and are drawn at random, so that many clients do not come back at once.
struct Pauses {
    next: Duration,
    most: Duration,
}

impl Pauses {
    fn new(options: &Options) -> Pauses {
        Pauses { next: options.backoff, most: options.backoff_max }
    }

    /// # Errors
    /// The error, where its repeat would come after the end.
    fn pause(&mut self, end: Instant, error: Error) -> Result<()> {
        let left = end.saturating_duration_since(Instant::now());
        let pause = self.next.mul_f64(rand::rng().random_range(0.5..1.0));
        if left <= pause || error.kind() == Kind::Closed {
            return Err(error);
        }
        std::thread::sleep(pause);
        self.next = (self.next * 2).min(self.most);
        Ok(())
    }
}
