//! `forebay-bench`, started by `cargo xtask bench`: the project's published figures, measured beside Redis, `fio` and the
//! limits of the machine in one run.
//!
//! *Invariants*: figures come from a build without assertions; one with assertions says so beside the commit, and only tests
//! the benchmark itself (`--smoke`).
//!
//! *Not here*: a measurement of your own data on your own machine: `forebay bench`.
#![expect(clippy::print_stdout, reason = "a command-line tool talks to people on standard output")]

mod archive;
mod chart;
mod concurrent;
mod copy_limit;
mod dataset;
mod embedded;
mod engine;
mod goals;
mod grants;
mod held;
mod machine;
mod memory;
mod network;
mod options;
mod page;
mod plot;
mod processor;
mod puts;
mod recovery;
mod redis;
mod refill;
mod report;
mod results;
mod ring;
mod samplers;
mod selection;
mod source;
mod stages;
mod warm;

use clap::Parser;
use std::process::ExitCode;
use xtask::{Result, child, tools};

/// Measures Forebay; a goal that is not met is no failure, a part that fails is one.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", disable_version_flag = true)]
enum Bench {
    /// The embedded store on one machine: rates, limits, memory, recovery; writes Markdown, JSON and SVG.
    Embedded(options::Options),
    /// The warm level on one device, beside fio: bandwidths, amplification, CPU, reopening; writes Markdown, JSON and SVG.
    Warm(warm::Options),
    /// A server and a client beside Redis and a bare copy of the same frames; writes Markdown and JSON.
    Network(network::Options),
    /// Datasets beside RNTuple and Parquet, and against S3 with a delay; writes Markdown and JSON.
    Dataset(dataset::Options),
    /// Movers into a directory and S3 beside the limits of both, ALICE's figures, the data challenge; writes Markdown, JSON and SVG.
    Archive(archive::Options),
    /// The other side of a measurement, in a process of its own (started by `network`).
    #[command(hide = true)]
    NetworkPeer(network::PeerOptions),
    /// One client of a measurement against Ceph, in a process of its own (started by `dataset --ceph`).
    #[command(hide = true)]
    DatasetClient(dataset::ClientOptions),
    /// One measurement of memory beyond the region, in a process of its own (started by `embedded`).
    #[command(hide = true)]
    MemoryProbe(memory::ProbeOptions),
}

fn main() -> ExitCode {
    let outcome = match Bench::parse() {
        Bench::Embedded(options) => embedded::run(&options),
        Bench::Warm(options) => warm::run(&options),
        Bench::Network(options) => network::run(&options),
        Bench::Dataset(options) => dataset::run(&options),
        Bench::Archive(options) => archive::run(&options),
        Bench::DatasetClient(options) => dataset::client(&options).map(|()| true),
        Bench::NetworkPeer(options) => network::serve(&options).map(|()| true),
        Bench::MemoryProbe(options) => memory::probe(&options).map(|()| true),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo xtask bench: {error}");
            ExitCode::FAILURE
        }
    }
}
