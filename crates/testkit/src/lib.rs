//! What tests share. Nothing of a release depends on it.
//!
//! ```text
//! media    media and devices that forget, fail, stall and shorten
//! served   a client and a server that look like a store: its tests, over the network (feature `served`)
//! ```

pub mod media;
#[cfg(feature = "served")]
mod served;

#[cfg(feature = "served")]
pub use served::*;
