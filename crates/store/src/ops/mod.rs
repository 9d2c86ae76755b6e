//! What people and programs do with a store; one file per operation, named as the call.

mod account;
mod ahead;
mod announce;
mod attributes;
#[cfg(test)]
mod beside_close;
mod conflict;
mod debug;
mod get;
mod hold;
mod inspect;
mod journal;
mod look;
mod maintain;
mod mask;
mod now;
mod producers;
mod put;
mod range;
mod remove;
mod runs;
mod sample;
mod seal;
mod select;
mod snapshot;
mod streams;
mod update;
mod verdict;
mod why;

pub use account::Watch;
pub(crate) use attributes::class_position;
pub(crate) use debug::Reason;
pub(crate) use hold::Hold;
pub(crate) use journal::{MaskChange, apply_mask, decode_hold, decode_mask, decode_producer, decode_run};
pub use look::InhibitWatch;
pub(crate) use maintain::spawn;
pub(crate) use mask::Watched;
pub(crate) use producers::KnownProducer;
pub use producers::Producer;
pub use put::Reservation;
pub use range::Range;
pub use sample::Sampler;
pub(crate) use sample::Samplers;
pub use select::Lease;
pub(crate) use select::nanoseconds;
pub(crate) use snapshot::{Folded, FoldedRun, KeyTable, Seen, mark_of, mark_parts};
pub(crate) use streams::{Outputs, output_number};

/// Reads bytes as everything that a blob of the log can be.
pub(crate) fn decode_all(keyspace: &forebay_core::Keyspace, bytes: &[u8]) {
    let _ = decode_run(bytes, &keyspace.schema);
    let _ = decode_mask(bytes, &keyspace.schema);
    let _ = decode_hold(bytes, &keyspace.attributes);
    let _ = decode_producer(bytes);
    let _ = Outputs::default().adopt(0, bytes, keyspace.schema.rest_bytes());
    let _ = crate::engine::Engine::read_snapshot(keyspace, bytes);
}
