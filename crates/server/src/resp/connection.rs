//! A socket and the session behind it: reads, lets the session work, writes; and what has to happen in time.
//!
//! ```text
//!            ┌────────── Read ──────────┐
//! socket ─▶ input or landing ─▶ session.run ─▶ replies ─▶ socket
//!                                   └ Wait: the whole session goes to a thread that may wait, and comes back
//! ```
//!
//! *Invariants*: no more is read while more than a window of answers is not taken; a command has a deadline from its
//! first byte on, answers from when they are stuck (`Deadlines`); an idle connection has neither buffer nor timer.

use super::session::{Session, Step};
use crate::limits::Limits;
use crate::shared::Shared;
use crate::transport::{Transport, poll_write_from};
use forebay_core::ServedStore;
use std::future::{Future, poll_fn};
use std::io::{IoSlice, IoSliceMut};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokio::io::ReadBuf;
use tokio::time::Sleep;

/// The result of an exchange with the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exchange {
    /// There is something to do.
    Work,
    /// The client sends no more.
    Ended,
}

/// A socket with its session.
pub(super) struct Connection<T> {
    stream: T,
    /// What was written may still be in the stream's own memory, that of TLS.
    to_flush: bool,
    deadlines: Deadlines,
}

impl<T: Transport> Connection<T> {
    pub(super) fn new(stream: T, limits: &Limits) -> Connection<T> {
        Connection { stream, to_flush: false, deadlines: Deadlines::new(limits) }
    }

