//! A ring on a server: puts, windows, pins, and what is there for people.

use crate::buffer::Buffer;
use crate::connection::Connection;
use crate::objects::control;
use crate::options::Options;
use crate::pool::{Calls, Pool};
use crate::put::{NO_WAIT, Outcome, Puts, Tries, send_many, too_few, wire_put};
use crate::retry::{Failure, Limit};
use forebay_core::{
    AttributeSchema, Call, Coverage, Error, GapCause, Keyspace, Ledger, PutOptions, Result, RingChunkInfo,
    RingKeyspace, RingOutcome, RingPinStatus, RingPut, RingSourceStatus, RingSources, RingStamp, RingStats, SourceId,
    Stretch, crc32c,
};
use forebay_wire::{Control, WirePut, WireRingFragment, WireWindow, WireWindowPart};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Longest wait for a window; longer ones are cut to it, as embedded.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
/// Pause before a window is asked for again.
const AGAIN: Duration = Duration::from_millis(5);
/// Time to tell the server that a pin is given up. The end of the connection gives it up as well.
const LAST_WORD: Duration = Duration::from_millis(200);

/// A ring on a server: a cheap handle, cloned freely, used from any number of threads.
pub struct RingClient {
    inner: Arc<Inner>,
    /// The time of the call that calls by this handle are parts of.
    within: Option<Limit>,
}

/// A handle for calls of their own, also where it is copied within a call.
impl Clone for RingClient {
    fn clone(&self) -> RingClient {
        RingClient { inner: self.inner.clone(), within: None }
    }
}

struct Inner {
    pool: Pool,
    keyspace: RingKeyspace,
}

impl Outcome for RingOutcome {
    fn of_repeat(self) -> Result<RingOutcome> {
        match self {
            RingOutcome::Duplicate => Ok(RingOutcome::Stored),
            // The first try may have been in time.
            RingOutcome::Refused(cause @ (GapCause::Skew | GapCause::TooLate)) => Err(Error::unknown(format!(
                "whether the fragment was stored is not known: a repeat came to be refused ({})",
                cause.name()
            ))),
            other => Ok(other),
        }
    }
}

/// One fragment to be put, with what goes with it.
#[derive(Clone, Copy, Debug)]
pub struct RingFrame<'a> {
    /// Its source.
    pub source: SourceId,
    /// First tick.
    pub timestamp: u64,
    /// Ticks covered.
    pub span: u32,
    /// The bytes.
    pub value: &'a [u8],
    /// Run and status.
    pub options: RingPut,
}

impl RingClient {
    /// Connects to a server, as [`crate::Client::connect`].
    ///
    /// # Errors
    /// As there; `Invalid` also for a keyspace that has events.
    pub fn connect(address: &str, options: Options) -> Result<RingClient> {
        RingClient::of_pool(Pool::connect(address, options)?)
    }

    pub(crate) fn of_pool(pool: Pool) -> Result<RingClient> {
        let text = &pool.welcome.keyspace;
        let keyspace = RingKeyspace::from_toml(text).map_err(|error| match Keyspace::from_toml(text) {
            Ok(events) => Error::invalid(format!("keyspace `{}` has events: connect to it with Client", events.name)),
            Err(_) => error,
        })?;
        Ok(RingClient { inner: Arc::new(Inner { pool, keyspace }), within: None })
    }

    /// The keyspace.
    pub fn keyspace(&self) -> &RingKeyspace {
        &self.inner.keyspace
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    fn calls(&self) -> Calls<'_> {
        Calls::new(self.pool(), self.within)
    }

    /// The same handle, whose calls are parts of one that has this time.
    pub(crate) fn within(&self, limit: Limit) -> RingClient {
        RingClient { within: Some(limit), ..self.clone() }
    }

    /// The map of the cluster that the server is a node of, as JSON.
    ///
    /// # Errors
    /// `Invalid` for a server that is in none; `Unavailable`.
    pub fn map_text(&self) -> Result<String> {
        Ok(self.look::<serde_json::Value>(&Control::Map)?.to_string())
    }

