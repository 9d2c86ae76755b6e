//! Counters that threads update while they work: rates for the progress line, latencies for the summary.
//!
//! Each thread owns its histograms and merges them at the end; counters are shared but written by one thread, once per
//! event or batch.

use forebay_core::{Error, Result};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest latency that is told apart, in nanoseconds; what is longer counts as this.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// Decimal digits that are kept of a latency.
const LATENCY_DIGITS: u8 = 2;

/// Counters of one thread, on cache lines of their own.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) events: AtomicU64,
    pub(crate) fragments: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) accepted: AtomicU64,
}

/// The sum of meters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) events: u64,
    pub(crate) fragments: u64,
    pub(crate) bytes: u64,
    pub(crate) accepted: u64,
}

impl Meter {
    pub(crate) fn count(counter: &AtomicU64, n: u64) {
        // Relaxed: one thread writes, and readers only need a recent figure.
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// Reads all meters of a role.
pub(crate) fn read(meters: &[Meter]) -> Reading {
    let sum = |of: fn(&Meter) -> &AtomicU64| meters.iter().map(|meter| of(meter).load(Ordering::Relaxed)).sum();
    Reading {
        events: sum(|meter| &meter.events),
        fragments: sum(|meter| &meter.fragments),
        bytes: sum(|meter| &meter.bytes),
        accepted: sum(|meter| &meter.accepted),
    }
}

/// Latencies of one kind of call.
pub(crate) struct Latency(Histogram<u64>);

impl Latency {
    pub(crate) fn new() -> Result<Latency> {
        Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS)
            .map(Latency)
            .map_err(|error| Error::internal("latency histogram").with_source(error))
    }

    /// Records the time since `start`, which is returned as well.
    pub(crate) fn record(&mut self, start: Instant) -> Duration {
        let took = start.elapsed();
        // Saturating: a very slow call is counted at the limit, and not left out of the quantiles.
        self.0.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        took
    }

    pub(crate) fn merge(&mut self, other: &Latency) -> Result<()> {
        self.0.add(&other.0).map_err(|error| Error::internal("merge latencies").with_source(error))
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// A quantile (0 to 1) in microseconds.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    pub(crate) fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }
}

/// Latency of one kind of call, in microseconds, to two digits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Such as `put` (reserve, fill, commit of a fragment, waits for space included), `get_any` (a batch, where events were
    /// ready), `event read` (all fragments, every byte verified) or `verdict` (accept, pass or reject).
    pub call: &'static str,
    /// Calls.
    pub count: u64,
    /// Median.
    pub p50_us: f64,
    /// 99 of 100 calls took at most this long.
    pub p99_us: f64,
    /// 999 of 1000 calls took at most this long.
    pub p999_us: f64,
    /// The longest call.
    pub max_us: f64,
}

impl LatencySummary {
    /// Of a call that several threads made.
    pub(crate) fn of<'l>(call: &'static str, threads: impl Iterator<Item = &'l Latency>) -> Result<LatencySummary> {
        let mut all = Latency::new()?;
        for one in threads {
            all.merge(one)?;
        }
        Ok(LatencySummary {
            call,
            count: all.count(),
            p50_us: all.quantile_us(0.5),
            p99_us: all.quantile_us(0.99),
            p999_us: all.quantile_us(0.999),
            max_us: all.max_us(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_latencies_keep_count_and_maximum() {
        let (mut one, mut other) = (Latency::new().unwrap(), Latency::new().unwrap());
        let long_ago = Instant::now().checked_sub(Duration::from_millis(5)).unwrap();
        for _ in 0..99 {
            one.record(Instant::now());
        }
        assert!(other.record(long_ago) >= Duration::from_millis(5));
        one.merge(&other).unwrap();
        assert_eq!(one.count(), 100);
        assert!(one.max_us() >= 5000.0 && one.quantile_us(0.5) < 5000.0);
    }

    #[test]
    fn meters_add_up() {
        let meters = [Meter::default(), Meter::default()];
        Meter::count(&meters[0].events, 2);
        Meter::count(&meters[1].events, 3);
        Meter::count(&meters[1].bytes, 7);
        assert_eq!(read(&meters), Reading { events: 5, bytes: 7, ..Reading::default() });
    }
}
