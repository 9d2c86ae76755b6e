//! Decodes columns: structure first, from the outside inwards, because it says how many values there are; then all values at once, each
//! stripe into its place.

use super::pieces::{self, Loaded, Source, Wanted};
use super::view::{Known, TableView, counts};
use super::{Column, Part, Shared};
use crate::root::STREAM_BYTES_MAX;
use crate::types::{Node, Role};
use crate::{Buffer, Scalar, Type, codec, parallel};
use bytes::Bytes;
use forebay_core::{Error, Result};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// A batch that is read, and which of its events.
struct Batch {
    number: u32,
    events: u64,
    range: Range<u64>,
}

/// A stream that is read: once, however many columns share it.
struct Stream {
    node: Node,
    /// The place of the stream above in the list of streams.
    parent: Option<usize>,
    /// Its name for people: the first column that asked.
    column: usize,
    /// For each batch: layer and stream; none: the batch does not have it.
    at: Vec<Option<(usize, u32)>>,
}

/// In place of a stream's number: its values are not read. No stream is counted by values.
const NOT_READ: usize = usize::MAX;

/// Everything about one read.
pub(super) struct Reading<'a> {
    shared: &'a Shared,
    view: &'a TableView,
    /// Places of the columns in the view.
    columns: &'a [usize],
    /// The streams of each column.
    streams_of: Vec<Vec<usize>>,
    batches: Vec<Batch>,
    streams: Vec<Stream>,
    loaded: HashMap<(usize, u32), Arc<Loaded>>,
    fetched: HashMap<Wanted, Bytes>,
    /// Rows of groups of bools, by layer, batch and group.
    groups: HashMap<(usize, u32, u32), Vec<Vec<u8>>>,
    /// For streams of structure, for each batch: units below before each own unit, and in all.
    sums: Vec<Vec<Vec<i64>>>,
}

/// Columns (places in the view) for a range of events. Without `values` the parts of values are empty, and nothing is fetched for them.
pub(super) fn read(
    shared: &Shared,
    view: &TableView,
    columns: &[usize],
    events: Range<u64>,
    values: bool,
) -> Result<Vec<Column>> {
    fetch(shared, view, columns, events, values)?.decode()
}

/// Everything that the columns are decoded from: the part of a read that waits for the storage.
pub(super) fn fetch<'a>(
    shared: &'a Shared,
    view: &'a TableView,
    columns: &'a [usize],
    events: Range<u64>,
    values: bool,
) -> Result<Reading<'a>> {
    let mut reading = Reading {
        shared,
        view,
        columns,
        streams_of: Vec::new(),
        batches: batches(view, &events),
        streams: Vec::new(),
        loaded: HashMap::new(),
        fetched: HashMap::new(),
        groups: HashMap::new(),
        sums: Vec::new(),
    };
    reading.load(columns)?;
    reading.streams_of = reading.collect(columns, values)?;
    reading.fetch()?;
    Ok(reading)
}

/// The batches with these events.
fn batches(view: &TableView, events: &Range<u64>) -> Vec<Batch> {
    let first = view.starts.partition_point(|&start| start <= events.start).saturating_sub(1);
    let mut batches = Vec::new();
    for (number, pair) in view.starts.windows(2).enumerate().skip(first) {
        if pair[0] >= events.end {
            break;
        }
        let range = events.start.max(pair[0]) - pair[0]..events.end.min(pair[1]) - pair[0];
        if !range.is_empty() {
            batches.push(Batch { number: number as u32, events: pair[1] - pair[0], range });
        }
    }
    batches
}

