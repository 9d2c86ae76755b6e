//! Times of calls in buckets that double: one microsecond to a minute, as text that Prometheus reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Buckets: up to 1 µs, 2 µs, 4 µs and so on to 67 s, and one for all that took longer.
pub(crate) const BUCKETS: usize = 28;

/// Counts of times.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
}

/// Counts of times, summed over threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sums {
    buckets: [u64; BUCKETS],
    nanoseconds: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: std::array::from_fn(|_| AtomicU64::new(0)), nanoseconds: 0.into() }
    }
}

impl Histogram {
    pub(crate) fn add(&self, took: Duration) {
        // More than five centuries do not count.
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanoseconds)].fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Relaxed);
    }

    pub(crate) fn add_to(&self, sums: &mut Sums) {
        sums.buckets.iter_mut().zip(&self.buckets).for_each(|(sum, count)| *sum += count.load(Relaxed));
        sums.nanoseconds = sums.nanoseconds.wrapping_add(self.nanoseconds.load(Relaxed));
    }
}

/// The bucket whose bound is the first that is not less than the time.
fn bucket(nanoseconds: u64) -> usize {
    let microseconds = nanoseconds.div_ceil(1000);
    let doublings = u64::BITS - microseconds.saturating_sub(1).leading_zeros();
    (doublings as usize).min(BUCKETS - 1)
}

impl Sums {
    /// Upper bounds in seconds with the number of times up to each. The last bucket has no bound and is left out.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut sum = 0;
        (0..BUCKETS - 1).map(move |at| {
            sum += self.buckets[at];
            // Divided, not multiplied by 1e-6: only so is each bound the number that its few digits say.
            ((1_u64 << at) as f64 / 1e6, sum)
        })
    }

    /// How many times were counted.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Sum of all times in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.nanoseconds as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        for (nanoseconds, expected) in
            [(0, 0), (1, 0), (1000, 0), (1001, 1), (2000, 1), (2001, 2), (4000, 2), (4001, 3), (u64::MAX, BUCKETS - 1)]
        {
            assert_eq!(bucket(nanoseconds), expected, "{nanoseconds} ns");
        }
        assert_eq!(bucket(67_108_864_000), BUCKETS - 2);
        assert_eq!(bucket(67_108_864_001), BUCKETS - 1);
    }

    #[test]
    fn bounds_are_few_digits_and_counts_only_rise() {
        let histogram = Histogram::default();
        for exponent in 0..64 {
            histogram.add(Duration::from_nanos(1 << exponent));
        }
        let mut sums = Sums::default();
        histogram.add_to(&mut sums);
        let cumulative: Vec<(f64, u64)> = sums.cumulative().collect();
        assert_eq!(cumulative[0].0.to_string(), "0.000001");
        assert_eq!(cumulative[10].0.to_string(), "0.001024");
        assert_eq!(cumulative[26].0.to_string(), "67.108864");
        assert!(cumulative.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1));
        assert_eq!(sums.count(), 64);
        assert!(cumulative[26].1 < 64, "what took longer than all bounds is counted in the whole only");
    }
}
