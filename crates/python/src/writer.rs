//! The class `Writer` and the chores of a dataset: `compact` and `gc`.

use crate::dataset::storage_options;
use crate::error::{OrRaise, raise};
use crate::streams::{Said, columns};
use forebay_dataset as dataset;
use forebay_dataset::{Class, Effort, Error, WriteOptions};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Writes one version of a dataset. Closed without a commit, it changes nothing.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct Writer {
    /// None: closed. A lock because Python may call from several threads; held for a call, without the interpreter.
    inner: Mutex<Option<dataset::Writer>>,
}

#[pymethods]
impl Writer {
    /// `change` is `create`, `append`, `add` or `replace`.
    #[new]
    #[pyo3(signature = (url, change, batch_events=None, target_bytes=None, best=false, threads=None))]
    fn new(
        py: Python<'_>,
        url: &str,
        change: &str,
        batch_events: Option<u32>,
        target_bytes: Option<u32>,
        best: bool,
        threads: Option<usize>,
    ) -> PyResult<Writer> {
        let mut options = WriteOptions { batch_events, threads, ..WriteOptions::default() };
        if let Some(target_bytes) = target_bytes {
            options.target_bytes = target_bytes;
        }
        if best {
            options.effort = Effort::Best;
        }
        let begun = py.detach(|| match change {
            "create" => dataset::Writer::create(url, options),
            "append" => dataset::Writer::append(url, options),
            "add" => dataset::Writer::add(url, options),
            "replace" => dataset::Writer::replace(url, options),
            other => Err(Error::invalid(format!("no change {other:?} of a dataset"))),
        });
        Ok(Writer { inner: Mutex::new(Some(begun.or_raise(py)?)) })
    }

    /// Events of a table: for each column what is said of it, and its streams as arrays of bytes.
    fn push(&self, py: Python<'_>, table: &str, events: u64, pushed: Vec<(Said, Bound<'_, PyList>)>) -> PyResult<()> {
        let pushed = columns(py, events, pushed)?;
        self.with(py, |writer| writer.push(table, &pushed))
    }

    /// A fact as JSON.
    fn fact(&self, py: Python<'_>, name: &str, json: &str) -> PyResult<()> {
        let value =
            serde_json::from_str(json).map_err(|error| raise(py, &Error::invalid(format!("fact {name}: {error}"))))?;
        self.with(py, |writer| {
            writer.fact(name, value);
            Ok(())
        })
    }

    /// Makes what was pushed the next version and returns its number.
    fn commit(&self, py: Python<'_>, note: &str) -> PyResult<u32> {
        self.with(py, |writer| Ok(writer.commit(note)?.version))
    }

    fn close(&self, py: Python<'_>) {
        // A put under way is waited for.
        py.detach(|| drop(self.inner.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

impl Writer {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut dataset::Writer) -> dataset::Result<T> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| match self.inner.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(writer) => call(writer),
            None => Err(Error::closed("the writer is closed")),
        });
        done.or_raise(py)
    }
}

/// Writes all columns again with the highest effort as a new version, and returns its number.
#[pyfunction]
#[pyo3(signature = (url, threads=None))]
pub(crate) fn compact(py: Python<'_>, url: &str, threads: Option<usize>) -> PyResult<u32> {
    let options = WriteOptions { threads, ..WriteOptions::default() };
    Ok(py.detach(|| dataset::compact(url, &options, &mut |_, _| {})).or_raise(py)?.version)
}

/// What `gc` did, as Python gets it.
type Collected = (Vec<String>, Vec<String>, Vec<String>, u64);

/// Removes what writers left that were silent for longer than this many seconds. Returns the prefixes of writers that are alive, that
/// had committed and that were removed, and how many names were looked at.
#[pyfunction]
pub(crate) fn gc(py: Python<'_>, url: &str, silent: f64) -> PyResult<Collected> {
    let silent = Duration::try_from_secs_f64(silent).map_err(|error| raise(py, &Error::invalid(error.to_string())))?;
    let done = py.detach(|| dataset::gc(url, silent, &storage_options(None, None))).or_raise(py)?;
    Ok((done.alive, done.committed, done.removed, done.names))
}

/// Writes columns to the place of a class of service, as a new version, and returns its number.
#[pyfunction]
#[pyo3(signature = (url, table, columns, name, place=""))]
#[expect(clippy::needless_pass_by_value, reason = "what Python gives is owned")]
pub(crate) fn reclass(
    py: Python<'_>,
    url: &str,
    table: &str,
    columns: Vec<String>,
    name: &str,
    place: &str,
) -> PyResult<u32> {
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let class = Class::new(name, place);
    let options = WriteOptions::default();
    let done = py.detach(|| dataset::reclass(url, table, &columns, &class, &options, &mut |_, _| {}));
    Ok(done.or_raise(py)?.version)
}

/// Adds columns of another dataset by reference, as a new version, and returns its number.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "what Python gives is owned")]
pub(crate) fn refer(py: Python<'_>, url: &str, table: &str, other: &str, columns: Vec<String>) -> PyResult<u32> {
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let done = py.detach(|| dataset::refer(url, table, other, &columns, &storage_options(None, None)));
    Ok(done.or_raise(py)?.version)
}
