//! Connections to one server, and the calls that are made over them.
//!
//! ```text
//! call ──▶ a connection that is free, or a new one ──▶ request, answer ──▶ back to the free ones
//!            └ it failed: the machine of `retry.rs` says whether and when the same call is made again
//! ```
//!
//! *Invariants*: every call ends by its deadline; a call that may have taken effect and cannot be repeated safely is
//! answered `OutcomeUnknown`, never repeated. The answer to a repeat says that an earlier try has none
//! (`tests/network/unknown.rs`).

use crate::address::Address;
use crate::buffer::Buffers;
use crate::client::Client;
use crate::connection::{Answer, Connection};
use crate::machine::Machine;
use crate::options::Options;
use crate::retry::{Failure, Limit, Retry, Step};
use forebay_core::{Call, Error, Repeat, Result};
use forebay_wire::{Welcome, WireReader};
use parking_lot::{Condvar, Mutex};
use rustls::ClientConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The connections of a client.
pub(crate) struct Pool {
    pub(crate) address: Address,
    pub(crate) options: Options,
    /// The server's hello.
    pub(crate) welcome: Arc<Welcome>,
    /// Mean length of the fragments that were read last: as many are asked for at once.
    pub(crate) fragment_bytes: AtomicU64,
    tls: Option<Arc<ClientConfig>>,
    buffers: Arc<Buffers>,
    epoch: Arc<AtomicU32>,
    connections: Mutex<Connections>,
    freed: Condvar,
}

/// A request that was sent. Dropped without its answer, its connection ends.
pub(crate) struct Ahead {
    client: Client,
    connection: Option<Connection>,
    request: u64,
}

impl Ahead {
    /// Its answer; `None` where none came.
    pub(crate) fn answer<T>(mut self, read: impl FnOnce(&[u8]) -> Result<(T, u64)>) -> Option<Answer<T>> {
        let connection = self.connection.as_mut()?;
        let answer = connection.answer(self.request, read).and_then(|answer| connection.grant().map(|()| answer));
        self.connection.take().into_iter().for_each(|connection| self.client.pool().give_back(connection));
        answer.ok()
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if self.connection.take().is_some() {
            self.client.pool().forget();
        }
    }
}

impl Client {
    /// Sends a request whose answer is read later; `None` where that cannot be done at once. A new connection is opened for it if
    /// there may be one, unless it `is_optional`.
    pub(crate) fn send_ahead(&self, call: Call, meta: &[u8], is_optional: bool) -> Option<Ahead> {
        let (pool, limit) = (self.pool(), self.calls().limit(Duration::ZERO));
        let connection = match is_optional {
            true => pool.take_free(),
            false => pool.checkout(pool.machine().now(), limit, false).ok(),
        }?;
        let mut ahead = Ahead { client: self.clone(), connection: Some(connection), request: 0 };
        let connection = ahead.connection.as_mut()?;
        connection.begin(limit.end);
        ahead.request = connection.send(call, meta, &[]).ok()?;
        Some(ahead)
    }
}

#[derive(Default)]
struct Connections {
    free: Vec<Connection>,
    /// Free ones and those at work.
    all: usize,
    is_closed: bool,
}

