//! The steps: the command and the needs of each.

use super::binaries::{self, cargo_tests};
use super::built::{self, Built, Kind};
use super::extent::Extent::{Long, Quick, Usual};
use super::schedule::Takes::{All, CheckedBuilds, Nothing};
use super::screen::Log;
use super::{Context, Outcome, Step, smoke};
use crate::child;
use crate::tidy;
use crate::{Result, fuzz, python, tools};
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
        name: "fuzz",
        what: "every decoder: the kept inputs, and some seconds more",
        from: Usual,
        run: fuzzing,
        ..FREE
    },
    Step { name: "loom", what: "models of publication, pin and recycle", from: Usual, run: loom, ..FREE },
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
    Step { name: "deny", what: "licences, bans and sources of dependencies", from: Usual, run: deny, ..FREE },
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
        what: "one server, three nodes, and those with a look-up table, under simulated faults: 22 hours of them",
        from: Usual,
        run: simulate,
        ..BUILT
    },
    Step {
        name: "bench",
        what: "the benchmark in small: files and relations, no timing",
        from: Usual,
        takes: All,
        run: smoke::bench,
        ..BUILT
    },
    Step {
        name: "bench-warm",
        what: "the warm level's benchmark in small, beside fio",
        from: Usual,
        takes: All,
        run: smoke::bench_warm,
        ..BUILT
    },
    Step {
        name: "bench-network",
        what: "the network's benchmark in small, beside Redis",
        from: Usual,
        takes: All,
        run: smoke::bench_network,
        ..BUILT
    },
    Step {
        name: "bench-dataset",
        what: "the benchmark of datasets in small: files and relations, no timing",
        from: Usual,
        takes: All,
        run: smoke::bench_dataset,
        ..BUILT
    },
    Step {
        name: "bench-archive",
        what: "the benchmark of movers in small: everything that was written is archived, no timing",
        from: Usual,
        takes: All,
        run: smoke::bench_archive,
        ..BUILT
    },
];

fn prepare(_: &Context, log: &Log<'_>) -> Result<Outcome> {
    tools::programs(log).map(|()| Outcome::one(vec![]))
}

fn build(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let built = built::everything(log)?;
    log.block(&format!("{} programs", built.len()));
    match context.built.set(built) {
        Ok(()) => Ok(Outcome::one(vec![])),
        Err(_) => Err("built twice".into()),
    }
}

/// A command that is one check.
fn plain(command: &mut Command, log: &Log<'_>) -> Result<Outcome> {
    let success = child::stream(command, log)?.success;
    Ok(Outcome::one(if success { vec![] } else { vec!["the command failed; its output is above".to_owned()] }))
}

/// The fuzz crate is a workspace of its own.
fn formatting(_: &Context, log: &Log<'_>) -> Result<Outcome> {
    let mut outcome = plain(&mut child::cargo(&["fmt", "--all", "--check"]), log)?;
    let targets = plain(&mut child::cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]), log)?;
    outcome.notes.extend(targets.notes);
    Ok(Outcome::one(outcome.notes))
}

fn clippy(_: &Context, log: &Log<'_>) -> Result<Outcome> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--profile", built::PROFILE, "--", "-D", "warnings"];
    plain(&mut child::cargo(&arguments), log)
}

fn docs(_: &Context, log: &Log<'_>) -> Result<Outcome> {
    let arguments = ["doc", "--workspace", "--no-deps", "--profile", built::PROFILE];
    let mut outcome = plain(child::cargo(&arguments).env("RUSTDOCFLAGS", "-D warnings"), log)?;
    outcome.add(cargo_tests(&mut child::cargo(&["test", "--workspace", "--doc", "--profile", built::PROFILE]), log)?);
    Ok(outcome)
}

fn deny(_: &Context, log: &Log<'_>) -> Result<Outcome> {
    tools::deny(log)?;
    let mut outcome = plain(&mut child::cargo(&["deny", "check", "licenses", "bans", "sources"]), log)?;
    outcome.notes.push("left out: advisories (their database comes from outside)".to_owned());
    Ok(outcome)
}

fn test_programs(context: &Context) -> Result<Vec<&Built>> {
    Ok(context.built()?.iter().filter(|built| built.kind == Kind::Test).collect())
}

