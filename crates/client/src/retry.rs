//! Decides what a call does after a failed try: one state machine without I/O and clock, which both clients drive.
//!
//! ```text
//!          ┌──────────────── wait, then ─────────────────┐
//! try ─────┤ failed(how, now, draw) ──▶ Wait(pause) ─────┘
//!          └──────────────────────────▶ GiveUp(error): the answer to the caller
//! ```
//!
//! *Invariants*: no wait ends behind the deadline; a call of [`Repeat::Never`] that was sent is never tried again; once a try
//! that may have taken effect has no answer, every later error says so (tests below).
//!
//! *Not here*: connections, and how a driver waits (`pool.rs`, `asynchronous/`).

use crate::options::Options;
use forebay_core::{Error, Kind, Repeat};
use std::time::{Duration, Instant};

/// Why a try did not succeed.
pub(crate) enum Failure {
    /// The server answered this call with an error: final.
    Refused(Error),
    /// There is no connection and will be none: the server refuses this client, or the client is closed. Nothing was sent.
    Barred(Error),
    /// Nothing was sent.
    Unsent(Error),
    /// It was sent, and no answer came: whether it took effect is not known.
    Lost(Error),
}

impl Failure {
    /// The error, for any kind of failure.
    pub(crate) fn error(self) -> Error {
        match self {
            Failure::Refused(error) | Failure::Barred(error) | Failure::Unsent(error) | Failure::Lost(error) => error,
        }
    }
}

/// The next step of a call.
#[derive(Debug)]
pub(crate) enum Step {
    /// Wait so long, then try again.
    Wait(Duration),
    /// The call ends with this error.
    GiveUp(Error),
}

/// One call, over all its tries.
pub(crate) struct Retry {
    repeat: Repeat,
    end: Instant,
    /// The longest that the next pause may be.
    pause: Duration,
    pause_max: Duration,
    is_repeat: bool,
}

impl Retry {
    /// A call that must be over by `end`.
    pub(crate) fn new(repeat: Repeat, end: Instant, options: &Options) -> Retry {
        Retry { repeat, end, pause: options.backoff, pause_max: options.backoff_max, is_repeat: false }
    }

    /// When the call must be over.
    pub(crate) fn end(&self) -> Instant {
        self.end
    }

    /// Whether an earlier try was sent, so that it may have taken effect, and has no answer.
    pub(crate) fn is_repeat(&self) -> bool {
        self.is_repeat
    }

    /// A try failed. `draw` is a random number from 0 to 1: pauses differ, so that many clients do not come back at once.
    pub(crate) fn failed(&mut self, failure: Failure, now: Instant, draw: f64) -> Step {
        debug_assert!(!self.is_repeat || self.repeat == Repeat::Safe, "only what is safe is tried without an answer");
        let error = match failure {
            Failure::Refused(error) => return Step::GiveUp(if self.is_repeat { error.of_repeat() } else { error }),
            // A server that takes no more connections says nothing about what was sent before.
            Failure::Barred(error) => return self.give_up(error),
            Failure::Unsent(error) => error,
            Failure::Lost(error) if self.repeat == Repeat::Never => return Step::GiveUp(unknown(&error)),
            Failure::Lost(error) => {
                // Remembered for the rest of the call: a later refusal says nothing about the try that got no answer.
                self.is_repeat = self.repeat == Repeat::Safe;
                error
            }
        };
        // Half of the pause is fixed, half is drawn: a restarted server is not met by all its clients at once.
        let pause = self.pause.mul_f64(0.5 + draw / 2.0);
        // A pause up to the end would leave no time for the try behind it.
        if self.end.saturating_duration_since(now) <= pause || error.kind() == Kind::Closed {
            return self.give_up(error);
        }
        self.pause = (self.pause * 2).min(self.pause_max);
        debug_assert!(now + pause < self.end, "a pause ends before the deadline");
        Step::Wait(pause)
    }

