//! The part of a connection that knows no socket: takes commands from the input, one after the other, and answers them.
//!
//! ```text
//! input ─▶ parser ─▶ command ─▶ table ─▶ store ─▶ replies
//!             └ large value of SET ─▶ landing ─▶ commit ─┘
//! ```
//!
//! *Invariants*: answers come in the order of the commands; what may wait is only done where `may_wait` says so; a command
//! that was put off is repeated as a whole, and finds what it did.
//!
//! *On failure*: a command that fails is answered with its error; bytes that are no commands end the connection.

use super::account::Account;
use super::ahead::{Ahead, Ready};
use super::client::Client;
use super::failure::Failure;
use super::input::Input;
use super::landing::{LANDING_BYTES_MIN, Landing};
use super::parse::{Command, Parser, Progress};
use super::pool::{self, READ_BYTES};
use super::replies::Replies;
use super::table::{self, Place, Spec};
use super::turn::{Flow, Turn};
use super::{keys, strings};
use crate::audit::Audit;
use crate::keyspaces::Keyspaces;
use crate::shared::Shared;
use forebay_core::{Call, Error, Key, PutOptions, PutOutcome, ReserveFragment, ServedStore};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::{Duration, Instant};

/// Carries a command out, between two lines of the audit log if that wants to know of it.
#[inline]
fn run<S: ServedStore>(turn: &mut Turn<'_, S>, spec: &Spec, command: Command<'_>) -> Result<Flow, Failure> {
    match (&turn.shared.audit, table::audited_call(spec, command)) {
        (Some(audit), Some(call)) => audited(audit, call, turn, spec, command),
        _ => table::run(spec.verb, turn, command),
    }
}

#[cold]
fn audited<S: ServedStore>(
    audit: &Audit,
    call: Call,
    turn: &mut Turn<'_, S>,
    spec: &Spec,
    command: Command<'_>,
) -> Result<Flow, Failure> {
    let about = command.from(0).map(keys::lossy).collect::<Vec<_>>().join(" ");
    let mut answer = None;
    let made = audit.around(&turn.client.actor(), call, &about, || {
        // The audit log wants the kind of an error, the client its line.
        match answer.insert(table::run(spec.verb, turn, command)) {
            Ok(_) => Ok(()),
            Err(failure) => Err(Error::new(failure.kind, "")),
        }
    });
    match (answer, made) {
        (Some(answer), _) => answer,
        (None, refused) => Err(refused.map_or_else(Failure::from, |()| Failure::syntax())),
    }
}

/// The work of one turn, after which other connections of the thread get theirs, counted in commands on one fragment.
const COST_MAX: usize = 8192;

/// What a session needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// More bytes from the client.
    Read,
    /// That the client takes its answers, or that others have their turn; there is more to do.
    Pause,
    /// A thread that may wait.
    Wait,
    /// Ready events, or to look again after this time.
    Later(Duration),
    /// Its end, after its answers are written, for this reason.
    End(&'static str),
}

/// One connection without its socket.
pub(super) struct Session<S: ServedStore> {
    shared: Arc<Shared>,
    client: Client<S>,
    parser: Parser,
    pub(super) input: Input,
    pub(super) replies: Replies<S::Fragment>,
    pub(super) landing: Option<Landing<S::Reservation>>,
    patience: Option<Instant>,
    account: Account,
    /// Commands so far.
    commands: u64,
    /// Bytes of its own among those of all requests under way.
    held: u64,
}

impl<S: ServedStore> Session<S> {
    pub(super) fn new(shared: &Arc<Shared>, keyspaces: &Arc<Keyspaces<S>>) -> Session<S> {
        let client = Client::new(shared, keyspaces);
        let mut parser = Parser::new(shared.limits.window_bytes as usize);
        parser.set_stranger(client.is_stranger());
        Session {
            shared: shared.clone(),
            client,
            parser,
            input: Input::default(),
            replies: Replies::default(),
            landing: None,
            patience: None,
            account: Account::default(),
            commands: 0,
            held: 0,
        }
    }

    /// Whether the client has not said who it is.
    pub(super) fn is_stranger(&self) -> bool {
        self.client.is_stranger()
    }