    /// Serves the session to its end; why it ended.
    pub(super) async fn serve<S: ServedStore>(
        mut self,
        mut session: Box<Session<S>>,
        shared: &Arc<Shared>,
    ) -> &'static str {
        let mut stopping = pin!(shared.stop_notice.notified());
        // This task is woken when the server stops, and the session looks whether it does.
        let _ = poll_fn(|context| Poll::Ready(stopping.as_mut().poll(context))).await;
        loop {
            let step = match session.run(false) {
                Step::Wait => match self.elsewhere(session, shared).await {
                    Some(done) => {
                        let step;
                        (session, step) = done;
                        step
                    }
                    None => return "error",
                },
                step => step,
            };
            let ended = match step {
                Step::End(reason) => Some(reason),
                Step::Later(again) => {
                    let mut timer = pin!(tokio::time::sleep(again));
                    let gone = poll_fn(|context| {
                        session.wake_when_ready(context.waker());
                        if self.is_gone(&mut session, context) {
                            return Poll::Ready(true);
                        }
                        match shared.stopping.load(Ordering::Acquire) {
                            true => Poll::Ready(false),
                            false => timer.as_mut().poll(context).map(|()| false),
                        }
                    });
                    gone.await.then_some("closed")
                }
                _ => match self.exchange(&mut session, step == Step::Pause).await {
                    Ok(Exchange::Work) => None,
                    Ok(Exchange::Ended) => Some("closed"),
                    Err(reason) => return reason,
                },
            };
            if let Some(reason) = ended {
                let written = poll_fn(|context| self.poll_last_words(&mut session, context)).await;
                poll_fn(|context| {
                    // As far as it goes at once: who does not listen is not waited for.
                    let _ = Pin::new(&mut self.stream).poll_shutdown(context);
                    Poll::Ready(())
                })
                .await;
                return written.err().unwrap_or(reason);
            }
        }
    }

    /// Has the session go on where it may wait, after its answers so far are on their way; `None` where it panicked.
    async fn elsewhere<S: ServedStore>(
        &mut self,
        mut session: Box<Session<S>>,
        shared: &Arc<Shared>,
    ) -> Option<(Box<Session<S>>, Step)> {
        if let Err(reason) = poll_fn(|context| Poll::Ready(self.write(&mut session, context))).await {
            return Some((session, Step::End(reason)));
        }
        // Waited for without a thread: each connection waits at most once, and not when its client has gone.
        let mut _place = None;
        if shared.is_node() {
            let mut place = pin!(shared.place_to_wait());
            let mut deadline = pin!(tokio::time::sleep(shared.limits.frame_deadline));
            let waited = poll_fn(|context| {
                if self.is_gone(&mut session, context) {
                    return Poll::Ready(Err("closed"));
                }
                match place.as_mut().poll(context) {
                    Poll::Ready(place) => Poll::Ready(Ok(place)),
                    Poll::Pending => deadline.as_mut().poll(context).map(|()| Err("busy")),
                }
            });
            match waited.await {
                Ok(place) => _place = place,
                Err("busy") => {
                    let step = session.is_not_served();
                    return Some((session, step));
                }
                Err(reason) => return Some((session, Step::End(reason))),
            }
        }
        shared.on_threads.fetch_add(1, Ordering::Relaxed);
        let waited = tokio::task::spawn_blocking(move || {
            let step = session.run(true);
            (session, step)
        });
        // The whole session is on the thread: the commands behind this one wait, because answers come in order.
        let done = waited.await;
        shared.on_threads.fetch_sub(1, Ordering::Relaxed);
        done.ok()
    }

    /// Answers and asks, once others that are ready had their turn.
    async fn exchange<S: ServedStore>(
        &mut self,
        session: &mut Session<S>,
        more: bool,
    ) -> Result<Exchange, &'static str> {
        // Clients that are answered together are woken together: waking one for each answer costs more than the answer.
        // A session that has more to do has taken its turn.
        if more || session.replies.unsent() > 0 && session.has_company() {
            behind_others().await;
        }
        poll_fn(|context| self.poll_exchange(session, context, more)).await
    }

    /// Writes what it can, then reads, or answers at once where there is more to do and room for its answers.
    fn poll_exchange<S: ServedStore>(
        &mut self,
        session: &mut Session<S>,
        context: &mut Context<'_>,
        more: bool,
    ) -> Poll<Result<Exchange, &'static str>> {
        self.write(session, context)?;
        if session.may_answer() {
            if more {
                return Poll::Ready(Ok(Exchange::Work));
            }
            // Read only while the client takes its answers: its socket then holds back what it sends.
            if let Poll::Ready(count) = self.poll_fill(session, context) {
                return Poll::Ready(match count {
                    Ok(0) => Ok(Exchange::Ended),
                    Ok(_) => Ok(Exchange::Work),
                    Err(_) => Err("closed"),
                });
            }
        }
        session.input.settle();
        if session.is_to_stop() {
            return Poll::Ready(Ok(Exchange::Work));
        }
        self.deadlines.poll(session, self.to_flush, context).map(Err)
    }

    /// Writes the answers before the end.
    fn poll_last_words<S: ServedStore>(
        &mut self,
        session: &mut Session<S>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), &'static str>> {
        self.write(session, context)?;
        if session.replies.unsent() == 0 && !self.to_flush {
            return Poll::Ready(Ok(()));
        }
        self.deadlines.poll(session, self.to_flush, context).map(Err)
    }

    /// Writes as much as the socket takes now.
    fn write<S: ServedStore>(
        &mut self,
        session: &mut Session<S>,
        context: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        while session.replies.unsent() > 0 {
            let mut places = [IoSlice::new(&[]); super::replies::PLACES];
            let count = session.replies.places(&mut places);
            let written = match &places[..count] {
                [one] => Pin::new(&mut self.stream).poll_write(context, one),
                several => poll_write_from(&mut self.stream, context, several),
            };
            match written {
                Poll::Pending => break,
                Poll::Ready(Ok(0) | Err(_)) => return Err("closed"),
                Poll::Ready(Ok(count)) => {
                    session.replies.advance(count);
                    self.to_flush = true;
                }
            }
        }
        if self.to_flush {
            match Pin::new(&mut self.stream).poll_flush(context) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.to_flush = false,
                Poll::Ready(Err(_)) => return Err("closed"),
            }
        }
        Ok(())
    }

    /// Reads into the value that is on its way and behind it, or into the input.
    fn poll_fill<S: ServedStore>(
        &mut self,
        session: &mut Session<S>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<usize>> {
        let place = session.landing.as_mut().map_or(&mut [][..], |landing| landing.place());
        let in_place = place.len();
        let room = session.input.room();
        if in_place == 0 {
            let mut buffer = ReadBuf::new(room);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            let count = buffer.filled().len();
            session.input.came(count);
            return Poll::Ready(Ok(count));
        }
        let count = ready!(self.stream.poll_read_into(context, &mut [IoSliceMut::new(place), IoSliceMut::new(room)]))?;
        session.input.came(count.saturating_sub(in_place));
        if let Some(landing) = &mut session.landing {
            landing.came(count.min(in_place));
        }
        Poll::Ready(Ok(count))
    }

    /// During a wait: answers go out as far as they are taken, and a client that has gone is waited for no more.
    fn is_gone<S: ServedStore>(&mut self, session: &mut Session<S>, context: &mut Context<'_>) -> bool {
        if self.write(session, context).is_err() {
            return true;
        }
        while session.landing.is_none() && session.input.is_short() {
            match self.poll_fill(session, context) {
                Poll::Ready(Ok(0) | Err(_)) => return true,
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => break,
            }
        }
        session.input.settle();
        false
    }
}