    /// The node that the server is, and its peers as it sees them, as JSON.
    ///
    /// # Errors
    /// As [`RingClient::map_text`].
    pub fn cluster_text(&self) -> Result<String> {
        Ok(self.look::<serde_json::Value>(&Control::Cluster)?.to_string())
    }

    /// Where the server is.
    pub fn address(&self) -> String {
        self.inner.pool.address.to_string()
    }

    /// Ends: free connections are closed, further calls answer `Closed`.
    pub fn close(&self) {
        self.inner.pool.close();
    }

    /// Puts a fragment that covers `[timestamp, timestamp + span)`. When this returns `Stored`, the server's ring has it.
    ///
    /// # Errors
    /// As `Ring::put`; `OutcomeUnknown` where the server went away and did not come back in time, and where an answer was
    /// lost and the repeat came too late to be taken: the same put may be made again.
    pub fn put(
        &self,
        source: &SourceId,
        timestamp: u64,
        span: u32,
        value: &[u8],
        options: &RingPut,
    ) -> Result<RingOutcome> {
        let mut outcomes =
            self.put_many(&[RingFrame { source: *source, timestamp, span, value, options: *options }])?;
        outcomes.pop().ok_or_else(too_few)?
    }

    /// Puts many fragments, several in a frame and several frames under way; outcomes in the same order.
    ///
    /// # Errors
    /// Those of single fragments are in their outcomes; `OutcomeUnknown` or `Unavailable` for the call, where the server
    /// went away and did not come back in time.
    pub fn put_many(&self, frames: &[RingFrame<'_>]) -> Result<Vec<Result<RingOutcome>>> {
        let mut tries = Tries::new(frames.len());
        let (value, wire) = (|at: usize| frames[at].value, |at: usize| self.wire_put(&frames[at]));
        let puts = Puts { value: &value, wire: &wire, attributes: &AttributeSchema::default() };
        self.calls().call(Call::Put.repeat(), NO_WAIT, |connection, _| send_many(connection, &puts, &mut tries))?;
        Ok(tries.finish())
    }

    fn wire_put(&self, frame: &RingFrame<'_>) -> Result<WirePut> {
        let RingFrame { source, timestamp, span, value, options } = *frame;
        let schema = &self.keyspace().source;
        if !schema.fits(&source) {
            let parts = schema.describe().join(", ");
            return Err(Error::invalid(format!("source {source} is of another schema; this ring has {parts}")));
        }
        let stamp = RingStamp { timestamp, span, run: options.run };
        if span == 0 || stamp.end().is_none() {
            return Err(Error::invalid(format!(
                "source {source}: {span} ticks from {timestamp} on are no stretch of ticks"
            )));
        }
        let key = schema.key(&source, &stamp);
        wire_put(&key, value, &PutOptions { status: options.status, ..PutOptions::default() })
    }

    /// All fragments that overlap `[begin, end)`, by source, with what is known of the rest. Waits until no source is
    /// `NotYet` in it, at most `wait`. It is read source by source, a piece at a time: what is evicted before its turn is
    /// `Gone`; to keep a stretch as it is now, pin it first.
    ///
    /// # Errors
    /// As `Ring::window`, and `Unavailable` where the server does not answer in time.
    pub fn window(&self, begin: u64, end: u64, sources: &RingSources, wait: Duration) -> Result<Window> {
        let schema = &self.keyspace().source;
        if let RingSources::Only(list) = sources
            && let Some(other) = list.iter().find(|source| !schema.fits(source))
        {
            return Err(Error::invalid(format!("source {other} is of another schema than this ring's")));
        }
        let machine = self.inner.pool.machine();
        let until = machine.now() + wait.min(WAIT_MAX);
        loop {
            // What is left of the caller's wait, not the whole wait again: the loop must end in time.
            let left = until.saturating_duration_since(machine.now());
            let meta = WireWindow { begin, end, sources: sources.clone(), wait: left }.encode(schema)?;
            let found =
                self.calls().call(Call::Window.repeat(), left, |connection, _| self.receive(connection, &meta))?;
            let not_yet = |stretch: &Stretch| stretch.state == Coverage::NotYet;
            let is_all = !found.iter().flat_map(|source| &source.coverage).any(not_yet);
            // A server waits no longer than it is configured to, and not at all while it stops.
            if is_all || until.saturating_duration_since(machine.now()) < AGAIN {
                return self.with_first(Window { begin, end, sources: found });
            }
            machine.sleep(AGAIN);
        }
    }

    /// Says of sources that lack something where they began: what lies before that was never there.
    fn with_first(&self, mut window: Window) -> Result<Window> {
        let lacks = |source: &SourceWindow| source.coverage.iter().any(|stretch| stretch.state == Coverage::Gone);
        if window.sources.iter().any(lacks) {
            let statuses = self.sources()?;
            for source in window.sources.iter_mut().filter(|source| lacks(source)) {
                source.first =
                    statuses.iter().find(|status| status.source == source.source).and_then(|status| status.first);
            }
        }
        Ok(window)
    }

    fn receive(&self, connection: &mut Connection, meta: &[u8]) -> std::result::Result<Vec<SourceWindow>, Failure> {
        let schema = &self.keyspace().source;
        let request = connection.send(Call::Window, meta, &[])?;
        let mut sources: Vec<SourceWindow> = Vec::new();
        loop {
            let answer = connection.answer(request, |meta| {
                let parts = WireWindowPart::decode_all(meta, schema)?;
                let fragments = parts.iter().flat_map(|part| &part.fragments);
                let bytes = fragments.map(|about| u64::from(about.length)).sum();
                Ok((parts, bytes))
            })?;
            let bytes = Arc::new(answer.payload);
            let mut from = 0;
            for part in answer.said {
                if sources.last().is_none_or(|last| last.source != part.source) {
                    sources.push(SourceWindow {
                        source: part.source,
                        coverage: Vec::new(),
                        first: None,
                        fragments: Vec::new(),
                    });
                }
                let Some(source) = sources.last_mut() else { continue };
                for stretch in part.coverage {
                    match source.coverage.last_mut() {
                        // Parts are cut at the size of a frame: a stretch that goes over the cut is joined again.
                        Some(last) if last.state == stretch.state && last.end == stretch.begin => {
                            last.end = stretch.end
                        }
                        _ => source.coverage.push(stretch),
                    }
                }
                for about in part.fragments {
                    let to = from + about.length as usize;
                    if to > bytes.len() {
                        return Err(Failure::Refused(Error::corrupt("an answer has fewer bytes than its fragments")));
                    }
                    source.fragments.push(RingFragment { about, bytes: bytes.clone(), from });
                    from = to;
                }
            }
            if !answer.more {
                return Ok(sources);
            }
            connection.grant()?;
            // Each part has a deadline of its own, as that of a range.
            connection.begin(self.calls().end(NO_WAIT));
        }
    }

    /// Keeps `[begin, end)` from being evicted for `duration`, and while its connection to the server lasts: it has one of
    /// its own.
    ///
    /// # Errors
    /// As `Ring::pin`, and `Unavailable`.
    pub fn pin(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<RingPin> {
        let sources = named(sources);
        // The server drops a pin with its connection, so a dead client keeps nothing of the ring.
        let one = self.within(self.calls().limit(NO_WAIT));
        let mut connection = one.calls().own_connection()?;
        connection.begin(one.calls().end(NO_WAIT));
        let asked = Control::Pin { begin, end, sources, ms: millis(duration) };
        let (object, id, bytes) = control(&mut connection, &asked).map_err(Failure::error)?;
        Ok(RingPin {
            ring: self.clone(),
            link: Mutex::new(Some((connection, object))),
            id,
            bytes: AtomicU64::new(bytes),
        })
    }

    /// Keeps `[begin, end)` from being evicted for `duration`, whatever becomes of this client, or until
    /// [`RingClient::unpin`].
    ///
    /// # Errors
    /// As [`RingClient::pin`], and `OutcomeUnknown` where the answer was lost.
    pub fn keep(&self, begin: u64, end: u64, sources: &RingSources, duration: Duration) -> Result<RingPinStatus> {
        self.look(&Control::KeepPin { begin, end, sources: named(sources), ms: millis(duration) })
    }

    /// Ends a pin that no connection holds; answers whether there was one.
    ///
    /// # Errors
    /// `Conflict` for a pin that somebody holds; `Unavailable`.
    pub fn unpin(&self, id: u64) -> Result<bool> {
        let (was_there, is_repeat) = self.calls().control(&Control::Unpin { id })?;
        // An earlier try that got no answer may have been the one that ended it.
        Ok(was_there || is_repeat)
    }

    fn look<T: serde::de::DeserializeOwned>(&self, what: &Control) -> Result<T> {
        Ok(self.calls().control(what)?.0)
    }

    /// Every source that the ring has seen, in order.
    ///
    /// # Errors
    /// `Unavailable` where the server does not answer in time.
    pub fn sources(&self) -> Result<Vec<RingSourceStatus>> {
        self.look(&Control::RingSources)
    }

    /// Every chunk, by source and in the order of arrival.
    ///
    /// # Errors
    /// As [`RingClient::sources`].
    pub fn chunks(&self) -> Result<Vec<RingChunkInfo>> {
        self.look(&Control::RingChunks)
    }

    /// The tick that the ring expects to arrive now; `None` before the first put since its opening.
    ///
    /// # Errors
    /// As [`RingClient::sources`].
    pub fn now(&self) -> Result<Option<u64>> {
        self.look(&Control::RingNow)
    }

    /// The account of one run, as `Ring::ledger_of`; that of all runs is in [`RingClient::stats`].
    ///
    /// # Errors
    /// As [`RingClient::sources`].
    pub fn ledger_of(&self, run: u32) -> Result<Ledger> {
        self.look(&Control::Ledger { run: u64::from(run) })
    }

    /// The ring at a glance.
    ///
    /// # Errors
    /// As [`RingClient::sources`].
    pub fn stats(&self) -> Result<RingStats> {
        self.look(&Control::Stats)
    }

    /// What its opening found missing and was accepted.
    ///
    /// # Errors
    /// As [`RingClient::sources`].
    pub fn losses(&self) -> Result<Vec<String>> {
        self.look(&Control::Losses)
    }
}

impl fmt::Debug for RingClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RingClient({}, keyspace {})", self.inner.pool.address, self.keyspace().name)
    }
}

