//! One attempt of a request: what came of it, and what that means.
//!
//! `object_store` makes the request and reads the answer; what it does not tell (the code of an error, whether anything was
//! sent, the clock of the server) is noted here by the connection below it, through a variable of the task.

use forebay_core::Kind;
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::header::{DATE, HeaderMap, HeaderName, LAST_MODIFIED, RETRY_AFTER};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Bytes of an error that are read.
pub(super) const ERROR_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a server's message that are repeated to the user.
const MESSAGE_BYTES_MAX: usize = 200;

tokio::task_local! {
    /// The attempt that this task makes.
    pub(super) static ATTEMPT: Arc<Attempt>;
}

/// An attempt, as the connection sees it.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    /// Bytes that a good answer may have.
    pub(super) bytes_max: u64,
    seen: Mutex<Seen>,
}

/// The bytes that a good answer has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    /// At most these, where the length of the object is not known.
    AtMost(u64),
    /// These, of an object that may have more.
    Part(u64),
}

/// What came of an attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// A part was asked for: a longer answer is a mistake of the server's, not a longer object.
    pub(super) is_part: bool,
    /// A byte of the request may have reached the server.
    pub(super) sent: bool,
    /// The status of the answer.
    pub(super) status: Option<u16>,
    /// Code and message of an error, as S3 gives them.
    pub(super) code: String,
    pub(super) message: String,
    /// The region where the server says the bucket is.
    pub(super) region: Option<String>,
    pub(super) retry_after: Option<Duration>,
    /// The clock of the server, and when the object was written by it.
    pub(super) date: Option<SystemTime>,
    pub(super) modified: Option<SystemTime>,
    pub(super) fault: Option<Fault>,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The server's name has no address.
    NoName(String),
    /// No connection.
    Connect(String),
    /// The server's certificate is not trusted.
    Untrusted(String),
    /// The connection ended; a reused one may have ended long before.
    Lost { why: String, reused: bool },
    /// No byte of progress for this long.
    Stalled(Duration),
    /// The answer has these bytes, which is more than was allowed.
    TooLong(u64),
}

impl Attempt {
    pub(super) fn new(expected: Expected) -> Arc<Attempt> {
        let (bytes_max, is_part) = match expected {
            Expected::AtMost(bytes) => (bytes, false),
            Expected::Part(bytes) => (bytes, true),
        };
        Arc::new(Attempt { bytes_max, seen: Mutex::new(Seen { is_part, ..Seen::default() }) })
    }

    pub(super) fn note<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        change(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn seen(&self) -> Seen {
        self.note(|seen| seen.clone())
    }
}

impl Seen {
    pub(super) fn note_head(&mut self, status: u16, headers: &HeaderMap) {
        let text = |name: HeaderName| headers.get(name)?.to_str().ok();
        let time = |name: HeaderName| httpdate::parse_http_date(text(name)?).ok();
        self.status = Some(status);
        self.date = time(DATE);
        self.modified = time(LAST_MODIFIED);
        self.retry_after = text(RETRY_AFTER).and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        self.region = text(HeaderName::from_static("x-amz-bucket-region")).map(str::to_owned);
    }

    /// Code and message of an error's XML. Nothing else of it is kept: some servers repeat tokens and signatures there.
    pub(super) fn note_error(&mut self, body: &[u8]) {
        let text = String::from_utf8_lossy(body);
        let element = |name: &str| {
            let from = text.find(&format!("<{name}>"))? + name.len() + 2;
            let length = text[from..].find('<')?;
            let plain = text[from..from + length].chars().filter(|c| !c.is_control());
            Some(plain.take(MESSAGE_BYTES_MAX).collect::<String>())
        };
        self.code = element("Code").unwrap_or_default();
        self.message = element("Message").unwrap_or_default();
    }

