//! The client for async programs: many calls at once over one connection, on a tokio runtime.
//!
//! ```text
//! call ──▶ credit ──▶ writer ──▶ socket ──▶ server ──▶ socket ──▶ reader task ──▶ whoever waits for that number
//! ```
//!
//! What is frequent is multiplexed; what is rare ([`AsyncClient::with`]) is the blocking client's, on a blocking thread of
//! the runtime.
//!
//! *Invariants*: every call ends by its deadline; no more is sent than the server takes; calls that may have taken effect
//! and cannot be repeated are answered `OutcomeUnknown`.
//!
//! *On failure*: a connection that fails fails all calls on it; those that may be repeated are, on a new one.

use crate::address::Address;
use crate::buffer::Buffers;
use crate::client::Client;
use crate::fragment::{Cutter, Event, Fragment};
use crate::get::{event_of, get_event_meta, get_meta, read_event, read_found};
use crate::options::Options;
use crate::pool::unknown;
use crate::put::{read_outcomes, repeated, wire_put};
use crate::select::{PlainLease, Verdict, cut_lease, encode_verdicts, read_leases, read_units};
use forebay_core::{
    Error, FRAME_HEAD_BYTES, FrameFlags, FrameHead, FrameKind, GetAny, Hello, Key, Keyspace, Kind, Primary, PutOptions,
    PutOutcome, Result, Sources, Welcome, WirePut, WireReader, WireWriter,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

/// Credit is counted in units of so many bytes.
const UNIT_BYTES: u64 = 64;

type Half<T> = Pin<Box<T>>;
type Answered = oneshot::Sender<Result<Parts>>;

/// An answer: its meta, and its payload as far as it has come.
struct Parts {
    meta: Vec<u8>,
    payload: Vec<u8>,
}

/// A connection that many calls share.
struct Link {
    writer: tokio::sync::Mutex<Half<dyn AsyncWrite + Send>>,
    waiting: Arc<Mutex<Waiting>>,
    next: AtomicU64,
    /// What the server still takes, in units.
    credit: Arc<Semaphore>,
    /// What was received and not granted anew.
    owed: Arc<AtomicU64>,
    reader: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Waiting {
    calls: HashMap<u64, (Answered, Parts)>,
    /// Why nothing more comes.
    over: Option<String>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// A store on a server, for async programs: a cheap handle, cloned freely.
#[derive(Clone)]
pub struct AsyncClient {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    address: Address,
    options: Options,
    buffers: Arc<Buffers>,
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
}

/// Why a call failed, and whether it was sent.
enum Failure {
    Refused(Error),
    Lost(Error),
}

impl AsyncClient {
    /// Connects to a server, within a tokio runtime.
    ///
    /// # Errors
    /// As [`Client::connect`]; `Invalid` also for a `tls://` address, which the blocking client alone speaks.
    pub async fn connect(address: &str, options: Options) -> Result<AsyncClient> {
        let parsed: Address = address.parse()?;
        if matches!(parsed, Address::Tls(..)) {
            return Err(Error::invalid("the async client speaks tcp:// and unix:; tls:// is the blocking client's"));
        }
        let (text, blocking) = (address.to_owned(), options.clone());
        let client = on_thread(move || Client::connect(&text, blocking)).await?;
        let link = tokio::sync::Mutex::new(None);
        let inner = Inner { client, address: parsed, options, buffers: Arc::default(), link };
        Ok(AsyncClient { inner: Arc::new(inner) })
    }

    /// The keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        self.inner.client.keyspace()
    }

    /// Makes calls of the blocking client on a blocking thread of the runtime: runs, accounts, ranges, and what else is
    /// rare.
    ///
    /// # Errors
    /// Those of the calls.
    pub async fn with<T: Send + 'static>(
        &self,
        calls: impl FnOnce(&Client) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let client = self.inner.client.clone();
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
        let (parts, attempt) = self.call(FrameKind::Put, &meta, &payload, wait).await?;
        let outcomes = repeated(read_outcomes(&parts.meta)?, attempt);
        if outcomes.len() == puts.len() {
            return Ok(outcomes);
        }
        Err(Error::corrupt("an answer with another number of outcomes than puts"))
    }

    /// The fragment of a key; `None` where there is none.
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
            let (parts, _) = self.call(FrameKind::Get, &get_meta(keys)?, &[], Duration::ZERO).await?;
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
        let (parts, _) = self.call(FrameKind::GetEvent, &meta, &[], Duration::ZERO).await?;
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
        let (parts, _) = self.call(FrameKind::GetAny, &out.finish(), &[], request.wait).await?;
        let (leases, bytes) = read_leases(&parts.meta, self.keyspace())?;
        let mut cutter = self.cutter(parts.payload, bytes)?;
        leases.into_iter().map(|lease| cut_lease((), lease, &mut cutter)).collect()
    }

    /// Extends a lease by `duration` from now.
    ///
    /// # Errors
    /// As [`Client::extend`].
    pub async fn extend(&self, lease: &PlainLease, duration: Duration) -> Result<()> {
        let one = forebay_core::WireExtend { primary: lease.primary, token: lease.token, duration };
        let meta = forebay_core::WireExtend::encode_all(&[one])?;
        let (parts, _) = self.call(FrameKind::Extend, &meta, &[], Duration::ZERO).await?;
        read_units(&parts.meta)?.pop().ok_or_else(|| Error::corrupt("an answer without an outcome"))?
    }

    /// Decides about many events with one request; outcomes in the same order.
    ///
    /// # Errors
    /// As [`Client::decide`].
    pub async fn decide(&self, verdicts: &[Verdict]) -> Result<Vec<Result<()>>> {
        let (meta, payload) = encode_verdicts(verdicts)?;
        let (parts, _) = self.call(FrameKind::Verdict, &meta, &payload, Duration::ZERO).await?;
        read_units(&parts.meta)
    }

    fn cutter(&self, payload: Vec<u8>, bytes: u64) -> Result<Cutter> {
        if payload.len() as u64 == bytes {
            return Ok(Cutter::new(self.inner.buffers.of(payload)));
        }
        Err(Error::corrupt("an answer with another number of bytes than it says"))
    }

    /// Makes a call, again where its connection failed, until its deadline; answers the number of the try as well.
    async fn call(&self, kind: FrameKind, meta: &[u8], payload: &[&[u8]], wait: Duration) -> Result<(Parts, u32)> {
        let end = Instant::now() + self.inner.options.deadline.saturating_add(wait);
        let mut pause = self.inner.options.backoff;
        let mut sent = false;
        for attempt in 0.. {
            let error = match self.try_call(kind, meta, payload, end).await {
                Ok(parts) => return Ok((parts, attempt)),
                Err(Failure::Refused(error)) if error.kind() != Kind::Unavailable || !is_ours(&error) => {
                    return Err(error);
                }
                Err(Failure::Refused(error)) => error,
                Err(Failure::Lost(error)) => {
                    sent = true;
                    error
                }
            };
            if Instant::now() + pause >= end {
                return Err(if sent { unknown(&error) } else { error });
            }
            tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(self.inner.options.backoff_max);
        }
        Err(Error::internal("no more tries"))
    }

    async fn try_call(
        &self,
        kind: FrameKind,
        meta: &[u8],
        payload: &[&[u8]],
        end: Instant,
    ) -> std::result::Result<Parts, Failure> {
        let late = || Error::unavailable("the server did not answer in time");
        let link = timeout_at(end, self.link()).await.map_err(|_| Failure::Refused(away(late())))?;
        let link = link.map_err(Failure::Refused)?;
        let asked = link.ask(kind, meta, payload);
        match timeout_at(end, asked).await {
            Ok(answer) => answer,
            Err(_) => {
                self.forget(&link).await;
                Err(Failure::Lost(late()))
            }
        }
    }

    /// The connection in use, or a new one.
    async fn link(&self) -> Result<Arc<Link>> {
        let mut link = self.inner.link.lock().await;
        if let Some(known) = link.as_ref().filter(|known| known.waiting.lock().over.is_none()) {
            return Ok(known.clone());
        }
        let opened = Link::open(&self.inner.address, &self.inner.options).await.map_err(away)?;
        Ok(link.insert(Arc::new(opened)).clone())
    }

    async fn forget(&self, lost: &Arc<Link>) {
        let mut link = self.inner.link.lock().await;
        if link.as_ref().is_some_and(|known| Arc::ptr_eq(known, lost)) {
            *link = None;
        }
    }
}