/// Sources as a control names them.
fn named(sources: &RingSources) -> Option<Vec<SourceId>> {
    match sources {
        RingSources::All => None,
        RingSources::Only(list) => Some(list.clone()),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// All fragments that overlap `[begin, end)`, by source, in memory of the client.
#[derive(Debug)]
pub struct Window {
    /// First tick.
    pub begin: u64,
    /// Tick after the last one.
    pub end: u64,
    /// One per source that was asked for, in that order; of `RingSources::All` in the order of sources.
    pub sources: Vec<SourceWindow>,
}

/// One source's part of a window.
#[derive(Debug)]
pub struct SourceWindow {
    /// The source.
    pub source: SourceId,
    /// What is known of the window, in order and without anything in between.
    pub coverage: Vec<Stretch>,
    /// The first tick that the source ever had, where nothing of it was evicted and something is gone from the window.
    pub first: Option<u64>,
    pub(crate) fragments: Vec<RingFragment>,
}

/// One fragment of a window.
pub struct RingFragment {
    pub(crate) about: WireRingFragment,
    bytes: Arc<Buffer>,
    from: usize,
}

impl Window {
    /// Whether every source's fragments cover the whole window.
    pub fn is_complete(&self) -> bool {
        self.sources.iter().all(SourceWindow::is_complete)
    }
}

impl SourceWindow {
    /// Fragments in time order, each once, those included that only reach into the window.
    pub fn fragments(&self) -> &[RingFragment] {
        &self.fragments
    }

    /// Payload bytes of all fragments.
    pub fn bytes_total(&self) -> u64 {
        self.fragments.iter().map(|fragment| u64::from(fragment.about.length)).sum()
    }

    /// Whether fragments cover the whole window.
    pub fn is_complete(&self) -> bool {
        self.coverage.iter().all(|stretch| stretch.state == Coverage::Complete)
    }
}

impl RingFragment {
    /// First tick.
    pub fn timestamp(&self) -> u64 {
        self.about.timestamp
    }

    /// Ticks covered.
    pub fn span(&self) -> u32 {
        self.about.span
    }

    /// Run number.
    pub fn run(&self) -> u32 {
        self.about.run
    }

    /// The producer's status bits.
    pub fn status(&self) -> u32 {
        self.about.status
    }

    /// CRC-32C of the bytes, as the ring has it.
    pub fn checksum(&self) -> u32 {
        self.about.checksum
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.about.length as usize]
    }

    /// Reads every byte and compares with the checksum that is stored.
    ///
    /// # Errors
    /// `Corrupt` where they differ.
    pub fn verify(&self) -> Result<()> {
        let (found, stored) = (crc32c(self.bytes()), self.about.checksum);
        if found == stored {
            return Ok(());
        }
        let (timestamp, length) = (self.about.timestamp, self.about.length);
        Err(Error::corrupt(format!(
            "timestamp {timestamp}: {length} bytes have checksum {found:08x}, stored is {stored:08x}"
        )))
    }
}

impl fmt::Debug for RingFragment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WireRingFragment { timestamp, span, run, status, length, .. } = self.about;
        write!(out, "RingFragment({timestamp} + {span}, run {run}, status {status:#x}, {length} bytes)")
    }
}

