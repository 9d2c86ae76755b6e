//! What tests share. Nothing of a release depends on it.
//!
//! ```text
//! media    media and devices that forget, fail, stall and shorten
//! served   a client and a server that look like a store: its tests, over the network (feature `served`)
//! ```
//!
//! *Not here*: the chaos. It is a test of this crate (`tests/chaos`), which brings the store and the ring along only then.

pub mod media;
#[cfg(feature = "served")]
mod served;

#[cfg(feature = "served")]
pub use served::*;
