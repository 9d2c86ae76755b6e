//! Repeats of a request: when, how often, and what is said in the end.

use super::attempt::{After, Again, Failure};
use super::credentials::Source;
use super::lane::Lane;
use forebay_core::{Error, Kind, Result};
use object_store::aws::AwsCredential;
use std::time::Duration;
use tokio::time::Instant;

/// Attempts that get an answer that cannot be, or find no address, before it counts as certain.
const FEW: u32 = 4;
/// A server with too much to do is left alone for this many times the usual wait.
const BUSY_FACTOR: u32 = 4;

/// The state of one request over its repeats.
pub(super) struct Repeat<'a> {
    lane: &'a Lane,
    verb: &'static str,
    name: &'a str,
    pub(super) deadline: Instant,
    wait: Duration,
    attempts: u32,
    odd: u32,
    renewed: bool,
    /// An earlier attempt may have had an effect.
    pub(super) uncertain: bool,
}

impl<'a> Repeat<'a> {
    pub(super) fn new(lane: &'a Lane, verb: &'static str, name: &'a str) -> Repeat<'a> {
        let deadline = Instant::now() + lane.options.deadline;
        let wait = lane.options.backoff;
        Repeat { lane, verb, name, deadline, wait, attempts: 0, odd: 0, renewed: false, uncertain: false }
    }

    /// Waits until the next attempt, or says why there is none.
    pub(super) async fn after(&mut self, failure: Failure, used: &AwsCredential) -> Result<()> {
        self.attempts += 1;
        match failure {
            Failure::Again(again) => self.again(again).await,
            // Once: if the server refuses the new keys too, it is not their age.
            Failure::Denied(_) if !self.renewed && self.lane.keys.renew(used) => {
                self.renewed = true;
                Ok(())
            }
            Failure::Denied(said) => Err(self.denied(&said)),
            Failure::Final(kind, why) => Err(self.error(kind, &why)),
            Failure::Absent => Err(self.error(Kind::Invalid, "the server does not know this place")),
            Failure::Condition => {
                Err(self.error(Kind::Corrupt, "the server refused a condition that nobody asked for"))
            }
        }
    }

    async fn again(&mut self, again: Again) -> Result<()> {
        self.uncertain |= again.uncertain;
        self.odd += u32::from(matches!(again.after, After::Odd | After::Few));
        if self.odd >= FEW {
            let kind = if again.after == After::Odd { Kind::Corrupt } else { Kind::Unavailable };
            return Err(self.given_up(kind, &again.why));
        }
        let most = self.lane.options.backoff_max;
        let wait = match again.after {
            After::Once => Duration::ZERO,
            After::Busy(asked) => asked.unwrap_or_default().max((self.wait * BUSY_FACTOR).min(most)),
            _ => self.wait,
        };
        // Of many clients that were refused at once, not all come back at once.
        let wait = wait.mul_f64(rand::random_range(1.0..1.5));
        if !wait.is_zero() {
            self.wait = (self.wait * 2).min(most);
        }
        if Instant::now() + wait >= self.deadline {
            return Err(self.given_up(Kind::Unavailable, &again.why));
        }
        tokio::time::sleep(wait).await;
        Ok(())
    }

    fn given_up(&self, kind: Kind, why: &str) -> Error {
        let attempts = self.attempts;
        let seconds = self.lane.options.deadline.as_secs_f64();
        let why =
            format!("{why} (attempt {attempts}, at most {seconds} s; the server is {})", self.lane.server.endpoint);
        // Reads have no effect that could be unknown.
        let writes = self.verb == "write" || self.verb == "remove";
        self.error(if writes && self.uncertain { Kind::OutcomeUnknown } else { kind }, &why)
    }

    fn denied(&self, said: &str) -> Error {
        let hint = match self.lane.keys.source() {
            Source::Anonymous => "AWS_SKIP_SIGNATURE is set: requests are not signed",
            Source::Environment => "the keys are those of AWS_ACCESS_KEY_ID; check them, their token and their rights",
            Source::Files => "the keys are those of the profile in ~/.aws; renew or check them, and their rights",
        };
        let absent = match self.verb {
            "read" | "look at" => "; without the right to list, a missing object is answered so too",
            _ => "",
        };
        self.error(Kind::Invalid, &format!("the server refuses access: {said} ({hint}{absent})"))
    }

    /// An error that names the place.
    pub(super) fn error(&self, kind: Kind, why: &str) -> Error {
        let address = &self.lane.address;
        let (bucket, prefix) = (&address.bucket, &address.prefix);
        let why = self.lane.keys.hide(why);
        Error::new(kind, format!("cannot {} {prefix}{} in bucket {bucket}: {why}", self.verb, self.name))
    }
}
