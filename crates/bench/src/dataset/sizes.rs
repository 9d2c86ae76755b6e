//! Sizes of files in each format, and of the parts of a dataset.

use super::python::Python;
use super::{Found, Plan};
use crate::Result;
use crate::page::{Section, goal};
use forebay_dataset::{WriteOptions, compact};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What Ceph's OSD allocates for an object at least, and in what steps.
const GRANULE: u64 = 4096;

/// Sizes of all files of the plan; the datasets stay in the folder for the parts that follow.
pub(super) fn measure(plan: &Plan, python: Option<&Python>, folder: &Path, found: &mut Found) -> Result<()> {
    let mut table = Section::new(
        "sizes",
        "Sizes",
        "Bytes of whole files and whole datasets. RNTuple is written by ROOT itself from the file's tree; the best of its settings counts. \
         Ours: all objects of the dataset, index included; compact: the objects of the version that `compact` makes, and the root, which then lists two versions.",
        &[
            "file",
            "events",
            "columns",
            "file as given",
            "RNTuple ZSTD-5",
            "RNTuple ZSTD-9",
            "RNTuple LZMA-9",
            "best RNTuple",
            "Parquet zstd-3, dictionary",
            "Parquet zstd-3, byte-stream-split",
            "ours",
            "ours, compact",
            "ours / best RNTuple",
            "compact / best RNTuple",
            "ours / best Parquet",
            "compact / best Parquet",
        ],
    );
    let mut parts = Section::new(
        "parts",
        "Parts of our bytes",
        "The root has names, types and titles. *4 KiB units*: what all objects take where each is rounded up to 4 KiB, as in Ceph.",
        &[
            "file",
            "root",
            "other objects",
            "objects",
            "in 4 KiB units",
            "units / bytes",
            "bytes in memory",
            "branches not read",
        ],
    );
    for file in &plan.files {
        let name = file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let Some(python) = python.filter(|_| file.is_file()) else {
            table.add(not_run(&name, &format!("not run: no file {}", file.display()), table.head.len()));
            continue;
        };
        println!("sizes of {name}");
        let place = folder.join(&name);
        std::fs::create_dir_all(&place)?;
        let (path, into) = (file.display().to_string(), place.display().to_string());
        let peers = python.answer(&[&["sizes", &path, &into], plan.settings].concat())?;
        one(&name, &place.join("ours"), &peers, &mut table, &mut parts, found)?;
    }
    found.sections.extend([table, parts]);
    Ok(())
}

fn not_run(name: &str, why: &str, cells: usize) -> Vec<Value> {
    let mut row = vec![Value::Null; cells];
    row[0] = json!(format!("{name}: {why}"));
    row
}

fn one(
    name: &str,
    ours: &Path,
    peers: &Value,
    table: &mut Section,
    parts: &mut Section,
    found: &mut Found,
) -> Result<()> {
    let before = objects(ours)?;
    let bytes: u64 = before.values().sum();
    let root = before.get(Path::new("root")).copied().unwrap_or(0);
    let units: u64 = before.values().map(|&len| len.next_multiple_of(GRANULE)).sum();
    compact(&ours.display().to_string(), &WriteOptions::default(), &mut |_, _| {})?;
    let after = objects(ours)?;
    let compacted: u64 = after
        .iter()
        .filter(|(path, _)| !before.contains_key(*path) || path.ends_with("root"))
        .map(|(_, len)| len)
        .sum();
    let of = |format: &str, kind: &str| peers[format][kind]["bytes"].as_u64();
    let shown = |format: &str, kind: &str| match (of(format, kind), peers[format][kind]["not_run"].as_str()) {
        (Some(bytes), _) => json!(bytes),
        (None, Some(why)) => json!(format!("not run: {why}")),
        (None, None) => Value::Null,
    };
    let least = |format: &str| {
        let sizes = peers[format].as_object().into_iter().flatten();
        sizes.filter_map(|(kind, size)| Some((size["bytes"].as_u64()?, kind.clone()))).min()
    };
    let (rntuple, parquet) = (least("rntuple"), least("parquet"));
    let ratio = |own: u64, other: &Option<(u64, String)>| other.as_ref().map(|(other, _)| own as f64 / *other as f64);
    let word = |setting: &str| match setting {
        "505" => "ZSTD-5",
        "509" => "ZSTD-9",
        "209" => "LZMA-9",
        _ => "other",
    };
    table.add(vec![
        json!(name),
        peers["events"].clone(),
        peers["columns"].clone(),
        peers["file_bytes"].clone(),
        shown("rntuple", "505"),
        shown("rntuple", "509"),
        shown("rntuple", "209"),
        json!(rntuple.as_ref().map(|(bytes, setting)| format!("{} ({bytes})", word(setting)))),
        shown("parquet", "zstd-3, dictionary"),
        shown("parquet", "zstd-3, byte-stream-split"),
        json!(bytes),
        json!(compacted),
        json!(ratio(bytes, &rntuple)),
        json!(ratio(compacted, &rntuple)),
        json!(ratio(bytes, &parquet)),
        json!(ratio(compacted, &parquet)),
    ]);
    parts.add(vec![
        json!(name),
        json!(root),
        json!(bytes - root),
        json!(before.len()),
        json!(units),
        json!(units as f64 / bytes as f64),
        peers["memory_bytes"].clone(),
        peers["skipped"].clone(),
    ]);
    goals(name, peers, ratio(bytes, &rntuple), ratio(compacted, &rntuple), ratio(bytes, &parquet), found);
    found.datasets.push((name.to_owned(), ours.to_owned()));
    Ok(())
}

/// Wide files have goals of their own; where ROOT's importer refuses a file, Parquet is the peer.
fn goals(
    name: &str,
    peers: &Value,
    ours: Option<f64>,
    compacted: Option<f64>,
    parquet: Option<f64>,
    found: &mut Found,
) {
    let tried = peers["rntuple"].as_object().is_some_and(|settings| !settings.is_empty());
    let is_wide = peers["columns"].as_u64().is_some_and(|columns| columns > 500);
    let (default, best) = if is_wide { (0.85, 0.82) } else { (0.90, 0.90) };
    match (tried, ours) {
        (false, _) => {}
        (true, None) => found.goals.push(goal(format!("{name}: size / best Parquet"), parquet, 1.0, true)),
        (true, ours) => {
            found.goals.push(goal(format!("{name}: size / best RNTuple, default effort"), ours, default, true));
            found.goals.push(goal(format!("{name}: size / best RNTuple, after compact"), compacted, best, true));
        }
    }
}

/// Bytes of each object below a folder, by its name.
pub(super) fn objects(folder: &Path) -> Result<BTreeMap<PathBuf, u64>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(&at)? {
            let entry = entry?;
            let path = entry.path();
            match entry.file_type()?.is_dir() {
                true => folders.push(path),
                false => drop(found.insert(path.strip_prefix(folder)?.to_owned(), entry.metadata()?.len())),
            }
        }
    }
    Ok(found)
}
