//! Reads a dataset: only the root is read to open it, and only what columns are made of to read them.

mod ahead;
mod column;
mod decode;
mod objects;
mod pieces;
mod verify;
mod view;

pub(crate) use ahead::{Fetched, Selected};
pub use column::{Column, Part};
pub(crate) use objects::LayerObjects;
pub use objects::Object;
pub use verify::{Damage, Verified};
pub(crate) use view::TableView;

use crate::root::{self, Root, numbers};
use crate::storage::{self, Storage, Tag, Traffic};
use crate::{Product, parallel};
use forebay_core::{Error, Result};
use pieces::{Directories, Small};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

/// Settings of a reader.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Threads that decode; none: one a core.
    pub threads: Option<usize>,
    /// How storage behaves.
    pub storage: storage::Options,
}

/// What the versions of one root share.
#[derive(Debug)]
struct Shared {
    storage: Arc<dyn Storage>,
    /// Storage of each place, opened when it is first read.
    places: Vec<OnceLock<Arc<dyn Storage>>>,
    root: Root,
    tag: Tag,
    threads: usize,
    options: ReadOptions,
    directories: Mutex<Directories>,
    small: Mutex<Small>,
}

/// A version of a dataset, as it is read. Cheap to clone; may be used from many threads.
#[derive(Clone, Debug)]
pub struct Dataset {
    shared: Arc<Shared>,
    version: u32,
    /// Tables as this version has them, made when they are first used.
    views: Arc<Vec<OnceLock<Arc<TableView>>>>,
}

/// A version in the list of versions.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionInfo {
    /// Its number.
    pub version: u32,
    /// When it was committed, milliseconds since 1970 by the writer's clock.
    pub time_ms: u64,
    /// What made it.
    pub note: String,
    /// Events and products of each table, by name.
    pub tables: Vec<(String, u64, usize)>,
}

impl Dataset {
    /// Opens the newest version of a dataset.
    ///
    /// # Errors
    /// `Invalid` where there is none or it is of a later format; `Corrupt` where its root is damaged; errors of the storage.
    pub fn open(url: &str, options: ReadOptions) -> Result<Dataset> {
        let storage = storage::open(url, &options.storage)?;
        let Some((root, tag)) = root::read(storage.as_ref())? else {
            return Err(Error::invalid(format!("{}: there is no dataset", storage.url())));
        };
        let Some(version) = root.versions.len().checked_sub(1) else {
            return Err(Error::corrupt(format!("{}: a root without versions", storage.url())));
        };
        let places = root.places.iter().map(|_| OnceLock::new()).collect();
        let threads = options.threads.unwrap_or_else(parallel::cores);
        let views = Arc::new(root.tables.iter().map(|_| OnceLock::new()).collect());
        let directories = Mutex::default();
        let shared =
            Arc::new(Shared { storage, places, root, tag, threads, options, directories, small: Mutex::default() });
        Ok(Dataset { shared, version: version as u32, views })
    }

    /// The same dataset at another version.
    ///
    /// # Errors
    /// `Invalid` where there is no such version.
    pub fn at(&self, version: u32) -> Result<Dataset> {
        if version as usize >= self.shared.root.versions.len() {
            let last = self.shared.root.versions.len() - 1;
            return Err(Error::invalid(format!("{}: no version {version}; the last one is {last}", self.url())));
        }
        let views = Arc::new(self.shared.root.tables.iter().map(|_| OnceLock::new()).collect());
        Ok(Dataset { shared: Arc::clone(&self.shared), version, views })
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        self.shared.storage.url()
    }

    /// Names the dataset for ever.
    pub fn uuid(&self) -> &str {
        &self.shared.root.uuid
    }

    /// The version that is read.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// All versions.
    pub fn versions(&self) -> Vec<VersionInfo> {
        let root = &self.shared.root;
        let table = |(number, state): (usize, &crate::root::TableVersion)| {
            let events = root.batches(state).map(u64::from).sum();
            (root.tables[number].clone(), events, numbers(&state.products).count())
        };
        (0..)
            .zip(&root.versions)
            .map(|(version, state)| VersionInfo {
                version,
                time_ms: state.time_ms,
                note: state.note.clone(),
                tables: state.tables.iter().enumerate().map(table).collect(),
            })
            .collect()
    }

    /// Facts that writers noted.
    pub fn facts(&self) -> &BTreeMap<String, Value> {
        &self.shared.root.versions[self.version as usize].facts
    }

    /// Names of the tables of this version; events first.
    pub fn tables(&self) -> Vec<&str> {
        let version = &self.shared.root.versions[self.version as usize];
        self.shared.root.tables.iter().take(version.tables.len()).map(String::as_str).collect()
    }

    /// Events of a table.
    ///
    /// # Errors
    /// `Invalid` where there is no such table.
    pub fn events(&self, table: &str) -> Result<u64> {
        Ok(self.view(table)?.events())
    }

    /// The events of each batch of a table: units that are read well by themselves.
    ///
    /// # Errors
    /// As [`Dataset::events`].
    pub fn batches(&self, table: &str) -> Result<Vec<Range<u64>>> {
        Ok(self.view(table)?.batches())
    }

    /// The products of a table, as they are read: one that is missing in some events is an option, a bool that is missing is false.
    ///
    /// # Errors
    /// As [`Dataset::events`].
    pub fn products(&self, table: &str) -> Result<Vec<Product>> {
        let view = self.view(table)?;
        Ok(view.products.iter().map(|known| Product { ty: known.shown(), ..known.product.clone() }).collect())
    }

