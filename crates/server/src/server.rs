//! A server: listeners and the threads that serve what they take.
//!
//! ```text
//! listeners ──accept──▶ thread 1: one event loop, its connections
//!           (in turn)   thread 2: …
//! ```
//!
//! *Invariants*: a connection lives and dies on one thread; nothing that waits runs there (`waiting.rs`).
//!
//! *On failure*: a connection that fails ends alone. A listener that cannot be opened ends the start.

use crate::access::Access;
use crate::config::ServerConfig;
use crate::endpoint::Endpoint;
use crate::metrics::{Metrics, Scraper};
use crate::shared::Shared;
use crate::{http, resp, session};
use forebay_core::{Error, Result};
use forebay_store::Store;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

/// A server at work. Dropping it stops it without grace.
pub struct Server {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    endpoints: Vec<(Protocol, Endpoint)>,
    http: Option<SocketAddr>,
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Forebay's own.
    Native,
    /// Redis's.
    Resp,
}

impl Protocol {
    /// Name in metrics and logs.
    pub fn name(self) -> &'static str {
        ["native", "resp"][self as usize]
    }
}

/// A connection on its way to the thread that will serve it.
enum Taken {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

enum Listener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl Server {
    /// Serves these stores until it is stopped or dropped.
    ///
    /// # Errors
    /// `Invalid` for two stores of one keyspace's name and for an address that cannot be listened at, `Unavailable`
    /// where the system gives no threads or sockets.
    pub fn start(stores: Vec<Store>, config: ServerConfig) -> Result<Server> {
        let mut keyspaces = std::collections::BTreeMap::new();
        for store in stores {
            let name = store.keyspace().name.clone();
            if keyspaces.insert(name.clone(), store).is_some() {
                return Err(Error::invalid(format!(
                    "two stores have the keyspace `{name}`: a server tells them by name"
                )));
            }
        }
        let shared = Arc::new(Shared {
            keyspaces,
            access: Access::default(),
            limits: config.limits.clone(),
            metrics: Metrics::default(),
            stopping: false.into(),
            stop_notice: tokio::sync::Notify::new(),
            on_threads: 0.into(),
            connections: 0.into(),
        });
        let mut listeners = Vec::new();
        let mut endpoints = Vec::new();
        for (protocol, list) in [(Protocol::Native, &config.native), (Protocol::Resp, &config.resp)] {
            for endpoint in list {
                let (listener, bound) = listen(endpoint)?;
                endpoints.push((protocol, bound));
                listeners.push((protocol, listener));
            }
        }
        let monitors = config.http.map(|address| Ok((listen_tcp(address)?, Scraper::new(&shared)))).transpose()?;
        let http = monitors.as_ref().map(|((_, bound), _)| *bound);
        let (stop, stopped) = watch::channel(false);
        let mut threads = Vec::new();
        let mut inboxes = Vec::new();
        for number in 0..config.threads.max(1) {
            let (inbox, connections) = mpsc::unbounded_channel();
            inboxes.push(inbox);
            let (shared, stopped) = (shared.clone(), stopped.clone());
            threads.push(thread(format!("serve {number}"), move || serve(&shared, connections, stopped))?);
        }
        threads.push(thread("listen".to_owned(), {
            let shared = shared.clone();
            move || accept_all(&shared, listeners, monitors, &inboxes, stopped)
        })?);
        Ok(Server { shared, stop, threads, endpoints, http })
    }

    /// Where it listens: with the ports that the system chose.
    pub fn endpoints(&self) -> impl Iterator<Item = (Protocol, &Endpoint)> {
        self.endpoints.iter().map(|(protocol, endpoint)| (*protocol, endpoint))
    }

    /// Where metrics and probes are answered over HTTP: with the port that the system chose.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Takes no new requests, answers those under way, and ends within `grace`; answers the number of connections that
    /// had to be cut.
    pub fn stop(mut self, grace: Duration) -> usize {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.stop_notice.notify_waiters();
        let end = Instant::now() + grace;
        while self.shared.connections.load(Ordering::Acquire) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        let cut = self.shared.connections.load(Ordering::Acquire);
        self.halt();
        cut
    }

