//! The client for async programs: many calls at once over one connection, on a tokio runtime.
//!
//! ```text
//! call ──▶ credit ──▶ writer ──▶ socket ──▶ server ──▶ socket ──▶ reader task ──▶ the call that waits for that number
//! ```
//!
//! Frequent calls are multiplexed; rare ones ([`AsyncClient::with`]) use the blocking client, on a blocking thread of
//! the runtime.
//!
//! *Invariants*: every call ends by its deadline; no more is sent than the server takes; calls that may have taken effect
//! and have no answer by then are answered `OutcomeUnknown`, what only looks `Unavailable`.
//!
//! *On failure*: a connection that fails fails all calls on it; those that may be repeated are, on a new one.

mod connector;
mod link;
mod reading;
mod stream;

pub use connector::{Connector, Reader, Writer};

use crate::address::Address;
use crate::buffer::Buffers;
use crate::client::Client;
use crate::fragment::{Cutter, Event, Fragment};
use crate::get::{event_of, get_event_meta, get_meta, read_event, read_found};
use crate::options::Options;
use crate::put::{of_try, read_outcomes, wire_put};
use crate::retry::{Failure, Limit, Retry, Step};
use crate::select::{PlainLease, Verdict, cut_lease, encode_verdicts, of_repeats, read_leases, read_units};
use crate::tls;
use connector::Sockets;
use forebay_core::mutants::is_planted;
use forebay_core::{
    Call, Error, GetAny, Key, Keyspace, Kind, Primary, PutOptions, PutOutcome, Repeat, Result, Sources,
};
use forebay_wire::{Control, WirePut, WireWriter};
use link::{Link, Parts};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// A store on a server, for async programs: a cheap handle, cloned freely.
#[derive(Clone)]
pub struct AsyncClient {
    inner: Arc<Inner>,
}

struct Inner {
    /// For rare calls; `None` where there is no socket for it.
    client: Option<Client>,
    keyspace: Keyspace,
    connector: Arc<dyn Connector>,
    options: Options,
    buffers: Arc<Buffers>,
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
}

