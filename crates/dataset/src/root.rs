//! The root of a dataset: products, batches, layers and versions. The only object that changes, by a conditional put.
//!
//! The body is JSON, compressed with zstd. Lists of products and directories are transposed (a list per field), so that what is alike
//! is side by side.
//!
//! *Invariants*, checked by [`Root::check`] on everything that is read: numbers of products, layers, places and batch lists exist; a
//! layer covers batches that its directories have; two layers of a version do not hold the same product for the same batch.

use crate::frame::{self, Magic};
use crate::storage::{Storage, Tag};
use crate::types::Type;
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// Name of the root.
pub(crate) const NAME: &str = "root";
/// A stream of a batch has at most this many bytes in memory; bytes that ask for more are damaged. Writers keep to it.
pub(crate) const STREAM_BYTES_MAX: u64 = 2 << 30;
/// A root is not larger than this, in bytes as it is stored and as it is in memory.
pub(crate) const BYTES_MAX: u64 = 64 << 20;
const JSON_MAX: usize = 512 << 20;
/// A table has at most this many batches.
const BATCHES_MAX: u64 = 1 << 24;
/// The layers of a table in a version have at most this many streams, all together: who opens it has them in memory.
const LAYER_STREAMS_MAX: u64 = 1 << 26;
/// zstd's level for roots: written once a version, read often.
const LEVEL: i32 = 15;

/// A dataset as its root says it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Root {
    /// Names the dataset for ever, 32 hexadecimal digits.
    pub(crate) uuid: String,
    /// Names of the tables; events first.
    pub(crate) tables: Vec<String>,
    pub(crate) products: Products,
    /// Where layers may be: place 0 is the dataset's own.
    pub(crate) places: Vec<Place>,
    pub(crate) layers: Vec<Layer>,
    /// Events of each batch, as runs of equal ones.
    pub(crate) batch_lists: Vec<Vec<(u32, u32)>>,
    pub(crate) versions: Vec<Version>,
}

/// All products of all versions, a list per field. The number of a product is its place in these lists.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Products {
    pub(crate) table: Vec<u32>,
    pub(crate) name: Vec<String>,
    /// See [`Type`]'s text.
    pub(crate) ty: Vec<String>,
    pub(crate) title: Vec<String>,
    /// Name of the type where the product comes from.
    pub(crate) type_name: Vec<String>,
    /// Name of the product that counts a collection, where its origin says one.
    pub(crate) counter: Vec<String>,
    /// What only some products have, by their number: other names, precision.
    pub(crate) notes: BTreeMap<u32, BTreeMap<String, Value>>,
}

/// A prefix for objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Empty: the dataset's own prefix.
    pub(crate) url: String,
    /// Name of the class of service.
    pub(crate) class: String,
    /// The dataset that owns the objects there, if it is not this one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) owner: String,
}

/// Products over some batches, written together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Layer {
    pub(crate) place: u32,
    /// The writer's prefix.
    pub(crate) prefix: String,
    pub(crate) products: Vec<(u32, u32)>,
    /// Events of a stripe are those of a full batch divided by 2 to this power; a list of runs (shift, streams).
    pub(crate) shifts: Vec<(u8, u32)>,
    /// Events of a full batch, a multiple of 2 to the largest shift.
    pub(crate) batch_events: u32,
    pub(crate) first_batch: u32,
    pub(crate) directories: Directories,
}

/// Where the directories of a layer are, a list per field.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Directories {
    /// Number of the object below the writer's prefix.
    pub(crate) object: Vec<u32>,
    /// Batches in it.
    pub(crate) batches: Vec<u32>,
    /// Its bytes.
    pub(crate) bytes: Vec<u32>,
}

/// One state of the dataset. Never changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Version {
    /// When it was committed, milliseconds since 1970 by the writer's clock.
    pub(crate) time_ms: u64,
    /// What made it.
    pub(crate) note: String,
    /// By table.
    pub(crate) tables: Vec<TableVersion>,
    /// Facts about the dataset, such as its source files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) facts: BTreeMap<String, Value>,
}

/// A table in a version.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TableVersion {
    pub(crate) batch_list: u32,
    pub(crate) batches: u32,
    /// Products in the order in which they are shown.
    pub(crate) products: Vec<(u32, u32)>,
    pub(crate) layers: Vec<u32>,
}

/// Name of an object of a writer.
pub(crate) fn object(prefix: &str, number: u32) -> String {
    format!("w/{prefix}/{number:x}")
}

/// The root of a dataset and its tag, where there is one.
pub(crate) fn read(storage: &dyn Storage) -> Result<Option<(Root, Tag)>> {
    let found = storage.get(NAME, BYTES_MAX)?;
    found.map(|(bytes, tag)| Ok((Root::decode(&bytes, storage.url())?, tag))).transpose()
}