fn tests(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    binaries::run(&test_programs(context)?, &context.extent.variables(), log)
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
    let mut programs = test_programs(context)?;
    programs.retain(|built| built.package == "forebay-client" && ["semantics", "model"].contains(&&*built.target));
    binaries::run_but(&programs, &[("FOREBAY_TEST_NODES", "3".to_owned())], &OF_ONE_NODE, log)
}

/// Semantics do not depend on the level: every test of them runs with all data demoted before each call.
fn levels(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let mut programs = test_programs(context)?;
    programs.retain(|built| built.package == "forebay-store" && built.target == "semantics");
    binaries::run(&programs, &[("FOREBAY_TEST_LEVELS", "1".to_owned())], log)
}

/// The suite has one seed with 30 kills.
fn crash(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let mut programs = test_programs(context)?;
    programs.retain(|built| built.package == "forebay-store" && built.target == "crash");
    let mut outcome = Outcome::default();
    for seed in 1..=20 {
        log.status(&format!("seed {seed}"));
        let set = [("FOREBAY_CRASH_ROUNDS", "100".to_owned()), ("FOREBAY_CRASH_SEED", seed.to_string())];
        outcome.add(binaries::run(&programs, &set, log)?);
    }
    Ok(outcome)
}

/// In the step `tests` the same seed lasts half a second.
fn chaos(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let programs = test_programs(context)?;
    let built = programs.iter().find(|built| built.package == "forebay-testkit" && built.target == "chaos");
    let mut command = built.ok_or("the chaos was not built")?.command();
    let seconds = std::env::var("FOREBAY_CHAOS_SECONDS").unwrap_or_else(|_| "5".to_owned());
    cargo_tests(command.arg("one_seed").env("FOREBAY_CHAOS_SECONDS", seconds), log)
}

fn simulate(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let simulations: [&[&str]; 3] =
        [&["--hours", "12"], &["--hours", "5", "--nodes", "3"], &["--hours", "5", "--nodes", "3", "--table"]];
    let mut outcome = Outcome::default();
    for options in simulations {
        let success = child::stream(built::program(context, "forebay-sim")?.args(options), log)?.success;
        let what = format!("the simulation found something: {}", options.join(" "));
        outcome.add(Outcome::one(if success { vec![] } else { vec![what] }));
    }
    Ok(outcome)
}

fn examples(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut examples: Vec<&Built> = context.built()?.iter().filter(|built| built.kind == Kind::Example).collect();
    examples.sort_by(|a, b| a.target.cmp(&b.target));
    for example in examples {
        let success = child::stream(&mut example.command(), log)?.success;
        outcome.add(Outcome::one(if success { vec![] } else { vec![format!("example {} failed", example.target)] }));
    }
    Ok(outcome)
}

fn python_package(context: &Context, log: &Log<'_>) -> Result<Outcome> {
    let library = context.built()?.iter().find(|built| built.kind == Kind::Library && built.target == "_native");
    python::install(&library.ok_or("the extension module was not built")?.program, log)?;
    let python::Counts { passed, failed, notes } = python::checks(log)?;
    Ok(Outcome { passed, failed, notes })
}

// Loom, ThreadSanitizer and fuzzing have builds of their own, which take far longer than what they run: none is optimised.

fn loom(_: &Context, log: &Log<'_>) -> Result<Outcome> {
    let dir = child::target_dir().join("loom").display().to_string();
    let of = ["test", "-p", "forebay-media", "-p", "forebay-store", "--lib", "--profile", "chores"];
    let arguments = [&of[..], &["--target-dir", &dir, "loom_"]].concat();
    cargo_tests(child::cargo(&arguments).env("RUSTFLAGS", "--cfg loom"), log)
}

fn tsan(_: &Context, log: &Log<'_>) -> Result<Outcome> {
    let dir = child::target_dir().join("tsan").display().to_string();
    let host = child::host()?;
    let arguments = ["test", "-p", "forebay-store", "--test", "concurrent", "--target", &host, "--target-dir", &dir];
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
    let targets = fuzz::build(context.extent == Long, log)?;
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
