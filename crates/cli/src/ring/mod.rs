//! Rings on the command line: what the commands for stores say of a ring, and the commands that only rings have.
//!
//! *Not here*: where a ring is found (`open.rs`); recording one (`record`).

pub(crate) mod check;
pub(crate) mod inspect;
pub(crate) mod pin;
pub(crate) mod sources;
pub(crate) mod stats;
pub(crate) mod window;

use crate::open::OpenedRing;
use crate::units;
use forebay_core::{Error, Result, RingKeyspace, RingSources, RingStore};
use std::time::Duration;

/// Ticks of a ring, as a command is asked for them.
#[derive(clap::Args)]
pub(crate) struct Ticks {
    /// First tick, and the tick after the last one.
    #[arg(value_name = "FROM..TO", required_unless_present = "last", value_parser = parse_ticks)]
    ticks: Option<(u64, u64)>,
    /// The last of what the ring has, by the newest tick of all its sources, instead of FROM..TO.
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration, conflicts_with = "ticks")]
    last: Option<Duration>,
}

impl Ticks {
    /// First tick, and the tick after the last one.
    ///
    /// # Errors
    /// `Invalid` where --last is asked of an empty ring.
    pub(crate) fn of(&self, ring: &OpenedRing) -> Result<(u64, u64)> {
        if let Some(ticks) = self.ticks {
            return Ok(ticks);
        }
        let newest =
            newest(ring)?.ok_or_else(|| Error::invalid("the ring has seen no source yet: nothing is the last"))?;
        let ticks = ring.keyspace().ticks(self.last.unwrap_or_default()).max(1);
        Ok((newest.saturating_sub(ticks), newest))
    }
}

/// The tick after the newest one of all sources; `None` for an empty ring.
pub(crate) fn newest<R: RingStore>(ring: &R) -> Result<Option<u64>> {
    Ok(ring.sources()?.into_iter().filter_map(|source| source.newest).max())
}

/// The sources that were named, or all.
pub(crate) fn sources(ring: &OpenedRing, named: &[String]) -> Result<RingSources> {
    if named.is_empty() {
        return Ok(RingSources::All);
    }
    let schema = &ring.keyspace().source;
    named.iter().map(|text| schema.parse_source(text)).collect::<Result<Vec<_>>>().map(RingSources::Only)
}

/// `FROM..TO`; numbers decimal or `0x…`.
pub(crate) fn parse_ticks(text: &str) -> std::result::Result<(u64, u64), String> {
    let wrong = || format!("`{text}` are no ticks: expected FROM..TO, such as 62500000..62562500, FROM before TO");
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    number(from).zip(number(to)).filter(|(from, to)| from < to).ok_or_else(wrong)
}

/// Ticks as a time, for people.
pub(crate) fn time(keyspace: &RingKeyspace, ticks: u64) -> String {
    let seconds = ticks as f64 / keyspace.ticks_per_second.max(1) as f64;
    if seconds < 1.0 { format!("{:.3} ms", seconds * 1e3) } else { format!("{seconds:.3} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_a_range_with_something_in_it() {
        assert_eq!(parse_ticks("5..0x10"), Ok((5, 16)));
        for wrong in ["", "5", "..5", "5..", "5..5", "6..5", "x..9", "1..-2"] {
            assert!(parse_ticks(wrong).is_err(), "{wrong}");
        }
    }
}
