//! `forebay._native`: datasets for Python, as streams in NumPy arrays. The package around it makes awkward arrays of them.
//!
//! ```text
//! Dataset.read ── py.detach: fetch, decode on all cores ──▶ memory of Rust ──▶ NumPy arrays that own it
//! Writer.push ── buffers copied into aligned memory ── py.detach: check, encode, put
//! ```
//!
//! *Invariants*: the interpreter is detached while Rust reads, decodes, encodes or waits; no Rust thread outlives a call, apart from the
//! writer's uploader, so that a process may fork between calls.
//!
//! *Not here*: awkward arrays, ROOT and Arrow, which are Python's.

mod catalogue;
mod dataset;
mod error;
mod streams;
mod writer;

use pyo3::prelude::*;

/// Datasets of Forebay, without awkward arrays.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<catalogue::Catalogue>()?;
    module.add_class::<dataset::Dataset>()?;
    module.add_class::<writer::Writer>()?;
    module.add_function(wrap_pyfunction!(writer::compact, module)?)?;
    module.add_function(wrap_pyfunction!(writer::gc, module)?)?;
    module.add_function(wrap_pyfunction!(writer::reclass, module)?)?;
    module.add_function(wrap_pyfunction!(writer::refer, module)?)
}
