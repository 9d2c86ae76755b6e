//! A connection of Forebay's own protocol: frames in, calls, answers out (`docs/format-wire.md`).
//!
//! ```text
//!            ┌─ put ──▶ memory of the store ──────────────┐
//! frame ─────┼─ call that does not wait ──▶ here ─────────┼──▶ answer ──▶ outbox
//!            ├─ call that may wait ──▶ a thread ──────────┤
//!            └─ get_any that finds nothing ──▶ asked again ┘ when something is ready
//! ```
//!
//! *Lifecycle*: hello, requests in any order, end. A session is one task and is polled by hand, so that it can be driven by
//! a socket as well as by a fuzzer.
//!
//! *Invariants*: nothing waits on the event loop; a request takes no memory beyond the credit of its connection; what is
//! not known ends the connection, after it was told why (tests/session/).
//!
//! *On failure*: leases whose answer could not be sent stay out until their time is over; reservations are given back.

// See `clippy.toml` of this crate.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod calls;
mod control;
pub(crate) mod drive;
mod inbox;
mod long;
mod outbox;
mod place;
mod put;
mod receive;
mod request;
pub(crate) mod simulated;
mod stream;
mod window;

pub(crate) use calls::{LeaseOf, judge, lease_any};

use crate::access::{Grant, Rights};
use crate::audit::Actor;
use crate::keyspaces::Keyspaces;
use crate::served::Served;
use crate::shared::Shared;
use crate::shared::{now, since};
use crate::transport::Transport;
use control::Objects;
use forebay_core::{Call, Error, GetAny, Result, ServedStore};
use forebay_wire::{FrameHead, FrameKind, WireWriter};
use inbox::Inbox;
use long::LongAsking;
use outbox::{Answer, Outbox};
use put::{Putting, Waiting};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use stream::Streaming;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Sleep;
use window::Awaiting;

/// Time for the other side to hear that a connection ends.
const LEAVE: Duration = Duration::from_secs(1);
/// Frames that are looked at before others on the thread have their turn.
const TURN_FRAMES: usize = 64;
/// How often an unsatisfied `get_any` looks again when no notice came.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The same where its conditions may be met without a notice: attributes, age.
pub(crate) const LOOK_AGAIN_FILTERED: Duration = Duration::from_millis(5);

/// Serves one connection to its end; why it ended.
pub(crate) async fn serve<T: Transport, S: ServedStore>(
    stream: T,
    shared: &Arc<Shared>,
    keyspaces: &Arc<Keyspaces<S>>,
) -> &'static str {
    let mut session = Session::new(stream, shared.clone(), keyspaces.clone());
    let mut stopping = pin!(shared.stop_notice.notified());
    // Registered before the flag is read, so that a stop in between is not missed.
    stopping.as_mut().enable();
    if shared.stopping.load(Ordering::Acquire) {
        session.stop();
    }
    let reason = poll_fn(|context| {
        if !session.is_ending() && stopping.as_mut().poll(context).is_ready() {
            session.stop();
        }
        session.poll(context)
    })
    .await;
    session.leave().await;
    reason
}

/// Who is there, after its hello.
struct Peer<S> {
    served: Served<S>,
    rights: Rights,
    has_warm: bool,
    /// Its token, which may be taken back.
    grant: Grant,
    /// Who it is, for the audit log.
    actor: Arc<Actor>,
}

/// A frame that is being received.
enum Receiving<S: ServedStore> {
    /// Its head.
    Head,
    /// Its meta.
    Meta(FrameHead),
    /// Its payload, into memory of the server.
    Payload(FrameHead, Vec<u8>),
    /// Its payload, into memory of the store.
    Put(Box<Putting<S>>),
}

/// What a thread has done.
enum Done<S: ServedStore> {
    Answer { head: FrameHead, call: Call, things: u64, from: Instant, answer: Result<Answer<S>> },
    Put { job: u64, outcomes: Vec<(usize, Result<u8>)> },
    Nothing(Box<LongAsking<S>>),
    Part { streaming: Streaming<S>, answer: Result<Answer<S>> },
}

/// A put of which some fragments wait, on this many threads.
struct Job<S: ServedStore> {
    putting: Box<Putting<S>>,
    left: usize,
}

