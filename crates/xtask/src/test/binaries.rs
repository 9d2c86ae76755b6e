//! Runs tests that are built: several programs side by side, each one's output in one piece; counts their results.
//!
//! *Invariants*: a program that fails without a failed test (a crash, a signal) is one failure; no test at all in a
//! whole run is a failure too: a check that cannot fail is a defect.

use super::Outcome;
use super::built::Built;
use super::screen::Log;
use super::smoke::recorded_frames;
use crate::Result;
use crate::child::{self, Listener};
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Programs at a time. Each has as many threads as there are processors; many of its tests wait for sockets and clocks.
const AT_A_TIME: usize = 3;

/// A program's output, shown when it has ended.
struct Piece<'a> {
    log: &'a Log<'a>,
    text: Mutex<String>,
    cpu: Mutex<Duration>,
}

impl Listener for Piece<'_> {
    fn line(&self, line: &str) {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str(line);
        text.push('\n');
    }

    fn spent(&self, cpu: Duration) {
        *self.cpu.lock().unwrap_or_else(PoisonError::into_inner) += cpu;
        self.log.spent(cpu);
    }
}

/// Runs all of these with these variables set.
pub(crate) fn run(tests: &[&Built], set: &[(&str, String)], log: &Log<'_>) -> Result<Outcome> {
    run_but(tests, set, &[], log)
}

/// The same without the tests of these names.
pub(crate) fn run_but(tests: &[&Built], set: &[(&str, String)], skip: &[&str], log: &Log<'_>) -> Result<Outcome> {
    let (next, passed, total) = (AtomicUsize::new(0), AtomicU64::new(0), Mutex::new(Outcome::default()));
    let hand = || -> Result<()> {
        while let Some(built) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = one(built, set, skip, log)?;
            passed.fetch_add(outcome.passed, Ordering::Relaxed);
            total.lock().unwrap_or_else(PoisonError::into_inner).add(outcome);
            let begun = next.load(Ordering::Relaxed).min(tests.len());
            log.status(&format!("{begun} of {} programs, {} passed", tests.len(), passed.load(Ordering::Relaxed)));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let hands: Vec<_> = (0..AT_A_TIME.min(tests.len())).map(|_| scope.spawn(hand)).collect();
        hands.into_iter().try_for_each(|hand| hand.join().unwrap_or_else(|_| Err("a hand panicked".into())))
    })?;
    Ok(some(total.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

fn one(built: &Built, set: &[(&str, String)], skip: &[&str], log: &Log<'_>) -> Result<Outcome> {
    let piece = Piece { log, text: Mutex::default(), cpu: Mutex::default() };
    let from = Instant::now();
    let mut command = built.command();
    // A data file that may not be copied into the project is no reason to fail where it is missing. Only there: a program without
    // the harness takes the option for something else.
    if built.package == "forebay-daq" && recorded_frames().is_none() {
        command.args(["--skip", "real_frames"]);
    }
    for name in skip {
        command.args(["--skip", name]);
    }
    let ended = child::stream(command.envs(set.iter().map(|(name, value)| (name, value))), &piece)?;
    let (wall, cpu) = (from.elapsed().as_secs_f64(), piece.cpu.into_inner().unwrap_or_else(PoisonError::into_inner));
    let name = built.name();
    let text = piece.text.into_inner().unwrap_or_else(PoisonError::into_inner);
    log.block(&format!("\n{name}: {wall:.1} s, {:.1} s of processor time\n{text}", cpu.as_secs_f64()));
    let mut outcome = count(&ended.stdout, ended.success);
    let results = ended.stdout.lines().filter_map(|line| line.strip_prefix("test result: "));
    let left_out: u64 = results.map(|counts| number_of(counts, "filtered")).sum();
    if left_out > 0 && skip.is_empty() {
        outcome.notes.push(format!("not run: {left_out} with recorded frames, whose file is missing"));
    }
    for note in &mut outcome.notes {
        *note = format!("{name}: {note}");
    }
    Ok(outcome)
}

/// Runs a `cargo test` and counts its results.
pub(crate) fn cargo_tests(command: &mut Command, log: &Log<'_>) -> Result<Outcome> {
    let ended = child::stream(command, log)?;
    Ok(some(count(&ended.stdout, ended.success)))
}

/// No test at all is a failure.
fn some(mut outcome: Outcome) -> Outcome {
    if outcome.failed == 0 && outcome.passed == 0 {
        outcome.failed = 1;
        outcome.notes.push("no test ran: a check that cannot fail is a defect".to_owned());
    }
    outcome
}

/// The number before this word.
fn number_of(counts: &str, word: &str) -> u64 {
    let words: Vec<&str> = counts.split([' ', ';']).filter(|text| !text.is_empty()).collect();
    let at = words.iter().position(|text| *text == word);
    at.and_then(|at| words.get(at.wrapping_sub(1))?.parse::<u64>().ok()).unwrap_or(0)
}

/// Adds up the `test result` lines; a failure that they do not show (a build, a crash) counts as one.
fn count(stdout: &str, success: bool) -> Outcome {
    let mut outcome = Outcome::default();
    for line in stdout.lines() {
        if let Some(counts) = line.strip_prefix("test result: ") {
            outcome.passed += number_of(counts, "passed");
            outcome.failed += number_of(counts, "failed");
        } else if line.starts_with("test ") && line.ends_with("FAILED") {
            outcome.notes.push(line.to_owned());
        }
    }
    if outcome.failed == 0 && !success {
        outcome.failed = 1;
        outcome.notes.push("failed without a failed test: a build or a crash; see above".to_owned());
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::{count, some};

    #[test]
    fn counts_what_tests_say() {
        let text = "test a ... ok\ntest result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
                    test b ... FAILED\ntest result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let outcome = count(text, false);
        assert_eq!((outcome.passed, outcome.failed, outcome.notes.len()), (15, 2, 1));
    }

    #[test]
    fn a_crash_and_an_empty_run_are_failures() {
        let crash = count("test result: ok. 4 passed; 0 failed; 0 ignored\n", false);
        assert_eq!((crash.passed, crash.failed), (4, 1));
        assert_eq!(count("running 0 tests\n", true).failed, 0);
        assert_eq!(some(count("running 0 tests\n", true)).failed, 1);
    }
}
