//! The class `Catalogue`: what a catalogue says, as JSON, which Python makes dictionaries of.

use crate::dataset::storage_options;
use crate::error::{OrRaise, raise};
use forebay_dataset::catalogue::{self, Listed, Parent, Publication, Query, Source};
use forebay_dataset::{Error, Result};
use pyo3::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;

/// A catalogue of datasets.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct Catalogue {
    inner: catalogue::Catalogue,
}

/// What an entry has in objects of its own.
fn part(catalogue: &catalogue::Catalogue, entry: &catalogue::Entry, what: &str) -> Result<String> {
    match what {
        "columns" => json(&catalogue.columns(entry)?),
        "lumis" => json(&catalogue.lumis(entry)?),
        "sources" => json(&catalogue.sources(entry)?),
        "checksums" => json(&catalogue.checksums(entry)?),
        other => Err(Error::invalid(format!("an entry has no {other:?}"))),
    }
}

fn json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::internal(format!("JSON: {error}")))
}

/// An entry as Python gets it: its change, and what it says.
fn listed(listed: &Listed) -> (u64, &catalogue::Entry) {
    (listed.change, &listed.entry)
}

fn entries(all: &[Listed]) -> Result<String> {
    json(&all.iter().map(listed).collect::<Vec<_>>())
}

#[pymethods]
impl Catalogue {
    #[staticmethod]
    fn open(py: Python<'_>, url: &str) -> PyResult<Catalogue> {
        let opened = py.detach(|| catalogue::Catalogue::open(url, &storage_options(None, None)));
        Ok(Catalogue { inner: opened.or_raise(py)? })
    }

    #[getter]
    fn url(&self) -> &str {
        self.inner.url()
    }

    /// Publishes a version of a dataset; parents are (uuid, version), sources JSON. Returns its change and entry, whether it is new, and
    /// what of it is not done.
    #[expect(clippy::too_many_arguments, reason = "as Python gives them")]
    fn publish(
        &self,
        py: Python<'_>,
        name: &str,
        url: &str,
        version: Option<u32>,
        tags: BTreeMap<String, String>,
        parents: Vec<(String, Option<u32>)>,
        sources: &str,
        checksums: bool,
    ) -> PyResult<(String, bool, Option<String>)> {
        let sources: Vec<Source> = serde_json::from_str(sources)
            .map_err(|error| raise(py, &Error::invalid(format!("source files: {error}"))))?;
        let parents = parents.into_iter().map(|(uuid, version)| Parent { uuid, version }).collect();
        let publication = Publication { version, tags, parents, sources, checksums, ..Publication::new(name, url) };
        let published = py.detach(|| self.inner.publish(&publication, &mut |_, _| {})).or_raise(py)?;
        let entry = json(&listed(&published.listed)).or_raise(py)?;
        Ok((entry, published.is_new, published.unfinished.map(|error| error.to_string())))
    }

    /// The number of the change, or none where there is no such version.
    fn withdraw(&self, py: Python<'_>, name: &str, version: u32, why: &str) -> PyResult<Option<u64>> {
        py.detach(|| self.inner.withdraw(name, version, why)).or_raise(py)
    }

    fn list(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| entries(&self.inner.list()?)).or_raise(py)
    }

    #[pyo3(signature = (name, version=None))]
    fn show(&self, py: Python<'_>, name: &str, version: Option<u32>) -> PyResult<Option<String>> {
        let shown = py.detach(|| self.inner.show(name, version)?.map(|found| json(&listed(&found))).transpose());
        shown.or_raise(py)
    }

    /// Entries that have all of what is asked for, and names of those that could not be read, with the reason.
    #[expect(clippy::too_many_arguments, reason = "as Python gives them")]
    fn find(
        &self,
        py: Python<'_>,
        name: Option<String>,
        uuid: Option<String>,
        tags: BTreeMap<String, String>,
        columns: Vec<String>,
        file: Option<String>,
        run: Option<u64>,
        lumi: Option<u64>,
        newest: bool,
    ) -> PyResult<(String, Vec<String>)> {
        let query = Query { name, uuid, tags, columns, file, run, lumi, newest };
        let found = py.detach(|| {
            let found = self.inner.find(&query)?;
            let unread = found
                .unread
                .iter()
                .map(|(listed, error)| format!("{} version {}: {error}", listed.entry.name, listed.entry.version));
            Ok((entries(&found.entries)?, unread.collect()))
        });
        found.or_raise(py)
    }

    /// `columns`, `lumis`, `sources` or `checksums` of an entry; none where there is no such version.
    #[pyo3(signature = (what, name, version=None))]
    fn part(&self, py: Python<'_>, what: &str, name: &str, version: Option<u32>) -> PyResult<Option<String>> {
        let read = || {
            let found = self.inner.show(name, version)?;
            found.map(|found| part(&self.inner, &found.entry, what)).transpose()
        };
        py.detach(read).or_raise(py)
    }

    /// At most `most` changes from a number on.
    fn changes(&self, py: Python<'_>, since: u64, most: usize) -> PyResult<String> {
        let read = || json(&self.inner.changes(since).take(most).collect::<Result<Vec<_>>>()?);
        py.detach(read).or_raise(py)
    }
}
