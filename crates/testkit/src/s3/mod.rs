//! A stand-in for S3, in memory, on a loopback port: what object stores do, and what they do wrong, on request.
//!
//! ```text
//! test ──▶ StandIn (settings, faults, log) ─┐
//! client ──▶ HTTP ──▶ fault? ──▶ delay ──▶ objects ──▶ answer, or what the fault leaves of it
//! ```
//!
//! Path-style addresses; GET and HEAD with ranges, PUT with If-None-Match and If-Match, DELETE, ETag, Last-Modified. LIST in pages. Signatures are not checked, the hash of a signed body is
//! (for benchmarks: not either). The delay costs no CPU.
//!
//! *Not here*: TLS, multipart uploads, versions.

mod control;
mod delay;
mod fault;
mod serve;
mod state;

pub use fault::{Fault, Kind};
pub use state::Request;

use bytes::Bytes;
use delay::Delays;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use state::State;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// The bucket that is there from the start.
pub const BUCKET: &str = "bucket";

/// A stand-in, which ends when it is dropped.
#[derive(Debug)]
pub struct StandIn {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StandIn {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// Where there is no port or no thread: a test cannot go on then.
    #[must_use]
    #[expect(clippy::expect_used, clippy::new_without_default, reason = "a test that cannot go on panics")]
    pub fn new() -> StandIn {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket for tokio");
        let address = listener.local_addr().expect("an address");
        let state = State { buckets: [BUCKET.to_owned()].into(), ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let (stop, stopped) = oneshot::channel();
        let serving = state.clone();
        let delays = Delays::new().expect("a thread");
        let thread = std::thread::Builder::new().name("s3-standin".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                tokio::select! {
                    () = accept(listener, serving, delays) => {}
                    _ = stopped => {}
                }
            });
        });
        StandIn { address, state, stop: Some(stop), thread: Some(thread.expect("a thread")) }
    }

    /// Its address, as `AWS_ENDPOINT_URL` has it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Each answer takes this long.
    pub fn set_delay(&self, delay: Duration) {
        self.state.lock().delay = delay;
    }

    /// The server's clock is ahead of this machine's by these seconds.
    pub fn set_clock(&self, seconds: i64) {
        self.state.lock().clock_seconds = seconds;
    }

    /// Whether `If-None-Match` and `If-Match` are ignored.
    pub fn ignore_conditions(&self, ignore: bool) {
        self.state.lock().ignores_conditions = ignore;
    }

    /// Whether bodies are taken without a look at the hash that was signed, which costs CPU.
    pub fn trust_bodies(&self, trust: bool) {
        self.state.lock().trusts_bodies = trust;
    }

    /// Whether `If-Match` is compared without the quotes of a tag, as some versions of Ceph do.
    pub fn compare_bare_tags(&self, bare: bool) {
        self.state.lock().bare_tags = bare;
    }

    /// Requests with this session token are refused from now on.
    pub fn expire(&self, token: &str) {
        self.state.lock().expired.insert(token.to_owned());
    }

    /// Something goes wrong.
    pub fn fault(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Nothing goes wrong any more.
    pub fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }

    /// The requests until now; the next call begins after them.
    #[must_use]
    pub fn take_log(&self) -> Vec<Request> {
        std::mem::take(&mut self.state.lock().log)
    }

    /// The most requests at once until now.
    #[must_use]
    pub fn in_flight_max(&self) -> usize {
        self.state.lock().in_flight_max
    }

    /// An object, by bucket and name.
    #[must_use]
    pub fn object(&self, name: &str) -> Option<Bytes> {
        self.state.lock().objects.get(name).map(|object| object.bytes.clone())
    }

    /// Puts an object without a request.
    pub fn set_object(&self, name: &str, bytes: impl Into<Bytes>) {
        self.state.lock().put(name, bytes.into(), false, None);
    }

    /// Names of the objects, with their bucket.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.state.lock().objects.keys().cloned().collect()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
        self.thread.take().map(JoinHandle::join);
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>, delays: Delays) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(stream, state.clone(), delays.clone()))),
            // Out of descriptors, say: others end theirs.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>, delays: Delays) {
    stream.set_nodelay(true).ok();
    let Ok((stream, twin)) = twins(stream) else { return };
    let reset = || drop(twin.set_zero_linger());
    let answer = service_fn(|request| serve::answer(state.clone(), request, &delays, reset));
    // Its error is what a fault asked for, or that the client is gone.
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await.ok();
}

/// Two handles of one connection: one is served, the other says how it ends.
fn twins(stream: TcpStream) -> io::Result<(TcpStream, TcpStream)> {
    let stream = stream.into_std()?;
    let twin = TcpStream::from_std(stream.try_clone()?)?;
    Ok((TcpStream::from_std(stream)?, twin))
}
