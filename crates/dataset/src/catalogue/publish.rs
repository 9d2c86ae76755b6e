//! Publishing and withdrawing: the entry of a version is made from the dataset, and becomes the next change.
//!
//! ```text
//! dataset ─▶ blobs ─▶ change at the next free number, if it is still free ─▶ page, every 64 changes ─▶ head
//! ```
//!
//! *Invariants*: a change is put on the condition that no object has its number, by a publisher that has read every change before it.
//! So numbers have no gaps, and what a publisher checks before its change holds when the change is made.
//!
//! *On failure* before the change is put: the catalogue is as before, and a few blobs may be there that nothing names. After it: the
//! version is published; the next publisher puts the page and the hint. A repeat of the call finds its own entry.

use super::change::{self, Action, Change};
use super::entry::{Columns, Entry, Parent, Source, Table, check_name};
use super::layout::change_name;
use super::state::{Listed, State};
use super::{Catalogue, blob, sums};
use crate::storage::{Condition, Put};
use crate::write::absolute;
use crate::{Dataset, ReadOptions};
use forebay_core::{Error, Kind, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A change is tried this often against other publishers: each time one of them has published.
const TRIES: u32 = 1000;
/// Tries of one number whose put gets no answer.
const UNKNOWN_TRIES: u32 = 3;

/// What is published, and what is said of it beside what the dataset says itself.
#[derive(Clone, Debug)]
pub struct Publication {
    /// `scope:name`, as in Rucio. A name means one dataset: other datasets get other names.
    pub name: String,
    /// Where the dataset is.
    pub url: String,
    /// Which version; none: the newest.
    pub version: Option<u32>,
    /// Datasets that it was made from, beside those that it refers to or names in its fact `parents`.
    pub parents: Vec<Parent>,
    /// Source files, beside those in its fact `sources`.
    pub sources: Vec<Source>,
    /// Tags such as `software` and `conditions`, beside those in its fact `tags`.
    pub tags: BTreeMap<String, String>,
    /// Whether to compute checksums, which reads every object that no earlier version of it in the catalogue has.
    pub checksums: bool,
    /// Whether to list lumi sections, which reads two columns.
    pub lumis: bool,
    /// How the dataset is read.
    pub read: ReadOptions,
}

impl Publication {
    /// The newest version of a dataset, with checksums and lumi sections.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Publication {
        Publication {
            name: name.into(),
            url: url.into(),
            version: None,
            parents: Vec::new(),
            sources: Vec::new(),
            tags: BTreeMap::new(),
            checksums: true,
            lumis: true,
            read: ReadOptions::default(),
        }
    }
}

/// The answer of [`Catalogue::publish`].
#[derive(Debug)]
pub struct Published {
    /// The entry, and the number of its change.
    pub listed: Listed,
    /// Whether this call made the change; an entry that says the same is published once.
    pub is_new: bool,
    /// Why the page or the hint was not put, which costs later readers some requests and nothing else.
    pub unfinished: Option<Error>,
}

impl Catalogue {
    /// Publishes a version of a dataset; where it is published already with other tags or parents, it gets these. `progress` hears
    /// bytes read for checksums, and bytes in all.
    ///
    /// # Errors
    /// `Invalid` for a name that is none or a dataset that is not there; `Conflict` where another dataset has the name; `Corrupt` where
    /// an object of the dataset or of the catalogue is damaged; `OutcomeUnknown` where the answer was lost (a repeat tells); errors of
    /// the storage.
    pub fn publish(&self, publication: &Publication, progress: &mut dyn FnMut(u64, u64)) -> Result<Published> {
        check_name(&publication.name)?;
        let mut dataset = Dataset::open(&publication.url, publication.read.clone())?;
        if let Some(version) = publication.version {
            dataset = dataset.at(version)?;
        }
        // Before anything is read for checksums: another dataset's name is refused at once.
        let earlier = {
            let state = self.refreshed()?;
            check_owner(&state, &publication.name, dataset.uuid())?;
            nearest_version(&state, &dataset)
        };
        self.check_conditions()?;
        let entry = self.entry(publication, &dataset, earlier.as_deref(), progress)?;
        let entry = Arc::new(entry);
        let mut same = None;
        let mut check = |state: &State| {
            check_owner(state, &entry.name, &entry.uuid)?;
            same =
                state.entries.get(&(entry.name.clone(), entry.version)).filter(|listed| listed.entry == entry).cloned();
            Ok(same.is_none())
        };
        let made = self.change(Action::Publish(Box::new(entry.as_ref().clone())), &mut check)?;
        Ok(match (made, same) {
            (Some((change, unfinished)), _) => Published { listed: Listed { change, entry }, is_new: true, unfinished },
            (None, Some(listed)) => Published { listed, is_new: false, unfinished: None },
            (None, None) => return Err(Error::internal("no change, and no entry that says the same")),
        })
    }

