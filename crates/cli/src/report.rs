//! A summary for people: anything that serialises, as names with values and as tables.
//!
//! ```text
//! summary ─JSON─▶ Item, fields in their order ─▶ single values, aligned │ a table for each list │ a group below its name
//! ```
//!
//! The unit of a number follows from the name of its field (`bytes`, `_s`, `_us`, `per_second`, `share`), as everywhere in
//! the project; nothing here knows a single summary.
//!
//! *Not here*: what is judged (`scenario`), what commands show that is no summary.

use crate::units;
use forebay_core::{Error, Result};
use forebay_daq::figures::rate;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Rows of a table that are shown: more than a readout unit has links.
const ROWS_MAX: usize = 50;
/// Eighths of a character cell, for histograms.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A serialised value whose fields keep their order, which those of `serde_json::Value` do not.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    Nothing,
    Flag(bool),
    Count(u64),
    Real(f64),
    Text(String),
    List(Vec<Item>),
    Fields(Vec<(String, Item)>),
}

/// The lines of a summary.
///
/// # Errors
/// `Internal` where it does not serialise.
pub(crate) fn lines(summary: &impl Serialize) -> Result<Vec<String>> {
    let item = serde_json::to_string(summary).and_then(|text| serde_json::from_str(&text));
    let item = item.map_err(|error| Error::internal("a summary to text").with_source(error))?;
    let mut lines = Vec::new();
    if let Item::Fields(mut fields) = item {
        // They follow at the end of a report, under what they contradict.
        fields.retain(|(name, _)| name != "problems");
        group(&mut lines, &fields, "");
    }
    Ok(lines)
}

/// Single values first, then what needs lines of its own.
fn group(lines: &mut Vec<String>, fields: &[(String, Item)], indent: &str) {
    let single: Vec<_> = fields.iter().filter(|(_, item)| item.is_single()).collect();
    let width = single.iter().map(|(name, _)| label(name).chars().count()).max().unwrap_or(0);
    lines.extend(single.iter().map(|(name, item)| format!("{indent}{:<width$}  {}", label(name), item.value(name))));
    let alike = alike(fields);
    if !alike.is_empty() {
        table(lines, &alike, indent);
    }
    let below = format!("{indent}  ");
    for (name, item) in fields {
        match item {
            Item::Fields(inner) if alike.is_empty() => {
                heading(lines, name, indent);
                group(lines, inner, &below);
            }
            Item::List(items) if !item.is_single() => {
                heading(lines, name, indent);
                let rows: Vec<_> = items.iter().filter_map(Item::fields).map(|row| (String::new(), row)).collect();
                if rows.is_empty() {
                    lines.extend(items.iter().map(|item| format!("{below}{}", item.value(name))));
                } else {
                    table(lines, &rows, &below);
                }
            }
            _ => {}
        }
    }
}

fn heading(lines: &mut Vec<String>, name: &str, indent: &str) {
    if indent.is_empty() {
        lines.push(String::new());
    }
    lines.push(format!("{indent}{}", label(name)));
}

/// Fields that are rows of one table, such as the terms of a ledger: several with the same fields of their own. A field that
/// only has such rows, as live data by state, gives its rows. Either all fields with fields of their own are rows, or none is.
fn alike(fields: &[(String, Item)]) -> Vec<(String, &[(String, Item)])> {
    let mut rows: Vec<(String, &[(String, Item)])> = Vec::new();
    for (name, item) in fields {
        let Some(row) = item.fields() else { continue };
        if row.iter().all(|(_, inner)| inner.fields().is_some()) {
            rows.extend(row.iter().filter_map(|(name, inner)| Some((name.clone(), inner.fields()?))));
        } else {
            rows.push((name.clone(), row));
        }
    }
    let same = |row: &[(String, Item)]| {
        let first = rows[0].1;
        row.len() == first.len() && row.iter().zip(first).all(|(one, other)| one.0 == other.0 && one.1.is_single())
    };
    let are_alike = rows.len() > 1 && rows.iter().all(|(_, row)| same(row));
    if are_alike { rows } else { Vec::new() }
}

