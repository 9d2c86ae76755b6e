//! `cargo xtask bench dataset`: sizes beside RNTuple and Parquet, times beside Parquet, and S3 with a delay.
//!
//! ```text
//! ROOT files ─▶ peers.py: import, Parquet, RNTuple ─▶ sizes ─▶ compact
//!                          └─ first file, events drawn ─▶ times, in turns
//! noise ─▶ S3 stand-in with a delay ─▶ fraction of what the same concurrency allows
//! --ceph: noise ─▶ a real Ceph ─▶ stripe sizes, threads, clients
//! all of them ─▶ goals ─▶ dataset.md, dataset.json
//! ```
//!
//! *Invariants*: ratios are of one run; a file that is not there is reported as not run; a quick run judges no times.
//!
//! *Not here*: the speed of the codecs alone (`cargo bench -p forebay-dataset`).

mod ceph;
mod latency;
mod options;
mod python;
mod sizes;
mod times;

pub(crate) use ceph::{ClientOptions, client};
pub(crate) use latency::place;
pub(crate) use options::Options;

use super::goals::Goal;
use super::machine::Machine;
use crate::embedded::part;
use crate::page::{Page, Section};
use crate::{Result, child};
use options::Plan;
use python::Python;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the parts found until now.
#[derive(Default)]
struct Found {
    sections: Vec<Section>,
    goals: Vec<Goal>,
    /// Names and folders of the datasets that were made from files.
    datasets: Vec<(String, PathBuf)>,
}

/// Measures everything and writes the report; `false` where a part failed. A goal that is not met is no failure.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let plan = options.plan();
    let machine = Machine::look(BTreeMap::new())?;
    println!("{machine}\n{plan}");
    let folder = child::target_dir().join(format!("bench-dataset-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let outcome = measure(options, &plan, &folder);
    std::fs::remove_dir_all(&folder)?;
    let (found, failures) = outcome;
    let page = Page {
        name: if plan.ceph { "dataset-ceph" } else { "dataset" },
        title: "datasets",
        machine: &machine,
        plan: plan.to_string(),
        quick: plan.quick,
        sections: &found.sections,
        goals: &found.goals,
        failures: &failures,
        plots: &[],
    };
    page.publish(&options.out)?;
    Ok(failures.is_empty())
}

fn measure(options: &Options, plan: &Plan, folder: &Path) -> (Found, Vec<String>) {
    let (mut found, mut failures) = (Found::default(), Vec::new());
    if plan.ceph {
        part("Ceph", &mut failures, || ceph::measure(plan, &mut found));
        return (found, failures);
    }
    if options.wants("sizes") || options.wants("times") {
        let files = |found: &mut Found| -> Result<()> {
            // Without a file there is nothing to install for.
            let python = match plan.files.iter().any(|file| file.is_file()) {
                true => Some(Python::prepare(!plan.settings.is_empty())?),
                false => None,
            };
            sizes::measure(plan, python.as_ref(), folder, found)?;
            match python.filter(|_| options.wants("times")) {
                Some(python) => times::measure(plan, &python, folder, found),
                None => Ok(()),
            }
        };
        part("files", &mut failures, || files(&mut found));
    }
    if options.wants("latency") {
        part("latency", &mut failures, || latency::measure(plan, &mut found));
    }
    (found, failures)
}
