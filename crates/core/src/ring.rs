//! The keyspace of a ring: sources, the relation of ticks and time, and what the latency buffer must hold.
//!
//! ```text
//! key on the medium = source, big-endian, padded to a byte | timestamp 8 | span 4 | run 4
//! ```
//!
//! *Invariants*: byte order is source order, then time order (test `keys_sort_by_source_and_time`).

use crate::limits::{RING_KEY_TAIL_BYTES, SOURCE_BYTES_MAX, SOURCE_PARTS_MAX, SOURCES_MAX};
use crate::{Error, Key, KeySchema, Result, SubKey};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The parts of a source's name, such as `subsystem:u16, id:u32`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSchema {
    parts: Vec<SubKey>,
    bits: [u8; SOURCE_PARTS_MAX],
    bytes: usize,
}

impl SourceSchema {
    /// A schema from text such as `["subsystem:u16", "id:u32"]`: 1 to 4 parts, together at most 16 bytes.
    ///
    /// # Errors
    /// `Invalid`, naming the part that is wrong, or too many parts or bytes.
    pub fn parse<S: AsRef<str>>(parts: &[S]) -> Result<SourceSchema> {
        if parts.is_empty() || parts.len() > SOURCE_PARTS_MAX {
            return Err(Error::invalid(format!("a source has 1 to {SOURCE_PARTS_MAX} parts, not {}", parts.len())));
        }
        // The rules for names and widths are those of keys; a leading run makes a key of them.
        let mut key = vec!["run:u32"];
        key.extend(parts.iter().map(AsRef::as_ref));
        let schema = KeySchema::parse(&key, &["run"])?;
        let parts = schema.sub_keys()[1..].to_vec();
        let width: u32 = parts.iter().map(|part| part.bits).sum();
        let bytes = width.div_ceil(8) as usize;
        if bytes > SOURCE_BYTES_MAX {
            return Err(Error::invalid(format!("the source takes {bytes} bytes, at most {SOURCE_BYTES_MAX} fit")));
        }
        let mut bits = [0; SOURCE_PARTS_MAX];
        for (bits, part) in bits.iter_mut().zip(&parts) {
            *bits = part.bits as u8;
        }
        Ok(SourceSchema { parts, bits, bytes })
    }

    /// All parts in order.
    pub fn parts(&self) -> &[SubKey] {
        &self.parts
    }

    /// Bytes of a packed source.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The parts as a keyspace file writes them.
    pub fn describe(&self) -> Vec<String> {
        self.parts.iter().map(|part| format!("{}:u{}", part.name, part.bits)).collect()
    }

    /// A source from one number per part.
    ///
    /// # Errors
    /// `Invalid` for a wrong count, or naming the value that does not fit.
    pub fn source(&self, values: &[u64]) -> Result<SourceId> {
        if values.len() != self.parts.len() {
            let parts = self.describe().join(", ");
            return Err(Error::invalid(format!(
                "{} values expected ({parts}), not {}",
                self.parts.len(),
                values.len()
            )));
        }
        let mut number = 0_u128;
        for (part, &value) in self.parts.iter().zip(values) {
            if value > part.max() {
                return Err(Error::invalid(format!("{} = {value} does not fit: 0 to {}", part.name, part.max())));
            }
            number = number << part.bits | u128::from(value);
        }
        Ok(SourceId { number, bits: self.bits })
    }

    /// A source from text such as `3/17`; each part decimal or `0x…`.
    ///
    /// # Errors
    /// `Invalid`, naming the part and its range.
    pub fn parse_source(&self, text: &str) -> Result<SourceId> {
        let values: Vec<&str> = text.split('/').collect();
        if values.len() != self.parts.len() {
            let parts = self.describe().join(", ");
            return Err(Error::invalid(format!("`{text}` has {} part(s); expected {parts}", values.len())));
        }
        let one = |(part, value): (&SubKey, &str)| crate::schema::parse_number(part, value, text);
        self.source(&self.parts.iter().zip(values).map(one).collect::<Result<Vec<u64>>>()?)
    }

    /// Whether a source is one of this schema.
    #[inline]
    pub fn fits(&self, source: &SourceId) -> bool {
        self.bits == source.bits
    }

