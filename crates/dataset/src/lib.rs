//! Datasets: event data products as striped, compressed, versioned columns in a directory or in S3.
//!
//! ```text
//! writer ── batches ──▶ encode ──▶ group objects, directories ──▶ one conditional put of the root
//! reader ── root ──▶ directory of a batch ──▶ byte ranges of the streams asked for ──▶ decode
//! ```
//!
//! *Not here*: levels and the store, which know nothing of datasets; ROOT files, which the Python package reads.

mod array;
pub mod catalogue;
pub mod codec;
mod compact;
mod directory;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod gc;
mod lumis;
mod parallel;
mod precision;
mod product;
mod read;
mod reclass;
mod refer;
mod root;
mod scalar;
pub mod storage;
mod types;
mod write;

pub use array::Array;
pub use codec::Effort;
pub use compact::compact;
pub use forebay_core::{Error, Kind, Result};
pub use gc::{Collected, gc};
pub use lumis::{LumiList, Lumis};
pub use product::Product;
pub use read::{Column, Damage, Dataset, Object, Part, ReadOptions, Verified, VersionInfo};
pub use reclass::{Class, reclass};
pub use refer::refer;
pub use scalar::{Buffer, Scalar};
pub use types::{Node, Role, Type};
pub use write::{Committed, WriteOptions, Writer};
