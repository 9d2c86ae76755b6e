//! Search: what is asked of names and tags is in memory; what is asked of columns, files and lumi sections is in blobs, each read once.

use super::blob;
use super::entry::{Columns, Entry, Source};
use super::layout::{AT_ONCE, Blob};
use super::state::Listed;
use crate::LumiList;
use crate::storage::Storage;
use forebay_core::{Error, Kind, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};

/// What is looked for; an entry must have all of it. `*` and `?` in names and values mean any characters and any one character.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// `scope:name`.
    pub name: Option<String>,
    /// Names of the dataset, whatever it is called.
    pub uuid: Option<String>,
    /// Values of tags.
    pub tags: BTreeMap<String, String>,
    /// Names of columns, each of which one of the tables must have.
    pub columns: Vec<String>,
    /// A source file: its whole name, the last part of its path, or its GUID.
    pub file: Option<String>,
    /// A run.
    pub run: Option<u64>,
    /// A lumi section of this run.
    pub lumi: Option<u64>,
    /// Only the newest version of each name that is in the catalogue.
    pub newest: bool,
}

/// The answer of a search.
#[derive(Debug, Default)]
pub struct Found {
    /// Entries, by name and version.
    pub entries: Vec<Listed>,
    /// Entries of which it could not be told, since a part of them is damaged.
    pub unread: Vec<(Listed, Error)>,
}

impl Query {
    /// Refuses what cannot be answered.
    pub(super) fn check(&self) -> Result<()> {
        match (self.run, self.lumi) {
            (None, Some(_)) => Err(Error::invalid("a lumi section is one of a run: give the run too")),
            _ => Ok(()),
        }
    }

    /// Whether an entry has what is asked, as far as it says so itself.
    pub(super) fn admits(&self, entry: &Entry) -> bool {
        let glob = |pattern: &Option<String>, text: &str| pattern.as_ref().is_none_or(|pattern| matches(pattern, text));
        glob(&self.name, &entry.name)
            && self.uuid.as_ref().is_none_or(|uuid| *uuid == entry.uuid)
            && self.tags.iter().all(|(tag, value)| entry.tags.get(tag).is_some_and(|has| matches(value, has)))
            && self.run.is_none_or(|run| entry.runs.is_some_and(|(first, last)| (first..=last).contains(&run)))
    }
}

/// Keeps the entries whose blobs have what is asked.
pub(super) fn search(storage: &dyn Storage, query: &Query, candidates: Vec<Listed>) -> Result<Found> {
    let mut found = Found { entries: candidates, unread: Vec::new() };
    if !query.columns.is_empty() {
        let has = |tables: &Vec<Columns>, _: &Query| {
            let names = || tables.iter().flat_map(|table| &table.names);
            query.columns.iter().all(|pattern| names().any(|name| matches(pattern, name)))
        };
        keep(storage, &mut found, query, |entry| &entry.columns_blob, has)?;
    }
    if query.file.is_some() {
        let has = |files: &Vec<Source>, query: &Query| {
            let wanted = query.file.as_deref().unwrap_or_default();
            files.iter().any(|file| {
                let last = file.name.rsplit('/').next().unwrap_or_default();
                matches(wanted, &file.name) || matches(wanted, last) || same_guid(wanted, &file.guid)
            })
        };
        keep(storage, &mut found, query, |entry| &entry.files_blob, has)?;
    }
    if let Some(run) = query.run {
        let has = |list: &LumiList, query: &Query| list.contains(run, query.lumi);
        keep(storage, &mut found, query, |entry| &entry.lumis_blob, has)?;
    }
    Ok(found)
}

/// Keeps the entries whose blob of a kind has what is asked; those without such a blob do not have it.
fn keep<T: for<'a> Deserialize<'a> + Send>(
    storage: &dyn Storage,
    found: &mut Found,
    query: &Query,
    blob_of: impl Fn(&Entry) -> &Option<Blob>,
    has: impl Fn(&T, &Query) -> bool,
) -> Result<()> {
    let mut answers: HashMap<Blob, std::result::Result<bool, String>> = HashMap::new();
    let mut blobs: Vec<&Blob> = found.entries.iter().filter_map(|listed| blob_of(&listed.entry).as_ref()).collect();
    blobs.sort_unstable();
    blobs.dedup();
    // In groups, so that memory holds a few of them.
    for group in blobs.chunks(AT_ONCE) {
        for (blob, value) in group.iter().zip(blob::read_many::<T>(storage, group)) {
            let answer = match value {
                Ok(value) => Ok(has(&value, query)),
                Err(error) if error.kind() == Kind::Corrupt => Err(error.message().to_owned()),
                Err(error) => return Err(error),
            };
            answers.insert((*blob).clone(), answer);
        }
    }
    for listed in std::mem::take(&mut found.entries) {
        match blob_of(&listed.entry).as_ref().map(|blob| &answers[blob]) {
            Some(Ok(true)) => found.entries.push(listed),
            Some(Err(why)) => {
                let error = Error::corrupt(why.clone());
                found.unread.push((listed, error));
            }
            Some(Ok(false)) | None => {}
        }
    }
    Ok(())
}

/// Whether two GUIDs are the same, written with or without dashes, in capitals or not.
fn same_guid(one: &str, other: &str) -> bool {
    let plain = |guid: &str| guid.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect::<String>();
    !other.is_empty() && plain(one) == plain(other)
}

/// Whether a text matches a pattern with `*` and `?`. Takes at most time proportional to both lengths multiplied.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where the last star was, and how much of the text it has taken: the only choice that is ever taken back.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("cms:*/NANOAOD", "cms:/a/b/NANOAOD", true),
            ("Muon_?t", "Muon_pt", true),
            ("Muon_?t", "Muon_t", false),
            ("*ab*ab", "abaab", true),
            ("*ab*ab", "abab?", false),
            ("a", "aa", false),
            ("", "a", false),
            ("ä*", "äb", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
        assert!(!matches(&"*a".repeat(200), &"a".repeat(5000).replace('a', "b")));
        assert!(same_guid("8F6C-AA", "8f6caa") && !same_guid("", ""));
    }
}
