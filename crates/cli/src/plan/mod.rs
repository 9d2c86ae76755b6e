//! `forebay plan`: how long each level lasts, what the drives endure, and what binds first.
//!
//! *Not here*: the arithmetic (`forebay_daq::plan`); this file is its command line.

mod text;

use crate::output::{Answer, Output};
use crate::units;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use forebay_core::{Error, Result};
use forebay_daq::demo::Profile;
use forebay_daq::plan::{Setup, Sizing};
use std::time::Duration;

const HELP: &str = "\
Work out the size of a node: what comes in and what is accepted, how many seconds the hot level lasts without a selection, \
how many hours the warm level lasts without an archive, whether the devices are fast enough, how many drive writes per day \
they get, and what binds first when rates grow. Nothing is read, written or measured: every figure follows from those given, \
with a write amplification of 1.02 and high-water marks of 90 %. docs/operating.md (Sizing) has the arithmetic.

Rates of events and bytes are those while the beam is on; --duty is the share of the time that it is. Sizes and rates in \
bytes are in powers of 1024, as everywhere (a drive sold as 3.84 TB is 3.49T); answers per second are in powers of 1000.

What is not given is not judged: without --device-write-rate, for instance, the devices are taken to be fast enough, and the \
answer says so.

Example: one of 500 servers of ATLAS Phase II, which has 5.12 TB/s in and 60 GB/s out; the same where the beam is on half \
of the time and the farm is sized for the mean; a recorder that keeps everything; for a program:
  forebay plan --profile atlas --event-rate 2000 --accept 1.17% --decision-latency 3s --hot 64G --warm 3.49T --warm 3.49T \\
    --device-write-rate 2.5G --archive-rate 240M --endurance 1
  forebay plan --profile atlas --event-rate 2000 --accept 1.17% --duty 50% --filter-rate 1100 --hot 64G --warm 3.49T
  forebay plan --sources 48 --fragment-bytes 2196000 --event-rate 100 --hot 32G --warm 14T --autonomy 100s
  forebay plan --profile cms --event-rate 1500 --hot 128G --warm 7T --json | jq .bounds";

/// Work out how long each level lasts and what binds first.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Plan {
    /// Sources and fragments of an experiment.
    #[arg(long, value_name = "NAME", value_parser = profiles())]
    profile: Option<Profile>,
    /// Sources per event.
    #[arg(long, value_name = "N", required_unless_present = "profile")]
    sources: Option<u32>,
    /// Size of a fragment, such as 7200 or 10KiB.
    #[arg(long, value_name = "SIZE", value_parser = size, required_unless_present = "profile")]
    fragment_bytes: Option<u64>,
    /// Events per second while the beam is on.
    #[arg(long, value_name = "RATE")]
    event_rate: f64,
    /// Share of the events that the selection keeps, such as 10% or 0.1.
    #[arg(long, value_name = "SHARE", default_value = "100%", value_parser = units::parse_share)]
    accept: f64,
    /// Share of the time in which the beam is on, such as 50% or 0.5.
    #[arg(long, value_name = "SHARE", default_value = "100%", value_parser = units::parse_share)]
    duty: f64,
    /// Events per second that the selection decides, beam or not.
    #[arg(long, value_name = "RATE")]
    filter_rate: Option<f64>,
    /// How long an event waits for its decision, such as 3s.
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    decision_latency: Option<Duration>,
    /// Size of the hot level, such as 64G.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    hot: u64,
    /// Size of a device of the warm level, such as 3.49T; repeat it for each device.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    warm: Vec<u64>,
    /// Bytes per second that one device writes, such as 2.5G.
    #[arg(long, value_name = "RATE", value_parser = size, requires = "warm")]
    device_write_rate: Option<u64>,
    /// Bytes per second that the archive takes, beam or not, such as 500M.
    #[arg(long, value_name = "RATE", value_parser = size, requires = "warm")]
    archive_rate: Option<u64>,
    /// Drive writes per day that a device is rated for (DWPD), such as 1 or 0.3.
    #[arg(long, value_name = "DWPD", requires = "warm")]
    endurance: Option<f64>,
    /// How long the warm level is to last without the archive.
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = units::parse_duration)]
    autonomy: Duration,
    /// Size of a container.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    container_bytes: u64,
}

impl Plan {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let sizing = Sizing::new(&self.setup()?)?;
        out.json(&sizing)?;
        out.line(text::page(&sizing))?;
        Ok(Answer::Yes)
    }

    fn setup(&self) -> Result<Setup> {
        let known = self.profile.map(Setup::event_of);
        let missing = || Error::invalid("--sources and --fragment-bytes, or --profile, say what an event is");
        let sources = self.sources.or(known.map(|known| known.0)).ok_or_else(missing)?;
        let fragment_bytes = self.fragment_bytes.or(known.map(|known| known.1)).ok_or_else(missing)?;
        Ok(Setup {
            accept: self.accept,
            duty: self.duty,
            filter_rate: self.filter_rate,
            decision_latency_s: self.decision_latency.map(|latency| latency.as_secs_f64()),
            warm_bytes: self.warm.clone(),
            device_write_rate: self.device_write_rate.map(|rate| rate as f64),
            archive_rate: self.archive_rate.map(|rate| rate as f64),
            endurance: self.endurance,
            autonomy_s: self.autonomy.as_secs_f64(),
            container_bytes: self.container_bytes,
            ..Setup::new(sources, fragment_bytes, self.event_rate, self.hot)
        })
    }
}

/// A size that may have decimals, such as `3.49T`; `/s` behind it is for the eye.
fn size(text: &str) -> std::result::Result<u64, String> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    let Some((whole, rest)) = text.split_once('.') else { return units::parse_bytes(text) };
    let digits = rest.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let one = units::parse_bytes(&format!("1{}", &rest[digits.len()..]));
    let plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let number: std::result::Result<f64, _> = format!("{whole}.{digits}").parse();
    match (one, number) {
        (Ok(one), Ok(number)) if plain(whole) && plain(digits) => Ok((number * one as f64) as u64),
        _ => {
            Err(format!("`{text}` is not a size: expected a number with an optional unit, such as 4096, 64K or 3.49T"))
        }
    }
}

/// Profiles by name, each with its sizes in the help.
fn profiles() -> impl TypedValueParser<Value = Profile> {
    let all = Profile::ALL.map(|profile| PossibleValue::new(profile.name()).help(profile.describe()));
    PossibleValuesParser::new(all).try_map(|name| name.parse::<Profile>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimals() {
        for (text, bytes) in [
            ("1.5K", 1536),
            ("3.49T", 3_837_295_580_938),
            ("64G", 64 << 30),
            ("2.5G/s", 2_684_354_560),
            ("0.5KiB", 512),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["1.", "1.K", ".", "1.5Q", "-1.5K", "1.5e3", "1..5", "x.5", "nan"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
