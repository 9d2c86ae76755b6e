//! Reads every object of a catalogue that its changes name, and names what is damaged.

use super::change::{Action, read_group};
use super::layout::{AT_ONCE, Blob, PAGE_CHANGES, page_name};
use super::state::{State, read_page};
use super::{Catalogue, blob};
use forebay_core::{Error, Kind, Result};
use serde::de::IgnoredAny;
use std::collections::BTreeSet;

/// The answer of [`Catalogue::verify`].
#[derive(Debug, Default)]
pub struct Checked {
    /// Changes that were read.
    pub changes: u64,
    /// Pages that were read.
    pub pages: u64,
    /// Blobs of entries that are alive.
    pub blobs: u64,
    /// What is damaged or not there.
    pub damages: Vec<Error>,
}

impl Catalogue {
    /// Reads all changes, all pages, and the blobs of the entries that are alive. A page must say what the changes before it made.
    ///
    /// # Errors
    /// Where the storage does not answer.
    pub fn verify(&self) -> Result<Checked> {
        let storage = self.storage();
        let (mut checked, mut state) = (Checked::default(), State::default());
        // From a damaged change on, what changes made is known only from the next page on.
        let mut whole = true;
        loop {
            let to_page = PAGE_CHANGES - state.next % PAGE_CHANGES;
            let group = read_group(storage, state.next, to_page.min(AT_ONCE as u64))?;
            for change in group.changes {
                match change {
                    Ok(change) => state.apply(change),
                    Err(error) => {
                        checked.damages.push(error);
                        whole = false;
                        state.next += 1;
                    }
                }
                checked.changes += 1;
            }
            if state.next.is_multiple_of(PAGE_CHANGES) && state.next > 0 {
                let page = state.next / PAGE_CHANGES;
                match read_page(storage, page) {
                    Ok(None) => {}
                    Ok(Some(entries)) => {
                        checked.pages += 1;
                        if whole && entries != state.entries {
                            let what = format!("{} of {}", page_name(page), storage.url());
                            checked
                                .damages
                                .push(Error::corrupt(format!("{what}: it says other than the changes before it")));
                        } else if !whole {
                            state.entries = entries;
                            whole = true;
                        }
                    }
                    Err(error) if error.kind() == Kind::Corrupt => checked.damages.push(error),
                    Err(error) => return Err(error),
                }
            }
            if group.ended {
                break;
            }
        }
        let entries = state.entries.values();
        let blobs: BTreeSet<&Blob> = entries.clone().flat_map(|listed| listed.entry.blobs()).collect();
        let blobs: Vec<&Blob> = blobs.into_iter().collect();
        checked.blobs = blobs.len() as u64;
        for group in blobs.chunks(AT_ONCE) {
            for value in blob::read_many::<IgnoredAny>(storage, group) {
                match value {
                    Ok(_) => {}
                    Err(error) if error.kind() == Kind::Corrupt => checked.damages.push(error),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(checked)
    }
}

/// Whether a change publishes, for readers of the feed.
impl Action {
    /// `publish` or `withdraw`.
    pub fn verb(&self) -> &'static str {
        match self {
            Action::Publish(_) => "publish",
            Action::Withdraw { .. } => "withdraw",
        }
    }

    /// `scope:name` and version that it is about.
    pub fn target(&self) -> (&str, u32) {
        match self {
            Action::Publish(entry) => (&entry.name, entry.version),
            Action::Withdraw { name, version, .. } => (name, *version),
        }
    }
}
