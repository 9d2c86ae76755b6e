//! Classes of service: products are written again where a class has its place, as a new version. Older versions read them where they were.

use crate::read::{Dataset, ReadOptions};
use crate::root::Place;
use crate::write::{Committed, WriteOptions, Writer, absolute};
use forebay_core::{Error, Result};
use std::collections::HashSet;

/// Bytes of an object of a class that is gathered: few large objects, as tape and erasure-coded pools want them.
const GATHER: u32 = 64 << 20;

/// A class of service and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// `fast`, `disk`, `cold` or another name; empty: the dataset's own place.
    pub name: String,
    /// A bucket with a prefix, or a directory; empty: where the class has been until now.
    pub url: String,
    /// Whether stripes are gathered in large objects.
    pub gathered: bool,
}

impl Class {
    /// A class with the usual settings of its name: `cold` is gathered.
    pub fn new(name: &str, url: &str) -> Class {
        Class { name: name.to_owned(), url: url.to_owned(), gathered: name == "cold" }
    }
}

/// Writes products of a table to the place of a class, as a new version. `progress` hears events done, and events in all.
///
/// # Errors
/// `Invalid` where a column does not exist or a class has no place; `Conflict` where another writer changed the events meanwhile; errors
/// of the storage.
pub fn reclass(
    url: &str,
    table: &str,
    columns: &[&str],
    class: &Class,
    options: &WriteOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Committed> {
    let reading = ReadOptions { threads: options.threads, storage: options.storage.clone() };
    let dataset = Dataset::open(url, reading)?;
    let known = dataset.products(table)?;
    for column in columns {
        if !known.iter().any(|product| product.name == *column) {
            return Err(Error::invalid(format!("{url}: table {table} has no column {column}")));
        }
    }
    let place = match (class.name.as_str(), class.url.as_str()) {
        ("", _) => String::new(),
        (name, "") => {
            let known = dataset.class_url(name).map(str::to_owned);
            known.ok_or_else(|| Error::invalid(format!("{url}: the class {name} has no place yet; say where it is")))?
        }
        (_, place) => absolute(place)?,
    };
    let gather_bytes = class.gathered.then_some(GATHER);
    let place = Place { url: place, class: class.name.clone(), owner: String::new() };
    let mut writer = Writer::moving(url, WriteOptions { gather_bytes, ..options.clone() }, place)?;
    let wanted: HashSet<&str> = columns.iter().copied().collect();
    let all = dataset.events(table)?;
    for events in dataset.batches(table)? {
        let stored = dataset.stored_columns(table, events.clone(), &wanted)?;
        if stored.is_empty() {
            writer.skip(table)?;
        } else {
            writer.push(table, &stored)?;
        }
        progress(events.end, all);
    }
    writer.commit(&format!("class {}", if class.name.is_empty() { "of the dataset" } else { &class.name }))
}
