//! Checksums of the objects of a dataset: Adler-32 and SHA-256, as Rucio has them of files.
//!
//! Objects are grouped by layer. A layer never changes, so a later version refers to the blobs of earlier ones, and only the
//! objects of its own layers are read. Objects of other datasets that it refers to have their checksums in the entries of those.

use super::blob;
use super::entry::{Checksum, Entry};
use super::layout::{AT_ONCE, Blob, hex};
use crate::frame::{self, Magic};
use crate::read::LayerObjects;
use crate::root::runs;
use crate::storage::{Part, Storage};
use crate::{Dataset, parallel};
use forebay_core::{Error, Result, crc32c_append};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

/// Objects in one blob of checksums, about 4 MB of it.
const BLOB_OBJECTS: usize = 100_000;
/// An object is read in slices of these bytes, so that `AT_ONCE` of them fit into memory however large objects are.
const SLICE_BYTES: u64 = 8 << 20;
/// Adler-32: the largest prime below 2^16, and the additions that cannot overflow 32 bits in between.
const ADLER_PRIME: u32 = 65_521;
const ADLER_RUN: usize = 5552;

/// Checksums of the objects of one layer, or of a part of them: a list per field.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct LayerSums {
    /// Number of the layer in the dataset's root.
    layer: u32,
    /// Its place; empty: the dataset's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    place: String,
    /// The prefix of its writer, and the number of its first directory object: which layer it is, whatever its number.
    prefix: String,
    directory: u32,
    numbers: Vec<u32>,
    bytes: Vec<u64>,
    adler32: Vec<u32>,
    /// 64 hexadecimal digits of each object.
    sha256: String,
}

/// What identifies a layer.
type Identity = (u32, String, String, u32);

impl LayerSums {
    fn identity(&self) -> Identity {
        (self.layer, self.place.clone(), self.prefix.clone(), self.directory)
    }

    /// The objects with their checksums, or none where the lists do not fit each other.
    fn objects(&self) -> Option<impl Iterator<Item = Checksum> + '_> {
        let n = self.numbers.len();
        let digits = self.sha256.len() == n * 64 && self.sha256.is_ascii();
        if !digits || self.bytes.len() != n || self.adler32.len() != n {
            return None;
        }
        Some((0..n).map(|at| Checksum {
            place: self.place.clone(),
            name: crate::root::object(&self.prefix, self.numbers[at]),
            bytes: self.bytes[at],
            adler32: format!("{:08x}", self.adler32[at]),
            sha256: self.sha256[at * 64..][..64].to_owned(),
        }))
    }
}

/// What identifies a layer; none: its objects are another dataset's, whose own entry has their checksums, or it has none.
fn identity(layer: &LayerObjects) -> Option<Identity> {
    if !layer.owner.is_empty() {
        return None;
    }
    Some((layer.layer, layer.place.clone(), layer.prefix.clone(), layer.directory?))
}

/// An object to read.
struct Work<'a> {
    layer: &'a LayerObjects,
    number: u32,
    bytes: u64,
    magic: Magic,
}

/// Fills in the checksums of an entry: those of layers that `earlier`, an entry of the same dataset, has already are taken from there.
/// `progress` hears bytes read, and bytes in all.
pub(super) fn fill(
    storage: &dyn Storage,
    dataset: &Dataset,
    earlier: Option<&Entry>,
    entry: &mut Entry,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let layers = dataset.layer_numbers();
    let own: HashSet<Identity> = layers.iter().filter_map(|&layer| identity(&dataset.layer_identity(layer))).collect();
    let mut known: HashSet<Identity> = HashSet::new();
    for blob in earlier.iter().flat_map(|earlier| &earlier.checksum_blobs) {
        // A blob with nothing of this version, such as that of a column that was replaced, is not named again.
        let groups: Vec<LayerSums> = blob::read(storage, blob)?;
        let mut useful = false;
        for group in groups.iter().filter(|group| own.contains(&group.identity())) {
            useful = true;
            entry.objects += group.numbers.len() as u64;
            entry.bytes += group.bytes.iter().sum::<u64>();
            known.insert(group.identity());
        }
        if useful {
            entry.checksum_blobs.push(blob.clone());
        }
    }
    let new = dataset.layer_objects(&|layer| identity(layer).is_some_and(|identity| !known.contains(&identity)))?;
    let (sums, bytes) = sum_all(dataset, &new, progress)?;
    entry.objects += sums.iter().map(|group| group.numbers.len() as u64).sum::<u64>();
    entry.bytes += bytes;
    let mut rest = sums.as_slice();
    while !rest.is_empty() {
        let mut objects = 0;
        let full = rest.iter().position(|group| {
            objects += group.numbers.len();
            objects > BLOB_OBJECTS
        });
        let (now, later) = rest.split_at(full.unwrap_or(rest.len()).max(1));
        entry.checksum_blobs.push(blob::put(storage, &now)?);
        rest = later;
    }
    entry.layers = runs(layers);
    let (root, _) = dataset.root_object()?;
    let mut sum = Sum::default();
    sum.add(&root);
    let (adler32, sha256) = sum.end();
    let name = crate::root::NAME.to_owned();
    entry.root = Some(Checksum {
        place: String::new(),
        name,
        bytes: root.len() as u64,
        adler32: format!("{adler32:08x}"),
        sha256,
    });
    Ok(())
}

/// The objects of a layer.
fn works(layer: &LayerObjects) -> impl Iterator<Item = Work<'_>> {
    let directories = layer.directories.iter().map(|(&number, &bytes)| (number, bytes, Magic::Directories));
    let stripes = layer.stripes.iter().map(|(&number, &bytes)| (number, bytes, Magic::Stripes));
    directories.chain(stripes).map(move |(number, bytes, magic)| Work { layer, number, bytes, magic })
}

