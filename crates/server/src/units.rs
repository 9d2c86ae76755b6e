//! Sizes, durations and shares as a configuration writes them: `"16 MiB"`, `"5 s"`, `0.9`.
//!
//! *Invariant*: what is written reads back as the same value (test `values_read_back`).

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserializer, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// Units of sizes, largest first: powers of 1024.
const SIZES: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
/// Units of durations, largest first, in nanoseconds.
const TIMES: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

const SIZE_EXPECTED: &str = "a size with its unit, such as \"64 KiB\", \"16 MiB\" or \"2 GiB\"";
const TIME_EXPECTED: &str = "a duration with its unit, such as \"500 ms\", \"5 s\" or \"10 min\"";
const SHARE_EXPECTED: &str = "a share from 0.0 to 1.0";

/// Bytes from text: a whole number and a unit.
fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let unit = SIZES.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// A duration from text: a number, perhaps with a fraction, and a unit.
fn parse_time(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let unit = TIMES.iter().find(|(name, _)| *name == unit)?.1;
    // Whole numbers without floating point: they must read back exactly.
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit).map(Duration::from_nanos);
    }
    let seconds = number.parse::<f64>().ok()? * (unit as f64 / 1e9);
    Duration::try_from_secs_f64(seconds).ok()
}

/// Number and unit, with or without a space between them.
fn split(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let (number, unit) = text.split_at(end);
    (!number.is_empty()).then_some((number, unit.trim_start_matches(' ')))
}

/// A whole number in the largest unit that leaves no rest.
fn whole(value: u64, units: &[(&str, u64)]) -> String {
    let smallest = units.len() - 1;
    // The largest unit without a rest: every other one would lose digits or show more than were written.
    let fits = units.iter().find(|(_, unit)| value != 0 && value.is_multiple_of(*unit));
    let (name, unit) = fits.unwrap_or(&units[smallest]);
    format!("{} {name}", value / unit)
}

/// Bytes as a configuration writes them.
pub(crate) fn size_text(bytes: u64) -> String {
    whole(bytes, &SIZES)
}

/// A duration as a configuration writes it.
pub(crate) fn time_text(time: Duration) -> String {
    match u64::try_from(time.as_nanos()) {
        Ok(0) => "0 s".to_owned(),
        Ok(nanos) => whole(nanos, &TIMES),
        Err(_) => format!("{} s", time.as_secs()),
    }
}

/// Sizes, for `#[serde(with)]`: text with a unit, or a bare number of bytes.
pub(crate) mod size {
    use super::*;

    struct Size<T>(PhantomData<T>);

    impl<T: TryFrom<u64>> Visitor<'_> for Size<T> {
        type Value = T;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str(SIZE_EXPECTED)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            let wrong = || E::invalid_value(Unexpected::Str(text), &self);
            let bytes = parse_size(text).ok_or_else(wrong)?;
            T::try_from(bytes).map_err(|_| E::custom(format!("`{text}` is more than this value can be")))
        }

        fn visit_i64<E: Error>(self, bytes: i64) -> Result<T, E> {
            let fits = u64::try_from(bytes).ok().and_then(|bytes| T::try_from(bytes).ok());
            fits.ok_or_else(|| E::invalid_value(Unexpected::Signed(bytes), &self))
        }
    }

    pub(crate) fn deserialize<'a, T: TryFrom<u64>, D: Deserializer<'a>>(from: D) -> Result<T, D::Error> {
        from.deserialize_any(Size(PhantomData))
    }

    pub(crate) fn serialize<T: Copy + Into<u64>, S: Serializer>(bytes: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&size_text((*bytes).into()))
    }
}

/// As [`size`], where a value may be left out.
pub(crate) mod size_or_none {
    use super::*;

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<u64>, D::Error> {
        size::deserialize(from).map(Some)
    }

    pub(crate) fn serialize<S: Serializer>(bytes: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => size::serialize(bytes, to),
            None => to.serialize_none(),
        }
    }
}

/// Durations, for `#[serde(with)]`.
pub(crate) mod time {
    use super::*;

    struct Time;

    impl Visitor<'_> for Time {
        type Value = Duration;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str(TIME_EXPECTED)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
            parse_time(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Duration, D::Error> {
        from.deserialize_any(Time)
    }

    pub(crate) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&time_text(*time))
    }
}

/// Shares of a whole, for `#[serde(with)]`.
pub(crate) mod share {
    use super::*;

    struct Share;

    impl Visitor<'_> for Share {
        type Value = f64;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str(SHARE_EXPECTED)
        }

        fn visit_f64<E: Error>(self, share: f64) -> Result<f64, E> {
            let fits = (0.0..=1.0).contains(&share);
            if fits { Ok(share) } else { Err(E::invalid_value(Unexpected::Float(share), &self)) }
        }

        fn visit_i64<E: Error>(self, share: i64) -> Result<f64, E> {
            let fits = (0..=1).contains(&share);
            if fits { Ok(share as f64) } else { Err(E::invalid_value(Unexpected::Signed(share), &self)) }
        }
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<f64, D::Error> {
        from.deserialize_any(Share)
    }

    pub(crate) fn serialize<S: Serializer>(share: &f64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(*share)
    }
}

/// As [`share`], where a value may be left out.
pub(crate) mod share_or_none {
    use super::*;

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<f64>, D::Error> {
        share::deserialize(from).map(Some)
    }

    pub(crate) fn serialize<S: Serializer>(share: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
        match share {
            Some(share) => share::serialize(share, to),
            None => to.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back() {
        for bytes in [0, 1, 1023, 1024, 1536, 16 << 20, 1 << 40, (1 << 40) + 1, u64::MAX] {
            assert_eq!(parse_size(&size_text(bytes)), Some(bytes));
        }
        for nanos in [0, 1, 999, 1_000_000, 1_500_000_000, 60_000_000_000, 86_400_000_000_000] {
            let time = Duration::from_nanos(nanos);
            assert_eq!(parse_time(&time_text(time)), Some(time));
        }
        assert_eq!(size_text(16 << 20), "16 MiB");
        assert_eq!(time_text(Duration::from_millis(1500)), "1500 ms");
    }

    #[test]
    fn people_may_leave_out_the_space_and_write_fractions_of_time() {
        assert_eq!(parse_size("64KiB"), Some(65536));
        assert_eq!(parse_time("1.5 s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_time("2min"), Some(Duration::from_secs(120)));
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for text in ["", "16", "MiB", "-1 MiB", "1.5 MiB", "16 MB", "16 mib", "99999999999 TiB", "1 MiB x"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
        for text in ["", "5", "s", "-5 s", "5 sec", "1.2.3 s", "999999999999999999999 h"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
