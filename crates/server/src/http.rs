//! Metrics and probes over HTTP: one request for each connection.
//!
//! | Path | Answer |
//! |---|---|
//! | `/metrics` | everything that is counted, as Prometheus reads it |
//! | `/livez` | 200 while every event loop goes round, else 503 |
//! | `/readyz` | 200 while the server takes requests, else 503 |
//! | `/status` | the state in words, as JSON: inhibit with cause and owner, alarms |
//! | `/` | links |
//!
//! *Invariants*: at most [`CONNECTIONS_MAX`] at once, each with a bound on its head and its life; one look at the stores
//! at a time, on a thread that may wait (test `slow_clients_are_shown_out` in `tests/seen`).
//!
//! *On failure*: a request that fails ends with its status; nobody else notices.

use crate::page::{CONTENT_TYPE, Scraper, is_ready};
use crate::shared::Shared;
use forebay_core::{Kind, Result, ServedStore};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE as TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Name of the listener in metrics.
const LISTENER: &str = "http";
/// Connections at once: monitors are few.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Lines of a request's head.
const HEAD_LINES_MAX: usize = 64;
/// Time for a request's head to arrive.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);
/// Time for a look at the stores to begin, where others are before it.
const TURN_DEADLINE: Duration = Duration::from_secs(10);
/// Time for a connection from its beginning to its end.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(30);

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

const LINKS: &str = "<!doctype html><html lang=\"en\"><title>Forebay</title><h1>Forebay</h1><ul>\
    <li><a href=\"/metrics\">/metrics</a>: counters, for Prometheus</li>\
    <li><a href=\"/status\">/status</a>: inhibit and alarms in words</li>\
    <li><a href=\"/livez\">/livez</a>: every event loop goes round</li>\
    <li><a href=\"/readyz\">/readyz</a>: requests are taken</li></ul></html>\n";

/// What answers requests, shared by all connections.
struct Site<S> {
    shared: Arc<Shared>,
    scraper: Scraper<S>,
    turn: Arc<Semaphore>,
}

/// Answers requests until it is dropped. The scraper's first look was taken when the server began.
pub(crate) async fn serve<S: ServedStore>(listener: std::net::TcpListener, shared: Arc<Shared>, scraper: Scraper<S>) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return tracing::error!(listener = LISTENER, "a listener cannot be watched");
    };
    // Limits of their own: monitors must get through while clients use up all connections.
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let turn = Arc::new(Semaphore::new(1));
    let site = Arc::new(Site { shared: shared.clone(), scraper, turn });
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, listener = LISTENER, "a connection could not be taken");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            shared.metrics.refused(LISTENER, "limit");
            continue;
        };
        shared.metrics.connected(LISTENER);
        tokio::task::spawn_local(connection(stream, site.clone(), place));
    }
}

async fn connection<S: ServedStore>(stream: TcpStream, site: Arc<Site<S>>, place: OwnedSemaphorePermit) {
    let shared = site.shared.clone();
    let answering = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        // One request per connection: the deadline of a connection is then that of its request.
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEAD_LINES_MAX)
        .serve_connection(TokioIo::new(stream), service_fn(move |request| answer(site.clone(), request)));
    let reason = match tokio::time::timeout(CONNECTION_DEADLINE, answering).await {
        Ok(Ok(())) => "closed",
        Ok(Err(error)) if error.is_timeout() => "deadline",
        Ok(Err(_)) => "error",
        Err(_) => "deadline",
    };
    shared.metrics.disconnected(LISTENER, reason);
    drop(place);
}

type Answer = Response<Full<Bytes>>;

async fn answer<S: ServedStore>(
    site: Arc<Site<S>>,
    request: Request<Incoming>,
) -> std::result::Result<Answer, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(answer);
    }
    Ok(match request.uri().path() {
        "/metrics" => look(&site, CONTENT_TYPE, |site| site.scraper.page(&site.shared)).await,
        "/status" => look(&site, JSON, |site| Ok(format!("{}\n", site.scraper.state(&site.shared)?))).await,
        "/livez" if site.shared.alive() => page(StatusCode::OK, TEXT, "alive\n"),
        "/livez" => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, "an event loop hangs\n"),
        "/readyz" if is_ready(&site.shared) => look(&site, TEXT, |site| site.scraper.ready()).await,
        "/readyz" => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{}\n", site.shared.phase().name())),
        "/" => page(StatusCode::OK, HTML, LINKS),
        _ => page(StatusCode::NOT_FOUND, TEXT, "not here: / has what there is\n"),
    })
}

/// A look at the stores in its turn, on a thread that may wait. The turn ends with the look, also where nobody waits for
/// it any more.
async fn look<S: ServedStore>(site: &Arc<Site<S>>, kind: &'static str, take: fn(&Site<S>) -> Result<String>) -> Answer {
    let turn = tokio::time::timeout(TURN_DEADLINE, site.turn.clone().acquire_owned()).await;
    let Ok(Ok(turn)) = turn else {
        return page(StatusCode::SERVICE_UNAVAILABLE, TEXT, "others are looking at the stores: try again\n");
    };
    let taking = site.clone();
    let taken = tokio::task::spawn_blocking(move || {
        // Moved into the thread: where the client goes away, the next look still waits for this one.
        let _turn = turn;
        take(&taking)
    });
    match taken.await {
        Ok(Ok(text)) => page(StatusCode::OK, kind, text),
        Ok(Err(error)) => {
            tracing::error!(%error, "a look at the stores failed");
            let away = error.kind() == Kind::Unavailable;
            let code = if away { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR };
            page(code, TEXT, format!("{error}\n"))
        }
        Err(error) => {
            tracing::error!(%error, "a look at the stores did not end");
            page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "a look at the stores did not end\n")
        }
    }
}

fn page(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
