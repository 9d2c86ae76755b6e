//! The real programs in small: the benchmark and the demo, judged by what they produce and never by their speed.

use super::built::program;
use super::screen::Log;
use super::{Context, Outcome};
use crate::{Result, child};
use serde_json::Value;
use std::path::PathBuf;

const FRAMES: &str = "protodune-wib1-frames.bin";

/// Runs a small benchmark and checks its files; returns their directory and the failures.
fn bench_in_small(which: &str, files: &[&str], context: &Context, log: &Log<'_>) -> Result<(PathBuf, Vec<String>)> {
    let out = child::target_dir().join(format!("bench-{which}-smoke"));
    let _ = std::fs::remove_dir_all(&out);
    let mut command = program(context, "forebay-bench")?;
    command.args([which, "--smoke", "--out"]).arg(&out);
    let mut wrong = Vec::new();
    if !child::stream(&mut command, log)?.success {
        wrong.push("the benchmark failed".to_owned());
    }
    for name in files {
        if std::fs::metadata(out.join(name)).map_or(0, |file| file.len()) < 500 {
            wrong.push(format!("{name} is missing or next to empty"));
        }
    }
    Ok((out, wrong))
}

/// The benchmark of the embedded store.
pub(crate) fn bench(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let (out, mut wrong) = bench_in_small("embedded", &["embedded.md", "embedded.svg", "embedded.json"], context, log)?;
    if wrong.is_empty() {
        wrong = relations(&serde_json::from_slice(&std::fs::read(out.join("embedded.json"))?)?);
    }
    Ok(Outcome::one(wrong))
}

/// That of the warm level.
pub(crate) fn bench_warm(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let files = ["warm.md", "warm.json", "warm-threads.svg", "warm-operations.svg"];
    Ok(Outcome::one(bench_in_small("warm", &files, context, log)?.1))
}

/// That of the network.
pub(crate) fn bench_network(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    Ok(Outcome::one(bench_in_small("network", &["network.md", "network.json"], context, log)?.1))
}

/// That of datasets, on the smallest file, without ROOT's own package.
pub(crate) fn bench_dataset(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let (out, mut wrong) = bench_in_small("dataset", &["dataset.md", "dataset.json"], context, log)?;
    if wrong.is_empty() {
        wrong = dataset_relations(&serde_json::from_slice(&std::fs::read(out.join("dataset.json"))?)?);
    }
    Ok(Outcome::one(wrong))
}

/// That of movers, without Ceph; it fails by itself where archive and ledger differ.
pub(crate) fn bench_archive(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let files = ["archive.md", "archive.json", "archive-filling.svg", "archive-directory.svg"];
    let (out, mut wrong) = bench_in_small("archive", &files, context, log)?;
    if wrong.is_empty() {
        wrong = archive_relations(&serde_json::from_slice(&std::fs::read(out.join("archive.json"))?)?);
    }
    Ok(Outcome::one(wrong))
}

/// With the archive away intake goes on and nothing is moved; afterwards everything is.
fn archive_relations(report: &Value) -> Vec<String> {
    let rows = report["sections"]["challenge-directory"]["rows"].as_array().cloned().unwrap_or_default();
    let of = |phase: &str, column: &str| -> f64 {
        let row = rows.iter().find(|row| row["phase"] == phase);
        row.and_then(|row| row[column].as_f64()).unwrap_or(f64::NAN)
    };
    let (intake, caught) = (of("outage", "intake MB/s"), of("catching up", "moved MB/s"));
    // An object that the manifest took just before is counted just after; it has 3 MiB.
    let moved = of("outage", "moved MB/s") * of("outage", "s");
    match intake > 0.0 && moved < 3.5 && caught > 0.0 {
        true => vec![],
        false => vec![format!("an outage: intake {intake}, moved {moved} MB, {caught} MB/s afterwards: {rows:?}")],
    }
}

