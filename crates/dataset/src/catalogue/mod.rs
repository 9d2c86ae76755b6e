//! A catalogue of datasets: a place of objects that publishers and readers share, without a server and without listing anything.
//!
//! ```text
//! changes/<n>  n-th change: a version is published or withdrawn     put if no object has this name
//! blobs/<sha>  columns, lumi sections, source files, checksums      named by content, put before the change that names them
//! pages/<k>    what changes 0 to 64 k - 1 made                      put if no object has this name
//! head         how many changes there are, perhaps stale            overwritten; saves requests, decides nothing
//! ```
//!
//! *Invariants*: the list of changes is the catalogue; everything else can be made from it or only saves requests. No change is ever
//! replaced. Numbers have no gap.
//!
//! *Not here*: datasets themselves, which know nothing of catalogues; who may publish, which the storage decides.

mod blob;
mod change;
mod entry;
mod find;
mod layout;
mod publish;
mod state;
mod sums;
#[cfg(test)]
mod tests;
mod verify;

pub use change::{Action, Change};
pub use entry::{Checksum, Columns, Entry, Parent, Source, Table};
pub use find::{Found, Query};
pub use layout::Blob;
pub use publish::{Publication, Published};
pub use state::Listed;
pub use verify::Checked;

use crate::LumiList;
use crate::storage::{self, Storage};
use forebay_core::{Error, Result};
use state::State;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A catalogue. May be used from many threads; each call sees what was published before it.
#[derive(Debug)]
pub struct Catalogue {
    storage: Arc<dyn Storage>,
    /// What was read until now. Held while a call brings it up to date, and while a change is put.
    state: Mutex<State>,
    /// Whether the place is known to keep conditions.
    conditions: AtomicBool,
}

impl Catalogue {
    /// The catalogue at this place. Nothing is asked of it yet; the first publication makes it.
    ///
    /// # Errors
    /// As [`storage::open`].
    pub fn open(url: &str, options: &storage::Options) -> Result<Catalogue> {
        Ok(Catalogue::on(storage::open(url, options)?))
    }

    /// The catalogue in a storage of the caller's.
    pub fn on(storage: Arc<dyn Storage>) -> Catalogue {
        Catalogue { storage, state: Mutex::default(), conditions: AtomicBool::new(false) }
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        self.storage.url()
    }

    /// How many changes there are. None: there is no catalogue here.
    ///
    /// # Errors
    /// `Corrupt` where a change is damaged; errors of the storage.
    pub fn len(&self) -> Result<u64> {
        Ok(self.refreshed()?.next)
    }

    /// Whether nothing was ever published here.
    ///
    /// # Errors
    /// As [`Catalogue::len`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// All entries, by name and version.
    ///
    /// # Errors
    /// As [`Catalogue::find`].
    pub fn list(&self) -> Result<Vec<Listed>> {
        Ok(self.there()?.entries.values().cloned().collect())
    }

    /// The entry of a version, or of the newest version of a name; none: it is not published, or was withdrawn.
    ///
    /// # Errors
    /// As [`Catalogue::find`].
    pub fn show(&self, name: &str, version: Option<u32>) -> Result<Option<Listed>> {
        let state = self.there()?;
        let (first, last) = (version.unwrap_or(0), version.unwrap_or(u32::MAX));
        let mut versions = state.entries.range((name.to_owned(), first)..=(name.to_owned(), last));
        Ok(versions.next_back().map(|(_, listed)| listed.clone()))
    }

    /// Entries that have all of what is asked. Columns, files and lumi sections are looked up in blobs, one request each.
    ///
    /// # Errors
    /// `Invalid` where there is no catalogue or the question has no meaning; `Corrupt` with the name of a damaged change; errors of the
    /// storage. A damaged blob is no error: the entry is among [`Found::unread`].
    pub fn find(&self, query: &Query) -> Result<Found> {
        query.check()?;
        let mut candidates = Vec::new();
        {
            let state = self.there()?;
            let mut entries = state.entries.values().peekable();
            while let Some(listed) = entries.next() {
                let is_newest = entries.peek().is_none_or(|next| next.entry.name != listed.entry.name);
                if (is_newest || !query.newest) && query.admits(&listed.entry) {
                    candidates.push(listed.clone());
                }
            }
        }
        find::search(self.storage(), query, candidates)
    }

