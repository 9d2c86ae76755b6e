//! Writes a dataset: batches are encoded and put while the next one is collected, and a commit makes them a version.
//!
//! ```text
//! push ─▶ open batch ─▶ encode (all cores) ─▶ uploader thread ─▶ objects, directories
//! commit ─▶ heartbeat ─▶ conditional put of the root ─▶ the announcement is taken back
//! ```
//!
//! *Invariants*: nothing that a root names is ever changed; objects are durable before the root that names them is put; the uploader holds
//! at most one encoded batch while the next one is encoded, so that a writer has at most two batches in memory.
//!
//! *On failure*: a writer that dies leaves its announced prefix, which `gc` removes; the dataset opens as before.

mod announce;
mod batch;
mod commit;
mod layer;
mod upload;

pub(crate) use announce::{
    Alive, Announcement, Writers, alive, change_writers, claim, decode as decode_writers, encode as encode_writers,
    read_alive, writers,
};
pub use commit::Committed;

use crate::codec::Effort;
use crate::root::{self, Place, Root};
use crate::storage::{self, Storage, Tag};
use crate::{Array, Product, parallel, precision};
use commit::Change;
use forebay_core::{Error, Result};
use layer::Table;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use upload::Uploader;

/// Settings of a writer.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// Events of a full batch, a multiple of 256; none: as many as have 64 MiB in memory.
    pub batch_events: Option<u32>,
    /// Bytes that a stripe or a group object should have when it is stored (default 512 KiB).
    pub target_bytes: u32,
    /// Gather the stripes of several batches in objects of this many bytes, as cold storage wants them (default: none).
    pub gather_bytes: Option<u32>,
    /// How hard to compress.
    pub effort: Effort,
    /// Threads that encode; none: one a core.
    pub threads: Option<usize>,
    /// Time between heartbeats (default 60 s). `gc` must be told a longer time than ten of these.
    pub heartbeat: Duration,
    /// How storage behaves.
    pub storage: storage::Options,
}

impl Default for WriteOptions {
    fn default() -> WriteOptions {
        WriteOptions {
            batch_events: None,
            target_bytes: 512 << 10,
            gather_bytes: None,
            effort: Effort::Default,
            threads: None,
            heartbeat: Duration::from_secs(60),
            storage: storage::Options::default(),
        }
    }
}

/// Writes one version of a dataset. Dropped without a commit, it changes nothing.
#[derive(Debug)]
pub struct Writer {
    storage: Arc<dyn Storage>,
    options: WriteOptions,
    change: Change,
    /// The root that the change is made to, and its tag; none: there is no dataset yet.
    base: Option<(Root, Tag)>,
    tables: Vec<Table>,
    /// Where objects are put.
    place: Place,
    uploader: Uploader,
    prefix: String,
    facts: BTreeMap<String, Value>,
    /// The version is there: what is pushed now would be in none.
    committed: bool,
}

impl Writer {
    /// Begins a new dataset.
    ///
    /// # Errors
    /// `Conflict` where there is one already; errors of the storage.
    pub fn create(url: &str, options: WriteOptions) -> Result<Writer> {
        Writer::begin(url, options, Change::Create)
    }

    /// Appends events to a dataset. Products that are new are missing in the events before.
    ///
    /// # Errors
    /// `Invalid` where there is no dataset; errors of the storage.
    pub fn append(url: &str, options: WriteOptions) -> Result<Writer> {
        Writer::begin(url, options, Change::Append)
    }