    /// A source as keys begin with it: big-endian, padded to a byte.
    #[inline]
    pub fn packed(&self, source: &SourceId) -> Vec<u8> {
        (source.number << source.padding()).to_be_bytes()[SOURCE_BYTES_MAX - self.bytes..].to_vec()
    }

    /// The source that is packed so; `None` for another length, and padding that is not zero.
    #[inline]
    pub fn unpacked(&self, packed: &[u8]) -> Option<SourceId> {
        let mut source = SourceId { number: 0, bits: self.bits };
        let padded = packed.iter().fold(0_u128, |number, &byte| number << 8 | u128::from(byte));
        source.number = padded >> source.padding();
        (packed.len() == self.bytes && source.number << source.padding() == padded).then_some(source)
    }

    /// The key of one fragment, as its entry holds it.
    #[inline]
    pub fn key(&self, source: &SourceId, stamp: &RingStamp) -> Key {
        let mut bytes = [0; SOURCE_BYTES_MAX + RING_KEY_TAIL_BYTES];
        let packed = (source.number << source.padding()).to_be_bytes();
        bytes[..self.bytes].copy_from_slice(&packed[SOURCE_BYTES_MAX - self.bytes..]);
        let tail = &mut bytes[self.bytes..self.bytes + RING_KEY_TAIL_BYTES];
        tail[..8].copy_from_slice(&stamp.timestamp.to_be_bytes());
        tail[8..12].copy_from_slice(&stamp.span.to_be_bytes());
        tail[12..].copy_from_slice(&stamp.run.to_be_bytes());
        Key::from_packed(&bytes[..self.bytes + RING_KEY_TAIL_BYTES])
    }

    /// What a key says; `None` where it has another length, padding that is not zero, no span, or ends past the last
    /// tick: no put wrote it.
    pub fn decode(&self, key: &[u8]) -> Option<(SourceId, RingStamp)> {
        if key.len() != self.bytes + RING_KEY_TAIL_BYTES {
            return None;
        }
        let (packed, tail) = key.split_at(self.bytes);
        let source = self.unpacked(packed)?;
        let number = |part: &[u8]| part.iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
        let stamp = RingStamp {
            timestamp: number(&tail[..8]),
            span: number(&tail[8..12]) as u32,
            run: number(&tail[12..]) as u32,
        };
        (stamp.span > 0 && stamp.end().is_some()).then_some((source, stamp))
    }
}

/// When a fragment begins, how much it covers, and the run it was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingStamp {
    /// First tick.
    pub timestamp: u64,
    /// Ticks covered, at least 1.
    pub span: u32,
    /// Run number.
    pub run: u32,
}

impl RingStamp {
    /// The tick after the last one covered; `None` past the end of ticks.
    pub fn end(&self) -> Option<u64> {
        self.timestamp.checked_add(u64::from(self.span))
    }
}

/// One source of a ring: packed, cheap to copy, ordered as its numbers are. In reports each part with its bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "Vec<(u64, u8)>", try_from = "Vec<(u64, u8)>")]
pub struct SourceId {
    number: u128,
    bits: [u8; SOURCE_PARTS_MAX],
}

impl SourceId {
    /// One number per part.
    pub fn values(&self) -> Vec<u64> {
        self.parts(&mut [0; SOURCE_PARTS_MAX]).to_vec()
    }

    /// The same in memory of the caller.
    #[inline]
    pub(crate) fn parts<'a>(&self, to: &'a mut [u64; SOURCE_PARTS_MAX]) -> &'a [u64] {
        let (mut shift, mut count) = (self.width(), 0);
        for (part, bits) in to.iter_mut().zip(self.bits).take_while(|(_, bits)| *bits > 0) {
            shift -= u32::from(bits);
            *part = (self.number >> shift) as u64 & (u64::MAX >> (64 - u32::from(bits)));
            count += 1;
        }
        &to[..count]
    }

    /// Text form, such as `3/17`.
    pub fn text(&self) -> String {
        self.values().iter().map(u64::to_string).collect::<Vec<_>>().join("/")
    }

    /// The source as one number, all parts side by side.
    #[inline]
    pub fn number(&self) -> u128 {
        self.number
    }

    fn width(&self) -> u32 {
        self.bits.iter().map(|&bits| u32::from(bits)).sum()
    }

    /// Zero bits after the last part, to a whole byte.
    #[inline]
    fn padding(&self) -> u32 {
        let width = self.width();
        width.next_multiple_of(8) - width
    }
}

