//! Connections to the server: HTTP/1.1 on TCP or TLS, kept for the next request.
//!
//! *Invariants*: nothing is repeated here once a byte of it may have been sent; each wait for a byte is bounded by `stall`; a
//! connection is kept only after the whole answer was read. Bounded by the requests in flight.
//!
//! *Not here*: proxies (`HTTPS_PROXY` is not used) and redirects (an error names them).

use super::address::Server;
use super::attempt::{self, ATTEMPT, Attempt, ERROR_BYTES_MAX, Fault};
use crate::storage::{Counters, Options};
use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::Error;
use hyper::body::{Body, Frame, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody};
use object_store::client::{HttpResponse, HttpResponseBody, HttpService};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// How long a connection without a request is kept. Servers end theirs after 5 s (some proxies) to a minute and more.
const IDLE_MAX: Duration = Duration::from_secs(20);
/// Progress of a sent body is noticed in steps of this.
const STEP_BYTES: usize = 256 << 10;

/// The connections of a bucket in one process, as `object_store` takes them.
#[derive(Clone, Debug)]
pub(super) struct Http(Arc<Pool>);

struct Pool {
    server: Server,
    tls: Option<TlsConnector>,
    stall: Duration,
    counters: Arc<Counters>,
    /// Those without a request, with the time of their last. Held to take or to give one.
    idle: Mutex<Vec<(SendRequest<Sending>, Instant)>>,
}

