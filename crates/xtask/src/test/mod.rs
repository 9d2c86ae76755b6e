//! `cargo xtask test`: every check, side by side unless it measures; the cost of each, and all failures, at the end.
//!
//! ```text
//! prepare ──▶ ┐                     ┌─▶ tests, levels, nodes, examples, demos ─▶ ┐
//! build ──▶ programs of `checked` ──┤   python, chaos                            ├──▶ benchmarks in small ──▶ summary
//! tidy, fmt, clippy, docs, deny, loom, tsan, fuzz (beside all that) ────────────▶ ┘
//! ```
//!
//! *Invariants*: the last line is `N passed, M failed` and nothing else; a step that ran no test at all has failed; a
//! step without its input says `not run` and counts as neither. No step needs a quiet machine.

mod binaries;
mod built;
mod extent;
mod schedule;
mod screen;
mod smoke;
mod steps;

use crate::Result;
use built::Built;
use clap::Args;
use extent::Extent;
use schedule::{Done, Takes};
use screen::{Log, Screen};
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
    /// Seconds per fuzz target; 4 without, 600 with `--long`.
    #[arg(long)]
    fuzz_seconds: Option<u64>,
}

/// How a step ended.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Tests that passed; 1 for a step that is one check.
    pub(crate) passed: u64,
    /// Tests that failed.
    pub(crate) failed: u64,
    /// For the reader: failures by name, and steps that did not run.
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

    /// Counts another one's as well.
    pub(crate) fn add(&mut self, other: Outcome) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.notes.extend(other.notes);
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
    built: OnceLock<Vec<Built>>,
}

impl Context {
    /// The programs of the step `build`.
    pub(crate) fn built(&self) -> Result<&[Built]> {
        Ok(self.built.get().ok_or("nothing is built")?)
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
    let context =
        Context { extent, fuzz_seconds: options.fuzz_seconds.unwrap_or(extent.fuzz_seconds()), built: OnceLock::new() };
    let done = schedule::run(chosen(extent, &options.only), &context, &screen, !options.only.is_empty());
    Ok(report(done, &screen))
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
