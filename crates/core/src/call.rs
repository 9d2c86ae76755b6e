//! The one table of calls: what each is called, which right it needs, what its repetition does, and its number on the wire.
//!
//! ```text
//! client ── repeat() ──┐                  ┌── right() ── access
//! frames ── number() ──┼── CALLS, a row ──┼── name() ─── metrics, logs
//! RESP ──── Call ──────┘   for each call  └── repeat() ─ docs/semantics.md
//! ```
//!
//! *Invariants*: a number belongs to one call and is never given to another one, because clients of every version send it
//! (test `numbers_on_the_wire_never_change`).
//!
//! *Not here*: how a call is written as bytes (`forebay-wire`).

/// A right of an access token in a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Read fragments, events, accounts and statistics.
    Read,
    /// Put, announce and seal.
    Write,
    /// Lease events and decide about them; pin stretches of a ring.
    Select,
    /// Runs, masks, prescales, holds, updates, removals, the debug stream; and what `Archive` allows.
    Admin,
    /// Claim what is to be archived, and release what the archive has: a mover's right.
    Archive,
    /// Speak for another node of the cluster.
    Peer,
}

impl Right {
    /// All of them.
    pub const ALL: [Right; 6] = [Right::Read, Right::Write, Right::Select, Right::Admin, Right::Archive, Right::Peer];

    /// Name in lower case, as configurations write it.
    pub fn name(self) -> &'static str {
        ["read", "write", "select", "admin", "archive", "peer"][self as usize]
    }
}

/// The effect of a second try of a call after the answer to the first one was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// Nothing: the call changes nothing that would matter. Without an answer it is `Unavailable`.
    Looks,
    /// The same call again does no harm, and gives an answer that fits the first try.
    Safe,
    /// It might do harm. Without an answer the outcome is unknown.
    Never,
}

macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident, $name:literal, $right:ident, $repeat:ident, $number:expr;)*) => {
        /// A call of the API, regardless of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Call { $($(#[$doc])* $call),* }

        /// One row for each call, in the order of [`Call`].
        const CALLS: &[Row] = &[$(Row {
            call: Call::$call, name: $name, right: Right::$right, repeat: Repeat::$repeat, number: $number,
        }),*];
    };
}

struct Row {
    call: Call,
    name: &'static str,
    right: Right,
    repeat: Repeat,
    number: Option<u8>,
}

calls! {
    /// Fragments are stored.
    Put, "put", Write, Safe, Some(16);
    /// Fragments are read by key.
    Get, "get", Read, Looks, Some(17);
    /// An event is read.
    GetEvent, "get_event", Read, Looks, Some(18);
    /// Fragments or events between bounds are read.
    Range, "range", Read, Looks, Some(19);
    /// A window of a ring is read.
    Window, "window", Read, Looks, Some(24);
    /// A new version of a fragment, or new attributes of an event. A repetition may make another version.
    Update, "update", Admin, Never, Some(20);
    /// A fragment, an event or a range is removed. A repetition answers that there was nothing to remove.
    Remove, "remove", Admin, Never, Some(21);
    /// An event is announced.
    OpenEvent, "open_event", Write, Safe, Some(22);
    /// An event waits for no more.
    Seal, "seal", Write, Safe, Some(23);
    /// Ready events are leased. Leases whose answer is lost come back when their time is over.
    GetAny, "get_any", Select, Looks, Some(32);
    /// A named event is leased.
    Lease, "lease", Select, Looks, Some(33);
    /// More sources of a leased event are read.
    LeaseGet, "lease_get", Select, Looks, Some(34);
    /// A lease goes on.
    Extend, "extend", Select, Looks, Some(35);
    /// What lease holders decided.
    Verdict, "verdict", Select, Safe, Some(36);
    /// The archive has an event.
    Release, "release", Archive, Safe, Some(37);
    /// A mover claims what it archives, is told what that is, keeps it or gives it back. A claim whose answer is lost ends by
    /// time.
    Archive, "archive", Archive, Looks, None;
    /// An event of the debug stream is given out again.
    Replay, "replay", Admin, Safe, Some(38);
    /// A stretch of a ring is kept. The pin belongs to its connection.
    Pin, "pin", Select, Never, None;
    /// A pin that nobody holds ends. A repetition answers that there was none.
    Unpin, "unpin", Select, Safe, None;
    /// A run is opened, paused, resumed, stopped or closed.
    Run, "run", Admin, Safe, None;
    /// A source is masked or unmasked.
    Mask, "mask", Admin, Safe, None;
    /// A prescale of the trigger is recorded.
    Prescale, "prescale", Admin, Safe, None;
    /// Events are held back. A repetition would be another hold.
    Hold, "hold", Admin, Never, None;
    /// A hold ends.
    ReleaseHold, "release_hold", Admin, Safe, None;
    /// A device is drained, takes data again, is exchanged, or added.
    Device, "device", Admin, Safe, None;
    /// A node of the cluster does what the home of a run did, or is asked to do it as the home.
    Order, "order", Peer, Safe, None;
    /// The home of a run asks a node what it has counted for the run's policy.
    Misses, "misses", Peer, Looks, None;
    /// A producer reports what it offered. A repetition would count it twice.
    Producer, "producer", Write, Never, None;
    /// Accounts, sources, statistics, reasons.
    Look, "look", Read, Looks, None;
    /// A run is watched, or events are sampled.
    Watch, "watch", Read, Looks, Some(49);
}

// `row` indexes the table by the call.
const _: () = {
    let mut at = 0;
    while at < CALLS.len() {
        assert!(CALLS[at].call as usize == at, "the table has a row for each call, in their order");
        at += 1;
    }
};

impl Call {
    /// How many there are.
    pub const COUNT: usize = CALLS.len();

    /// All calls, in the order of the table.
    pub fn all() -> impl Iterator<Item = Call> {
        CALLS.iter().map(|row| row.call)
    }

    fn row(self) -> &'static Row {
        &CALLS[self as usize]
    }

    /// Name in metrics and logs.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The right that it needs.
    pub fn right(self) -> Right {
        self.row().right
    }

    /// The effect of a second try.
    pub fn repeat(self) -> Repeat {
        self.row().repeat
    }

    /// Its number on the wire; `None` for a call that is rare and goes by its name, as a control.
    pub fn number(self) -> Option<u8> {
        self.row().number
    }

    /// The call of this number on the wire.
    pub fn of_number(number: u8) -> Option<Call> {
        CALLS.iter().find(|row| row.number == Some(number)).map(|row| row.call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds of `docs/format-wire.md`.
    #[test]
    fn numbers_on_the_wire_never_change() {
        use Call::*;
        let frequent = [Put, Get, GetEvent, Range, Update, Remove, OpenEvent, Seal, Window];
        let of_leases = [GetAny, Lease, LeaseGet, Extend, Verdict, Release, Replay];
        let numbered = (16..).zip(frequent).chain((32..).zip(of_leases)).chain([(49, Watch)]);
        let mut known = 0;
        for (number, call) in numbered {
            assert_eq!((call.number(), Call::of_number(number)), (Some(number), Some(call)));
            known += 1;
        }
        assert_eq!(Call::all().filter(|call| call.number().is_some()).count(), known);
        assert_eq!((0..=u8::MAX).filter_map(Call::of_number).count(), known);
    }

    #[test]
    fn names_are_told_apart_and_what_only_reads_may_be_repeated() {
        let mut names: Vec<&str> = Call::all().map(Call::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Call::COUNT);
        assert!(Call::all().all(|call| call.right() != Right::Read || call.repeat() == Repeat::Looks));
    }
}
