//! The engine of one Forebay node: an embedded, event-keyed store that survives the death of its process.
//!
//! ```text
//! open, check           making, opening and closing; looking without serving
//! calls, upkeep         put, get, range, update, select, …; what the store does by itself beside them
//! recover, levels       finding everything again; what goes down and when, and all waits for devices
//! engine                the owners below, together
//! shards                events and their places, behind one lock per shard
//! placement, inhibit    where fragments are; when the trigger must pause, and why
//! decisions, runs       what the log says; what runs know of sources, producers and masks
//! events, index         the state machine of an event, which knows no location; radix tree, tables, compact storage
//! ```
//!
//! `serve` is the store as a server sees it. Each row may use those below it. The memory, the devices and the logs are in `forebay-media`.
//!
//! Start with [`Store::create`], [`Store::put`] and [`Store::get_any`]; `examples/` shows them in learning order.

// See `clippy.toml`. Tests may read the machine's time: they wait for what other threads do.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod archive_file;
mod calls;
mod check;
mod config;
mod decisions;
mod engine;
mod events;
mod fragment;
mod index;
mod inhibit;
mod keyspace_file;
mod levels;
mod limits;
mod locks;
mod map_file;
#[doc(hidden)]
pub mod measure;
mod open;
mod placement;
mod recover;
mod rounds;
mod runs;
mod serve;
mod shards;
mod store;
mod time;
mod upkeep;

pub use calls::{HeldFragment, HeldPart, Lease, Producer, Range, Reservation, RunWords, Sampler, Watch};
pub use check::{CheckReport, check};
pub use config::{Arrival, Arrivals, Config, WarmDevice};
pub use events::{Departed, Departures};
pub use forebay_core as core;
pub use forebay_core::{
    Accept, ConflictInfo, ContainerStatus, DeadTime, DebugInfo, DebugStats, DeviceStatus, EventInfo, GetAny, HoldInfo,
    HolderStats, Inhibit, InhibitClass, InhibitListener, InhibitState, LedgerBy, LedgerRow, Marks, MemoryStats,
    OpenEvent, ProducerStatus, PutOptions, PutOutcome, ResultFragment, RunState, RunStatus, RunSummary, Sampling,
    SegmentInfo, SourceState, SourceStates, SourceStatus, Sources, Stats, WarmStats, Why,
};
pub use forebay_media::hot::{FlushPolicy, Kept, KeptBy, Medium};
pub use forebay_media::warm::{BLOCK_BYTES, Buffer, Device, DirectoryDevice, Done, FileId, IoMethod, Queue};
pub use fragment::{Event, Fragment, Sample};
pub use runs::{RUN_OPENS, RunHome};
pub use store::Store;
pub use upkeep::InhibitWatch;

forebay_core::implement_event_store!(
    Store,
    Fragment,
    forebay_core::Held<Store>,
    Producer,
    Range,
    |store| Ok(store.runs()),
    Ok(store.stats())
);

/// Every decoder of what the log says in words of its own, for the fuzzer: errors are answers, a panic is a find.
#[doc(hidden)]
pub fn decode_log_blob(keyspace: &forebay_core::Keyspace, bytes: &[u8]) {
    decisions::decode_all(keyspace, bytes);
}

/// The calls on the pages of `docs/profiles` compile.
#[cfg(doctest)]
mod profiles {
    #[doc = include_str!("../../../docs/profiles/alice.md")]
    mod alice {}
    #[doc = include_str!("../../../docs/profiles/atlas.md")]
    mod atlas {}
    #[doc = include_str!("../../../docs/profiles/cms.md")]
    mod cms {}
    #[doc = include_str!("../../../docs/profiles/dune.md")]
    mod dune {}
}
