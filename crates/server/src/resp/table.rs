//! Every command: its name, how many parts it has, which right it needs, where it may run.

use super::replies::Replies;
use super::turn::{Answer, Turn};
use super::{about, operate, range, ring, runs, select, strings};
use crate::audit::{Audited, audited};
use crate::resp::parse::Command;
use forebay_core::{Call, Right, ServedStore};
use std::ops::Deref;

/// Where a command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On the event loop: it does not wait, or says itself when it has to.
    Loop,
    /// There as well, if all data is in memory.
    Data,
    /// Where it may wait: for a record in flight, for a snapshot of the log, for space.
    Thread,
}

/// One command.
pub(super) struct Spec {
    /// Its name in lower case.
    pub(super) name: &'static str,
    /// Parts that it has, its name among them; at least this many if negative.
    pub(super) arity: i32,
    /// The call as which it is allowed and counted; `None` says that it concerns the connection only, or that it sees to
    /// that itself.
    pub(super) call: Option<Call>,
    pub(super) place: Place,
    /// First key, last key (from the end, where negative), step.
    keys: (i32, i32, i32),
    /// What a person reads about it.
    summary: &'static str,
    /// What carries it out, for [`run`].
    pub(super) verb: Verb,
}

impl Spec {
    /// Whether a client may ask this before it has said who it is.
    pub(super) fn is_for_strangers(&self) -> bool {
        matches!(self.name, "auth" | "hello" | "ping" | "echo" | "quit")
    }

    /// Whether it works on the fragment of its first argument, and on nothing else.
    #[inline]
    pub(super) fn is_on_one_fragment(&self) -> bool {
        self.place == Place::Loop && self.keys == ONE_KEY
    }

    /// Whether it has this many parts.
    #[inline]
    pub(super) fn takes(&self, parts: usize) -> bool {
        if self.arity < 0 { parts >= self.arity.unsigned_abs() as usize } else { parts == self.arity as usize }
    }

    fn flags(&self) -> &'static [&'static str] {
        match self.call.map(Call::right) {
            Some(Right::Read) => &["readonly"],
            Some(_) => &["write"],
            None if self.is_for_strangers() => &["fast", "no_auth"],
            None => &["fast"],
        }
    }

    /// What COMMAND INFO says.
    pub(super) fn write_info<F: Deref<Target = [u8]>>(&self, replies: &mut Replies<F>) {
        replies.array(10);
        replies.text(self.name);
        replies.signed(i64::from(self.arity));
        replies.set(self.flags().len());
        self.flags().iter().for_each(|flag| replies.simple(flag));
        for key in [self.keys.0, self.keys.1, self.keys.2] {
            replies.signed(i64::from(key));
        }
        replies.set(0);
        (0..3).for_each(|_| replies.array(0));
    }

    /// What COMMAND DOCS says.
    pub(super) fn write_docs<F: Deref<Target = [u8]>>(&self, replies: &mut Replies<F>) {
        let group = match (self.call.map(Call::right), self.name.starts_with("fb.")) {
            (_, true) => "forebay",
            (None, _) => "connection",
            _ => "string",
        };
        replies.text(self.name);
        replies.map(3);
        for (name, value) in [("summary", self.summary), ("since", "0.1.0"), ("group", group)] {
            replies.text(name);
            replies.text(value);
        }
    }
}

/// The command of this name.
#[inline]
pub(super) fn find(name: &[u8]) -> Option<&'static Spec> {
    // A walk over some thirty names, the frequent ones first: faster than a hash of the name.
    COMMANDS.iter().find(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes()))
}

macro_rules! commands {
    ($($name:literal $verb:ident $arity:literal $place:ident $call:expr, $keys:expr, $run:path, $summary:literal;)*) => {
        /// What carries a command out: a word, not a function, because the table is one for servers over any store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Verb { $($verb,)* }

        /// All of them; those that come most often first.
        pub(super) const COMMANDS: &[Spec] = &[$(Spec {
            name: $name, arity: $arity, place: Place::$place, call: $call, keys: $keys, summary: $summary,
            verb: Verb::$verb,
        }),*];

        /// Carries a command out.
        #[inline]
        pub(super) fn run<S: ServedStore>(verb: Verb, turn: &mut Turn<'_, S>, command: Command<'_>) -> Answer {
            match verb { $(Verb::$verb => $run(turn, command),)* }
        }
    };
}

/// The call as which the audit log wants to know of a command, if it does.
#[inline]
pub(super) fn audited_call(spec: &Spec, command: Command<'_>) -> Option<Call> {
    let call = match spec.verb {
        // These say by their second word what they are.
        Verb::Run if command.part(1).eq_ignore_ascii_case(b"summary") => return None,
        Verb::Run | Verb::Hold | Verb::Debug if command.part(1).eq_ignore_ascii_case(b"list") => return None,
        Verb::Run => Call::Run,
        Verb::Hold => Call::Hold,
        Verb::Debug => Call::Replay,
        _ => spec.call?,
    };
    (audited(call) != Audited::No).then_some(call)
}

const NO_KEY: (i32, i32, i32) = (0, 0, 0);
const ONE_KEY: (i32, i32, i32) = (1, 1, 1);
const KEYS: (i32, i32, i32) = (1, -1, 1);