    /// Whether a command has begun to come.
    pub(super) fn has_begun(&self) -> bool {
        !self.input.is_empty() || self.landing.is_some()
    }

    /// Whether the server stops, and nothing is under way.
    pub(super) fn is_to_stop(&self) -> bool {
        self.shared.stopping.load(Ordering::Acquire) && !self.has_begun()
    }

    /// Commands so far.
    pub(super) fn commands(&self) -> u64 {
        self.commands
    }

    /// Wakes this task once there may be ready events.
    pub(super) fn wake_when_ready(&self, waker: &Waker) {
        if let Some(store) = self.client.store_at_hand() {
            store.wake_when_ready(waker);
        }
    }

    /// Whether there are other connections.
    pub(super) fn has_company(&self) -> bool {
        self.shared.connections.load(Ordering::Relaxed) > 1
    }

    /// Whether the client has taken enough of its answers to be given more.
    pub(super) fn may_answer(&self) -> bool {
        self.replies.unsent() <= self.shared.limits.window_bytes as usize
    }

    /// Takes commands as far as it can.
    pub(super) fn run(&mut self, may_wait: bool) -> Step {
        let mut ahead = pool::take_ahead();
        let step = self.take_batches(&mut ahead, may_wait);
        pool::give_ahead(ahead);
        self.account.settle(&self.shared.metrics);
        match step {
            Step::Read if self.is_to_stop() => Step::End("stopping"),
            step => step,
        }
    }

    fn take_batches(&mut self, ahead: &mut Ahead, may_wait: bool) -> Step {
        let mut cost = 0;
        // What waits for other nodes keeps others from a thread: one command each time.
        let turn_cost = if may_wait && self.shared.is_node() { COST_MAX + 1 } else { 1 };
        loop {
            if cost > COST_MAX || !self.may_answer() {
                return Step::Pause;
            }
            if self.landing.is_some() {
                match self.land(may_wait) {
                    None => cost += turn_cost,
                    Some(step) => return step,
                }
                continue;
            }
            let progress = self.look_ahead(ahead);
            for ready in &ahead.commands {
                if cost > COST_MAX || !self.may_answer() {
                    self.parser.reset();
                    return Step::Pause;
                }
                match self.execute(ready, may_wait, &mut cost) {
                    Flow::Done => {}
                    Flow::Wait => {
                        self.parser.reset();
                        return Step::Wait;
                    }
                    Flow::Later(again) => {
                        self.parser.reset();
                        return Step::Later(again);
                    }
                    Flow::End(reason) => return Step::End(reason),
                }
                self.input.consume(ready.length);
                self.commands += 1;
                cost += turn_cost - 1;
            }
            self.parser.forget_passed();
            match progress {
                Ok(Progress::Whole(_)) => {}
                Ok(Progress::More) => match self.begin_landing(may_wait) {
                    Some(Flow::Wait) => return Step::Wait,
                    Some(_) => {}
                    None => return self.need_more(),
                },
                Err(error) => return self.out_of_step(&error),
            }
        }
    }

    /// Reads the commands that have come whole, as far as a batch goes, and asks for what they will touch. Answers how it
    /// is behind the last of them.
    fn look_ahead(&mut self, ahead: &mut Ahead) -> Result<Progress, String> {
        ahead.clear();
        let store = self.client.store_at_hand();
        let bytes = self.input.bytes();
        let mut at = 0;
        let progress = loop {
            let rest = &bytes[at..];
            match self.parser.parse(rest) {
                Ok(Progress::Whole(length)) => {
                    let parts = self.parser.pass();
                    let command = self.parser.command_of(rest, parts);
                    at += length;
                    if !ahead.add(length, parts, command, store) || parts.is_line() {
                        break Ok(Progress::Whole(at));
                    }
                }
                progress => break progress,
            }
        };
        ahead.touch(store);
        progress
    }

    /// The rest of a command is to come: its memory is counted with that of all requests under way.
    fn need_more(&mut self) -> Step {
        let memory = self.input.memory();
        // The buffer of the thread is free; what goes beyond it counts, or a few clients with half a command each could
        // take all memory.
        if self.hold(if memory > READ_BYTES { memory as u64 } else { 0 }) {
            return Step::Read;
        }
        self.replies.error("FULL requests under way take all memory that they may (memory_bytes_max): slow down");
        Step::End("limit")
    }

