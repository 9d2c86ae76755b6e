//! The plot: two panels of lines over the fragment size, on logarithmic axes, written as plain SVG.

use super::report::{short, size};
use super::results::Results;
use std::fmt::Write;

const WIDTH: f64 = 1180.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 50.0;
const PANEL_WIDTH: f64 = 300.0;
const PANEL_HEIGHT: f64 = 340.0;
const PANEL_STEP: f64 = 560.0;

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
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    panel(&mut out, results, sizes, LEFT, ("Operations per second", &RATES), false);
    panel(&mut out, results, sizes, LEFT + PANEL_STEP, ("Bytes per second, one thread", &BANDWIDTHS), true);
    out + "</svg>\n"
}

fn panel(
    out: &mut String,
    results: &Results,
    sizes: &[usize],
    left: f64,
    (title, lines): (&str, &[Line]),
    bytes: bool,
) {
    let value = |line: &Line, size: usize| {
        let scale = if bytes && line.per_fragment { size as f64 } else { 1.0 };
        results.median(line.id, size).map(|median| median * scale).filter(|value| *value > 0.0)
    };
    let values: Vec<f64> =
        lines.iter().flat_map(|line| sizes.iter().filter_map(move |&size| value(line, size))).collect();
    let _ =
        writeln!(out, "<text x=\"{left}\" y=\"{}\" font-size=\"15\" font-weight=\"bold\">{title}</text>", TOP - 20.0);
    let (Some(&first), Some(&last)) = (sizes.first(), sizes.last()) else { return };
    if values.is_empty() {
        let _ = writeln!(out, "<text x=\"{left}\" y=\"{TOP}\">nothing measured</text>");
        return;
    }
    let low = values.iter().copied().fold(f64::INFINITY, f64::min).log10().floor();
    let high = values.iter().copied().fold(0.0, f64::max).log10().ceil().max(low + 1.0);
    let span = (last as f64 / first as f64).log10().max(1e-9);
    let x = |size: usize| left + PANEL_WIDTH * (size as f64 / first as f64).log10() / span;
    let y = |value: f64| TOP + PANEL_HEIGHT * (high - value.log10()) / (high - low);

    for decade in low as i32..=high as i32 {
        let (at, text) = (y(10_f64.powi(decade)), short(10_f64.powi(decade)));
        let right = left + PANEL_WIDTH;
        let _ = writeln!(out, "<line x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>");
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            at + 4.0,
            text.trim()
        );
    }
    for (at, &bytes) in sizes.iter().enumerate() {
        // 1, 2, 4 and 10 KiB are close together: every other label stands lower.
        let down = if at % 2 == 0 { 18.0 } else { 32.0 };
        let at = x(bytes);
        let bottom = TOP + PANEL_HEIGHT;
        let _ = writeln!(out, "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#eee\"/>");
        let _ =
            writeln!(out, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>", bottom + down, size(bytes));
    }
    for (at, line) in lines.iter().enumerate() {
        let points: Vec<(f64, f64)> =
            sizes.iter().filter_map(|&size| value(line, size).map(|value| (x(size), y(value)))).collect();
        if points.is_empty() {
            continue;
        }
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let style = format!("stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\"", line.colour, line.dashes);
        let _ = writeln!(out, "<polyline points=\"{}\" fill=\"none\" {style}/>", path.join(" "));
        for (x, y) in points {
            let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\"/>", line.colour);
        }
        let (from, height) = (left + PANEL_WIDTH + 14.0, TOP + 10.0 + 20.0 * at as f64);
        let _ = writeln!(out, "<line x1=\"{from}\" x2=\"{}\" y1=\"{height}\" y2=\"{height}\" {style}/>", from + 24.0);
        let _ = writeln!(out, "<text x=\"{}\" y=\"{}\">{}</text>", from + 30.0, height + 4.0, line.label);
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
