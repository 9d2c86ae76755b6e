//! `forebay window`: ticks of a ring, what covers them, and their bytes.
//!
//! *Invariants*: it is read a piece at a time, so that memory does not grow with the window; a fragment that reaches over the end
//! of a piece is counted and written once, with the first piece that shows it.

use super::{Ticks, sources, time};
use crate::open::{OpenedRing, Place};
use crate::output::{Answer, Output};
use crate::units;
use forebay_core::{
    Coverage, Error, Result, RingKeyspace, RingSources, RingStore, RingView, RingWindow, SourceId, Stretch,
};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const HELP: &str = "\
Ask a ring for the ticks FROM to TO, and say of every source which of them it covers, and which not: missing and why, not yet \
there, or gone, which is evicted or before the source's first fragment. Ticks that are being taken are waited for with --wait.

With --out the bytes go into a directory: SOURCE.bin has a source's fragments back to back, in order of time, each compared with \
its checksum; SOURCE.jsonl has a line for each of them with its tick, span, run, status, offset, length and CRC-32C; window.json \
says what this command says. What is evicted while it is read is gone: pin a long window first, with `forebay pin`.

Exit code 0 means that fragments cover all of it; 1 that something is missing.

Example: the last 100 ms; some ticks of two sources, waited for, with their bytes:
  forebay window /tmp/links --last 100ms
  forebay window tcp://readout1:7440 62500000..62600000 --source 3/17 --source 3/18 --wait 2s --out /tmp/burst";

/// Bytes of a piece at the declared rate.
const PIECE_BYTES: u64 = 32 << 20;

/// Ask a ring for ticks: what covers them, and their bytes.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Window {
    #[command(flatten)]
    store: Place,
    #[command(flatten)]
    ticks: Ticks,
    /// Of this source, such as 3/17; of all when not given. May be repeated.
    #[arg(long, value_name = "SOURCE")]
    source: Vec<String>,
    /// How long to wait for what has not come yet.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = units::parse_duration)]
    wait: Duration,
    /// Directory for the bytes, created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// One source's part of a window.
struct Part {
    source: SourceId,
    coverage: Vec<Stretch>,
    fragments: u64,
    bytes: u64,
    corrupt: Vec<String>,
    files: Option<Files>,
}

/// Where the fragments of a source go.
struct Files {
    data: BufWriter<File>,
    index: BufWriter<File>,
}

/// Ticks that make a piece: a piece has about the same bytes for any number of sources, at the declared rate.
pub(super) fn piece_ticks(keyspace: &RingKeyspace, sources: usize) -> u64 {
    let rate = u128::from(keyspace.source_bytes_per_second).max(1) * (sources.max(1) as u128);
    let ticks = u128::from(PIECE_BYTES) * u128::from(keyspace.ticks_per_second) / rate;
    u64::try_from(ticks).unwrap_or(u64::MAX).max(1)
}

impl Window {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let ring = self.store.ring(out)?;
        let (begin, end) = self.ticks.of(&ring)?;
        let names = match sources(&ring, &self.source)? {
            RingSources::Only(names) => names,
            // Named now: a source that comes while this is read would have a part without a beginning.
            RingSources::All => ring.sources()?.into_iter().map(|status| status.source).collect(),
        };
        let mut parts = self.parts(&names)?;
        if !names.is_empty() {
            self.read(&ring, begin, end, names, &mut parts)?;
        }
        let value = as_json(ring.keyspace(), begin, end, &parts);
        if let Some(dir) = &self.out {
            for part in &mut parts {
                part.finish().map_err(|error| cannot_write(dir, error))?;
            }
            std::fs::write(dir.join("window.json"), value.to_string()).map_err(|error| cannot_write(dir, error))?;
        }
        out.json(&value)?;
        say(ring.keyspace(), begin, end, &parts, out)
    }

    fn parts(&self, names: &[SourceId]) -> Result<Vec<Part>> {
        if let Some(dir) = &self.out {
            std::fs::create_dir_all(dir).map_err(|error| cannot_write(dir, error))?;
        }
        let part = |&source: &SourceId| {
            let files = self.out.as_deref().map(|dir| Files::create(dir, &source)).transpose()?;
            Ok(Part { source, coverage: Vec::new(), fragments: 0, bytes: 0, corrupt: Vec::new(), files })
        };
        names.iter().map(part).collect()
    }

    fn read(&self, ring: &OpenedRing, begin: u64, end: u64, names: Vec<SourceId>, parts: &mut [Part]) -> Result<()> {
        let (piece, until) = (piece_ticks(ring.keyspace(), names.len()), Instant::now() + self.wait);
        let names = RingSources::Only(names);
        let mut from = begin;
        while from < end {
            let to = from.saturating_add(piece).min(end);
            let window = ring.window(from, to, &names, until.saturating_duration_since(Instant::now()))?;
            for (at, part) in parts.iter_mut().enumerate() {
                join(&mut part.coverage, window.coverage(at));
                for number in 0.. {
                    let Some(fragment) = window.fragment(at, number) else { break };
                    if fragment.timestamp < from && from > begin {
                        continue;
                    }
                    // Without files nobody sees the bytes.
                    let verified = if self.out.is_none() { Ok(()) } else { window.verify(at, number) };
                    part.add(&fragment, verified)
                        .map_err(|error| cannot_write(self.out.as_deref().unwrap_or(Path::new("")), error))?;
                }
            }
            from = to;
        }
        Ok(())
    }
}