    fn halt(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.stop_notice.notify_waiters();
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            // It was told; what it panicked with was printed.
            let _ = thread.join();
        }
        for (_, endpoint) in &self.endpoints {
            if let Endpoint::Unix(path) = endpoint {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.halt();
    }
}

fn thread(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let spawned = std::thread::Builder::new().name(name).spawn(run);
    spawned.map_err(|error| Error::unavailable("the system gives no thread").with_source(error))
}

fn listen_tcp(address: SocketAddr) -> Result<(std::net::TcpListener, SocketAddr)> {
    match listen(&Endpoint::Tcp(address))? {
        (Listener::Tcp(listener), Endpoint::Tcp(bound)) => Ok((listener, bound)),
        _ => Err(Error::internal(format!("{address} is listened at as something else than TCP"))),
    }
}

fn listen(endpoint: &Endpoint) -> Result<(Listener, Endpoint)> {
    let failed =
        |error: io::Error| Error::invalid(format!("{endpoint} cannot be listened at: {error}")).with_source(error);
    match endpoint {
        Endpoint::Tcp(address) | Endpoint::Tls(address) => {
            let listener = std::net::TcpListener::bind(address).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            let bound: SocketAddr = listener.local_addr().map_err(failed)?;
            let bound = if matches!(endpoint, Endpoint::Tcp(_)) { Endpoint::Tcp(bound) } else { Endpoint::Tls(bound) };
            Ok((Listener::Tcp(listener), bound))
        }
        Endpoint::Unix(path) => {
            remove_dead_socket(path).map_err(failed)?;
            let listener = std::os::unix::net::UnixListener::bind(path).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            Ok((Listener::Unix(listener), endpoint.clone()))
        }
    }
}

/// A socket that nobody listens at is left over from a server that was killed.
fn remove_dead_socket(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() && std::os::unix::net::UnixStream::connect(path).is_err() => {
            std::fs::remove_file(path)
        }
        _ => Ok(()),
    }
}

type Inbox = mpsc::UnboundedSender<(Protocol, Taken)>;

/// Takes connections and deals them out to the threads in turn.
fn accept_all(
    shared: &Arc<Shared>,
    listeners: Vec<(Protocol, Listener)>,
    monitors: Option<((std::net::TcpListener, SocketAddr), Scraper)>,
    inboxes: &[Inbox],
    mut stopped: watch::Receiver<bool>,
) {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
        tracing::error!("no event loop for the listeners");
        return;
    };
    let local = LocalSet::new();
    for (protocol, listener) in listeners {
        let (shared, inboxes) = (shared.clone(), inboxes.to_vec());
        local.spawn_local(accept(shared, protocol, listener, inboxes));
    }
    if let Some(((listener, _), scraper)) = monitors {
        local.spawn_local(http::serve(listener, shared.clone(), scraper));
    }
    local.block_on(&runtime, async { while !*stopped.borrow() && stopped.changed().await.is_ok() {} });
}

async fn accept(shared: Arc<Shared>, protocol: Protocol, listener: Listener, inboxes: Vec<Inbox>) {
    let listener = match listener {
        Listener::Tcp(listener) => TcpListener::from_std(listener).map(Ok),
        Listener::Unix(listener) => UnixListener::from_std(listener).map(Err),
    };
    let Ok(listener) = listener else { return tracing::error!("a listener cannot be watched") };
    let mut next = 0;
    loop {
        let taken = match &listener {
            Ok(tcp) => tcp.accept().await.and_then(|(stream, _)| {
                stream.set_nodelay(true)?;
                Ok(Taken::Tcp(stream.into_std()?))
            }),
            Err(unix) => unix.accept().await.and_then(|(stream, _)| Ok(Taken::Unix(stream.into_std()?))),
        };
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                // Most often no more file descriptors: others must end first.
                tracing::warn!(%error, listener = protocol.name(), "a connection could not be taken");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if shared.stopping.load(Ordering::Acquire) {
            continue;
        }
        if shared.connections.load(Ordering::Acquire) >= shared.limits.connections_max {
            shared.metrics.refused(protocol.name(), "limit");
            continue;
        }
        shared.connections.fetch_add(1, Ordering::AcqRel);
        shared.metrics.connected(protocol.name());
        next = (next + 1) % inboxes.len();
        if inboxes[next].send((protocol, taken)).is_err() {
            return;
        }
    }
}

/// One thread: an event loop and the sessions on it.
fn serve(
    shared: &Arc<Shared>,
    mut connections: mpsc::UnboundedReceiver<(Protocol, Taken)>,
    mut stopped: watch::Receiver<bool>,
) {
    let threads = shared.limits.waiting_threads_max.max(1);
    let Ok(runtime) = Builder::new_current_thread().enable_all().max_blocking_threads(threads).build() else {
        tracing::error!("no event loop for connections");
        return;
    };
    let local = LocalSet::new();
    let taking = shared.clone();
    local.spawn_local(async move {
        while let Some((protocol, taken)) = connections.recv().await {
            let shared = taking.clone();
            tokio::task::spawn_local(async move {
                let _counted = Counted { shared: shared.clone() };
                let reason = match taken {
                    Taken::Tcp(stream) => match TcpStream::from_std(stream) {
                        Ok(stream) => one(protocol, stream, &shared).await,
                        Err(_) => "error",
                    },
                    Taken::Unix(stream) => match UnixStream::from_std(stream) {
                        Ok(stream) => one(protocol, stream, &shared).await,
                        Err(_) => "error",
                    },
                };
                shared.metrics.disconnected(protocol.name(), reason);
            });
        }
    });
    local.block_on(&runtime, async { while !*stopped.borrow() && stopped.changed().await.is_ok() {} });
}

/// One connection among those that are counted.
struct Counted {
    shared: Arc<Shared>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves one connection to its end; why it ended.
async fn one<T: crate::transport::Transport>(protocol: Protocol, stream: T, shared: &Arc<Shared>) -> &'static str {
    match protocol {
        Protocol::Native => session::serve(stream, shared).await,
        Protocol::Resp => resp::serve(stream, shared).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_ready_while_it_stops() {
        let address = "127.0.0.1:0".parse().unwrap();
        let server = Server::start(vec![], ServerConfig { http: Some(address), ..ServerConfig::default() }).unwrap();
        let ask = |path: &str| {
            let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
            let mut answer = agent.get(format!("http://{}{path}", server.http().unwrap())).call().unwrap();
            (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
        };
        assert_eq!(ask("/readyz"), (200, "ready\n".to_owned()));
        server.shared.stopping.store(true, Ordering::Release);
        assert_eq!(ask("/readyz"), (503, "stopping\n".to_owned()));
        assert_eq!(ask("/livez").0, 200);
        assert!(ask("/metrics").1.contains("\nforebay_ready 0\n"));
    }
}
