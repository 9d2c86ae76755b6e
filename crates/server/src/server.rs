//! A server: listeners and the threads that serve what they take.
//!
//! ```text
//! listeners ──accept──▶ thread 1: one event loop, its connections
//!           (in turn)   thread 2: …
//! ```
//!
//! *Invariants*: a connection lives and dies on one thread; nothing that waits runs there (tests/session/waiting.rs).
//!
//! *On failure*: a connection that fails ends alone. A listener that cannot be opened ends the start.

use crate::access::{Access, AccessToken};
use crate::ahead::Ahead;
use crate::audit::Audit;
use crate::config::ServerConfig;
use crate::endpoint::Endpoint;
use crate::keyspaces::Keyspaces;
use crate::listen::{Listener, Stream, Taken, accept_all};
use crate::orders::Orders;
use crate::page::Scraper;
use crate::peer::{Admitted, PEER, Peer};
use crate::served::Served;
use crate::shared::{Phase, Shared};
use crate::tls::{Certificates, TlsFiles};
use crate::transport::Transport;
use crate::{listen, resp, session, tls};
use forebay_core::{Error, Result, ServedStore};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

/// Pause between two looks at whether the last connections have ended.
const LOOK: Duration = Duration::from_millis(2);
/// How often an event loop says that it goes round.
const BEAT: Duration = Duration::from_secs(1);
/// Time that the threads of waiting calls get at the end of the server. Nobody receives their answers by then.
const WAITING_GRACE: Duration = Duration::from_millis(200);

/// A server at work. Dropping it stops it without grace.
pub struct Server {
    shared: Arc<Shared>,
    /// Keyspaces, for rights of new tokens.
    names: Vec<String>,
    halt: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    endpoints: Vec<(Protocol, Endpoint)>,
    http: Option<SocketAddr>,
}

/// The protocol of a listener.
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

impl Server {
    /// Serves these stores and rings until it is stopped or dropped.
    ///
    /// # Errors
    /// `Invalid` for two keyspaces of one name, for limits, tokens or certificates that cannot be, for an address
    /// that would be open to everybody by accident or cannot be listened at; `Unavailable` where the system gives no
    /// threads.
    pub fn start<K: Into<Served>>(served: impl IntoIterator<Item = K>, config: ServerConfig) -> Result<Server> {
        // Sessions over the store itself are compiled here, once, and not in each program that starts a server.
        Server::start_stores(served.into_iter().map(Into::into).collect(), config)
    }

    fn start_stores(served: Vec<Served>, config: ServerConfig) -> Result<Server> {
        Server::start_over(served, config)
    }

    /// The same on a node of a cluster, which does what is the matter of all nodes. Redis's clients speak to what stands before
    /// the stores: that has what other nodes have too.
    ///
    /// # Errors
    /// As [`Server::start`]; `Invalid` where both have different keyspaces, and for fewer than four `waiting_threads_max`: one waits
    /// for other nodes, two for space, and one serves.
    pub fn start_node<R: ServedStore>(
        served: Vec<Served>,
        for_redis: Vec<Served<R>>,
        config: ServerConfig,
        node: Arc<dyn Orders>,
    ) -> Result<Server> {
        if config.limits.waiting_threads_max < 4 {
            return Err(Error::invalid("limits: waiting_threads_max: at least 4 on a node of a cluster"));
        }
        let (native, resp) = (Arc::new(Keyspaces::new(served)?), Arc::new(Keyspaces::new(for_redis)?));
        if !native.names().eq(resp.names()) {
            return Err(Error::invalid("each protocol has the same keyspaces"));
        }
        Server::start_with(Sides { native, resp }, config, Some(node))
    }

