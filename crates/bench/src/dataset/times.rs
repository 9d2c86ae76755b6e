//! Times to open and to read beside Parquet, in turns of one run.

use super::python::Python;
use super::{Found, Plan};
use crate::Result;
use crate::page::{Section, goal};
use serde_json::{Value, json};
use std::path::Path;

/// What is measured, and the greatest ratio to Parquet's time.
const WANTED: [(&str, f64); 3] = [("open", 0.5), ("ten columns", 1.0), ("all columns", 0.7)];

pub(super) fn measure(plan: &Plan, python: &Python, folder: &Path, found: &mut Found) -> Result<()> {
    let Some((name, dataset)) = found.datasets.first().cloned() else {
        return Err("no file to draw events from".into());
    };
    println!("times on {} events of {name}", plan.events);
    let (dataset, folder) = (dataset.display().to_string(), folder.display().to_string());
    let (events, repetitions) = (plan.events.to_string(), plan.repetitions.to_string());
    let answer = python.answer(&["times", &dataset, &folder, &events, &repetitions])?;
    let mut table = Section::new(
        "times",
        "Times",
        format!(
            "{events} events drawn from {name} in shuffled order, {} columns: {} bytes beside {} of Parquet (zstd-3, dictionary, row groups of \
             10,000 events). Milliseconds, warm, all cores, in turns; reading opens first. One column of the first event took {} requests, {} bytes.",
            answer["columns"],
            answer["ours_bytes"],
            answer["parquet_bytes"],
            answer["one_column"]["requests"],
            answer["one_column"]["bytes"]
        ),
        &["", "ours", "ours, least", "Parquet", "Parquet, least", "ours / Parquet"],
    );
    for (what, wanted) in WANTED {
        let (ours, parquet) = (samples(&answer["seconds"][what]["ours"]), samples(&answer["seconds"][what]["parquet"]));
        let (Some(own), Some(other)) = (median(&ours), median(&parquet)) else {
            return Err(format!("no times of {what}").into());
        };
        table.add(vec![
            json!(what),
            json!(own * 1e3),
            json!(ours[0] * 1e3),
            json!(other * 1e3),
            json!(parquet[0] * 1e3),
            json!(own / other),
        ]);
        if !plan.quick {
            found.goals.push(goal(format!("{what}: time / Parquet's"), Some(own / other), wanted, true));
        }
    }
    found.sections.push(table);
    Ok(())
}

/// Sorted.
fn samples(value: &Value) -> Vec<f64> {
    let mut samples: Vec<f64> = value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    samples.sort_by(f64::total_cmp);
    samples
}

/// Of sorted samples.
pub(super) fn median(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len() / 2).copied()
}
