//! The public calls of a store, one file per operation, named as the call.

mod account;
mod adopt;
mod announce;
mod attributes;
#[cfg(test)]
mod beside_close;
#[cfg(test)]
mod beside_grant;
mod claim;
mod conflict;
mod debug;
mod get;
mod hold;
mod holder;
mod inspect;
mod mask;
mod policy;
mod prefetch;
mod prescale;
mod producers;
mod put;
mod range;
mod release;
mod remove;
mod reserve;
mod runs;
mod sample;
mod seal;
mod select;
mod streams;
mod summary;
mod update;
mod verdict;
mod waits;
mod why;

pub use account::Watch;
pub use holder::{HeldFragment, HeldPart};
pub use producers::Producer;
pub use range::Range;
pub use reserve::Reservation;
pub use runs::RunWords;
pub use sample::Sampler;
pub use select::Lease;
