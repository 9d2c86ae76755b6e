//! The calls of the API as a server counts, allows and times them, whatever the protocol.

/// What a holder of a token may do in a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Read fragments, events, accounts and statistics.
    Read,
    /// Put, announce and seal.
    Write,
    /// Lease events and decide about them; pin stretches of a ring.
    Select,
    /// Runs, masks, holds, updates, removals, the debug stream, releases.
    Admin,
}

impl Right {
    /// All of them.
    pub const ALL: [Right; 4] = [Right::Read, Right::Write, Right::Select, Right::Admin];

    /// Name in lower case, as configurations write it.
    pub fn name(self) -> &'static str {
        ["read", "write", "select", "admin"][self as usize]
    }
}

macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident, $name:literal, $right:ident;)*) => {
        /// A call of the API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Call { $($(#[$doc])* $call),* }

        impl Call {
            /// All calls.
            pub const ALL: &'static [Call] = &[$(Call::$call),*];

            /// Name in metrics and logs.
            pub fn name(self) -> &'static str {
                match self { $(Call::$call => $name),* }
            }

            /// The right that it needs.
            pub fn right(self) -> Right {
                match self { $(Call::$call => Right::$right),* }
            }
        }
    };
}

calls! {
    /// Fragments are stored.
    Put, "put", Write;
    /// Fragments are read by key.
    Get, "get", Read;
    /// An event is read.
    GetEvent, "get_event", Read;
    /// Fragments or events between bounds are read.
    Range, "range", Read;
    /// A window of a ring is read.
    Window, "window", Read;
    /// A new version of a fragment, or new attributes of an event.
    Update, "update", Admin;
    /// A fragment, an event or a range is removed.
    Remove, "remove", Admin;
    /// An event is announced.
    OpenEvent, "open_event", Write;
    /// An event waits for no more.
    Seal, "seal", Write;
    /// Ready events are leased.
    GetAny, "get_any", Select;
    /// A named event is leased.
    Lease, "lease", Select;
    /// More sources of a leased event are read.
    LeaseGet, "lease_get", Select;
    /// A lease goes on.
    Extend, "extend", Select;
    /// What lease holders decided.
    Verdict, "verdict", Select;
    /// The archive has an event.
    Release, "release", Admin;
    /// An event of the debug stream is given out again.
    Replay, "replay", Admin;
    /// A stretch of a ring is kept.
    Pin, "pin", Select;
    /// A run is opened, paused, resumed, stopped or closed.
    Run, "run", Admin;
    /// A source is masked or unmasked.
    Mask, "mask", Admin;
    /// Events are held back or set free.
    Hold, "hold", Admin;
    /// A producer reports what it offered.
    Producer, "producer", Write;
    /// Accounts, sources, statistics, reasons.
    Look, "look", Read;
    /// A run is watched, or events are sampled.
    Watch, "watch", Read;
}