    /// The products that are stored for the batch with this event, with the types that they have there.
    pub(crate) fn stored_products(&self, table: &str, event: u64) -> Result<Vec<Product>> {
        let view = self.view(table)?;
        let batch = view.starts.partition_point(|&start| start <= event).saturating_sub(1) as u32;
        Ok(view
            .products
            .iter()
            .filter(|known| known.layer(batch).is_some())
            .map(|known| known.product.clone())
            .collect())
    }

    /// The class of service of each product of a table, in the order of [`Dataset::products`]; empty: the dataset's own place. A product
    /// that is in several places has the class of its first batch.
    ///
    /// # Errors
    /// As [`Dataset::events`].
    pub fn classes(&self, table: &str) -> Result<Vec<String>> {
        let view = self.view(table)?;
        let class = |known: &view::Known| {
            let place = known
                .layers
                .iter()
                .min_by_key(|layer| layer.0.start)
                .map_or(0, |&(_, layer, _)| view.layers[layer].place);
            self.shared.root.places[place as usize].class.clone()
        };
        Ok(view.products.iter().map(class).collect())
    }

    /// A place that is not the dataset's own and has products of this version.
    pub(crate) fn other_place(&self) -> Option<&str> {
        let root = &self.shared.root;
        let layers = root.versions[self.version as usize].tables.iter().flat_map(|table| &table.layers);
        let mut places = layers.map(|&layer| root.layers[layer as usize].place).filter(|&place| place > 0);
        places.next().map(|place| root.places[place as usize].url.as_str())
    }

    /// Where a class of service is.
    pub(crate) fn class_url(&self, class: &str) -> Option<&str> {
        self.shared
            .root
            .places
            .iter()
            .find(|place| place.class == class && place.owner.is_empty())
            .map(|place| place.url.as_str())
    }

    /// Stored bytes of each product of a table, in the order of [`Dataset::products`]; what is shared counts for the first one.
    ///
    /// # Errors
    /// As [`Dataset::events`]; errors of the storage, which reads all directories.
    pub fn stored_bytes(&self, table: &str) -> Result<Vec<u64>> {
        pieces::stored_bytes(&self.shared, &*self.view(table)?)
    }

    /// Columns of a table for a range of events, decoded on all cores. In memory: the columns, and their stored bytes.
    ///
    /// # Errors
    /// `Invalid` where a column or the range does not exist; `Corrupt` with column, batch and object where something is damaged;
    /// errors of the storage.
    pub fn read(&self, table: &str, columns: &[&str], events: Range<u64>) -> Result<Vec<Column>> {
        self.read_parts(table, columns, events, true)
    }

    /// Offsets and indices of columns for a range of events: as [`Dataset::read`], but their parts of values are empty, and nothing is
    /// fetched for them.
    ///
    /// # Errors
    /// As [`Dataset::read`].
    pub fn read_structure(&self, table: &str, columns: &[&str], events: Range<u64>) -> Result<Vec<Column>> {
        self.read_parts(table, columns, events, false)
    }

    fn read_parts(&self, table: &str, columns: &[&str], events: Range<u64>, values: bool) -> Result<Vec<Column>> {
        let view = self.view(table)?;
        if events.start > events.end || events.end > view.events() {
            let (start, end, has) = (events.start, events.end, view.events());
            return Err(Error::invalid(format!("events {start} to {end} of {has}")));
        }
        let wanted: Result<Vec<usize>> = columns.iter().map(|name| view.find(name)).collect();
        decode::read(&self.shared, &view, &wanted?, events, values)
    }

    /// Reads and decodes everything of this version and names what is damaged.
    ///
    /// # Errors
    /// Where the storage does not answer.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified> {
        verify::verify(self, progress)
    }

    /// What was asked of the storage until now, by all versions that were made of this one.
    pub fn traffic(&self) -> Traffic {
        let mut all = self.shared.storage.traffic();
        for place in self.shared.places.iter().filter_map(OnceLock::get) {
            let traffic = place.traffic();
            all.reads += traffic.reads;
            all.bytes_read += traffic.bytes_read;
        }
        all
    }

    /// The root's tag: changes with every version.
    pub fn tag(&self) -> &str {
        &self.shared.tag.0
    }

    fn view(&self, table: &str) -> Result<Arc<TableView>> {
        let root = &self.shared.root;
        let version = &root.versions[self.version as usize];
        let number = root.tables.iter().position(|known| known == table);
        let Some(number) = number.filter(|&number| number < version.tables.len()) else {
            let has = self.tables().join(", ");
            return Err(Error::invalid(format!("{}: no table {table}; there is {has}", self.url())));
        };
        if let Some(view) = self.views[number].get() {
            return Ok(Arc::clone(view));
        }
        let view = TableView::new(root, &version.tables[number], table)
            .map_err(|error| Error::corrupt(format!("root of {}, table {table}: {error}", self.url())))?;
        Ok(Arc::clone(self.views[number].get_or_init(|| Arc::new(view))))
    }
}

impl Shared {
    /// The storage of a place.
    fn place(&self, place: u32) -> Result<&Arc<dyn Storage>> {
        let at = place as usize;
        let known = &self.root.places[at];
        if known.url.is_empty() {
            return Ok(&self.storage);
        }
        if let Some(storage) = self.places[at].get() {
            return Ok(storage);
        }
        let storage = storage::open(&known.url, &self.options.storage)?;
        Ok(self.places[at].get_or_init(|| storage))
    }
}
