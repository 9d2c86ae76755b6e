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

use crate::options::{FAR, Options};
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

/// Least time for which a server is tried.
const REACH_MIN: Duration = Duration::from_millis(500);

/// Of a long time a server has this part: with less, a put that waits for hours would be too many steps, each within the one before.
const PARTS_OF_LONG: u32 = 8;

/// The time that a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// When it must be over.
    pub(crate) end: Instant,
    /// Until when it is tried while nothing was sent: then somebody else may be asked, in the time that is left.
    pub(crate) reach: Instant,
}

impl Limit {
    /// Until then, all for one server.
    pub(crate) fn new(end: Instant) -> Limit {
        Limit { end, reach: end }
    }

    /// Until then, with one try to reach the server.
    pub(crate) fn once(now: Instant, end: Instant) -> Limit {
        Limit { end, reach: now }
    }

    /// Until then; half of the time that is left now is for a server to be reached, and less of what is more than `usual`.
    pub(crate) fn half(now: Instant, end: Instant, usual: Duration) -> Limit {
        let left = end.saturating_duration_since(now);
        let part = (left.min(usual) / 2).max(left / PARTS_OF_LONG).max(REACH_MIN);
        Limit { end, reach: now + part.min(left) }
    }

    /// The part of it that one of several addresses of a server has which are tried one after another.
    pub(crate) fn share(self, now: Instant, addresses: u32) -> Limit {
        let reach = now + self.reach.saturating_duration_since(now) / addresses.max(1);
        Limit { reach: self.reach.min(reach), ..self }
    }

    /// Without an end, once the server is reached.
    pub(crate) fn open_ended(self) -> Limit {
        Limit { end: self.end + FAR, ..self }
    }

    /// The part for a server to be reached, for all of the call.
    pub(crate) fn whole(self) -> Limit {
        Limit::new(self.reach)
    }

    /// The server was not reached in its part of the time, and there is more.
    pub(crate) fn leaves_time(&self, now: Instant, error: &Error) -> bool {
        error.is_unanswered() && self.reach <= now && now < self.end
    }

    /// Until when a connection is waited for that is begun now.
    pub(crate) fn connect_by(&self, now: Instant) -> Instant {
        self.reach.max(now + REACH_MIN).min(self.end)
    }

    /// What both allow.
    pub(crate) fn and(self, other: Limit) -> Limit {
        Limit { end: self.end.min(other.end), reach: self.reach.min(other.reach) }
    }
}

/// One call, over all its tries.
pub(crate) struct Retry {
    repeat: Repeat,
    limit: Limit,
    /// The longest that the next pause may be.
    pause: Duration,
    pause_max: Duration,
    is_repeat: bool,
}

impl Retry {
    /// A call that has this time.
    pub(crate) fn new(repeat: Repeat, limit: Limit, options: &Options) -> Retry {
        Retry { repeat, limit, pause: options.backoff, pause_max: options.backoff_max, is_repeat: false }
    }

    /// When the call must be over.
    pub(crate) fn end(&self) -> Instant {
        self.limit.end
    }

    /// The time that it has as things are: once it may have taken effect, nobody else may be asked.
    pub(crate) fn limit(&self) -> Limit {
        if self.is_repeat { Limit::new(self.limit.end) } else { self.limit }
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
            Failure::Unsent(error) => error.of_no_answer(),
            Failure::Lost(error) if self.repeat == Repeat::Never => return Step::GiveUp(unknown(&error)),
            Failure::Lost(error) => {
                // Remembered for the rest of the call: a later refusal says nothing about the try that got no answer.
                self.is_repeat = self.repeat == Repeat::Safe;
                // What only looks has changed nothing.
                error.of_no_answer()
            }
        };
        // Half of the pause is fixed, half is drawn: a restarted server is not met by all its clients at once.
        let pause = self.pause.mul_f64(0.5 + draw / 2.0);
        let Limit { end, reach } = self.limit();
        // A pause up to the end would leave no time for the try behind it.
        let is_over = now >= reach || end.saturating_duration_since(now) <= pause;
        if is_over || error.kind() == Kind::Closed {
            return self.give_up(error);
        }
        // The last try begins when somebody else may be asked, if that fails.
        let pause = pause.min(reach.saturating_duration_since(now));
        self.pause = (self.pause * 2).min(self.pause_max);
        debug_assert!(now + pause < end, "a pause ends before the deadline");
        Step::Wait(pause)
    }

    fn give_up(&self, error: Error) -> Step {
        Step::GiveUp(if self.is_repeat { unknown(&error) } else { error })
    }
}

/// The same call may be made again: whether it took effect is not known.
pub(crate) fn unknown(error: &Error) -> Error {
    Error::unknown(format!("whether the call took effect is not known: {}", error.message())).of_no_answer()
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
        (Retry::new(repeat, Limit::new(now + SECOND), &options), now)
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
    fn others_have_half_of_the_time_unless_it_may_have_taken_effect() {
        let now = Instant::now();
        let (limit, options) = (Limit::half(now, now + 10 * SECOND, 10 * SECOND), Options::default());
        let of_call = |lost| {
            let mut retry = Retry::new(Repeat::Safe, limit, &options);
            let (mut at, mut failure) = (now, if lost { Failure::Lost(away()) } else { Failure::Unsent(away()) });
            loop {
                match retry.failed(failure, at, 0.5) {
                    Step::Wait(pause) => at += pause,
                    Step::GiveUp(error) => return (at - now, error.kind()),
                }
                failure = Failure::Unsent(away());
            }
        };
        assert_eq!(of_call(false), (5 * SECOND, Kind::Unavailable), "tried until then, and no longer");
        let (took, kind) = of_call(true);
        assert!(took > 9 * SECOND && took < 10 * SECOND && kind == Kind::OutcomeUnknown, "{took:?}");
        let leaves = |after| limit.leaves_time(now + after, &away().of_no_answer());
        assert_eq!([5, 10].map(|seconds| leaves(seconds * SECOND)), [true, false]);
        assert!(!leaves(5 * SECOND - Duration::from_millis(1)), "not over yet");
        assert!(!limit.leaves_time(now + 5 * SECOND, &away()), "an answer of a server");
        // A connection that is begun at the end of its part has a time of its own.
        assert_eq!(limit.connect_by(now + 5 * SECOND), now + 5 * SECOND + REACH_MIN);
        let half = |end| Limit::half(now, end, 10 * SECOND);
        assert_eq!(half(now + REACH_MIN), Limit::new(now + REACH_MIN), "no parts of little");
        assert_eq!([0, 30, 3600].map(|end| (half(now + end * SECOND).reach - now).as_secs()), [0, 5, 450]);
        // Each of its addresses has a part, also of one try.
        let share = |limit: Limit, all| (limit.share(now, all).reach - now).as_millis();
        assert_eq!((share(limit, 1), share(limit, 2), share(Limit::once(now, now + SECOND), 3)), (5000, 2500, 0));
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
