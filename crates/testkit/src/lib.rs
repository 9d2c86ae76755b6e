//! Code that tests share. No release contains it.
//!
//! ```text
//! media    media and devices that forget, fail, stall and shorten
//! s3       a stand-in for S3 that does wrong what it is asked to (feature `s3`)
//! ceph     a real Ceph with an S3 gateway, on loopback (feature `ceph`)
//! TempDir  a directory that goes with its test
//! Mounted  a file system of a size (needs root)
//! served   a client and a server that look like a store: its tests, over the network (feature `served`)
//! ```
//!
//! *Not here*: the chaos. It is a test (`tests/chaos`), in a package that brings the store and the ring along.

#[cfg(feature = "ceph")]
pub mod ceph;
pub mod media;
mod mounted;
#[cfg(feature = "s3")]
pub mod s3;
#[cfg(feature = "served")]
mod served;
mod temp_dir;

pub use mounted::Mounted;
pub use temp_dir::TempDir;

#[cfg(feature = "served")]
pub use served::*;
