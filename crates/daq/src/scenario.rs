//! A scenario: a configuration that runs to its end or until it is stopped, and gives a summary.
//!
//! ```text
//! choices ─▶ run(choices, stop, told) ─▶ summary ─▶ verdict
//!                          │      └ Progress, about twice a second, on the calling thread
//!                          └ set by the caller: ends it in order, with a summary
//! ```
//!
//! *On failure*: a scenario that cannot go on is an error; one that went on and does not add up is a summary with problems.
//!
//! *Not here*: signals, texts, exit codes.

use serde::Serialize;

/// How a scenario ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All is as it should be.
    Sound,
    /// Something is missing, wrong, or does not add up.
    Unsound,
    /// It was stopped before its end, in order.
    Stopped,
}

/// What a scenario came to.
pub trait Summary: Serialize {
    /// What holds where there are no problems: a word, a colon, and what it means.
    fn claim(&self) -> &'static str;

    /// What does not hold, one sentence each.
    fn problems(&self) -> Vec<String>;

    /// Whether it is judged although it was stopped: an account has to add up then as well. Otherwise what is missing was
    /// not done yet.
    fn is_judged_when_stopped(&self) -> bool {
        true
    }

    /// How it ended; `stopped` where the caller asked for the end.
    fn verdict(&self, stopped: bool) -> Verdict {
        match (self.problems().is_empty(), stopped) {
            // What is missing then was not done yet, which is no problem.
            (false, true) if !self.is_judged_when_stopped() => Verdict::Stopped,
            (false, _) => Verdict::Unsound,
            (true, true) => Verdict::Stopped,
            (true, false) => Verdict::Sound,
        }
    }
}