/// Numbers as runs (first, how many).
pub(crate) fn runs(numbers: impl IntoIterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((first, n)) if first.wrapping_add(*n) == number => *n += 1,
            _ => runs.push((number, 1)),
        }
    }
    runs
}

/// The numbers of runs.
pub(crate) fn numbers(runs: &[(u32, u32)]) -> impl Iterator<Item = u32> + '_ {
    runs.iter().flat_map(|&(first, n)| first..first.saturating_add(n))
}

impl Root {
    /// The bytes of the object.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let json = serde_json::to_vec(self).map_err(|error| Error::internal(format!("root as JSON: {error}")))?;
        let object = frame::framed(Magic::Root, &frame::deflate(&json, LEVEL)?);
        if object.len() as u64 > BYTES_MAX || json.len() > JSON_MAX {
            return Err(Error::full(format!("a root of {} bytes; {BYTES_MAX} is the limit", object.len())));
        }
        Ok(object)
    }

    /// The root in these bytes.
    ///
    /// # Errors
    /// `Corrupt` where they are none, `Invalid` for a later version of the format.
    pub(crate) fn decode(object: &[u8], url: &str) -> Result<Root> {
        let what = format!("root of {url}");
        let json = frame::inflate(frame::body(Magic::Root, object, &what)?, JSON_MAX, &what)?;
        let root: Root = serde_json::from_slice(&json).map_err(|error| Error::corrupt(format!("{what}: {error}")))?;
        root.check().map_err(|why| Error::corrupt(format!("{what}: {why}")))?;
        Ok(root)
    }

    /// Adds a product and returns its number.
    pub(crate) fn add_product(&mut self, table: u32, product: &crate::Product) -> u32 {
        let products = &mut self.products;
        let number = products.name.len() as u32;
        products.table.push(table);
        products.name.push(product.name.clone());
        products.ty.push(product.ty.to_string());
        products.title.push(product.title.clone());
        products.type_name.push(product.type_name.clone());
        products.counter.push(product.counter.clone());
        if !product.notes.is_empty() {
            products.notes.insert(number, product.notes.clone());
        }
        number
    }

    /// The product with this number.
    pub(crate) fn product(&self, number: u32) -> Result<crate::Product> {
        let at = number as usize;
        Ok(crate::Product {
            name: self.products.name[at].clone(),
            ty: Type::parse(&self.products.ty[at])?,
            title: self.products.title[at].clone(),
            type_name: self.products.type_name[at].clone(),
            counter: self.products.counter[at].clone(),
            notes: self.products.notes.get(&number).cloned().unwrap_or_default(),
        })
    }

    /// Refuses layers that would take too much memory to open.
    pub(crate) fn check_streams(&self, state: &TableVersion) -> std::result::Result<(), String> {
        let layers = state.layers.iter().filter_map(|&layer| self.layers.get(layer as usize));
        let streams: u64 = layers.flat_map(|layer| &layer.shifts).map(|&(_, n)| u64::from(n)).sum();
        match streams > LAYER_STREAMS_MAX {
            true => Err(format!("{streams} streams in its layers; {LAYER_STREAMS_MAX} is the limit: compact it")),
            false => Ok(()),
        }
    }

    /// Checks the invariants of the head of this file.
    fn check(&self) -> std::result::Result<(), String> {
        let products = &self.products;
        let n = products.name.len();
        let lists = [
            products.table.len(),
            products.ty.len(),
            products.title.len(),
            products.type_name.len(),
            products.counter.len(),
        ];
        if lists.iter().any(|&len| len != n) {
            return Err(format!("lists of products have {lists:?} entries, not {n}"));
        }
        if products.table.iter().any(|&table| table as usize >= self.tables.len()) {
            return Err("a product of no table".into());
        }
        let existing = |runs: &[(u32, u32)], n: usize| {
            let total: u64 = runs.iter().map(|&(_, n)| u64::from(n)).sum();
            total <= n as u64 && runs.iter().all(|&(first, many)| u64::from(first) + u64::from(many) <= n as u64)
        };
        if self.places.first().is_none_or(|own| !own.url.is_empty()) {
            return Err("place 0 is not the dataset's own".into());
        }
        for layer in &self.layers {
            layer.check(self.places.len()).map_err(|why| format!("layer of {}: {why}", layer.prefix))?;
            if !existing(&layer.products, n) {
                return Err(format!("layer of {}: products that do not exist", layer.prefix));
            }
        }
        for (number, version) in self.versions.iter().enumerate() {
            if version.tables.len() > self.tables.len() {
                return Err(format!("version {number}: more tables than there are"));
            }
            for (table, state) in version.tables.iter().enumerate() {
                let wrong = |why: &str| Err(format!("version {number}, table {table}: {why}"));
                let Some(list) = self.batch_lists.get(state.batch_list as usize) else {
                    return wrong("no such list of batches");
                };
                let batches: u64 = list.iter().map(|&(_, times)| u64::from(times)).sum();
                if u64::from(state.batches) > batches || batches > BATCHES_MAX {
                    return wrong("more batches than listed, or than there can be");
                }
                if !existing(&state.products, n) {
                    return wrong("products that do not exist");
                }
                if state.layers.iter().any(|&layer| layer as usize >= self.layers.len()) {
                    return wrong("layers that do not exist");
                }
                if let Err(why) = self.check_streams(state) {
                    return wrong(&why);
                }
                if state.layers.iter().collect::<HashSet<_>>().len() != state.layers.len() {
                    return wrong("a layer twice");
                }
            }
        }
        Ok(())
    }
}

