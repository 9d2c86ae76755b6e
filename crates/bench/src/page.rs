//! A report of tables of any shape: a Markdown page with plots, and the same in JSON.

use crate::goals::Goal;
use crate::machine::Machine;
use crate::report::{Plot, short};
use crate::{Result, child};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::Path;

/// A table and what it shows.
pub(crate) struct Section {
    /// Its key in the JSON.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) text: String,
    pub(crate) head: Vec<&'static str>,
    /// A cell is a text, a number, or null where nothing was measured.
    pub(crate) rows: Vec<Vec<Value>>,
}

impl Section {
    /// A table without rows.
    pub(crate) fn new(
        id: &'static str,
        title: &'static str,
        text: impl Into<String>,
        head: &[&'static str],
    ) -> Section {
        Section { id, title, text: text.into(), head: head.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with a cell for each column.
    pub(crate) fn add(&mut self, row: Vec<Value>) {
        debug_assert_eq!(row.len(), self.head.len(), "a cell for each column");
        self.rows.push(row);
    }
}

/// Everything that one run found.
pub(crate) struct Page<'a> {
    /// Stem of the files' names.
    pub(crate) name: &'static str,
    /// What is measured, for the heading.
    pub(crate) title: &'static str,
    pub(crate) machine: &'a Machine,
    pub(crate) plan: String,
    pub(crate) quick: bool,
    pub(crate) sections: &'a [Section],
    pub(crate) goals: &'a [Goal],
    pub(crate) failures: &'a [String],
    pub(crate) plots: &'a [Plot],
}

impl Page<'_> {
    /// Writes the report to a directory below the workspace's root, and to the terminal.
    pub(crate) fn publish(&self, directory: &Path) -> Result<()> {
        let out = child::root().join(directory);
        std::fs::create_dir_all(&out)?;
        let page = self.markdown();
        std::fs::write(out.join(format!("{}.md", self.name)), &page)?;
        let json = serde_json::to_string_pretty(&self.json())? + "\n";
        std::fs::write(out.join(format!("{}.json", self.name)), json)?;
        for plot in self.plots {
            std::fs::write(out.join(self.file(plot)), &plot.svg)?;
        }
        println!("\n{page}\nwritten: {0}.md, {0}.json in {1}", self.name, directory.display());
        Ok(())
    }

    fn file(&self, plot: &Plot) -> String {
        format!("{}{}.svg", self.name, plot.suffix)
    }

    fn markdown(&self) -> String {
        let mut page = format!("# Benchmark: {}\n\n{}\n- plan: {}\n", self.title, self.machine, self.plan);
        for failure in self.failures {
            let _ = writeln!(page, "\n**A part failed**: {failure}");
        }
        if !self.goals.is_empty() {
            page += "\n## Goals\n\n| Goal | Measured | Wanted | |\n|---|--:|--:|---|\n";
        }
        for goal in self.goals {
            let text = |value: Option<f64>| value.map_or("—".to_owned(), |value| format!("{value:.3}"));
            let word = match (goal.met, goal.ratio) {
                (true, _) => "met",
                (false, Some(_)) => "**not met**",
                (false, None) => "not measured",
            };
            let _ = writeln!(page, "| {} | {} | {} | {word} |", goal.goal, text(goal.measured), text(goal.wanted));
        }
        for section in self.sections {
            let aligned = "--:|".repeat(section.head.len().saturating_sub(1));
            let _ = write!(
                page,
                "\n## {}\n\n{}\n\n| {} |\n|---|{aligned}\n",
                section.title,
                section.text,
                section.head.join(" | ")
            );
            for row in &section.rows {
                let cells: Vec<String> = row.iter().map(cell).collect();
                let _ = writeln!(page, "| {} |", cells.join(" | "));
            }
        }
        for plot in self.plots {
            let _ = writeln!(page, "\n![{}]({})", plot.caption, self.file(plot));
        }
        page
    }

    fn json(&self) -> Value {
        let row = |section: &Section, row: &Vec<Value>| -> Value {
            section.head.iter().map(|&name| name.to_owned()).zip(row.iter().cloned()).collect::<Map<_, _>>().into()
        };
        let sections = self.sections.iter().map(|section| {
            let rows: Vec<Value> = section.rows.iter().map(|cells| row(section, cells)).collect();
            (section.id.to_owned(), json!({"title": section.title, "text": section.text, "rows": rows}))
        });
        json!({
            "machine": self.machine,
            "quick": self.quick,
            "plan": self.plan,
            "failures": self.failures,
            "goals": self.goals,
            "sections": sections.collect::<Map<_, _>>(),
        })
    }
}

/// Whole numbers in full, others with the digits that matter.
fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(whole), _) => whole.to_string(),
            (None, Some(real)) if real.abs() < 1000.0 => format!("{real:.3}"),
            (None, real) => short(real.unwrap_or(f64::NAN)),
        },
        _ => "—".to_owned(),
    }
}

/// A goal: a least or (`at_most`) a greatest ratio.
pub(crate) fn goal(text: String, measured: Option<f64>, wanted: f64, at_most: bool) -> Goal {
    let ratio = measured.map(|measured| if at_most { wanted / measured } else { measured / wanted });
    let met = ratio.is_some_and(|ratio| ratio >= 1.0);
    Goal { goal: text, measured, unit: "", wanted: Some(wanted), ratio, met, in_smoke: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_show_what_was_measured() {
        let cells = [json!(12_345_u64), json!(0.12345), json!(12_345.6), json!("a"), Value::Null];
        assert_eq!(cells.each_ref().map(cell), ["12345", "0.123", "12.3 k", "a", "—"]);
    }

    #[test]
    fn goals_have_a_direction() {
        assert!(goal(String::new(), Some(0.8), 0.85, true).met);
        assert!(!goal(String::new(), Some(0.8), 0.85, false).met);
        assert!(!goal(String::new(), None, 0.85, false).met);
    }
}
