//! The steps: the command and the needs of each.

use super::binaries::{self, cargo_tests};
use super::built::{self, Built, Kind};
use super::extent::Extent::{Long, Quick, Usual};
use super::schedule::Takes::{CheckedBuilds, Nothing};
use super::screen::Log;
use super::slow::Load;
use super::{Context, Outcome, Step, smoke};
use crate::child;
use crate::tidy;
use crate::{Result, checked, fuzz, python, tools};
use std::process::Command;

/// A step that needs nothing and shares everything.
const FREE: Step = Step { name: "", what: "", from: Quick, takes: Nothing, needs: &[], after: &[], run: prepare };
/// A step that runs programs of the one build.
const BUILT: Step = Step { needs: &["build"], after: &["prepare"], ..FREE };

/// In their order of starting: steps that others wait for, and slow steps, come first.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "build",
        what: "libraries, programs, examples and tests, once, with assertions",
        takes: CheckedBuilds,
        run: build,
        ..FREE
    },
    Step { name: "prepare", what: "install the programs that tests start", run: prepare, ..FREE },
    Step {
        name: "tidy",
        what: "file sizes, module heads, SAFETY lines, nothing unfinished, bounds on time, kept fuzz inputs",
        run: |_, _| tidy::check(&child::root()).map(Outcome::one),
        ..FREE
    },
    Step { name: "fmt", what: "formatting", run: formatting, ..FREE },
    Step { name: "tests", what: "all tests of the workspace, beside each other", run: tests, ..BUILT },
    Step {
        name: "build-sim",
        what: "the simulator, with planted faults that it can switch on",
        from: Usual,
        takes: CheckedBuilds,
        after: &["build"],
        run: build_simulator,
        ..FREE
    },
    Step {
        name: "build-fuzz",
        what: "the program that fuzzes decoders",
        from: Usual,
        takes: CheckedBuilds,
        after: &["build", "prepare"],
        run: |context, log| fuzz::build(context.extent == Long, log).map(|()| Outcome::one(vec![])),
        ..FREE
    },
    Step {
        name: "loom",
        what: "models of publication, pin and recycle",
        from: Usual,
        takes: CheckedBuilds,
        after: &["build"],
        run: loom,
        ..FREE
    },
    Step { name: "tsan", what: "concurrent tests under ThreadSanitizer", from: Usual, run: tsan, ..FREE },
    Step { name: "clippy", what: "lints, warnings denied", takes: CheckedBuilds, run: clippy, ..FREE },
    Step {
        name: "docs",
        what: "documentation builds without warnings, and its examples run",
        from: Usual,
        takes: CheckedBuilds,
        run: docs,
        ..FREE
    },
    Step {
        name: "deny",
        what: "licences, bans and sources of dependencies",
        from: Usual,
        after: &["prepare"],
        run: deny,
        ..FREE
    },
    Step {
        name: "python-env",
        what: "the environment of the Python tests",
        from: Usual,
        after: &["prepare"],
        run: |_, log| python::environment(log).map(|()| Outcome::one(vec![])),
        ..FREE
    },
    Step {
        name: "python",
        what: "the Python package: format, lints, types, and the tests of its wheel",
        from: Usual,
        needs: &["build", "python-env"],
        run: python_package,
        ..BUILT
    },
    Step { name: "levels", what: "the semantics again, with everything on the warm level", run: levels, ..BUILT },
    Step { name: "nodes", what: "semantics and model again, over three nodes of a cluster", run: nodes, ..BUILT },
    Step { name: "crash", what: "20 seeds of 100 kills, each one long history", from: Long, run: crash, ..BUILT },
    Step { name: "examples", what: "every example, to its end", run: examples, ..BUILT },
    Step { name: "demo", what: "the demo for two seconds", run: smoke::demo, ..BUILT },
    Step {
        name: "demo-processes",
        what: "server, readouts and filters as processes, two of them killed",
        run: smoke::demo_processes,
        ..BUILT
    },
    Step {
        name: "demo-nodes",
        what: "the same with three servers, over a look-up table",
        run: smoke::demo_nodes,
        ..BUILT
    },
    Step {
        name: "demo-dune",
        what: "DUNE's MiniDAQ for two seconds on two links",
        from: Usual,
        run: smoke::demo_dune,
        ..BUILT
    },
    Step { name: "demo-input", what: "the demo on recorded frames", from: Usual, run: smoke::demo_input, ..BUILT },
    Step {
        name: "chaos",
        what: "everything at once for five seconds, every term explained",
        from: Usual,
        run: chaos,
        ..BUILT
    },
    Step {
        name: "simulate",
        what: "one server, three nodes, and those with a look-up table, under simulated faults: 8 hours of them",
        from: Usual,
        needs: &["build-sim"],
        run: simulate,
        ..FREE
    },
    Step {
        name: "fuzz",
        what: "every decoder: the kept inputs, and some seconds more",
        from: Usual,
        needs: &["build-fuzz"],
        run: fuzzing,
        ..FREE
    },
    Step {
        name: "bench",
        what: "the benchmark in small: files and relations, no timing",
        from: Usual,
        run: smoke::bench,
        ..BUILT
    },
    Step {
        name: "bench-warm",
        what: "the warm level's benchmark in small, beside fio",
        from: Usual,
        run: smoke::bench_warm,
        ..BUILT
    },
    Step {
        name: "bench-network",
        what: "the network's benchmark in small, beside Redis",
        from: Usual,
        run: smoke::bench_network,
        ..BUILT
    },
    Step {
        name: "bench-dataset",
        what: "the benchmark of datasets in small: files and relations, no timing",
        from: Usual,
        run: smoke::bench_dataset,
        ..BUILT
    },
    Step {
        name: "bench-archive",
        what: "the benchmark of movers in small: everything that was written is archived, no timing",
        from: Usual,
        run: smoke::bench_archive,
        ..BUILT
    },
];

