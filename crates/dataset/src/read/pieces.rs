//! Directories and stored bytes of what is read: fetched once, together, and checked.

use super::Shared;
use super::view::{LayerView, TableView};
use crate::directory::{self, Directory, Entry, Piece};
use crate::root::object;
use crate::storage::{Part, Storage};
use crate::{Scalar, parallel};
use bytes::Bytes;
use forebay_core::{Error, Result};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Directories that were fetched, by layer of the root and batch.
#[derive(Debug, Default)]
pub(super) struct Directories {
    loaded: HashMap<(usize, u32), Arc<Loaded>>,
    entries: usize,
}

/// Entries that are kept, of about 40 bytes each; when they are more, all are dropped.
const ENTRIES_IN_ALL: usize = 4 << 20;

impl Directories {
    fn keep(&mut self, key: (usize, u32), loaded: &Arc<Loaded>) {
        let entries = loaded.directory.entries.len();
        if self.entries + entries > ENTRIES_IN_ALL {
            *self = Directories::default();
        }
        if self.loaded.insert(key, Arc::clone(loaded)).is_none() {
            self.entries += entries;
        }
    }
}

/// Small pieces that were fetched: counts are asked for again by each column of a collection that is read by itself.
#[derive(Debug, Default)]
pub(super) struct Small {
    pieces: HashMap<(usize, u32, Piece), Bytes>,
    bytes: usize,
}

/// Pieces that are kept have at most this many bytes; stored counts of a full batch do.
const SMALL: u64 = 64 << 10;
/// Bytes that are kept; when they are more, all are dropped.
const SMALL_IN_ALL: usize = 16 << 20;

impl Small {
    fn keep(&mut self, key: (usize, u32, Piece), bytes: &Bytes) {
        if key.2.len > SMALL {
            return;
        }
        if self.bytes + bytes.len() > SMALL_IN_ALL {
            *self = Small::default();
        }
        // A copy: the memory of a whole request would stay otherwise.
        if self.pieces.insert(key, Bytes::copy_from_slice(bytes)).is_none() {
            self.bytes += bytes.len();
        }
    }
}

/// The directory of a batch, checked against its layer.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) directory: Directory,
    /// First entry of each stream, and the number of entries.
    first: Vec<u32>,
    pub(super) events: u64,
}

/// Where the bytes of a stripe are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// In the directory.
    Inline { start: u32, len: u32 },
    /// In an object.
    Stored(Piece),
    /// A row of a group of bools.
    Row { group: u32, row: u32 },
}

impl Loaded {
    /// Where a stripe of a stream is, and the stream whose bytes it shares.
    pub(super) fn source(&self, stream: u32, stripe: u32) -> Option<(u32, Source)> {
        let first = *self.first.get(stream as usize)?;
        let entry = *self.directory.entries.get((first + stripe) as usize)?;
        let (stream, entry) = match entry {
            // The stream that is repeated has bytes of its own, which was checked when the directory was loaded.
            Entry::Same { stream: other } => {
                (other, *self.directory.entries.get(*self.first.get(other as usize)? as usize)?)
            }
            entry => (stream, entry),
        };
        let source = match entry {
            Entry::Inline { start, len } => Source::Inline { start, len },
            Entry::Stored(piece) => Source::Stored(piece),
            Entry::Row { group, row } => Source::Row { group, row },
            Entry::Same { .. } => return None,
        };
        Some((stream, source))
    }

    /// Whether the directory fits its layer: what it refers to exists, and has the same width.
    fn fits(&self, layer: &LayerView) -> bool {
        let entries = &self.directory.entries;
        if self.first.last() != Some(&(entries.len() as u32)) {
            return false;
        }
        for (stream, &(scalar, shift)) in layer.streams.iter().enumerate() {
            let (from, to) = (self.first[stream] as usize, self.first[stream + 1] as usize);
            for entry in &entries[from..to] {
                let fits = match entry {
                    Entry::Same { stream: other } => {
                        let at = *other as usize;
                        at < stream
                            && shift == 0
                            && layer.streams[at].1 == 0
                            && layer.streams[at].0.width() == scalar.width()
                            && !matches!(entries[self.first[at] as usize], Entry::Same { .. })
                    }
                    Entry::Row { .. } => shift == 0 && scalar == Scalar::Bool,
                    _ => true,
                };
                if !fits {
                    return false;
                }
            }
        }
        true
    }
}

