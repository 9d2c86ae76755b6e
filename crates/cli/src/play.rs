//! `forebay play`: reads a recording back, window by window, and verifies it.
//!
//! *Not here*: reading and verifying (`forebay_daq::record`, `forebay_store`).

use crate::output::{Answer, Output};
use crate::{scenario, units};
use forebay_core::{Error, Result};
use forebay_daq::Summary;
use forebay_daq::record::{self, PlayChoices, PlayWindow};
use forebay_recorder::GapManifest;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

const HELP: &str = "\
Reads frames of a recording back: of chosen links, of a window of ticks or the last N seconds. Each extent is one \
read, and every frame's bytes are compared with their checksum. --verify also holds the containers against the gap \
manifest, tick by tick, and each frame's own timestamp and sequence number against its position. --output writes the \
payloads to a file, link after link.

All directories of the recording are named. Where the process that recorded died before it wrote a manifest, one is made \
from the containers, and it says from which tick on a link's end is unknown.

Example: the whole recording, verified; ten seconds from the end of four links; one link's window into a file:
  forebay play /data/rec1 --verify
  forebay play /disk1/rec /disk2/rec --links 0-3 --last 10s
  forebay play /data/rec1 --links 0 --from 106000000000000000 --to 106000000062500000 --output window.bin

Exit code 1 means that a frame does not verify, or that containers and manifest differ.";

/// Most links of one range.
const LINKS_MAX: u32 = 1 << 16;

/// Play a recording back and verify it.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Play {
    /// All directories of the recording.
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// Links by number, such as 0-3 or 0,5; all when not given.
    #[arg(long, value_name = "LINKS", value_parser = parse_links)]
    links: Option<Links>,
    /// First tick.
    #[arg(long, value_name = "TICK", default_value_t = 0, conflicts_with = "last")]
    from: u64,
    /// Tick after the last one.
    #[arg(long, value_name = "TICK", conflicts_with = "last")]
    to: Option<u64>,
    /// The last so long of each link, such as 10s.
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    last: Option<Duration>,
    /// Compare containers with the manifest, and frames with what they say of themselves.
    #[arg(long)]
    verify: bool,
    /// Write the payloads to this file.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Links by number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Links(Vec<u32>);

impl Play {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let window = match self.last {
            Some(last) => PlayWindow::Last(last),
            None => PlayWindow::Ticks(self.from, self.to.unwrap_or(u64::MAX)),
        };
        let choices = PlayChoices {
            dirs: self.dirs.clone(),
            links: self.links.as_ref().map(|links| links.0.clone()),
            window,
            verify: self.verify,
            accept_loss: out.accept_loss,
        };
        let mut file = match &self.output {
            Some(path) => Some(BufWriter::with_capacity(
                1 << 20,
                File::create(path)
                    .map_err(|error| Error::invalid(format!("cannot write {}", path.display())).with_source(error))?,
            )),
            None => None,
        };
        let mut heading = None;
        let output = file.as_mut().map(|file| file as &mut dyn Write);
        let played = scenario::execute(out, |stop, _| {
            record::play(&choices, stop, output, &mut |manifest| heading = Some(describe(manifest)))
        });
        let (summary, stopped) = played?;
        if let Some(mut file) = file {
            file.flush().map_err(|error| Error::unavailable("cannot write the output").with_source(error))?;
        }
        for line in heading.into_iter().flatten() {
            out.line(line)?;
        }
        scenario::report(out, &summary)?;
        Ok(summary.verdict(stopped).into())
    }
}

fn describe(manifest: &GapManifest) -> Vec<String> {
    let totals = &manifest.totals;
    let mut lines = vec![format!(
        "{} (run {}): {}, recorded {} of {} frames, {}, {}",
        manifest.name,
        manifest.run,
        units::plural(manifest.links.len() as u64, "link"),
        totals.recorded,
        totals.produced,
        units::bytes(totals.recorded_bytes),
        units::plural(totals.gaps, "gap")
    )];
    if manifest.rebuilt {
        lines.push("its process wrote no manifest: this one is rebuilt from the containers".to_owned());
        for link in &manifest.links {
            let from = link.unknown_from.unwrap_or_default();
            lines.push(format!("  {}: unknown from tick {from} on", link.config.name));
        }
    }
    lines
}

/// Numbers and ranges, such as `0-3,7`.
fn parse_links(text: &str) -> std::result::Result<Links, String> {
    let wrong = || format!("`{text}`: expected links such as 0-3 or 0,5");
    let mut links = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
        if last < first || last >= LINKS_MAX {
            return Err(wrong());
        }
        links.extend((first..=last).filter(|link| !links.contains(link)).collect::<Vec<_>>());
    }
    Ok(Links(links))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_numbers_and_ranges() {
        assert_eq!(parse_links("0-3"), Ok(Links(vec![0, 1, 2, 3])));
        assert_eq!(parse_links("5,0-1,5"), Ok(Links(vec![5, 0, 1])));
        for wrong in ["", "a", "3-1", "1-", "0-70000"] {
            assert!(parse_links(wrong).is_err(), "{wrong}");
        }
    }
}