/// Checksums of all objects of these layers, in groups of at most [`BLOB_OBJECTS`], and their bytes.
fn sum_all(
    dataset: &Dataset,
    layers: &[LayerObjects],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Vec<LayerSums>, u64)> {
    let all: u64 = layers.iter().flat_map(works).map(|work| work.bytes).sum();
    let (mut groups, mut done) = (Vec::new(), 0);
    for layer in layers {
        let storage = dataset.layer_storage(layer.layer)?.as_ref();
        let works: Vec<Work<'_>> = works(layer).collect();
        for part in works.chunks(BLOB_OBJECTS) {
            let Some(directory) = layer.directory else { break };
            let (place, prefix) = (layer.place.clone(), layer.prefix.clone());
            let mut group = LayerSums { layer: layer.layer, place, prefix, directory, ..LayerSums::default() };
            for together in part.chunks(AT_ONCE * 4) {
                let sums = parallel::map(AT_ONCE, together.iter().collect(), |work| sum_object(storage, work));
                for (work, sum) in together.iter().zip(sums) {
                    let (adler32, sha256) = sum?;
                    group.numbers.push(work.number);
                    group.bytes.push(work.bytes);
                    group.adler32.push(adler32);
                    group.sha256.push_str(&sha256);
                    done += work.bytes;
                }
                progress(done, all);
            }
            groups.push(group);
        }
    }
    Ok((groups, done))
}

/// Checksums of one object, which must be whole: a catalogue never vouches for bytes that were damaged before.
fn sum_object(storage: &dyn Storage, work: &Work<'_>) -> Result<(u32, String)> {
    let name = work.layer.name(work.number);
    let what = format!("{name} of {}", storage.url());
    let mut sum = Sum::default();
    if work.bytes <= SLICE_BYTES {
        let Some((object, _)) = storage.get(&name, work.bytes)? else {
            return Err(Error::corrupt(format!("{what}: it is not there")));
        };
        frame::body(work.magic, &object, &what)?;
        if object.len() as u64 != work.bytes {
            return Err(Error::corrupt(format!("{what}: {} bytes, not {}", object.len(), work.bytes)));
        }
        sum.add(&object);
        return Ok(sum.end());
    }
    let (mut start, mut body_sum, mut head) = (0, 0, Vec::new());
    while start < work.bytes {
        let end = work.bytes.min(start + SLICE_BYTES);
        let parts = storage.parts(&[Part { name: name.clone(), range: start..end }])?;
        let slice = parts.first().map_or(&[][..], |part| part.as_ref());
        let skip = if start == 0 { frame::HEAD } else { 0 };
        head.extend_from_slice(&slice[..skip]);
        body_sum = crc32c_append(body_sum, &slice[skip..]);
        sum.add(slice);
        start = end;
    }
    if head != frame::head_of(work.magic, work.bytes - frame::HEAD as u64, body_sum) {
        return Err(Error::corrupt(format!("{what}: it is not what its head says")));
    }
    Ok(sum.end())
}

/// The checksums of an entry: the root first, then the objects of its layers.
pub(super) fn read(storage: &dyn Storage, entry: &Entry) -> Result<Vec<Checksum>> {
    let own = |layer: u32| entry.layers.iter().any(|&(first, n)| (first..first.saturating_add(n)).contains(&layer));
    // By place and name: an object is listed once.
    let mut all: BTreeMap<(String, String), Checksum> = BTreeMap::new();
    for blob in &entry.checksum_blobs {
        let groups: Vec<LayerSums> = blob::read(storage, blob)?;
        for group in groups.iter().filter(|group| own(group.layer)) {
            let objects = group.objects().ok_or_else(|| corrupt(storage, blob))?;
            all.extend(objects.map(|sum| ((sum.place.clone(), sum.name.clone()), sum)));
        }
    }
    Ok(entry.root.iter().cloned().chain(all.into_values()).collect())
}

fn corrupt(storage: &dyn Storage, blob: &Blob) -> Error {
    Error::corrupt(format!("{} of {}: its lists of checksums do not fit each other", blob.name(), storage.url()))
}

/// Both checksums of bytes that come in slices.
struct Sum {
    a: u32,
    b: u32,
    sha256: Context,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum { a: 1, b: 0, sha256: Context::new(&SHA256) }
    }
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        for run in bytes.chunks(ADLER_RUN) {
            for &byte in run {
                self.a += u32::from(byte);
                self.b += self.a;
            }
            self.a %= ADLER_PRIME;
            self.b %= ADLER_PRIME;
        }
        self.sha256.update(bytes);
    }

    fn end(self) -> (u32, String) {
        (self.b << 16 | self.a, hex(self.sha256.finish().as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_that_others_compute() {
        let of = |bytes: &[u8]| {
            let mut sum = Sum::default();
            bytes.chunks(1000).for_each(|slice| sum.add(slice));
            sum.end()
        };
        // RFC 1950 by way of zlib.adler32, and sha256sum.
        assert_eq!(of(b"").0, 1);
        let (adler32, sha256) = of(b"Wikipedia");
        assert_eq!(adler32, 0x11e6_0398);
        assert_eq!(hex(ring::digest::digest(&SHA256, b"Wikipedia").as_ref()), sha256);
        // The largest sums: zlib.adler32(b"\xff" * 1000000).
        assert_eq!(of(&[0xff; 1_000_000]).0, 0x3843_e1be);
    }
}