/// The directories of these layers (places in the table's view) and batches.
pub(super) fn directories(
    shared: &Shared,
    view: &TableView,
    wanted: &BTreeSet<(usize, u32)>,
) -> Result<HashMap<(usize, u32), Arc<Loaded>>> {
    let mut found = HashMap::new();
    // Directory objects that are not in memory: place, layer, its place in the layer's list, first batch in it.
    let mut missing: BTreeSet<(u32, usize, usize, u32)> = BTreeSet::new();
    {
        let cache = shared.directories.lock().map_err(|_| Error::internal("a thread panicked with the directories"))?;
        for &(at, batch) in wanted {
            let layer = &view.layers[at];
            match cache.loaded.get(&(layer.number, batch)) {
                Some(loaded) => drop(found.insert((at, batch), Arc::clone(loaded))),
                None => {
                    let (number, first) = bundle_of(shared, layer, batch).ok_or_else(|| {
                        Error::corrupt(format!("{}: no directory of batch {batch}", shared.storage.url()))
                    })?;
                    missing.insert((layer.place, at, number, first));
                }
            }
        }
    }
    let missing: Vec<_> = missing.into_iter().collect();
    for of_place in missing.chunk_by(|a, b| a.0 == b.0) {
        let storage = shared.place(of_place[0].0)?;
        let part = |&(_, at, number, _): &(u32, usize, usize, u32)| {
            let layer = &shared.root.layers[view.layers[at].number];
            let bytes = u64::from(layer.directories.bytes[number]);
            Part { name: object(&layer.prefix, layer.directories.object[number]), range: 0..bytes }
        };
        let parts: Vec<Part> = of_place.iter().map(part).collect();
        let fetched = storage.parts(&parts)?;
        let work: Vec<_> = of_place.iter().zip(&parts).zip(fetched).collect();
        let decoded = parallel::map(shared.threads, work, |((&(_, at, _, first), part), bytes)| {
            let what = format!("{} of {}", part.name, storage.url());
            decode(view, at, first, &bytes, &what)
        });
        let mut cache =
            shared.directories.lock().map_err(|_| Error::internal("a thread panicked with the directories"))?;
        for bundle in decoded {
            for (at, batch, loaded) in bundle? {
                cache.keep((view.layers[at].number, batch), &loaded);
                found.insert((at, batch), loaded);
            }
        }
    }
    Ok(found)
}

/// The directory object that has a batch: its place in the layer's list, and its first batch.
fn bundle_of(shared: &Shared, layer: &LayerView, batch: u32) -> Option<(usize, u32)> {
    let mut first = layer.first_batch;
    for (number, &batches) in shared.root.layers[layer.number].directories.batches.iter().enumerate() {
        let next = first.checked_add(batches)?;
        if (first..next).contains(&batch) {
            return Some((number, first));
        }
        first = next;
    }
    None
}

/// The directories in an object.
fn decode(
    view: &TableView,
    at: usize,
    first: u32,
    object: &[u8],
    what: &str,
) -> Result<Vec<(usize, u32, Arc<Loaded>)>> {
    let layer = &view.layers[at];
    let mut loaded = Vec::new();
    for (batch, bytes) in (first..).zip(directory::unbundle(object, &what)?) {
        // A version with fewer batches than the layer reads only its own.
        let Some(pair) = view.starts.get(batch as usize..batch as usize + 2) else { break };
        let events = pair[1] - pair[0];
        let first = layer.first_entries(events);
        let entries = first.last().copied().unwrap_or(0) as usize;
        let one = Loaded { directory: Directory::decode(bytes, entries, &what)?, first, events };
        if !one.fits(layer) {
            return Err(Error::corrupt(format!("{what}: the directory of batch {batch} does not fit its layer")));
        }
        loaded.push((at, batch, Arc::new(one)));
    }
    Ok(loaded)
}