/// Marks an error as one of the connection, not of the store.
fn away(error: Error) -> Error {
    match error.kind() {
        Kind::Unavailable => Error::unavailable(format!("{AWAY}{}", error.message())),
        _ => error,
    }
}

fn is_ours(error: &Error) -> bool {
    error.message().starts_with(AWAY)
}

const AWAY: &str = "no connection: ";

async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::internal("a call ended in a panic").with_source(error))?
}

impl Link {
    async fn open(address: &Address, options: &Options) -> Result<Link> {
        let failed = |error: std::io::Error| {
            Error::unavailable(format!("{address} does not answer: {error}")).with_source(error)
        };
        let (reader, writer): (Half<dyn AsyncRead + Send>, Half<dyn AsyncWrite + Send>) = match address {
            Address::Unix(path) => {
                let (reader, writer) = tokio::net::UnixStream::connect(path).await.map_err(failed)?.into_split();
                (Box::pin(reader), Box::pin(writer))
            }
            Address::Tcp(host, port) | Address::Tls(host, port) => {
                let stream = tokio::net::TcpStream::connect((host.as_str(), *port)).await.map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                let (reader, writer) = stream.into_split();
                (Box::pin(reader), Box::pin(writer))
            }
        };
        let waiting = Arc::<Mutex<Waiting>>::default();
        let credit = Arc::new(Semaphore::new(4096 / UNIT_BYTES as usize));
        let owed = Arc::<AtomicU64>::default();
        let reading = Reading { reader, waiting: waiting.clone(), owed: owed.clone(), window: options.window_bytes };
        let reader = tokio::spawn(reading.run());
        let link = Link { writer: tokio::sync::Mutex::new(writer), waiting, next: 1.into(), credit, owed, reader };
        let hello = Hello {
            features: 0,
            window_bytes: options.window_bytes,
            token: options.token.clone(),
            keyspace: options.keyspace.clone(),
            name: options.name.clone(),
        };
        let answer = link.ask(FrameKind::Hello, &hello.encode()?, &[]).await;
        let parts = answer.map_err(|failure| match failure {
            Failure::Refused(error) | Failure::Lost(error) => error,
        })?;
        let welcome = Welcome::decode(&parts.meta)?;
        let units = (u64::from(welcome.window_bytes) / UNIT_BYTES) as usize;
        link.credit.add_permits(units.saturating_sub(link.credit.available_permits()));
        link.owed.store(0, Ordering::Relaxed);
        Ok(link)
    }

