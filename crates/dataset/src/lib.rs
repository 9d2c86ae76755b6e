//! Datasets: event data products as striped, compressed, versioned columns in a directory or in S3.
//!
//! ```text
//! writer ── batches ──▶ encode ──▶ group objects, directories ──▶ one conditional put of the root
//! reader ── root ──▶ directory of a batch ──▶ byte ranges of the streams asked for ──▶ decode
//! ```
//!
//! *Not here*: levels and the store, which know nothing of datasets; ROOT files, which the Python package reads.

mod array;
pub mod codec;
mod scalar;
mod storage;

pub use array::{Array, Stream, Type};
pub use scalar::{Buffer, Scalar};
