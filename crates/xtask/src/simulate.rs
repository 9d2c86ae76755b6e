//! The simulator for as long as wanted; what it did is a line of `docs/simulation.md`.

use crate::child::{self, Terminal};
use crate::{Result, checked, child::Listener};
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Mutex;

/// How much is simulated.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Simulated hours in all.
    #[arg(long, default_value_t = 100.0)]
    hours: f64,
    /// The first seed; each has an hour.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Nodes, up to 3: one is a server without a cluster.
    #[arg(long, default_value_t = 1)]
    nodes: u8,
    /// A look-up table says which node has the bytes of a source.
    #[arg(long)]
    table: bool,
    /// Plant a fault in the code, which must be found; `list` names them.
    #[arg(long)]
    mutant: Option<String>,
    /// Append seeds and trace to docs/simulation.md.
    #[arg(long)]
    record: bool,
    /// Options of the simulator itself, such as `--show`; its `--help` names them.
    #[arg(last = true)]
    more: Vec<String>,
}

/// Prints lines, and keeps the last one.
#[derive(Default)]
struct Last(Mutex<String>);

impl Listener for Last {
    fn line(&self, line: &str) {
        Terminal.line(line);
        if let Ok(mut last) = self.0.lock() {
            line.clone_into(&mut last);
        }
    }
}

/// Simulates; `true` where nothing was wrong.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut command = checked::cargo("run", &["-p", "forebay-sim"]);
    command.args(["--", "--hours"]).arg(options.hours.to_string()).arg("--seed").arg(options.seed.to_string());
    command.args(&options.more).arg("--nodes").arg(options.nodes.to_string()).args(options.table.then_some("--table"));
    if let Some(mutant) = &options.mutant {
        command.arg("--mutant").arg(mutant);
    }
    let last = Last::default();
    let success = child::stream(&mut command, &last)?.success;
    if options.record && success {
        let mut git = std::process::Command::new("git");
        let commit = child::output(git.args(["rev-parse", "--short", "HEAD"]).current_dir(child::root()))?;
        let said = last.0.lock().map(|last| last.clone()).unwrap_or_default();
        let mut file = OpenOptions::new().append(true).open(child::root().join("docs/simulation.md"))?;
        let table = if options.table { ", table" } else { "" };
        writeln!(file, "| `{}` | {}{table} | {} | {said} |", commit.trim(), options.nodes, options.seed)?;
    }
    Ok(success)
}