    fn hold(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.held || self.shared.has_memory(bytes - self.held);
        if fits && bytes != self.held {
            self.shared.account(self.held, bytes);
            self.held = bytes;
        }
        fits
    }

    fn out_of_step(&mut self, error: &str) -> Step {
        tracing::debug!(client = self.client_id(), error, "bytes that are no command");
        self.replies.error(&format!("ERR Protocol error: {error}"));
        Step::End("error")
    }

    /// No thread was free in time for the next command, which was not begun.
    pub(super) fn is_not_served(&mut self) -> Step {
        let why = "other nodes keep all places for commands that wait for them; not done: connect again and repeat it";
        self.fail(None, &Failure::coded("UNAVAILABLE", why));
        Step::End("busy")
    }

    /// Its client's number.
    pub(super) fn client_id(&self) -> u64 {
        self.client.id
    }

    /// Carries out a command that the parser has read.
    #[inline]
    fn execute(&mut self, ready: &Ready, may_wait: bool, cost: &mut usize) -> Flow {
        let command = self.parser.command_of(self.input.bytes(), ready.parts);
        if command.len() == 0 {
            return Flow::Done;
        }
        let Some(spec) = ready.spec else {
            let failure = unknown(command);
            self.replies.error(&failure.line);
            return Flow::Done;
        };
        let place = spec.place;
        let elsewhere = place == Place::Thread || place == Place::Data && self.client.may_be_slow();
        let allowed = match spec.takes(command.len()) {
            true => allowed(&self.shared, &self.client, spec),
            false => Err(Failure::err(format!("wrong number of arguments for '{}' command", spec.name))),
        };
        if elsewhere && !may_wait && allowed.is_ok() {
            return Flow::Wait;
        }
        self.account.begin(spec.call, &self.shared.metrics);
        // A command that is put off runs again as a whole: what it has answered so far is taken back.
        let bookmark = self.replies.bookmark();
        let mut turn = Turn {
            shared: &self.shared,
            client: &mut self.client,
            replies: &mut self.replies,
            may_wait,
            patience: &mut self.patience,
            key: ready.key,
            call: spec.call,
            things: 1,
            received: 0,
            sent: 0,
            cost: 1,
        };
        let answer = allowed.and_then(|()| run(&mut turn, spec, command));
        let Turn { call, things, received, sent, cost: its_cost, .. } = turn;
        *cost += its_cost;
        let flow = match answer {
            Ok(flow @ (Flow::Wait | Flow::Later(_))) => {
                self.replies.back_to(bookmark);
                return flow;
            }
            Ok(flow) => flow,
            Err(failure) => {
                self.replies.back_to(bookmark);
                self.fail(call, &failure);
                // Too many wrong secrets on one connection: it ends, so that guessing costs a new connection each time.
                if self.client.guesses() { Flow::End("token") } else { Flow::Done }
            }
        };
        if call != spec.call {
            self.account.begin(call, &self.shared.metrics);
        }
        self.account.done(things, received, sent);
        if spec.call.is_none() {
            self.parser.set_stranger(self.client.is_stranger());
        }
        flow
    }

    #[cold]
    fn fail(&mut self, call: Option<Call>, failure: &Failure) {
        self.account.failed(call, failure.kind, &self.shared.metrics);
        self.replies.error(&failure.line);
    }