    /// The same over what stands before a store: a wrapper that counts or changes calls.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_over<S: ServedStore>(served: Vec<Served<S>>, config: ServerConfig) -> Result<Server> {
        let native = Arc::new(Keyspaces::new(served)?);
        Server::start_with(Sides { resp: native.clone(), native }, config, None)
    }

    fn start_with<S: ServedStore, R: ServedStore>(
        sides: Sides<S, R>,
        config: ServerConfig,
        node: Option<Arc<dyn Orders>>,
    ) -> Result<Server> {
        config.check()?;
        let keyspaces = sides.native.clone();
        say_narrow_windows(&keyspaces, config.limits.window_bytes);
        let access = Access::new(config.tokens, keyspaces.names())?;
        let certificates = config.tls.as_ref().map(Certificates::load).transpose()?.map(Arc::new);
        let audit = config.audit.map(Audit::open).transpose()?;
        let mut listeners = Vec::new();
        for (protocol, list) in [(Protocol::Native, &config.native), (Protocol::Resp, &config.resp)] {
            for endpoint in list {
                listeners.push(Listener::open(protocol, endpoint, certificates.as_ref(), config.unix_mode)?);
            }
        }
        let monitors = config.http.map(listen::open_for_monitors).transpose()?;
        let http = monitors.as_ref().map(|(_, bound)| *bound);
        let endpoints = listeners.iter().map(|listener| (listener.protocol, listener.endpoint.clone())).collect();
        let shared = Arc::new(Shared::new(access, audit, config.limits, config.threads));
        let (halt, halted) = watch::channel(false);
        shared.set_certificates(certificates);
        if let Some(node) = node {
            shared.set_node(node);
        }
        let names = keyspaces.names().map(str::to_owned).collect();
        let mut server = Server { shared: shared.clone(), names, halt, threads: Vec::new(), endpoints, http };
        let mut inboxes = Vec::new();
        for number in 0..config.threads {
            let (inbox, connections) = mpsc::unbounded_channel();
            inboxes.push(inbox);
            let (shared, sides, halted) = (shared.clone(), sides.clone(), halted.clone());
            let serving = move || serve(&shared, &sides, number, connections, halted);
            server.threads.push(thread(format!("serve {number}"), serving)?);
        }
        let monitors = match monitors {
            Some((listener, _)) => Some((listener, Scraper::new(keyspaces)?)),
            None => None,
        };
        let accepting = move || accept_all(&shared, listeners, monitors, inboxes, halted);
        server.threads.push(thread("listen".to_owned(), accepting)?);
        // Last: a probe that says ready must not be followed by a start that fails.
        server.shared.enter(Phase::Ready);
        Ok(server)
    }

    /// Where it listens: with the ports that the system chose.
    pub fn endpoints(&self) -> impl Iterator<Item = (Protocol, &Endpoint)> {
        self.endpoints.iter().map(|(protocol, endpoint)| (*protocol, endpoint))
    }

    /// Takes other tokens and reads the certificates again, while it serves. Connections of tokens that stay go on, those of others
    /// end with their next call; a new certificate is for new connections.
    ///
    /// # Errors
    /// `Invalid` for tokens or certificates that cannot be: then everything is as it was.
    pub fn reload(&self, tokens: Vec<AccessToken>, tls: Option<&TlsFiles>) -> Result<()> {
        self.try_reload(tokens, tls).inspect_err(|error| self.reload_refused(error))
    }

    /// What was to be taken could not be read: that is counted and noted like tokens that this server refuses.
    pub fn reload_refused(&self, error: &Error) {
        self.shared.metrics.reload_failed();
        self.shared.note("reload", "tokens and certificates", error.message());
    }

    fn try_reload(&self, tokens: Vec<AccessToken>, tls: Option<&TlsFiles>) -> Result<()> {
        // Both are made before one of them is taken.
        let access = Access::new(tokens, self.names.iter().map(String::as_str))?;
        let certificates = match (self.shared.certificates(), tls) {
            (Some(_), Some(files)) => Some(Certificates::load(files)?),
            (None, None) => None,
            _ => return Err(Error::invalid("TLS is switched on or off at a start only")),
        };
        if access.is_open() != self.shared.access().is_open() {
            return Err(Error::invalid("the first token is given, and the last one taken away, at a start only"));
        }
        self.shared.replace_access(access);
        if let (Some(now), Some(new)) = (self.shared.certificates(), certificates) {
            now.replace(new);
        }
        self.shared.metrics.reloaded();
        self.shared.note("reload", "tokens and certificates", "done");
        Ok(())
    }

    /// The state of the server.
    pub fn phase(&self) -> Phase {
        self.shared.phase()
    }

    /// Where metrics and probes are answered over HTTP: with the port that the system chose.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Whether every event loop goes round: what a watchdog asks.
    pub fn alive(&self) -> bool {
        self.shared.alive() && !self.is_broken()
    }

    /// Whether a thread ended that should not have: the server is to be started again.
    pub fn is_broken(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Acquire)
    }

    /// Takes no new connections and requests, answers those under way, and ends within `grace`; answers the number of
    /// connections that had to be cut. The caller still owns the stores and closes them after this.
    pub fn stop(mut self, grace: Duration) -> usize {
        self.shared.enter(Phase::Stopping);
        let end = Instant::now() + grace;
        // Polled: connections end on other threads, and a stop is rare.
        while self.connections() > 0 && Instant::now() < end {
            std::thread::sleep(LOOK);
        }
        let cut = self.connections();
        self.end();
        cut
    }

    fn end(&mut self) {
        self.shared.enter(Phase::Stopping);
        // After the grace: the event loops end, and with them the sessions that did not.
        self.halt.send_replace(true);
        for thread in self.threads.drain(..) {
            // It was told; what it panicked with was printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn thread(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let spawned = std::thread::Builder::new().name(name).spawn(run);
    spawned.map_err(|error| Error::unavailable("the system gives no thread").with_source(error))
}

/// What sessions of each protocol speak to: the same, but on a node of a cluster.
struct Sides<S, R> {
    native: Arc<Keyspaces<S>>,
    resp: Arc<Keyspaces<R>>,
}

impl<S, R> Clone for Sides<S, R> {
    fn clone(&self) -> Sides<S, R> {
        Sides { native: self.native.clone(), resp: self.resp.clone() }
    }
}

/// One thread: an event loop and the sessions on it.
fn serve<S: ServedStore, R: ServedStore>(
    shared: &Arc<Shared>,
    sides: &Sides<S, R>,
    number: usize,
    mut connections: mpsc::UnboundedReceiver<Taken>,
    mut halted: watch::Receiver<bool>,
) {
    // Bounded by configuration: waiting calls beyond it queue instead of taking a thread each.
    let threads = shared.limits.waiting_threads_max.max(1);
    let Ok(runtime) = Builder::new_current_thread().enable_all().max_blocking_threads(threads).build() else {
        tracing::error!("no event loop for connections");
        return;
    };
    // Before the first round: a probe right after the start must not find a loop that never beat.
    shared.beat(number);
    let local = LocalSet::new();
    let beating = shared.clone();
    local.spawn_local(async move {
        loop {
            beating.beat(number);
            tokio::time::sleep(BEAT).await;
        }
    });
    let (taking, served) = (shared.clone(), sides.clone());
    local.spawn_local(async move {
        while let Some(taken) = connections.recv().await {
            let (shared, sides) = (taking.clone(), served.clone());
            tokio::task::spawn_local(PEER.scope(taken.peer, async move { one(taken, &shared, &sides).await }));
        }
    });
    // It cannot fail before the server is gone, which is an end as well.
    let _ = local.block_on(&runtime, async { halted.wait_for(|halted| *halted).await.map(|_| ()) });
    // Sessions first: their reservations, guards and counts go back before the threads that wait for them.
    drop(local);
    runtime.shutdown_timeout(WAITING_GRACE);
}

/// Serves one connection to its end.
async fn one<S: ServedStore, R: ServedStore>(taken: Taken, shared: &Arc<Shared>, sides: &Sides<S, R>) {
    let Taken { protocol, peer, stream, admitted } = taken;
    let mut ended = Ended { protocol, peer, reason: "error", admitted };
    ended.reason = match stream {
        Stream::Tcp(stream) => match TcpStream::from_std(stream) {
            Ok(stream) => session(protocol, stream, shared, sides).await,
            Err(_) => "error",
        },
        Stream::Unix(stream) => match UnixStream::from_std(stream) {
            Ok(stream) => session(protocol, stream, shared, sides).await,
            Err(_) => "error",
        },
        Stream::Tls(stream, acceptor) => match TcpStream::from_std(stream) {
            Ok(stream) => over_tls(protocol, stream, &acceptor, shared, sides).await,
            Err(_) => "error",
        },
    };
}

/// Counts the end of a connection, however it comes: also by a panic, or with the server.
struct Ended {
    protocol: Protocol,
    peer: Peer,
    reason: &'static str,
    admitted: Admitted,
}

impl Drop for Ended {
    fn drop(&mut self) {
        let (listener, peer, shared) = (self.protocol.name(), self.peer, self.admitted.shared());
        // A session that the stop cut off ends as an error; what ended it was the stop.
        let cut = self.reason == "error" && shared.stopping.load(Ordering::Acquire);
        let reason = if cut { "stopping" } else { self.reason };
        shared.metrics.disconnected(listener, reason);
        tracing::debug!(listener, %peer, reason, "disconnected");
    }
}

/// Shakes hands, then serves; why it ended.
async fn over_tls<S: ServedStore, R: ServedStore>(
    protocol: Protocol,
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    shared: &Arc<Shared>,
    sides: &Sides<S, R>,
) -> &'static str {
    let shaken = tokio::select! {
        shaken = tls::accept(acceptor, Ahead::new(stream), shared.limits.handshake_deadline) => shaken,
        () = shared.until_stopping() => return "stopping",
    };
    match shaken {
        Ok(stream) => session(protocol, stream, shared, sides).await,
        Err(refused) => {
            shared.refuse(protocol.name(), refused.reason, refused.why);
            "error"
        }
    }
}

