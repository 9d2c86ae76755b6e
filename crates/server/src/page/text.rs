//! A page of metrics: families by name, each with its help, its type and its samples.
//!
//! *Invariant*: a name has one help and one type, no matter which part adds to it (test `metrics_follow_the_conventions` in
//! `tests/seen`).

use crate::metrics::Sums;
use forebay_core::{Error, Result};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{TEXT_FORMAT, TextEncoder};
use std::collections::BTreeMap;

/// The content type of a page, as HTTP says it.
pub(crate) const CONTENT_TYPE: &str = TEXT_FORMAT;

/// Names and values of a sample's labels.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// Families that grow sample by sample.
#[derive(Default)]
pub(super) struct Page {
    families: BTreeMap<&'static str, MetricFamily>,
}

impl Page {
    /// A value that rises and falls.
    pub(super) fn gauge(&mut self, name: &'static str, help: &str, labels: Labels<'_>, value: f64) {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        let mut sample = sample(labels);
        sample.set_gauge(gauge);
        self.add(name, help, MetricType::GAUGE, sample);
    }

    /// A value that only rises, until the process starts again.
    pub(super) fn counter(&mut self, name: &'static str, help: &str, labels: Labels<'_>, value: f64) {
        let mut counter = Counter::default();
        counter.set_value(value);
        let mut sample = sample(labels);
        sample.set_counter(counter);
        self.add(name, help, MetricType::COUNTER, sample);
    }

    /// Times in buckets.
    pub(super) fn histogram(&mut self, name: &'static str, help: &str, labels: Labels<'_>, sums: &Sums) {
        let bucket = |(bound, count): (f64, u64)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound);
            bucket.set_cumulative_count(count);
            bucket
        };
        let mut histogram = Histogram::default();
        histogram.set_bucket(sums.cumulative().map(bucket).collect());
        histogram.set_sample_count(sums.count());
        histogram.set_sample_sum(sums.seconds());
        let mut sample = sample(labels);
        sample.set_histogram(histogram);
        self.add(name, help, MetricType::HISTOGRAM, sample);
    }

    fn add(&mut self, name: &'static str, help: &str, kind: MetricType, sample: Metric) {
        let family = self.families.entry(name).or_insert_with(|| {
            let mut family = MetricFamily::default();
            family.set_name(name.to_owned());
            family.set_help(help.to_owned());
            family.set_field_type(kind);
            family
        });
        family.mut_metric().push(sample);
    }

    /// The page as text.
    ///
    /// # Errors
    /// `Internal` for a family without a name or without samples, which nobody adds.
    pub(super) fn text(self) -> Result<String> {
        let families: Vec<MetricFamily> = self.families.into_values().collect();
        let text = TextEncoder::new().encode_to_string(&families);
        text.map_err(|error| Error::internal("metrics cannot be written as text").with_source(error))
    }
}

fn sample(labels: Labels<'_>) -> Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    Metric::from_label(labels.iter().map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_labels_hold_is_escaped() {
        let mut page = Page::default();
        page.gauge("forebay_a", "Help with \\ and\nlines.", &[("device", "a\"b\\c\nd")], 0.5);
        page.gauge("forebay_a", "Help with \\ and\nlines.", &[("device", "ü")], 1.0);
        let text = page.text().unwrap();
        let expected = "# HELP forebay_a Help with \\\\ and\\nlines.\n# TYPE forebay_a gauge\n\
                        forebay_a{device=\"a\\\"b\\\\c\\nd\"} 0.5\nforebay_a{device=\"ü\"} 1\n";
        assert_eq!(text, expected);
    }
}
