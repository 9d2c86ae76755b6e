//! Samples by series and size, and the names under which reports show them.

use std::collections::BTreeMap;

/// What a series counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Operations (fragments, events, requests) per second.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// Bytes (per fragment or event, where the title says so).
    Bytes,
    /// Microseconds.
    Micros,
    /// A number of things.
    Count,
    /// A share of one.
    Share,
    /// Seconds of one core per 10⁹ bytes.
    CoreSeconds,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// How a figure of this unit ends.
    pub(super) fn word(self) -> &'static str {
        match self {
            Unit::PerSecond => "/s",
            Unit::BytesPerSecond => "B/s",
            Unit::Bytes => "B",
            Unit::Micros => "µs",
            Unit::Count => "fragments",
            Unit::Share => "",
            Unit::CoreSeconds => "core·s/GB",
            Unit::Seconds => "s",
        }
    }
}

/// One kind of measurement.
pub(super) struct Series {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) unit: Unit,
}

/// A list of series, in the order of the report: id, unit, title.
macro_rules! series {
    ($($id:literal $unit:ident $title:literal;)*) => {
        &[$($crate::results::Series { id: $id, title: $title, unit: $crate::results::Unit::$unit }),*]
    };
}
pub(super) use series;

/// Every series of the embedded store.
pub(super) const EMBEDDED: &[Series] = series! {
    "put.cached.1" PerSecond "put, 1 thread, cached source";
    "put.cold.1" PerSecond "put, 1 thread, cold source";
    "put.cached.2" PerSecond "put, 2 threads (each half of every event's sources), cached source";
    "put.cold.2" PerSecond "put, 2 threads (each half of every event's sources), cold source";
    "put.events.2" PerSecond "put, 2 threads (each its own events), cached source";
    "put.single.1" PerSecond "put, 1 thread, single-fragment events, cached source";
    "get.verify" PerSecond "get, 1 thread, every byte read and verified";
    "get.untouched" PerSecond "get, 1 thread, guard only, bytes untouched";
    "getremove" PerSecond "get (verified) and remove, 1 thread";
    "concurrent.put" PerSecond "concurrent test: put side";
    "concurrent.getremove" PerSecond "concurrent test: get (verified) and remove side";
    "redis.set.1" PerSecond "Redis SET, pipeline 1";
    "redis.set.32" PerSecond "Redis SET, pipeline 32";
    "redis.set.32.one" PerSecond "Redis SET, pipeline 32, one key only";
    "redis.get.1" PerSecond "Redis GET, pipeline 1";
    "redis.get.32" PerSecond "Redis GET, pipeline 32";
    "copy.plain.cached.1" BytesPerSecond "limit: plain copy, 1 thread, cached source";
    "copy.stream.cached.1" BytesPerSecond "limit: non-temporal copy, 1 thread, cached source";
    "copy.plain.cold.1" BytesPerSecond "limit: plain copy, 1 thread, cold source";
    "copy.stream.cold.1" BytesPerSecond "limit: non-temporal copy, 1 thread, cold source";
    "copy.plain.cached.2" BytesPerSecond "limit: plain copy, 2 threads, cached source";
    "copy.stream.cached.2" BytesPerSecond "limit: non-temporal copy, 2 threads, cached source";
    "copy.plain.cold.2" BytesPerSecond "limit: plain copy, 2 threads, cold source";
    "copy.stream.cold.2" BytesPerSecond "limit: non-temporal copy, 2 threads, cold source";
    "read.1" BytesPerSecond "limit: reading the mapping, 1 thread";
    "read.2" BytesPerSecond "limit: reading the mapping, 2 threads";
    "select.1" PerSecond "get_any + accept, single-fragment events, 1 thread, batch 1";
    "select.64" PerSecond "get_any + accept, single-fragment events, 1 thread, batch 64";
    "release" PerSecond "release of accepted events, 1 thread";
    "grant.1" PerSecond "get_any alone, single-fragment events, one event per call";
    "grant.64" PerSecond "get_any alone, single-fragment events, 64 events per call";
    "stages.2" PerSecond "two-stage selection, events of 10 fragments, 2 threads, decided events";
    "sampled.none" PerSecond "get_any, accept or reject, without a sampler";
    "sampled.decided" Share "the same beside a sampler of decided events at 1 kHz, by without";
    "sampled.live" Share "the same beside a sampler of live events at 1 kHz, by without";
    "ring.put" PerSecond "ring: put of frames, 48 links in turn, 1 thread, cold source";
    "ring.events" PerSecond "the same frames put as events of 48 fragments";
    "ring.open" Micros "ring: opening a window of 1 ms over 48 links, bytes untouched";
    "ring.window" BytesPerSecond "ring: copying such windows out";
    "ring.plain" BytesPerSecond "limit: plain copy of about as many bytes in one piece, both sides cold";
    "ring.memory" Bytes "ring: memory per fragment, everything counted";
    "memory.events16.dense" Bytes "memory per fragment, events of 16, dense numbers (store's own count)";
    "memory.events16.random" Bytes "memory per fragment, events of 16, random numbers (store's own count)";
    "memory.single.dense" Bytes "memory per single-fragment event, dense numbers (store's own count)";
    "memory.single.random" Bytes "memory per single-fragment event, random numbers (store's own count)";
    "rss.events16.dense" Bytes "memory per fragment, events of 16, dense numbers (growth seen by the kernel)";
    "rss.events16.random" Bytes "memory per fragment, events of 16, random numbers (growth seen by the kernel)";
    "rss.single.dense" Bytes "memory per single-fragment event, dense numbers (growth seen by the kernel)";
    "rss.single.random" Bytes "memory per single-fragment event, random numbers (growth seen by the kernel)";
    "memory.decided.dense" Bytes "memory per decided event, dense numbers";
    "memory.decided.random" Bytes "memory per decided event, random numbers";
    "memory.decided.all" Bytes "memory of the decided, all of 10⁹ dense events of one run (10⁷ in a smoke run)";
    "memory.fixed" Bytes "memory that does not grow with the data";
    "entry.bytes" Bytes "directory entry at 16-byte keys";
    "payload.share" Share "payload in the occupied region";
    "open.rate" PerSecond "reopening, fragments per second and core, without payload verification";
    "open.verify" BytesPerSecond "reopening with payload verification, payload per second and core";
    "refill.first" Count "fragments until `Full`, first fill";
    "refill.later" Count "fragments until `Full`, later fills";
    "refill.segment" Count "payload of one segment, in fragments";
    "held.none" PerSecond "selection at full rate, nothing held, events";
    "held.some" PerSecond "selection at full rate, 1 % of events held under lease, events";
};