    /// What the server said, in a few words.
    fn said(&self) -> String {
        let status = self.status.map(|status| status.to_string()).unwrap_or_default();
        let parts = [status.as_str(), self.code.as_str(), self.message.as_str()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// What a failed attempt means.
#[derive(Debug)]
pub(super) enum Failure {
    /// No object has this name.
    Absent,
    /// The condition of a put does not hold.
    Condition,
    /// The keys are refused: others may be there by now.
    Denied(String),
    /// Another attempt may succeed.
    Again(Again),
    /// No other attempt can.
    Final(Kind, String),
}

/// How to try again.
#[derive(Debug)]
pub(super) struct Again {
    pub(super) why: String,
    pub(super) after: After,
    /// The attempt may have had an effect.
    pub(super) uncertain: bool,
}

/// When to try again, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// At once, on another connection.
    Once,
    /// With backoff, until the deadline.
    Backoff,
    /// The server has too much to do: not before this.
    Busy(Option<Duration>),
    /// With backoff, a few times: a name without an address.
    Few,
    /// With backoff, a few times: an answer that cannot be.
    Odd,
}

/// Codes that ask for fewer requests. The request was not carried out.
const BUSY: [&str; 4] = ["SlowDown", "ServiceUnavailable", "RequestLimitExceeded", "TooManyRequests"];
/// Codes of 400 that ask for other keys.
const EXPIRED: [&str; 4] = ["ExpiredToken", "InvalidToken", "TokenRefreshRequired", "ExpiredTokenException"];
/// Codes of 400 where the request was damaged or cut on its way.
const DAMAGED: [&str; 5] =
    ["RequestTimeout", "BadDigest", "InvalidDigest", "IncompleteBody", "XAmzContentSHA256Mismatch"];

/// The meaning of an attempt that failed with this error of `object_store`'s.
pub(super) fn classify(seen: &Seen, error: &object_store::Error) -> Failure {
    let again = |why: String, after: After, uncertain: bool| Failure::Again(Again { why, after, uncertain });
    if let Some(fault) = &seen.fault {
        return match fault {
            Fault::NoName(why) => again(why.clone(), After::Few, false),
            Fault::Connect(why) => again(why.clone(), After::Backoff, false),
            Fault::Untrusted(why) => Failure::Final(
                Kind::Invalid,
                format!("{why}; name the file of the authority that signs it in AWS_CA_BUNDLE"),
            ),
            Fault::Lost { why, reused: true } => again(why.clone(), After::Once, seen.sent),
            Fault::Lost { why, reused: false } => again(why.clone(), After::Backoff, seen.sent),
            Fault::Stalled(time) => again(format!("no progress for {time:?}"), After::Backoff, seen.sent),
            Fault::TooLong(_) if !seen.is_part => Failure::Final(Kind::Corrupt, fault.to_string()),
            Fault::TooLong(_) => again(fault.to_string(), After::Odd, seen.sent),
        };
    }
    let said = seen.said();
    let code = seen.code.as_str();
    let is_busy = BUSY.contains(&code);
    match seen.status {
        Some(404) if code == "NoSuchBucket" => {
            Failure::Final(Kind::Invalid, format!("{said}; check the bucket's name and AWS_ENDPOINT_URL, or create it"))
        }
        Some(404) => Failure::Absent,
        Some(412) => Failure::Condition,
        Some(416) => Failure::Final(Kind::Corrupt, format!("it is shorter than expected ({said})")),
        Some(403) if code == "RequestTimeTooSkewed" => {
            Failure::Final(Kind::Invalid, format!("{said}; the clock of this machine is wrong"))
        }
        Some(401 | 403) => Failure::Denied(said),
        Some(_) if EXPIRED.contains(&code) => Failure::Denied(said),
        Some(400) if DAMAGED.contains(&code) => again(said, After::Backoff, false),
        Some(408 | 409 | 425) => again(said, After::Backoff, false),
        Some(501) => Failure::Final(Kind::Invalid, format!("{said}; the server does not have this operation")),
        // A proxy may answer 503 after the server took the request; only S3's own words say that nothing happened.
        Some(429 | 503) => again(said, After::Busy(seen.retry_after), !is_busy),
        Some(500..) => again(said, After::Backoff, true),
        Some(status @ 300..400) => {
            let region = seen.region.as_ref().map(|region| format!(" ({region})")).unwrap_or_default();
            let hint = format!("the bucket is in another region{region}: set AWS_REGION and AWS_ENDPOINT_URL for it");
            Failure::Final(Kind::Invalid, format!("redirected ({status}); {hint}"))
        }
        Some(400..500) => Failure::Final(Kind::Invalid, said),
        // A good status, but not an answer to what was asked. The error has names and numbers of headers alone.
        Some(_) => again(format!("an answer that cannot be: {error}"), After::Odd, seen.sent),
        None => again("no answer".to_owned(), After::Backoff, seen.sent),
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::NoName(why) | Fault::Connect(why) | Fault::Untrusted(why) | Fault::Lost { why, .. } => {
                out.write_str(why)
            }
            Fault::Stalled(time) => write!(out, "no progress for {time:?}"),
            Fault::TooLong(bytes) => write!(out, "it has {bytes} bytes or more, which is more than expected"),
        }
    }
}

impl std::error::Error for Fault {}

/// Collects a body with a bound on its bytes and on the time without progress.
pub(super) async fn collect<B>(mut body: B, bytes_max: u64, stall: Duration) -> Result<bytes::Bytes, Fault>
where
    B: Body<Data = bytes::Bytes, Error = hyper::Error> + Unpin,
{
    let lost = |error: hyper::Error| Fault::Lost { why: format!("the answer was cut: {error}"), reused: false };
    let expected = body.size_hint().lower();
    if expected > bytes_max {
        return Err(Fault::TooLong(expected));
    }
    let mut next = async || match tokio::time::timeout(stall, body.frame()).await {
        Err(_) => Err(Fault::Stalled(stall)),
        Ok(frame) => Ok(frame.transpose().map_err(lost)?.and_then(|frame| frame.into_data().ok())),
    };
    let Some(first) = next().await? else { return Ok(bytes::Bytes::new()) };
    if first.len() as u64 == expected {
        return Ok(first);
    }
    let mut all = Vec::with_capacity(usize::try_from(expected).unwrap_or_default().max(first.len()));
    all.extend_from_slice(&first);
    while let Some(frame) = next().await? {
        all.extend_from_slice(&frame);
        if all.len() as u64 > bytes_max {
            return Err(Fault::TooLong(all.len() as u64));
        }
    }
    Ok(all.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: u16, code: &str) -> Failure {
        let seen = Seen { sent: true, status: Some(status), code: code.to_owned(), ..Seen::default() };
        classify(&seen, &object_store::Error::Generic { store: "S3", source: "x".into() })
    }

    #[test]
    fn each_answer_has_its_meaning() {
        assert!(matches!(failure(404, "NoSuchKey"), Failure::Absent));
        assert!(matches!(failure(404, "NoSuchBucket"), Failure::Final(Kind::Invalid, _)));
        assert!(matches!(failure(412, ""), Failure::Condition));
        assert!(matches!(failure(403, "ExpiredToken"), Failure::Denied(_)));
        assert!(matches!(failure(400, "ExpiredToken"), Failure::Denied(_)));
        assert!(matches!(failure(301, ""), Failure::Final(Kind::Invalid, _)));
        assert!(matches!(
            failure(503, "SlowDown"),
            Failure::Again(Again { uncertain: false, after: After::Busy(_), .. })
        ));
        assert!(matches!(failure(503, ""), Failure::Again(Again { uncertain: true, .. })));
        assert!(matches!(failure(500, "InternalError"), Failure::Again(Again { uncertain: true, .. })));
        assert!(matches!(failure(400, "XAmzContentSHA256Mismatch"), Failure::Again(Again { uncertain: false, .. })));
        assert!(matches!(failure(206, ""), Failure::Again(Again { after: After::Odd, .. })));
    }

    #[test]
    fn of_an_error_only_code_and_message_are_kept() {
        let mut seen = Seen::default();
        seen.note_error(
            b"<Error><Code>InvalidToken</Code><Message>no\ngood</Message><Token-0>secret</Token-0></Error>",
        );
        assert_eq!((seen.code.as_str(), seen.message.as_str()), ("InvalidToken", "nogood"));
        assert!(!format!("{seen:?}").contains("secret"));
        seen.note_error(b"<Code>");
        seen.note_error(&[0xff; 10]);
        assert_eq!(seen.said(), "");
    }
}