/// Goes on once those that are ready now had their turn.
async fn behind_others() {
    let mut waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Deadlines of a connection. The timer is set to the first of them, and looked at when it rings: it is not set again
/// for each command.
struct Deadlines {
    limits: Limits,
    connected: Instant,
    /// The command that has begun to come, by its number, and since when.
    command: Option<(u64, Instant)>,
    /// How much the client had to take, counted from the beginning, and since when.
    stuck: Option<(u64, Instant)>,
    timer: Option<(Pin<Box<Sleep>>, Instant)>,
}

impl Deadlines {
    fn new(limits: &Limits) -> Deadlines {
        Deadlines { limits: limits.clone(), connected: Instant::now(), command: None, stuck: None, timer: None }
    }

    /// Nothing can go on now: ready once that was so for too long.
    fn poll<S: ServedStore>(
        &mut self,
        session: &Session<S>,
        to_flush: bool,
        context: &mut Context<'_>,
    ) -> Poll<&'static str> {
        let Some(first) = self.first(session, to_flush) else { return Poll::Pending };
        loop {
            let (timer, rings) =
                self.timer.get_or_insert_with(|| (Box::pin(tokio::time::sleep_until(first.into())), first));
            // Only moved to an earlier time. A timer that rings too early is set again below.
            if *rings > first {
                timer.as_mut().reset(first.into());
                *rings = first;
            }
            ready!(timer.as_mut().poll(context));
            self.timer = None;
            if Instant::now() >= first {
                return Poll::Ready("deadline");
            }
        }
    }

    fn first<S: ServedStore>(&mut self, session: &Session<S>, to_flush: bool) -> Option<Instant> {
        let mut now = None;
        let mut since = || *now.get_or_insert_with(Instant::now);
        if !session.has_begun() {
            self.command = None;
        } else if self.command.is_none_or(|(number, _)| number != session.commands()) {
            self.command = Some((session.commands(), since()));
        }
        let (sent, unsent) = (session.replies.sent(), session.replies.unsent() as u64);
        // What is only to be flushed is not counted: it has one deadline.
        let target = if unsent > 0 { sent + unsent } else { u64::MAX };
        if unsent == 0 && !to_flush {
            self.stuck = None;
        } else if self.stuck.is_none_or(|(before, _)| sent >= before || before == u64::MAX && unsent > 0) {
            self.stuck = Some((target, since()));
        }
        let frame = |(_, since): (u64, Instant)| since + self.limits.frame_deadline;
        let handshake = session.is_stranger().then(|| self.connected + self.limits.handshake_deadline);
        [handshake, self.command.map(frame), self.stuck.map(frame)].into_iter().flatten().min()
    }
}
