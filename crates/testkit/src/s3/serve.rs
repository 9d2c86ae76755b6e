//! Requests of the stand-in: what S3 answers to them, with the faults of the script.

use super::control;
use super::delay::Delays;
use super::fault::{self, Kind};
use super::state::{Object, Put, Request as Logged, State};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, LAST_MODIFIED};
use hyper::header::{HeaderName, IF_MATCH, IF_NONE_MATCH, RANGE};
use hyper::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The body of an answer, which may break off.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// A connection is closed without an answer.
#[derive(Debug)]
pub(super) struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("closed on purpose")
    }
}

impl std::error::Error for Closed {}

/// Counts a request as long as it has no answer.
struct InFlight<'a>(&'a Mutex<State>);

impl<'a> InFlight<'a> {
    fn new(state: &'a Mutex<State>) -> InFlight<'a> {
        let mut now = state.lock();
        now.in_flight += 1;
        now.in_flight_max = now.in_flight_max.max(now.in_flight);
        InFlight(state)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.lock().in_flight -= 1;
    }
}

/// Answers a request. `reset`: makes the end of the connection a reset.
pub(super) async fn answer(
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
    delays: &Delays,
    reset: impl Fn(),
) -> Result<Answer, Closed> {
    let path = decoded(request.uri().path());
    let query = request.uri().query().unwrap_or_default().to_owned();
    if let Some(what) = path.strip_prefix("/_control/") {
        let (status, text) = control::answer(&mut state.lock(), request.method(), what, &query);
        return Ok(plain(status, text));
    }
    let in_flight = InFlight::new(&state);
    let name = path.trim_start_matches('/').to_owned();
    let method = request.method().clone();
    let (fault, delay) = {
        let mut state = state.lock();
        (fault::take(&mut state.faults, method.as_str(), &name), state.delay)
    };
    let (head, body) = request.into_parts();
    let sent = body.collect().await.map_err(|_| Closed)?.to_bytes();
    let mut logged =
        Logged { method: method.to_string(), name: name.clone(), status: 0, bytes_in: sent.len() as u64, bytes_out: 0 };
    let header = |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
    match fault {
        Some(Kind::Stall) => {
            state.lock().log.push(logged);
            drop(in_flight);
            match std::future::pending::<Infallible>().await {}
        }
        Some(Kind::Reset) => {
            state.lock().log.push(logged);
            reset();
            return Err(Closed);
        }
        _ => {}
    }
    if !delay.is_zero() {
        delays.wait(delay).await;
    }
    let sent = if fault == Some(Kind::FlipSent) { flipped(&sent) } else { sent };
    let range = if fault == Some(Kind::Whole) { None } else { header(RANGE) };
    let mut answer = match &fault {
        Some(Kind::Status { status, code }) => Plain::error(*status, code),
        _ => {
            let mut state = state.lock();
            let conditions = (header(IF_NONE_MATCH) == Some("*"), header(IF_MATCH));
            match refused(&state, &head.headers, &sent) {
                Some(refused) => refused,
                None => carry_out(&mut state, &method, &name, &query, sent, range, conditions),
            }
        }
    };
    logged.status = answer.status;
    logged.bytes_out = if method == Method::HEAD { 0 } else { answer.body.len() as u64 };
    if fault == Some(Kind::LoseAnswer) {
        logged.status = 0;
    }
    let now = {
        let mut state = state.lock();
        state.log.push(logged);
        state.now()
    };
    answer.headers.push((DATE, httpdate::fmt_http_date(now)));
    answer.disturbed(fault, &method)
}

/// What is wrong with the request itself: an expired token, a body that is not the one that was signed.
fn refused(state: &State, headers: &hyper::HeaderMap, sent: &[u8]) -> Option<Plain> {
    let header = |name: &'static str| headers.get(name).and_then(|value| value.to_str().ok());
    if header("x-amz-security-token").is_some_and(|token| state.expired.contains(token)) {
        return Some(Plain::error(400, "ExpiredToken"));
    }
    let signed = header("x-amz-content-sha256").filter(|hash| hash.len() == 64 && !state.trusts_bodies)?;
    let hash = ring::digest::digest(&ring::digest::SHA256, sent);
    let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    (hash != signed).then(|| Plain::error(400, "XAmzContentSHA256Mismatch"))
}

fn carry_out(
    state: &mut State,
    method: &Method,
    name: &str,
    query: &str,
    sent: Bytes,
    range: Option<&str>,
    (if_absent, if_match): (bool, Option<&str>),
) -> Plain {
    let (bucket, key) = name.split_once('/').unwrap_or((name, ""));
    if key.is_empty() {
        return match *method {
            Method::PUT => {
                state.buckets.insert(bucket.to_owned());
                Plain::new(200)
            }
            Method::GET if query.contains("list-type") => list(state, bucket, query),
            _ => Plain::error(501, "NotImplemented"),
        };
    }
    if !state.buckets.contains(bucket) {
        return Plain::error(404, "NoSuchBucket");
    }
    match *method {
        Method::GET | Method::HEAD => {
            let there = state.objects.get(name).cloned();
            there.map_or_else(|| Plain::error(404, "NoSuchKey"), |object| read(object, range))
        }
        Method::PUT => match state.put(name, sent, if_absent, if_match) {
            Put::Done(tag) => Plain { headers: vec![(ETAG, tag)], ..Plain::new(200) },
            Put::Refused => Plain::error(412, "PreconditionFailed"),
            Put::Absent => Plain::error(404, "NoSuchKey"),
        },
        Method::DELETE => {
            state.objects.remove(name);
            Plain::new(204)
        }
        _ => Plain::error(501, "NotImplemented"),
    }
}

/// A page of a listing, with few names, so that tests have several.
fn list(state: &State, bucket: &str, query: &str) -> Plain {
    const PAGE: usize = 50;
    let value = |name: &str| {
        let pair = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        decoded(pair.unwrap_or_default())
    };
    let (prefix, after) = (format!("{bucket}/{}", value("prefix")), value("continuation-token"));
    let names = state.objects.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(&prefix));
    let mut names = names.filter(|(name, _)| after.is_empty() || name.as_str() > after.as_str());
    let mut text = "<ListBucketResult>".to_owned();
    let mut last = "";
    for (name, object) in names.by_ref().take(PAGE) {
        let (key, bytes, tag) = (&name[bucket.len() + 1..], object.bytes.len(), object.tag.trim_matches('"'));
        // The time that is written there matters to nobody here: ages are asked for one by one.
        text += &format!(
            "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{tag}</ETag>\
             <Size>{bytes}</Size></Contents>"
        );
        last = name;
    }
    let more = names.next().is_some();
    text += &format!("<IsTruncated>{more}</IsTruncated>");
    if more {
        text += &format!("<NextContinuationToken>{last}</NextContinuationToken>");
    }
    let mut answer = Plain::new(200);
    answer.body = (text + "</ListBucketResult>").into();
    answer
}

