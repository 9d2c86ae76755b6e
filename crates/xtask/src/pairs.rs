//! Whether calls got slower since a revision: both are compiled and run in turn, since figures of this kind of machine
//! drift by more than the limits.
//!
//! ```text
//! git worktree of REVISION ─┐
//! this tree ────────────────┴─▶ crates/bench/src/bin/forebay-pair.rs, compiled with the crates of each
//! then, again and again: one, the other; the other, one ─▶ ratio of each pair ─▶ median, spread, judgement
//! ```
//!
//! *Invariants*: a row whose ratios spread further than its limit is reported as undecided.

use crate::{Result, child, tree};
use clap::Args;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to compare with, and how often.
#[derive(Args)]
pub(crate) struct Options {
    /// The revision to compare with: anything that git understands.
    revision: String,
    /// Pairs of runs.
    #[arg(long, default_value_t = 9)]
    pairs: usize,
    /// By how many per cent a row may be slower.
    #[arg(long, default_value_t = 3.0)]
    limit: f64,
    /// Only this part.
    #[arg(long, value_parser = ["embedded", "reopening", "network", "persisted", "verdicts"])]
    only: Option<String>,
    /// A directory on the disk for the rows that need one; by default the build directory.
    #[arg(long)]
    disk: Option<PathBuf>,
}

/// Builds both, runs them in turn and prints the result; `false` if a row is slower than its limit.
#[expect(clippy::print_stdout, reason = "a command-line tool talks to people on standard output")]
pub(crate) fn run(options: &Options) -> Result<bool> {
    let dir = child::target_dir().join("pairs");
    let tree = dir.join("tree");
    tree::checkout(&options.revision, &tree)?;
    let before = build(&tree, &dir.join("before"))?;
    let now = build(&child::root(), &dir.join("now"))?;
    let disk = options.disk.clone().unwrap_or_else(|| dir.clone());
    let mut ratios: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for pair in 1..=options.pairs {
        // Each is first in turn, because the first one leaves its traces on the machine.
        let turns = if pair % 2 == 0 { [&before, &now] } else { [&now, &before] };
        let [first, second] = [figures(turns[0], &disk, &options.only)?, figures(turns[1], &disk, &options.only)?];
        let (old, new) = if pair % 2 == 0 { (first, second) } else { (second, first) };
        for (row, figure) in new {
            let known = old.get(&row).ok_or_else(|| format!("{row}: only one of the two has it"))?;
            ratios.entry(row).or_default().push(figure / known);
        }
        println!("pair {pair} of {}", options.pairs);
    }
    println!("\nrow: rate by that of {}, median of {} pairs (quarter to quarter)", options.revision, options.pairs);
    let mut held = true;
    for (row, mut ratios) in ratios {
        ratios.sort_by(f64::total_cmp);
        let judged = judge(&ratios, options.limit / 100.0);
        held &= judged != "SLOWER";
        let [low, median, high] = quarters(&ratios);
        println!("{row:<16} {median:.3} ({low:.3} to {high:.3})  {judged}");
    }
    Ok(held)
}

/// First quartile, median and third quartile of sorted ratios.
fn quarters(ratios: &[f64]) -> [f64; 3] {
    [1, 2, 3].map(|quarter| ratios[(ratios.len() - 1) * quarter / 4])
}

fn judge(ratios: &[f64], limit: f64) -> &'static str {
    let [low, median, high] = quarters(ratios);
    match () {
        () if high < 1.0 - limit => "SLOWER",
        () if low >= 1.0 - limit => "held",
        () if high - low > limit => "undecided: the spread exceeds the limit",
        () if median >= 1.0 - limit => "held",
        () => "SLOWER",
    }
}

/// Compiles the program with the crates of one tree, with the locked versions of this one.
fn build(tree: &Path, dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir)?;
    let program = child::root().join("crates/bench/src/bin/forebay-pair.rs");
    let dependencies: String = ["core", "store", "server", "client"]
        .iter()
        .map(|name| format!("forebay-{name}.path = {:?}\n", tree.join("crates").join(name)))
        .collect();
    let manifest = format!(
        "[package]\nname = \"forebay-pair\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[[bin]]\nname = \"forebay-pair\"\n\
         path = {program:?}\n\n[dependencies]\n{dependencies}\n[profile.release]\ndebug = \"line-tables-only\"\n\
         codegen-units = 4\n\n[workspace]\n"
    );
    fs::write(dir.join("Cargo.toml"), manifest)?;
    fs::copy(child::root().join("Cargo.lock"), dir.join("Cargo.lock"))?;
    let mut cargo = child::cargo(&["build", "--release", "--quiet", "--manifest-path"]);
    if !cargo.arg(dir.join("Cargo.toml")).arg("--target-dir").arg(dir.join("target")).status()?.success() {
        return Err(format!("{} does not build", dir.display()).into());
    }
    Ok(dir.join("target/release/forebay-pair"))
}

fn figures(program: &Path, disk: &Path, only: &Option<String>) -> Result<BTreeMap<String, f64>> {
    let said = child::output(Command::new(program).arg("/dev/shm").arg(disk).args(only))?;
    let figure = |line: &str| line.split_once(' ').and_then(|(row, rate)| Some((row.to_owned(), rate.parse().ok()?)));
    Ok(said.lines().filter_map(figure).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_judged_only_where_its_spread_allows_it() {
        assert_eq!(judge(&[0.99, 0.99, 1.0, 1.0, 1.01], 0.03), "held");
        assert_eq!(judge(&[0.9, 0.93, 0.94, 0.95, 1.01], 0.03), "SLOWER");
        assert_eq!(judge(&[0.8, 0.9, 0.96, 1.0, 1.1], 0.03), "undecided: the spread exceeds the limit");
        assert_eq!(judge(&[0.95, 0.96, 0.975, 0.98, 0.99], 0.03), "held");
        assert_eq!(judge(&[0.95, 0.955, 0.96, 0.97, 0.98], 0.03), "SLOWER");
        assert_eq!(judge(&[0.98, 1.0, 1.2, 1.5, 1.9], 0.03), "held", "faster, by however much");
    }
}