impl From<SourceId> for Vec<(u64, u8)> {
    fn from(source: SourceId) -> Vec<(u64, u8)> {
        source.values().into_iter().zip(source.bits).collect()
    }
}

impl TryFrom<Vec<(u64, u8)>> for SourceId {
    type Error = Error;

    fn try_from(parts: Vec<(u64, u8)>) -> Result<SourceId> {
        let named: Vec<String> = parts.iter().enumerate().map(|(at, (_, bits))| format!("part{at}:u{bits}")).collect();
        SourceSchema::parse(&named)?.source(&parts.iter().map(|part| part.0).collect::<Vec<u64>>())
    }
}

impl fmt::Debug for SourceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SourceId({})", self.text())
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text())
    }
}

/// Why nothing covers a stretch of ticks although later data has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum GapCause {
    /// Nobody offered it.
    NeverArrived = 0,
    /// It was offered, and nothing could be evicted for it: everything is pinned, under guards or being written.
    NoSpace = 1,
    /// What was offered meanwhile had timestamps further than `max_skew` from the ring's relation of ticks and time.
    Skew = 2,
    /// It was offered after its ticks had been evicted.
    TooLate = 3,
    /// The process was away.
    Restart = 4,
    /// It was acknowledged, and its bytes did not survive.
    Lost = 5,
}

/// All causes, in the order of their numbers.
pub const GAP_CAUSES: [GapCause; 6] =
    [GapCause::NeverArrived, GapCause::NoSpace, GapCause::Skew, GapCause::TooLate, GapCause::Restart, GapCause::Lost];

impl GapCause {
    /// The cause as people read it.
    pub fn name(self) -> &'static str {
        ["never arrived", "no space", "skew", "too late", "restart", "lost"][self as usize]
    }
}

/// A continuous readout: its sources, its clock and how long its data stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingKeyspace {
    /// Name, for people.
    pub name: String,
    /// The parts of a source's name.
    pub source: SourceSchema,
    /// Ticks of the detector's clock in a second: 62,500,000 for DUNE.
    pub ticks_per_second: u64,
    /// Most sources.
    pub sources_max: u32,
    /// How long data stays available at the declared rate.
    pub history: Duration,
    /// Declared rate of one source, payload bytes per second.
    pub source_bytes_per_second: u64,
    /// Furthest that a timestamp may lie from what the ring expects at its arrival.
    pub max_skew: Duration,
    /// Longest fragment, in bytes. Capacity is reckoned with fragments of this length.
    pub fragment_bytes_max: usize,
    /// Share of the region that pins may hold, in percent.
    pub pin_percent: u8,
}

impl RingKeyspace {
    /// Sources `source:u32` of 62.5 MHz WIBEth frames (7200 bytes every 2048 ticks), with a second of history.
    pub fn wibeth(name: &str, sources_max: u32) -> Result<RingKeyspace> {
        Ok(RingKeyspace {
            name: name.to_owned(),
            source: SourceSchema::parse(&["source:u32"])?,
            ticks_per_second: 62_500_000,
            sources_max,
            history: Duration::from_secs(1),
            source_bytes_per_second: 219_726_563,
            max_skew: Duration::from_secs(1),
            fragment_bytes_max: 7200,
            pin_percent: 50,
        })
    }

    /// A source of this keyspace from one number per part.
    ///
    /// # Errors
    /// As [`SourceSchema::source`].
    pub fn source(&self, values: &[u64]) -> Result<SourceId> {
        self.source.source(values)
    }

