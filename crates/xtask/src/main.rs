//! The project's chores: `cargo xtask test`, `crash`, `fuzz` and `bench`.
#![expect(clippy::print_stdout, reason = "a command-line tool talks to people on standard output")]

mod bench;
mod child;
mod crash;
mod fuzz;
mod smoke;
mod test;
mod tidy;
mod tools;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Any error of a chore; it is shown to a person, never matched on.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

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
    /// Kill a child that acknowledges what it does, again and again; check every promise after each kill.
    Crash(crash::Options),
    /// Fuzz the decoders, one target after the other; finds stay in fuzz/artifacts.
    Fuzz(fuzz::Options),
    /// Measure the store against Redis and against what the memory can do.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    /// The embedded store on one machine: rates, limits, memory, recovery; writes Markdown, JSON and SVG.
    Embedded(bench::Options),
    /// The warm level on one device, beside fio: bandwidths, amplification, CPU, reopening; writes Markdown, JSON and SVG.
    Warm(bench::warm::Options),
    /// A server and a client beside Redis and a bare copy of the same frames; writes Markdown and JSON.
    Network(bench::network::Options),
    /// The other side of a measurement, in a process of its own (started by `network`).
    #[command(hide = true)]
    NetworkPeer(bench::network::PeerOptions),
    /// One measurement of memory beyond the region, in a process of its own (started by `embedded`).
    #[command(hide = true)]
    MemoryProbe(bench::ProbeOptions),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().chore {
        Chore::Test(options) => test::run(&options),
        Chore::Crash(options) => crash::run(&options),
        Chore::Fuzz(options) => fuzz::run(&options),
        Chore::Bench(Bench::Embedded(options)) => bench::run(&options),
        Chore::Bench(Bench::Warm(options)) => bench::warm::run(&options),
        Chore::Bench(Bench::Network(options)) => bench::network::run(&options),
        Chore::Bench(Bench::NetworkPeer(options)) => bench::network::serve(&options).map(|()| true),
        Chore::Bench(Bench::MemoryProbe(options)) => bench::probe(&options).map(|()| true),
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
