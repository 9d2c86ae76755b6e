//! The class `Dataset`: a version of a dataset, as Python reads it.

use crate::error::OrRaise;
use crate::streams::{Read, Said, hand_over, said};
use forebay_dataset as dataset;
use forebay_dataset::{LumiList, ReadOptions};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// Version, milliseconds since 1970, note, and events and products of each table.
type Version = (u32, u64, String, Vec<(String, u64, usize)>);

/// A version of a dataset.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct Dataset {
    inner: dataset::Dataset,
}

/// Settings of a place that Python may change.
pub(crate) fn storage_options(in_flight: Option<usize>, deadline: Option<f64>) -> dataset::storage::Options {
    let mut options = dataset::storage::Options::default();
    if let Some(in_flight) = in_flight {
        options.in_flight = in_flight.max(1);
    }
    if let Some(seconds) = deadline.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        options.deadline = seconds;
    }
    options
}

#[pymethods]
impl Dataset {
    #[staticmethod]
    #[pyo3(signature = (url, version=None, threads=None, in_flight=None, deadline=None))]
    fn open(
        py: Python<'_>,
        url: &str,
        version: Option<u32>,
        threads: Option<usize>,
        in_flight: Option<usize>,
        deadline: Option<f64>,
    ) -> PyResult<Dataset> {
        let options = ReadOptions { threads, storage: storage_options(in_flight, deadline) };
        let opened = py.detach(|| {
            let newest = dataset::Dataset::open(url, options)?;
            version.map_or(Ok(newest.clone()), |version| newest.at(version))
        });
        Ok(Dataset { inner: opened.or_raise(py)? })
    }

    fn at(&self, py: Python<'_>, version: u32) -> PyResult<Dataset> {
        Ok(Dataset { inner: self.inner.at(version).or_raise(py)? })
    }

    #[getter]
    fn url(&self) -> &str {
        self.inner.url()
    }

    #[getter]
    fn uuid(&self) -> &str {
        self.inner.uuid()
    }

    #[getter]
    fn version(&self) -> u32 {
        self.inner.version()
    }

    fn versions(&self) -> Vec<Version> {
        let versions = self.inner.versions().into_iter();
        versions.map(|info| (info.version, info.time_ms, info.note, info.tables)).collect()
    }

    /// Facts as JSON.
    fn facts(&self) -> String {
        serde_json::Value::from_iter(self.inner.facts().clone()).to_string()
    }

    /// Class of service of each product; empty: the dataset's own place.
    fn classes(&self, py: Python<'_>, table: &str) -> PyResult<Vec<String>> {
        py.detach(|| self.inner.classes(table)).or_raise(py)
    }

    /// Run, section and events of each luminosity section.
    fn lumis(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64, u64)>> {
        let lumis = py.detach(|| self.inner.lumis()).or_raise(py)?;
        let of_run = |(run, sections): (u64, BTreeMap<u64, u64>)| {
            sections.into_iter().map(move |(section, n)| (run, section, n))
        };
        Ok(lumis.events.into_iter().flat_map(of_run).collect())
    }

    /// Ranges of the events whose sections a golden JSON text has.
    fn certified(&self, py: Python<'_>, golden: &str) -> PyResult<Vec<(u64, u64)>> {
        let ranges = py.detach(|| LumiList::parse(golden)?.ranges(&self.inner)).or_raise(py)?;
        Ok(ranges.into_iter().map(|range| (range.start, range.end)).collect())
    }

    fn tables(&self) -> Vec<String> {
        self.inner.tables().into_iter().map(str::to_owned).collect()
    }

    fn events(&self, py: Python<'_>, table: &str) -> PyResult<u64> {
        py.detach(|| self.inner.events(table)).or_raise(py)
    }

    fn batches(&self, py: Python<'_>, table: &str) -> PyResult<Vec<(u64, u64)>> {
        let batches = py.detach(|| self.inner.batches(table)).or_raise(py)?;
        Ok(batches.into_iter().map(|batch| (batch.start, batch.end)).collect())
    }

    fn products(&self, py: Python<'_>, table: &str) -> PyResult<Vec<Said>> {
        let products = py.detach(|| self.inner.products(table)).or_raise(py)?;
        Ok(products.into_iter().map(said).collect())
    }

    fn stored_bytes(&self, py: Python<'_>, table: &str) -> PyResult<Vec<u64>> {
        py.detach(|| self.inner.stored_bytes(table)).or_raise(py)
    }

    /// Columns of the events from `start` to `stop`. Without `values` only their offsets and indices.
    #[pyo3(signature = (table, columns, start, stop, values=true))]
    #[expect(clippy::needless_pass_by_value, reason = "what Python gives is owned")]
    fn read(
        &self,
        py: Python<'_>,
        table: &str,
        columns: Vec<String>,
        start: u64,
        stop: u64,
        values: bool,
    ) -> PyResult<Vec<Read>> {
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        let read = || match values {
            true => self.inner.read(table, &names, start..stop),
            false => self.inner.read_structure(table, &names, start..stop),
        };
        let columns = py.detach(read).or_raise(py)?;
        Ok(hand_over(py, columns))
    }

    /// Requests to read, and bytes that came.
    fn traffic(&self) -> (u64, u64) {
        let traffic = self.inner.traffic();
        (traffic.reads, traffic.bytes_read)
    }
}