    /// Ticks of a duration, rounded down.
    pub fn ticks(&self, duration: Duration) -> u64 {
        let ticks = duration.as_nanos().saturating_mul(u128::from(self.ticks_per_second)) / 1_000_000_000;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Whether a keyspace file says that it is a ring's, right or wrong: the others are of events.
    pub fn is_named_by(text: &str) -> bool {
        let file: Option<toml::Table> = toml::from_str(text).ok();
        file.and_then(|file| Some(file.get("kind")?.as_str()? == "ring")).unwrap_or(false)
    }

    /// Reads a keyspace file.
    ///
    /// # Errors
    /// `Invalid` with the line and what is wrong with it, or the value that cannot be.
    pub fn from_toml(text: &str) -> Result<RingKeyspace> {
        let file: File = toml::from_str(text).map_err(|error| Error::invalid(format!("ring file: {error}")))?;
        file.build()
    }

    /// The keyspace as a file; reading it gives the same keyspace.
    ///
    /// # Errors
    /// `Internal` where the values cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(&File::of(self)).map_err(|error| Error::internal("ring keyspace to TOML").with_source(error))
    }

    /// Checks values against limits.
    ///
    /// # Errors
    /// `Invalid`, naming the value.
    pub fn check(&self) -> Result<()> {
        let range = |name: &str, value: u64, from: u64, to: u64| {
            if (from..=to).contains(&value) {
                return Ok(());
            }
            Err(Error::invalid(format!("{name}: {from} to {to}, not {value}")))
        };
        range("ticks_per_second", self.ticks_per_second, 1, 100_000_000_000)?;
        range("sources_max", u64::from(self.sources_max), 1, u64::from(SOURCES_MAX))?;
        range("source_bytes_per_second", self.source_bytes_per_second, 1, 1 << 50)?;
        range("fragment_bytes_max", self.fragment_bytes_max as u64, 1, u64::from(u32::MAX))?;
        range("pin_percent", u64::from(self.pin_percent), 0, 100)?;
        for (name, duration) in [("history", self.history), ("max_skew", self.max_skew)] {
            if !duration.subsec_nanos().is_multiple_of(1_000_000) {
                return Err(Error::invalid(format!("{name}: whole milliseconds, not {duration:?}")));
            }
            let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
            range(&format!("{name} in milliseconds"), millis, 1, 30 * 24 * 3600 * 1000)?;
        }
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    kind: Ring,
    name: String,
    source: Vec<String>,
    ticks_per_second: u64,
    sources_max: u32,
    history_ms: u64,
    source_bytes_per_second: u64,
    max_skew_ms: u64,
    fragment_bytes_max: usize,
    #[serde(default = "half")]
    pin_percent: u8,
}

/// The only kind that this file describes.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ring {
    Ring,
}

fn half() -> u8 {
    50
}

impl File {
    fn of(keyspace: &RingKeyspace) -> File {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        File {
            kind: Ring::Ring,
            name: keyspace.name.clone(),
            source: keyspace.source.describe(),
            ticks_per_second: keyspace.ticks_per_second,
            sources_max: keyspace.sources_max,
            history_ms: millis(keyspace.history),
            source_bytes_per_second: keyspace.source_bytes_per_second,
            max_skew_ms: millis(keyspace.max_skew),
            fragment_bytes_max: keyspace.fragment_bytes_max,
            pin_percent: keyspace.pin_percent,
        }
    }