fn prepare(_: &Context, log: &Log<'_>) -> Result<Outcome> {
    tools::programs(log).map(|()| Outcome::one(vec![]))
}

fn build(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let built = built::everything(context, log)?;
    log.block(&format!("{} programs", built.len()));
    if let Some(load) = &context.load {
        load.set(Load::start()?).map_err(|_| "two loads")?;
    }
    context.built.set(built).map_err(|_| "built twice")?;
    Ok(Outcome::one(vec![]))
}

fn build_simulator(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    context.simulator.set(built::simulator(context, log)?).map_err(|_| "built twice")?;
    Ok(Outcome::one(vec![]))
}

/// A command that is one check.
fn plain(command: &mut Command, log: &Log<'_>) -> Result<Outcome> {
    let success = child::stream(command, log)?.success;
    Ok(Outcome::one(if success { vec![] } else { vec!["the command failed; its output is above".to_owned()] }))
}

fn formatting(_: &Context, log: &Log<'_>) -> Result<Outcome> {
    plain(&mut child::cargo(&["fmt", "--all", "--check"]), log)
}

fn clippy(_: &Context, log: &Log<'_>) -> Result<Outcome> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--profile", checked::PROFILE, "--", "-D", "warnings"];
    plain(&mut child::cargo(&arguments), log)
}

fn docs(_: &Context, log: &Log<'_>) -> Result<Outcome> {
    let mut command = checked::cargo("doc", &["--workspace", "--no-deps"]);
    let mut outcome = plain(command.env("RUSTDOCFLAGS", "-D warnings"), log)?;
    let tests = [&["--workspace", "--doc"], &checked::APART[..]].concat();
    outcome.add(cargo_tests(&mut checked::cargo("test", &tests), log)?);
    Ok(outcome)
}

