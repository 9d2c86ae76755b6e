//! The project's chores: `cargo xtask test`, `tidy`, `crash`, `simulate`, `fuzz`, `bench`, `pairs` and `old`.

mod bench;
mod checked;
mod crash;
mod fuzz;
mod old;
mod pairs;
mod python;
mod simulate;
mod test;
mod tidy;
mod tree;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use xtask::{Result, child, tools};

/// Test, benchmark and fuzz chores of Forebay.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_version_flag = true)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Install what is missing, then run every check; the last line is `N passed, M failed`.
    Test(test::Options),
    /// Kill a child that acknowledges its operations, many times; check every promise after each kill.
    Crash(crash::Options),
    /// Run server and clients under simulated faults, hour after hour; a seed that fails is shrunk and printed.
    Simulate(simulate::Options),
    /// Fuzz the decoders, starting from their kept inputs; finds are in fuzz/artifacts.
    Fuzz(fuzz::Options),
    /// Measure: `embedded`, `warm` or `network`.
    Bench(bench::Options),
    /// Check the rules about source files that no compiler checks, or show their figures.
    Tidy(tidy::Options),
    /// Measure whether calls got slower since a revision: both compiled, and run in turn.
    Pairs(pairs::Options),
    /// Try programs of an earlier revision with those of this one: clients, servers, stores.
    Old(old::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().chore {
        Chore::Test(options) => test::run(options),
        Chore::Crash(options) => crash::run(&options),
        Chore::Simulate(options) => simulate::run(&options),
        Chore::Fuzz(options) => fuzz::run(&options),
        Chore::Bench(options) => bench::run(&options),
        Chore::Tidy(options) => tidy::run(&options),
        Chore::Pairs(options) => pairs::run(&options),
        Chore::Old(options) => old::run(&options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
