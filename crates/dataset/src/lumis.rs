//! Lumi sections: which of them a dataset has, and the events of those that a golden JSON file selects.
//!
//! Run and lumi section of each event are read from two columns; the names are those of NanoAOD and of PHYSLITE. Sections that the
//! table `LuminosityBlocks` names are there too, with no event where a selection removed them all: a luminosity has to count them.

use crate::{Column, Dataset, Scalar, Type};
use forebay_core::{Error, Kind, Result};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// Columns that hold run and lumi section, tried in this order.
const COLUMNS: [(&str, &str); 3] = [
    ("run", "luminosityBlock"),
    ("EventInfoAuxDyn.runNumber", "EventInfoAuxDyn.lumiBlock"),
    ("EventInfoAux.runNumber", "EventInfoAux.lumiBlock"),
];
/// The side table that names sections.
const SECTIONS: &str = "LuminosityBlocks";
/// Events that are read at once: two columns of these fit into a few megabytes.
const WINDOW_EVENTS: u64 = 1 << 20;

/// Events of each lumi section of each run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lumis {
    /// By run, then by lumi section.
    pub events: BTreeMap<u64, BTreeMap<u64, u64>>,
}

impl Lumis {
    /// The sections as ranges.
    pub fn list(&self) -> LumiList {
        let mut list = LumiList::default();
        for (&run, sections) in &self.events {
            // Sections are in order: each one extends the last range or begins the next.
            let ranges: &mut Vec<(u64, u64)> = list.runs.entry(run).or_default();
            for &section in sections.keys() {
                match ranges.last_mut() {
                    Some((_, last)) if last.checked_add(1) == Some(section) => *last = section,
                    _ => ranges.push((section, section)),
                }
            }
        }
        list
    }

    /// How many sections there are.
    pub fn sections(&self) -> u64 {
        self.events.values().map(|sections| sections.len() as u64).sum()
    }
}

/// Ranges of lumi sections of each run, as in a golden JSON file: `{"355100": [[1, 54], [60, 61]]}`. Both ends are in a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LumiList {
    /// By run: ranges in order that neither overlap nor touch.
    runs: BTreeMap<u64, Vec<(u64, u64)>>,
}

impl LumiList {
    /// The list in a golden JSON text.
    ///
    /// # Errors
    /// `Invalid` where it is none.
    pub fn parse(text: &str) -> Result<LumiList> {
        serde_json::from_str(text).map_err(|error| {
            Error::invalid(format!("not a list of lumi sections, such as {{\"355100\": [[1, 54], [60, 61]]}}: {error}"))
        })
    }

    /// Runs with their ranges.
    pub fn runs(&self) -> impl Iterator<Item = (u64, &[(u64, u64)])> {
        self.runs.iter().map(|(&run, ranges)| (run, ranges.as_slice()))
    }

    /// Whether there is no section.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many sections there are.
    pub fn sections(&self) -> u64 {
        let all = self.runs.values().flatten();
        all.fold(0, |sum: u64, (first, last)| sum.saturating_add((last - first).saturating_add(1)))
    }

    /// Whether the run has a section in the list: this one, or any.
    pub fn contains(&self, run: u64, section: Option<u64>) -> bool {
        let Some(ranges) = self.runs.get(&run) else { return false };
        let Some(section) = section else { return true };
        let at = ranges.partition_point(|&(_, last)| last < section);
        ranges.get(at).is_some_and(|&(first, _)| first <= section)
    }

    /// Ranges of the events of a dataset whose lumi section is in the list, in order.
    ///
    /// # Errors
    /// `Invalid` where the dataset has no columns with run and lumi section; errors of reading.
    pub fn ranges(&self, dataset: &Dataset) -> Result<Vec<Range<u64>>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let table = events_table(dataset)?;
        each_event(dataset, &table, columns(dataset, &table)?, &mut |event, run, section| {
            if !self.contains(run, Some(section)) {
                return;
            }
            match ranges.last_mut() {
                Some(range) if range.end == event => range.end += 1,
                _ => ranges.push(event..event + 1),
            }
        })?;
        Ok(ranges)
    }

    /// Adds ranges of a run and puts them in order.
    fn add(&mut self, run: u64, mut more: Vec<(u64, u64)>) {
        let ranges = self.runs.entry(run).or_default();
        ranges.append(&mut more);
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
        for &(first, last) in ranges.iter() {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        *ranges = merged;
        if ranges.is_empty() {
            self.runs.remove(&run);
        }
    }
}

impl Serialize for LumiList {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_map(&self.runs)
    }
}

impl<'de> Deserialize<'de> for LumiList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<LumiList, D::Error> {
        struct Runs;
        impl<'de> Visitor<'de> for Runs {
            type Value = LumiList;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("runs with ranges of lumi sections")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<LumiList, A::Error> {
                use serde::de::Error as _;
                let mut list = LumiList::default();
                // A run that is there twice has the sections of both: a map would silently keep the last one only.
                while let Some((run, ranges)) = map.next_entry::<String, Vec<(u64, u64)>>()? {
                    let number = run.parse().map_err(|_| A::Error::custom(format!("{run:?} is no run number")))?;
                    if let Some((first, last)) = ranges.iter().find(|(first, last)| first > last) {
                        return Err(A::Error::custom(format!(
                            "run {run}: the range [{first}, {last}] ends before it begins"
                        )));
                    }
                    list.add(number, ranges);
                }
                Ok(list)
            }
        }
        from.deserialize_map(Runs)
    }
}

