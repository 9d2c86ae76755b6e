//! The commit: the next root, made from the one that is there now, and its conditional put.

use super::Writer;
use super::layer::NewLayer;
use crate::root::{self, Layer, Place, Root, TableVersion, Version, numbers, runs};
use crate::storage::{Condition, Put, Tag};
use crate::{Array, Product};
use bytes::Bytes;
use forebay_core::{Error, Kind, Result};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// What a writer does to a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Create,
    Append,
    Add,
    Replace,
    Rewrite,
}

/// A version that was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its number; the first one is 0.
    pub version: u32,
}

/// Checks at a push what the commit would refuse, before events are encoded.
pub(super) fn check_columns(
    base: Option<&Root>,
    change: Change,
    table: &str,
    columns: &[(Product, Array)],
) -> Result<()> {
    let Some(root) = base else { return Ok(()) };
    let Some(known) = known_products(root, table) else { return Ok(()) };
    for (product, _) in columns {
        check_product(root, &known, change, product)?;
    }
    Ok(())
}

/// Numbers of a table's products in the last version, by name.
fn known_products(root: &Root, table: &str) -> Option<HashMap<String, u32>> {
    let number = root.tables.iter().position(|known| known == table)?;
    let state = root.versions.last()?.tables.get(number)?;
    Some(numbers(&state.products).map(|product| (root.products.name[product as usize].clone(), product)).collect())
}

fn check_product(root: &Root, known: &HashMap<String, u32>, change: Change, product: &Product) -> Result<()> {
    let name = &product.name;
    let has = known.get(name).map(|&number| root.products.ty[number as usize].as_str());
    match (change, has) {
        (Change::Add, Some(_)) => Err(Error::conflict(format!("column {name} is there already; replace it"))),
        (Change::Replace, None) => Err(Error::invalid(format!("column {name} is not there; add it"))),
        (Change::Append | Change::Rewrite, Some(ty)) if ty != product.ty.to_string() => {
            Err(Error::conflict(format!("column {name} has the type {ty} in the dataset, and {} here", product.ty)))
        }
        _ => Ok(()),
    }
}

