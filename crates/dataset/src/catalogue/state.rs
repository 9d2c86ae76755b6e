//! What the changes until now made: the entries that are alive, and the pages that say so.
//!
//! ```text
//! head ─▶ number of changes, perhaps stale ─▶ newest page ─▶ changes after it, until one is absent
//! ```
//!
//! *Invariants*: a state is the changes `0..next` applied in their order, or a page that says the same. The hint decides only where
//! reading begins and how much is read at once, never what is there.
//!
//! *On failure*: a damaged page is passed over, since earlier pages and changes say the same; a damaged change is an error, unless a
//! page after it is there.

use super::change::{Action, Change, read_group};
use super::entry::Entry;
use super::layout::{self, AT_ONCE, OBJECT_BYTES_MAX, PAGE_CHANGES, page_name};
use crate::frame::Magic;
use crate::storage::{Condition, Put, Storage, Tag};
use bytes::Bytes;
use forebay_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pages that are looked for below the one that the hint says: its publisher may have died before it put it.
const PAGES_BACK: usize = 4;

/// An entry that is alive.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Number of the change that published it.
    pub change: u64,
    /// What it says.
    pub entry: Arc<Entry>,
}

/// Entries by name and version.
pub(super) type Entries = BTreeMap<(String, u32), Listed>;

/// What changes `0..next` made.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) next: u64,
    pub(super) entries: Entries,
    /// The last page that was passed while changes were read one by one, and what it has to say: it may be missing.
    owed: Option<(u64, Entries)>,
    /// Number of changes that the hint says, and its tag.
    hint: (u64, Option<Tag>),
}

/// A page's JSON: entries are borrowed where it is written and owned where it is read.
#[derive(Serialize, Deserialize)]
struct Page<E> {
    /// Changes with smaller numbers are in it.
    changes: u64,
    entries: Vec<PageEntry<E>>,
}

#[derive(Serialize, Deserialize)]
struct PageEntry<E> {
    change: u64,
    entry: E,
}

/// A page as an object.
pub(super) fn encode_page(page: u64, entries: &Entries) -> Result<Bytes> {
    let entries = entries.values().map(|listed| PageEntry { change: listed.change, entry: listed.entry.as_ref() });
    let body: Page<&Entry> = Page { changes: page * PAGE_CHANGES, entries: entries.collect() };
    Ok(layout::pack(Magic::Page, &body)?.into())
}

/// The entries of a page, where it is there.
pub(super) fn read_page(storage: &dyn Storage, page: u64) -> Result<Option<Entries>> {
    let name = page_name(page);
    let Some((object, _)) = storage.get(&name, OBJECT_BYTES_MAX)? else { return Ok(None) };
    let what = format!("{name} of {}", storage.url());
    let read: Page<Entry> = layout::unpack(Magic::Page, &object, &what)?;
    if Some(read.changes) != page.checked_mul(PAGE_CHANGES) {
        return Err(Error::corrupt(format!("{what}: it says that it is of {} changes", read.changes)));
    }
    let mut entries = Entries::new();
    for listed in read.entries {
        listed.entry.check().map_err(|why| Error::corrupt(format!("{what}: {why}")))?;
        if listed.change >= read.changes {
            return Err(Error::corrupt(format!("{what}: an entry of change {}, which is later", listed.change)));
        }
        let key = (listed.entry.name.clone(), listed.entry.version);
        entries.insert(key, Listed { change: listed.change, entry: Arc::new(listed.entry) });
    }
    Ok(Some(entries))
}

impl State {
    /// Applies the next change.
    pub(super) fn apply(&mut self, change: Change) {
        debug_assert_eq!(change.number, self.next, "changes are applied in their order");
        match change.action {
            Action::Publish(entry) => {
                let key = (entry.name.clone(), entry.version);
                self.entries.insert(key, Listed { change: change.number, entry: Arc::from(entry) });
            }
            Action::Withdraw { name, version, .. } => drop(self.entries.remove(&(name, version))),
        }
        self.next += 1;
        if self.next.is_multiple_of(PAGE_CHANGES) {
            self.owed = Some((self.next / PAGE_CHANGES, self.entries.clone()));
        }
    }

    /// Reads until the last change that is there.
    pub(super) fn advance(&mut self, storage: &dyn Storage) -> Result<()> {
        self.hint = layout::read_hint(storage)?;
        let mut look = self.hint.0 / PAGE_CHANGES > self.next / PAGE_CHANGES || self.next == 0 && self.hint.0 == 0;
        let mut probe = 1;
        loop {
            if look {
                self.jump(storage)?;
            }
            let expected = self.hint.0.saturating_sub(self.next);
            let to_page = PAGE_CHANGES - self.next % PAGE_CHANGES;
            let many = if expected > 0 { expected } else { probe }.min(AT_ONCE as u64).min(to_page);
            let group = read_group(storage, self.next, many)?;
            for change in group.changes {
                self.apply(change?);
            }
            if group.ended {
                return Ok(());
            }
            if expected == 0 {
                probe *= 2;
            }
            look = self.next.is_multiple_of(PAGE_CHANGES);
        }
    }

    /// Goes on from the newest page, where there is one that says more than this state.
    fn jump(&mut self, storage: &dyn Storage) -> Result<()> {
        let own = self.next / PAGE_CHANGES;
        let said = self.hint.0 / PAGE_CHANGES;
        if said > own && self.jump_below(storage, said)? {
            return Ok(());
        }
        // The hint is of no use: pages are looked for in steps that double, then halve.
        let there = |page: u64| Ok(storage.age(&page_name(page))?.is_some());
        let (mut low, mut step) = (own, 1);
        while there(low + step)? {
            low += step;
            step *= 2;
        }
        while step > 1 {
            step /= 2;
            if there(low + step)? {
                low += step;
            }
        }
        if low > own {
            self.jump_below(storage, low)?;
        }
        Ok(())
    }

    /// Goes on from this page, or from one of the few below it.
    fn jump_below(&mut self, storage: &dyn Storage, top: u64) -> Result<bool> {
        let own = self.next / PAGE_CHANGES;
        for page in (own + 1..=top).rev().take(PAGES_BACK) {
            match read_page(storage, page) {
                Ok(Some(entries)) => {
                    self.next = page * PAGE_CHANGES;
                    self.entries = entries;
                    self.owed = None;
                    return Ok(true);
                }
                Ok(None) => {}
                Err(error) if matches!(error.kind(), Kind::Corrupt) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Puts what saves later readers requests: the page that is owed, and the hint. The catalogue is whole without them.
    pub(super) fn help_readers(&mut self, storage: &dyn Storage) -> Result<()> {
        if let Some((page, entries)) = &self.owed {
            let name = page_name(*page);
            // Another publisher may have put the same page, which may be large.
            if storage.age(&name)?.is_none() {
                storage.put_if(&name, &encode_page(*page, entries)?, Condition::Absent)?;
            }
            self.owed = None;
        }
        let (said, tag) = &self.hint;
        if *said < self.next {
            let condition = tag.as_ref().map_or(Condition::Absent, Condition::Unchanged);
            // Refused: another publisher was faster. What it did not know yet, readers find by asking for more.
            if let Put::Done(tag) = storage.put_if(layout::HEAD, &layout::hint(self.next)?.into(), condition)? {
                self.hint = (self.next, Some(tag));
            }
        }
        Ok(())
    }
}