/// Expected length of a fragment before any was read, in bytes.
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
        let limit = Limit::new(options.end(Duration::ZERO));
        Pool::connect_within(limit, address, options)
    }

    /// The same in this time.
    pub(crate) fn connect_within(limit: Limit, address: &str, options: Options) -> Result<Pool> {
        let address: Address = address.parse()?;
        let buffers = Arc::new(Buffers::default());
        let tls = matches!(address, Address::Tls(..)).then(|| crate::tls::config(&options.tls)).transpose()?;
        // A hello changes nothing at the server, so a lost one is tried again like a call that only looks.
        let (retry, epoch) = (Retry::new(Repeat::Looks, limit, &options), Arc::<AtomicU32>::default());
        let connection = drive(&*options.machine, retry, |retry| {
            let end = retry.limit().connect_by(options.machine.now());
            Connection::open(&address, &options, &buffers, &epoch, tls.as_ref(), end)
        })?;
        let welcome = connection.welcome.clone();
        let connections = Mutex::new(Connections { free: vec![connection], all: 1, is_closed: false });
        let fragment_bytes = AtomicU64::new(FRAGMENT_BYTES);
        Ok(Pool { address, options, welcome, fragment_bytes, tls, buffers, epoch, connections, freed: Condvar::new() })
    }

    /// The highest epoch of a map that an answer has said; 0 for a server in no cluster.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Free connections are closed, further calls answer `Closed`.
    pub(crate) fn close(&self) {
        let mut pool = self.connections.lock();
        pool.is_closed = true;
        // Those at work are counted down when they come back (`give_back`).
        debug_assert!(pool.all >= pool.free.len(), "free connections are among all");
        pool.all -= pool.free.len();
        pool.free.clear();
        drop(pool);
        // All of them: each must find out that the client is closed.
        self.freed.notify_all();
    }

    pub(crate) fn machine(&self) -> &dyn Machine {
        &*self.options.machine
    }

    fn open(&self, limit: Limit) -> std::result::Result<Connection, Failure> {
        let end = limit.connect_by(self.machine().now());
        Connection::open(&self.address, &self.options, &self.buffers, &self.epoch, self.tls.as_ref(), end)
    }

    /// A connection for a call that has this time; waits for a free one until `free_by`.
    fn checkout(&self, free_by: Instant, limit: Limit, careful: bool) -> std::result::Result<Connection, Failure> {
        let mut pool = self.connections.lock();
        loop {
            if pool.is_closed {
                return Err(Failure::Barred(Error::closed("the client is closed; connect again")));
            }
            // The one that was used last: it is the likeliest to be alive, and the others may end unused.
            if let Some(connection) = pool.free.pop() {
                if (careful || self.is_idle(&connection)) && !connection.is_alive() {
                    // A look costs a system call, so a connection that was just used is trusted, except for a call that
                    // must not be sent twice.
                    pool.all -= 1;
                    continue;
                }
                return Ok(connection);
            }
            if pool.all < self.options.connections_max {
                debug_assert!(!pool.is_closed, "a closed client opens nothing");
                // Counted before it is made, so that no more than allowed are made at once; made without the lock, because that
                // takes a handshake and others may give theirs back meanwhile.
                pool.all += 1;
                drop(pool);
                let opened = self.open(limit);
                if opened.is_err() {
                    self.forget();
                }
                return opened;
            }
            // Nothing was sent, so the call may fail as unavailable and never as unknown.
            let Some(most) = self.machine().block_at_most(free_by) else {
                return Err(Failure::Unsent(Error::unavailable(format!(
                    "all {} connections are at work (connections_max)",
                    self.options.connections_max
                ))));
            };
            self.freed.wait_for(&mut pool, most);
        }
    }

    fn is_idle(&self, connection: &Connection) -> bool {
        self.machine().now().saturating_duration_since(connection.last_used) > IDLE
    }

    /// A connection that is free and alive; none is opened or waited for.
    fn take_free(&self) -> Option<Connection> {
        let connection = self.connections.lock().free.pop()?;
        if self.is_idle(&connection) && !connection.is_alive() {
            self.forget();
            return None;
        }
        Some(connection)
    }

    fn give_back(&self, connection: Connection) {
        // Behind an answer that was not read to its end the next call would read the wrong bytes.
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
        let mut pool = self.connections.lock();
        debug_assert!(pool.all > pool.free.len(), "a connection is forgotten once, and not while it is free");
        pool.all -= 1;
        drop(pool);
        self.freed.notify_one();
    }
}

/// The calls of a client: each has the time of its own options, or what is left of the call that it is a part of.
pub(crate) struct Calls<'a> {
    pool: &'a Pool,
    within: Option<Limit>,
}

impl<'a> Calls<'a> {
    pub(crate) fn new(pool: &'a Pool, within: Option<Limit>) -> Calls<'a> {
        Calls { pool, within }
    }

    /// Time for a call that itself waits so long.
    pub(crate) fn limit(&self, wait: Duration) -> Limit {
        let own = Limit::new(self.pool.options.end(wait));
        self.within.map_or(own, |within| within.and(own))
    }

    /// When such a call must be over.
    pub(crate) fn end(&self, wait: Duration) -> Instant {
        self.limit(wait).end
    }

    /// Makes a call, again and again as [`Retry`] says. `make` is passed whether it is a repeat: whether an earlier try was
    /// sent, so that it may have taken effect, and has no answer.
    pub(crate) fn call<T>(
        &self,
        repeat: Repeat,
        wait: Duration,
        mut make: impl FnMut(&mut Connection, bool) -> std::result::Result<T, Failure>,
    ) -> Result<T> {
        self.drive(repeat, wait, |retry| {
            let (pool, limit) = (self.pool, retry.limit());
            let free_by = match self.within.map(|_| pool.machine().now()) {
                None => limit.end,
                // A part of a call may be left without time: its connection is still good.
                Some(now) if now >= limit.end => {
                    let what = format!("{}: no time was left to ask it", pool.address);
                    return Err(Failure::Unsent(Error::unavailable(what)));
                }
                Some(now) => limit.connect_by(now),
            };
            // A server that has left unseen would take what must not be sent twice, and never answer.
            let mut connection = pool.checkout(free_by, limit, repeat == Repeat::Never)?;
            connection.begin(limit.end);
            let answer = make(&mut connection, retry.is_repeat());
            pool.give_back(connection);
            answer
        })
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
        self.drive(Repeat::Looks, Duration::ZERO, |retry| self.pool.open(retry.limit()))
    }

    /// Tries until one succeeds or the machine gives up: for calls that have connections of their own.
    pub(crate) fn drive<T>(
        &self,
        repeat: Repeat,
        wait: Duration,
        one_try: impl FnMut(&Retry) -> std::result::Result<T, Failure>,
    ) -> Result<T> {
        drive(self.pool.machine(), Retry::new(repeat, self.limit(wait), &self.pool.options), one_try)
    }
}

/// Tries until one succeeds or the machine gives up; waits on this thread in between.
fn drive<T>(
    machine: &dyn Machine,
    mut retry: Retry,
    mut one_try: impl FnMut(&Retry) -> std::result::Result<T, Failure>,
) -> Result<T> {
    loop {
        let failure = match one_try(&retry) {
            Ok(done) => return Ok(done),
            Err(failure) => failure,
        };
        match retry.failed(failure, machine.now(), machine.draw()) {
            Step::Wait(pause) => machine.sleep(pause),
            Step::GiveUp(error) => return Err(error),
        }
    }
}
