//! Line plots in plain SVG: panels side by side, each with its axes, its lines and their names.
//!
//! Written out by hand: axes, lines and a legend are a hundred lines, and no plotting crate comes without a tree of
//! fonts and back-ends behind it.
//!
//! *Invariants*: a line without points is left out with its name; a panel without lines says so.

use super::report::short;
use std::fmt::Write;

const LEFT: f64 = 70.0;
const TOP: f64 = 50.0;
const BELOW: f64 = 70.0;
const PANEL_WIDTH: f64 = 300.0;
const PANEL_HEIGHT: f64 = 340.0;
const PANEL_STEP: f64 = 560.0;

/// How a panel's upward axis runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upward {
    /// Whole decades.
    Decades,
    /// From zero, evenly.
    FromZero,
}

/// How a panel's axis to the right runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rightward {
    /// By powers.
    Powers,
    /// Evenly, from its first mark to its last.
    Evenly,
}

/// One line and its name.
pub(super) struct Line {
    pub(super) label: String,
    pub(super) colour: &'static str,
    /// As in SVG's `stroke-dasharray`; empty is solid.
    pub(super) dashes: &'static str,
    /// Positions on the axes; above zero on those that are no even ones.
    pub(super) points: Vec<(f64, f64)>,
}

/// One pair of axes.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) rightward: Rightward,
    /// Positions to the right that have a mark, with its text.
    pub(super) marks: Vec<(f64, String)>,
    pub(super) upward: Upward,
    pub(super) lines: Vec<Line>,
}

/// The picture of these panels.
pub(super) fn svg(panels: &[Panel]) -> String {
    let (width, height) = (60.0 + PANEL_STEP * panels.len() as f64, TOP + PANEL_HEIGHT + BELOW);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (at, panel) in panels.iter().enumerate() {
        panel.draw(&mut out, LEFT + PANEL_STEP * at as f64);
    }
    out + "</svg>\n"
}

impl Panel {
    fn draw(&self, out: &mut String, left: f64) {
        let above = TOP - 20.0;
        let _ = writeln!(
            out,
            "<text x=\"{left}\" y=\"{above}\" font-size=\"15\" font-weight=\"bold\">{}</text>",
            self.title
        );
        let values: Vec<f64> = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1)).collect();
        let (Some(first), Some(last)) = (self.marks.first(), self.marks.last()) else { return };
        if values.is_empty() {
            let _ = writeln!(out, "<text x=\"{left}\" y=\"{TOP}\">nothing measured</text>");
            return;
        }
        let steps = steps(self.upward, &values);
        let axes = Axes { left, ends: (first.0, last.0), rightward: self.rightward, upward: self.upward, steps };
        axes.draw(out, &self.marks);
        for (at, line) in self.lines.iter().filter(|line| !line.points.is_empty()).enumerate() {
            axes.draw_line(out, line, at);
        }
    }
}

/// Marks of the upward axis: decades around the values, or even steps from zero.
fn steps(upward: Upward, values: &[f64]) -> Vec<f64> {
    let most = values.iter().copied().fold(0.0, f64::max);
    match upward {
        Upward::Decades => {
            let low = values.iter().copied().fold(f64::INFINITY, f64::min).log10().floor();
            let high = most.log10().ceil().max(low + 1.0);
            (low as i32..=high as i32).map(|decade| 10_f64.powi(decade)).collect()
        }
        Upward::FromZero => {
            let decade = 10_f64.powf(most.log10().floor());
            let step = [0.2, 0.5, 1.0, 2.0].map(|times| times * decade).into_iter().find(|step| most / step <= 8.0);
            let step = step.unwrap_or(2.0 * decade);
            (0..=(most / step).ceil() as u32).map(|times| f64::from(times) * step).collect()
        }
    }
}

/// Positions of values in the picture.
struct Axes {
    left: f64,
    /// First and last mark to the right.
    ends: (f64, f64),
    rightward: Rightward,
    upward: Upward,
    steps: Vec<f64>,
}

impl Axes {
    fn x(&self, value: f64) -> f64 {
        let (first, last) = self.ends;
        let share = match self.rightward {
            Rightward::Powers => (value / first).log10() / (last / first).log10().max(1e-9),
            Rightward::Evenly => (value - first) / (last - first).max(1e-9),
        };
        self.left + PANEL_WIDTH * share
    }