    fn build(self) -> Result<RingKeyspace> {
        let keyspace = RingKeyspace {
            name: self.name,
            source: SourceSchema::parse(&self.source)?,
            ticks_per_second: self.ticks_per_second,
            sources_max: self.sources_max,
            history: Duration::from_millis(self.history_ms),
            source_bytes_per_second: self.source_bytes_per_second,
            max_skew: Duration::from_millis(self.max_skew_ms),
            fragment_bytes_max: self.fragment_bytes_max,
            pin_percent: self.pin_percent,
        };
        keyspace.check()?;
        Ok(keyspace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DUNE: &str = r#"
        kind = "ring"
        name = "wib-eth"
        source = ["subsystem:u16", "id:u32"]
        ticks_per_second = 62500000
        sources_max = 48
        history_ms = 10000
        source_bytes_per_second = 219726563
        max_skew_ms = 1000
        fragment_bytes_max = 7200
        pin_percent = 40
    "#;

    #[test]
    fn reads_and_writes_the_same_keyspace() {
        let keyspace = RingKeyspace::from_toml(DUNE).unwrap();
        assert!(RingKeyspace::is_named_by(DUNE) && !RingKeyspace::is_named_by("kind = 7\nname = \"ring\""));
        assert_eq!(keyspace.source.bytes(), 6);
        assert_eq!(keyspace.ticks(Duration::from_micros(32)), 2000);
        assert_eq!(RingKeyspace::from_toml(&keyspace.to_toml().unwrap()).unwrap(), keyspace);
        assert_eq!(keyspace.source.parse_source("3/0x11").unwrap().text(), "3/17");
    }

    #[test]
    fn errors_name_the_line_or_value() {
        for (from, to, message) in [
            ("kind = \"ring\"", "kind = \"events\"", "kind"),
            ("history_ms = 10000", "history_ms = 0", "history"),
            ("sources_max = 48", "sources_max = 0", "sources_max"),
            ("pin_percent = 40", "pin_percent = 101", "pin_percent"),
            ("pin_percent = 40", "pins = 1", "pins"),
            ("\"id:u32\"", "\"id\"", "name:uBITS"),
            ("\"id:u32\"", "\"id:u64\", \"other:u64\"", "at most 16"),
            ("\"subsystem:u16\", \"id:u32\"", "", "1 to 4 parts"),
        ] {
            let error = RingKeyspace::from_toml(&DUNE.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(message), "{to}: {error}");
        }
    }

    #[test]
    fn source_errors_name_the_part() {
        let schema = SourceSchema::parse(&["subsystem:u16", "id:u32"]).unwrap();
        for (text, message) in [("3", "1 part(s)"), ("70000/1", "subsystem"), ("3/x", "id is `x`")] {
            let error = schema.parse_source(text).unwrap_err();
            assert!(error.message().contains(message), "{text}: {error}");
        }
        assert!(schema.source(&[1]).unwrap_err().message().contains("2 values expected"));
    }

    fn odd() -> SourceSchema {
        SourceSchema::parse(&["crate:u10", "slot:u3", "link:u64"]).unwrap()
    }

    proptest! {
        #[test]
        fn keys_sort_by_source_and_time(a in (0..1024_u64, 0..8_u64, any::<u64>(), 0..u64::MAX / 2, 1..u32::MAX, any::<u32>()),
                                        b in (0..1024_u64, 0..8_u64, any::<u64>(), 0..u64::MAX / 2, 1..u32::MAX, any::<u32>())) {
            let schema = odd();
            let make = |v: (u64, u64, u64, u64, u32, u32)| {
                let source = schema.source(&[v.0, v.1, v.2]).unwrap();
                let stamp = RingStamp { timestamp: v.3, span: v.4, run: v.5 };
                (source, stamp, schema.key(&source, &stamp))
            };
            let (one, other) = (make(a), make(b));
            prop_assert_eq!(a.cmp(&b), one.2.as_bytes().cmp(other.2.as_bytes()));
            prop_assert_eq!((a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)), one.0.cmp(&other.0));
            prop_assert_eq!(one.0.values(), vec![a.0, a.1, a.2]);
            prop_assert_eq!(schema.decode(one.2.as_bytes()), Some((one.0, one.1)));
        }
    }

    #[test]
    fn keys_that_no_put_wrote_are_refused() {
        let schema = odd();
        let source = schema.source(&[1, 2, 3]).unwrap();
        let good = RingStamp { timestamp: 5, span: 1, run: 1 };
        assert!(schema.decode(schema.key(&source, &good).as_bytes()).is_some());
        for wrong in [RingStamp { span: 0, ..good }, RingStamp { timestamp: u64::MAX, ..good }] {
            assert_eq!(schema.decode(schema.key(&source, &wrong).as_bytes()), None, "{wrong:?}");
        }
        let mut padded = schema.key(&source, &good).as_bytes().to_vec();
        padded[9] |= 1;
        assert_eq!(schema.decode(&padded), None);
        assert_eq!(schema.decode(&padded[1..]), None);
    }
}
