//! Where the objects of a dataset are: a directory, or a bucket of S3.

mod directory;

pub use directory::Directory;

use bytes::Bytes;
use forebay_core::Result;
use std::ops::Range;
use std::time::Duration;

/// What a conditional put compares: changes whenever the object does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(pub String);

/// On what condition an object is put.
#[derive(Clone, Copy, Debug)]
pub enum Condition<'a> {
    /// No object has this name.
    Absent,
    /// The object is still the one with this tag.
    Unchanged(&'a Tag),
}

/// The answer of a conditional put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// The object is there; its tag.
    Done(Tag),
    /// The condition did not hold; nothing changed.
    Refused,
}

/// A part of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name of the object, relative to the place.
    pub name: String,
    /// Which of its bytes.
    pub range: Range<u64>,
}

/// What was asked of a place until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests to read.
    pub reads: u64,
    /// Bytes that came.
    pub bytes_read: u64,
    /// Requests to write or delete.
    pub writes: u64,
    /// Bytes that went.
    pub bytes_written: u64,
}

/// A place for objects, addressed by names below it. Names have letters, digits, `-`, `.` and `/`. Calls block; a place may be used from many threads.
/// Every call has a deadline and is repeated where repeating is safe.
///
/// Errors: `Unavailable` where the place did not answer in time (for what writes: `OutcomeUnknown`, if a request may have had
/// an effect), `Invalid` for credentials and addresses that cannot work, `Corrupt` for answers that cannot be.
#[expect(clippy::missing_errors_doc, reason = "the sentence above says it for all")]
pub trait Storage: Send + Sync + std::fmt::Debug {
    /// The place as users write it: a path or `s3://bucket/prefix`.
    fn url(&self) -> &str;

    /// A whole object with its tag, or `None` where no object has this name.
    ///
    /// `Corrupt` where it has more than `bytes_max` bytes.
    fn get(&self, name: &str, bytes_max: u64) -> Result<Option<(Bytes, Tag)>>;

    /// Parts of objects, in the order asked for: many requests at once, but bounded; neighbouring ranges in one request.
    ///
    /// `Corrupt` where an object is not there or is shorter.
    fn parts(&self, parts: &[Part]) -> Result<Vec<Bytes>>;

    /// Puts objects that no one else writes, many at once, but bounded. When it returns they are durable.
    fn put(&self, objects: &[(String, Bytes)]) -> Result<()>;

    /// Puts one object on a condition, durably. A repeat that meets its own success is success.
    fn put_if(&self, name: &str, bytes: &Bytes, condition: Condition<'_>) -> Result<Put>;

    /// Removes objects; one that is not there is none.
    fn remove(&self, names: &[String]) -> Result<()>;

    /// How long ago an object was written, by the clock of the place, or `None` where no object has this name.
    fn age(&self, name: &str) -> Result<Option<Duration>>;

    /// What was asked of this place until now.
    fn traffic(&self) -> Traffic;
}
