//! What people and programs do with a store; one file per operation, named as the call.

mod account;
mod ahead;
mod announce;
mod attributes;
#[cfg(test)]
mod beside_close;
mod conflict;
mod debug;
mod fold;
mod get;
mod hold;
mod inspect;
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
mod streams;
mod update;
mod verdict;
mod why;

pub use account::Watch;
pub use look::InhibitWatch;
pub(crate) use maintain::spawn;
pub use producers::Producer;
pub use put::Reservation;
pub use range::Range;
pub use sample::Sampler;
pub use select::Lease;