impl AsyncClient {
    /// Connects to a server, within a tokio runtime.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect(address: &str, options: Options) -> Result<AsyncClient> {
        let parsed: Address = address.parse()?;
        let (text, blocking, is_tls) = (address.to_owned(), options.clone(), matches!(parsed, Address::Tls(..)));
        let connected = on_thread(move || {
            let tls = is_tls.then(|| tls::config(&blocking.tls)).transpose()?;
            Ok((tls, Client::connect(&text, blocking)?))
        });
        let (tls, client) = connected.await?;
        let (keyspace, connector) = (client.keyspace().clone(), Arc::new(Sockets::new(vec![parsed], tls)));
        Ok(AsyncClient::new(Some(client), keyspace, connector, options))
    }

    /// A client of a server with these addresses and of a keyspace that is known, without a connection yet: the first call makes
    /// one. It has no blocking client.
    ///
    /// # Errors
    /// `Invalid` for no address, one that is none, or certificates that cannot be read.
    pub fn lazy<A: AsRef<str>>(addresses: &[A], keyspace: Keyspace, options: Options) -> Result<AsyncClient> {
        let addresses = addresses.iter().map(|one| one.as_ref().parse()).collect::<Result<Vec<Address>>>()?;
        if addresses.is_empty() {
            return Err(Error::invalid("a server without an address"));
        }
        let is_tls = addresses.iter().any(|address| matches!(address, Address::Tls(..)));
        let tls = is_tls.then(|| tls::config(&options.tls)).transpose()?;
        Ok(AsyncClient::new(None, keyspace, Arc::new(Sockets::new(addresses, tls)), options))
    }

    /// A client whose connections somebody else makes, for this keyspace: a simulator without sockets. It has no blocking client.
    pub fn over(connector: Arc<dyn Connector>, keyspace: Keyspace, options: Options) -> AsyncClient {
        AsyncClient::new(None, keyspace, connector, options)
    }

    fn new(client: Option<Client>, keyspace: Keyspace, connector: Arc<dyn Connector>, options: Options) -> AsyncClient {
        let link = tokio::sync::Mutex::new(None);
        let inner = Inner { client, keyspace, connector, options, buffers: Arc::default(), link };
        AsyncClient { inner: Arc::new(inner) }
    }

    /// The keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        &self.inner.keyspace
    }

    /// Makes calls of the blocking client on a blocking thread of the runtime: runs, accounts, ranges, and what else is
    /// rare.
    ///
    /// # Errors
    /// Those of the calls; `Invalid` for a client without a blocking one ([`AsyncClient::over`]).
    pub async fn with<T: Send + 'static>(
        &self,
        calls: impl FnOnce(&Client) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let none = || Error::invalid("a client over somebody else's connections has no blocking client");
        let client = self.inner.client.clone().ok_or_else(none)?;
        on_thread(move || calls(&client)).await
    }

    /// Puts a fragment.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub async fn put(&self, key: &Key, value: &[u8], options: &PutOptions<'_>) -> Result<PutOutcome> {
        let one = || Error::corrupt("an answer has fewer outcomes than there were puts");
        self.put_many(&[(*key, value, *options)]).await?.pop().ok_or_else(one)?
    }

    /// Puts many fragments with one request; outcomes in the same order.
    ///
    /// # Errors
    /// As [`Client::put_many`]; `Invalid` for more bytes than the server takes at once.
    pub async fn put_many(&self, puts: &[(Key, &[u8], PutOptions<'_>)]) -> Result<Vec<Result<PutOutcome>>> {
        let wire =
            puts.iter().map(|(key, value, options)| wire_put(key, value, options)).collect::<Result<Vec<WirePut>>>()?;
        let meta = WirePut::encode_all(&wire, &self.keyspace().attributes)?;
        let payload: Vec<&[u8]> = puts.iter().map(|(_, value, _)| *value).collect();
        let wait = puts.iter().filter_map(|(_, _, options)| options.deadline).max().unwrap_or_default();
        let answer = self.call(Call::Put, &meta, &payload, wait).await;
        if is_planted("lost-is-stored") && answer.as_ref().is_err_and(|error| error.kind() == Kind::OutcomeUnknown) {
            return Ok(puts.iter().map(|_| Ok(PutOutcome::Stored)).collect());
        }
        let (parts, is_repeat) = answer?;
        let outcomes = read_outcomes(&parts.meta)?;
        if outcomes.len() == puts.len() {
            return Ok(outcomes.into_iter().map(|outcome| of_try(outcome, is_repeat)).collect());
        }
        Err(Error::corrupt("an answer with another number of outcomes than puts"))
    }

    /// The fragment of a key; `None` if there is none.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get(&self, key: &Key) -> Result<Option<Fragment>> {
        let mut found = self.get_many(std::slice::from_ref(key)).await?;
        found.pop().ok_or_else(|| Error::corrupt("an answer without its fragment"))
    }

    /// The fragments of several keys, with one request.
    ///
    /// # Errors
    /// As [`Client::get_many`].
    pub async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Fragment>>> {
        let mut all = Vec::with_capacity(keys.len());
        while all.len() < keys.len() {
            let keys = &keys[all.len()..];
            let (parts, _) = self.call(Call::Get, &get_meta(keys)?, &[], Duration::ZERO).await?;
            let (found, bytes) = read_found(&parts.meta)?;
            if found.len() != keys.len() {
                return Err(Error::corrupt("an answer with another number of fragments than keys"));
            }
            let mut cutter = self.cutter(parts.payload, bytes)?;
            for (at, (key, found)) in keys.iter().zip(found).enumerate() {
                match found {
                    // What did not fit the answer is asked for next.
                    Err(error) if at > 0 && error.kind() == Kind::Full => break,
                    found => all.push(found?.map(|about| cutter.next(*key, about)).transpose()?),
                }
            }
        }
        Ok(all)
    }

    /// A live event with the fragments of the given sources; `None` where there is no such event.
    ///
    /// # Errors
    /// As [`Client::get_event`].
    pub async fn get_event(&self, primary: &Primary, sources: &Sources) -> Result<Option<Event>> {
        let meta = get_event_meta(primary, sources)?;
        let (parts, _) = self.call(Call::GetEvent, &meta, &[], Duration::ZERO).await?;
        let (found, bytes) = read_event(&parts.meta, self.keyspace())?;
        let mut cutter = self.cutter(parts.payload, bytes)?;
        found?.map(|event| event_of(self.keyspace(), event, &mut cutter)).transpose()
    }

    /// Leases up to `n` ready events, waiting for a first one as long as asked. Leases are not extended by themselves:
    /// [`AsyncClient::extend`] does.
    ///
    /// # Errors
    /// As [`Client::get_any`].
    pub async fn get_any(&self, request: &GetAny) -> Result<Vec<PlainLease>> {
        let mut out = WireWriter::new();
        out.get_any(request)?;
        let (parts, _) = self.call(Call::GetAny, &out.finish(), &[], request.wait).await?;
        let (leases, bytes) = read_leases(&parts.meta, self.keyspace())?;
        let mut cutter = self.cutter(parts.payload, bytes)?;
        leases.into_iter().map(|lease| cut_lease((), lease, &mut cutter)).collect()
    }

    /// Extends a lease by `duration` from now.
    ///
    /// # Errors
    /// As [`Client::extend`].
    pub async fn extend(&self, lease: &PlainLease, duration: Duration) -> Result<()> {
        let one = forebay_wire::WireExtend { primary: lease.primary, token: lease.token, duration };
        let meta = forebay_wire::WireExtend::encode_all(&[one])?;
        let (parts, _) = self.call(Call::Extend, &meta, &[], Duration::ZERO).await?;
        read_units(&parts.meta)?.pop().ok_or_else(|| Error::corrupt("an answer without an outcome"))?
    }

    /// Decides about many events with one request; outcomes in the same order.
    ///
    /// # Errors
    /// As [`Client::decide`].
    pub async fn decide(&self, verdicts: &[Verdict]) -> Result<Vec<Result<()>>> {
        let (meta, payload) = encode_verdicts(verdicts)?;
        let (parts, is_repeat) = self.call(Call::Verdict, &meta, &payload, Duration::ZERO).await?;
        Ok(of_repeats(read_units(&parts.meta)?, is_repeat))
    }

    /// Makes a rare call by its name; the answer is the JSON of what it answers.
    ///
    /// # Errors
    /// Those of the call; `Unavailable` or `OutcomeUnknown` without an answer in time, as the call's repeats allow.
    pub async fn control(&self, control: &Control) -> Result<Vec<u8>> {
        let json = |error| Error::internal("a control cannot be written as JSON").with_source(error);
        let meta = serde_json::to_vec(control).map_err(json)?;
        let repeat = control.repeat();
        self.repeated(repeat, control.call(), &meta, &[], Duration::ZERO).await.map(|(parts, _)| parts.meta)
    }

    fn cutter(&self, payload: Vec<u8>, bytes: u64) -> Result<Cutter> {
        if payload.len() as u64 == bytes {
            return Ok(Cutter::of_one_node(self.inner.buffers.of(payload)));
        }
        Err(Error::corrupt("an answer with another number of bytes than it says"))
    }

    /// Makes a call, again where its connection failed, as [`Retry`] says. Answers as well whether that is the answer to a
    /// repeat: whether an earlier try was sent, so that it may have taken effect, and has no answer.
    async fn call(&self, call: Call, meta: &[u8], payload: &[&[u8]], wait: Duration) -> Result<(Parts, bool)> {
        self.repeated(call.repeat(), call, meta, payload, wait).await
    }

    async fn repeated(
        &self,
        repeat: Repeat,
        call: Call,
        meta: &[u8],
        payload: &[&[u8]],
        wait: Duration,
    ) -> Result<(Parts, bool)> {
        let options = &self.inner.options;
        let limit = Limit::new(options.end_after(Instant::now().into_std(), wait));
        let mut retry = Retry::new(repeat, limit, options);
        loop {
            let failure = match self.try_call(retry.end().into(), call, meta, payload).await {
                Ok(parts) => return Ok((parts, retry.is_repeat())),
                Err(failure) => failure,
            };
            match retry.failed(failure, Instant::now().into_std(), self.inner.connector.draw()) {
                Step::Wait(pause) => tokio::time::sleep(pause).await,
                Step::GiveUp(error) => return Err(error),
            }
        }
    }

    async fn try_call(
        &self,
        end: Instant,
        call: Call,
        meta: &[u8],
        payload: &[&[u8]],
    ) -> std::result::Result<Parts, Failure> {
        let link = timeout_at(end, self.link()).await.unwrap_or_else(|_| Err(Failure::Unsent(self.late())))?;
        let begun = AtomicBool::new(false);
        match timeout_at(end, link.ask(end, &begun, call, meta, payload)).await {
            Ok(answer) => answer,
            Err(_) => {
                // Nobody reads its answer any more, and it would hold credit until it came: later calls get a new
                // connection.
                link.retire();
                Err(match begun.into_inner() {
                    true => Failure::Lost(self.late()),
                    false => Failure::Unsent(self.late()),
                })
            }
        }
    }

    fn late(&self) -> Error {
        Error::unavailable(format!("{} did not answer in time", self.inner.connector.name()))
    }

    /// The connection in use, or a new one.
    async fn link(&self) -> std::result::Result<Arc<Link>, Failure> {
        let mut link = self.inner.link.lock().await;
        if let Some(known) = link.as_ref().filter(|known| !known.is_over()) {
            return Ok(known.clone());
        }
        // Under the lock: calls that come meanwhile wait for this connection instead of opening one each.
        let opened = Link::open(&*self.inner.connector, &self.inner.options).await?;
        Ok(link.insert(Arc::new(opened)).clone())
    }
}

async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::internal("a call ended in a panic").with_source(error))?
}
