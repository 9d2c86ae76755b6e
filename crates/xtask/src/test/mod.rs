//! `cargo xtask test`: every check, side by side; the cost of each, and all failures, at the end.
//!
//! ```text
//! prepare ──▶ ┐                     ┌─▶ tests, levels, nodes, examples, demos ─▶ ┐
//! build ──▶ programs of `checked` ──┤   python, chaos, benchmarks in small       ├──▶ summary
//! build-sim ──▶ simulator ──────────┴─▶ simulate ──────────────────────────────▶ ┤
//! tidy, fmt, clippy, docs, deny, loom, tsan, fuzz (beside all that) ───────────▶ ┘
//! ```
//!
//! *Invariants*: the last line is `N passed, M failed` and nothing else; a step that ran no test at all has failed; a
//! step without its input says `not run` and counts as neither. No step needs a quiet machine.

mod binaries;
mod built;
mod extent;
mod schedule;
mod screen;
mod slow;
mod smoke;
mod steps;
mod took;

use crate::Result;
use built::Built;
use clap::Args;
use extent::Extent;
use schedule::{Done, Takes};
use screen::{Log, Screen};
use slow::Load;
use std::sync::OnceLock;
use std::time::Duration;
use steps::STEPS;

/// What to check.
#[derive(Args)]
pub(crate) struct Options {
    /// For use between two changes: without slow steps and steps with a separate build; fewer rounds.
    #[arg(long, conflicts_with = "long")]
    quick: bool,
    /// Proofs that take hours: every random test with many more rounds and seeds.
    #[arg(long)]
    long: bool,
    /// Only this step and the steps that it needs (may be repeated); one step at a time.
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// List the steps and end.
    #[arg(long)]
    list: bool,
    /// Only what the programs of the tests do, as on a slow machine: at the lowest priority, beside four busy loops.
    #[arg(long, conflicts_with_all = ["quick", "long", "only"])]
    slow_machine: bool,
    /// Seconds per fuzz target; 4 without, 600 with `--long`.
    #[arg(long)]
    fuzz_seconds: Option<u64>,
}

/// What `--slow-machine` runs.
const SLOW: [&str; 11] = [
    "tests",
    "levels",
    "nodes",
    "python",
    "examples",
    "demo",
    "demo-processes",
    "demo-nodes",
    "demo-dune",
    "demo-input",
    "chaos",
];

/// How a step ended.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Tests that passed; 1 for a step that is one check.
    pub(crate) passed: u64,
    /// Tests that failed.
    pub(crate) failed: u64,
    /// For the reader: failures by name, and steps that did not run.
    pub(crate) notes: Vec<String>,
    /// Tests by name, and the seconds that each took.
    pub(crate) times: Vec<(String, f64)>,
}

impl Outcome {
    /// One check, with why it failed.
    pub(crate) fn one(failures: Vec<String>) -> Outcome {
        let failed = u64::from(!failures.is_empty());
        Outcome { passed: 1 - failed, failed, notes: failures, ..Outcome::default() }
    }

    /// A check that could not run.
    pub(crate) fn not_run(why: &str) -> Outcome {
        Outcome { notes: vec![format!("not run: {why}")], ..Outcome::default() }
    }

    /// Counts another one's as well.
    pub(crate) fn add(&mut self, other: Outcome) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.notes.extend(other.notes);
        self.times.extend(other.times);
    }
}

/// One step of the command.
pub(crate) struct Step {
    name: &'static str,
    what: &'static str,
    /// From which extent on it is in.
    from: Extent,
    takes: Takes,
    /// Steps that must have succeeded; they are chosen with it.
    needs: &'static [&'static str],
    /// Steps that must have ended, where they were chosen.
    after: &'static [&'static str],
    run: fn(&Context, &Log<'_>) -> Result<Outcome>,
}

/// Shared by all steps.
pub(crate) struct Context {
    extent: Extent,
    fuzz_seconds: u64,
    /// With `--slow-machine`: loops, from when everything is built.
    load: Option<OnceLock<Load>>,
    built: OnceLock<Vec<Built>>,
    simulator: OnceLock<Vec<Built>>,
}

impl Context {
    fn new(extent: Extent, fuzz_seconds: u64, slow: bool) -> Context {
        let load = slow.then(OnceLock::new);
        Context { extent, fuzz_seconds, load, built: OnceLock::new(), simulator: OnceLock::new() }
    }

    /// What the steps `build` and `build-sim` have made.
    pub(crate) fn built(&self) -> impl Iterator<Item = &Built> {
        [&self.built, &self.simulator].into_iter().filter_map(OnceLock::get).flatten()
    }
}

