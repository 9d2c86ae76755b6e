//! Dispatches a complete request: checks its right, and chooses the thread that executes it.
//!
//! *Invariants*: nothing that may wait is done here (test `a_verdict_that_lets_a_put_end_delays_nothing_else` and others in
//! tests/session/waiting.rs).

use super::calls::{self, Request};
use super::control;
use super::long::{Long, LongAsking, TURN};
use super::outbox::Answer;
use super::stream::Streaming;
use super::{Asking, Done, EVENTS_MAX, Peer, Session, WINDOW_BYTES_MIN};
use crate::access::{Grant, Rights};
use crate::audit::Actor;
use crate::orders::is_order;
use crate::peer::PEER;
use crate::served::Served;
use crate::shared::{now, since};
use crate::transport::Transport;
use forebay_core::{Call, Error, Result, ServedStore};
use forebay_wire::{FrameHead, FrameKind, Hello, Welcome, WireReader, WireVerdict};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl<T: Transport, S: ServedStore> Session<T, S> {
    /// The first frame of a connection.
    pub(super) fn hello(&mut self, head: FrameHead, meta: &[u8]) -> Result<()> {
        if head.kind != FrameKind::Hello {
            return Err(Error::invalid("the first frame is no hello"));
        }
        let hello = Hello::decode(meta)?;
        self.shared.check_epoch(head.epoch)?;
        if hello.window_bytes < WINDOW_BYTES_MIN {
            return Err(Error::invalid(format!(
                "a window of {} bytes; {WINDOW_BYTES_MIN} are the least",
                hello.window_bytes
            )));
        }
        let access = self.shared.access();
        // Before the keyspace is looked up: a client without a token does not learn which keyspaces exist.
        let grant: Option<Grant> = if hello.token.is_empty() { access.anonymous() } else { access.grant(&hello.token) };
        let Some(grant) = grant else {
            let what = if hello.token.is_empty() { "no token" } else { "a token that is not known" };
            self.shared.refuse("native", "token", format_args!("{what}, by a client called {:?}", hello.name));
            return Err(Error::invalid("this server wants a token, and this is none that it knows"));
        };
        let served = self.keyspaces.served(&hello.keyspace)?.named(&hello.name);
        let rights = grant.rights(served.name());
        // Told at the hello: a client without any right here would else learn it with each call.
        if rights == Rights::default() {
            let why = format!("token `{}` has no right in keyspace `{}`", grant.name, served.name());
            self.shared.refuse("native", "right", &why);
            return Err(Error::invalid(why));
        }
        let window = self.shared.limits.window_bytes;
        let (boot, lease, has_warm) = match &served {
            Served::Events(store) => (store.boot(), store.lease_time(), store.has_warm()),
            Served::Ring(ring) => (ring.boot(), Duration::ZERO, false),
        };
        let welcome = Welcome {
            features: 0,
            window_bytes: window,
            boot,
            lease_ms: u32::try_from(lease.as_millis()).unwrap_or(u32::MAX),
            keyspace: served.to_toml()?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            member: self.shared.orders.get().and_then(|orders| orders.member()),
        };
        tracing::debug!(client = hello.name, token = %grant.name, keyspace = served.name(), "hello");
        // Both windows open before the welcome goes out, and the hello counts in neither.
        self.outbox.open(hello.window_bytes);
        self.incoming.credit = u64::from(window);
        let actor = Actor {
            token: grant.name.clone(),
            peer: PEER.try_with(ToString::to_string).unwrap_or_default(),
            protocol: "native",
            keyspace: served.name().to_owned(),
        };
        self.peer = Some(Box::new(Peer { served, rights, has_warm, grant, actor: Arc::new(actor) }));
        self.outbox.answer(FrameKind::Hello, head.request, Answer::of(welcome.encode()?), 0);
        Ok(())
    }

    /// Makes the call of a request that has arrived whole; puts are on their way already.
    pub(super) fn request(&mut self, request: Request) {
        let from = now();
        let head = request.head;
        let Some(peer) = &self.peer else { return };
        let (served, rights, has_warm, actor) = (peer.served.clone(), peer.rights, peer.has_warm, peer.actor.clone());
        let in_force = peer.grant.check();
        let call = match head.kind {
            FrameKind::Call(call) => call,
            FrameKind::Ping => {
                let credit = self.give_back(head.frame_bytes());
                return self.outbox.answer(head.kind, head.request, Answer::of(request.meta), credit);
            }
            // What a control asks is not read before its epoch is known to be right.
            FrameKind::Control => Call::Look,
            other => {
                let error = Error::invalid(format!("a request of kind {other:?}, which this server does not answer"));
                return self.fail(other, head.request, error);
            }
        };
        // Before anything is done: under a wrong map the request may belong to another server.
        if let Err(error) = self.shared.check_epoch(head.epoch) {
            return self.answered(head, call, 1, from, Err(error));
        }
        if let Err(error) = in_force {
            self.shared.refuse("native", "token", error.message());
            return self.answered(head, call, 1, from, Err(error));
        }
        if head.kind == FrameKind::Control {
            return self.control(request, served, (rights, actor), from);
        }
        if !rights.allow(call.right()) {
            let error = control::no_right(call);
            self.shared.refuse("native", "right", error.message());
            return self.answered(head, call, 1, from, Err(error));
        }
        let store = match served {
            Served::Ring(ring) if call == Call::Window => return self.window(&request, &ring, from),
            Served::Events(store) if call != Call::Window => store,
            other => return self.answered(head, call, 1, from, Err(other.other_kind(call.name()))),
        };
        self.call(call, request, store, (has_warm, actor), from);
    }

    /// Makes a call on events, here or where it may wait.
    fn call(&mut self, call: Call, request: Request, store: S, peer: (bool, Arc<Actor>), from: Instant) {
        let (has_warm, actor) = peer;
        let head = request.head;
        match call {
            Call::GetAny => self.get_any(request, &store, from),
            Call::Verdict => self.verdicts(request, store, from),
            Call::Range => match Streaming::start(&store, head, &request.meta, self.outbox.window()) {
                Ok(streaming) => {
                    self.shared.metrics.answered(call, 1, None, since(from));
                    self.work.streams.push(streaming);
                    self.pump_streams();
                }
                Err(error) => self.answered(head, call, 1, from, Err(error)),
            },
            Call::Watch => {
                let objects = self.work.objects.get_or_insert_default().clone();
                match control::asked(&objects, &request.meta) {
                    Ok((object, wait)) => {
                        let until = from + wait.min(self.shared.limits.wait_max);
                        let what = Long::Next(object);
                        self.ask_on_thread(Box::new(LongAsking { head, call, from, until, store, what }));
                    }
                    Err(error) => self.answered(head, call, 1, from, Err(error)),
                }
            }
            _ => {
                let most = self.outbox.window();
                if calls::waits(&store, call, &request, has_warm) {
                    self.work.on_threads_bytes += u64::from(head.payload_bytes);
                    let shared = self.shared.clone();
                    return self.on_thread(move || {
                        let mut things = 1;
                        let about = || calls::about(&store, call, &request);
                        let answer = shared.audited(&actor, call, about, || {
                            let (answer, asked) = calls::make(&store, call, &request, most);
                            things = asked;
                            answer
                        });
                        Done::Answer { head, call, things, from, answer }
                    });
                }
                let (answer, things) = calls::make(&store, call, &request, most);
                self.answered(head, call, things, from, answer);
            }
        }
    }

    fn verdicts(&mut self, request: Request, store: S, from: Instant) {
        let (head, call) = (request.head, Call::Verdict);
        let verdicts = match WireVerdict::decode_all(&request.meta, head.payload_bytes, store.keyspace()) {
            Ok(verdicts) => verdicts,
            Err(error) => return self.answered(head, call, 1, from, Err(error)),
        };
        let things = verdicts.len() as u64;
        if calls::verdicts_wait(&store, &request, &verdicts) {
            self.work.on_threads_bytes += u64::from(head.payload_bytes);
            return self.on_thread(move || {
                let answer = Ok(calls::judge_all(&store, &verdicts, &request.payload));
                Done::Answer { head, call, things, from, answer }
            });
        }
        self.answered(head, call, things, from, Ok(calls::judge_all(&store, &verdicts, &request.payload)));
    }

    fn control(&mut self, request: Request, served: Served<S>, peer: (Rights, Arc<Actor>), from: Instant) {
        let (rights, actor) = peer;
        let head = request.head;
        let control = match control::decode(&request.meta) {
            Ok(control) => control,
            Err(error) => return self.answered(head, Call::Look, 1, from, Err(error)),
        };
        let call = control.call();
        if !rights.allow(call.right()) {
            let error = control::no_right(call);
            self.shared.refuse("native", "right", error.message());
            return self.answered(head, call, 1, from, Err(error));
        }
        if let Some(orders) = self.shared.orders.get().filter(|_| is_order(&control)) {
            let about = String::from_utf8_lossy(&request.meta).into_owned();
            let asked = match self.shared.audit_asked(&actor, call, &about) {
                Ok(asked) => asked,
                Err(error) => return self.answered(head, call, 1, from, Err(error)),
            };
            let ordered = orders.order(served.name(), &actor.token, control);
            let shared = self.shared.clone();
            return self.on_task(async move {
                let answer = ordered.await;
                shared.audit_answered(asked, &actor, call, &about, &answer);
                Done::Answer { head, call, things: 1, from, answer: answer.map(Answer::of) }
            });
        }
        let objects = self.work.objects.get_or_insert_default().clone();
        let shared = self.shared.clone();
        self.on_thread(move || {
            // A control is JSON, which says what it is about.
            let about = || String::from_utf8_lossy(&request.meta).into_owned();
            let answer =
                shared.audited(&actor, call, about, || control::make(&served, &objects, &actor.token, control));
            Done::Answer { head, call, things: 1, from, answer }
        });
    }

    fn get_any(&mut self, request: Request, store: &S, from: Instant) {
        let head = request.head;
        let mut asked = match WireReader::whole(&request.meta, |read| read.get_any(store.keyspace())) {
            Ok(asked) => asked,
            Err(error) => return self.answered(head, Call::GetAny, 1, from, Err(error)),
        };
        // A lease that is not taken comes back only by its time: no client gets more at once than it can work on.
        asked.n = asked.n.min(EVENTS_MAX);
        // The store is asked without a wait: the event loop waits, for all its connections together.
        let wait = std::mem::take(&mut asked.wait).min(self.shared.limits.wait_max);
        if store.get_any_may_wait(asked.level) {
            let (store, what) = (store.clone(), Long::GetAny(asked, self.outbox.window()));
            let asking = LongAsking { head, call: Call::GetAny, from, until: from + wait, store, what };
            return self.ask_on_thread(Box::new(asking));
        }
        let found = self.lease_any(store, &asked);
        if matches!(&found, Ok(leases) if leases.is_empty()) && !wait.is_zero() {
            return self.work.asking.push(Asking { head, request: asked, from, until: from + wait });
        }
        let answer = found.and_then(|leases| calls::say_leases(store.keyspace(), leases));
        self.answered(head, Call::GetAny, 1, from, answer);
    }

    /// Has a thread ask for what may not be there yet: for a while, so that many who ask have their turns.
    pub(super) fn ask_on_thread(&mut self, mut asking: Box<LongAsking<S>>) {
        let ask = move || match asking.ask() {
            Ok(None) => Done::Nothing(asking),
            answer => {
                let answer = answer.and_then(|answer| answer.map_or_else(|| asking.nothing(), Ok));
                Done::Answer { head: asking.head, call: asking.call, things: 1, from: asking.from, answer }
            }
        };
        if !self.shared.at_once {
            return self.on_thread(ask);
        }
        // In the simulator no thread has waited: it is asked again some times a second.
        self.on_task(async move {
            let done = ask();
            if matches!(done, Done::Nothing(_)) {
                tokio::time::sleep(5 * TURN).await;
            }
            done
        });
    }
}