impl Reading<'_> {
    /// Decodes what was fetched; asks nothing of the storage.
    pub(super) fn decode(mut self) -> Result<Vec<Column>> {
        self.rows()?;
        self.structure()?;
        let parts = self.parts()?;
        let column = |(&at, streams): (&usize, &Vec<usize>)| self.column(&self.view.products[at], streams, &parts);
        Ok(self.columns.iter().zip(&self.streams_of).map(column).collect())
    }

    fn load(&mut self, columns: &[usize]) -> Result<()> {
        let mut wanted = BTreeSet::new();
        for batch in &self.batches {
            for &column in columns {
                wanted.extend(self.view.products[column].layer(batch.number).map(|(layer, _)| (layer, batch.number)));
            }
        }
        self.loaded = pieces::directories(self.shared, self.view, &wanted)?;
        Ok(())
    }

    /// Makes the list of streams and returns those of each column.
    fn collect(&mut self, columns: &[usize], values: bool) -> Result<Vec<Vec<usize>>> {
        /// What is the same stream: bytes, meaning, and what counts it.
        type Key = (Vec<Option<(usize, u32)>>, Role, Scalar, Option<usize>, u64);
        let mut known: HashMap<Key, usize> = HashMap::new();
        let mut all = Vec::with_capacity(columns.len());
        for &column in columns {
            let product = &self.view.products[column];
            let layers: Vec<Option<(usize, u32)>> =
                self.batches.iter().map(|batch| product.layer(batch.number)).collect();
            let mut own: Vec<usize> = Vec::with_capacity(product.nodes.len());
            for (stream, node) in (0_u32..).zip(&product.nodes) {
                if !values && !counts(node) {
                    own.push(NOT_READ);
                    continue;
                }
                let mut at = Vec::with_capacity(layers.len());
                for (batch, layer) in self.batches.iter().zip(&layers) {
                    at.push(match layer {
                        None => None,
                        Some((layer, first)) => {
                            Some((*layer, self.resolved(*layer, batch, first + stream, node, column)?))
                        }
                    });
                }
                let parent = node.parent.map(|parent| own[parent]);
                let key = (at, node.role, node.scalar, parent, node.times);
                let next = self.streams.len();
                let number = *known.entry(key.clone()).or_insert(next);
                if number == next {
                    self.streams.push(Stream { node: *node, parent, column, at: key.0 });
                }
                own.push(number);
            }
            all.push(own);
        }
        Ok(all)
    }

    /// The stream whose bytes a stream of a batch has.
    fn resolved(&self, layer: usize, batch: &Batch, stream: u32, node: &Node, column: usize) -> Result<u32> {
        let shift = self.view.layers[layer].streams[stream as usize].1;
        // Only values are cut; what counts them is needed whole.
        if shift > 0 && counts(node) {
            return Err(self.damaged(column, batch.number, layer, "counts that are cut into stripes"));
        }
        if shift > 0 {
            return Ok(stream);
        }
        let source = self.loaded[&(layer, batch.number)].source(stream, 0);
        source.map(|(stream, _)| stream).ok_or_else(|| self.damaged(column, batch.number, layer, "no such entry"))
    }

    /// The stripes of a stream that are read in a batch, and how many events each has.
    fn stripes(&self, stream: &Stream, batch: &Batch, layer: usize, number: u32) -> (Range<u32>, u64) {
        let shift = self.view.layers[layer].streams[number as usize].1;
        if shift == 0 || counts(&stream.node) {
            return (0..1, batch.events);
        }
        let each = self.view.layers[layer].stripe_events(shift);
        ((batch.range.start / each) as u32..batch.range.end.div_ceil(each) as u32, each)
    }

    /// Fetches every piece once.
    fn fetch(&mut self) -> Result<()> {
        let mut wanted: BTreeSet<(usize, u32, u32, u64)> = BTreeSet::new();
        let mut pieces: HashMap<(usize, u32, u32, u64), Wanted> = HashMap::new();
        for stream in &self.streams {
            for (batch, at) in self.batches.iter().zip(&stream.at) {
                let Some((layer, number)) = *at else { continue };
                let loaded = &self.loaded[&(layer, batch.number)];
                for stripe in self.stripes(stream, batch, layer, number).0 {
                    let piece = match loaded.source(number, stripe) {
                        Some((_, Source::Stored(piece))) => piece,
                        Some((_, Source::Row { group, .. })) => loaded.directory.groups[group as usize].0,
                        Some((_, Source::Inline { .. })) => continue,
                        None => return Err(self.damaged(stream.column, batch.number, layer, "no such stripe")),
                    };
                    // In the order of objects and offsets, so that neighbours meet in one request.
                    let key = (layer, batch.number, piece.object, piece.offset);
                    wanted.insert(key);
                    pieces.insert(key, (layer, batch.number, piece));
                }
            }
        }
        let wanted: Vec<Wanted> = wanted.iter().map(|key| pieces[key]).collect();
        let bytes = pieces::fetch(self.shared, self.view, &self.loaded, &wanted)?;
        self.fetched = wanted.into_iter().zip(bytes).collect();
        Ok(())
    }

    /// Decodes the groups of bools that have a row that is read.
    fn rows(&mut self) -> Result<()> {
        let mut wanted: BTreeSet<(usize, u32, u32)> = BTreeSet::new();
        for stream in &self.streams {
            for (batch, at) in self.batches.iter().zip(&stream.at) {
                let Some((layer, number)) = *at else { continue };
                if let Some((_, Source::Row { group, .. })) = self.loaded[&(layer, batch.number)].source(number, 0) {
                    wanted.insert((layer, batch.number, group));
                }
            }
        }
        let work: Vec<_> = wanted.into_iter().collect();
        let decoded = parallel::map(self.shared.threads, work.clone(), |(layer, batch, group)| {
            let loaded = &self.loaded[&(layer, batch)];
            let (piece, rows) = loaded.directory.groups[group as usize];
            let bytes = &self.fetched[&(layer, batch, piece)];
            if !piece.verify(bytes) {
                return Err("checksum of a group of bools");
            }
            if u64::from(rows) * loaded.events > STREAM_BYTES_MAX {
                return Err("more rows than a batch can have");
            }
            let mut all = vec![vec![0; loaded.events as usize]; rows as usize];
            let mut places: Vec<&mut [u8]> = all.iter_mut().map(Vec::as_mut_slice).collect();
            codec::decode_bools(bytes, &mut places).map_err(|damaged| damaged.0)?;
            Ok(all)
        });
        for (key, rows) in work.into_iter().zip(decoded) {
            let rows = rows.map_err(|why| self.damaged_object(key.1, key.0, why))?;
            self.groups.insert(key, rows);
        }
        Ok(())
    }

    /// Decodes one stripe.
    fn stripe(&self, stream: &Stream, batch: &Batch, at: (usize, u32), stripe: u32, out: &mut [u8]) -> Result<()> {
        let (layer, number) = at;
        let loaded = &self.loaded[&(layer, batch.number)];
        let scalar = self.view.layers[layer].streams[number as usize].0;
        let damaged = |why: &str| self.damaged(stream.column, batch.number, layer, why);
        let encoded = match loaded.source(number, stripe) {
            Some((_, Source::Inline { start, len })) => {
                &loaded.directory.inline[start as usize..(start + len) as usize]
            }
            Some((_, Source::Stored(piece))) => {
                let bytes = &self.fetched[&(layer, batch.number, piece)];
                if !piece.verify(bytes) {
                    return Err(damaged(&format!("checksum of {} bytes at {}", piece.len, piece.offset)));
                }
                bytes
            }
            Some((_, Source::Row { group, row })) => {
                let row = &self.groups[&(layer, batch.number, group)][row as usize];
                if row.len() != out.len() {
                    return Err(damaged("rows of another length"));
                }
                out.copy_from_slice(row);
                return Ok(());
            }
            None => return Err(damaged("no such stripe")),
        };
        codec::decode(scalar, encoded, out).map_err(|why| damaged(why.0))
    }

    /// Own values of a stream before an event of a batch.
    fn before(&self, stream: usize, batch: usize, event: u64) -> usize {
        let Stream { node, parent, .. } = &self.streams[stream];
        let units = match parent {
            None => event as usize,
            Some(parent) => self.sums[*parent][batch][self.before(*parent, batch, event)] as usize,
        };
        units * node.times as usize
    }

    /// Own values of a stream in a batch, checked against the limit.
    fn total(&self, stream: usize, batch: usize) -> Result<usize> {
        let Stream { node, parent, column, .. } = &self.streams[stream];
        let units = match parent {
            None => self.batches[batch].events,
            Some(parent) => self.sums[*parent][batch].last().map_or(0, |&sum| sum as u64),
        };
        let total = units.saturating_mul(node.times);
        if total.saturating_mul(node.scalar.width() as u64) > STREAM_BYTES_MAX {
            let (name, number) = (&self.view.products[*column].product.name, self.batches[batch].number);
            return Err(Error::corrupt(format!(
                "{}: column {name}, batch {number}: {total} values, more than a batch can have",
                self.shared.storage.url()
            )));
        }
        Ok(total as usize)
    }

    /// Decodes counts and flags, a level after the other, and sums them.
    fn structure(&mut self) -> Result<()> {
        self.sums = self.streams.iter().map(|_| Vec::new()).collect();
        let depth = |mut at: usize| {
            let mut depth = 0;
            while let Some(parent) = self.streams[at].parent {
                depth += 1;
                at = parent;
            }
            depth
        };
        let mut levels: Vec<Vec<usize>> = Vec::new();
        for at in (0..self.streams.len()).filter(|&at| counts(&self.streams[at].node)) {
            let depth = depth(at);
            levels.resize_with(levels.len().max(depth + 1), Vec::new);
            levels[depth].push(at);
        }
        for level in levels {
            let batches = self.batches.len();
            let work: Vec<(usize, usize)> =
                level.iter().flat_map(|&at| (0..batches).map(move |batch| (at, batch))).collect();
            let sums = parallel::map(self.shared.threads, work.clone(), |(at, batch)| self.sum(at, batch));
            for ((at, _), sums) in work.into_iter().zip(sums) {
                self.sums[at].push(sums?);
            }
        }
        Ok(())
    }

    /// Units below before each unit of a stream of structure.
    fn sum(&self, at: usize, batch: usize) -> Result<Vec<i64>> {
        let stream = &self.streams[at];
        let Some(place) = stream.at[batch] else { return Ok(vec![0; self.total(at, batch)? + 1]) };
        let total = self.total(at, batch)?;
        let mut values = Buffer::zeroed(total * stream.node.scalar.width());
        self.stripe(stream, &self.batches[batch], place, 0, values.bytes_mut())?;
        let mut sums = Vec::with_capacity(total + 1);
        let mut sum = 0_i64;
        sums.push(0);
        match stream.node.role {
            Role::Present => {
                if values.bytes().iter().any(|&flag| flag > 1) {
                    return Err(self.damaged(stream.column, self.batches[batch].number, place.0, "flags above 1"));
                }
                sums.extend(values.bytes().iter().map(|&flag| {
                    sum += i64::from(flag);
                    sum
                }));
            }
            _ => sums.extend(values.values::<u32>().iter().map(|&n| {
                sum += i64::from(n);
                sum
            })),
        }
        Ok(sums)
    }

    /// The parts of all streams: offsets and indices put together, values decoded.
    fn parts(&self) -> Result<Vec<Part>> {
        let mut parts: Vec<Option<Part>> = self.streams.iter().map(|_| None).collect();
        // Values: each stream's memory is cut into the places of its stripes, and all of them are decoded on all cores.
        let values: Vec<usize> = (0..self.streams.len()).filter(|&at| !counts(&self.streams[at].node)).collect();
        let mut memory: Vec<(Buffer, usize, usize)> = Vec::with_capacity(values.len());
        let mut places: Vec<Vec<Place>> = Vec::with_capacity(values.len());
        for &at in &values {
            let (total, skip, keep, of_stream) = self.places(at)?;
            memory.push((Buffer::zeroed(total), skip, keep));
            places.push(of_stream);
        }
        let mut work = Vec::new();
        for ((&at, (buffer, _, _)), places) in values.iter().zip(&mut memory).zip(&places) {
            let mut rest = buffer.bytes_mut();
            for place in places {
                let (own, after) = rest.split_at_mut(place.bytes);
                rest = after;
                if let Some(stripe) = place.stripe {
                    work.push((at, place.batch, stripe, own));
                }
            }
        }
        let done = parallel::map(self.shared.threads, work, |(at, batch, stripe, out)| {
            let stream = &self.streams[at];
            let place = stream.at[batch].ok_or_else(|| Error::internal("a stripe of no layer"))?;
            self.stripe(stream, &self.batches[batch], place, stripe, out)
        });
        done.into_iter().collect::<Result<()>>()?;
        for (at, (buffer, start, len)) in values.into_iter().zip(memory) {
            parts[at] = Some(Part::Values { buffer: Arc::new(buffer), start, len });
        }
        let structure: Vec<usize> = (0..parts.len()).filter(|&at| parts[at].is_none()).collect();
        let made = parallel::map(self.shared.threads, structure.clone(), |at| self.joined(at));
        for (at, part) in structure.into_iter().zip(made) {
            parts[at] = Some(part);
        }
        Ok(parts.into_iter().flatten().collect())
    }

    /// Where the stripes of a stream of values go: bytes in all, bytes that nobody asked for before and after them, and the places.
    fn places(&self, at: usize) -> Result<(usize, usize, usize, Vec<Place>)> {
        let stream = &self.streams[at];
        let width = stream.node.scalar.width();
        let (mut total, mut skip, mut keep) = (0, 0, 0);
        let mut places = Vec::new();
        for (i, batch) in self.batches.iter().enumerate() {
            self.total(at, i)?;
            let wanted = self.before(at, i, batch.range.start)..self.before(at, i, batch.range.end);
            let Some((layer, number)) = stream.at[i] else {
                // A bool that the batch does not have is false; of anything else the batch has no values.
                let zeros = if self.filled(stream) { wanted.len() * width } else { 0 };
                places.push(Place { batch: i, stripe: None, bytes: zeros });
                total += zeros;
                keep += zeros;
                continue;
            };
            let (stripes, each) = self.stripes(stream, batch, layer, number);
            for stripe in stripes {
                let from = u64::from(stripe) * each;
                let own = self.before(at, i, from)..self.before(at, i, batch.events.min(from + each));
                places.push(Place { batch: i, stripe: Some(stripe), bytes: own.len() * width });
                total += own.len() * width;
                skip += (wanted.start.clamp(own.start, own.end) - own.start) * width * usize::from(i == 0);
            }
            keep += wanted.len() * width;
        }
        Ok((total, skip, keep, places))
    }

    /// Whether a stream that a batch does not have is filled with zeros.
    fn filled(&self, stream: &Stream) -> bool {
        self.view.products[stream.column].product.ty == Type::Value(Scalar::Bool)
    }

    /// Offsets or an index, of all batches together.
    fn joined(&self, at: usize) -> Part {
        let stream = &self.streams[at];
        let mut all: Vec<i64> = Vec::new();
        let mut base = 0;
        let present = stream.node.role == Role::Present;
        if !present {
            all.push(0);
        }
        for (i, batch) in self.batches.iter().enumerate() {
            let own = self.before(at, i, batch.range.start)..self.before(at, i, batch.range.end);
            let sums = &self.sums[at][i];
            if stream.at[i].is_none() && !(present && stream.parent.is_none()) {
                continue;
            }
            let first = sums[own.start];
            if present {
                let one = |pair: &[i64]| if pair[1] > pair[0] { base + pair[0] - first } else { -1 };
                all.extend(sums[own.start..=own.end].windows(2).map(one));
            } else {
                all.extend(sums[own.start + 1..=own.end].iter().map(|sum| base + sum - first));
            }
            base += sums[own.end] - first;
        }
        if present { Part::Index(Arc::new(all)) } else { Part::Offsets(Arc::new(all)) }
    }

    /// A column of its streams.
    fn column(&self, known: &Known, streams: &[usize], parts: &[Part]) -> Column {
        let ty = known.shown();
        let nothing = || Part::Values { buffer: Arc::default(), start: 0, len: 0 };
        let mut own: Vec<Part> = streams.iter().map(|&at| parts.get(at).cloned().unwrap_or_else(nothing)).collect();
        let events = self.batches.iter().map(|batch| batch.range.end - batch.range.start).sum();
        if ty != known.product.ty {
            // The column is missing in some batches: an option around all of it.
            let mut index = Vec::new();
            let mut next = 0;
            for batch in &self.batches {
                let has = known.layer(batch.number).is_some();
                for _ in batch.range.clone() {
                    index.push(if has { next } else { -1 });
                    next += i64::from(has);
                }
            }
            own.insert(0, Part::Index(Arc::new(index)));
        }
        Column { ty, events, parts: own }
    }

    fn damaged(&self, column: usize, batch: u32, layer: usize, why: &str) -> Error {
        let name = &self.view.products[column].product.name;
        let layer = &self.view.layers[layer];
        Error::corrupt(format!(
            "{}: column {name}, batch {batch}, below w/{}: {why}",
            self.shared.storage.url(),
            layer.prefix
        ))
    }

    fn damaged_object(&self, batch: u32, layer: usize, why: &str) -> Error {
        let prefix = &self.view.layers[layer].prefix;
        Error::corrupt(format!("{}: batch {batch}, below w/{prefix}: {why}", self.shared.storage.url()))
    }
}

/// Memory of a stripe.
struct Place {
    batch: usize,
    /// None: zeros.
    stripe: Option<u32>,
    bytes: usize,
}