fn read(object: Object, range: Option<&str>) -> Plain {
    let length = object.bytes.len();
    let mut answer = Plain::new(200);
    answer.headers = vec![(ETAG, object.tag), (LAST_MODIFIED, httpdate::fmt_http_date(object.modified))];
    let Some((from, to)) = range.and_then(|range| range.strip_prefix("bytes=")).and_then(|range| range.split_once('-'))
    else {
        answer.body = object.bytes;
        return answer;
    };
    let (Ok(from), to) = (from.parse::<usize>(), to.parse::<usize>().unwrap_or(usize::MAX)) else {
        return Plain::error(416, "InvalidRange");
    };
    if from >= length {
        return Plain::error(416, "InvalidRange");
    }
    let end = to.saturating_add(1).min(length);
    answer.status = 206;
    answer.headers.push((CONTENT_RANGE, format!("bytes {from}-{}/{length}", end - 1)));
    answer.body = object.bytes.slice(from..end);
    answer
}

/// An answer before faults.
struct Plain {
    status: u16,
    headers: Vec<(HeaderName, String)>,
    body: Bytes,
}

impl Plain {
    fn new(status: u16) -> Plain {
        Plain { status, headers: vec![], body: Bytes::new() }
    }

    fn error(status: u16, code: &str) -> Plain {
        let mut answer = Plain::new(status);
        if !code.is_empty() {
            let text = format!("<Error><Code>{code}</Code><Message>said by the stand-in</Message></Error>");
            answer.headers.push((CONTENT_TYPE, "application/xml".to_owned()));
            answer.body = text.into();
        }
        answer
    }

    fn head(&self) -> hyper::http::response::Builder {
        let builder = Response::builder().status(self.status);
        self.headers.iter().fold(builder, |builder, (name, value)| builder.header(name, value))
    }

    /// The answer that a fault leaves.
    fn disturbed(mut self, fault: Option<Kind>, method: &Method) -> Result<Answer, Closed> {
        match fault {
            Some(Kind::LoseAnswer) => return Err(Closed),
            Some(Kind::Cut) => return Ok(self.half(false)),
            Some(Kind::StallBody) => return Ok(self.half(true)),
            Some(Kind::Flip) => self.body = flipped(&self.body),
            Some(Kind::Short) => self.body.truncate(self.body.len() / 2),
            _ => {}
        }
        Ok(self.whole(method))
    }

    fn whole(self, method: &Method) -> Answer {
        let head = self.head().header(CONTENT_LENGTH, self.body.len());
        let body = if *method == Method::HEAD { Bytes::new() } else { self.body };
        built(head, Full::new(body).map_err(|never| match never {}))
    }

    /// Half of the body, then the end of the connection, or nothing more.
    fn half(self, stalls: bool) -> Answer {
        let head = self.head().header(CONTENT_LENGTH, self.body.len());
        let half = self.body.slice(..self.body.len() / 2);
        built(head, Half { half: Some(half), stalls })
    }
}

fn built(
    head: hyper::http::response::Builder,
    body: impl Body<Data = Bytes, Error = io::Error> + Send + 'static,
) -> Answer {
    let failed = |_| Response::new(UnsyncBoxBody::new(Full::default().map_err(|never| match never {})));
    head.body(UnsyncBoxBody::new(body)).unwrap_or_else(failed)
}

fn plain(status: StatusCode, text: String) -> Answer {
    let answer = Plain { status: status.as_u16(), headers: vec![], body: text.into() };
    answer.whole(&Method::GET)
}

struct Half {
    half: Option<Bytes>,
    stalls: bool,
}

impl Body for Half {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.half.take() {
            Some(half) => Poll::Ready(Some(Ok(Frame::data(half)))),
            None if self.stalls => Poll::Pending,
            None => Poll::Ready(Some(Err(io::Error::other(Closed)))),
        }
    }
}

fn flipped(bytes: &Bytes) -> Bytes {
    let mut flipped = bytes.to_vec();
    let middle = flipped.len() / 2;
    if let Some(byte) = flipped.get_mut(middle) {
        *byte ^= 1;
    }
    flipped.into()
}

/// A path without its percent escapes.
pub(super) fn decoded(path: &str) -> String {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| after.get(..2)).flatten();
        let byte = escaped.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        decoded.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