/// Sizes that are ordered and add up; requests that were made.
fn dataset_relations(report: &Value) -> Vec<String> {
    let rows = |section: &str| report["sections"][section]["rows"].as_array().cloned().unwrap_or_default();
    let mut wrong = Vec::new();
    for (size, part) in rows("sizes").iter().zip(rows("parts")) {
        let (name, of) = (&size["file"], |name: &str| size[name].as_u64().unwrap_or(0));
        if of("ours") == 0 || of("ours, compact") == 0 || of("ours") >= of("Parquet zstd-3, byte-stream-split") {
            wrong.push(format!("{name}: {} B, compact {} B, not below Parquet", size["ours"], size["ours, compact"]));
        }
        let sum = part["root"].as_u64().zip(part["other objects"].as_u64()).map(|(root, others)| root + others);
        if sum != size["ours"].as_u64() || part["in 4 KiB units"].as_u64() < sum {
            wrong.push(format!("{name}: the parts do not add up: {part}"));
        }
    }
    let latency = rows("latency");
    if latency.len() != 4 || latency.iter().any(|row| row["requests"].as_u64().is_none_or(|requests| requests < 100)) {
        wrong.push(format!("requests to the stand-in: {latency:?}"));
    }
    wrong
}

/// Relations that hold however slow the machine is.
fn relations(report: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let rows = report["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.len() < 30 {
        wrong.push(format!("only {} rows", rows.len()));
    }
    for row in rows {
        let figure = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
        let (min, median, max) = (figure("min"), figure("median"), figure("max"));
        if !(0.0 < min && min <= median && median <= max && max.is_finite()) {
            wrong.push(format!("row {} at {} B: {min}, {median}, {max}", row["series"], row["bytes"]));
        }
    }
    let median = |series: &str, bytes: u64| {
        let row = rows.iter().find(|row| row["series"] == series && row["bytes"] == bytes);
        row.and_then(|row| row["median"].as_f64()).unwrap_or(f64::NAN)
    };
    let no_greater = [
        ("get.verify", "get.untouched", 1024, "reading every byte costs something"),
        ("redis.set.1", "redis.set.32", 64, "a pipeline helps"),
    ];
    for (less, more, bytes, why) in no_greater {
        // A factor of two: busy machines jitter, real errors are larger.
        if median(less, bytes) >= 2.0 * median(more, bytes) {
            wrong.push(format!("{less} should not beat {more} at {bytes} B: {why}"));
        }
    }
    for goal in report["goals"].as_array().into_iter().flatten() {
        if goal["in_smoke"] == Value::Bool(true) && goal["met"] != Value::Bool(true) {
            wrong.push(format!("goal not met, and it does not depend on speed: {goal}"));
        }
    }
    wrong
}

/// Runs the demo through the real binary.
pub(crate) fn demo(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    run_demo(context, log, &[])
}

/// Runs a server, readouts and filters as processes, two of which are killed: all counts must agree with the ledger.
pub(crate) fn demo_processes(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    run_processes(context, log, &[])
}

/// The same with three servers as nodes of a cluster, and the bytes of each source on one of them.
pub(crate) fn demo_nodes(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    run_processes(context, log, &["--nodes", "3", "--table"])
}

fn run_processes(context: &Context, log: &Log<'_>, more: &[&str]) -> Result<Outcome> {
    let killed = ["--processes", "--kill-filter", "--kill-server", "--seconds", "3", "--json"];
    let ended = child::stream(program(context, "forebay")?.arg("demo").args(killed).args(more), log)?;
    let mut wrong = Vec::new();
    if !ended.success {
        wrong.push("the demo failed".to_owned());
    }
    match serde_json::from_str::<Value>(&ended.stdout) {
        Ok(summary) if summary["problems"] != Value::Array(Vec::new()) => {
            wrong.push(format!("not everybody agrees: {}", summary["problems"]));
        }
        Ok(_) => {}
        Err(error) => wrong.push(format!("the demo's output is not JSON: {error}")),
    }
    Ok(Outcome::one(wrong))
}