/// A `get_any` that has found nothing yet.
struct Asking {
    head: FrameHead,
    request: GetAny,
    from: Instant,
    until: Instant,
}

/// What comes from the client, up to the frame that is looked at.
struct Incoming<S: ServedStore> {
    inbox: Inbox,
    receiving: Receiving<S>,
    /// What the client may still send.
    credit: u64,
    /// Bytes from the front of the inbox to the first frame whose credit was not taken yet.
    scanned: usize,
    /// No further request is looked at for now: what comes is read for its credit alone.
    is_blocked: bool,
    /// The last put was of long fragments.
    long_fragments: bool,
    /// When what is being received must be there.
    receive_by: Option<Instant>,
    is_eof: bool,
    /// The server has no memory for what comes next.
    is_starved: bool,
    /// Memory that the server knows of.
    accounted: u64,
}

/// Where threads tell what they have done, and where the session hears it.
type Tellers<S> = (UnboundedSender<Done<S>>, UnboundedReceiver<Done<S>>);

/// Requests that were taken and are not answered.
struct UnderWay<S: ServedStore> {
    jobs: BTreeMap<u64, Job<S>>,
    next_job: u64,
    /// Requests on threads.
    on_threads: usize,
    /// Payload of requests on threads.
    on_threads_bytes: u64,
    streams: Vec<Streaming<S>>,
    asking: Vec<Asking>,
    /// Windows of a ring that are waited for.
    awaiting: Vec<Awaiting>,
    objects: Option<Arc<Objects<S>>>,
    /// How threads tell what they have done; made with the first thread, because most connections need none.
    done: Option<Tellers<S>>,
    /// Told by the store when events become ready.
    waker: Option<Waker>,
}

impl<S: ServedStore> UnderWay<S> {
    fn none() -> UnderWay<S> {
        UnderWay {
            jobs: BTreeMap::new(),
            next_job: 0,
            on_threads: 0,
            on_threads_bytes: 0,
            streams: Vec::new(),
            asking: Vec::new(),
            awaiting: Vec::new(),
            objects: None,
            done: None,
            waker: None,
        }
    }

    /// Nothing is under way but what goes out.
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.waiting() == 0
    }

    /// Requests that wait for something.
    fn waiting(&self) -> usize {
        self.on_threads + self.asking.len() + self.awaiting.len() + self.streams.len()
    }
}

/// One connection.
pub(crate) struct Session<T, S: ServedStore> {
    stream: T,
    shared: Arc<Shared>,
    keyspaces: Arc<Keyspaces<S>>,
    peer: Option<Box<Peer<S>>>,
    incoming: Incoming<S>,
    work: UnderWay<S>,
    outbox: Outbox<S>,
    /// When the client must have taken a frame's worth of what goes out, or all of it.
    taken_by: Option<Instant>,
    /// What it took since that was set.
    taken: u64,
    timer: Option<Pin<Box<Sleep>>>,
    /// Why the connection ends, once what is under way is answered.
    ending: Option<&'static str>,
}

impl<T: Transport, S: ServedStore> Session<T, S> {
    pub(crate) fn new(stream: T, shared: Arc<Shared>, keyspaces: Arc<Keyspaces<S>>) -> Session<T, S> {
        let incoming = Incoming {
            inbox: Inbox::default(),
            receiving: Receiving::Head,
            credit: HELLO_BYTES_MAX,
            scanned: 0,
            is_blocked: false,
            long_fragments: false,
            receive_by: Some(now() + shared.limits.handshake_deadline),
            is_eof: false,
            is_starved: false,
            accounted: 0,
        };
        Session {
            stream,
            shared,
            keyspaces,
            peer: None,
            incoming,
            work: UnderWay::none(),
            outbox: Outbox::new(),
            taken_by: None,
            taken: 0,
            timer: None,
            ending: None,
        }
    }

    /// No further requests; what is under way is answered. What has come in part is given up.
    pub(crate) fn end(&mut self, reason: &'static str) {
        self.ending.get_or_insert(reason);
        self.incoming.receiving = Receiving::Head;
    }

    /// The server stops: says so, and ends.
    fn stop(&mut self) {
        self.outbox.answer(FrameKind::Goodbye, 0, Answer::of(Vec::new()), 0);
        self.end("stopping");
    }

    fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Tells the client what was wrong, and ends.
    fn fail(&mut self, kind: FrameKind, request: u64, error: Error) {
        tracing::debug!(%error, "a connection ends");
        // No credit can be read any more behind what was wrong.
        self.outbox.expect_no_credit();
        self.outbox.answer(kind, request, Answer::error(error), 0);
        self.end("error");
    }

    /// Gives up what it has, at once. The connection counts as one until threads have done what it asked of them: a client
    /// that comes and goes gets no more of them than one that stays.
    async fn leave(mut self) {
        let (done, on_threads) = (self.work.done.take(), self.work.on_threads);
        // The other side is told that this is the end (TLS has words for it), as far as it listens.
        // Bounded: a client that does not read must not keep the connection in the count.
        let _ = tokio::time::timeout(LEAVE, self.stream.shutdown()).await;
        drop(self);
        if let Some((sender, mut done)) = done {
            // Its own sender goes first: the channel then ends with the last thread.
            drop(sender);
            for _ in 0..on_threads {
                if done.recv().await.is_none() {
                    return;
                }
            }
        }
    }

    /// Goes on as far as it can; why the connection ended, once it has.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<&'static str> {
        let mut turns = 0;
        loop {
            // In this order: what threads have done frees credit and places, which decides how many further frames may
            // be looked at.
            self.take_done(context);
            let was_full = self.outbox.is_full();
            self.ask_again(context);
            self.look_at_windows();
            self.pump_streams();
            let mut moved = self.look_at_frames(&mut turns);
            if self.flush(context).is_err() {
                return Poll::Ready("closed");
            }
            if (was_full || self.incoming.is_blocked) && !self.must_wait()
                || !self.work.streams.is_empty() && !self.outbox.is_ahead()
            {
                // What went out made room for more: nobody else will say so.
                turns += 1;
                moved = true;
            }
            if let Some(reason) = self.ending
                && self.work.is_idle()
                && self.outbox.is_empty()
            {
                return Poll::Ready(reason);
            }
            if turns >= TURN_FRAMES {
                // Others on this thread have their turn.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if moved {
                continue;
            }
            if self.incoming.is_eof && !self.is_ending() && !self.incoming.is_blocked {
                self.end_of_stream();
                continue;
            }
            if self.wants_more() {
                match self.receive(context) {
                    Poll::Ready(Ok(0)) => {
                        self.incoming.is_eof = true;
                        self.outbox.expect_no_credit();
                        continue;
                    }
                    Poll::Ready(Ok(_)) => continue,
                    Poll::Ready(Err(_)) => return Poll::Ready("closed"),
                    Poll::Pending => {}
                }
            }
            match self.poll_timer(context) {
                Poll::Ready(Some(reason)) => return Poll::Ready(reason),
                Poll::Ready(None) => {}
                Poll::Pending => {
                    self.incoming.inbox.rest();
                    return Poll::Pending;
                }
            }
        }
    }

    /// Nothing more comes, and all that came whole was looked at.
    fn end_of_stream(&mut self) {
        let frame = match &self.incoming.receiving {
            Receiving::Head if self.incoming.inbox.len() == 0 => return self.end("closed"),
            Receiving::Head => (FrameKind::Hello, 0),
            Receiving::Meta(head) | Receiving::Payload(head, _) => (head.kind, head.request),
            Receiving::Put(putting) => (FrameKind::Call(Call::Put), putting.request),
        };
        self.fail(frame.0, frame.1, Error::invalid("the connection ends within a frame"));
    }

    fn flush(&mut self, context: &mut Context<'_>) -> std::io::Result<()> {
        if self.outbox.has_unsent() {
            match self.outbox.poll_flush(&mut self.stream, context) {
                Poll::Ready(Ok(sent)) => {
                    self.shared.metrics.bytes(0, sent);
                    self.taken += sent;
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {}
            }
        }
        if self.outbox.is_empty() {
            (self.taken_by, self.taken) = (None, 0);
        } else if self.taken_by.is_none() || self.taken >= TAKEN_BYTES_MIN {
            // Also where the socket took everything: what is held back for want of credit must go in time.
            (self.taken_by, self.taken) = (Some(now() + self.shared.limits.frame_deadline), 0);
        }
        Ok(())
    }

    /// Takes what threads have done.
    fn take_done(&mut self, context: &mut Context<'_>) {
        loop {
            let Some((_, done)) = &mut self.work.done else { return };
            // Polled to `Pending`, so that this task is woken by the next result.
            let Poll::Ready(Some(done)) = done.poll_recv(context) else { return };
            debug_assert!(self.work.on_threads > 0, "a thread tells once what it has done");
            self.work.on_threads -= 1;
            match done {
                Done::Answer { head, call, things, from, answer } => {
                    self.work.on_threads_bytes =
                        self.work.on_threads_bytes.saturating_sub(u64::from(head.payload_bytes));
                    self.answered(head, call, things, from, answer);
                }
                Done::Put { job, outcomes } => {
                    let Some(mut known) = self.work.jobs.remove(&job) else { continue };
                    for (index, outcome) in outcomes {
                        known.putting.outcomes[index] = Some(outcome);
                    }
                    debug_assert!(known.left > 0, "a put is answered once");
                    known.left -= 1;
                    if known.left == 0 {
                        self.answer_put(*known.putting);
                    } else {
                        self.work.jobs.insert(job, known);
                    }
                }
                Done::Part { streaming, answer } => self.part(streaming, answer),
                Done::Nothing(asking) if self.is_leaving() || now() >= asking.until => {
                    let answer = asking.nothing();
                    self.answered(asking.head, asking.call, 1, asking.from, answer);
                }
                Done::Nothing(asking) => self.ask_on_thread(asking),
            }
        }
    }

    /// Queues an answer, and counts it.
    fn answered(&mut self, head: FrameHead, call: Call, things: u64, from: Instant, answer: Result<Answer<S>>) {
        let failed = answer.as_ref().err().map(Error::kind);
        for kind in answer.iter().flat_map(|answer| &answer.failed) {
            self.shared.metrics.failed(call, *kind);
        }
        self.shared.metrics.answered(call, things, failed, since(from));
        let credit = self.give_back(head.frame_bytes());
        self.outbox.answer(head.kind, head.request, answer.unwrap_or_else(Answer::error), credit);
    }

    /// What the client may send again, now that a request of this many bytes is answered.
    fn give_back(&mut self, bytes: u64) -> u32 {
        self.incoming.credit += bytes;
        debug_assert!(
            self.incoming.credit <= u64::from(self.shared.limits.window_bytes),
            "a client may never send more than the window: a frame is given back once"
        );
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    fn answer_put(&mut self, putting: Putting<S>) {
        let mut out = WireWriter::with_capacity(4 + 2 * putting.outcomes.len());
        out.u32(putting.outcomes.len() as u32);
        for outcome in &putting.outcomes {
            let unknown = || Err(Error::internal("a put without an outcome"));
            match outcome {
                Some(outcome) => {
                    if let Err(error) = outcome {
                        self.shared.metrics.failed(Call::Put, error.kind());
                    }
                    out.outcome(outcome, |out, byte| out.u8(*byte));
                }
                None => out.outcome::<()>(&unknown(), |_, ()| {}),
            }
        }
        self.shared.metrics.answered(Call::Put, putting.outcomes.len() as u64, None, since(putting.from));
        let credit = self.give_back(putting.frame_bytes);
        self.outbox.answer(FrameKind::Call(Call::Put), putting.request, Answer::of(out.finish()), credit);
    }

    /// Has a thread do something that may wait for a device, or for a short time.
    fn on_thread(&mut self, work: impl FnOnce() -> Done<S> + Send + 'static) {
        self.on_thread_behind(None, work);
    }

    /// The same, behind others of its kind.
    fn on_thread_behind(&mut self, others: Option<Arc<Semaphore>>, work: impl FnOnce() -> Done<S> + Send + 'static) {
        let (sender, _) = self.work.done.get_or_insert_with(unbounded_channel);
        let sender = sender.clone();
        self.work.on_threads += 1;
        // Counted before it is queued: the count bounds what waits for threads, not only what runs.
        let counted = OnThread::new(&self.shared);
        let on_thread = move || {
            let done = work();
            // Before the result is sent: a session that sees its result must not still find itself crowded by it.
            drop(counted);
            // The session may be gone: then nobody wants to know.
            let _ = sender.send(done);
        };
        if self.shared.at_once {
            return on_thread();
        }
        let Some(others) = others else {
            tokio::task::spawn_blocking(on_thread);
            return;
        };
        tokio::spawn(async move {
            let turn = others.acquire_owned().await;
            tokio::task::spawn_blocking(move || {
                on_thread();
                drop(turn);
            });
        });
    }

    /// Has a task do something that waits for other nodes.
    fn on_task(&mut self, work: impl Future<Output = Done<S>> + Send + 'static) {
        let (sender, _) = self.work.done.get_or_insert_with(unbounded_channel);
        let sender = sender.clone();
        self.work.on_threads += 1;
        tokio::spawn(async move {
            // The session may be gone: then nobody wants to know.
            let _ = sender.send(work.await);
        });
    }

    /// Asks for ready events again, for those that wait for them.
    fn ask_again(&mut self, context: &mut Context<'_>) {
        if self.work.asking.is_empty() {
            return;
        }
        let Some(store) = self.peer.as_ref().and_then(|peer| peer.served.store().cloned()) else { return };
        let now = now();
        let mut at = 0;
        while at < self.work.asking.len() {
            if self.outbox.is_full() {
                return;
            }
            let asking = &self.work.asking[at];
            // Who leaves is given nothing that must come back by its time.
            let found = if self.is_leaving() { Ok(Vec::new()) } else { self.lease_any(&store, &asking.request) };
            let over = now >= asking.until || self.is_leaving();
            if matches!(&found, Ok(leases) if leases.is_empty()) && !over {
                at += 1;
                continue;
            }
            let asking = self.work.asking.remove(at);
            let answer = found.and_then(|leases| calls::say_leases(store.keyspace(), leases));
            self.answered(asking.head, Call::GetAny, 1, asking.from, answer);
        }
        if !self.work.asking.is_empty() {
            // After the look: an event that became ready in between is found by the timer (`LOOK_AGAIN`) at the latest.
            store.wake_when_ready(context.waker());
            if !self.work.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                self.work.waker = Some(context.waker().clone());
            }
        }
    }

    /// Whether the client will ask for nothing more.
    fn is_leaving(&self) -> bool {
        self.incoming.is_eof || self.is_ending()
    }

    /// Leases as many events as were asked for, as long as they fit what the client takes at once.
    fn lease_any(&self, store: &S, request: &GetAny) -> Result<Vec<LeaseOf<S>>> {
        calls::lease_any(store, request, self.outbox.window())
    }

    /// Makes the next parts of ranges, while the client takes them.
    fn pump_streams(&mut self) {
        while !self.outbox.is_ahead()
            && let Some(mut streaming) = (!self.work.streams.is_empty()).then(|| self.work.streams.remove(0))
        {
            if streaming.takes_long() || self.peer.as_ref().is_some_and(|peer| peer.has_warm) {
                self.on_thread(move || {
                    let answer = streaming.part();
                    Done::Part { streaming, answer }
                });
            } else {
                let answer = streaming.part();
                self.part(streaming, answer);
            }
        }
    }

    fn part(&mut self, streaming: Streaming<S>, answer: Result<Answer<S>>) {
        let more = answer.as_ref().is_ok_and(|answer| answer.more) && !self.outbox.is_over();
        let head = streaming.head;
        let credit = if more { 0 } else { self.give_back(head.frame_bytes()) };
        self.outbox.answer(head.kind, head.request, answer.unwrap_or_else(Answer::error), credit);
        match streaming {
            // One list at a time: the next is made when this one is at its end.
            streaming if more && streaming.has_list() => self.work.streams.insert(0, streaming),
            streaming if more => self.work.streams.push(streaming),
            _ => {}
        }
    }

    /// Ends a put whose bytes have all come.
    fn received(&mut self, putting: Box<Putting<S>>, waiting: Vec<Waiting<S>>) {
        if waiting.is_empty() {
            return self.answer_put(*putting);
        }
        let from = now();
        let Some(peer) = &self.peer else { return };
        let served = peer.served.clone();
        let job = self.work.next_job;
        self.work.next_job += 1;
        // As many threads as the connection may still have: each waits for some of them in turn.
        let room = self.shared.limits.waiting_max.saturating_sub(self.work.waiting());
        let left = if self.is_crowded() { 1 } else { room.clamp(1, waiting.len()) };
        let mut groups: Vec<Vec<_>> = (0..left).map(|_| Vec::new()).collect();
        for (number, one) in waiting.into_iter().enumerate() {
            // Dealt out in turn: neighbours in a frame often wait for the same thing, and should not wait one behind
            // the other.
            groups[number % left].push((putting.puts[one.index()].clone(), one));
        }
        for group in groups {
            let (served, others) = (served.clone(), self.shared.waiting_puts.clone());
            let put = move || Done::Put { job, outcomes: put::wait_all(&served, group, from) };
            self.on_thread_behind(Some(others), put);
        }
        self.work.jobs.insert(job, Job { putting, left });
    }

    /// The next deadline that matters, and whether it is over.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<Option<&'static str>> {
        let look_again = |asking: &Asking| {
            let filtered = !asking.request.filter.is_empty() || !asking.request.min_age.is_zero();
            asking.until.min(now() + if filtered { LOOK_AGAIN_FILTERED } else { LOOK_AGAIN })
        };
        // While nothing more may be answered nobody is asked: what goes out is waited for.
        let asking = if self.outbox.is_full() { None } else { self.work.asking.iter().map(look_again).min() };
        let starved = self.incoming.is_starved.then(|| now() + LOOK_AGAIN_FILTERED);
        let awaiting = self.next_look_at_windows();
        let deadlines = [self.incoming.receive_by, self.taken_by, asking, awaiting, starved];
        let Some(next) = deadlines.into_iter().flatten().min() else { return Poll::Pending };
        let timer = match &mut self.timer {
            Some(timer) => {
                // One that ends earlier is looked at again when it does.
                // Set only to an earlier time: resetting a timer for each frame costs more than one early wake-up.
                if timer.deadline().into_std() > next || timer.is_elapsed() {
                    timer.as_mut().reset(next.into());
                }
                timer
            }
            none => none.insert(Box::pin(tokio::time::sleep_until(next.into()))),
        };
        if timer.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        let now = now();
        if self.taken_by.is_some_and(|by| now >= by) {
            tracing::info!("a client takes nothing: its connection is cut");
            return Poll::Ready(Some("deadline"));
        }
        if self.incoming.receive_by.is_some_and(|by| now >= by) {
            let what = if self.peer.is_some() { "frame" } else { "handshake" };
            if self.peer.is_none() {
                self.shared.refuse("native", "handshake", "no hello in its time");
            }
            tracing::info!(what, "a client did not send what it began: its connection is cut");
            return Poll::Ready(Some("deadline"));
        }
        Poll::Ready(None)
    }
}

