//! Names, limits and frames of the objects of a catalogue; `docs/format-catalogue.md` has the bytes.

use crate::frame::{self, Magic};
use crate::storage::{Storage, Tag};
use forebay_core::{Error, Kind, Result};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// Changes between two pages. A reader takes one page and fewer changes than this.
pub(super) const PAGE_CHANGES: u64 = 64;
/// A change is not larger: what may be large is in blobs.
pub(super) const CHANGE_BYTES_MAX: u64 = 1 << 20;
/// A blob or a page is not larger, as it is stored.
pub(super) const OBJECT_BYTES_MAX: u64 = 64 << 20;
/// The same in memory, as JSON.
pub(super) const JSON_BYTES_MAX: usize = 512 << 20;
/// The hint is not larger.
const HINT_BYTES_MAX: u64 = 4096;
/// Requests of a reader at once.
pub(super) const AT_ONCE: usize = 16;
/// zstd's level for blobs and pages: written once, read often.
const LEVEL: i32 = 9;

const _: () = assert!(CHANGE_BYTES_MAX < OBJECT_BYTES_MAX, "a page holds at least one entry");
const _: () = assert!(AT_ONCE as u64 <= PAGE_CHANGES, "one group of reads never passes a page");

/// Name of the hint.
pub(super) const HEAD: &str = "head";

/// Name of a change. Twelve digits keep the order of numbers where a place is listed by people.
pub(super) fn change_name(number: u64) -> String {
    format!("changes/{number:012}")
}

/// Name of a page: what changes with numbers below `page * PAGE_CHANGES` made.
pub(super) fn page_name(page: u64) -> String {
    format!("pages/{page:012}")
}

/// A part of an entry that is an object of its own, named by its content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Blob {
    /// SHA-256 of the object, 64 hexadecimal digits.
    pub sha256: String,
    /// Bytes of the object.
    pub bytes: u64,
}

impl Blob {
    /// Name of the object.
    pub(super) fn name(&self) -> String {
        format!("blobs/{}", self.sha256)
    }

    /// Whether the reference is one: its name is made of it, and its size is asked for.
    pub(super) fn is_valid(&self) -> bool {
        is_hex(&self.sha256, 64) && self.bytes <= OBJECT_BYTES_MAX
    }

    /// The reference to this object.
    pub(super) fn of(object: &[u8]) -> Blob {
        Blob { sha256: hex(digest(&SHA256, object).as_ref()), bytes: object.len() as u64 }
    }
}

/// Whether a text has exactly this many lower-case hexadecimal digits.
pub(super) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A value as a framed, compressed object.
pub(super) fn pack<T: Serialize>(magic: Magic, value: &T) -> Result<Vec<u8>> {
    let json = to_json(value)?;
    let object = frame::framed(magic, &frame::deflate(&json, LEVEL)?);
    if object.len() as u64 > OBJECT_BYTES_MAX || json.len() > JSON_BYTES_MAX {
        let (stored, limit) = (object.len(), OBJECT_BYTES_MAX);
        return Err(Error::full(format!("an object of a catalogue with {stored} bytes; {limit} is the limit")));
    }
    Ok(object)
}

/// The value of a framed, compressed object.
pub(super) fn unpack<T: for<'a> Deserialize<'a>>(magic: Magic, object: &[u8], what: &str) -> Result<T> {
    let json = frame::inflate(frame::body(magic, object, &what)?, JSON_BYTES_MAX, &what)?;
    from_json(&json, what)
}

/// A value as JSON.
pub(super) fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Error::internal(format!("JSON: {error}")))
}

/// The value of a JSON text.
pub(super) fn from_json<T: for<'a> Deserialize<'a>>(json: &[u8], what: &str) -> Result<T> {
    serde_json::from_slice(json).map_err(|error| Error::corrupt(format!("{what}: {error}")))
}

/// What the object `head` says.
#[derive(Serialize, Deserialize)]
struct Hint {
    /// Changes that were known to its writer.
    changes: u64,
}

/// How many changes the hint says that there are, and its tag. A damaged hint is none: it only saves requests.
pub(super) fn read_hint(storage: &dyn Storage) -> Result<(u64, Option<Tag>)> {
    match storage.get(HEAD, HINT_BYTES_MAX) {
        Ok(None) => Ok((0, None)),
        Ok(Some((object, tag))) => {
            let hint = frame::body(Magic::Hint, &object, &HEAD).and_then(|json| from_json::<Hint>(json, HEAD));
            Ok((hint.map_or(0, |hint| hint.changes), Some(tag)))
        }
        Err(error) if error.kind() == Kind::Corrupt => Ok((0, None)),
        Err(error) => Err(error),
    }
}

/// The object `head`.
pub(super) fn hint(changes: u64) -> Result<Vec<u8>> {
    Ok(frame::framed(Magic::Hint, &to_json(&Hint { changes })?))
}
