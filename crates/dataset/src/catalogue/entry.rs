//! An entry: what a catalogue says of one version of a dataset. What is large is in blobs that it refers to.

use super::layout::{Blob, is_hex};
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Longest scope and name, as in Rucio.
const SCOPE_BYTES_MAX: usize = 25;
const NAME_BYTES_MAX: usize = 250;

/// What a catalogue says of one version of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// `scope:name`, as in Rucio.
    pub name: String,
    /// Where the dataset is.
    pub url: String,
    /// Names the dataset for ever, wherever it is.
    pub uuid: String,
    /// Which version of it.
    pub version: u32,
    /// When the version was committed, milliseconds since 1970.
    pub time_ms: u64,
    /// What made the version.
    pub note: String,
    /// Its tables; events first.
    pub tables: Vec<Table>,
    /// Classes of service that its objects are in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Datasets that it was made from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<Parent>,
    /// Tags: `software`, `conditions` and any others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Objects with checksums, and their bytes.
    #[serde(default)]
    pub objects: u64,
    /// Bytes of these objects.
    #[serde(default)]
    pub bytes: u64,
    /// How many source files it names.
    #[serde(default)]
    pub files: u64,
    /// How many lumi sections it has.
    #[serde(default)]
    pub lumis: u64,
    /// First and last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<(u64, u64)>,
    /// Layers of the dataset's root that the version has, as runs (first, how many): which checksums are its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<(u32, u32)>,
    /// The root as it was when the version was published; each later version replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Checksum>,
    /// Names and types of columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns_blob: Option<Blob>,
    /// Lumi sections by run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lumis_blob: Option<Blob>,
    /// Source files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_blob: Option<Blob>,
    /// Checksums of objects; a later version refers to those of earlier ones and adds its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checksum_blobs: Vec<Blob>,
    /// What later programs say: kept, so that a page that this program writes does not lose it.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// A table of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its events.
    pub events: u64,
    /// Its products.
    pub products: u64,
}

/// A dataset that another one was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Parent {
    /// Names the dataset.
    pub uuid: String,
    /// Which version, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
}

/// A file that a dataset was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Its name, as the importer was told.
    pub name: String,
    /// The GUID in the file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub guid: String,
    /// Events that came from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
}

/// Names and types of a table's columns, in lists of equal length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Columns {
    /// The table.
    pub table: String,
    /// Names.
    pub names: Vec<String>,
    /// Types, as readers get them.
    pub types: Vec<String>,
}

/// Checksums of an object, as Rucio has them of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Checksum {
    /// Where the object is; empty: the dataset's own place.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// Its name there.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// Adler-32, 8 hexadecimal digits.
    pub adler32: String,
    /// SHA-256, 64 hexadecimal digits.
    pub sha256: String,
}

impl Entry {
    /// Events of the first table.
    pub fn events(&self) -> u64 {
        self.tables.first().map_or(0, |table| table.events)
    }

    /// The blobs that it refers to.
    pub(super) fn blobs(&self) -> impl Iterator<Item = &Blob> {
        [&self.columns_blob, &self.lumis_blob, &self.files_blob].into_iter().flatten().chain(&self.checksum_blobs)
    }

    /// Refuses an entry that cannot be: what is read from a catalogue is used as a name or as a size.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        check_name(&self.name).map_err(|error| error.message().to_owned())?;
        if !is_hex(&self.uuid, 32) {
            return Err(format!("{:?} is no UUID", self.uuid));
        }
        match self.blobs().find(|blob| !blob.is_valid()) {
            Some(blob) => Err(format!("{:?} with {} bytes is no blob", blob.sha256, blob.bytes)),
            None => Ok(()),
        }
    }
}

/// Refuses what is no name of a dataset: `scope:name`, as Rucio has it, with the characters of CMS's names too.
pub(super) fn check_name(name: &str) -> Result<()> {
    let of_scope = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let of_name = |byte: u8| of_scope(byte) || matches!(byte, b'/' | b'#' | b'+' | b'=' | b':' | b'@');
    let fits =
        |part: &str, max: usize, of: &dyn Fn(u8) -> bool| (1..=max).contains(&part.len()) && part.bytes().all(of);
    match name.split_once(':') {
        Some((scope, rest)) if fits(scope, SCOPE_BYTES_MAX, &of_scope) && fits(rest, NAME_BYTES_MAX, &of_name) => {
            Ok(())
        }
        _ => Err(Error::invalid(format!(
            "{name:?} is no name of a dataset: it is scope:name, such as cms:/DoubleMuon/Run2024/NANOAOD; a scope has at most \
             {SCOPE_BYTES_MAX} letters, digits, '-', '_' and '.', a name at most {NAME_BYTES_MAX} of them and of '/#+=:@'"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_scope() {
        for name in
            ["user.ann:z_peak", "cms:/DoubleMuon/Run2024C-v1/NANOAOD#block", "mc23_13p6TeV:mc23.DAOD_PHYSLITE.e8514"]
        {
            check_name(name).unwrap();
        }
        for name in [
            "",
            "name",
            ":name",
            "scope:",
            "a b:c",
            "a:b c",
            "a:*",
            "a:b\u{1b}[2J",
            "ä:b",
            &format!("{}:x", "s".repeat(26)),
        ] {
            assert_eq!(check_name(name).unwrap_err().kind(), forebay_core::Kind::Invalid, "{name:?}");
        }
    }
}
