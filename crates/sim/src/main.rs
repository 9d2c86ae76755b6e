//! `forebay-sim`: simulates for as long as wanted, seed after seed, an hour each.
//!
//! Exit code: 0 nothing was wrong, 1 something was, 2 bad arguments.

#![expect(clippy::print_stdout, reason = "a command prints what it found")]

use clap::Parser;
use forebay_core::mutants;
use forebay_sim::{NODES_MAX, Plan, Report, shrink, simulate, spent};
use rustix::time::{ClockId, clock_gettime};
use std::process::ExitCode;
use std::time::Duration;

/// Most simulations that look for fewer faults.
const TRIALS: usize = 60;

/// Run nodes and their clients under simulated faults, and compare what they answer with books of their own.
///
/// Each seed is one simulation. A seed that fails is simulated again with fewer faults, and printed with the options that
/// show it: `forebay-sim --seed 7 --hours 0.4 --nodes 3 --without 1,2,5 --show`.
#[derive(Parser)]
#[command(name = "forebay-sim", disable_version_flag = true)]
struct Options {
    /// Simulated hours in all.
    #[arg(long, default_value_t = 1.0)]
    hours: f64,
    /// Simulated hours of one seed.
    #[arg(long, default_value_t = 1.0)]
    each: f64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Plant a fault in the code: it must be found. `list` names them.
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Nodes: one is a server without a cluster, more are a cluster.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=NODES_MAX as i64))]
    nodes: u8,
    /// A look-up table says which node has the bytes of a source.
    #[arg(long)]
    table: bool,
    /// Leave out these faults of the seed, by number.
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    without: Vec<usize>,
    /// Print where the processor's time went.
    #[arg(long)]
    budget: bool,
    /// Print what happens, on standard error.
    #[arg(long)]
    show: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mutant = match options.mutant.as_deref() {
        None => "",
        Some(name) => match mutants::all().find(|known| known.0 == name) {
            Some(known) => known.0,
            None => {
                mutants::all().for_each(|(name, what)| println!("{name}: {what}"));
                return if name == "list" { ExitCode::SUCCESS } else { ExitCode::from(2) };
            }
        },
    };
    // A seed of no time would never end.
    if !(0.0..1e7).contains(&options.hours) || !(0.001..=10_000.0).contains(&options.each) {
        eprintln!("forebay-sim: --hours 0 to 10,000,000, --each 0.001 to 10,000");
        return ExitCode::from(2);
    }
    let (mut left, mut seed) = (options.hours, options.seed);
    let (mut done, mut trace) = (0.0, 0_u64);
    while left > 0.0 {
        let length = Duration::from_secs_f64(left.min(options.each) * 3600.0);
        let without = options.without.iter().copied().collect();
        let plan = Plan {
            seed,
            length,
            nodes: options.nodes.into(),
            has_table: options.table,
            mutant,
            without,
            is_shown: options.show,
        };
        let report = simulate(&plan);
        done += report.length.as_secs_f64() / 3600.0;
        trace = trace.rotate_left(5) ^ report.hash;
        say(seed, &report);
        if let Some((at, what)) = &report.wrong {
            println!("seed {seed} WRONG at {:.3} s: {what}", at.as_secs_f64());
            let plan = shrink(&Plan { is_shown: false, ..plan }, TRIALS);
            let without: Vec<String> = plan.without.iter().map(ToString::to_string).collect();
            let hours = plan.length.as_secs_f64() / 3600.0;
            let mutant = if mutant.is_empty() { String::new() } else { format!(" --mutant {mutant}") };
            let without = if without.is_empty() { String::new() } else { format!(" --without {}", without.join(",")) };
            let table = if options.table { " --table" } else { "" };
            let nodes = if options.nodes > 1 { format!(" --nodes {}{table}", options.nodes) } else { String::new() };
            println!("shown by: forebay-sim --seed {seed} --hours {hours:.4}{nodes}{mutant}{without} --show");
            return ExitCode::from(1);
        }
        left -= options.each;
        seed += 1;
    }
    let took = processor_seconds();
    if options.budget {
        let known: f64 = spent().map(|(_, time)| time.as_secs_f64()).sum();
        let all = spent().map(|(name, time)| (name, time.as_secs_f64()));
        for (name, seconds) in all.chain([("tasks of nodes and connections, timers", took - known)]) {
            println!("{:7.1} ms an hour {:5.1} %  {name}", seconds * 1000.0 / done, seconds / took * 100.0);
        }
    }
    let rate = done * 3600.0 / took;
    println!(
        "{done:.1} simulated hours in {took:.1} s of a processor ({rate:.0} an hour), nothing wrong, trace {trace:016x}"
    );
    ExitCode::SUCCESS
}

/// What this process has taken so far: others that run beside it do not count.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn say(seed: u64, report: &Report) {
    let Report { hash, length, faults, calls, grants, runs, .. } = report;
    let hours = length.as_secs_f64() / 3600.0;
    println!(
        "seed {seed}: {hours:.2} h, {faults} faults, {calls} calls, {grants} grants, {runs} runs, trace {hash:016x}"
    );
}