impl Dataset {
    /// The lumi sections of this version with the number of events of each. Reads two columns.
    ///
    /// # Errors
    /// `Invalid` where there are no columns with run and lumi section; errors of reading.
    pub fn lumis(&self) -> Result<Lumis> {
        let mut lumis = Lumis::default();
        let table = events_table(self)?;
        each_event(self, &table, columns(self, &table)?, &mut |_, run, section| {
            *lumis.events.entry(run).or_default().entry(section).or_default() += 1;
        })?;
        if self.tables().contains(&SECTIONS) && table != SECTIONS {
            match columns(self, SECTIONS) {
                Ok(names) => each_event(self, SECTIONS, names, &mut |_, run, section| {
                    lumis.events.entry(run).or_default().entry(section).or_default();
                })?,
                // A table of this name without these columns says nothing of sections.
                Err(error) if error.kind() == Kind::Invalid => {}
                Err(error) => return Err(error),
            }
        }
        Ok(lumis)
    }

    /// Whether there are columns with run and lumi section.
    pub(crate) fn has_lumis(&self) -> Result<bool> {
        match events_table(self).and_then(|table| columns(self, &table)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == Kind::Invalid => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The table with the events, which is the first one.
fn events_table(dataset: &Dataset) -> Result<String> {
    let tables = dataset.tables();
    let first = tables.first().map(|&first| first.to_owned());
    first.ok_or_else(|| Error::invalid(format!("{}: the dataset has no table", dataset.url())))
}

/// Names of the columns with run and lumi section.
fn columns(dataset: &Dataset, table: &str) -> Result<[&'static str; 2]> {
    let products = dataset.products(table)?;
    let has = |name: &str| products.iter().any(|product| product.name == name && is_number(&product.ty));
    let found = COLUMNS.into_iter().find(|(run, section)| has(run) && has(section));
    found.map(|(run, section)| [run, section]).ok_or_else(|| {
        let names = COLUMNS.map(|(run, section)| format!("{run} and {section}")).join(", or ");
        Error::invalid(format!("{}: table {table} has no whole numbers {names}", dataset.url()))
    })
}

/// Whether a column has one whole number an event, or none in some.
fn is_number(ty: &Type) -> bool {
    match ty {
        Type::Value(scalar) => !matches!(scalar, Scalar::Bool | Scalar::F16 | Scalar::F32 | Scalar::F64),
        Type::Option(inner) => matches!(inner.as_ref(), Type::Value(_)) && is_number(inner),
        _ => false,
    }
}

/// Hands over number, run and section of each event that has both.
fn each_event(dataset: &Dataset, table: &str, names: [&str; 2], take: &mut dyn FnMut(u64, u64, u64)) -> Result<()> {
    let all = dataset.events(table)?;
    let mut start = 0;
    // Windows end where batches do, so that no stripe is read twice.
    for batch in dataset.batches(table)? {
        if batch.end - start < WINDOW_EVENTS && batch.end < all {
            continue;
        }
        let columns = dataset.read(table, &names, start..batch.end)?;
        let (runs, sections) = (numbers(&columns[0]), numbers(&columns[1]));
        for (event, pair) in (start..).zip(runs.zip(sections)) {
            if let (Some(run), Some(section)) = pair {
                take(event, run, section);
            }
        }
        start = batch.end;
    }
    Ok(())
}

/// The numbers of a column; none where an event has none, or one below 0.
fn numbers(column: &Column) -> impl Iterator<Item = Option<u64>> + '_ {
    let scalar = column.scalars().last().copied().unwrap_or(Scalar::U8);
    let (width, signed) = (scalar.width(), matches!(scalar, Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64));
    let bytes = column.parts.last().map_or(&[][..], |part| part.bytes());
    let index = match column.ty {
        Type::Option(_) => Some(column.parts[0].integers()),
        _ => None,
    };
    (0..column.events as usize).map(move |event| {
        let at = index.map_or(event as i64, |index| index[event]);
        let start = usize::try_from(at).ok()? * width;
        let mut word = [0; 8];
        word[..width].copy_from_slice(&bytes[start..start + width]);
        let negative = signed && word[width - 1] & 0x80 != 0;
        (!negative).then(|| u64::from_le_bytes(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_golden_list_is_put_in_order() {
        let list = LumiList::parse(r#"{"7": [[5, 6], [1, 2], [3, 3]], "9": [], "7": [[10, 10]]}"#).unwrap();
        assert_eq!(list.runs().collect::<Vec<_>>(), [(7, &[(1, 3), (5, 6), (10, 10)][..])]);
        assert_eq!(list.sections(), 6);
        for (section, inside) in [(0, false), (1, true), (3, true), (4, false), (6, true), (10, true), (11, false)] {
            assert_eq!(list.contains(7, Some(section)), inside, "{section}");
        }
        assert!(list.contains(7, None) && !list.contains(9, None));
        let again = LumiList::parse(&serde_json::to_string(&list).unwrap()).unwrap();
        assert_eq!(again, list);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", "[]", r#"{"a": [[1, 2]]}"#, r#"{"1": [[2, 1]]}"#, r#"{"1": [[1]]}"#, r#"{"1": [[-1, 2]]}"#] {
            assert_eq!(LumiList::parse(text).unwrap_err().kind(), Kind::Invalid, "{text}");
        }
        let widest = LumiList::parse(r#"{"1": [[0, 18446744073709551615], [3, 4]]}"#).unwrap();
        assert_eq!(widest.sections(), u64::MAX);
    }
}
