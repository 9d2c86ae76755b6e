//! The events of one table as they are written: the open batch, and the layers until now.

use super::WriteOptions;
use super::batch::{self, Settings, StreamState};
use super::upload::Uploader;
use crate::directory;
use crate::frame::{self, Magic};
use crate::root::{Directories, STREAM_BYTES_MAX};
use crate::{Array, Product};
use forebay_core::{Error, Result};

/// Bytes in memory of a batch, where its events are not said.
const BATCH_BYTES: u64 = 64 << 20;
/// Directories are gathered into an object until they have this many bytes.
const BUNDLE_BYTES: usize = 64 << 10;

/// A table of a writer.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: String,
    /// The batches of the events that are there already, where products are added to them.
    fixed: Option<Vec<u32>>,
    /// Events of each batch that was written.
    pub(super) batches: Vec<u32>,
    pub(super) layers: Vec<NewLayer>,
    open: Option<Open>,
}

/// A batch that is collected.
#[derive(Debug)]
struct Open {
    products: Vec<Product>,
    arrays: Vec<Array>,
    /// Events of a full batch of its layer.
    batch_events: u32,
}

/// A layer without numbers: those are given by the root that it is committed to.
#[derive(Debug)]
pub(super) struct NewLayer {
    pub(super) products: Vec<Product>,
    states: Vec<StreamState>,
    pub(super) batch_events: u32,
    pub(super) first_batch: u32,
    pub(super) directories: Directories,
    /// Directories that are not in an object yet.
    waiting: Vec<Vec<u8>>,
    /// The object with stripes that may take more batches: its number and its body until now.
    open: Option<(u32, Vec<u8>)>,
}

impl NewLayer {
    /// The stripes of each stream, as runs.
    pub(super) fn shifts(&self) -> Vec<(u8, u32)> {
        let mut runs: Vec<(u8, u32)> = Vec::new();
        for state in &self.states {
            let shift = state.shift.unwrap_or(0);
            match runs.last_mut() {
                Some((last, n)) if *last == shift => *n += 1,
                _ => runs.push((shift, 1)),
            }
        }
        runs
    }

    /// Puts the object that was left open, so that everything that the directories name is on its way.
    fn close(&mut self, uploader: &mut Uploader) -> Result<()> {
        match self.open.take() {
            Some((number, body)) if !body.is_empty() => {
                uploader.put(vec![(number, frame::framed(Magic::Stripes, &body))])
            }
            _ => Ok(()),
        }
    }

    fn bundle(&mut self, uploader: &mut Uploader) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let object = directory::bundle(&self.waiting);
        let bytes = u32::try_from(object.len()).map_err(|_| Error::full("a directory of more than 4 GiB"))?;
        let number = uploader.number()?;
        self.directories.object.push(number);
        self.directories.batches.push(self.waiting.len() as u32);
        self.directories.bytes.push(bytes);
        self.waiting.clear();
        uploader.put(vec![(number, object)])
    }
}

impl Table {
    pub(super) fn new(name: &str, fixed: Option<Vec<u32>>) -> Table {
        Table { name: name.to_owned(), fixed, batches: Vec::new(), layers: Vec::new(), open: None }
    }

    /// Events that are there already and must be pushed, where products are added.
    pub(super) fn expected(&self) -> Option<u64> {
        self.fixed.as_ref().map(|fixed| fixed.iter().map(|&events| u64::from(events)).sum())
    }

    pub(super) fn push(
        &mut self,
        columns: &[(Product, Array)],
        options: &WriteOptions,
        threads: usize,
        uploader: &mut Uploader,
    ) -> Result<()> {
        let alike = |open: &Open| open.products.iter().eq(columns.iter().map(|(product, _)| product));
        if self.open.as_ref().is_some_and(|open| !alike(open)) {
            if self.fixed.is_some() {
                return Err(Error::invalid(format!("table {}: added columns are the same in every push", self.name)));
            }
            self.write(options, threads, uploader)?;
        }
        let events = columns[0].1.events;
        let mut from = 0;
        if events == 0 && self.fixed.is_none() && self.batches.is_empty() {
            // Columns without events are columns all the same: their batch is empty.
            self.room(columns, options)?;
        }
        while from < events {
            let room = self.room(columns, options)?;
            let to = events.min(from + room);
            let whole = from == 0 && to == events;
            let open = self.open.as_mut().ok_or_else(|| Error::internal("no open batch"))?;
            for (all, (_, array)) in open.arrays.iter_mut().zip(columns) {
                if whole { all.extend(array) } else { all.extend(&array.slice(from..to)) }
            }
            from = to;
            if self.open.as_ref().is_some_and(|open| open.arrays[0].events >= self.full()) {
                self.write(options, threads, uploader)?;
            }
        }
        Ok(())
    }

    /// Leaves a batch out that has none of the columns.
    pub(super) fn skip(&mut self, uploader: &mut Uploader) -> Result<()> {
        let events = self.fixed.as_ref().and_then(|fixed| fixed.get(self.batches.len()).copied());
        self.batches.push(events.ok_or_else(|| Error::internal("no batch to leave out"))?);
        if let Some(layer) = self.layers.last_mut() {
            layer.close(uploader)?;
            layer.bundle(uploader)?;
        }
        Ok(())
    }