/// A row for each, by name where they have names; what a row has below it follows the table.
fn table(lines: &mut Vec<String>, rows: &[(String, &[(String, Item)])], indent: &str) {
    let named = rows.iter().any(|(name, _)| !name.is_empty());
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|(_, row)| singles(row)) {
        if !columns.contains(&name) {
            columns.push(name);
        }
    }
    let cells = |(name, row): &(String, &[(String, Item)])| -> Vec<String> {
        let of = |column: &&str| singles(row).find(|(name, _)| name == column).map(|(name, item)| item.value(name));
        named
            .then(|| label(name))
            .into_iter()
            .chain(columns.iter().map(|column| of(column).unwrap_or_default()))
            .collect()
    };
    let mut shown: Vec<Vec<String>> =
        vec![named.then(String::new).into_iter().chain(columns.iter().map(|column| label(column))).collect()];
    shown.extend(rows.iter().take(ROWS_MAX).map(cells));
    let widths: Vec<usize> =
        (0..shown[0].len()).map(|at| shown.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    for row in &shown {
        let row = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        lines.push(format!("{indent}{}", row.collect::<Vec<_>>().join("  ")).trim_end().to_owned());
    }
    if rows.len() > ROWS_MAX {
        lines.push(format!("{indent}and {} more", rows.len() - ROWS_MAX));
    }
    for (row, cells) in rows.iter().zip(shown.iter().skip(1)) {
        for (name, item) in row.1 {
            let rows: Vec<_> = match item {
                Item::List(items) => items.iter().filter_map(Item::fields).map(|row| (String::new(), row)).collect(),
                _ => Vec::new(),
            };
            if !rows.is_empty() {
                lines.push(format!("{indent}{} of {}", label(name), cells[0]));
                table(lines, &rows, &format!("{indent}  "));
            }
        }
    }
}

/// The single values of a row, those of groups inside it among them.
fn singles(row: &[(String, Item)]) -> Box<dyn Iterator<Item = (&str, &Item)> + '_> {
    Box::new(row.iter().flat_map(|(name, item)| match item {
        Item::Fields(inner) => singles(inner),
        // A column of its own would be empty in most rows: what lists have follows the table.
        Item::List(items) if items.is_empty() => Box::new(std::iter::empty()),
        item if item.is_single() => Box::new(std::iter::once((name.as_str(), item))),
        _ => Box::new(std::iter::empty()),
    }))
}

/// A field's name for people; its value gives the unit.
fn label(name: &str) -> String {
    let name = name.strip_prefix("gb_").or_else(|| name.strip_prefix("mb_")).unwrap_or(name);
    let units = ["_s", "_ms", "_us", "_ns"];
    units.iter().find_map(|unit| name.strip_suffix(unit)).unwrap_or(name).replace('_', " ")
}

impl Item {
    fn fields(&self) -> Option<&[(String, Item)]> {
        match self {
            Item::Fields(fields) => Some(fields),
            _ => None,
        }
    }

    /// Whether it is shown beside its name: a value, or a list of numbers, of one text or of nothing.
    fn is_single(&self) -> bool {
        match self {
            Item::Nothing | Item::Fields(_) => false,
            Item::List(items) => match &items[..] {
                [] | [Item::Text(_)] => true,
                items => items.iter().all(|item| matches!(item, Item::Count(_) | Item::Real(_))),
            },
            _ => true,
        }
    }

    fn value(&self, name: &str) -> String {
        match self {
            Item::Nothing => String::new(),
            Item::Flag(flag) => if *flag { "yes" } else { "no" }.to_owned(),
            Item::Count(count) => with_unit(name, *count as f64).unwrap_or_else(|| count.to_string()),
            Item::Real(real) => with_unit(name, *real).unwrap_or_else(|| format!("{real:.3}")),
            Item::Text(text) => text.clone(),
            Item::List(items) if items.is_empty() => "none".to_owned(),
            Item::List(items) if name == "bins" => bars(items),
            Item::List(items) => items.iter().map(|item| item.value(name)).collect::<Vec<_>>().join(" "),
            Item::Fields(_) => String::new(),
        }
    }
}

