//! What a writer says of itself before its first stripe, so that `gc` can find what a dead writer left without listing anything.
//!
//! ```text
//! writers            prefixes at work, or left by the dead: changed by conditional puts
//! w/<prefix>/alive   how many names below the prefix may exist; written again as a heartbeat
//! w/<prefix>/<n>     the writer's objects, n in hexadecimal
//! ```
//!
//! *Invariants*: a name is reserved in `alive` before an object gets it. Each change of `alive` names the tag of the state that was read: a writer
//! that was taken for dead, and whose prefix was removed, hears so at its next heartbeat, and it never commits without one.

use crate::frame::{self, Magic};
use crate::root::object;
use crate::storage::{Condition, Put, Storage, Tag};
use bytes::Bytes;
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Name of the list of writers.
const WRITERS: &str = "writers";
/// The list is not larger, in bytes.
const BYTES_MAX: u64 = 16 << 20;
/// Names that are reserved at first; each later reservation doubles them.
const RESERVE: u32 = 64;
/// A change of the list is tried this often against others who change it.
const TRIES: usize = 100;

/// The list of writers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Writers {
    pub(crate) prefixes: Vec<String>,
}

/// What `alive` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Alive {
    /// Where the root is that will name the objects, if it is not in the same place.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) dataset: String,
    /// Objects below the prefix have smaller numbers.
    pub(crate) reserved: u32,
    /// Set by `gc`: the writer was silent for too long, and its objects go.
    pub(crate) removed: bool,
    /// Heartbeats until now, so that each of them has its own tag.
    pub(crate) beat: u64,
}

/// What `gc` puts where there is no heartbeat. Object 0 may exist: with it a writer checks the conditions of the storage before its first
/// heartbeat.
pub(crate) fn claim() -> Alive {
    Alive { dataset: String::new(), reserved: 1, removed: true, beat: 0 }
}

/// Name of a writer's heartbeat.
pub(crate) fn alive(prefix: &str) -> String {
    format!("w/{prefix}/alive")
}

/// An object of this module as bytes.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Bytes> {
    let json = serde_json::to_vec(value).map_err(|error| Error::internal(format!("JSON: {error}")))?;
    Ok(frame::framed(Magic::Writers, &json).into())
}

/// An object of this module from its bytes.
pub(crate) fn decode<T: for<'a> Deserialize<'a>>(object: &[u8], what: &str) -> Result<T> {
    let json = frame::body(Magic::Writers, object, &what)?;
    serde_json::from_slice(json).map_err(|error| Error::corrupt(format!("{what}: {error}")))
}

/// The list of writers, and its tag where there is one.
pub(crate) fn writers(storage: &dyn Storage) -> Result<(Writers, Option<Tag>)> {
    match storage.get(WRITERS, BYTES_MAX)? {
        None => Ok((Writers::default(), None)),
        Some((bytes, tag)) => Ok((decode(&bytes, &format!("writers of {}", storage.url()))?, Some(tag))),
    }
}

/// Changes the list of writers; others may change it at the same time.
pub(crate) fn change_writers(storage: &dyn Storage, change: impl Fn(&mut Vec<String>)) -> Result<()> {
    for turn in 0..TRIES {
        let (mut writers, tag) = writers(storage)?;
        change(&mut writers.prefixes);
        let condition = tag.as_ref().map_or(Condition::Absent, Condition::Unchanged);
        if let Put::Done(_) = storage.put_if(WRITERS, &encode(&writers)?, condition)? {
            return Ok(());
        }
        let pause = rand::random_range(1..=10_u64 << turn.min(6));
        std::thread::sleep(std::time::Duration::from_millis(pause));
    }
    Err(Error::unavailable(format!(
        "{}: its list of writers was changed by others {TRIES} times in a row",
        storage.url()
    )))
}

/// What `alive` says now, and its tag.
pub(crate) fn read_alive(storage: &dyn Storage, prefix: &str) -> Result<Option<(Alive, Tag)>> {
    let name = alive(prefix);
    let found = storage.get(&name, BYTES_MAX)?;
    found.map(|(bytes, tag)| Ok((decode(&bytes, &format!("{name} of {}", storage.url()))?, tag))).transpose()
}

/// A writer's announcement: its prefix, and the heartbeat that keeps it.
#[derive(Debug)]
pub(crate) struct Announcement {
    pub(crate) prefix: String,
    alive: Alive,
    tag: Tag,
}

impl Announcement {
    /// Announces a new prefix, for a dataset whose root is elsewhere if that has a name.
    pub(crate) fn new(storage: &dyn Storage, dataset: &str) -> Result<Announcement> {
        let prefix = format!("{:032x}", rand::random::<u128>());
        // The list first: a heartbeat that no list names would be found by nobody.
        change_writers(storage, |prefixes| prefixes.push(prefix.clone()))?;
        let alive_now = Alive { dataset: dataset.to_owned(), reserved: RESERVE, removed: false, beat: 0 };
        storage.check_conditions(&object(&prefix, 0))?;
        match storage.put_if(&alive(&prefix), &encode(&alive_now)?, Condition::Absent)? {
            Put::Done(tag) => Ok(Announcement { prefix, alive: alive_now, tag }),
            Put::Refused => {
                Err(Error::fenced(format!("{}: gc removed this writer before it began; write again", storage.url())))
            }
        }
    }

    /// Reserves names up to this number.
    pub(crate) fn reserve(&mut self, storage: &dyn Storage, number: u32) -> Result<()> {
        if number < self.alive.reserved {
            return Ok(());
        }
        let wanted = number.checked_add(1).and_then(u32::checked_next_power_of_two);
        self.alive.reserved = wanted.ok_or_else(|| Error::full("a writer has at most 2^31 objects"))?;
        self.beat(storage)
    }

    /// Says that the writer is at work.
    ///
    /// # Errors
    /// `Fenced` where `gc` took it for dead: its objects are gone, or soon will be.
    pub(crate) fn beat(&mut self, storage: &dyn Storage) -> Result<()> {
        self.alive.beat += 1;
        let (name, bytes) = (alive(&self.prefix), encode(&self.alive)?);
        let mut put = storage.put_if(&name, &bytes, Condition::Unchanged(&self.tag))?;
        // An earlier heartbeat without an answer may be there: only what `gc` put takes the prefix away.
        if put == Put::Refused
            && let Some((there, tag)) = read_alive(storage, &self.prefix)?
            && !there.removed
        {
            put = storage.put_if(&name, &bytes, Condition::Unchanged(&tag))?;
        }
        match put {
            Put::Done(tag) => {
                self.tag = tag;
                Ok(())
            }
            Put::Refused => Err(Error::fenced(format!(
                "{}: the writer {} was silent for so long that gc removed what it wrote; write again",
                storage.url(),
                self.prefix
            ))),
        }
    }

    /// Takes the announcement back after a commit.
    pub(crate) fn end(&self, storage: &dyn Storage) -> Result<()> {
        change_writers(storage, |prefixes| prefixes.retain(|prefix| *prefix != self.prefix))?;
        storage.remove(&[alive(&self.prefix)])
    }
}
