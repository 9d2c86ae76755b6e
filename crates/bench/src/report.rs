//! The report: a Markdown page, the same in JSON, and plots.

use super::goals::Goal;
use super::machine::Machine;
use super::results::{Results, Row, Series, Unit};
use crate::{Result, child};
use serde_json::json;
use std::fmt::Write;
use std::path::Path;

/// A plot of a report: the end of its file name, what it shows, the picture.
pub(super) struct Plot {
    /// Such as `-threads`; empty for a report's only plot.
    pub(super) suffix: &'static str,
    pub(super) caption: &'static str,
    pub(super) svg: String,
}

/// Everything that one run found.
pub(super) struct Report<'a> {
    /// Stem of the files' names.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// How it was measured, a paragraph.
    pub(super) what: &'static str,
    pub(super) machine: &'a Machine,
    pub(super) plan: String,
    /// Sizes of the tables' columns, in bytes.
    pub(super) sizes: &'a [usize],
    pub(super) smoke: bool,
    pub(super) results: &'a Results,
    pub(super) goals: &'a [Goal],
    pub(super) failures: &'a [String],
    /// Tables over the sizes: titles and series.
    pub(super) tables: [(&'static str, Unit); 2],
    pub(super) plots: Vec<Plot>,
}

impl Report<'_> {
    /// Writes the report to a directory below the workspace's root, and to the terminal.
    pub(super) fn publish(&self, directory: &Path) -> Result<()> {
        let files = self.write(&child::root().join(directory))?;
        println!("\n{}", self.markdown());
        println!("written: {} in {}", files.join(", "), directory.display());
        Ok(())
    }

    /// Writes the page, the JSON and the plots; answers the files' names.
    fn write(&self, out: &Path) -> Result<Vec<String>> {
        std::fs::create_dir_all(out)?;
        let mut files = vec![
            (format!("{}.md", self.name), self.markdown()),
            (format!("{}.json", self.name), serde_json::to_string_pretty(&self.json())? + "\n"),
        ];
        files.extend(self.plots.iter().map(|plot| (self.file(plot), plot.svg.clone())));
        for (name, text) in &files {
            std::fs::write(out.join(name), text)?;
        }
        Ok(files.into_iter().map(|(name, _)| name).collect())
    }

    fn file(&self, plot: &Plot) -> String {
        format!("{}{}.svg", self.name, plot.suffix)
    }

    /// The report in Markdown.
    fn markdown(&self) -> String {
        let mut page =
            format!("# Benchmark: {}\n\n{}\n- plan: {}\n\n{}\n", self.title, self.machine, self.plan, self.what);
        for failure in self.failures {
            let _ = writeln!(page, "\n**A part failed**: {failure}");
        }
        page += "\n## Goals\n\n| Goal | Measured | Wanted | Ratio | |\n|---|--:|--:|--:|---|\n";
        for goal in self.goals {
            let text =
                |value: Option<f64>| value.map_or("—".to_owned(), |value| format!("{}{}", short(value), goal.unit));
            let ratio = goal.ratio.map_or("—".to_owned(), |ratio| format!("{ratio:.2}"));
            let word = match (goal.met, goal.ratio) {
                (true, _) => "met",
                (false, Some(_)) => "**not met**",
                (false, None) => "not measured",
            };
            let _ = writeln!(
                page,
                "| {} | {} | {} | {ratio} | {word} |",
                goal.goal,
                text(goal.measured),
                text(goal.wanted)
            );
        }
        self.add_tables(&mut page);
        for plot in &self.plots {
            let _ = writeln!(page, "\n![{}]({})", plot.caption, self.file(plot));
        }
        page
    }

    /// Series that were measured at every size share one table; the others follow.
    fn add_tables(&self, page: &mut String) {
        let rows: Vec<Row<'_>> = self.results.rows().collect();
        let of = |id: &str| rows.iter().filter(move |row| row.series.id == id).collect::<Vec<_>>();
        for (title, unit) in self.tables {
            let whole = |series: &&Series| series.unit == unit && of(series.id).len() == self.sizes.len();
            let series: Vec<_> = self.results.series().iter().filter(whole).collect();
            if series.is_empty() {
                continue;
            }
            let heads: Vec<String> = self.sizes.iter().map(|&bytes| size(bytes)).collect();
            let _ = writeln!(page, "\n## {title}\n\n| | {} |\n|---|{}", heads.join(" | "), "--:|".repeat(heads.len()));
            for series in series {
                let cells = of(series.id).iter().map(|row| short(row.median)).collect::<Vec<_>>().join(" | ");
                let _ = writeln!(page, "| {} | {cells} |", series.title);
            }
        }
        *page += "\n## Further figures\n\n| | Fragment | Median | Least | Most |\n|---|--:|--:|--:|--:|\n";
        for series in self.results.series() {
            let measured = of(series.id);
            let in_table = matches!(series.unit, Unit::PerSecond | Unit::BytesPerSecond);
            if in_table && measured.len() == self.sizes.len() {
                continue;
            }
            for row in measured {
                let (least, most) = extremes(row.samples);
                let (median, least, most) = (short(row.median), short(least), short(most));
                let _ = writeln!(page, "| {} | {} | {median} | {least} | {most} |", series.title, size(row.bytes));
            }
        }
    }

    fn json(&self) -> serde_json::Value {
        let row = |row: Row<'_>| {
            let (min, max) = extremes(row.samples);
            json!({
                "series": row.series.id, "title": row.series.title, "unit": format!("{:?}", row.series.unit),
                "bytes": row.bytes, "median": row.median, "min": min, "max": max, "samples": row.samples,
            })
        };
        json!({
            "machine": self.machine,
            "smoke": self.smoke,
            "plan": self.plan,
            "failures": self.failures,
            "goals": self.goals,
            "rows": self.results.rows().map(row).collect::<Vec<_>>(),
        })
    }
}

fn extremes(samples: &[f64]) -> (f64, f64) {
    let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
    (least, samples.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// A size such as `64 B` or `10 KiB`.
pub(super) fn size(bytes: usize) -> String {
    if bytes.is_multiple_of(1024) { format!("{} KiB", bytes / 1024) } else { format!("{bytes} B") }
}

/// Three digits and a prefix, such as `1.23 M`.
pub(super) fn short(value: f64) -> String {
    for (scale, prefix) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value.abs() >= scale {
            let scaled = value / scale;
            let digits = if scaled >= 100.0 {
                0
            } else if scaled >= 10.0 {
                1
            } else {
                2
            };
            return format!("{scaled:.digits$} {prefix}");
        }
    }
    format!("{value:.2} ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [short(1_234_567.0), short(99_900.0), short(123_456.0), short(0.951)],
            ["1.23 M", "99.9 k", "123 k", "0.95 "]
        );
        assert_eq!([size(64), size(7200), size(10_240)], ["64 B", "7200 B", "10 KiB"]);
    }
}
