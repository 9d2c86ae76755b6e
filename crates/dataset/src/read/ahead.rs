//! Reads in two steps, so that one batch is fetched while another one is decoded.

use super::decode::{self, Reading};
use super::view::TableView;
use super::{Column, Dataset};
use forebay_core::Result;
use std::ops::Range;
use std::sync::Arc;

/// Columns of a table that are read batch by batch.
#[derive(Debug)]
pub(crate) struct Selected<'a> {
    dataset: &'a Dataset,
    view: Arc<TableView>,
    columns: Vec<usize>,
}

/// Stored bytes of some events, in memory.
pub(crate) struct Fetched<'a>(Reading<'a>);

impl Dataset {
    /// Finds the columns once for many reads.
    pub(crate) fn select(&self, table: &str, columns: &[&str]) -> Result<Selected<'_>> {
        let view = self.view(table)?;
        let columns: Result<Vec<usize>> = columns.iter().map(|name| view.find(name)).collect();
        Ok(Selected { dataset: self, columns: columns?, view })
    }
}

impl Selected<'_> {
    /// The events of each batch.
    pub(crate) fn batches(&self) -> Vec<Range<u64>> {
        self.view.batches()
    }

    /// Waits for the storage; the events are those of a batch.
    pub(crate) fn fetch(&self, events: Range<u64>) -> Result<Fetched<'_>> {
        debug_assert!(events.start <= events.end && events.end <= self.view.events(), "events of the table");
        decode::fetch(&self.dataset.shared, &self.view, &self.columns, events, true).map(Fetched)
    }
}

impl Fetched<'_> {
    /// Decodes; waits for nothing.
    pub(crate) fn decode(self) -> Result<Vec<Column>> {
        self.0.decode()
    }
}