    /// Events of the open batch when it is full.
    fn full(&self) -> u64 {
        match (&self.fixed, &self.open) {
            (Some(fixed), _) => fixed.get(self.batches.len()).map_or(0, |&events| u64::from(events)),
            (None, Some(open)) => u64::from(open.batch_events),
            (None, None) => 0,
        }
    }

    /// How many events the open batch still takes; opens one where there is none.
    fn room(&mut self, columns: &[(Product, Array)], options: &WriteOptions) -> Result<u64> {
        if self.open.is_none() {
            let batch_events = match &self.fixed {
                Some(fixed) => fixed.iter().copied().max().unwrap_or(1).next_multiple_of(1 << batch::SHIFT_MAX),
                None => options.batch_events.unwrap_or_else(|| usual_batch(columns)),
            };
            let products = columns.iter().map(|(product, _)| product.clone()).collect();
            let arrays = columns.iter().map(|(product, _)| Array::empty(product.ty.clone())).collect();
            self.open = Some(Open { products, arrays, batch_events });
        }
        let has = self.open.as_ref().map_or(0, |open| open.arrays[0].events);
        match self.full().saturating_sub(has) {
            0 => Err(Error::invalid(format!("table {}: more events than there are in the dataset", self.name))),
            room => Ok(room),
        }
    }

    /// Encodes the open batch and hands it to the uploader.
    fn write(&mut self, options: &WriteOptions, threads: usize, uploader: &mut Uploader) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let next = self.batches.len() as u32;
        let same = |layer: &NewLayer| {
            let ends = layer.first_batch + layer.directories.batches.iter().sum::<u32>() + layer.waiting.len() as u32;
            layer.products == open.products && layer.batch_events == open.batch_events && ends == next
        };
        if !self.layers.last().is_some_and(same) {
            if let Some(layer) = self.layers.last_mut() {
                layer.close(uploader)?;
                layer.bundle(uploader)?;
            }
            let streams = open.arrays.iter().map(|array| array.streams.len()).sum();
            self.layers.push(NewLayer {
                products: open.products,
                states: std::iter::repeat_with(StreamState::default).take(streams).collect(),
                batch_events: open.batch_events,
                first_batch: self.batches.len() as u32,
                directories: Directories::default(),
                waiting: Vec::new(),
                open: None,
            });
        }
        let layer = self.layers.last_mut().ok_or_else(|| Error::internal("no layer"))?;
        for (product, array) in layer.products.iter().zip(&open.arrays) {
            if array.streams.iter().any(|stream| stream.len() as u64 > STREAM_BYTES_MAX) {
                let (name, events) = (&product.name, array.events);
                return Err(Error::invalid(format!(
                    "column {name} has more than 2 GiB in a batch of {events} events; make the batches smaller"
                )));
            }
        }
        let target = options.target_bytes as usize;
        let settings = Settings { threads, effort: options.effort, batch_events: open.batch_events, target };
        let (entries, groups) = batch::encode(&open.arrays, &mut layer.states, settings);
        let gather = options.gather_bytes.map(|bytes| bytes as usize);
        let (first, body) = match layer.open.take() {
            Some(open) => open,
            None => (uploader.number()?, Vec::new()),
        };
        let size = gather.unwrap_or(target);
        let (mut directory, bodies) = directory::lay_out(entries, groups, size, u64::from(first), body);
        let mut numbers = vec![first];
        for _ in 1..bodies.len() {
            numbers.push(uploader.number()?);
        }
        directory.next_object = numbers.get(1).map_or(0, |&number| u64::from(number));
        layer.waiting.push(directory.encode()?);
        self.batches.push(open.arrays[0].events as u32);
        let mut objects: Vec<(u32, Vec<u8>)> = numbers.into_iter().zip(bodies).collect();
        if gather.is_some() {
            layer.open = objects.pop();
        }
        // A batch whose stripes are all in its directory has an empty object, which is not put.
        objects.retain(|(_, body)| !body.is_empty());
        for (_, body) in &mut objects {
            *body = frame::framed(Magic::Stripes, body);
        }
        if !objects.is_empty() {
            uploader.put(objects)?;
        }
        if layer.waiting.iter().map(Vec::len).sum::<usize>() >= BUNDLE_BYTES {
            layer.bundle(uploader)?;
        }
        Ok(())
    }

    /// Writes what is still open.
    ///
    /// # Errors
    /// `Invalid` where events are missing that the dataset has.
    pub(super) fn finish(&mut self, options: &WriteOptions, threads: usize, uploader: &mut Uploader) -> Result<()> {
        self.write(options, threads, uploader)?;
        if let Some(layer) = self.layers.last_mut() {
            layer.close(uploader)?;
            layer.bundle(uploader)?;
        }
        let written: u64 = self.batches.iter().map(|&events| u64::from(events)).sum();
        match self.expected() {
            Some(expected) if expected != written => {
                Err(Error::invalid(format!("table {}: {written} events were pushed; it has {expected}", self.name)))
            }
            _ => Ok(()),
        }
    }
}

/// Events of a batch with about [`BATCH_BYTES`] in memory, a power of two.
fn usual_batch(columns: &[(Product, Array)]) -> u32 {
    let bytes: u64 = columns.iter().map(|(_, array)| array.bytes()).sum();
    let per_event = (bytes / columns[0].1.events.max(1)).max(1);
    let events = (BATCH_BYTES / per_event).clamp(256, 1 << 20);
    1 << events.ilog2()
}