impl Writer {
    /// Puts the next root.
    pub(super) fn put_root(&mut self, note: &str) -> Result<Committed> {
        if let Some(version) = self.version_of_own() {
            return Ok(Committed { version });
        }
        let root = self.next_root(note)?;
        let version = root.versions.len() as u32 - 1;
        let bytes = Bytes::from(root.encode()?);
        let condition = self.base.as_ref().map_or(Condition::Absent, |(_, tag)| Condition::Unchanged(tag));
        let put = self.storage.put_if(root::NAME, &bytes, condition);
        match put {
            Ok(Put::Done(tag)) => self.ended(root, tag, version),
            Ok(Put::Refused) => {
                self.base = root::read(self.storage.as_ref())?;
                match self.version_of_own() {
                    // The answer to an earlier try was lost.
                    Some(version) => {
                        self.uploader.end()?;
                        Ok(Committed { version })
                    }
                    None => Err(Error::conflict(format!(
                        "{}: another writer made a version meanwhile; commit again to make this one on top of it",
                        self.storage.url()
                    ))),
                }
            }
            Err(error) if error.kind() == Kind::OutcomeUnknown => {
                // What is there now may tell; where it does not answer either, the repeat of the commit does.
                if let Ok(Some(found)) = root::read(self.storage.as_ref()) {
                    self.base = Some(found);
                    if let Some(version) = self.version_of_own() {
                        self.uploader.end()?;
                        return Ok(Committed { version });
                    }
                }
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn ended(&mut self, root: Root, tag: Tag, version: u32) -> Result<Committed> {
        self.base = Some((root, tag));
        self.uploader.end()?;
        Ok(Committed { version })
    }

    /// The version that has this writer's layers, where it was committed.
    fn version_of_own(&self) -> Option<u32> {
        let (root, _) = self.base.as_ref()?;
        let own: HashSet<u32> = (0..)
            .zip(&root.layers)
            .filter(|(_, layer)| layer.prefix == self.prefix)
            .map(|(number, _)| number)
            .collect();
        let has_own =
            |version: &Version| version.tables.iter().any(|table| table.layers.iter().any(|layer| own.contains(layer)));
        root.versions.iter().position(has_own).map(|version| version as u32)
    }

    /// The root with this writer's version.
    fn next_root(&self, note: &str) -> Result<Root> {
        let mut root = match &self.base {
            Some((root, _)) => root.clone(),
            None => Root {
                uuid: format!("{:032x}", rand::random::<u128>()),
                places: vec![Place::default()],
                ..Root::default()
            },
        };
        let before = root.versions.last();
        let mut tables = before.map_or_else(Vec::new, |version| version.tables.clone());
        let mut facts = before.map_or_else(Default::default, |version| version.facts.clone());
        for (name, value) in &self.facts {
            match (facts.get_mut(name), value) {
                (Some(Value::Array(all)), Value::Array(more)) => all.extend(more.iter().cloned()),
                _ => drop(facts.insert(name.clone(), value.clone())),
            }
        }
        for table in &self.tables {
            let number = match root.tables.iter().position(|known| *known == table.name) {
                Some(number) => number,
                None => {
                    root.tables.push(table.name.clone());
                    root.tables.len() - 1
                }
            };
            tables.resize_with(tables.len().max(root.tables.len()), TableVersion::default);
            let state = std::mem::take(&mut tables[number]);
            tables[number] = self.next_table(&mut root, number as u32, state, table)?;
            root.check_streams(&tables[number]).map_err(|why| Error::full(format!("table {}: {why}", table.name)))?;
        }
        // A table that no version has had yet has an empty list of batches.
        if root.batch_lists.is_empty() {
            root.batch_lists.push(Vec::new());
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let time_ms = now.map_or(0, |since| since.as_millis() as u64);
        root.versions.push(Version { time_ms, note: note.to_owned(), tables, facts });
        Ok(root)
    }

    fn next_table(
        &self,
        root: &mut Root,
        number: u32,
        mut state: TableVersion,
        table: &super::Table,
    ) -> Result<TableVersion> {
        let known = known_products(root, &table.name).unwrap_or_default();
        let appends = matches!(self.change, Change::Create | Change::Append);
        let events = |batches: &mut dyn Iterator<Item = u32>| batches.map(u64::from).sum::<u64>();
        let now = events(&mut root.batches(&state));
        match self.change {
            Change::Add | Change::Replace if !root.batches(&state).eq(table.batches.iter().copied()) => {
                return Err(Error::conflict(format!(
                    "table {}: its events changed meanwhile; write the columns again",
                    table.name
                )));
            }
            Change::Rewrite if now != events(&mut table.batches.iter().copied()) => {
                return Err(Error::conflict(format!("table {}: it has {now} events now; compact again", table.name)));
            }
            _ => {}
        }
        let first_batch = if appends { state.batches } else { 0 };
        let mut order: Vec<u32> = numbers(&state.products).collect();
        let mut given: HashMap<String, u32> = HashMap::new();
        for layer in &table.layers {
            for product in &layer.products {
                check_product(root, &known, self.change, product)?;
                if let Some(&number) = given.get(&product.name) {
                    if root.products.ty[number as usize] != product.ty.to_string() {
                        let (has, ty) = (&root.products.ty[number as usize], &product.ty);
                        return Err(Error::conflict(format!("column {} has the types {has} and {ty}", product.name)));
                    }
                    continue;
                }
                let keep = known.get(&product.name).copied().filter(|_| self.change != Change::Replace);
                let number = keep.unwrap_or_else(|| root.add_product(number, product));
                match known.get(&product.name) {
                    Some(old) => order.iter_mut().filter(|at| *at == old).for_each(|at| *at = number),
                    None => order.push(number),
                }
                given.insert(product.name.clone(), number);
            }
        }
        if self.change == Change::Rewrite {
            state.layers.clear();
        }
        let place = root.place(&self.place);
        for layer in &table.layers {
            state.layers.push(root.layers.len() as u32);
            root.layers.push(self.numbered(layer, place, &given, first_batch));
        }
        // A layer none of whose products is in the version any more is only read at older versions.
        let wanted: HashSet<u32> = order.iter().copied().collect();
        state
            .layers
            .retain(|&layer| numbers(&root.layers[layer as usize].products).any(|product| wanted.contains(&product)));
        state.products = runs(order);
        if appends || self.change == Change::Rewrite {
            let all: Vec<u32> = if appends {
                root.batches(&state).chain(table.batches.iter().copied()).collect()
            } else {
                table.batches.clone()
            };
            state.batches = u32::try_from(all.len()).map_err(|_| Error::full("more than 2^32 batches"))?;
            state.batch_list = root.list_batches(state.batch_list, appends && first_batch > 0, &all);
        }
        Ok(state)
    }

    fn numbered(&self, layer: &NewLayer, place: u32, given: &HashMap<String, u32>, first_batch: u32) -> Layer {
        Layer {
            place,
            prefix: self.prefix.clone(),
            products: runs(layer.products.iter().map(|product| given[&product.name])),
            shifts: layer.shifts(),
            batch_events: layer.batch_events,
            first_batch: first_batch + layer.first_batch,
            directories: layer.directories.clone(),
        }
    }
}

impl Root {
    /// The number of a place.
    pub(crate) fn place(&mut self, place: &Place) -> u32 {
        if let Some(number) = self.places.iter().position(|known| known == place) {
            return number as u32;
        }
        self.places.push(place.clone());
        self.places.len() as u32 - 1
    }

    /// Events of each batch of a table.
    pub(crate) fn batches(&self, state: &TableVersion) -> impl Iterator<Item = u32> + '_ {
        let list = self.batch_lists.get(state.batch_list as usize).map_or(&[][..], Vec::as_slice);
        let each = list.iter().flat_map(|&(events, times)| std::iter::repeat_n(events, times as usize));
        each.take(state.batches as usize)
    }

    /// The number of a list of batches: the one given, where it is a prefix of the new one and may grow, or a new one.
    fn list_batches(&mut self, list: u32, grows: bool, all: &[u32]) -> u32 {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for &events in all {
            match runs.last_mut() {
                Some((last, times)) if *last == events => *times += 1,
                _ => runs.push((events, 1)),
            }
        }
        let each = |runs: &[(u32, u32)]| runs.iter().map(|&(_, times)| times as usize).sum::<usize>();
        if grows && let Some(old) = self.batch_lists.get_mut(list as usize) {
            // Older versions read only as many batches as they have.
            let longer = each(old);
            let prefix = all.len() >= longer
                && old
                    .iter()
                    .flat_map(|&(events, times)| std::iter::repeat_n(events, times as usize))
                    .eq(all[..longer].iter().copied());
            if prefix {
                *old = runs;
                return list;
            }
        }
        self.batch_lists.push(runs);
        self.batch_lists.len() as u32 - 1
    }
}
