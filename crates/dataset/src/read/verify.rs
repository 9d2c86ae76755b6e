//! Reads everything of a version and names what is damaged.

use super::pieces::{Loaded, directories};
use super::view::TableView;
use super::{Dataset, Shared};
use crate::frame::{self, Magic};
use crate::root::object;
use forebay_core::{Kind, Result};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// An object of a writer is not larger, in bytes.
const OBJECT_MAX: u64 = 4 << 30;

/// Something that is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The table.
    pub table: String,
    /// The batch.
    pub batch: u32,
    /// The object, where it is known.
    pub object: String,
    /// Columns that cannot be read there; empty: bytes that no column needs.
    pub columns: Vec<String>,
    /// What is wrong.
    pub why: String,
}

/// The answer of [`Dataset::verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Objects that were read whole.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Batches that were decoded.
    pub batches: u64,
    /// What is damaged, in the order of tables and batches.
    pub damages: Vec<Damage>,
}

/// Checks every object and decodes every column, a batch at a time. `progress` hears batches done, and batches in all.
pub(super) fn verify(dataset: &Dataset, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified> {
    let mut verified = Verified::default();
    let shared = &dataset.shared;
    let views: Result<Vec<Arc<TableView>>> = dataset.tables().into_iter().map(|table| dataset.view(table)).collect();
    let views = views?;
    let all: u64 = views.iter().map(|view| view.starts.len() as u64 - 1).sum();
    let mut done = 0;
    let mut seen = HashSet::new();
    for view in &views {
        for (batch, events) in (0_u32..).zip(view.batches()) {
            objects(shared, view, batch, &mut seen, &mut verified)?;
            columns(dataset, view, batch, events, &mut verified)?;
            done += 1;
            progress(done, all);
        }
    }
    verified.batches = done;
    Ok(verified)
}

/// Checks the objects of a batch: each of their bytes is below a checksum.
fn objects(
    shared: &Shared,
    view: &TableView,
    batch: u32,
    seen: &mut HashSet<(u32, String)>,
    verified: &mut Verified,
) -> Result<()> {
    let layers: BTreeSet<usize> =
        view.products.iter().filter_map(|known| known.layer(batch).map(|(layer, _)| layer)).collect();
    for at in layers {
        let layer = &view.layers[at];
        let loaded = match directories(shared, view, &BTreeSet::from([(at, batch)])) {
            Ok(loaded) => Arc::clone(&loaded[&(at, batch)]),
            Err(error) if error.kind() == Kind::Corrupt => {
                let columns =
                    view.products.iter().filter(|known| known.layer(batch).is_some_and(|(layer, _)| layer == at));
                verified.damages.push(Damage {
                    table: view.name.clone(),
                    batch,
                    object: format!("w/{}", layer.prefix),
                    columns: columns.map(|known| known.product.name.clone()).collect(),
                    why: error.to_string(),
                });
                continue;
            }
            Err(error) => return Err(error),
        };
        for (name, why) in damaged_objects(shared, view, at, &loaded, seen, verified)? {
            verified.damages.push(Damage { table: view.name.clone(), batch, object: name, columns: Vec::new(), why });
        }
    }
    Ok(())
}

/// Reads the objects of a directory whole; those that are damaged, with the reason.
fn damaged_objects(
    shared: &Shared,
    view: &TableView,
    at: usize,
    loaded: &Loaded,
    seen: &mut HashSet<(u32, String)>,
    verified: &mut Verified,
) -> Result<BTreeMap<String, String>> {
    let layer = &view.layers[at];
    let storage = shared.place(layer.place)?;
    let mut damaged = BTreeMap::new();
    for (number, &body) in (0..).zip(&loaded.directory.objects) {
        let name = object(&layer.prefix, loaded.directory.number(number));
        // All stripes of the batch are in its directory.
        if body == 0 || !seen.insert((layer.place, name.clone())) {
            continue;
        }
        verified.objects += 1;
        // Gathered objects go on with later batches.
        let wanted = frame::HEAD as u64 + body;
        let why = match storage.get(&name, OBJECT_MAX) {
            Ok(None) => "it is not there".to_owned(),
            Ok(Some((bytes, _))) => {
                verified.bytes += bytes.len() as u64;
                match frame::body(Magic::Stripes, &bytes, &name) {
                    Ok(_) if bytes.len() as u64 >= wanted => continue,
                    Ok(_) => format!("{} bytes, not the {wanted} that its batch has", bytes.len()),
                    Err(error) => error.to_string(),
                }
            }
            Err(error) if error.kind() == Kind::Corrupt => error.to_string(),
            Err(error) => return Err(error),
        };
        damaged.insert(name, why);
    }
    Ok(damaged)
}

/// Decodes the columns of a batch; where they fail together, one after the other, to name those that are damaged.
fn columns(
    dataset: &Dataset,
    view: &TableView,
    batch: u32,
    events: std::ops::Range<u64>,
    verified: &mut Verified,
) -> Result<()> {
    let names: Vec<&str> = view.products.iter().map(|known| known.product.name.as_str()).collect();
    match dataset.read(&view.name, &names, events.clone()) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() != Kind::Corrupt => return Err(error),
        Err(_) => {}
    }
    for name in names {
        if let Err(error) = dataset.read(&view.name, &[name], events.clone()) {
            if error.kind() != Kind::Corrupt {
                return Err(error);
            }
            let earlier = verified
                .damages
                .iter()
                .any(|damage| damage.batch == batch && damage.columns.iter().any(|known| known == name));
            if !earlier {
                verified.damages.push(Damage {
                    table: view.name.clone(),
                    batch,
                    object: String::new(),
                    columns: vec![name.to_owned()],
                    why: error.to_string(),
                });
            }
        }
    }
    Ok(())
}
