//! Where the objects of a dataset are: a directory, or a bucket of S3.
//!
//! ```text
//! reader, writer ──▶ Storage ──▶ Directory   files, fsync, a lock for conditions
//!                            └─▶ Bucket      object_store: requests in flight, repeats, deadlines, credentials
//! ```
//!
//! *Not here*: the meaning of objects. Datasets never list what is in a place, so a bucket needs no index; archives do.

mod bucket;
mod directory;
mod names;
mod options;
mod spans;

pub use bucket::Bucket;
pub use directory::Directory;
pub use options::Options;

use bytes::Bytes;
use forebay_core::{Error, Kind, Result};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// What a place in memory is a multiple of, so that a directory writes a large object from there without a copy.
pub const ALIGNED: usize = 4096;

/// How what a place has compares with what was put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// It has the same bytes.
    Same,
    /// No object has this name.
    Missing,
    /// It has another object.
    Differs {
        /// The first byte that differs, or the end of the shorter one.
        at: u64,
        /// Bytes that it has.
        bytes: u64,
    },
}

/// A comparison of what was put with what comes back, piece by piece.
struct Comparison<'a> {
    sent: &'a [u8],
    at: usize,
    is_same: bool,
}

impl<'a> Comparison<'a> {
    fn new(sent: &'a [u8]) -> Comparison<'a> {
        Comparison { sent, at: 0, is_same: true }
    }

    /// Compares the next piece; `false` where the rest does not matter any more.
    fn take(&mut self, piece: &[u8]) -> bool {
        let sent = &self.sent[self.at..];
        let sent = &sent[..sent.len().min(piece.len())];
        // Whole slices compare far faster than their bytes one by one.
        self.is_same &= sent == piece;
        let same = |sent: &[u8]| sent.iter().zip(piece).take_while(|(one, other)| one == other).count();
        self.at += if self.is_same { piece.len() } else { same(sent) };
        self.is_same
    }

    /// The outcome, where the object has this many bytes.
    fn end(self, bytes: u64) -> Back {
        match self.is_same && self.at == self.sent.len() && bytes == self.at as u64 {
            true => Back::Same,
            false => Back::Differs { at: self.at as u64, bytes },
        }
    }
}

/// A place for objects, addressed by names below it. Names have letters, digits, `-`, `_`, `.` and `/`; no part of a name
/// begins with a dot. Calls block; a place may be used from many threads, and after a fork.
///
/// Each request has a deadline and is repeated where repeating is safe; a call ends with the first request that fails.
///
/// Errors: `Unavailable` where the place did not answer in time (for what writes: `OutcomeUnknown`, if a request may have had
/// an effect), `Invalid` for credentials, addresses and names that cannot work, `Corrupt` for answers that cannot be, `Full`
/// where a file system has no space.
#[expect(clippy::missing_errors_doc, reason = "the sentence above says it for all")]
pub trait Storage: Send + Sync + std::fmt::Debug {
    /// The place as users write it: a path or `s3://bucket/prefix`.
    fn url(&self) -> &str;

    /// A whole object with its tag, or `None` where no object has this name.
    ///
    /// `Corrupt` where it has more than `bytes_max` bytes.
    fn get(&self, name: &str, bytes_max: u64) -> Result<Option<(Bytes, Tag)>>;

    /// Parts of objects, in the order asked for: many requests at once, but bounded; neighbouring ranges in one request.
    /// Parts that came with one request share its memory until the last of them is dropped.
    ///
    /// `Corrupt` where an object is not there or is shorter.
    fn parts(&self, parts: &[Part]) -> Result<Vec<Bytes>>;

    /// Puts objects that no one else writes, many at once, but bounded. When it returns they are durable.
    fn put(&self, objects: &[(String, Bytes)]) -> Result<()>;

