//! The plot: two panels of lines over the fragment size, on logarithmic axes.

use super::chart::{self, Panel, Rightward, Upward};
use super::report::size;
use super::results::Results;

struct Line {
    id: &'static str,
    label: &'static str,
    colour: &'static str,
    dashes: &'static str,
    /// Whether the series counts operations that move a fragment each, in a panel of bytes.
    per_fragment: bool,
}

const fn line(id: &'static str, label: &'static str, colour: &'static str, dashes: &'static str) -> Line {
    Line { id, label, colour, dashes, per_fragment: true }
}

const fn limit(id: &'static str, label: &'static str, colour: &'static str) -> Line {
    Line { id, label, colour, dashes: "6 4", per_fragment: false }
}

const RATES: [Line; 7] = [
    line("get.untouched", "get, untouched", "#009e73", "2 3"),
    line("get.verify", "get, verified", "#009e73", ""),
    line("put.cached.1", "put, 1 thread", "#0072b2", ""),
    line("put.cached.2", "put, 2 threads", "#0072b2", "6 4"),
    line("concurrent.put", "concurrent, put", "#cc79a7", ""),
    line("concurrent.getremove", "concurrent, get + remove", "#cc79a7", "6 4"),
    line("redis.set.32", "Redis SET, pipeline 32", "#d55e00", ""),
];

const BANDWIDTHS: [Line; 6] = [
    limit("copy.stream.cached.1", "limit: non-temporal, cached", "#000000"),
    limit("copy.plain.cached.1", "limit: plain, cached", "#777777"),
    limit("copy.stream.cold.1", "limit: non-temporal, cold", "#56b4e9"),
    line("put.cached.1", "put, cached source", "#0072b2", ""),
    line("put.cold.1", "put, cold source", "#56b4e9", ""),
    line("redis.set.32", "Redis SET, pipeline 32", "#d55e00", ""),
];

/// Draws what was measured; series without figures are left out.
pub(super) fn svg(results: &Results, sizes: &[usize]) -> String {
    chart::svg(&[
        panel(results, sizes, ("Operations per second", &RATES), false),
        panel(results, sizes, ("Bytes per second, one thread", &BANDWIDTHS), true),
    ])
}

fn panel(results: &Results, sizes: &[usize], (title, lines): (&str, &[Line]), bytes: bool) -> Panel {
    let value = |line: &Line, size: usize| {
        let scale = if bytes && line.per_fragment { size as f64 } else { 1.0 };
        results.median(line.id, size).map(|median| median * scale).filter(|value| *value > 0.0)
    };
    let points = |line: &Line| {
        sizes.iter().filter_map(|&size| value(line, size).map(|value| (size as f64, value))).collect::<Vec<_>>()
    };
    let drawn = |line: &Line| chart::Line {
        label: line.label.to_owned(),
        colour: line.colour,
        dashes: line.dashes,
        points: points(line),
    };
    Panel {
        title: title.to_owned(),
        rightward: Rightward::Powers,
        marks: sizes.iter().map(|&bytes| (bytes as f64, size(bytes))).collect(),
        upward: Upward::Decades,
        lines: lines.iter().map(drawn).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_names_a_series_and_is_drawn() {
        let mut results = Results::default();
        for line in RATES.iter().chain(&BANDWIDTHS) {
            // `record` refuses names that are no series.
            results.record(line.id, 64, 1e6);
            results.record(line.id, 10_240, 2e5);
        }
        let text = svg(&results, &[64, 10_240]);
        assert_eq!(text.matches("<polyline").count(), RATES.len() + BANDWIDTHS.len());
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n") && !text.contains("NaN"));
        assert!(svg(&Results::default(), &[64]).contains("nothing measured"));
    }
}
