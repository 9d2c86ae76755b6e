//! Runs steps side by side, two at a time.
//!
//! ```text
//! steps in order ──▶ first one whose needs are done and whose resource is free ──▶ hand 1
//!                                                                           └────▶ hand 2
//! ```
//!
//! *Invariants*: a step starts after everything that it names in `after` and `needs` has ended; no two steps hold the same
//! resource. A step whose need failed is not run: the need counts as the failure.

use super::screen::Screen;
use super::{Context, Outcome, Step};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Steps at a time: the machine that the times are written down for has two processors.
const HANDS: usize = 2;

/// The resource that a step needs exclusively.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Nothing: it runs beside any other.
    Nothing,
    /// Cargo's lock on the builds of the profile `checked`.
    CheckedBuilds,
}

/// A step that has ended.
pub(crate) struct Done {
    pub(crate) name: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

#[derive(Default)]
struct Progress {
    waiting: Vec<&'static Step>,
    running: Vec<&'static Step>,
    done: Vec<Done>,
}

impl Progress {
    /// The first step that can start now.
    fn next(&mut self) -> Option<&'static Step> {
        let at = self.waiting.iter().position(|step| self.may_start(step))?;
        let step = self.waiting.remove(at);
        self.running.push(step);
        Some(step)
    }

    fn may_start(&self, step: &Step) -> bool {
        let pending = |name: &&str| self.waiting.iter().chain(&self.running).any(|other| other.name == *name);
        let free = step.takes == Takes::Nothing || self.running.iter().all(|other| other.takes != step.takes);
        free && !step.needs.iter().chain(step.after).any(pending)
    }

    fn failed_need(&self, step: &Step) -> Option<&'static str> {
        let failed = |done: &&Done| done.outcome.failed > 0 && step.needs.contains(&done.name);
        self.done.iter().find(failed).map(|done| done.name)
    }
}

/// Runs all of them; in the order in which they ended.
pub(crate) fn run(steps: Vec<&'static Step>, context: &Context, screen: &Screen, one_by_one: bool) -> Vec<Done> {
    let progress = Mutex::new(Progress { waiting: steps, ..Progress::default() });
    let changed = Condvar::new();
    std::thread::scope(|scope| {
        scope.spawn(|| screen.tick());
        let hands: Vec<_> = (0..if one_by_one { 1 } else { HANDS })
            .map(|_| scope.spawn(|| hand(&progress, &changed, context, screen)))
            .collect();
        for hand in hands {
            // A hand that panicked has left its step in `running`: the other one would wait for it.
            if hand.join().is_err() {
                screen.show("xtask: a step panicked");
                std::process::exit(101);
            }
        }
        screen.finish();
    });
    progress.into_inner().unwrap_or_else(PoisonError::into_inner).done
}

