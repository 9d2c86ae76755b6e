//! `cargo xtask test`: every check in turn, with its time; all failures together at the end.
//!
//! *Invariants*: the last line is `N passed, M failed` and nothing else; a step that ran no test at all has failed; a
//! step that could not run for want of an input says `not run` and counts as neither.

use crate::{Result, child, fuzz, smoke, tidy, tools};
use clap::Args;
use std::process::Command;
use std::time::Instant;

/// What to check.
#[derive(Args)]
pub(crate) struct Options {
    /// Only this step (may be given several times).
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// List the steps and end.
    #[arg(long)]
    list: bool,
    /// Seconds per fuzz target.
    #[arg(long, default_value_t = 10)]
    fuzz_seconds: u64,
}

/// How a step ended.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Tests that passed; 1 for a step that is one check.
    pub(crate) passed: u64,
    /// Tests that failed.
    pub(crate) failed: u64,
    /// What a person must know: failures by name, and what was not run.
    pub(crate) notes: Vec<String>,
}

impl Outcome {
    /// One check, with why it failed.
    pub(crate) fn one(failures: Vec<String>) -> Outcome {
        let failed = u64::from(!failures.is_empty());
        Outcome { passed: 1 - failed, failed, notes: failures }
    }

    /// A check that could not run.
    pub(crate) fn not_run(why: &str) -> Outcome {
        Outcome { notes: vec![format!("not run: {why}")], ..Outcome::default() }
    }
}

struct Step {
    name: &'static str,
    what: &'static str,
    run: fn(&Options) -> Result<Outcome>,
}

const STEPS: [Step; 20] = [
    Step { name: "prepare", what: "install what is missing", run: |_| tools::all().map(|()| Outcome::one(vec![])) },
    Step { name: "tidy", what: "file sizes, module heads, SAFETY lines, nothing unfinished", run: |_| tidy_step() },
    Step { name: "fmt", what: "formatting", run: |_| formatting() },
    Step { name: "clippy", what: "lints, warnings denied", run: |_| clippy() },
    Step { name: "deny", what: "licences, bans and sources of dependencies", run: |_| deny() },
    Step { name: "docs", what: "documentation builds without warnings", run: |_| docs() },
    Step { name: "tests", what: "all tests of the workspace", run: |_| workspace() },
    Step { name: "levels", what: "the semantics again, with everything on the warm level", run: |_| both_levels() },
    Step { name: "examples", what: "every example, to its end", run: |_| examples() },
    Step { name: "loom", what: "models of publication, pin and recycle", run: |_| loom() },
    Step { name: "tsan", what: "concurrent tests under ThreadSanitizer", run: |_| tsan() },
    Step { name: "fuzz", what: "every decoder, briefly", run: fuzz_step },
    Step { name: "bench", what: "the benchmark in small: files and relations, no timing", run: |_| smoke::bench() },
    Step { name: "bench-warm", what: "the warm level's benchmark in small, beside fio", run: |_| smoke::bench_warm() },
    Step {
        name: "bench-network",
        what: "the network's benchmark in small, beside Redis",
        run: |_| smoke::bench_network(),
    },
    Step { name: "demo", what: "the demo for two seconds", run: |_| smoke::demo() },
    Step {
        name: "demo-processes",
        what: "server, readouts and filters as processes, two of them killed",
        run: |_| smoke::demo_processes(),
    },
    Step { name: "demo-dune", what: "DUNE's MiniDAQ for two seconds on two links", run: |_| smoke::demo_dune() },
    Step { name: "demo-input", what: "the demo on recorded frames", run: |_| smoke::demo_input() },
    Step { name: "chaos", what: "everything at once for five seconds, every term explained", run: |_| smoke::chaos() },
];

/// Runs the steps; `false` where anything failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.list {
        for step in &STEPS {
            println!("{:<12} {}", step.name, step.what);
        }
        return Ok(true);
    }
    if let Some(unknown) = options.only.iter().find(|name| STEPS.iter().all(|step| step.name != name.as_str())) {
        return Err(format!("no step `{unknown}`; --list names them").into());
    }
    let mut done = Vec::new();
    for step in STEPS.iter().filter(|step| options.only.is_empty() || options.only.iter().any(|n| n == step.name)) {
        println!("\n=== {}: {}", step.name, step.what);
        let from = Instant::now();
        let outcome = (step.run)(options).unwrap_or_else(|error| Outcome::one(vec![error.to_string()]));
        let seconds = from.elapsed().as_secs_f64();
        for note in &outcome.notes {
            println!("{note}");
        }
        println!("--- {}: {} passed, {} failed in {seconds:.1} s", step.name, outcome.passed, outcome.failed);
        done.push((step.name, outcome, seconds));
    }
    Ok(report(&done))
}

fn report(done: &[(&str, Outcome, f64)]) -> bool {
    println!("\n=== summary");
    for (name, outcome, seconds) in done {
        let word = match (outcome.passed, outcome.failed) {
            (0, 0) => "not run",
            (_, 0) => "ok",
            _ => "FAILED",
        };
        println!("{name:<12} {word:<7} {:>5} passed {:>3} failed {seconds:>8.1} s", outcome.passed, outcome.failed);
        for note in &outcome.notes {
            println!("             {}", note.replace('\n', "\n             "));
        }
    }
    let sum = |count: fn(&Outcome) -> u64| done.iter().map(|(_, outcome, _)| count(outcome)).sum::<u64>();
    let failed = sum(|outcome| outcome.failed);
    println!("{} passed, {failed} failed", sum(|outcome| outcome.passed));
    failed == 0
}