/// What TLS trusts: the file of `AWS_CA_BUNDLE` or of the profile, or else what the system trusts.
pub(super) fn trust(
    server: &Server,
    options: &Options,
    bundle: Option<String>,
) -> forebay_core::Result<Option<TlsConnector>> {
    if !server.is_tls {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    match options.variable("AWS_CA_BUNDLE").or(bundle) {
        Some(file) => {
            let wrong =
                |error: &dyn fmt::Display| Error::invalid(format!("cannot take certificates from {file}: {error}"));
            for certificate in CertificateDer::pem_file_iter(&file).map_err(|error| wrong(&error))? {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        let hint = "install the package ca-certificates, or name a file of certificates in AWS_CA_BUNDLE";
        return Err(Error::invalid(format!("no certificate authority is trusted here: {hint}")));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| Error::internal("TLS has no versions").with_source(error))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    // Connections are kept, so that tickets save little, and their lock would be shared with a forked child.
    config.resumption = Resumption::disabled();
    Ok(Some(TlsConnector::from(Arc::new(config))))
}

impl Http {
    pub(super) fn new(server: Server, tls: Option<TlsConnector>, stall: Duration, counters: Arc<Counters>) -> Http {
        Http(Arc::new(Pool { server, tls, stall, counters, idle: Mutex::default() }))
    }
}

impl Pool {
    /// A connection that was used before, if one is ready.
    fn take_idle(&self) -> Option<SendRequest<Sending>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // The last one is the likeliest to be open; those that are too old are below it.
        while let Some((sender, since)) = idle.pop() {
            if since.elapsed() > IDLE_MAX {
                idle.clear();
            } else if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    async fn connect(&self) -> Result<SendRequest<Sending>, Fault> {
        let server = &self.server;
        let place = format!("{}:{}", server.host, server.port);
        let connected = tokio::time::timeout(self.stall, async {
            let addresses = tokio::net::lookup_host((server.host.as_str(), server.port)).await;
            let addresses = addresses.map_err(|error| Fault::NoName(format!("{place} has no address: {error}")))?;
            let mut last = Fault::NoName(format!("{place} has no address"));
            for address in addresses {
                match TcpStream::connect(address).await {
                    Ok(stream) => return self.greet(stream, &place).await,
                    Err(error) => last = Fault::Connect(format!("no connection to {place}: {error}")),
                }
            }
            Err(last)
        });
        let slow = |_| Fault::Connect(format!("no connection to {place} in {:?}", self.stall));
        connected.await.map_err(slow)?
    }

    async fn greet(&self, stream: TcpStream, place: &str) -> Result<SendRequest<Sending>, Fault> {
        // A request is written in one piece: nothing is gained by waiting for more.
        stream.set_nodelay(true).ok();
        let Some(tls) = &self.tls else { return speak(stream).await };
        let name = ServerName::try_from(self.server.host.clone());
        let name = name.map_err(|_| Fault::Untrusted(format!("{place} is no name that a certificate can have")))?;
        match tls.connect(name, stream).await {
            Ok(stream) => speak(stream).await,
            Err(error) => {
                let is_untrusted = |error: &rustls::Error| matches!(error, rustls::Error::InvalidCertificate(_));
                let why = format!("TLS with {place}: {error}");
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
                Err(if inner.is_some_and(is_untrusted) { Fault::Untrusted(why) } else { Fault::Connect(why) })
            }
        }
    }

    async fn exchange(&self, request: HttpRequest, attempt: &Attempt) -> Result<HttpResponse, Fault> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let length = request.body().content_length() as u64;
        let progress = Arc::new(AtomicU64::new(0));
        let mut request = self.prepare(request, &progress);
        let (mut sender, response) = loop {
            let (mut sender, reused) = match self.take_idle() {
                Some(sender) => (sender, true),
                None => (self.connect().await?, false),
            };
            attempt.note(|seen| seen.sent = true);
            match self.with_progress(sender.try_send_request(request), &progress).await? {
                Ok(response) => break (sender, response),
                Err(mut error) => match error.take_message() {
                    // It ended before this request: nothing of it was sent.
                    Some(unsent) if reused => {
                        attempt.note(|seen| seen.sent = false);
                        request = unsent;
                    }
                    unsent => {
                        attempt.note(|seen| seen.sent = unsent.is_none());
                        let why = format!("the connection ended: {}", error.into_error());
                        return Err(Fault::Lost { why, reused });
                    }
                },
            }
        };
        let count = if is_read { Counters::read } else { Counters::write };
        if !is_read {
            count(&self.counters, length);
        }
        let (parts, body) = response.into_parts();
        attempt.note(|seen| seen.note_head(parts.status.as_u16(), &parts.headers));
        let bytes_max = if parts.status.is_success() { attempt.bytes_max } else { ERROR_BYTES_MAX };
        let answer = attempt::collect(body, bytes_max, self.stall).await;
        if is_read {
            count(&self.counters, answer.as_ref().map_or(0, |bytes| bytes.len() as u64));
        }
        let bytes = match answer {
            Ok(bytes) => bytes,
            // The status alone says what to do.
            Err(_) if !parts.status.is_success() => Bytes::new(),
            Err(fault) => return Err(fault),
        };
        if !parts.status.is_success() {
            attempt.note(|seen| seen.note_error(&bytes));
        }
        if sender.ready().await.is_ok() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((sender, Instant::now()));
        }
        Ok(Response::from_parts(parts, HttpResponseBody::from(bytes)))
    }

    /// The request as it is written: with a path alone, and with the server's name.
    fn prepare(&self, request: HttpRequest, progress: &Arc<AtomicU64>) -> Request<Sending> {
        let (mut parts, body) = request.into_parts();
        let authority = parts.uri.authority().and_then(|name| HeaderValue::from_str(name.as_str()).ok());
        if let Some(path) = parts.uri.path_and_query().and_then(|path| path.as_str().parse().ok()) {
            parts.uri = path;
        }
        if let Some(authority) = authority {
            // Signed requests have it already.
            parts.headers.entry(HOST).or_insert(authority);
        }
        Request::from_parts(parts, Sending { body, step: Bytes::new(), progress: progress.clone() })
    }

    /// Waits for an answer as long as the body that is sent makes progress.
    async fn with_progress<T>(&self, answer: impl Future<Output = T>, progress: &AtomicU64) -> Result<T, Fault> {
        let mut answer = std::pin::pin!(answer);
        loop {
            let before = progress.load(Ordering::Relaxed);
            match tokio::time::timeout(self.stall, &mut answer).await {
                Ok(answer) => return Ok(answer),
                Err(_) if progress.load(Ordering::Relaxed) > before => {}
                Err(_) => return Err(Fault::Stalled(self.stall)),
            }
        }
    }
}

async fn speak<S>(stream: S) -> Result<SendRequest<Sending>, Fault>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let greeted = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = greeted.map_err(|error| Fault::Connect(format!("no HTTP: {error}")))?;
    // It ends when its sender is dropped or the server ends it; what went wrong is said to the request.
    tokio::spawn(connection);
    Ok(sender)
}

#[async_trait]
impl HttpService for Http {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let attempt = ATTEMPT.try_with(Arc::clone).unwrap_or_default();
        self.0.exchange(request, &attempt).await.map_err(|fault| {
            attempt.note(|seen| seen.fault = Some(fault.clone()));
            HttpError::new(HttpErrorKind::Unknown, fault)
        })
    }
}

impl HttpConnector for Http {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Pool").field("server", &self.server).finish_non_exhaustive()
    }
}

/// A body that is sent in steps, so that progress is seen.
pub(super) struct Sending {
    body: HttpRequestBody,
    step: Bytes,
    progress: Arc<AtomicU64>,
}

impl Body for Sending {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if self.step.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.step = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return other,
            }
        }
        let length = self.step.len().min(STEP_BYTES);
        self.progress.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(self.step.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.step.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.size_hint().exact().unwrap_or_default() + self.step.len() as u64;
        SizeHint::with_exact(rest)
    }
}