fn deny(_: &Context, log: &Log<'_>) -> Result<Outcome> {
    let mut command = tools::deny(log)?;
    let mut outcome = plain(command.args(["check", "licenses", "bans", "sources"]), log)?;
    outcome.notes.push("left out: advisories (their database comes from outside)".to_owned());
    Ok(outcome)
}

/// The programs of tests of this crate of Forebay.
fn tests_of<'a>(context: &'a Context, name: &str) -> Vec<&'a Built> {
    context.built().filter(|built| built.kind == Kind::Tests && built.target == name).collect()
}

/// Those of the simulator are the step `simulate`.
fn tests(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let is_test =
        |built: &&Built| [Kind::Tests, Kind::UnitTests].contains(&built.kind) && built.package != "forebay-sim";
    let programs: Vec<&Built> = context.built().filter(is_test).collect();
    binaries::run(&programs, &context.extent.variables(), log)
}

/// What one node alone promises: its order of delivery, its marks, quotas and limits, what only its process
/// has, its directory.
const OF_ONE_NODE: [&str; 14] = [
    // The order of delivery is that of each node.
    "an_attribute_orders_and_the_oldest_goes_first_among_equals",
    "oldest_first_is_strict_over_all_events",
    "the_wait_is_counted_from_the_first_fragment",
    "whoever_waits_for_too_long_goes_before_all_others",
    // Each node is inhibited by its own quota, and has its own dead time.
    "past_its_quota_it_inhibits_until_somebody_has_looked",
    "time_is_charged_to_the_cause_that_holds",
    // A listener and a watch of inhibit are calls of the process that has the store. A watch of a run tells a cluster's.
    "a_sawtooth_on_a_border_does_not_flap",
    "a_watch_waits_for_a_change_to_its_deadline",
    "maintenance_looks_by_itself",
    // Files of one directory are opened, checked, read or in the way.
    "a_reservation_from_before_never_harms_the_next_opening",
    "a_run_is_not_closed_before_its_summary_is_written",
    "check_reads_a_closed_store_and_finds_nothing_wrong",
    // `leases_max` holds for each node.
    "no_more_leases_are_out_than_allowed",
    // Each node numbers streams by its own first use of them: 255 on each. Those that a keyspace declares are the same on all.
    "a_store_has_255_streams_by_their_first_use",
];

/// A cluster answers as one store does: every other test of them runs over three nodes, with neighbouring events on different ones.
fn nodes(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let of_any_store = |name: &str| ["semantics::", "model::"].iter().any(|subject| name.starts_with(subject));
    let of_one_node = |name: &str| OF_ONE_NODE.contains(&name.rsplit("::").next().unwrap_or(name));
    let chosen = |name: &str| of_any_store(name) && !of_one_node(name);
    binaries::run_chosen(&tests_of(context, "client"), &[("FOREBAY_TEST_NODES", "3".to_owned())], &chosen, log)
}

/// Semantics do not depend on the level: every test of them runs with all data demoted before each call.
fn levels(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let chosen = |name: &str| name.starts_with("semantics::");
    binaries::run_chosen(&tests_of(context, "store"), &[("FOREBAY_TEST_LEVELS", "1".to_owned())], &chosen, log)
}

/// The suite has one seed with 30 kills.
fn crash(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let programs = tests_of(context, "store");
    let mut outcome = Outcome::default();
    for seed in 1..=20 {
        log.status(&format!("seed {seed}"));
        let set = [("FOREBAY_CRASH_ROUNDS", "100".to_owned()), ("FOREBAY_CRASH_SEED", seed.to_string())];
        outcome.add(binaries::run_chosen(&programs, &set, &|name| name.starts_with("crash::"), log)?);
    }
    Ok(outcome)
}

/// In the step `tests` the same seed lasts half a second.
fn chaos(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let seconds = std::env::var("FOREBAY_CHAOS_SECONDS").unwrap_or_else(|_| "5".to_owned());
    let chosen = |name: &str| name.starts_with("chaos::") && name.contains("one_seed");
    binaries::run_chosen(&tests_of(context, "testkit"), &[("FOREBAY_CHAOS_SECONDS", seconds)], &chosen, log)
}