    /// Sends a request and waits for its answer.
    async fn ask(&self, kind: FrameKind, meta: &[u8], payload: &[&[u8]]) -> std::result::Result<Parts, Failure> {
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        let bytes: usize = payload.iter().map(|piece| piece.len()).sum();
        let payload_bytes = u32::try_from(bytes)
            .map_err(|_| Failure::Refused(Error::invalid(format!("a request of {bytes} bytes"))))?;
        let mut head = FrameHead::new(kind, FrameFlags::REQUEST, request).with(meta, payload_bytes);
        let units = u32::try_from(head.frame_bytes().div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let over = |why: String| Failure::Refused(away(Error::unavailable(why)));
        // Given back when the answer is there: it is then that the server takes as much anew.
        let permit = self.credit.acquire_many(units).await.map_err(|error| over(error.to_string()))?;
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock();
            if let Some(why) = &waiting.over {
                return Err(over(why.clone()));
            }
            waiting.calls.insert(request, (sender, Parts { meta: Vec::new(), payload: Vec::new() }));
        }
        let guard = Forget { waiting: &self.waiting, request };
        {
            let mut writer = self.writer.lock().await;
            let whole = Whole { waiting: &self.waiting };
            head.credit = u32::try_from(self.owed.swap(0, Ordering::AcqRel)).unwrap_or(u32::MAX);
            let lost = |error: std::io::Error| {
                Failure::Lost(Error::unavailable(format!("the connection failed: {error}")).with_source(error))
            };
            let mut start = head.encode().to_vec();
            start.extend_from_slice(meta);
            writer.write_all(&start).await.map_err(lost)?;
            for piece in payload {
                writer.write_all(piece).await.map_err(lost)?;
            }
            std::mem::forget(whole);
        }
        let answer = receiver.await;
        drop(guard);
        drop(permit);
        self.grant().await?;
        match answer {
            Ok(Ok(parts)) => Ok(parts),
            Ok(Err(error)) => Err(Failure::Refused(error)),
            Err(_) => {
                let why = self.waiting.lock().over.clone().unwrap_or_default();
                Err(Failure::Lost(Error::unavailable(why)))
            }
        }
    }

