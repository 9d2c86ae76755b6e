//! Code that tests share. No release contains it.
//!
//! ```text
//! media    media and devices that forget, fail, stall and shorten
//! TempDir  a directory that goes with its test
//! served   a client and a server that look like a store: its tests, over the network (feature `served`)
//! ```
//!
//! *Not here*: the chaos. It is a test of this crate (`tests/chaos`), which brings the store and the ring along only then.

pub mod media;
#[cfg(feature = "served")]
mod served;
mod temp_dir;

pub use temp_dir::TempDir;

#[cfg(feature = "served")]
pub use served::*;