    /// Puts one object on a condition, durably. A repeat that meets its own success is success: the bytes of two writers
    /// must differ.
    ///
    /// `OutcomeUnknown` also where a try without an answer was followed by somebody else's object: the caller looks whether
    /// that one is built on its own.
    fn put_if(&self, name: &str, bytes: &Bytes, condition: Condition<'_>) -> Result<Put>;

    /// Removes objects; one that is not there is none.
    fn remove(&self, names: &[String]) -> Result<()>;

    /// How long ago an object was written, by the clock of the place, to a second or two, or `None` where no object has this
    /// name.
    fn age(&self, name: &str) -> Result<Option<Duration>>;

    /// A whole object as the medium has it: a directory drops the pages that the kernel keeps of the file first, where the system
    /// allows; a server is asked, whatever it keeps itself. `None` where no object has this name.
    ///
    /// `Corrupt` where it has more than `bytes_max` bytes.
    fn read_back(&self, name: &str, bytes_max: u64) -> Result<Option<Bytes>> {
        Ok(self.get(name, bytes_max)?.map(|(bytes, _)| bytes))
    }

    /// Compares an object as the medium has it, as for [`Storage::read_back`], with what was put, as it comes: without memory for
    /// a second copy.
    ///
    /// `Corrupt` for an object with more bytes, where the place looks at no other.
    fn compare_back(&self, name: &str, sent: &Bytes) -> Result<Back> {
        let Some(back) = self.read_back(name, sent.len() as u64)? else { return Ok(Back::Missing) };
        let mut comparison = Comparison::new(sent);
        comparison.take(&back);
        Ok(comparison.end(back.len() as u64))
    }

    /// Names of all objects below a folder, which ends in `/`, or of all with an empty one; in order. A bucket without an index
    /// has no answer.
    fn list(&self, folder: &str) -> Result<Vec<String>>;

    /// Removes what writers that died left of objects that never were, at least this old by the clock of the place; with
    /// `dry_run` only names it. A server keeps nothing of a put that did not end.
    fn clear_unfinished(&self, older: Duration, dry_run: bool) -> Result<Vec<String>> {
        let _ = (older, dry_run);
        Ok(Vec::new())
    }

    /// What was asked of this place until now.
    fn traffic(&self) -> Traffic;

    /// Refuses a place that ignores the conditions of [`Storage::put_if`], where two writers would overwrite each other: a
    /// writer calls it once, with a name of its own, before it writes. No object of this name remains.
    fn check_conditions(&self, name: &str) -> Result<()> {
        self.ignored_condition(name)?.map_or(Ok(()), |condition| Err(self.ignores(condition)))
    }

    /// The refusal of a place that ignores this condition: `Invalid`.
    fn ignores(&self, condition: &str) -> Error {
        Error::invalid(format!(
            "{} ignores the condition `{condition}`: two writers would overwrite each other there; use a bucket whose \
             server has conditional puts",
            self.url()
        ))
    }

    /// A condition that the place does not keep to. As [`Storage::check_conditions`], for callers that go on trying where the
    /// place cannot be asked.
    fn ignored_condition(&self, name: &str) -> Result<Option<&'static str>> {
        let first = Bytes::from_static(b"the first of two objects that check conditions");
        let second = Bytes::from_static(b"the second one, which must be refused");
        let Put::Done(tag) = self.put_if(name, &first, Condition::Absent)? else { return Ok(None) };
        // A put without an answer tells by what is there now: nobody else has this name.
        let refused = |condition: Condition<'_>| match self.put_if(name, &second, condition) {
            Err(error) if error.kind() == Kind::OutcomeUnknown => {
                let there = self.get(name, 1 << 10)?;
                Ok(there.is_some_and(|(bytes, _)| bytes == first))
            }
            put => put.map(|put| put == Put::Refused),
        };
        // What the tag of another object looks like here.
        let other = Tag(tag.0.chars().rev().collect());
        let ignored = if !refused(Condition::Absent)? {
            Some("If-None-Match")
        } else if other != tag && !refused(Condition::Unchanged(&other))? {
            Some("If-Match")
        } else {
            None
        };
        self.remove(&[name.to_owned()])?;
        Ok(ignored)
    }
}

/// The place with this address: `s3://bucket/prefix`, a path, or a path behind `dir:` or `file://`. Nothing is asked of it yet.
///
/// # Errors
/// `Invalid` where the address is none, or where the credentials that the environment gives cannot be used.
pub fn open(url: &str, options: &Options) -> Result<Arc<dyn Storage>> {
    if url.starts_with("s3://") {
        return Ok(Arc::new(Bucket::new(url, options)?));
    }
    let named = url.strip_prefix("file://").or_else(|| url.strip_prefix("dir:"));
    let path = named.unwrap_or(url);
    if path.is_empty() || path.contains("://") || named.is_none() && is_like_a_scheme(path) {
        return Err(Error::invalid(format!(
            "{url:?} is no place for objects: give s3://bucket/prefix or a path; dir:PATH takes one with any letters"
        )));
    }
    Ok(Arc::new(Directory::new(PathBuf::from(path), options)))
}

/// Whether a path begins like an address that is misspelt, such as `s3:/bucket`, `s3//bucket` or `dri:/path`.
fn is_like_a_scheme(path: &str) -> bool {
    let word = path.split(|letter: char| !letter.is_ascii_alphanumeric()).next().unwrap_or_default();
    let rest = &path[word.len()..];
    !word.is_empty() && (rest.starts_with(':') || rest.starts_with("//"))
}

/// Requests and bytes, counted by many threads.
#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    bytes_read: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
}

impl Counters {
    fn read(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    fn write(&self, bytes: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    fn traffic(&self) -> Traffic {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            reads: load(&self.reads),
            bytes_read: load(&self.bytes_read),
            writes: load(&self.writes),
            bytes_written: load(&self.bytes_written),
        }
    }
}