/// A command that is one check.
fn plain(command: &mut Command) -> Result<Outcome> {
    let success = child::stream(command)?.success;
    Ok(Outcome::one(if success { vec![] } else { vec!["the command failed; its output stands above".to_owned()] }))
}

fn tidy_step() -> Result<Outcome> {
    tidy::check(&child::root()).map(Outcome::one)
}

/// The fuzz crate is a workspace of its own.
fn formatting() -> Result<Outcome> {
    let mut outcome = plain(&mut child::cargo(&["fmt", "--all", "--check"]))?;
    let targets = plain(&mut child::cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))?;
    outcome.notes.extend(targets.notes);
    Ok(Outcome::one(outcome.notes))
}

fn clippy() -> Result<Outcome> {
    plain(&mut child::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn deny() -> Result<Outcome> {
    let mut outcome = plain(&mut child::cargo(&["deny", "check", "licenses", "bans", "sources"]))?;
    outcome.notes.push("left out: advisories (their database comes from outside)".to_owned());
    Ok(outcome)
}

fn docs() -> Result<Outcome> {
    plain(child::cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

/// In the release profile: the model and crash tests do many more rounds in the same time.
fn workspace() -> Result<Outcome> {
    cargo_tests(&mut child::cargo(&["test", "--workspace", "--release", "--no-fail-fast"]))
}

/// What a call means does not depend on the level: every test of it runs with all data demoted before each call.
fn both_levels() -> Result<Outcome> {
    let arguments = ["test", "-p", "forebay-store", "--release", "--test", "semantics"];
    cargo_tests(child::cargo(&arguments).env("FOREBAY_TEST_LEVELS", "1"))
}

fn examples() -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for package in ["store", "client"] {
        let mut names: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(child::root().join("crates").join(package).join("examples"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
            }
        }
        names.sort();
        let package = format!("forebay-{package}");
        for name in names {
            println!("{name}");
            let arguments = ["run", "--quiet", "--release", "-p", &package, "--example", &name];
            let success = child::stream(&mut child::cargo(&arguments))?.success;
            outcome.passed += u64::from(success);
            outcome.failed += u64::from(!success);
            outcome.notes.extend((!success).then(|| format!("example {name} failed")));
        }
    }
    Ok(outcome)
}

fn loom() -> Result<Outcome> {
    let dir = child::target_dir().join("loom").display().to_string();
    let arguments = ["test", "-p", "forebay-store", "--lib", "--release", "--target-dir", &dir, "loom_"];
    cargo_tests(child::cargo(&arguments).env("RUSTFLAGS", "--cfg loom"))
}

fn tsan() -> Result<Outcome> {
    let versions = child::output(Command::new("rustc").arg("-vV").current_dir(child::root()))?;
    let host = versions.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc -vV names no host")?;
    let dir = child::target_dir().join("tsan").display().to_string();
    let arguments = ["test", "-p", "forebay-store", "--test", "concurrent", "--target", host, "--target-dir", &dir];
    // Through libc, so that ThreadSanitizer sees mappings come and go: an address that is mapped again is new memory.
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg=rustix_use_libc";
    // The standard library is not instrumented: its own fences are invisible, and are left out by name.
    let known = format!("suppressions={}", child::root().join("crates/xtask/tsan-suppressions.txt").display());
    let mut command = child::cargo(&arguments);
    cargo_tests(command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags).env("TSAN_OPTIONS", known))
}

fn fuzz_step(options: &Options) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for (target, clean) in fuzz::each(options.fuzz_seconds, &[])? {
        outcome.passed += u64::from(clean);
        outcome.failed += u64::from(!clean);
        if !clean {
            outcome.notes.push(format!("fuzz target {target} found something: see fuzz/artifacts/{target}"));
        }
    }
    Ok(outcome)
}

/// Runs a `cargo test` and counts what it says.
fn cargo_tests(command: &mut Command) -> Result<Outcome> {
    let ended = child::stream(command)?;
    Ok(count(&ended.stdout, ended.success))
}

/// Adds up the `test result` lines; a failure that they do not show (a build, a crash) and a run of no tests count as
/// one failure.
fn count(stdout: &str, success: bool) -> Outcome {
    let mut outcome = Outcome::default();
    for line in stdout.lines() {
        if let Some(counts) = line.strip_prefix("test result: ") {
            let number = |word: &str| {
                let words: Vec<&str> = counts.split([' ', ';']).filter(|text| !text.is_empty()).collect();
                let at = words.iter().position(|text| *text == word);
                at.and_then(|at| words.get(at.wrapping_sub(1))?.parse::<u64>().ok()).unwrap_or(0)
            };
            outcome.passed += number("passed");
            outcome.failed += number("failed");
        } else if line.starts_with("test ") && line.ends_with("FAILED") {
            outcome.notes.push(line.to_owned());
        }
    }
    if outcome.failed == 0 && !success {
        outcome.failed = 1;
        outcome.notes.push("cargo test failed without a failed test: a build or a crash; see above".to_owned());
    } else if outcome.failed == 0 && outcome.passed == 0 {
        outcome.failed = 1;
        outcome.notes.push("no test ran: a check that cannot fail is a defect".to_owned());
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn counts_what_cargo_says() {
        let text = "test a ... ok\ntest result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
                    test b ... FAILED\ntest result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let outcome = count(text, false);
        assert_eq!((outcome.passed, outcome.failed, outcome.notes.len()), (15, 2, 1));
    }

    #[test]
    fn a_crash_and_an_empty_run_are_failures() {
        let crash = count("test result: ok. 4 passed; 0 failed; 0 ignored\n", false);
        assert_eq!((crash.passed, crash.failed), (4, 1));
        assert_eq!(count("running 0 tests\n", true).failed, 1);
    }
}