impl<T, S: ServedStore> Drop for Session<T, S> {
    fn drop(&mut self) {
        self.shared.account(self.incoming.accounted, 0);
        let store = self.peer.as_ref().and_then(|peer| peer.served.store());
        // The store keeps wakers until they are woken: those of connections that are gone would pile up.
        if let (Some(waker), Some(store)) = (&self.work.waker, store) {
            store.forget_waker(waker);
        }
    }
}

/// Work on a thread, counted until it is done, even if the connection that asked for it ends before.
struct OnThread(Arc<Shared>);

impl OnThread {
    fn new(shared: &Arc<Shared>) -> OnThread {
        // Relaxed: the count steers admission and guards no data.
        shared.on_threads.fetch_add(1, Ordering::Relaxed);
        OnThread(shared.clone())
    }
}

impl Drop for OnThread {
    fn drop(&mut self) {
        let before = self.0.on_threads.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "work on a thread is counted until it is done");
    }
}

/// Most bytes of a hello.
const HELLO_BYTES_MAX: u64 = 4096;
/// Least bytes of answers that a client takes.
const WINDOW_BYTES_MIN: u32 = 64 << 10;
/// Bytes of answers that a client takes within a frame's deadline at least: those of one frame.
const TAKEN_BYTES_MIN: u64 = 1 << 20;
/// Most events of one `get_any`.
const EVENTS_MAX: usize = 4096;
