//! Writes all columns again with the highest effort and full batches, as a new version.

use crate::codec::Effort;
use crate::read::{Dataset, ReadOptions};
use crate::write::{Committed, WriteOptions, Writer};
use crate::{Array, Product};
use forebay_core::Result;

/// Makes a new version with the same events, encoded with the highest effort. `progress` hears events done, and events in all.
///
/// # Errors
/// `Conflict` where another writer added events meanwhile; errors of reading and of the storage.
pub fn compact(url: &str, options: &WriteOptions, progress: &mut dyn FnMut(u64, u64)) -> Result<Committed> {
    let reading = ReadOptions { threads: options.threads, storage: options.storage.clone() };
    let dataset = Dataset::open(url, reading)?;
    let mut writer = Writer::rewrite(url, WriteOptions { effort: Effort::Best, ..options.clone() })?;
    let tables: Vec<String> = dataset.tables().into_iter().map(str::to_owned).collect();
    let mut all = 0;
    for table in &tables {
        all += dataset.events(table)?;
    }
    let mut done = 0;
    for table in &tables {
        for events in dataset.batches(table)? {
            let columns = dataset.stored_columns(table, events.clone())?;
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
    /// The columns that a batch has, as they were written: what is missing there stays missing.
    fn stored_columns(&self, table: &str, events: std::ops::Range<u64>) -> Result<Vec<(Product, Array)>> {
        let products = self.stored_products(table, events.start)?;
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