    /// Withdraws a version: readers find it no more. The dataset is as it was. Answers the number of the change, or none where the
    /// catalogue has no such version.
    ///
    /// # Errors
    /// `OutcomeUnknown` where the answer was lost (a repeat tells); errors of the storage.
    pub fn withdraw(&self, name: &str, version: u32, why: &str) -> Result<Option<u64>> {
        check_name(name)?;
        let key = (name.to_owned(), version);
        if !self.refreshed()?.entries.contains_key(&key) {
            return Ok(None);
        }
        self.check_conditions()?;
        let action = Action::Withdraw { name: name.to_owned(), version, why: why.to_owned() };
        let made = self.change(action, &mut |state| Ok(state.entries.contains_key(&key)))?;
        Ok(made.map(|(number, _)| number))
    }

    /// The entry of a version. Its blobs are put.
    fn entry(
        &self,
        publication: &Publication,
        dataset: &Dataset,
        earlier: Option<&Entry>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Entry> {
        let storage = self.storage();
        let versions = dataset.versions();
        let info = &versions[dataset.version() as usize];
        let (classes, owners) = dataset.classes_and_owners();
        let mut entry = Entry {
            name: publication.name.clone(),
            url: absolute(dataset.url())?,
            uuid: dataset.uuid().to_owned(),
            version: dataset.version(),
            time_ms: info.time_ms,
            note: info.note.clone(),
            classes: classes.into_iter().collect(),
            parents: parents(publication, dataset.facts(), owners),
            tags: tags(publication, dataset.facts()),
            ..Entry::default()
        };
        let mut columns = Vec::new();
        for (name, events, _) in &info.tables {
            let products = dataset.products(name)?;
            entry.tables.push(Table { name: name.clone(), events: *events, products: products.len() as u64 });
            let (names, types) = products.into_iter().map(|product| (product.name, product.ty.to_string())).unzip();
            columns.push(Columns { table: name.clone(), names, types });
        }
        entry.columns_blob = Some(blob::put(storage, &columns)?);
        let sources = sources(publication, dataset.facts());
        if !sources.is_empty() {
            entry.files = sources.len() as u64;
            entry.files_blob = Some(blob::put(storage, &sources)?);
        }
        if publication.lumis && dataset.has_lumis()? {
            let list = dataset.lumis()?.list();
            let mut runs = list.runs().map(|(run, _)| run);
            entry.runs = runs.next().map(|first| (first, runs.last().unwrap_or(first)));
            entry.lumis = list.sections();
            entry.lumis_blob = Some(blob::put(storage, &list)?);
        }
        if publication.checksums {
            sums::fill(storage, dataset, earlier, &mut entry, progress)?;
        }
        entry.check().map_err(|why| Error::invalid(format!("{}: {why}", entry.url)))?;
        Ok(entry)
    }

    /// Makes a change the next one, while `wanted` says so of what is there. Answers its number, and why readers were not helped.
    fn change(
        &self,
        action: Action,
        wanted: &mut dyn FnMut(&State) -> Result<bool>,
    ) -> Result<Option<(u64, Option<Error>)>> {
        let storage = self.storage();
        let id = format!("{:032x}", rand::random::<u128>());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let time_ms = now.map_or(0, |since| since.as_millis() as u64);
        let mut change = Change { number: 0, time_ms, id, action };
        let mut unknown = 0;
        for turn in 0..TRIES {
            // Held over the put: threads that share a catalogue would only get into each other's way.
            let mut state = self.refreshed()?;
            if !wanted(&state)? {
                return Ok(None);
            }
            change.number = state.next;
            let put = storage.put_if(&change_name(change.number), &change.encode()?, Condition::Absent);
            let is_own = match put {
                Ok(Put::Done(_)) => true,
                // An earlier try of ours may be what is there.
                Ok(Put::Refused) => change::read(storage, change.number)?.is_some_and(|there| there.id == change.id),
                Err(error) if error.kind() == Kind::OutcomeUnknown => match change::read(storage, change.number) {
                    Ok(Some(there)) => there.id == change.id,
                    // The put may still arrive. At this number it can do no harm, and no other number is tried before this one is
                    // taken: a change is made at most once.
                    Ok(None) if unknown < UNKNOWN_TRIES => {
                        unknown += 1;
                        continue;
                    }
                    _ => return Err(error),
                },
                Err(error) => return Err(error),
            };
            if is_own {
                let number = change.number;
                state.apply(change);
                return Ok(Some((number, state.help_readers(storage).err())));
            }
            drop(state);
            let pause = rand::random_range(1..=4_u64 << turn.min(6));
            std::thread::sleep(Duration::from_millis(pause));
        }
        let message = format!("{}: others published {TRIES} times in a row before this change", self.url());
        Err(Error::unavailable(message))
    }
}

/// Refuses a name that means another dataset.
fn check_owner(state: &State, name: &str, uuid: &str) -> Result<()> {
    let versions = state.entries.range((name.to_owned(), 0)..=(name.to_owned(), u32::MAX));
    match versions.into_iter().find(|(_, listed)| listed.entry.uuid != uuid) {
        None => Ok(()),
        Some((_, other)) => Err(Error::conflict(format!(
            "{name} is the dataset {} at {}, not {uuid}: choose another name, or withdraw its versions first",
            other.entry.uuid, other.entry.url
        ))),
    }
}

/// The published version of this dataset with checksums whose objects are most likely the same: this one, else the nearest before or after.
fn nearest_version(state: &State, dataset: &Dataset) -> Option<Arc<Entry>> {
    let known = state.entries.values().map(|listed| &listed.entry);
    let own = known.filter(|entry| entry.uuid == dataset.uuid() && !entry.checksum_blobs.is_empty());
    own.min_by_key(|entry| (entry.version.abs_diff(dataset.version()), entry.version)).cloned()
}

/// Parents that the publisher names, that the fact `parents` names, and that own objects of the dataset.
fn parents(publication: &Publication, facts: &BTreeMap<String, Value>, owners: BTreeSet<String>) -> Vec<Parent> {
    let mut all: BTreeSet<Parent> = publication.parents.iter().cloned().collect();
    for fact in facts.get("parents").and_then(Value::as_array).into_iter().flatten() {
        all.extend(serde_json::from_value::<Parent>(fact.clone()));
    }
    for uuid in owners {
        if !all.iter().any(|parent| parent.uuid == uuid) {
            all.insert(Parent { uuid, version: None });
        }
    }
    all.into_iter().collect()
}

/// Source files that the publisher names, and those of the fact `sources`: objects with `name`, `uuid` or `guid`, `events`.
fn sources(publication: &Publication, facts: &BTreeMap<String, Value>) -> Vec<Source> {
    let text = |fact: &Value, names: &[&str]| {
        let found = names.iter().find_map(|&name| fact.get(name).and_then(Value::as_str));
        found.unwrap_or_default().to_owned()
    };
    let of_fact = |fact: &Value| match fact {
        Value::String(name) => Source { name: name.clone(), ..Source::default() },
        fact => Source {
            name: text(fact, &["name"]),
            guid: text(fact, &["guid", "uuid"]),
            events: fact.get("events").and_then(Value::as_u64),
        },
    };
    let facts = facts.get("sources").and_then(Value::as_array).into_iter().flatten().map(of_fact);
    facts.chain(publication.sources.iter().cloned()).collect()
}

/// Tags of the fact `tags`, facts `software` and `conditions`, and those of the publisher, which win.
fn tags(publication: &Publication, facts: &BTreeMap<String, Value>) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut all = BTreeMap::new();
    if let Some(Value::Object(tags)) = facts.get("tags") {
        all.extend(tags.iter().map(|(tag, value)| (tag.clone(), text(value))));
    }
    for tag in ["software", "conditions"] {
        all.extend(facts.get(tag).map(|value| (tag.to_owned(), text(value))));
    }
    all.extend(publication.tags.clone());
    all
}