/// All samples of one run.
pub(super) struct Results {
    series: &'static [Series],
    samples: BTreeMap<(usize, usize), Vec<f64>>,
}

impl Default for Results {
    fn default() -> Results {
        Results::of(EMBEDDED)
    }
}

/// One series at one size.
pub(super) struct Row<'a> {
    pub(super) series: &'static Series,
    pub(super) bytes: usize,
    pub(super) samples: &'a [f64],
    pub(super) median: f64,
}

impl Results {
    /// Nothing measured yet, of these series.
    pub(super) fn of(series: &'static [Series]) -> Results {
        Results { series, samples: BTreeMap::new() }
    }

    /// The series that can be measured, in the order of the report.
    pub(super) fn series(&self) -> &'static [Series] {
        self.series
    }

    fn position(&self, id: &str) -> Option<usize> {
        self.series.iter().position(|series| series.id == id)
    }

    /// Adds one sample. `bytes` is the fragment size that it belongs to.
    ///
    /// # Panics
    /// For a series that the list above lacks: a mistake in this program.
    pub(super) fn record(&mut self, id: &str, bytes: usize, value: f64) {
        let at = self.position(id);
        assert!(at.is_some(), "no series `{id}`");
        self.samples.entry((at.unwrap_or_default(), bytes)).or_default().push(value);
    }

    /// Median of a series at a size, where it was measured.
    pub(super) fn median(&self, id: &str, bytes: usize) -> Option<f64> {
        let samples = self.samples.get(&(self.position(id)?, bytes))?;
        Some(median(samples))
    }

    /// Samples of a series at a size, in the order in which they came.
    pub(super) fn samples(&self, id: &str, bytes: usize) -> &[f64] {
        self.position(id).and_then(|at| self.samples.get(&(at, bytes))).map_or(&[], Vec::as_slice)
    }

    /// Everything that was measured, in the order of the report.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.samples.iter().map(|(&(at, bytes), samples)| Row {
            series: &self.series[at],
            bytes,
            samples,
            median: median(samples),
        })
    }
}

/// The middle value; the mean of the two middle ones of an even number.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (len, half) if len % 2 == 1 => sorted[half],
        (_, half) => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn series_have_different_names() {
        for series in [EMBEDDED, crate::warm::SERIES] {
            let mut ids: Vec<_> = series.iter().map(|series| series.id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), series.len());
        }
    }
}
