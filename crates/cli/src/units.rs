//! Sizes, durations and numbers as people write and read them.

use forebay_core::{Error, KeySchema, Result};
pub(crate) use forebay_daq::figures::bytes;
use forebay_daq::figures::number;
use std::time::Duration;

/// Bytes from text: `4096`, `64K`, `10KiB`, `2G`. Units are powers of 1024.
pub(crate) fn parse_bytes(text: &str) -> std::result::Result<u64, String> {
    let wrong = || format!("`{text}` is not a size: expected a number with an optional unit, such as 4096, 64K or 2G");
    let text_lower = text.to_ascii_lowercase();
    let digits = text_lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text_lower[digits.len()..].trim_end_matches("ib").trim_end_matches('b') {
        "" if text_lower.ends_with("ib") => return Err(wrong()),
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is more than 64 bits can say"))
}

/// As [`parse_bytes`], for lengths in memory.
pub(crate) fn parse_len(text: &str) -> std::result::Result<usize, String> {
    usize::try_from(parse_bytes(text)?).map_err(|_| format!("`{text}` is more than this machine can address"))
}

/// A duration from text: `250ms`, `1s`, `1.5s`, `2m`, `1h`; a bare number means seconds.
pub(crate) fn parse_duration(text: &str) -> std::result::Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration: expected a number with a unit, such as 250ms, 1s, 2m or 1h");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| wrong())
}

/// A share from text: `50%` or `0.5`, from 0 to 1.
pub(crate) fn parse_share(text: &str) -> std::result::Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    let wrong = || format!("`{text}` is not a share: expected one from 0 to 1, such as 50% or 0.5");
    number.ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(wrong)
}

/// A rate for people: `950`, `12.3 k`, `1.05 M`.
pub(crate) fn count(value: f64) -> String {
    if value < 999.5 { format!("{value:.0}") } else { number(value) }
}

/// A number with its noun: `1 fragment`, `2 fragments`.
pub(crate) fn plural(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A bar of `width` characters, filled to `share` (0 to 1).
pub(crate) fn bar(share: f64, width: usize) -> String {
    let full = ((share.clamp(0.0, 1.0) * width as f64).round() as usize).min(width);
    format!("{}{}", "█".repeat(full), "░".repeat(width - full))
}

/// Source lists such as `1,2,5..9` or, where a source has several sub-keys, `1/7,1/8..9`: the values of each.
///
/// # Errors
/// `Invalid`, naming the part that is wrong.
pub(crate) fn parse_sources<S: AsRef<str>>(schema: &KeySchema, texts: &[S]) -> Result<Vec<Vec<u64>>> {
    let parts = &schema.sub_keys()[schema.primary_len()..];
    let one = |text: &str| -> Result<Vec<u64>> {
        let given: Vec<&str> = text.split('/').collect();
        if given.len() != parts.len() {
            let form = parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join("/");
            return Err(Error::invalid(format!("source `{text}` has {} part(s); expected {form}", given.len())));
        }
        let number = |(part, text_part): (&forebay_core::SubKey, &&str)| match text_part.parse() {
            Ok(value) if value <= part.max() => Ok(value),
            _ => Err(Error::invalid(format!(
                "source `{text}`: {} is `{text_part}`; expected a number from 0 to {}",
                part.name,
                part.max()
            ))),
        };
        parts.iter().zip(&given).map(number).collect()
    };
    let mut sources = Vec::new();
    for text in texts.iter().map(AsRef::as_ref) {
        let (first, last) = text.split_once("..").unwrap_or((text, ""));
        let mut values = one(first)?;
        let Some(from) = values.last().copied() else { continue };
        let to = if last.is_empty() { Ok(from) } else { last.parse() };
        let wrong =
            || Error::invalid(format!("sources `{text}`: expected FIRST..LAST, such as 0..47, at most {RANGE_MAX}"));
        let to = to.ok().filter(|to| (from..from.saturating_add(RANGE_MAX)).contains(to)).ok_or_else(wrong)?;
        for value in from..=to {
            values.pop();
            values.push(value);
            sources.push(values.clone());
        }
    }
    Ok(sources)
}

/// Most sources of one range: more than an event can have.
const RANGE_MAX: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in
            [("0", 0), ("4096", 4096), ("64K", 65536), ("10KiB", 10240), ("2G", 2 << 30), ("1mb", 1 << 20), ("8b", 8)]
        {
            assert_eq!(parse_bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "K", "10Q", "-1", "1.5K", "10ib", "99999999999T"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert_eq!([0.0, 950.0, 12_345.0, 1_050_000.0].map(count), ["0", "950", "12.3 k", "1.05 M"]);
    }

    #[test]
    fn durations() {
        for (text, ms) in
            [("250ms", 250), ("1s", 1000), ("1.5s", 1500), ("2m", 120_000), ("1h", 3_600_000), ("3", 3000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1s", "1d", "nan", "inf"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares() {
        for (text, expected) in [("50%", 0.5), ("0.25", 0.25), ("0", 0.0), ("100%", 1.0), ("12.5%", 0.125)] {
            assert_eq!(parse_share(text), Ok(expected), "{text}");
        }
        for text in ["", "%", "50", "101%", "-1%", "nan", "half"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sources_by_the_schema() {
        let schema = KeySchema::run_event_source();
        assert_eq!(parse_sources(&schema, &["1", "2"]).unwrap(), [[1], [2]]);
        assert_eq!(parse_sources(&schema, &["0..2", "9"]).unwrap(), [[0], [1], [2], [9]]);
        for wrong in ["3..2", "0..x", "0..65536", "..4"] {
            assert!(parse_sources(&schema, &[wrong]).is_err(), "{wrong}");
        }
        assert!(parse_sources(&schema, &["1/2"]).unwrap_err().message().contains("expected source"));
        assert!(parse_sources(&schema, &["x"]).unwrap_err().message().contains("0 to 4294967295"));
    }

    #[test]
    fn bars_stay_in_their_width() {
        assert_eq!(bar(0.5, 4), "██░░");
        assert_eq!([bar(-1.0, 2), bar(7.0, 2)], ["░░", "██"]);
    }
}
