//! The manifest of a run: which objects count.
//!
//! ```text
//! line: forebay-archive 1 BYTES CRC32C | JSON of this many bytes
//! ```
//!
//! *Invariants*: written on the condition that it is still what was read, so no entry is lost between two movers; each part of
//! a unit is named once ([`Manifest::done_of`]).

use crate::framed;
use crate::object::Contents;
use bytes::Bytes;
use forebay_core::{Error, Filling, Primary, Result, Unit};
use serde::{Deserialize, Serialize};

pub(crate) const WORD: &str = "forebay-archive";
pub(crate) const VERSION: u32 = 1;
/// Longest manifest: some 300,000 objects.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// An object that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestObject {
    /// Its name, below the archive's place.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// Adler-32 of all its bytes, eight hexadecimal digits.
    pub adler32: String,
    /// MD5 of all its bytes, where the mover was asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub md5: Option<String>,
    /// Its stream.
    pub stream: String,
    /// What it holds.
    #[serde(flatten)]
    pub contents: Contents,
    /// The lowest and the highest of its events.
    pub first: Primary,
    /// The highest one.
    pub last: Primary,
    /// Lowest and highest value of the attribute `lumi`, where its events have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lumi: Option<(u64, u64)>,
    /// Identity of the store that it came from.
    pub store: String,
    /// What its mover had claimed there.
    pub unit: Unit,
    /// Events of the unit that were looked at for it: the first one, and the one after the last.
    pub of_unit: (u64, u64),
    /// When it was written, in milliseconds since 1970.
    pub written_ms: u64,
}

/// All objects of a run that count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The run.
    pub run: u64,
    /// Name of the keyspace.
    pub keyspace: String,
    /// Its objects, in the order in which they were proved.
    pub objects: Vec<ManifestObject>,
}

impl Manifest {
    /// The manifest as bytes.
    ///
    /// # Errors
    /// `Full` where it is larger than a manifest may be.
    pub fn encode(&self) -> Result<Bytes> {
        let json = serde_json::to_vec(self).map_err(|error| Error::internal("a manifest").with_source(error))?;
        if json.len() as u64 > MANIFEST_BYTES_MAX - 128 {
            return Err(Error::full(format!("run {} has too many objects for one manifest", self.run)));
        }
        Ok(framed::encode(WORD, VERSION, &json))
    }

    /// Reads the manifest of a run.
    ///
    /// # Errors
    /// `Invalid` where it is none or of another version, `Corrupt` where it does not verify, or is another run's.
    pub fn decode(bytes: &[u8], run: u64) -> Result<Manifest> {
        let json = framed::decode(WORD, VERSION, bytes, &format!("the manifest of run {run}"))?;
        let corrupt = |what: &str| Error::corrupt(format!("the manifest of run {run} {what}"));
        let manifest: Manifest =
            serde_json::from_slice(json).map_err(|error| corrupt(&format!("is not understood: {error}")))?;
        if manifest.run != run {
            return Err(corrupt(&format!("is that of run {}", manifest.run)));
        }
        // Hands that wrote a manifest with a right checksum may have written any name into it.
        let foreign = manifest.objects.iter().find(|object| !object.name.starts_with(&folder_of(run)));
        if let Some(object) = foreign {
            return Err(corrupt(&format!("names `{}`, which is no object of the run", object.name)));
        }
        Ok(manifest)
    }

    /// Events that the objects of a unit have, those in several streams once for each, and up to which event of it they reach.
    #[must_use]
    pub fn extent_of(&self, store: &str, unit: &Unit) -> (u64, u64) {
        let objects = self.of_unit(store, unit);
        objects.fold((0, 0), |(events, end), object| (events + object.contents.events, end.max(object.of_unit.1)))
    }

    fn of_unit(&self, store: &str, unit: &Unit) -> impl Iterator<Item = &ManifestObject> {
        self.objects.iter().filter(move |object| object.store == store && object.unit == *unit && *unit != Unit::Batch)
    }

    /// An object of a later filling of the unit's container, or of another one of its generation: the store that names this unit was
    /// set back.
    #[must_use]
    pub fn ahead_of(&self, store: &str, unit: &Unit) -> Option<&ManifestObject> {
        let Unit::Container { container, generation, filling, .. } = unit else { return None };
        self.objects.iter().find(|object| {
            let Unit::Container { container: of, generation: count, filling: name, .. } = &object.unit else {
                return false;
            };
            // Without a name it may be this one: an earlier version wrote none.
            let is_other = count > generation || count == generation && name != filling && *name != Filling::default();
            object.store == store && of == container && is_other
        })
    }

    /// Up to which event of a unit of a store the objects of a stream count: from there another mover goes on.
    #[must_use]
    pub fn done_of(&self, store: &str, unit: &Unit, stream: &str) -> u64 {
        let objects = self.of_unit(store, unit).filter(|object| object.stream == stream);
        objects.map(|object| object.of_unit.1).max().unwrap_or(0)
    }
}

/// The folder of a run's objects, below the archive's place.
#[must_use]
pub fn folder_of(run: u64) -> String {
    format!("run-{run}/")
}

/// The name of a run's manifest, below the archive's place.
#[must_use]
pub fn manifest_of(run: u64) -> String {
    format!("run-{run}/manifest")
}