/// A stretch of ticks that the server's ring keeps until this is dropped, its deadline is over, or its connection is.
pub struct RingPin {
    ring: RingClient,
    link: Mutex<Option<(Connection, u32)>>,
    id: u64,
    bytes: AtomicU64,
}

impl RingPin {
    /// Number of the pin, as `stats` lists it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The highest epoch of a map that its node has said.
    pub(crate) fn epoch(&self) -> u32 {
        self.ring.pool().epoch()
    }

    /// Bytes of the region that it holds or has reserved, whole chunks.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Moves the deadline to `duration` from now.
    ///
    /// # Errors
    /// `Fenced` where it has expired, or its connection is gone: what it kept may be gone as well.
    pub fn extend(&self, duration: Duration) -> Result<()> {
        self.go_on(None, duration)
    }

    /// Moves the pin to other ticks of its sources, and its deadline to `duration` from now, in one step.
    ///
    /// # Errors
    /// As `RingPin::move_to` of the store; `Fenced` also where its connection is gone.
    pub fn move_to(&mut self, begin: u64, end: u64, duration: Duration) -> Result<()> {
        self.go_on(Some((begin, end)), duration)
    }

    fn go_on(&self, ticks: Option<(u64, u64)>, duration: Duration) -> Result<()> {
        let mut link = self.link.lock();
        let gone =
            |why: &str| Error::fenced(format!("pin {}: its connection is gone, and the pin with it{why}", self.id));
        let (connection, object) = link.as_mut().ok_or_else(|| gone(""))?;
        connection.begin(self.ring.calls().end(NO_WAIT));
        let asked = Control::MovePin { object: *object, ticks, ms: millis(duration) };
        match control(connection, &asked) {
            Ok(bytes) => {
                self.bytes.store(bytes, Ordering::Relaxed);
                Ok(())
            }
            Err(Failure::Refused(error)) => Err(error),
            Err(failure) => {
                // The server has dropped the pin with the connection; a new one could not bring back what was evicted
                // since.
                *link = None;
                Err(gone(&format!(": {}", failure.error().message())))
            }
        }
    }

    /// Gives the pin up.
    pub fn release(self) {}
}

impl Drop for RingPin {
    fn drop(&mut self) {
        // The end of the connection ends it as well, a moment later.
        if let Some((connection, object)) = self.link.get_mut() {
            connection.begin(self.ring.inner.pool.machine().now() + LAST_WORD);
            let _ = control::<()>(connection, &Control::Drop { object: *object });
        }
    }
}

impl fmt::Debug for RingPin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RingPin({}, {} bytes)", self.id, self.bytes())
    }
}