/// A stored piece of a layer: the key of what is fetched once.
pub(super) type Wanted = (usize, u32, Piece);

/// Name of the object that a piece of a batch is in.
fn name(layer: &LayerView, loaded: &Loaded, piece: &Piece) -> String {
    object(&layer.prefix, loaded.directory.number(piece.object))
}

/// The bytes of these pieces, in their order; requests go to all places at once that one storage can take.
pub(super) fn fetch(
    shared: &Shared,
    view: &TableView,
    loaded: &HashMap<(usize, u32), Arc<Loaded>>,
    wanted: &[Wanted],
) -> Result<Vec<Bytes>> {
    let mut by_place: HashMap<u32, Vec<usize>> = HashMap::new();
    let mut all = vec![Bytes::new(); wanted.len()];
    let small = || shared.small.lock().map_err(|_| Error::internal("a thread panicked with the small pieces"));
    {
        let small = small()?;
        for (i, &(at, batch, piece)) in wanted.iter().enumerate() {
            match small.pieces.get(&(view.layers[at].number, batch, piece)) {
                Some(bytes) => all[i] = bytes.clone(),
                None => by_place.entry(view.layers[at].place).or_default().push(i),
            }
        }
    }
    for (place, of_place) in by_place {
        let parts: Vec<Part> = of_place
            .iter()
            .map(|&i| {
                let (at, batch, piece) = wanted[i];
                let name = name(&view.layers[at], &loaded[&(at, batch)], &piece);
                Part { name, range: piece.offset..piece.offset + piece.len }
            })
            .collect();
        let storage: &Arc<dyn Storage> = shared.place(place)?;
        let fetched = storage.parts(&parts)?;
        let mut small = small()?;
        for (i, bytes) in of_place.into_iter().zip(fetched) {
            let (at, batch, piece) = wanted[i];
            // What does not verify may be right when it is fetched again.
            if piece.verify(&bytes) {
                small.keep((view.layers[at].number, batch, piece), &bytes);
            }
            all[i] = bytes;
        }
    }
    Ok(all)
}

/// Stored bytes of each product, of all batches.
pub(super) fn stored_bytes(shared: &Shared, view: &TableView) -> Result<Vec<u64>> {
    let batches = view.starts.len() as u32 - 1;
    let mut wanted = BTreeSet::new();
    for known in &view.products {
        for (range, layer, _) in &known.layers {
            wanted.extend((range.start..range.end.min(batches)).map(|batch| (*layer, batch)));
        }
    }
    let loaded = directories(shared, view, &wanted)?;
    let mut bytes = vec![0; view.products.len()];
    for (known, bytes) in view.products.iter().zip(&mut bytes) {
        for (range, layer, first) in &known.layers {
            for batch in range.start..range.end.min(batches) {
                let loaded = &loaded[&(*layer, batch)];
                let from = loaded.first[*first as usize] as usize;
                let to = loaded.first[*first as usize + known.nodes.len()] as usize;
                for entry in &loaded.directory.entries[from..to] {
                    *bytes += match entry {
                        Entry::Stored(piece) => piece.len,
                        Entry::Inline { len, .. } => u64::from(*len),
                        // A group's bytes are those of its rows.
                        Entry::Row { group, .. } => {
                            let (piece, rows) = loaded.directory.groups[*group as usize];
                            piece.len / u64::from(rows.max(1))
                        }
                        Entry::Same { .. } => 0,
                    };
                }
            }
        }
    }
    Ok(bytes)
}
