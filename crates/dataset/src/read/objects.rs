//! The objects that a version names: its root, and directories and stripes layer by layer.
//!
//! *Invariants*: a layer of a root never changes and a version has the whole of it, so that what is known of a layer's objects is
//! known for every version.

use super::pieces::directories;
use super::{Dataset, Shared};
use crate::frame;
use crate::root::{self, Layer, object};
use crate::storage::Storage;
use forebay_core::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An object that a version names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Where it is; empty: the dataset's own place.
    pub place: String,
    /// Its name there.
    pub name: String,
    /// Its bytes, head included.
    pub bytes: u64,
}

/// What identifies a layer, and its objects.
#[derive(Clone, Debug)]
pub(crate) struct LayerObjects {
    /// Its number in the root.
    pub(crate) layer: u32,
    pub(crate) place: String,
    pub(crate) prefix: String,
    /// The dataset that owns the objects; empty: this one.
    pub(crate) owner: String,
    /// Number of its first directory object: tells layers of one writer apart.
    pub(crate) directory: Option<u32>,
    /// Numbers of directory objects below the prefix, with their bytes.
    pub(crate) directories: BTreeMap<u32, u64>,
    /// Numbers of stripe objects below the prefix, with their bytes.
    pub(crate) stripes: BTreeMap<u32, u64>,
}

impl LayerObjects {
    /// The name of an object of this layer.
    pub(crate) fn name(&self, number: u32) -> String {
        object(&self.prefix, number)
    }
}

impl Dataset {
    /// The objects that this version names: the root first, then those of its layers. Objects of other datasets that it refers to
    /// are among them, with their place.
    ///
    /// # Errors
    /// `Corrupt` where a directory is damaged; errors of the storage, which reads the root and all directories.
    pub fn objects(&self) -> Result<Vec<Object>> {
        let (bytes, _) = self.root_object()?;
        let mut all = vec![Object { place: String::new(), name: root::NAME.to_owned(), bytes: bytes.len() as u64 }];
        for layer in self.layer_objects(&|_| true)? {
            for (&number, &bytes) in layer.directories.iter().chain(&layer.stripes) {
                all.push(Object { place: layer.place.clone(), name: layer.name(number), bytes });
            }
        }
        Ok(all)
    }

    /// The root as it is in the storage now, which may have later versions than when this dataset was opened.
    pub(crate) fn root_object(&self) -> Result<(bytes::Bytes, crate::storage::Tag)> {
        let root = self.shared.storage.get(root::NAME, root::BYTES_MAX)?;
        root.ok_or_else(|| Error::corrupt(format!("{}: the root is not there any more", self.url())))
    }

    /// Numbers of this version's layers, in order.
    pub(crate) fn layer_numbers(&self) -> Vec<u32> {
        let version = &self.shared.root.versions[self.version as usize];
        let all: BTreeSet<u32> = version.tables.iter().flat_map(|table| table.layers.iter().copied()).collect();
        all.into_iter().collect()
    }

    /// What identifies a layer, without its objects, which are in its directories.
    pub(crate) fn layer_identity(&self, layer: u32) -> LayerObjects {
        let known: &Layer = &self.shared.root.layers[layer as usize];
        let place = &self.shared.root.places[known.place as usize];
        LayerObjects {
            layer,
            place: place.url.clone(),
            owner: place.owner.clone(),
            prefix: known.prefix.clone(),
            directory: known.directories.object.first().copied(),
            directories: BTreeMap::new(),
            stripes: BTreeMap::new(),
        }
    }

    /// Layers of this version that are wanted, with their objects. Only the directories of these layers are read.
    pub(crate) fn layer_objects(&self, wanted: &dyn Fn(&LayerObjects) -> bool) -> Result<Vec<LayerObjects>> {
        let mut found: BTreeMap<u32, LayerObjects> = BTreeMap::new();
        for table in self.tables() {
            let view = self.view(table)?;
            let batches = view.starts.len() as u32 - 1;
            for (at, layer) in view.layers.iter().enumerate() {
                let number = layer.number as u32;
                let mut objects = self.layer_identity(number);
                if found.contains_key(&number) || !wanted(&objects) {
                    continue;
                }
                let lists = &self.shared.root.layers[layer.number].directories;
                objects
                    .directories
                    .extend(lists.object.iter().copied().zip(lists.bytes.iter().map(|&bytes| u64::from(bytes))));
                let end = layer.first_batch + self.shared.root.layers[layer.number].batches();
                let keys: BTreeSet<(usize, u32)> =
                    (layer.first_batch..end.min(batches)).map(|batch| (at, batch)).collect();
                for loaded in directories(&self.shared, &view, &keys)?.into_values() {
                    for (number, &body) in (0..).zip(&loaded.directory.objects) {
                        // A batch says how long the body is at its own end: the longest one is the whole of an object that several
                        // batches share. One without bytes was not put.
                        let bytes = if body == 0 { 0 } else { body + frame::HEAD as u64 };
                        let known = objects.stripes.entry(loaded.directory.number(number)).or_default();
                        *known = bytes.max(*known);
                    }
                }
                objects.stripes.retain(|_, bytes| *bytes > 0);
                found.insert(number, objects);
            }
        }
        Ok(found.into_values().collect())
    }

    /// The storage of a layer's objects.
    pub(crate) fn layer_storage(&self, layer: u32) -> Result<&Arc<dyn Storage>> {
        let shared: &Shared = &self.shared;
        shared.place(shared.root.layers[layer as usize].place)
    }

    /// Classes of service that this version's layers are in, and datasets that own the objects of some of them.
    pub(crate) fn classes_and_owners(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let root = &self.shared.root;
        let places =
            self.layer_numbers().into_iter().map(|layer| &root.places[root.layers[layer as usize].place as usize]);
        let (mut classes, mut owners) = (BTreeSet::new(), BTreeSet::new());
        for place in places {
            classes.extend(Some(place.class.clone()).filter(|class| !class.is_empty()));
            owners.extend(Some(place.owner.clone()).filter(|owner| !owner.is_empty()));
        }
        (classes, owners)
    }
}
