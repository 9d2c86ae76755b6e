//! A look-up table: which nodes hold the payload of which sources, from a run on.

use super::text::{Hex128, fnv};
use crate::limits::FRAGMENTS_PER_EVENT_MAX;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Sources and their holders from a run on. Sources are the sub-keys after the primary key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub(super) from_run: u64,
    pub(super) rows: Vec<Row>,
}

/// Consecutive sources that have the same holders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    lead: Vec<u64>,
    first: u64,
    last: u64,
    pub(super) nodes: Vec<u16>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableText {
    from_run: u64,
    hash: Hex128,
    sources: Vec<(String, Vec<u16>)>,
}

impl Table {
    /// A table of rows such as `("1/0..3", [4])`: sources in ascending order, each with one or two nodes.
    ///
    /// # Errors
    /// `Invalid`, naming the row that is wrong.
    pub fn new(from_run: u64, sources: &[(String, Vec<u16>)]) -> Result<Table> {
        let wrong = |what: String| Err(Error::invalid(format!("table from run {from_run}: {what}")));
        if sources.is_empty() || sources.len() > FRAGMENTS_PER_EVENT_MAX as usize {
            return wrong(format!("{} rows; give 1 to {FRAGMENTS_PER_EVENT_MAX}", sources.len()));
        }
        let mut rows: Vec<Row> = Vec::with_capacity(sources.len());
        for (text, nodes) in sources {
            let Some(row) = Row::parse(text, nodes) else {
                return wrong(format!(
                    "no sources `{text:.64}`; write FIRST..LAST or one source, such as 0..49 or 1/0..3"
                ));
            };
            if !matches!(nodes[..], [_] | [_, _]) || (nodes.len() == 2 && nodes[0] == nodes[1]) {
                return wrong(format!(
                    "sources `{text}` have holders {nodes:.3?}; give one node or two different ones"
                ));
            }
            if let Some(before) = rows.last() {
                if before.lead.len() != row.lead.len() {
                    return wrong(format!("sources `{text}` have another number of parts than those before them"));
                }
                if (&before.lead, before.last) >= (&row.lead, row.first) {
                    return wrong(format!(
                        "sources `{text}` are not behind `{}`; give each source once, in ascending order",
                        before.text()
                    ));
                }
            }
            rows.push(row);
        }
        Ok(Table { from_run, rows })
    }

    /// The first run that uses the table.
    pub fn from_run(&self) -> u64 {
        self.from_run
    }

    /// Whether a node holds sources.
    pub fn has_holder(&self, node: u16) -> bool {
        self.rows.iter().any(|row| row.nodes.contains(&node))
    }

    /// The sources that a node holds, as they are written: `FIRST..LAST`, or one.
    pub fn held_by(&self, node: u16) -> Vec<String> {
        self.rows.iter().filter(|row| row.nodes.contains(&node)).map(Row::text).collect()
    }

    /// Whether a source has two holders.
    pub fn has_copies(&self) -> bool {
        self.rows.iter().any(|row| row.nodes.len() > 1)
    }

    /// The holders of a source by its values; `None` where the table has no such source.
    pub fn holders(&self, source: &[u64]) -> Option<&[u16]> {
        let (&last, lead) = source.split_last()?;
        let behind = self.rows.partition_point(|row| (&row.lead[..], row.first) <= (lead, last));
        let row = &self.rows[behind.checked_sub(1)?];
        // Value by value: most sources have one part, and comparing nothing by `memcmp` took 80 ns, with its pointer to nowhere.
        (row.lead.iter().eq(lead) && last <= row.last).then_some(&row.nodes)
    }

    /// All sources by their values, with the first holder of each, in ascending order.
    pub fn sources(&self) -> impl Iterator<Item = (Vec<u64>, u16)> + '_ {
        self.rows.iter().flat_map(|row| {
            let source = |last| row.lead.iter().copied().chain([last]).collect();
            (row.first..=row.last).map(move |last| (source(last), row.nodes[0]))
        })
    }

    /// Hash of the sources and their holders: what a run states about its table.
    pub fn hash(&self) -> Hex128 {
        self.to_text().hash
    }

    pub(super) fn to_text(&self) -> TableText {
        let sources: Vec<_> = self.rows.iter().map(|row| (row.text(), row.nodes.clone())).collect();
        let mut text = Vec::new();
        for (name, nodes) in &sources {
            text.extend_from_slice(format!("{name}={nodes:?};").as_bytes());
        }
        TableText { from_run: self.from_run, hash: fnv(&text), sources }
    }

    pub(super) fn from_text(text: &TableText) -> Result<Table> {
        let table = Table::new(text.from_run, &text.sources)?;
        let hash = table.hash();
        if hash != text.hash {
            let wrong = format!("table from run {}: its hash is {hash:?}, and it says {:?}", text.from_run, text.hash);
            return Err(Error::invalid(format!("{wrong}; it was changed after it was made: take the original")));
        }
        Ok(table)
    }
}

impl Row {
    fn parse(text: &str, nodes: &[u16]) -> Option<Row> {
        let (head, last) = text.split_once("..").map_or((text, None), |(head, last)| (head, Some(last)));
        // Only what is written back the same way: no sign, no leading zero.
        let number = |part: &str| part.parse::<u64>().ok().filter(|value| value.to_string() == part);
        let mut lead = head.split('/').take(17).map(number).collect::<Option<Vec<u64>>>()?;
        let first = lead.pop()?;
        let last = last.map_or(Some(first), number)?;
        (first <= last && lead.len() < 16 && (first < last || !text.contains('.'))).then(|| Row {
            lead,
            first,
            last,
            nodes: nodes.to_vec(),
        })
    }

    fn text(&self) -> String {
        let mut text: String = self.lead.iter().map(|part| format!("{part}/")).collect();
        text += &self.first.to_string();
        if self.last > self.first {
            text += &format!("..{}", self.last);
        }
        text
    }
}
