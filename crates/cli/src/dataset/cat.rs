//! `forebay dataset cat`: values of columns, an event a line.
//!
//! *Invariant*: in memory are the chosen columns of one batch.

use super::progress::Progress;
use super::values::{Values, quoted};
use super::{Place, table_or_events};
use crate::output::{Answer, Output};
use forebay_core::{Error, Result};
use std::ops::Range;

const HELP: &str = "\
Write values of columns, an event a line: as text with tabs between the columns and their names in the first line, with --json as \
objects. Each value is written as JSON has it: numbers with the fewest digits that give them again, [lists], {records}, null for what \
is missing, strings in quotes, bytes in hexadecimal. What JSON has no number for is \"NaN\", \"inf\" or \"-inf\".

Only the stripes of these columns and events are read, a batch at a time.

Example: the first ten events; one event of an old version; the sum of a column by another program:
  forebay dataset cat /tmp/ds nMuon Muon_pt --events 0:10
  forebay dataset cat /tmp/ds Muon_pt --events 42:43 --version 0
  forebay dataset cat /tmp/ds weight --json | jq -s 'map(.weight) | add'";

/// Write values of columns as text or JSON lines.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct Cat {
    #[command(flatten)]
    place: Place,
    /// Columns, in the order in which they are written.
    #[arg(value_name = "COLUMN", required = true)]
    columns: Vec<String>,
    /// Events from A on and before B, counted from 0; either may be left out.
    #[arg(long, value_name = "A:B", value_parser = parse_events)]
    events: Option<Events>,
    /// Table; the one with the events when not given.
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,
}

/// A range of events with open ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Events {
    from: u64,
    to: Option<u64>,
}

impl Cat {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let dataset = self.place.open(out)?;
        let table = table_or_events(&dataset, self.table.as_deref())?;
        let all = dataset.events(&table)?;
        let Events { from, to } = self.events.unwrap_or(Events { from: 0, to: None });
        let to = to.unwrap_or(all);
        if from > to || to > all {
            return Err(Error::invalid(format!("events {from}:{to} of table {table}, which has {all}")));
        }
        let names: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        // Also where there are no events: names that do not exist are refused.
        dataset.read(&table, &names, from..from)?;
        out.line(names.join("\t"))?;
        let keys: Vec<String> = names.iter().map(|name| quoted(name)).collect();
        // Where values go to a terminal, they are the progress.
        let progress = (!out.is_terminal()).then(|| Progress::start(out, "reading"));
        for batch in dataset.batches(&table)? {
            let part = batch.start.max(from)..batch.end.min(to);
            if part.is_empty() {
                continue;
            }
            let columns = dataset.read(&table, &names, part.clone())?;
            let values: Vec<Values<'_>> = columns.iter().map(Values::new).collect();
            write(&values, &keys, part.clone(), out)?;
            if let Some(progress) = &progress {
                progress.set(part.end - from, to - from, "events");
            }
        }
        Ok(Answer::Yes)
    }
}

fn write(values: &[Values<'_>], keys: &[String], events: Range<u64>, out: &mut Output) -> Result<()> {
    let mut line = String::new();
    for event in 0..(events.end - events.start) as usize {
        line.clear();
        for (i, (column, key)) in values.iter().zip(keys).enumerate() {
            if out.json {
                line.push_str(if i == 0 { "{" } else { "," });
                line.push_str(key);
                line.push(':');
            } else if i > 0 {
                line.push('\t');
            }
            column.write(event, &mut line);
        }
        line.push_str(if out.json { "}\n" } else { "\n" });
        out.bytes(line.as_bytes())?;
    }
    Ok(())
}

/// `A:B`, `A:`, `:B`.
fn parse_events(text: &str) -> std::result::Result<Events, String> {
    let wrong = || format!("`{text}`: expected events such as 0:10, 100: or :10");
    let (from, to) = text.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let from = if from.is_empty() { 0 } else { number(from)? };
    let to = if to.is_empty() { None } else { Some(number(to)?) };
    if to.is_some_and(|to| to < from) { Err(wrong()) } else { Ok(Events { from, to }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_may_have_open_ends() {
        assert_eq!(parse_events("3:10"), Ok(Events { from: 3, to: Some(10) }));
        assert_eq!(parse_events("3:"), Ok(Events { from: 3, to: None }));
        assert_eq!(parse_events(":3"), Ok(Events { from: 0, to: Some(3) }));
        assert_eq!(parse_events(":"), Ok(Events { from: 0, to: None }));
        for wrong in ["", "3", "3:2", "a:b", "-1:2", "1:2:3"] {
            assert!(parse_events(wrong).is_err(), "{wrong}");
        }
    }
}
