//! A change: a version is published or withdrawn. The list of changes is the catalogue.

use super::entry::{Entry, check_name};
use super::layout::{CHANGE_BYTES_MAX, change_name, from_json, to_json};
use crate::frame::{self, Magic};
use crate::parallel;
use crate::storage::Storage;
use bytes::Bytes;
use forebay_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

/// One change of a catalogue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Its number; the first one is 0, and none is left out.
    pub number: u64,
    /// When it was made, milliseconds since 1970 by the publisher's clock: not in the order of numbers where clocks differ.
    pub time_ms: u64,
    /// Random, so that a publisher knows its own change again.
    pub id: String,
    /// What happened.
    pub action: Action,
}

/// What a change does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// A version is there, or is described in other words than before.
    Publish(Box<Entry>),
    /// A version should not be used any more. Its objects are as they were.
    Withdraw {
        /// `scope:name` of the dataset.
        name: String,
        /// The version.
        version: u32,
        /// For people.
        why: String,
    },
}

impl Change {
    /// The object.
    pub(super) fn encode(&self) -> Result<Bytes> {
        // Not compressed: small, and readable with no more than `tail -c +25`.
        let object = frame::framed(Magic::Change, &to_json(self)?);
        if object.len() as u64 > CHANGE_BYTES_MAX {
            let bytes = object.len();
            return Err(Error::invalid(format!(
                "a change of {bytes} bytes; {CHANGE_BYTES_MAX} is the limit: use fewer tags and parents"
            )));
        }
        Ok(object.into())
    }

    /// The change with this number in an object.
    pub(super) fn decode(object: &[u8], number: u64, what: &str) -> Result<Change> {
        let change: Change = from_json(frame::body(Magic::Change, object, &what)?, what)?;
        let corrupt = |why: String| Err(Error::corrupt(format!("{what}: {why}")));
        if change.number != number {
            return corrupt(format!("it says that it is change {}", change.number));
        }
        let checked = match &change.action {
            Action::Publish(entry) => entry.check(),
            Action::Withdraw { name, .. } => check_name(name).map_err(|error| error.message().to_owned()),
        };
        match checked {
            Ok(()) => Ok(change),
            Err(why) => corrupt(why),
        }
    }
}

/// The change with this number, where it is there.
pub(super) fn read(storage: &dyn Storage, number: u64) -> Result<Option<Change>> {
    let name = change_name(number);
    let found = storage.get(&name, CHANGE_BYTES_MAX)?;
    found.map(|(object, _)| Change::decode(&object, number, &format!("{name} of {}", storage.url()))).transpose()
}

/// Changes that were read together.
pub(super) struct Group {
    /// In the order of numbers, without gap; a damaged or missing one is its error.
    pub(super) changes: Vec<Result<Change>>,
    /// Whether the last change of all is among them.
    pub(super) ended: bool,
}

/// Changes that are read at once.
pub(super) fn read_group(storage: &dyn Storage, from: u64, many: u64) -> Result<Group> {
    let numbers: Vec<u64> = (from..from.saturating_add(many)).collect();
    let mut answers = parallel::map(numbers.len(), numbers.clone(), |number| read(storage, number));
    let there = |answer: &Result<Option<Change>>| match answer {
        Ok(found) => found.is_some(),
        Err(error) => error.kind() == Kind::Corrupt,
    };
    let last = answers.iter().rposition(there);
    let ended = last.is_none_or(|last| last + 1 < answers.len());
    answers.truncate(last.map_or(0, |last| last + 1));
    let mut changes = Vec::with_capacity(answers.len());
    for (number, answer) in numbers.into_iter().zip(answers) {
        let change = match answer {
            Ok(Some(change)) => Ok(change),
            // A later one is there: both may have been put between the two requests, so it is read again.
            Ok(None) => match read(storage, number) {
                Ok(Some(change)) => Ok(change),
                Ok(None) => {
                    let name = change_name(number);
                    Err(Error::corrupt(format!("{}: {name} is not there, though later changes are", storage.url())))
                }
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match change {
            Err(error) if error.kind() != Kind::Corrupt => return Err(error),
            change => changes.push(change),
        }
    }
    Ok(Group { changes, ended })
}
