//! `forebay dataset lumis`: the lumi sections of a dataset, and the events that a golden JSON file selects.

use super::Place;
use super::progress::Progress;
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::{Error, Result};
use forebay_dataset::LumiList;
use serde_json::json;
use std::path::PathBuf;

const HELP: &str = "\
List the lumi sections of a dataset with their events, from its columns run and luminosityBlock (PHYSLITE: EventInfoAuxDyn.runNumber and \
lumiBlock). Sections that its table LuminosityBlocks names are there too, with no events where a selection removed them all. With \
--select: the events of the sections in a golden JSON file, as ranges; none selected: exit code 1.

Example: sections of each run; as a golden JSON file; the events that are good:
  forebay dataset lumis /tmp/ds
  forebay dataset lumis /tmp/ds --json | jq .lumis > lumis.json
  forebay dataset lumis /tmp/ds --select golden.json

With --json: lumis (as in a golden JSON file), sections and events; with --select: ranges of events, and events.";

/// List lumi sections, and the events that a golden JSON file selects.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(super) struct LumisOf {
    #[command(flatten)]
    place: Place,
    /// A golden JSON file.
    #[arg(long, value_name = "FILE")]
    select: Option<PathBuf>,
}

impl LumisOf {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        // Before the dataset is read: a file that is none is no reason to wait.
        let list = self.select.as_ref().map(|path| {
            let failed = |error| Error::invalid(format!("cannot read {}", path.display())).with_source(error);
            LumiList::parse(&std::fs::read_to_string(path).map_err(failed)?)
        });
        let list = list.transpose()?;
        let dataset = self.place.open(out)?;
        let _progress = Progress::start(out, "reading runs and lumi sections");
        if let Some(list) = list {
            let ranges = list.ranges(&dataset)?;
            let events: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            let pairs: Vec<[u64; 2]> = ranges.iter().map(|range| [range.start, range.end]).collect();
            out.json(
                &json!({ "url": dataset.url(), "version": dataset.version(), "ranges": pairs, "events": events }),
            )?;
            for range in &ranges {
                out.line(format!("{}:{}", range.start, range.end))?;
            }
            out.line(format!("{} in {}", units::plural(events, "event"), units::plural(ranges.len() as u64, "range")))?;
            return Ok(Answer::found(events > 0));
        }
        let lumis = dataset.lumis()?;
        let events: u64 = lumis.events.values().flat_map(|sections| sections.values()).sum();
        out.json(&json!({
            "url": dataset.url(),
            "version": dataset.version(),
            "lumis": lumis.list(),
            "sections": lumis.sections(),
            "events": events,
        }))?;
        let list = lumis.list();
        for (run, ranges) in list.runs() {
            let events: u64 = lumis.events.get(&run).into_iter().flat_map(|sections| sections.values()).sum();
            let range =
                |&(first, last): &(u64, u64)| if first == last { first.to_string() } else { format!("{first}-{last}") };
            let ranges = ranges.iter().map(range).collect::<Vec<_>>().join(",");
            out.line(format!("run {run}: {}, lumi sections {ranges}", units::plural(events, "event")))?;
        }
        out.line(format!("{}, {}", units::plural(lumis.sections(), "section"), units::plural(events, "event")))?;
        Ok(Answer::Yes)
    }
}