fn hand(progress: &Mutex<Progress>, changed: &Condvar, context: &Context, screen: &Screen) {
    let mut state = progress.lock().unwrap_or_else(PoisonError::into_inner);
    while !state.waiting.is_empty() {
        let Some(step) = state.next() else {
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let failed_need = state.failed_need(step);
        drop(state);
        let done = one(step, failed_need, context, screen);
        state = progress.lock().unwrap_or_else(PoisonError::into_inner);
        state.running.retain(|other| other.name != step.name);
        state.done.push(done);
        changed.notify_all();
    }
}

fn one(step: &'static Step, failed_need: Option<&str>, context: &Context, screen: &Screen) -> Done {
    let from = Instant::now();
    if let Some(need) = failed_need {
        let outcome = Outcome::not_run(&format!("`{need}` failed"));
        return Done { name: step.name, outcome, wall: Duration::ZERO, cpu: Duration::ZERO };
    }
    let (outcome, cpu) = match screen.begin(step.name, step.what) {
        Err(error) => (Outcome::one(vec![error.to_string()]), Duration::ZERO),
        Ok(log) => {
            let outcome = (step.run)(context, &log).unwrap_or_else(|error| Outcome::one(vec![error.to_string()]));
            for note in &outcome.notes {
                log.block(note);
            }
            let (passed, failed, seconds) = (outcome.passed, outcome.failed, from.elapsed().as_secs_f64());
            let cpu = log.end(&format!("{passed} passed, {failed} failed in {seconds:.1} s"));
            (outcome, cpu)
        }
    };
    Done { name: step.name, outcome, wall: from.elapsed(), cpu }
}

#[cfg(test)]
mod tests {
    use super::super::extent::Extent;
    use super::super::screen::Log;
    use super::*;
    use crate::Result;
    use std::sync::atomic::{AtomicU32, Ordering};

    static BUILD: Step = step("build", Takes::CheckedBuilds, &[], &[]);
    static CLIPPY: Step = step("clippy", Takes::CheckedBuilds, &[], &[]);
    static TESTS: Step = step("tests", Takes::Nothing, &["build"], &["prepare"]);
    static FMT: Step = step("fmt", Takes::Nothing, &[], &[]);

    const fn step(name: &'static str, takes: Takes, needs: &'static [&str], after: &'static [&str]) -> Step {
        Step { name, what: "", from: Extent::Quick, takes, needs, after, run: |_, _| Ok(Outcome::default()) }
    }

    fn names(progress: &mut Progress) -> Vec<&'static str> {
        std::iter::from_fn(|| progress.next()).map(|step| step.name).collect()
    }

    #[test]
    fn a_step_waits_for_its_needs_and_its_resource() {
        let waiting = vec![&BUILD, &CLIPPY, &TESTS, &FMT];
        let mut progress = Progress { waiting, ..Progress::default() };
        assert_eq!(names(&mut progress), ["build", "fmt"]);
        progress.running.retain(|step| step.name != "build");
        assert_eq!(names(&mut progress), ["clippy", "tests"]);
    }

    #[test]
    fn all_steps_run_beside_each_other_and_end() {
        static FIRST: Step = Step { run: |_, _| meets(), ..step("try-first", Takes::CheckedBuilds, &[], &[]) };
        static WRONG: Step =
            Step { run: |_, _| meets().and(Err("no".into())), ..step("try-wrong", Takes::Nothing, &[], &[]) };
        static NEXT: Step = Step { run: |_, log| works(log), ..step("try-next", Takes::Nothing, &["try-first"], &[]) };
        static NEVER: Step =
            Step { run: |_, log| works(log), ..step("try-never", Takes::Nothing, &["try-wrong"], &[]) };
        static LAST: Step = Step { run: |_, log| works(log), ..step("try-last", Takes::Nothing, &[], &["try-never"]) };
        fn works(log: &Log<'_>) -> Result<Outcome> {
            log.block("at work");
            std::thread::sleep(Duration::from_millis(20));
            Ok(Outcome::one(vec![]))
        }
        /// Ends once two steps are at work, or has failed.
        fn meets() -> Result<Outcome> {
            static AT_WORK: AtomicU32 = AtomicU32::new(0);
            AT_WORK.fetch_add(1, Ordering::SeqCst);
            let from = Instant::now();
            while AT_WORK.load(Ordering::SeqCst) < 2 {
                if from.elapsed() > Duration::from_secs(60) {
                    return Err("nothing runs beside it".into());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(Outcome::one(vec![]))
        }
        let context = Context::new(Extent::Quick, 0, false);
        let done = run(vec![&FIRST, &WRONG, &NEXT, &NEVER, &LAST], &context, &Screen::new(false), false);
        let ended = |name: &str| done.iter().find(|done| done.name == name).map(|done| &done.outcome).unwrap();
        assert_eq!(done.len(), 5);
        assert_eq!(ended("try-first").passed, 1, "{:?}", ended("try-first").notes);
        assert_eq!((ended("try-next").passed, ended("try-last").passed, ended("try-wrong").failed), (1, 1, 1));
        assert_eq!((ended("try-never").passed, ended("try-never").failed), (0, 0));
        assert!(ended("try-never").notes[0].contains("not run: `try-wrong` failed"));
    }

    #[test]
    fn what_needs_a_failed_step_is_named_with_it() {
        let outcome = Outcome::one(vec!["it does not compile".to_owned()]);
        let build = Done { name: "build", outcome, wall: Duration::ZERO, cpu: Duration::ZERO };
        let progress = Progress { done: vec![build], ..Progress::default() };
        assert_eq!(progress.failed_need(&TESTS), Some("build"));
        assert_eq!(progress.failed_need(&FMT), None);
    }
}
