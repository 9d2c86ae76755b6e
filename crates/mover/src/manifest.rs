//! The manifest of a run: which objects count.
//!
//! ```text
//! line: forebay-archive 1 BYTES CRC32C | JSON of this many bytes
//! ```
//!
//! *Invariants*: written on the condition that it is still what was read, so no entry is lost between two movers; each part of
//! a unit is named once ([`Manifest::done_of`]).

use crate::object::Contents;
use bytes::Bytes;
use forebay_core::{Error, Primary, Result, Unit, crc32c};
use serde::{Deserialize, Serialize};

const WORD: &str = "forebay-archive";
const VERSION: u32 = 1;
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
        Ok(Manifest::framed(&json))
    }

    /// The line that says what this JSON is, and the JSON.
    pub(crate) fn framed(json: &[u8]) -> Bytes {
        let mut bytes = format!("{WORD} {VERSION} {} {:08x}\n", json.len(), crc32c(json)).into_bytes();
        bytes.extend_from_slice(json);
        bytes.into()
    }

    /// Reads the manifest of a run.
    ///
    /// # Errors
    /// `Invalid` where it is none or of another version, `Corrupt` where it does not verify, or is another run's.
    pub fn decode(bytes: &[u8], run: u64) -> Result<Manifest> {
        let end = bytes.iter().take(128).position(|byte| *byte == b'\n');
        let line = end.and_then(|end| std::str::from_utf8(&bytes[..end]).ok()).unwrap_or_default();
        let mut words = line.split(' ');
        if words.next() != Some(WORD) {
            return Err(Error::invalid(format!("run {run}: no manifest of an archive of Forebay")));
        }
        let version = words.next().unwrap_or_default();
        if version != VERSION.to_string() {
            return Err(Error::invalid(format!("a manifest of version {version}; this build reads version {VERSION}")));
        }
        let corrupt = |what: &str| Error::corrupt(format!("the manifest of run {run} {what}"));
        let length = words.next().and_then(|word| word.parse::<usize>().ok());
        let crc = words.next().and_then(|word| u32::from_str_radix(word, 16).ok());
        let json = &bytes[end.unwrap_or_default() + 1..];
        if length != Some(json.len()) || crc != Some(crc32c(json)) || words.next().is_some() {
            return Err(corrupt("does not verify"));
        }
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

    /// Up to which event of a unit of a store the objects of a stream count: from there another mover goes on.
    #[must_use]
    pub fn done_of(&self, store: &str, unit: &Unit, stream: &str) -> u64 {
        if *unit == Unit::Batch {
            return 0;
        }
        let same = |object: &&ManifestObject| object.store == store && object.unit == *unit && object.stream == stream;
        self.objects.iter().filter(same).map(|object| object.of_unit.1).max().unwrap_or(0)
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