    fn give_up(&self, error: Error) -> Step {
        Step::GiveUp(if self.is_repeat { unknown(&error) } else { error })
    }
}

/// The same call may be made again: whether it took effect is not known.
pub(crate) fn unknown(error: &Error) -> Error {
    Error::unknown(format!("whether the call took effect is not known: {}", error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn away() -> Error {
        Error::unavailable("away")
    }

    fn retry(repeat: Repeat) -> (Retry, Instant) {
        let now = Instant::now();
        let options = Options {
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_millis(250),
            ..Options::default()
        };
        (Retry::new(repeat, now + SECOND, &options), now)
    }

    fn wait(step: Step) -> Duration {
        match step {
            Step::Wait(pause) => pause,
            Step::GiveUp(error) => panic!("given up: {error}"),
        }
    }

    fn end(step: Step) -> Error {
        match step {
            Step::GiveUp(error) => error,
            Step::Wait(pause) => panic!("waits {pause:?}"),
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_are_drawn() {
        let (mut retry, now) = retry(Repeat::Looks);
        let mut pause = |draw| wait(retry.failed(Failure::Unsent(away()), now, draw)).as_millis();
        assert_eq!([pause(0.0), pause(0.0), pause(1.0), pause(0.0)], [50, 100, 250, 125]);
    }

    #[test]
    fn no_pause_reaches_the_deadline() {
        let (mut retry, now) = retry(Repeat::Looks);
        let late = now + SECOND - Duration::from_millis(50);
        assert_eq!(end(retry.failed(Failure::Unsent(away()), late, 0.0)).kind(), Kind::Unavailable);
        assert_eq!(end(retry.failed(Failure::Unsent(away()), now + 2 * SECOND, 0.0)).kind(), Kind::Unavailable);
    }

    #[test]
    fn what_must_not_be_repeated_is_unknown_once_it_was_sent() {
        let (mut retry, now) = retry(Repeat::Never);
        wait(retry.failed(Failure::Unsent(away()), now, 0.5));
        assert_eq!(end(retry.failed(Failure::Lost(away()), now, 0.5)).kind(), Kind::OutcomeUnknown);
    }

    #[test]
    fn what_only_looks_has_no_unknown_outcome() {
        let (mut retry, now) = retry(Repeat::Looks);
        wait(retry.failed(Failure::Lost(away()), now, 0.5));
        assert!(!retry.is_repeat());
        assert_eq!(end(retry.failed(Failure::Lost(away()), now + SECOND, 0.5)).kind(), Kind::Unavailable);
    }

    #[test]
    fn every_error_behind_a_lost_answer_says_so() {
        let lost = || {
            let (mut retry, now) = retry(Repeat::Safe);
            wait(retry.failed(Failure::Lost(away()), now, 0.5));
            assert!(retry.is_repeat());
            (retry, now)
        };
        let (mut refused, now) = lost();
        let error = end(refused.failed(Failure::Refused(Error::conflict("other bytes")), now, 0.5));
        assert_eq!((error.kind(), error.earlier_try_unknown()), (Kind::Conflict, true));
        let (mut barred, now) = lost();
        let error = end(barred.failed(Failure::Barred(Error::invalid("no token")), now, 0.5));
        assert_eq!(error.kind(), Kind::OutcomeUnknown);
        let (mut unsent, now) = lost();
        wait(unsent.failed(Failure::Unsent(away()), now, 0.5));
        assert_eq!(end(unsent.failed(Failure::Unsent(away()), now + SECOND, 0.5)).kind(), Kind::OutcomeUnknown);
    }

    #[test]
    fn what_is_final_is_answered_as_it_is() {
        for failure in [Failure::Refused, Failure::Barred, Failure::Unsent] {
            let (mut retry, now) = retry(Repeat::Safe);
            let error = end(retry.failed(failure(Error::closed("over")), now, 0.5));
            assert_eq!((error.kind(), error.earlier_try_unknown()), (Kind::Closed, false));
        }
    }
}
