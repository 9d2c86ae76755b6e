//! Writes all columns again with the highest effort and full batches, as a new version.

use crate::codec::Effort;
use crate::read::{Dataset, ReadOptions};
use crate::write::{Committed, WriteOptions, Writer};
use crate::{Array, Product};
use forebay_core::{Error, Result};
use std::collections::HashSet;

/// Makes a new version with the same events, encoded with the highest effort. `progress` hears events done, and events in all.
///
/// # Errors
/// `Invalid` where columns are in another place; `Conflict` where another writer added events meanwhile; errors of reading and of the storage.
pub fn compact(url: &str, options: &WriteOptions, progress: &mut dyn FnMut(u64, u64)) -> Result<Committed> {
    let reading = ReadOptions { threads: options.threads, storage: options.storage.clone() };
    let dataset = Dataset::open(url, reading)?;
    if let Some(class) = dataset.other_place() {
        return Err(Error::invalid(format!(
            "{url}: it has columns in another place ({class}); give them the class of the dataset's own place first"
        )));
    }
    let mut writer = Writer::rewrite(url, WriteOptions { effort: Effort::Best, ..options.clone() })?;
    let tables: Vec<String> = dataset.tables().into_iter().map(str::to_owned).collect();
    let mut all = 0;
    for table in &tables {
        all += dataset.events(table)?;
    }
    let mut done = 0;
    for table in &tables {
        for events in dataset.batches(table)? {
            let columns = dataset.stored_columns(table, events.clone(), &HashSet::new())?;
            if !columns.is_empty() {
                writer.push(table, &columns)?;
            }
            done += events.end - events.start;
            progress(done, all);
        }
    }
    writer.commit("compact")
}

impl Dataset {
    /// The columns that a batch has, as they were written: what is missing there stays missing. Those that are wanted; none: all.
    pub(crate) fn stored_columns(
        &self,
        table: &str,
        events: std::ops::Range<u64>,
        wanted: &HashSet<&str>,
    ) -> Result<Vec<(Product, Array)>> {
        let mut products = self.stored_products(table, events.start)?;
        products.retain(|product| wanted.is_empty() || wanted.contains(product.name.as_str()));
        let names: Vec<&str> = products.iter().map(|product| product.name.as_str()).collect();
        let columns = self.read(table, &names, events)?;
        Ok(products
            .into_iter()
            .zip(columns)
            .map(|(product, column)| {
                let array = column.to_array().without_option(&product.ty);
                (product, array)
            })
            .collect())
    }
}
