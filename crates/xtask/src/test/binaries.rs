//! Runs tests that are built: several programs side by side, each one's output in one piece; counts their results.
//!
//! *Invariants*: a program that fails without a failed test (a crash, a signal) is one failure; so is one that ran other tests
//! than it lists, and a whole run without any test: a check that cannot fail is a defect.

use super::Outcome;
use super::built::{Built, Kind};
use super::screen::Log;
use super::smoke::recorded_frames;
use crate::Result;
use crate::child::{self, Listener};
use std::collections::BTreeMap;
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

/// A program of tests, or the tests of one of its subjects.
struct Part<'a> {
    built: &'a Built,
    name: String,
    tests: Vec<String>,
}

/// Runs all of these with these variables set.
pub(crate) fn run(tests: &[&Built], set: &[(&str, String)], log: &Log<'_>) -> Result<Outcome> {
    run_chosen(tests, set, &|_| true, log)
}

/// The same, only the tests with names that are chosen.
pub(crate) fn run_chosen(
    tests: &[&Built],
    set: &[(&str, String)],
    chosen: &dyn Fn(&str) -> bool,
    log: &Log<'_>,
) -> Result<Outcome> {
    let (mut parts, mut outcome) = (Vec::new(), Outcome::default());
    for built in tests {
        let mut names = list(built)?;
        names.retain(|name| chosen(name));
        let all = names.len();
        // A data file that may not be copied into the project is no reason to fail where it is missing.
        names.retain(|name| !name.contains("real_frames") || recorded_frames().is_some());
        if names.len() < all {
            let left_out = all - names.len();
            outcome
                .notes
                .push(format!("{}: not run: {left_out} with recorded frames, whose file is missing", built.name()));
        }
        parts.extend(parts_of(built, names));
    }
    let (next, passed, total) = (AtomicUsize::new(0), AtomicU64::new(0), Mutex::new(outcome));
    let hand = || -> Result<()> {
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = one(part, set, log)?;
            passed.fetch_add(outcome.passed, Ordering::Relaxed);
            total.lock().unwrap_or_else(PoisonError::into_inner).add(outcome);
            let begun = next.load(Ordering::Relaxed).min(parts.len());
            log.status(&format!("{begun} of {} programs, {} passed", parts.len(), passed.load(Ordering::Relaxed)));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let hands: Vec<_> = (0..AT_A_TIME.min(parts.len())).map(|_| scope.spawn(hand)).collect();
        hands.into_iter().try_for_each(|hand| hand.join().unwrap_or_else(|_| Err("a hand panicked".into())))
    })?;
    Ok(some(total.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

/// The names of all its tests.
fn list(built: &Built) -> Result<Vec<String>> {
    let said = child::output(built.command().args(["--list", "--format=terse"]))?;
    Ok(said.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// A program of tests runs once for each subject: what a test measures of its process, forks or kills is not another subject's.
fn parts_of(built: &Built, tests: Vec<String>) -> Vec<Part<'_>> {
    let mut subjects: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for test in tests {
        let subject = test.split_once("::").filter(|_| built.kind == Kind::Tests).map_or("", |(subject, _)| subject);
        subjects.entry(subject.to_owned()).or_default().push(test);
    }
    let name = |subject: &str| format!("{} {subject}", built.name()).trim_end().to_owned();
    subjects.into_iter().map(|(subject, tests)| Part { built, name: name(&subject), tests }).collect()
}

fn one(part: &Part<'_>, set: &[(&str, String)], log: &Log<'_>) -> Result<Outcome> {
    let piece = Piece { log, text: Mutex::default(), cpu: Mutex::default() };
    let from = Instant::now();
    let mut command = part.built.command();
    // The pinned compiler's harness says times if it is told that it may.
    command.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--report-time", "--exact"]).args(&part.tests);
    let ended = child::follow(command.envs(set.iter().map(|(name, value)| (name, value))), &piece)?;
    let (wall, cpu) = (from.elapsed().as_secs_f64(), piece.cpu.into_inner().unwrap_or_else(PoisonError::into_inner));
    let (name, count_of) = (&part.name, part.tests.len());
    let text = piece.text.into_inner().unwrap_or_else(PoisonError::into_inner);
    log.block(&format!(
        "\n{name}: {count_of} tests, {wall:.1} s, {:.1} s of processor time\n{text}",
        cpu.as_secs_f64()
    ));
    let mut outcome = count(&ended.stdout, ended.success);
    if outcome.failed == 0 && outcome.passed != count_of as u64 {
        outcome.failed = 1;
        outcome.notes.push(format!("{} of {count_of} tests ran", outcome.passed));
    }
    for note in &mut outcome.notes {
        *note = format!("{name}: {note}");
    }
    for (test, _) in &mut outcome.times {
        *test = format!("{} {test}", part.built.name());
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

/// A line about a test without its time, such as ` <0.012s>` at its end, and the time.
fn timed(line: &str) -> (&str, Option<f64>) {
    let time = |rest: &str| rest.strip_suffix("s>").and_then(|seconds| seconds.parse().ok());
    match line.rsplit_once(" <").map(|(said, rest)| (said, time(rest))) {
        Some((said, Some(seconds))) => (said, Some(seconds)),
        _ => (line, None),
    }
}

/// Adds up the `test result` lines; a failure that they do not show (a build, a crash) counts as one.
fn count(stdout: &str, success: bool) -> Outcome {
    let mut outcome = Outcome::default();
    for line in stdout.lines() {
        if let Some(counts) = line.strip_prefix("test result: ") {
            outcome.passed += number_of(counts, "passed");
            outcome.failed += number_of(counts, "failed");
        } else if let Some(said) = line.strip_prefix("test ") {
            let (said, seconds) = timed(said);
            if said.ends_with("FAILED") {
                outcome.notes.push(format!("test {said}"));
            }
            if let (Some(seconds), Some((name, _))) = (seconds, said.split_once(" ... ")) {
                outcome.times.push((name.to_owned(), seconds));
            }
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
    fn times_are_read_and_are_not_the_name() {
        let outcome = count("test a::b ... ok <0.012s>\ntest c ... FAILED <2.500s>\ntest d ... ok\n", true);
        assert_eq!(outcome.times, [("a::b".to_owned(), 0.012), ("c".to_owned(), 2.5)]);
        assert_eq!(outcome.notes[0], "test c ... FAILED");
    }

    #[test]
    fn a_crash_and_an_empty_run_are_failures() {
        let crash = count("test result: ok. 4 passed; 0 failed; 0 ignored\n", false);
        assert_eq!((crash.passed, crash.failed), (4, 1));
        assert_eq!(count("running 0 tests\n", true).failed, 0);
        assert_eq!(some(count("running 0 tests\n", true)).failed, 1);
    }
}
