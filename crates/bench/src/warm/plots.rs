//! The plots of the warm level: threads × fragment size, and operation size with one thread.

use super::options::Plan;
use crate::chart::{self, Line, Panel, Rightward, Upward};
use crate::report::{Plot, size};
use crate::results::Results;

/// Series, name, colour, dashes.
type Drawn = (&'static str, &'static str, &'static str, &'static str);

const FRAGMENTS: [Drawn; 4] = [
    ("write.1", "events written, 1 thread", "#0072b2", ""),
    ("write.2", "events written, 2 threads", "#cc79a7", ""),
    ("fio.blocks.1", "fio, 1 process", "#777777", "6 4"),
    ("fio.blocks.2", "fio, 2 processes", "#000000", "6 4"),
];
const AMPLIFICATION: [Drawn; 1] = [("amplification", "bytes written by payload", "#d55e00", "")];
const OPERATIONS: [Drawn; 2] = [
    ("operation.write", "events written, 1 thread", "#0072b2", ""),
    ("operation.fio", "fio, 1 process", "#777777", "6 4"),
];

/// Both plots.
pub(super) fn all(results: &Results, plan: &Plan) -> Vec<Plot> {
    let fragments = [
        panel(results, "Bytes per second by fragment or block size", &plan.sizes, &FRAGMENTS),
        panel(results, "Write amplification by fragment size", &plan.sizes, &AMPLIFICATION),
    ];
    let operations = [panel(results, "Bytes per second by operation size", &plan.operation_sizes, &OPERATIONS)];
    vec![
        Plot { suffix: "-threads", caption: "Writing by threads and fragment size", svg: chart::svg(&fragments) },
        Plot { suffix: "-operations", caption: "Writing by operation size, one thread", svg: chart::svg(&operations) },
    ]
}

fn panel(results: &Results, title: &str, sizes: &[usize], drawn: &[Drawn]) -> Panel {
    let line = |&(id, label, colour, dashes): &Drawn| {
        let points = sizes.iter().filter_map(|&size| results.median(id, size).map(|value| (size as f64, value)));
        Line { label: label.to_owned(), colour, dashes, points: points.filter(|point| point.1 > 0.0).collect() }
    };
    Panel {
        title: title.to_owned(),
        rightward: Rightward::Powers,
        marks: sizes.iter().map(|&bytes| (bytes as f64, size(bytes))).collect(),
        upward: Upward::FromZero,
        lines: drawn.iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_names_a_series() {
        let mut results = Results::of(super::super::SERIES);
        for (id, ..) in FRAGMENTS.iter().chain(&AMPLIFICATION).chain(&OPERATIONS) {
            // `record` refuses names that are no series.
            results.record(id, 4096, 1e9);
            results.record(id, 8192, 2e9);
        }
        let panel = panel(&results, "title", &[4096, 8192], &FRAGMENTS);
        assert!(panel.lines.iter().all(|line| line.points == [(4096.0, 1e9), (8192.0, 2e9)]));
    }
}