fn simulate(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let hours: [&str; 3] = if context.extent == Long { ["12", "5", "5"] } else { ["4", "2", "2"] };
    let simulations: [&[&str]; 3] = [&[], &["--nodes", "3"], &["--nodes", "3", "--table"]];
    let programs: Vec<&Built> =
        context.built().filter(|built| built.package == "forebay-sim" && built.kind == Kind::Tests).collect();
    let mut outcome = binaries::run(&programs, &context.extent.variables(), log)?;
    for (options, hours) in simulations.iter().zip(hours) {
        let options = [&["--hours", hours], *options].concat();
        let success = child::stream(built::program(context, "forebay-sim")?.args(&options), log)?.success;
        let what = format!("the simulation found something: {}", options.join(" "));
        outcome.add(Outcome::one(if success { vec![] } else { vec![what] }));
    }
    Ok(outcome)
}

fn examples(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut examples: Vec<&Built> = context.built().filter(|built| built.kind == Kind::Example).collect();
    examples.sort_by(|a, b| a.target.cmp(&b.target));
    for example in examples {
        let success = child::stream(&mut example.command(), log)?.success;
        outcome.add(Outcome::one(if success { vec![] } else { vec![format!("example {} failed", example.target)] }));
    }
    Ok(outcome)
}

fn python_package(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let library = context.built().find(|built| built.kind == Kind::Library && built.target == "_native");
    python::install(&library.ok_or("the extension module was not built")?.program, log)?;
    let python::Counts { passed, failed, notes, times } = python::checks(log)?;
    Ok(Outcome { passed, failed, notes, times })
}

// Loom, ThreadSanitizer and fuzzing compile Forebay's crates again, which takes far longer than what they run: none is optimised.
// What others wrote is compiled again only for ThreadSanitizer, which must see all of a program.

fn loom(_: &Context, log: &Log<'_>) -> Result<Outcome> {
    let of = ["-p", "forebay-media", "-p", "forebay-store", "--lib", "--features", "forebay-store/loom"];
    let mut command = checked::cargo("test", &of);
    cargo_tests(command.args(checked::optimised(&["media", "store"], 0)).arg("loom_"), log)
}

fn tsan(_: &Context, log: &Log<'_>) -> Result<Outcome> {
    let dir = child::target_dir().join("tsan").display().to_string();
    let host = child::host()?;
    let arguments = [
        "test",
        "-p",
        "forebay-store-tests",
        "--test",
        "concurrent",
        "--features",
        "tsan",
        "--target",
        &host,
        "--target-dir",
        &dir,
    ];
    // Through libc, so that ThreadSanitizer sees mappings come and go: an address that is mapped again is new memory.
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg=rustix_use_libc";
    // The standard library is not instrumented: its own fences are invisible, and are left out by name.
    let known = format!("suppressions={}", child::root().join("crates/xtask/tsan-suppressions.txt").display());
    let mut command = child::cargo(&arguments);
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags).env("TSAN_OPTIONS", known);
    // Its reports need names and lines, but no further debug information.
    command.env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only").env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    cargo_tests(&mut command, log)
}

fn fuzzing(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let targets = fuzz::targets()?;
    let corpora = child::target_dir().join("checks").join("fuzz");
    let _ = std::fs::remove_dir_all(&corpora);
    let mut outcome = Outcome::default();
    for (target, wrong) in fuzz::each(&targets, context.fuzz_seconds, &corpora, log)? {
        outcome.add(Outcome::one(wrong.into_iter().map(|wrong| format!("fuzz target {target}: {wrong}")).collect()));
    }
    match outcome.passed + outcome.failed {
        0 => Err("no fuzz target".into()),
        _ => Ok(outcome),
    }
}