/// Runs DUNE's MiniDAQ through the real binary, on two links.
pub(crate) fn demo_dune(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    run_demo(context, log, &["--profile", "dune", "--links", "2"])
}

/// Recorded detector frames, which may not be copied into the project; `None` where they are missing.
pub(super) fn recorded_frames() -> Option<PathBuf> {
    let folder = std::env::var_os("FOREBAY_DATA").map_or_else(|| child::root().join("../shared/data"), PathBuf::from);
    Some(folder.join(FRAMES)).filter(|file| file.is_file())
}

/// Runs the demo on recorded detector frames, if they exist.
pub(crate) fn demo_input(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    match recorded_frames() {
        Some(file) => run_demo(context, log, &["--input", &file.to_string_lossy()]),
        None => Ok(Outcome::not_run("file missing (recorded frames beside the checkout)")),
    }
}

fn run_demo(context: &Context, log: &Log<'_>, more: &[&str]) -> Result<Outcome> {
    let arguments = [&["demo", "--seconds", "2", "--json"], more].concat();
    let ended = child::stream(program(context, "forebay")?.args(arguments), log)?;
    let mut wrong = Vec::new();
    if !ended.success {
        wrong.push("the demo failed".to_owned());
    }
    match serde_json::from_str(&ended.stdout) {
        Ok(summary) if !says_balanced(&summary) => wrong.push("the demo does not say `\"balanced\": true`".to_owned()),
        Ok(_) => {}
        Err(error) => wrong.push(format!("the demo's output is not JSON: {error}")),
    }
    Ok(Outcome::one(wrong))
}

/// Whether there are fields named `balanced`, at any depth, and all are true.
fn says_balanced(value: &Value) -> bool {
    fn collect(value: &Value, found: &mut Vec<bool>) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    if name == "balanced" {
                        found.push(field == &Value::Bool(true));
                    }
                    collect(field, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(value, &mut found);
    !found.is_empty() && found.iter().all(|balanced| *balanced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn balance_must_be_said_and_said_everywhere() {
        assert!(says_balanced(&json!({"ledger": {"balanced": true}})));
        assert!(!says_balanced(&json!({"ledger": {}})));
        assert!(!says_balanced(&json!({"balanced": true, "runs": [{"balanced": false}]})));
    }

    #[test]
    fn relations_of_datasets_catch_sizes_that_do_not_add_up() {
        let row = json!({"requests": 128});
        let of = |ours: u64| {
            json!({"sections": {
                "sizes": {"rows": [{"file": "x", "ours": ours, "ours, compact": 90, "Parquet zstd-3, byte-stream-split": 120}]},
                "parts": {"rows": [{"root": 40, "other objects": 60, "in 4 KiB units": 8192}]},
                "latency": {"rows": [row, row, row, row]},
            }})
        };
        assert_eq!(dataset_relations(&of(100)), Vec::<String>::new());
        assert_eq!(dataset_relations(&of(130)).len(), 2);
        assert_eq!(dataset_relations(&json!({})).len(), 1);
    }

    #[test]
    fn relations_catch_absurd_rows() {
        let row = |median: f64| json!({"series": "x", "bytes": 64, "min": median, "median": median, "max": median});
        let rows: Vec<Value> = (0..30).map(|_| row(1.0)).collect();
        assert_eq!(relations(&json!({"rows": rows, "goals": []})), Vec::<String>::new());
        let mut broken = rows.clone();
        broken[3] = row(0.0);
        assert_eq!(relations(&json!({"rows": broken, "goals": []})).len(), 1);
        let goal = json!({"in_smoke": true, "met": false});
        assert_eq!(relations(&json!({"rows": rows, "goals": [goal]})).len(), 1);
    }
}