    /// Lets the server send more, where nothing else goes out that would say so.
    async fn grant(&self) -> std::result::Result<(), Failure> {
        if self.owed.load(Ordering::Relaxed) < 1 << 20 {
            return Ok(());
        }
        let owed = self.owed.swap(0, Ordering::AcqRel);
        let mut head = FrameHead::new(FrameKind::Credit, FrameFlags::REQUEST, 0);
        head.credit = u32::try_from(owed).unwrap_or(u32::MAX);
        let mut writer = self.writer.lock().await;
        let sent = writer.write_all(&head.encode()).await;
        sent.map_err(|error| Failure::Lost(Error::unavailable(format!("the connection failed: {error}"))))
    }
}

/// A call that nobody waits for any more.
struct Forget<'a> {
    waiting: &'a Mutex<Waiting>,
    request: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.waiting.lock().calls.remove(&self.request);
    }
}

/// A frame that is being sent: a call that is given up in the middle of it leaves nothing that the server could read.
struct Whole<'a> {
    waiting: &'a Mutex<Waiting>,
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock();
        waiting.over.get_or_insert_with(|| "a call was given up while it was being sent".to_owned());
        waiting.calls.clear();
    }
}

/// What comes in.
struct Reading {
    reader: Half<dyn AsyncRead + Send>,
    waiting: Arc<Mutex<Waiting>>,
    owed: Arc<AtomicU64>,
    window: u32,
}

impl Reading {
    async fn run(mut self) {
        let why = match self.read().await {
            Ok(()) => "the server has gone".to_owned(),
            Err(error) => error.message().to_owned(),
        };
        let mut waiting = self.waiting.lock();
        waiting.over = Some(why);
        // Whoever waits hears of it by the end of its channel.
        waiting.calls.clear();
    }

    async fn read(&mut self) -> Result<()> {
        let failed =
            |error: std::io::Error| Error::unavailable(format!("the connection failed: {error}")).with_source(error);
        loop {
            let mut bytes = [0; FRAME_HEAD_BYTES];
            self.reader.read_exact(&mut bytes).await.map_err(failed)?;
            let head = FrameHead::decode(&bytes, u64::from(self.window))?;
            let mut meta = vec![0; head.meta_bytes as usize];
            self.reader.read_exact(&mut meta).await.map_err(failed)?;
            head.check_meta(&meta)?;
            let mut payload = vec![0; head.payload_bytes as usize];
            self.reader.read_exact(&mut payload).await.map_err(failed)?;
            self.owed.fetch_add(head.frame_bytes(), Ordering::AcqRel);
            let mut waiting = self.waiting.lock();
            let Some((sender, mut parts)) = waiting.calls.remove(&head.request) else {
                if head.flags.is_error() && head.request == 0 {
                    return Err(WireReader::new(&meta).error().unwrap_or_else(|error| error));
                }
                // A goodbye, credit, or the answer to a call that was given up.
                continue;
            };
            if head.flags.is_error() {
                // Nobody may wait any more.
                let _ = sender.send(Err(WireReader::new(&meta).error().unwrap_or_else(|error| error)));
                continue;
            }
            if parts.meta.is_empty() {
                parts.meta = meta;
            }
            if parts.payload.is_empty() {
                parts.payload = payload
            } else {
                parts.payload.extend_from_slice(&payload)
            }
            if head.flags.has_more() {
                waiting.calls.insert(head.request, (sender, parts));
            } else {
                let _ = sender.send(Ok(parts));
            }
        }
    }
}