/// Runs the steps; `false` where anything failed.
pub(crate) fn run(options: Options) -> Result<bool> {
    let extent = match (options.quick, options.long) {
        (true, _) => Extent::Quick,
        (_, true) => Extent::Long,
        _ => Extent::Usual,
    };
    let screen = Screen::new(!options.only.is_empty());
    if options.list {
        for step in STEPS {
            screen.show(&format!("{:<15} {:<24} {}", step.name, step.from.within(), step.what));
        }
        return Ok(true);
    }
    if let Some(unknown) = options.only.iter().find(|name| step(name).is_none()) {
        return Err(format!("no step `{unknown}`; --list names them").into());
    }
    let only = if options.slow_machine { SLOW.map(str::to_owned).to_vec() } else { options.only };
    let fuzz_seconds = options.fuzz_seconds.unwrap_or(extent.fuzz_seconds());
    let context = Context::new(extent, fuzz_seconds, options.slow_machine);
    let steps = chosen(extent, &only);
    let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
    screen.show(&format!("{} steps: {}", names.len(), names.join(", ")));
    let whole = only.is_empty().then(|| took::Took::of(extent));
    if let Some(took) = &whole {
        screen.show(&took.expected());
    }
    let done = schedule::run(steps, &context, &screen, !only.is_empty());
    let passed = report(done, &screen);
    if let (Some(took), true) = (whole, passed) {
        took.save(screen.elapsed())?;
    }
    Ok(passed)
}

fn step(name: &str) -> Option<&'static Step> {
    STEPS.iter().find(|step| step.name == name)
}

/// The steps of this extent, or the named ones with what they need, in the table's order.
fn chosen(extent: Extent, only: &[String]) -> Vec<&'static Step> {
    let mut names: Vec<&str> = only.iter().map(String::as_str).collect();
    let mut at = 0;
    while let Some(name) = names.get(at) {
        names.extend(step(name).map_or(&[][..], |step| step.needs));
        at += 1;
    }
    STEPS.iter().filter(|step| if only.is_empty() { step.from <= extent } else { names.contains(&step.name) }).collect()
}

/// As many of the slowest tests are named.
const SLOWEST: usize = 10;

fn report(mut done: Vec<Done>, screen: &Screen) -> bool {
    done.sort_by_key(|done| STEPS.iter().position(|step| step.name == done.name));
    screen.show("\n=== summary");
    for Done { name, outcome, wall, cpu } in &done {
        let word = match (outcome.passed, outcome.failed) {
            (0, 0) => "not run",
            (_, 0) => "ok",
            _ => "FAILED",
        };
        let (passed, failed) = (outcome.passed, outcome.failed);
        screen.show(&format!("{name:<15} {word:<7} {passed:>5} passed {failed:>3} failed {}", cost(*wall, *cpu)));
        for note in &outcome.notes {
            screen.show(&format!("                {}", note.replace('\n', "\n                ")));
        }
    }
    let cpu = done.iter().map(|done| done.cpu).sum();
    screen.show(&format!("{:<43} {}", "together", cost(screen.elapsed(), cpu)));
    let mut times: Vec<(&String, f64)> =
        done.iter().flat_map(|done| &done.outcome.times).map(|(name, seconds)| (name, *seconds)).collect();
    times.sort_by(|a, b| b.1.total_cmp(&a.1));
    if !times.is_empty() {
        screen.show("\nthe slowest tests");
    }
    for (name, seconds) in times.iter().take(SLOWEST) {
        screen.show(&format!("{seconds:>7.1} s {name}"));
    }
    let sum = |count: fn(&Outcome) -> u64| done.iter().map(|done| count(&done.outcome)).sum::<u64>();
    let failed = sum(|outcome| outcome.failed);
    screen.show(&format!("{} passed, {failed} failed", sum(|outcome| outcome.passed)));
    failed == 0
}

/// Time on the wall, and on all processors.
fn cost(wall: Duration, cpu: Duration) -> String {
    format!("{:>7.1} s {:>7.1} s of processor time", wall.as_secs_f64(), cpu.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_step_names_is_there_and_before_it() {
        for (at, step) in STEPS.iter().enumerate() {
            for name in step.needs.iter().chain(step.after) {
                assert!(STEPS[..at].iter().any(|other| other.name == *name), "{} names {name}", step.name);
            }
            assert!(step.needs.iter().all(|name| super::step(name).is_some_and(|need| need.from <= step.from)));
        }
    }

    #[test]
    fn one_step_brings_what_it_needs() {
        let names = |only: &[&str]| -> Vec<&str> {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            chosen(Extent::Usual, &only).iter().map(|step| step.name).collect()
        };
        assert_eq!(names(&["levels"]), ["build", "levels"]);
        assert_eq!(names(&["fmt"]), ["fmt"]);
        assert!(chosen(Extent::Quick, &[]).len() < chosen(Extent::Usual, &[]).len());
    }
}
