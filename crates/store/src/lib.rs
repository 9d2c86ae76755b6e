//! The engine of one Forebay node: an embedded, event-keyed store that survives the death of its process.
//!
//! ```text
//! ops      the calls: put, get, range, update, remove, select, runs, …      one file per operation
//! home     events: completeness, leases, verdicts, ledger                   ┐ one lock per shard
//! index    radix tree over primary keys; tables from sub-keys to locations  ┘
//! hot      segments of mapped memory, records, space, the decision log
//! recover  finding everything again
//! ```
//!
//! Start with [`Store::create`], [`Store::put`] and [`Store::get_any`]; `examples/` shows them in learning order.

mod check;
mod config;
mod engine;
mod fragment;
mod home;
mod hot;
mod index;
mod limits;
mod open;
mod ops;
mod options;
mod pressure;
mod recover;
mod ring;
pub mod sim;
mod stats;
mod store;
mod sync;

pub use check::{CheckReport, check};
pub use config::{Arrival, Arrivals, Config, FlushPolicy};
pub use forebay_core as core;
pub use fragment::{Event, Fragment};
pub use ops::{Lease, Range, Reservation, Watch};
pub use options::{GetAny, PutOptions, PutOutcome, Sources};
pub use ring::{
    Coverage, Gap, Refusals, Ring, RingConfig, RingFragment, RingMemory, RingOutcome, RingPin, RingPinStatus, RingPut,
    RingReservation, RingSourceStatus, RingSources, RingStats, SourceWindow, Stretch, Window,
};
pub use stats::{EventInfo, HolderStats, Inhibit, MemoryStats, RunState, RunStatus, SegmentInfo, Stats};
pub use store::Store;
