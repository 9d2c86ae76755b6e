//! Prints figures for people, with three digits and a suitable unit; and the bounds of configuration values.
//!
//! Sizes are in powers of 1024, as everywhere; rates in powers of 1000, as the field says them.

use forebay_core::{Error, Result};

/// Refuses a figure that is not within its bounds.
pub(crate) fn within(what: &str, value: f64, low: f64, high: f64) -> Result<()> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{what}: {low} to {high}, not {value}")))
}

fn three(value: f64) -> String {
    let decimals = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let (mut value, mut at) = (value, 0);
    while value >= step * 0.9995 && at + 1 < units.len() {
        value /= step;
        at += 1;
    }
    format!("{} {}", three(value), units[at])
}

/// Bytes: `464 B`, `10.0 KiB`, `1.50 GiB`.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        _ => scaled(bytes as f64 / 1024.0, 1024.0, &["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]),
    }
}

/// Bytes per second: `240 MB/s`.
pub fn rate(bytes: f64) -> String {
    scaled(bytes, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

/// A number: `12.0`, `750 k`.
pub fn number(value: f64) -> String {
    scaled(value, 1000.0, &["", "k", "M"]).trim_end().to_owned()
}

/// A duration: `1.50 ms`, `12.0 h`.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{} ms", three(s * 1e3)),
        s if s < 120.0 => format!("{} s", three(s)),
        s if s < 7200.0 => format!("{} min", three(s / 60.0)),
        s if s < 172_800.0 => format!("{} h", three(s / 3600.0)),
        s => format!("{} days", three(s / 86_400.0)),
    }
}

/// A part of a whole: `1.17 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", three(share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people() {
        assert_eq!(
            [0.001, 1.5, 119.0, 150.0, 43_200.0, 864_000.0].map(time),
            ["1.00 ms", "1.50 s", "119 s", "2.50 min", "12.0 h", "10.0 days"]
        );
        assert_eq!(
            [0, 464, 1023, 1024, 10_240, 5_120_000, 1 << 30, u64::MAX].map(bytes),
            ["0 B", "464 B", "1023 B", "1.00 KiB", "10.0 KiB", "4.88 MiB", "1.00 GiB", "16.0 EiB"]
        );
        assert_eq!([999.9, 10.24e9, 5.12e12, 7e15].map(rate), ["1.00 kB/s", "10.2 GB/s", "5.12 TB/s", "7000 TB/s"]);
        assert_eq!([12.0, 750e3].map(number), ["12.0", "750 k"]);
        assert_eq!(percent(0.0117), "1.17 %");
    }
}
