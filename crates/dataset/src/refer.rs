//! Products of another dataset, by reference: nothing is copied but where their directories are.

use crate::root::{self, Place, TableVersion, Version, numbers, runs};
use crate::storage::{self, Condition, Put};
use crate::write::{Committed, absolute};
use bytes::Bytes;
use forebay_core::{Error, Result};
use std::collections::{HashMap, HashSet};

/// Adds columns of another dataset to a table of the same events, as a new version. The other dataset is not changed; it must stay where
/// it is.
///
/// # Errors
/// `Invalid` where a column or a table is not there, or where the batches of the two differ; `Conflict` where the dataset has such a column,
/// or another writer made a version meanwhile; errors of the storage.
pub fn refer(url: &str, table: &str, other: &str, columns: &[&str], options: &storage::Options) -> Result<Committed> {
    let storage = storage::open(url, options)?;
    let (mut root, tag) = root_of(url, root::read(storage.as_ref())?)?;
    let theirs = storage::open(other, options)?;
    let (their_root, _) = root_of(other, root::read(theirs.as_ref())?)?;
    let state = last(&root, table).ok_or_else(|| Error::invalid(format!("{url}: no table {table}")))?.1.clone();
    let (_, their_state) =
        last(&their_root, table).ok_or_else(|| Error::invalid(format!("{other}: no table {table}")))?;
    if !root.batches(&state).eq(their_root.batches(their_state)) {
        return Err(Error::invalid(format!(
            "{url} and {other}: table {table} has other batches there; write the columns instead"
        )));
    }
    let wanted: HashSet<&str> = columns.iter().copied().collect();
    let own: HashSet<String> =
        numbers(&state.products).map(|number| root.products.name[number as usize].clone()).collect();
    let mut added: HashMap<u32, u32> = HashMap::new();
    let mut names = HashSet::new();
    for number in numbers(&their_state.products) {
        let name = their_root.products.name[number as usize].as_str();
        if !wanted.contains(name) {
            continue;
        }
        if own.contains(name) {
            return Err(Error::conflict(format!("{url}: column {name} is there already")));
        }
        names.insert(name);
        added.insert(number, 0);
    }
    if let Some(missing) = wanted.iter().find(|name| !names.contains(*name)) {
        return Err(Error::invalid(format!("{other}: table {table} has no column {missing}")));
    }
    let (number, _) = last(&root, table).ok_or_else(|| Error::internal("the table is gone"))?;
    // A layer's directory counts the streams of all its products: those that are not referred to come along, unseen.
    let shown: HashSet<u32> = added.keys().copied().collect();
    let mut new_layers = Vec::new();
    for &layer in &their_state.layers {
        let layer = &their_root.layers[layer as usize];
        if !numbers(&layer.products).any(|product| shown.contains(&product)) {
            continue;
        }
        let place = &their_root.places[layer.place as usize];
        let place_url = if place.url.is_empty() { absolute(theirs.url())? } else { place.url.clone() };
        let place = Place { url: place_url, class: place.class.clone(), owner: their_root.uuid.clone() };
        let place = root.place(&place);
        let mut products = Vec::new();
        for product in numbers(&layer.products) {
            let mapped = match added.get(&product) {
                Some(&mapped) if mapped > 0 => mapped,
                _ => {
                    let mapped = root.add_product(number as u32, &their_root.product(product)?);
                    added.insert(product, mapped);
                    mapped
                }
            };
            products.push(mapped);
        }
        new_layers.push(root.layers.len() as u32);
        root.layers.push(root::Layer { place, products: runs(products), ..layer.clone() });
    }
    let order = numbers(&their_state.products).filter(|product| shown.contains(product)).map(|product| added[&product]);
    let mut next = root.versions.last().cloned().ok_or_else(|| Error::internal("no version"))?;
    let state = &mut next.tables[number];
    state.products = runs(numbers(&state.products).chain(order).collect::<Vec<_>>());
    state.layers.extend(new_layers);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let time_ms = now.map_or(0, |since| since.as_millis() as u64);
    root.versions.push(Version { time_ms, note: format!("refers to {other}"), ..next });
    let bytes = Bytes::from(root.encode()?);
    match storage.put_if(root::NAME, &bytes, Condition::Unchanged(&tag))? {
        Put::Done(_) => Ok(Committed { version: root.versions.len() as u32 - 1 }),
        Put::Refused => Err(Error::conflict(format!("{url}: another writer made a version meanwhile; refer again"))),
    }
}

fn root_of<T>(url: &str, found: Option<T>) -> Result<T> {
    found.ok_or_else(|| Error::invalid(format!("{url}: there is no dataset")))
}

/// A table in the last version, and its number.
fn last<'a>(root: &'a root::Root, table: &str) -> Option<(usize, &'a TableVersion)> {
    let number = root.tables.iter().position(|known| known == table)?;
    Some((number, root.versions.last()?.tables.get(number)?))
}