    fn y(&self, value: f64) -> f64 {
        let scaled = |value: f64| if self.upward == Upward::Decades { value.log10() } else { value };
        let (low, high) = (scaled(self.steps[0]), scaled(self.steps[self.steps.len() - 1]));
        TOP + PANEL_HEIGHT * (high - scaled(value)) / (high - low)
    }

    fn draw(&self, out: &mut String, marks: &[(f64, String)]) {
        let (left, right) = (self.left, self.left + PANEL_WIDTH);
        for &step in &self.steps {
            let (at, text) = (self.y(step), short(step));
            let _ = writeln!(out, "<line x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>");
            let (x, y) = (left - 6.0, at + 4.0);
            let _ = writeln!(out, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>", text.trim());
        }
        let bottom = TOP + PANEL_HEIGHT;
        for (at, (value, text)) in marks.iter().enumerate() {
            // Some marks are close together: every other text is placed lower.
            let (x, y) = (self.x(*value), bottom + if at % 2 == 0 { 18.0 } else { 32.0 });
            let _ = writeln!(out, "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#eee\"/>");
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>");
        }
    }

    /// Draws a line and, as the `at`th, its name.
    fn draw_line(&self, out: &mut String, line: &Line, at: usize) {
        let points: Vec<(f64, f64)> = line.points.iter().map(|&(x, y)| (self.x(x), self.y(y))).collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let style = format!("stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\"", line.colour, line.dashes);
        let _ = writeln!(out, "<polyline points=\"{}\" fill=\"none\" {style}/>", path.join(" "));
        for (x, y) in points {
            let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\"/>", line.colour);
        }
        let (from, height) = (self.left + PANEL_WIDTH + 14.0, TOP + 10.0 + 20.0 * at as f64);
        let _ = writeln!(out, "<line x1=\"{from}\" x2=\"{}\" y1=\"{height}\" y2=\"{height}\" {style}/>", from + 24.0);
        let _ = writeln!(out, "<text x=\"{}\" y=\"{}\">{}</text>", from + 30.0, height + 4.0, line.label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(upward: Upward, points: Vec<(f64, f64)>) -> Panel {
        let line = Line { label: "a line".to_owned(), colour: "#000", dashes: "", points };
        Panel {
            title: "title".to_owned(),
            rightward: Rightward::Powers,
            marks: vec![(1.0, "1".into()), (8.0, "8".into())],
            upward,
            lines: vec![line],
        }
    }

    #[test]
    fn lines_stay_between_their_axes() {
        for upward in [Upward::Decades, Upward::FromZero] {
            let text = svg(&[panel(upward, vec![(1.0, 3.2e9), (8.0, 0.7e9)])]);
            assert!(text.matches("<polyline").count() == 1 && text.contains("a line") && !text.contains("NaN"));
            let heights = text.split("cy=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
            for height in heights.map(|text| text.parse::<f64>().unwrap()) {
                assert!((TOP..=TOP + PANEL_HEIGHT).contains(&height), "{height}");
            }
        }
        assert!(svg(&[panel(Upward::FromZero, vec![])]).contains("nothing measured"));
    }

    #[test]
    fn even_axes_begin_at_their_first_mark() {
        let mut shown = panel(Upward::FromZero, vec![(1.0, 1.0), (4.5, 1.0), (8.0, 1.0)]);
        shown.rightward = Rightward::Evenly;
        let text = svg(&[shown]);
        let middle = format!("cx=\"{:.1}\"", LEFT + PANEL_WIDTH / 2.0);
        assert!(text.contains(&middle) && text.contains(&format!("cx=\"{LEFT:.1}\"")), "{text}");
    }

    #[test]
    fn even_steps_begin_at_zero_and_are_few() {
        for most in [0.9, 1.0, 2.5e9, 9.9e3] {
            let steps = steps(Upward::FromZero, &[most]);
            assert!(steps[0] == 0.0 && (3..=11).contains(&steps.len()) && steps[steps.len() - 1] >= most, "{steps:?}");
        }
    }
}