/// A number in the unit that its field's name says; `None` where that says none.
fn with_unit(name: &str, value: f64) -> Option<String> {
    let text = match name {
        _ if name.ends_with("gb_per_second") => format!("{value:.2} GB/s"),
        _ if name.ends_with("mb_per_second") => format!("{value:.1} MB/s"),
        _ if name.ends_with("bytes_per_second") => rate(value),
        _ if name.ends_with("per_second") => format!("{}/s", units::count(value)),
        _ if name == "bytes" || name.ends_with("_bytes") => units::bytes(value as u64),
        _ if name.ends_with("_us") => format!("{value:.1} µs"),
        _ if name.ends_with("_ms") => format!("{value} ms"),
        _ if name.ends_with("_ns") => format!("{:.3} s", value / 1e9),
        _ if name.ends_with("_s") || name.starts_with("seconds") => format!("{value:.3} s"),
        _ if name.ends_with("share") || name.starts_with("fill") => format!("{:.2} %", value * 100.0),
        _ => return None,
    };
    Some(text)
}

/// A histogram of one character a bin.
fn bars(bins: &[Item]) -> String {
    let counts = bins.iter().map(|bin| if let Item::Count(count) = bin { *count } else { 0 });
    let most = counts.clone().max().unwrap_or(0).max(1);
    let bar = |count: u64| match count {
        0 => ' ',
        count => BARS[((count * 8).div_ceil(most) as usize).clamp(1, 8) - 1],
    };
    format!("▕{}▏", counts.map(bar).collect::<String>())
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Item, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Item;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a serialised value")
    }

    fn visit_unit<E>(self) -> std::result::Result<Item, E> {
        Ok(Item::Nothing)
    }

    fn visit_bool<E>(self, flag: bool) -> std::result::Result<Item, E> {
        Ok(Item::Flag(flag))
    }

    fn visit_u64<E>(self, count: u64) -> std::result::Result<Item, E> {
        Ok(Item::Count(count))
    }

    fn visit_i64<E>(self, number: i64) -> std::result::Result<Item, E> {
        Ok(Item::Real(number as f64))
    }

    fn visit_f64<E>(self, real: f64) -> std::result::Result<Item, E> {
        Ok(Item::Real(real))
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<Item, E> {
        Ok(Item::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Item, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Item::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Item, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Item::Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::{Ledger, Tally};
    use serde_json::json;

    #[derive(Serialize)]
    struct Example {
        name: &'static str,
        hot_bytes: u64,
        interrupted: bool,
        input: Option<&'static str>,
        roles: Vec<serde_json::Value>,
        nested: serde_json::Value,
        gaps: [u64; 0],
        ledger: Ledger,
    }

    #[test]
    fn values_are_aligned_and_have_the_unit_of_their_name() {
        let stored = Tally::event(3, 7_200_000);
        let example = Example {
            name: "atlas",
            hot_bytes: 1 << 30,
            interrupted: false,
            input: None,
            roles: vec![
                json!({"a": "readout", "b": 12, "c_us": 1.25, "per_second": 1234.5}),
                json!({"a": "fast", "b": 3, "c_us": 10.0, "gaps": [{"begin": 5, "share": 0.5}]}),
            ],
            nested: json!({"taking_s": 10.0, "bins": [0, 1, 8], "notes": ["one", "two"]}),
            gaps: [],
            ledger: Ledger { offered: stored, stored, complete: 1, ..Ledger::default() },
        };
        let text = lines(&example).unwrap().join("\n");
        assert!(
            text.starts_with(
                "name         atlas\nhot bytes    1.00 GiB\ninterrupted  no\ngaps         none\n\nroles\n"
            ),
            "{text}"
        );
        for line in [
            "  a         b        c  per second",
            "  readout  12   1.2 µs    1.23 k/s",
            "  fast      3  10.0 µs",
            "  gaps of fast",
            "    begin    share",
            "    5      50.00 %",
            "  bins    ▕ ▁█▏",
            "  taking  10.000 s",
            "  notes",
            "    two",
            "  complete    1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        for words in ["offered", "accepted", "lost"] {
            assert!(text.lines().any(|line| line.trim_start().starts_with(words)), "{words}\n{text}");
        }
    }

    #[test]
    fn a_long_list_is_cut() {
        let rows: Vec<_> = (0..60).map(|n| json!({"n": n})).collect();
        let lines = lines(&json!({ "rows": rows })).unwrap();
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (3 + ROWS_MAX + 1, "  and 10 more"));
    }
}