    /// Adds products to the events that there are, which are pushed in the same order.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub fn add(url: &str, options: WriteOptions) -> Result<Writer> {
        Writer::begin(url, options, Change::Add)
    }

    /// Writes new values of products for the events that there are, which are pushed in the same order.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub fn replace(url: &str, options: WriteOptions) -> Result<Writer> {
        Writer::begin(url, options, Change::Replace)
    }

    /// Writes all products again with new batches.
    pub(crate) fn rewrite(url: &str, options: WriteOptions) -> Result<Writer> {
        Writer::begin(url, options, Change::Rewrite)
    }

    /// As [`Writer::create`] where there is no dataset, else as [`Writer::append`], in a storage of the caller's.
    ///
    /// # Errors
    /// As those.
    pub fn on(storage: Arc<dyn Storage>, options: WriteOptions) -> Result<Writer> {
        let change = if root::read(storage.as_ref())?.is_some() { Change::Append } else { Change::Create };
        Writer::begin_on(storage, options, change, Place::default())
    }

    /// Writes new copies of products to another place.
    pub(crate) fn moving(url: &str, options: WriteOptions, place: Place) -> Result<Writer> {
        let storage = storage::open(url, &options.storage)?;
        Writer::begin_on(storage, options, Change::Replace, place)
    }

    fn begin(url: &str, options: WriteOptions, change: Change) -> Result<Writer> {
        let storage = storage::open(url, &options.storage)?;
        Writer::begin_on(storage, options, change, Place::default())
    }

    fn begin_on(storage: Arc<dyn Storage>, options: WriteOptions, change: Change, place: Place) -> Result<Writer> {
        if options.batch_events.is_some_and(|events| events == 0 || events % (1 << batch::SHIFT_MAX) != 0) {
            return Err(Error::invalid("the events of a batch are a multiple of 256"));
        }
        if options.target_bytes < 4096 {
            return Err(Error::invalid("stripes should have at least 4096 bytes"));
        }
        let base = root::read(storage.as_ref())?;
        match (&base, change) {
            (Some(_), Change::Create) => {
                return Err(Error::conflict(format!(
                    "{}: there is a dataset already; append to it, or choose another place",
                    storage.url()
                )));
            }
            (None, change) if change != Change::Create => {
                return Err(Error::invalid(format!("{}: there is no dataset", storage.url())));
            }
            _ => {}
        }
        let (objects, dataset) = if place.url.is_empty() {
            (Arc::clone(&storage), String::new())
        } else {
            (storage::open(&place.url, &options.storage)?, absolute(storage.url())?)
        };
        let announcement = Announcement::new(objects.as_ref(), &dataset)?;
        let prefix = announcement.prefix.clone();
        let uploader = Uploader::start(objects, announcement, options.heartbeat)?;
        let (tables, facts) = (Vec::new(), BTreeMap::new());
        Ok(Writer { storage, options, change, base, tables, place, uploader, prefix, facts, committed: false })
    }

    /// Adds events of a table: the same number of each product. Events are cut into batches here.
    ///
    /// # Errors
    /// `Invalid` where the arrays do not fit each other or their types, `Conflict` where a product has another type in the dataset;
    /// errors of the storage, also of earlier pushes; `Closed` after a commit.
    pub fn push(&mut self, table: &str, columns: &[(Product, Array)]) -> Result<()> {
        if self.committed {
            return Err(Error::closed("the writer has committed its version: begin another writer"));
        }
        let Some((_, first)) = columns.first() else {
            return Err(Error::invalid("no columns"));
        };
        let events = first.events;
        let mut names = std::collections::HashSet::new();
        for (product, array) in columns {
            let name = &product.name;
            if name.is_empty() || !names.insert(name) {
                return Err(Error::invalid(format!("column {name:?} is twice here, or has no name")));
            }
            if array.events != events || array.ty != product.ty {
                let (has, ty) = (array.events, &array.ty);
                return Err(Error::invalid(format!(
                    "column {name}: {has} events of type {ty}; the others have {events}, its type is {}",
                    product.ty
                )));
            }
            array.check().map_err(|error| Error::invalid(format!("column {name}: {error}")))?;
        }
        let at = self.table(table)?;
        commit::check_columns(self.base.as_ref().map(|base| &base.0), self.change, table, columns)?;
        let threads = self.options.threads.unwrap_or_else(parallel::cores);
        let rounded = rounded(columns)?;
        self.tables[at].push(rounded.as_deref().unwrap_or(columns), &self.options, threads, &mut self.uploader)
    }

    /// Leaves a batch out that has none of the columns.
    pub(crate) fn skip(&mut self, table: &str) -> Result<()> {
        let at = self.table(table)?;
        self.tables[at].skip(&mut self.uploader)
    }

    fn table(&mut self, table: &str) -> Result<usize> {
        if let Some(at) = self.tables.iter().position(|known| known.name == table) {
            return Ok(at);
        }
        let batches = self.fixed_batches(table)?;
        self.tables.push(Table::new(table, batches));
        Ok(self.tables.len() - 1)
    }

    /// The batches that pushed events must fall into, where events are there already.
    fn fixed_batches(&self, table: &str) -> Result<Option<Vec<u32>>> {
        if !matches!(self.change, Change::Add | Change::Replace) {
            return Ok(None);
        }
        let (root, _) = self.base.as_ref().ok_or_else(|| Error::internal("a change of nothing"))?;
        let number = root.tables.iter().position(|known| known == table);
        let state = number.and_then(|number| root.versions.last()?.tables.get(number));
        let Some(state) = state else {
            return Err(Error::invalid(format!("{}: there is no table {table}", self.storage.url())));
        };
        Ok(Some(root.batches(state).collect()))
    }

    /// Notes a fact about the dataset in the version. Facts of earlier versions stay; lists are appended to.
    pub fn fact(&mut self, name: &str, value: Value) {
        self.facts.insert(name.to_owned(), value);
    }

    /// Makes what was pushed the next version of the dataset.
    ///
    /// # Errors
    /// `Conflict` where another writer made a version meanwhile: a repeat of the call tries on top of it, without writing the events
    /// again. `OutcomeUnknown` where the answer was lost: a repeat tells. `Fenced` where `gc` took the writer for dead. `Invalid` where
    /// added products do not have just the events that there are.
    pub fn commit(&mut self, note: &str) -> Result<Committed> {
        let threads = self.options.threads.unwrap_or_else(parallel::cores);
        for table in &mut self.tables {
            table.finish(&self.options, threads, &mut self.uploader)?;
        }
        if !self.committed {
            self.uploader.settle()?;
        }
        let committed = self.put_root(note)?;
        self.committed = true;
        Ok(committed)
    }
}

/// An address that means the same in every working directory.
pub(crate) fn absolute(url: &str) -> Result<String> {
    if url.contains("://") {
        return Ok(url.to_owned());
    }
    let path =
        std::path::absolute(url).map_err(|error| Error::invalid(format!("{url}: no such path")).with_source(error))?;
    Ok(path.display().to_string())
}

/// The columns with those rounded that ask for a precision; none: no column asks.
fn rounded(columns: &[(Product, Array)]) -> Result<Option<Vec<(Product, Array)>>> {
    if columns.iter().all(|(product, _)| !product.notes.contains_key(precision::NOTE)) {
        return Ok(None);
    }
    let round = |(product, array): &(Product, Array)| match product.notes.get(precision::NOTE) {
        None => Ok((product.clone(), array.clone())),
        Some(bits) => {
            let name = &product.name;
            let bits = bits.as_u64().filter(|bits| (1..=52).contains(bits));
            let bits = bits.ok_or_else(|| Error::invalid(format!("column {name}: a precision is 1 to 52 bits")))?;
            let rounded = precision::round(array, bits);
            Ok((product.clone(), rounded.map_err(|error| Error::invalid(format!("column {name}: {error}")))?))
        }
    };
    columns.iter().map(round).collect::<Result<Vec<_>>>().map(Some)
}
