//! Rare calls, by name, in JSON: a request is an object with the name of its call, an answer what the call answers.

use forebay_core::map::Hex128;
use forebay_core::{Bounds, Call, Key, LedgerBy, PrescaleFactor, Primary, Repeat, Source, SourceId, Token};
use serde::{Deserialize, Serialize};

/// A rare call. Times are in milliseconds, keys hexadecimal digits of their packed bytes, sources of events packed, as arrays of
/// bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Control {
    /// Opens a run; the configuration is TOML, as a keyspace's `[run]`. Answers null.
    RunOpen {
        /// Its number.
        run: u64,
        /// Its configuration.
        config: String,
    },
    /// The waiting time of open events does not run. Answers null.
    RunPause {
        /// Its number.
        run: u64,
    },
    /// It goes on. Answers null.
    RunResume {
        /// Its number.
        run: u64,
    },
    /// It takes no new events. Answers null.
    RunStop {
        /// Its number.
        run: u64,
    },
    /// Its account is final. Answers its summary.
    RunClose {
        /// Its number.
        run: u64,
    },
    /// Its summary, as it is now or as it was kept at its close.
    RunSummary {
        /// Its number.
        run: u64,
    },
    /// All runs with their accounts.
    Runs,
    /// The account of a run.
    Ledger {
        /// Its number.
        run: u64,
    },
    /// The account of a run, split.
    LedgerBy {
        /// Its number.
        run: u64,
        /// By what.
        by: LedgerBy,
    },
    /// The sources of a run.
    Sources {
        /// Its number.
        run: u64,
    },
    /// A source is masked, or with `set` false unmasked. Answers null.
    Mask {
        /// Its run.
        run: u64,
        /// The source.
        source: Source,
        /// First event.
        from: Option<Primary>,
        /// Masked or not.
        set: bool,
    },
    /// A prescale of the trigger is recorded. Answers null.
    Prescale {
        /// Its run.
        run: u64,
        /// Its name.
        name: String,
        /// A number of 1 or more, or `off`.
        factor: PrescaleFactor,
        /// First event.
        from: Option<Primary>,
    },
    /// Events are held back. Answers the number of the hold.
    Hold {
        /// Of this run; of all where it is null.
        run: Option<u64>,
        /// Conditions on attributes.
        conditions: Vec<String>,
    },
    /// A hold ends. Answers whether there was one.
    ReleaseHold {
        /// Its number.
        id: u32,
    },
    /// A device takes no more data, and what lives on it moves to the others; or it takes data again. Answers null.
    DrainDevice {
        /// Its number.
        device: u32,
        /// Whether it leaves.
        set: bool,
    },
    /// Another directory of the server has the place of a drained device from the next opening on. Answers null.
    ExchangeDevice {
        /// Its number.
        device: u32,
        /// The directory.
        to: String,
    },
    /// Another directory of the server is one more device from the next opening on. Answers null.
    AddDevice {
        /// The directory.
        to: String,
        /// Its bytes; as large as device 0 without.
        bytes: Option<u64>,
    },
    /// The home of a run does what a client asked another node for, signed by that client's token; answers what the call answers.
    AsHome {
        /// The node that was asked.
        node: u16,
        /// Epoch of its map.
        epoch: u32,
        /// Who asked.
        signed: String,
        /// For what.
        order: Box<Control>,
    },
    /// A node does what the home of a run did; answers what the call answers. Of each home, orders are done in the order of their
    /// numbers, and an earlier one that comes later is refused.
    Order {
        /// The home.
        node: u16,
        /// Epoch of its map.
        epoch: u32,
        /// Boot generation of its store.
        boot: u32,
        /// Its orders in this life, counted.
        count: u64,
        /// Who asked for it.
        signed: String,
        /// What it did.
        order: Box<Control>,
    },
    /// Another node goes by a later map: this one asks it for that. Answers null.
    Learn {
        /// The other node.
        node: u16,
        /// Epoch of its map.
        epoch: u32,
    },
    /// A node tells the homes of all that it holds for them. Answers null.
    TellHomes {
        /// Who asks for it.
        node: u16,
        /// Epoch of its map.
        epoch: u32,
    },
    /// What another node led may have ended without a word: what is held for it is compared. Answers null.
    CompareHeld {
        /// The other node.
        node: u16,
        /// Epoch of its map.
        epoch: u32,
    },
    /// What ended at its home ends where it is held. Answers null.
    Depart {
        /// The home.
        node: u16,
        /// Epoch of its map.
        epoch: u32,
        /// Events.
        events: Vec<Primary>,
        /// Fragments.
        fragments: Vec<Key>,
    },
    /// The first half of a close on all nodes: the run takes nothing until it is closed, or the close abandoned. Answers null.
    BeginClose {
        /// The run.
        run: u64,
    },
    /// The run takes puts again. Answers null.
    AbandonClose {
        /// The run.
        run: u64,
    },
    /// What a node has counted for the policy of a run since it was asked last. Answers a list of misses, with those of the sources that
    /// are asked for.
    Misses {
        /// The home of the run.
        node: u16,
        /// Epoch of its map.
        epoch: u32,
        /// The run.
        run: u64,
        /// Sources.
        sources: Vec<Source>,
    },
    /// The policy of a run masks these sources, and no others; what a person has masked stays so. Answers null.
    MasksByPolicy {
        /// Its run.
        run: u64,
        /// The sources.
        sources: Vec<Source>,
    },
    /// The hold that its home has under this number. Answers null.
    HoldAs {
        /// Its number.
        id: u32,
        /// Of this run; of all where it is null.
        run: Option<u64>,
        /// Conditions on attributes.
        conditions: Vec<String>,
    },
    /// The node and its peers, as this node sees them.
    Cluster,
    /// The map that the node goes by. Answers its JSON.
    Map,
    /// All holds.
    Holds,
    /// The events of the debug stream.
    DebugEvents,
    /// Conflicting copies that are kept.
    Conflicts,
    /// Why a fragment is, or is not, there.
    Why {
        /// Its key.
        key: Key,
    },
    /// Where an accepted event goes: names with packed sources, null for all.
    Outputs {
        /// The event.
        primary: Primary,
    },
    /// The store at a glance.
    Stats,
    /// Segments of the hot level.
    Segments,
    /// Containers of the warm level.
    Containers,
    /// Fills at which inhibit and demotion start and stop.
    Marks,
    /// What the opening found missing and was accepted.
    Losses,
    /// Accepted and debug events are released. Answers how many, and where to go on.
    ReleaseRange {
        /// Lowest and highest value of each sub-key.
        bounds: Vec<(u64, u64)>,
        /// Of this stream; of all where it is null.
        stream: Option<String>,
        /// Only events after this one.
        after: Option<Primary>,
    },
    /// A mover claims something to archive. Answers the claim, or null.
    Claim {
        /// Of this device; of any where it is null.
        device: Option<u32>,
        /// How long what is still being filled waits for more.
        move_after_ms: u64,
        /// How long the claim lasts.
        ms: u64,
        /// The archive's identity, where it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        archive: Option<Hex128>,
        /// It may be another one than that of the store's last proof.
        #[serde(default)]
        another: bool,
    },
    /// Events of a claim. Answers a list of them, empty behind the last one.
    Claimed {
        /// The claim.
        token: Token,
        /// How many of them to pass over.
        after: u64,
    },
    /// A claim goes on for this long. Answers null.
    ExtendClaim {
        /// The claim.
        token: Token,
        /// How long.
        ms: u64,
    },
    /// The archive has what was claimed. Answers how many events that are.
    Prove {
        /// The claim.
        token: Token,
    },
    /// A claim ends without a proof. Answers null.
    GiveBack {
        /// The claim.
        token: Token,
    },
    /// A producer enters the books of a run, for as long as the connection lasts. Answers the number of the object.
    Producer {
        /// Its run.
        run: u64,
        /// Its name.
        name: String,
    },
    /// A producer counts on, reports, or ends with its report. Answers null.
    Report {
        /// Number of the object.
        object: u32,
        /// Events that it announced since.
        announced: u64,
        /// Fragments that it offered since.
        fragments: u64,
        /// Bytes that it offered since.
        bytes: u64,
        /// Whether that is to be durable, and whether it is the end.
        order: ObjectOrder,
    },
    /// A run is followed, for as long as the connection lasts. Answers the number of the object, for `watch` frames.
    Watch {
        /// Its number.
        run: u64,
    },
    /// Events are sampled, for as long as the connection lasts. Answers the number of the object, for `watch` frames.
    Sampler {
        /// Conditions on attributes.
        conditions: Vec<String>,
        /// Only this stage.
        stage: Option<String>,
        /// Only this run.
        run: Option<u64>,
        /// Events as they are decided.
        decided: bool,
        /// Sources whose bytes are wanted, packed: null for all, an empty list for none.
        sources: Option<Vec<Source>>,
        /// Most events a second.
        rate_hz: f64,
        /// Most bytes of one event.
        bytes_max: u64,
    },
    /// Every source of a ring.
    RingSources,
    /// A stretch of ticks of a ring is kept, for as long as the connection lasts and no longer than this. Answers the
    /// number of the object, that of the pin, and the bytes that it holds or has reserved.
    Pin {
        /// First tick.
        begin: u64,
        /// Tick after the last one.
        end: u64,
        /// Of these sources; of all where it is null.
        sources: Option<Vec<SourceId>>,
        /// How long.
        ms: u64,
    },
    /// A pin goes on, at other ticks where they are given. Answers the bytes that it holds or has reserved.
    MovePin {
        /// Number of the object.
        object: u32,
        /// First tick, and the tick after the last one.
        ticks: Option<(u64, u64)>,
        /// How long from now on.
        ms: u64,
    },
    /// A stretch of ticks of a ring is kept for this long, also without the connection. Answers the pin, as `stats` lists it.
    KeepPin {
        /// First tick.
        begin: u64,
        /// Tick after the last one.
        end: u64,
        /// Of these sources; of all where it is null.
        sources: Option<Vec<SourceId>>,
        /// How long.
        ms: u64,
    },
    /// A pin that no connection holds ends. Answers whether there was one.
    Unpin {
        /// Its number.
        id: u64,
    },
    /// Every chunk of a ring.
    RingChunks,
    /// The tick that a ring expects to arrive now; null before its first put.
    RingNow,
    /// An object of this connection ends. Answers null.
    Drop {
        /// Its number.
        object: u32,
    },
}