    /// Names and types of an entry's columns, by table.
    ///
    /// # Errors
    /// `Corrupt` where the blob is damaged; errors of the storage.
    pub fn columns(&self, entry: &Entry) -> Result<Vec<Columns>> {
        let columns: Option<Vec<Columns>> = self.blob(&entry.columns_blob)?;
        let columns = columns.unwrap_or_default();
        match columns.iter().find(|columns| columns.names.len() != columns.types.len()) {
            Some(wrong) => Err(Error::corrupt(format!(
                "{}: names and types of the columns of {} differ in number",
                self.url(),
                wrong.table
            ))),
            None => Ok(columns),
        }
    }

    /// An entry's lumi sections; none: it has no columns with run and lumi section, or they were not read.
    ///
    /// # Errors
    /// As [`Catalogue::columns`].
    pub fn lumis(&self, entry: &Entry) -> Result<Option<LumiList>> {
        self.blob(&entry.lumis_blob)
    }

    /// An entry's source files.
    ///
    /// # Errors
    /// As [`Catalogue::columns`].
    pub fn sources(&self, entry: &Entry) -> Result<Vec<Source>> {
        Ok(self.blob(&entry.files_blob)?.unwrap_or_default())
    }

    /// Checksums of the objects of an entry; none where they were not computed.
    ///
    /// # Errors
    /// As [`Catalogue::columns`].
    pub fn checksums(&self, entry: &Entry) -> Result<Vec<Checksum>> {
        sums::read(self.storage(), entry)
    }

    /// The changes from this number on until now, for a program that follows the catalogue: it keeps the number after the last one that
    /// it has worked through. A damaged change is an error in its place, with the next one after it.
    pub fn changes(&self, since: u64) -> Changes {
        Changes { storage: Arc::clone(&self.storage), next: since, many: 1, ready: VecDeque::new(), ended: false }
    }

    fn storage(&self) -> &dyn Storage {
        self.storage.as_ref()
    }

    fn blob<T: for<'a> serde::Deserialize<'a>>(&self, reference: &Option<Blob>) -> Result<Option<T>> {
        reference.as_ref().map(|reference| blob::read(self.storage(), reference)).transpose()
    }

    /// The state, up to date.
    fn refreshed(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock().map_err(|_| Error::internal("a thread panicked with the catalogue"))?;
        state.advance(self.storage())?;
        Ok(state)
    }

    /// The state, up to date, of a catalogue that is there.
    fn there(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.refreshed()?;
        if state.next == 0 {
            return Err(Error::invalid(format!(
                "{}: there is no catalogue; the first publication makes one",
                self.url()
            )));
        }
        Ok(state)
    }

    /// Refuses a place where two publishers would overwrite each other's changes; asked once.
    fn check_conditions(&self) -> Result<()> {
        if !self.conditions.load(Ordering::Relaxed) {
            self.storage.check_conditions(&format!("check/{:032x}", rand::random::<u128>()))?;
            self.conditions.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The changes of a catalogue, in order. It ends with the last one that is there now.
#[derive(Debug)]
pub struct Changes {
    storage: Arc<dyn Storage>,
    next: u64,
    /// Changes to ask for at once: doubles while they are there.
    many: u64,
    ready: VecDeque<Result<Change>>,
    ended: bool,
}

impl Iterator for Changes {
    type Item = Result<Change>;

    fn next(&mut self) -> Option<Result<Change>> {
        if self.ready.is_empty() && !self.ended {
            match change::read_group(self.storage.as_ref(), self.next, self.many) {
                Ok(group) => {
                    self.next += group.changes.len() as u64;
                    self.ready.extend(group.changes);
                    self.ended = group.ended;
                    self.many = (self.many * 2).min(layout::AT_ONCE as u64);
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        self.ready.pop_front()
    }
}
