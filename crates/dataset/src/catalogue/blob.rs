//! Blobs: the large parts of entries, each named by its content, so that equal parts are stored once.
//!
//! *On failure*: a publisher that dies after it put a blob leaves one that no change names; a repeat uses it. Nothing removes blobs: older
//! changes name them, and the feed of changes begins with the first one.

use super::layout::{self, AT_ONCE, Blob, OBJECT_BYTES_MAX};
use crate::frame::Magic;
use crate::parallel;
use crate::storage::{Condition, Put, Storage};
use bytes::Bytes;
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Puts a value as a blob, unless it is there.
pub(super) fn put<T: Serialize>(storage: &dyn Storage, value: &T) -> Result<Blob> {
    let object = Bytes::from(layout::pack(Magic::Blob, value)?);
    let blob = Blob::of(&object);
    let name = blob.name();
    // On a condition, since another publisher may put the same bytes at this moment.
    if matches!(storage.put_if(&name, &object, Condition::Absent)?, Put::Done(_)) {
        return Ok(blob);
    }
    // What is there under this name has this content, or is damaged: then it is put right.
    match storage.get(&name, OBJECT_BYTES_MAX)? {
        Some((there, tag)) if there != object => drop(storage.put_if(&name, &object, Condition::Unchanged(&tag))?),
        _ => {}
    }
    Ok(blob)
}

/// The value of a blob.
pub(super) fn read<T: for<'a> Deserialize<'a>>(storage: &dyn Storage, blob: &Blob) -> Result<T> {
    let what = format!("{} of {}", blob.name(), storage.url());
    let Some((object, _)) = storage.get(&blob.name(), blob.bytes)? else {
        return Err(Error::corrupt(format!("{what}: it is not there")));
    };
    if Blob::of(&object) != *blob {
        return Err(Error::corrupt(format!("{what}: it has other bytes than its name says")));
    }
    layout::unpack(Magic::Blob, &object, &what)
}

/// The values of blobs, in their order, read at once.
pub(super) fn read_many<T: for<'a> Deserialize<'a> + Send>(storage: &dyn Storage, blobs: &[&Blob]) -> Vec<Result<T>> {
    parallel::map(AT_ONCE, blobs.to_vec(), |blob| read(storage, blob))
}