commands! {
    "set" Set -3 Loop Some(Call::Put), ONE_KEY, strings::set, "Stores a fragment: key value [STATUS bits] [ATTR name=value ...]; equal bytes again are a success, other bytes a conflict";
    "get" Get 2 Loop Some(Call::Get), ONE_KEY, strings::get, "Returns a fragment's bytes";
    "ping" Ping -1 Loop None, NO_KEY, about::ping, "Returns PONG, or the message";
    "del" Del -2 Thread Some(Call::Remove), KEYS, strings::del, "Removes fragments; their keys stay closed while the event lives";
    "info" Info -1 Loop Some(Call::Look), NO_KEY, about::info, "Returns figures of the server";
    "echo" Echo 2 Loop None, NO_KEY, about::echo, "Returns the message";
    "hello" Hello -1 Loop None, NO_KEY, about::hello, "Chooses RESP2 or RESP3, and logs in";
    "auth" Auth -2 Loop None, NO_KEY, about::auth, "Logs in with a token's secret";
    "select" Select 2 Loop None, NO_KEY, about::select, "Selects a keyspace by name, or by number in the order of names";
    "client" Client -2 Loop None, NO_KEY, about::client, "What concerns this connection: ID, GETNAME, SETNAME, SETINFO";
    "command" Command -1 Loop None, NO_KEY, about::command, "Tells about commands: COUNT, LIST, INFO, DOCS";
    "config" Config -2 Loop None, NO_KEY, about::config, "CONFIG GET returns what redis-benchmark asks at its start";
    "quit" Quit -1 Loop None, NO_KEY, about::quit, "Ends the connection";
    "fb.getany" GetAny -1 Data Some(Call::GetAny), NO_KEY, select::get_any, "Leases ready events: [COUNT n] [STAGE s] [WAIT ms] [LEASE ms] [FILTER condition] [SOURCES NONE|ALL|source ...]";
    "fb.accept" Accept -3 Thread Some(Call::Verdict), NO_KEY, select::decide, "Keeps a leased event: primary token stream [stream ...]";
    "fb.reject" Reject 3 Thread Some(Call::Verdict), NO_KEY, select::decide, "Drops a leased event: primary token";
    "fb.requeue" Requeue 3 Thread Some(Call::Verdict), NO_KEY, select::decide, "Gives a leased event back unharmed: primary token";
    "fb.fail" Fail 4 Thread Some(Call::Verdict), NO_KEY, select::decide, "Gives a leased event back because processing it failed: primary token reason";
    "fb.pass" Pass 4 Thread Some(Call::Verdict), NO_KEY, select::decide, "Hands a leased event to a later stage: primary token stage";
    "fb.extend" Extend 4 Loop Some(Call::Extend), NO_KEY, select::extend, "Lets a lease end so long from now: primary token milliseconds";
    "fb.event" Event -2 Data Some(Call::GetEvent), NO_KEY, select::event, "Returns an event: primary [SOURCES NONE|ALL|source ...]";
    "fb.range" Range -2 Data Some(Call::Range), NO_KEY, range::range, "Returns fragments in key order: bounds [AFTER key] [COUNT n]";
    "fb.seal" Seal 2 Thread Some(Call::Seal), NO_KEY, select::seal, "Makes an event ready now, with what it has: primary";
    "fb.run" Run -2 Thread None, NO_KEY, runs::run, "OPEN run [configuration], PAUSE, RESUME, STOP, CLOSE or SUMMARY run, LIST";
    "fb.ledger" Ledger 2 Thread Some(Call::Look), NO_KEY, runs::ledger, "Returns the account of a run";
    "fb.why" Why 2 Thread Some(Call::Look), ONE_KEY, runs::why, "Says why a fragment is, or is not, in the store: key";
    "fb.openevent" OpenEvent -2 Thread Some(Call::OpenEvent), NO_KEY, operate::open_event, "Announces an event: primary [ATTR name=value ...] [SOURCES source ...]";
    "fb.release" Release -2 Thread Some(Call::Release), NO_KEY, operate::release, "Frees accepted and debug events that are archived: bounds [STREAM name] [AFTER primary]";
    "fb.mask" Mask -3 Thread Some(Call::Mask), NO_KEY, operate::mask, "Lets events of a run do without a source: run source [FROM primary]";
    "fb.unmask" Unmask -3 Thread Some(Call::Mask), NO_KEY, operate::mask, "Lets events of a run wait for a source again: run source [FROM primary]";
    "fb.prescale" Prescale -4 Thread Some(Call::Prescale), NO_KEY, operate::prescale, "Records a prescale of the trigger for the run's summary: run name factor|off [FROM primary]";
    "fb.hold" Hold -2 Thread None, NO_KEY, operate::hold, "Keeps events back from delivery: SET [RUN n] [condition ...], RELEASE id, LIST";
    "fb.debug" Debug -2 Thread None, NO_KEY, operate::debug, "Events that failed in all workers: LIST, REPLAY primary";
    "fb.sources" SourcesOf 2 Thread Some(Call::Look), NO_KEY, operate::sources, "Returns the state of each source of a run";
    "fb.put" Put -5 Loop Some(Call::Put), NO_KEY, ring::put, "Stores a fragment in a ring: source timestamp span value [RUN n] [STATUS n]";
    "fb.window" Window -3 Loop Some(Call::Window), NO_KEY, ring::window, "Returns what a ring has between two ticks: begin end [WAIT ms] [SOURCES ALL|source ...]";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_once_and_in_any_case() {
        for spec in COMMANDS {
            assert_eq!(COMMANDS.iter().filter(|other| other.name == spec.name).count(), 1);
            assert_eq!(find(spec.name.to_uppercase().as_bytes()).map(|found| found.name), Some(spec.name));
        }
        assert!(find(b"subscribe").is_none() && find(b"").is_none());
    }
}