    /// Where the rest of the input is the beginning of a large value of SET: reserves its place in the store.
    fn begin_landing(&mut self, may_wait: bool) -> Option<Flow> {
        let (start, length) = self.parser.last_value()?;
        // Shorter values are there with the next read; a stranger reserves nothing.
        if length < LANDING_BYTES_MIN || self.parser.parts() != (2, 3) || self.client.is_stranger() {
            return None;
        }
        let command = self.parser.command(self.input.bytes());
        let spec = table::find(command.part(0)).filter(|spec| spec.name == "set")?;
        self.account.begin(spec.call, &self.shared.metrics);
        let target = allowed(&self.shared, &self.client, spec).and_then(|()| {
            let store = self.client.store()?;
            let key = keys::key(store.schema(), command.part(1))?;
            let options = PutOptions::default();
            Ok(if may_wait {
                Some((key, store.reserve(&key, length, &options)?))
            } else {
                store.try_reserve(&key, length, &options)?.map(|reservation| (key, reservation))
            })
        });
        let (key, target) = match target {
            Ok(None) => return Some(Flow::Wait),
            Ok(Some((key, reservation))) => (key, self.within_memory(length, reservation)),
            Err(failure) => (Key::EMPTY, Err(failure)),
        };
        self.landed(start, Landing::new(key, length, target));
        Some(Flow::Done)
    }

    /// A client that only promises takes no more of the store than all requests together may.
    fn within_memory(&mut self, length: usize, reservation: S::Reservation) -> Result<S::Reservation, Failure> {
        if self.hold(length as u64) {
            return Ok(reservation);
        }
        Err(Error::full("requests under way take all memory that they may (memory_bytes_max)").into())
    }

    fn landed(&mut self, start: usize, mut landing: Landing<S::Reservation>) {
        self.input.consume(start);
        let came = landing.take(self.input.bytes());
        self.input.consume(came);
        self.parser.reset();
        self.landing = Some(landing);
    }

    /// Goes on with the value that is on its way; `None` once it is answered.
    fn land(&mut self, may_wait: bool) -> Option<Step> {
        let landing = self.landing.as_mut()?;
        let came = landing.take(self.input.bytes());
        self.input.consume(came);
        debug_assert!(
            self.input.is_empty() || landing.lacks() == 0,
            "bytes of the value are taken before what is behind it"
        );
        if landing.lacks() > 0 {
            return Some(Step::Read);
        }
        match self.input.bytes() {
            [] | [b'\r'] => return Some(Step::Read),
            [b'\r', b'\n', ..] => {}
            _ => {
                self.landing = None;
                return Some(self.out_of_step("a bulk does not end after its length"));
            }
        }
        if landing.commit_may_wait() && !may_wait {
            return Some(Step::Wait);
        }
        let landing = self.landing.take()?;
        self.input.consume(2);
        self.commands += 1;
        self.hold(0);
        self.account.begin(Some(Call::Put), &self.shared.metrics);
        let (key, length) = (landing.key, landing.length());
        let outcome = landing.target.and_then(|reservation| Ok(reservation.commit()?));
        match outcome {
            Ok(PutOutcome::Stored | PutOutcome::Duplicate) => self.replies.ok(),
            Ok(late @ (PutOutcome::Late | PutOutcome::LateUnknown)) => {
                let failure = self
                    .client
                    .store()
                    .map_or_else(|failure| failure, |store| strings::late(store.schema(), &key, late));
                self.fail(Some(Call::Put), &failure);
            }
            Err(failure) => self.fail(Some(Call::Put), &failure),
        }
        self.account.done(1, length as u64, 0);
        None
    }
}

impl<S: ServedStore> Drop for Session<S> {
    fn drop(&mut self) {
        self.hold(0);
    }
}

/// Whether this client may ask this.
#[inline]
fn allowed<S: ServedStore>(shared: &Shared, client: &Client<S>, spec: &Spec) -> Result<(), Failure> {
    if client.is_stranger() && !spec.is_for_strangers() {
        return Err(Failure::coded("NOAUTH", "Authentication required."));
    }
    match spec.call {
        Some(call) => client.check(shared, call, spec.name),
        None => Ok(()),
    }
}

/// In Redis's words.
fn unknown(command: Command<'_>) -> Failure {
    let mut line = format!("unknown command '{}', with args beginning with: ", keys::lossy(command.part(0)));
    let mut room = 128_usize;
    for argument in command.from(1) {
        if room == 0 {
            break;
        }
        let shown = &argument[..argument.len().min(room)];
        let text = format!("'{}' ", String::from_utf8_lossy(shown));
        room = room.saturating_sub(text.len());
        line.push_str(&text);
    }
    Failure::err(line)
}