impl Control {
    /// How it is repeated where no answer came: what a home is asked for by another node, as that itself.
    pub fn repeat(&self) -> Repeat {
        match self {
            Control::AsHome { order, .. } => order.repeat(),
            other => other.call().repeat(),
        }
    }

    /// The call of the table that this makes: for rights and metrics.
    pub fn call(&self) -> Call {
        match self {
            Control::RunOpen { .. }
            | Control::RunPause { .. }
            | Control::RunResume { .. }
            | Control::RunStop { .. }
            | Control::RunClose { .. } => Call::Run,
            Control::Mask { .. } => Call::Mask,
            Control::AsHome { .. }
            | Control::Order { .. }
            | Control::Learn { .. }
            | Control::TellHomes { .. }
            | Control::CompareHeld { .. }
            | Control::Depart { .. }
            | Control::BeginClose { .. }
            | Control::AbandonClose { .. }
            | Control::MasksByPolicy { .. }
            | Control::HoldAs { .. } => Call::Order,
            Control::Misses { .. } => Call::Misses,
            Control::Prescale { .. } => Call::Prescale,
            Control::Hold { .. } => Call::Hold,
            Control::ReleaseHold { .. } => Call::ReleaseHold,
            Control::DrainDevice { .. } | Control::ExchangeDevice { .. } | Control::AddDevice { .. } => Call::Device,
            Control::ReleaseRange { .. } | Control::Prove { .. } => Call::Release,
            Control::Claim { .. }
            | Control::Claimed { .. }
            | Control::ExtendClaim { .. }
            | Control::GiveBack { .. } => Call::Archive,
            Control::Producer { .. } | Control::Report { .. } => Call::Producer,
            Control::Pin { .. } | Control::MovePin { .. } | Control::KeepPin { .. } => Call::Pin,
            Control::Unpin { .. } => Call::Unpin,
            Control::Watch { .. } | Control::Sampler { .. } | Control::Drop { .. } => Call::Watch,
            Control::Runs
            | Control::RunSummary { .. }
            | Control::Ledger { .. }
            | Control::LedgerBy { .. }
            | Control::Sources { .. }
            | Control::Cluster
            | Control::Map
            | Control::Holds
            | Control::DebugEvents
            | Control::Conflicts
            | Control::Why { .. }
            | Control::Outputs { .. }
            | Control::Stats
            | Control::Segments
            | Control::Containers
            | Control::Marks
            | Control::Losses
            | Control::RingSources
            | Control::RingChunks
            | Control::RingNow => Call::Look,
        }
    }
}

/// Bounds as a control says them.
pub fn bounds_of(bounds: &Bounds) -> Vec<(u64, u64)> {
    bounds.lower().iter().copied().zip(bounds.upper().iter().copied()).collect()
}

/// The kind of a producer's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectOrder {
    /// The figures are taken.
    Count,
    /// They are durable.
    Report,
    /// They are durable and final.
    Finish,
}