/// Serves one stream to its end; why it ended.
async fn session<T: Transport, S: ServedStore, R: ServedStore>(
    protocol: Protocol,
    stream: T,
    shared: &Arc<Shared>,
    sides: &Sides<S, R>,
) -> &'static str {
    match protocol {
        Protocol::Native => session::serve(stream, shared, &sides.native).await,
        Protocol::Resp => resp::serve(stream, shared, &sides.resp).await,
    }
}

/// Says which keyspaces allow fragments that no client can send or read here: else a producer would be the first to learn it.
fn say_narrow_windows<S: ServedStore>(keyspaces: &Keyspaces<S>, window_bytes: u32) {
    for (keyspace, store) in keyspaces.stores() {
        let fragment_bytes_max = store.keyspace().fragment_bytes_max;
        if fragment_bytes_max >= window_bytes as usize {
            tracing::warn!(
                keyspace,
                fragment_bytes_max,
                window_bytes,
                "fragments of this keyspace may be larger than a connection's window, and are refused then: raise window_bytes in \
                 [limits] above fragment_bytes_max, or create the keyspace with a smaller one"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_ready_while_it_stops() {
        let address = "127.0.0.1:0".parse().unwrap();
        let server =
            Server::start(Vec::<Served>::new(), ServerConfig { http: Some(address), ..ServerConfig::default() })
                .unwrap();
        let ask = |path: &str| {
            let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
            let mut answer = agent.get(format!("http://{}{path}", server.http().unwrap())).call().unwrap();
            (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
        };
        assert_eq!(ask("/readyz"), (200, "ready\n".to_owned()));
        server.shared.enter(Phase::Stopping);
        assert_eq!(ask("/readyz"), (503, "stopping\n".to_owned()));
        assert_eq!(ask("/livez").0, 200);
        assert!(ask("/metrics").1.contains("\nforebay_ready 0\n"));
    }
}