/// Adds stretches to those before; one that goes over the end of a piece is one again.
fn join(coverage: &mut Vec<Stretch>, more: &[Stretch]) {
    for stretch in more {
        match coverage.last_mut() {
            Some(last) if last.state == stretch.state && last.end == stretch.begin => last.end = stretch.end,
            _ => coverage.push(*stretch),
        }
    }
}

fn cannot_write(dir: &Path, error: std::io::Error) -> Error {
    Error::unavailable(format!("{}: cannot be written", dir.display())).with_source(error)
}

impl Files {
    fn create(dir: &Path, source: &SourceId) -> Result<Files> {
        let name = source.text().replace('/', "-");
        let file = |ending: &str| File::create(dir.join(format!("{name}.{ending}"))).map(BufWriter::new);
        let files = file("bin").and_then(|data| Ok(Files { data, index: file("jsonl")? }));
        files.map_err(|error| cannot_write(dir, error))
    }
}

impl Part {
    fn add(&mut self, fragment: &RingView<'_>, verified: Result<()>) -> std::io::Result<()> {
        if let Err(error) = verified {
            self.corrupt.push(error.message().to_owned());
        }
        if let Some(files) = &mut self.files {
            files.data.write_all(fragment.bytes)?;
            let line = json!({
                "tick": fragment.timestamp,
                "span": fragment.span,
                "run": fragment.run,
                "status": fragment.status,
                "offset": self.bytes,
                "length": fragment.bytes.len(),
                "crc32c": format!("{:08x}", fragment.checksum),
            });
            writeln!(files.index, "{line}")?;
        }
        self.fragments += 1;
        self.bytes += fragment.bytes.len() as u64;
        Ok(())
    }

    fn finish(&mut self) -> std::io::Result<()> {
        let Some(files) = &mut self.files else { return Ok(()) };
        files.data.flush()?;
        files.index.flush()
    }

    fn is_complete(&self) -> bool {
        self.corrupt.is_empty() && self.coverage.iter().all(|stretch| stretch.state == Coverage::Complete)
    }
}

/// The state of a stretch, and why, as people and programs read it.
fn words(state: Coverage) -> (&'static str, Option<&'static str>) {
    match state {
        Coverage::Complete => ("covered", None),
        Coverage::Gap(cause) => ("missing", Some(cause.name())),
        Coverage::NotYet => ("not yet", None),
        Coverage::Gone => ("gone", None),
    }
}

fn as_json(keyspace: &RingKeyspace, begin: u64, end: u64, parts: &[Part]) -> Value {
    let stretch = |stretch: &Stretch| {
        let (state, cause) = words(stretch.state);
        json!({ "begin": stretch.begin, "end": stretch.end, "state": state, "cause": cause })
    };
    let part = |part: &Part| {
        json!({
            "source": part.source.text(),
            "fragments": part.fragments,
            "bytes": part.bytes,
            "complete": part.is_complete(),
            "coverage": part.coverage.iter().map(stretch).collect::<Vec<_>>(),
            "corrupt": part.corrupt,
        })
    };
    json!({
        "ring": keyspace.name,
        "begin": begin,
        "end": end,
        "complete": is_complete(parts),
        "sources": parts.iter().map(part).collect::<Vec<_>>(),
    })
}

/// Nothing is covered where no source is.
fn is_complete(parts: &[Part]) -> bool {
    !parts.is_empty() && parts.iter().all(Part::is_complete)
}

fn say(keyspace: &RingKeyspace, begin: u64, end: u64, parts: &[Part], out: &mut Output) -> Result<Answer> {
    out.line(format!(
        "ring {}, [{begin}, {end}): {}, {}",
        keyspace.name,
        time(keyspace, end - begin),
        units::plural(parts.len() as u64, "source")
    ))?;
    for part in parts {
        let (fragments, bytes) = (units::plural(part.fragments, "fragment"), units::bytes(part.bytes));
        let whole = if part.is_complete() { ", complete" } else { "" };
        out.line(format!("source {}: {fragments}, {bytes}{whole}", part.source))?;
        for stretch in part.coverage.iter().filter(|_| !part.is_complete()) {
            let (state, cause) = words(stretch.state);
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            let length = time(keyspace, stretch.end - stretch.begin);
            out.line(format!("  [{}, {}) {length} {state}{cause}", stretch.begin, stretch.end))?;
        }
        for problem in &part.corrupt {
            out.line(format!("  problem: {problem}"))?;
        }
    }
    let complete = is_complete(parts);
    out.line(if complete { "complete: fragments cover all of it" } else { "incomplete" })?;
    Ok(Answer::found(complete))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_hold_a_bounded_number_of_bytes_whatever_the_rate() {
        let mut keyspace = RingKeyspace::wibeth("links", 48).unwrap();
        assert_eq!(piece_ticks(&keyspace, 1), 9_544_371);
        assert_eq!(piece_ticks(&keyspace, 48), 198_841);
        (keyspace.source_bytes_per_second, keyspace.ticks_per_second) = (1 << 50, 1);
        assert_eq!(piece_ticks(&keyspace, 48), 1);
    }

    #[test]
    fn stretches_over_a_cut_are_one() {
        let stretch = |begin, end, state| Stretch { begin, end, state };
        let mut all = Vec::new();
        join(&mut all, &[stretch(0, 5, Coverage::Complete), stretch(5, 9, Coverage::NotYet)]);
        join(&mut all, &[stretch(9, 12, Coverage::NotYet), stretch(12, 13, Coverage::Gone)]);
        assert_eq!(all.iter().map(|one| (one.begin, one.end)).collect::<Vec<_>>(), [(0, 5), (5, 12), (12, 13)]);
    }
}