impl Layer {
    /// Batches it covers.
    pub(crate) fn batches(&self) -> u32 {
        self.directories.batches.iter().sum()
    }

    fn check(&self, places: usize) -> std::result::Result<(), &'static str> {
        let directories = &self.directories;
        let n = directories.object.len();
        if directories.batches.len() != n || directories.bytes.len() != n {
            return Err("lists of directories differ in length");
        }
        if self.place as usize >= places {
            return Err("no such place");
        }
        // Names of objects are made of the prefix.
        if self.prefix.is_empty() || !self.prefix.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("not a writer's prefix");
        }
        let end =
            directories.batches.iter().fold(u64::from(self.first_batch), |sum, &n| sum.saturating_add(u64::from(n)));
        if end > BATCHES_MAX {
            return Err("too many batches");
        }
        if self.batch_events == 0
            || self
                .shifts
                .iter()
                .any(|&(shift, _)| self.batch_events.checked_rem(1 << u32::from(shift.min(31))) != Some(0))
        {
            return Err("stripes do not divide the batch");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Product;

    /// A dataset of 10,000 products and 100,000 batches, as a writer makes it: a directory a batch, names of different lengths.
    fn large() -> Root {
        let mut root = Root {
            uuid: "0".repeat(32),
            tables: vec!["Events".into()],
            places: vec![Place::default()],
            ..Root::default()
        };
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for n in 0..10_000 {
            let mut product =
                Product::new(format!("Collection{}_field{n}", n / 20), Type::list(Type::Value(crate::Scalar::F32)));
            product.title = format!("title number {} of field {n}", random(1000));
            root.add_product(0, &product);
        }
        let mut directories = Directories::default();
        let mut object = 0;
        for _ in 0..100_000 {
            object += 20 + random(10) as u32;
            directories.object.push(object);
            directories.batches.push(1);
            directories.bytes.push(60_000 + random(5000) as u32);
        }
        root.batch_lists.push(vec![(8192, 99_999), (17, 1)]);
        root.layers.push(Layer {
            place: 0,
            prefix: "ab".repeat(16),
            products: vec![(0, 10_000)],
            shifts: vec![(0, 20_000)],
            batch_events: 8192,
            first_batch: 0,
            directories,
        });
        let table = TableVersion { batch_list: 0, batches: 100_000, products: vec![(0, 10_000)], layers: vec![0] };
        root.versions.push(Version { time_ms: 1, note: "large".into(), tables: vec![table], facts: BTreeMap::new() });
        root
    }

    #[test]
    fn a_root_grows_with_products_and_batches_not_with_their_product() {
        let bytes = large().encode().unwrap();
        assert!(bytes.len() <= 5_000_000, "{} bytes", bytes.len());
        let again = Root::decode(&bytes, "large").unwrap();
        assert_eq!(again.layers[0].directories.object.len(), 100_000);
    }

    #[test]
    fn roots_that_contradict_themselves_are_refused() {
        type Change = fn(&mut Root);
        let changes: [Change; 10] = [
            |root| root.layers[0].shifts = vec![(0, u32::MAX)],
            |root| drop(root.products.title.pop()),
            |root| root.products.table[5] = 1,
            |root| root.layers[0].place = 1,
            |root| root.layers[0].prefix = "../up".into(),
            |root| root.layers[0].products = vec![(1, 10_000)],
            |root| root.layers[0].shifts = vec![(14, 1)],
            |root| root.layers[0].directories.bytes.truncate(3),
            |root| root.versions[0].tables[0].layers = vec![0, 0],
            |root| root.versions[0].tables[0].batches = 100_001,
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut root = large();
            change(&mut root);
            let error = Root::decode(&root.encode().unwrap(), "bad").unwrap_err();
            assert_eq!(error.kind(), forebay_core::Kind::Corrupt, "change {number}");
        }
    }
}
