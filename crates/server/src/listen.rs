//! Listeners: opened at their addresses, and the thread that takes connections from them.
//!
//! ```text
//! address ──open──▶ Listener ──accept──▶ counted, over the limit or not ──▶ the inbox of a thread, in turn
//! ```
//!
//! *Lifecycle*: a listener is closed, and its socket's file removed, as soon as the server is stopping: others may listen
//! there while the last sessions end.
//!
//! *On failure*: an address that cannot be listened at ends the start. A socket's file that a killed server left is
//! replaced, one that somebody listens at is not.

use crate::endpoint::Endpoint;
use crate::http;
use crate::page::Scraper;
use crate::peer::{Admitted, Peer};
use crate::server::Protocol;
use crate::shared::Shared;
use crate::tls::Certificates;
use forebay_core::{Error, Result, ServedStore};
use rustix::net::sockopt;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

/// Pause after a connection could not be taken, most often for want of file descriptors: others must end first.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection on its way to the thread that will serve it.
pub(crate) struct Taken {
    pub(crate) protocol: Protocol,
    pub(crate) peer: Peer,
    pub(crate) stream: Stream,
    pub(crate) admitted: Admitted,
}

/// The streams that there are.
pub(crate) enum Stream {
    Tcp(std::net::TcpStream),
    Tls(std::net::TcpStream, TlsAcceptor),
    Unix(std::os::unix::net::UnixStream),
}

/// Where connections go.
pub(crate) type Inbox = mpsc::UnboundedSender<Taken>;

/// An open listener.
pub(crate) struct Listener {
    pub(crate) protocol: Protocol,
    pub(crate) endpoint: Endpoint,
    socket: Socket,
}

enum Socket {
    Tcp(std::net::TcpListener),
    Tls(std::net::TcpListener, Arc<Certificates>),
    Unix(std::os::unix::net::UnixListener, SocketFile),
}

/// The file of a Unix socket; removed with this, unless it is another's by now.
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn identity(path: &Path) -> io::Result<(u64, u64)> {
        std::fs::symlink_metadata(path).map(|data| (data.dev(), data.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if SocketFile::identity(&self.path).is_ok_and(|now| now == self.identity) {
            // A file that stays is replaced by the next start.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Opens an address; `mode` are the permissions of a Unix socket.
    ///
    /// # Errors
    /// `Invalid` for one that cannot be listened at.
    pub(crate) fn open(
        protocol: Protocol,
        endpoint: &Endpoint,
        tls: Option<&Arc<Certificates>>,
        mode: u32,
    ) -> Result<Listener> {
        let failed = |error| cannot_listen(endpoint, error);
        let (socket, endpoint) = match endpoint {
            Endpoint::Tcp(address) => {
                let (listener, bound) = open_tcp(*address).map_err(failed)?;
                (Socket::Tcp(listener), Endpoint::Tcp(bound))
            }
            Endpoint::Tls(address) => {
                let acceptor =
                    tls.ok_or_else(|| Error::invalid(format!("{endpoint}: no certificate is configured")))?;
                let (listener, bound) = open_tcp(*address).map_err(failed)?;
                (Socket::Tls(listener, acceptor.clone()), Endpoint::Tls(bound))
            }
            Endpoint::Unix(path) => {
                let (listener, file) = unix(path, mode).map_err(failed)?;
                (Socket::Unix(listener, file), endpoint.clone())
            }
        };
        Ok(Listener { protocol, endpoint, socket })
    }
}

/// Opens the address for metrics and probes; with the port that the system chose.
///
/// # Errors
/// `Invalid` for one that cannot be listened at.
pub(crate) fn open_for_monitors(address: SocketAddr) -> Result<(std::net::TcpListener, SocketAddr)> {
    open_tcp(address).map_err(|error| cannot_listen(&format_args!("http://{address}"), error))
}

/// Congestion control without pacing, which every Linux has and every user may choose.
const UNPACED: &str = "reno";

/// Bytes that a connection within this machine holds for the server; the system allows less where `net.core.rmem_max` says so.
const RECEIVE_BYTES: usize = 1 << 20;

fn open_tcp(address: SocketAddr) -> io::Result<(std::net::TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind(address)?;
    if address.ip().is_loopback() {
        // Connections have what their listener has. BBR paces by the rate that it has seen: between calls with pauses that
        // is less than memory gives, and there is no network here whose queues it could keep short.
        let _ = sockopt::set_tcp_congestion(&listener, UNPACED);
        // Nor does the system find out by itself how much is good: by what it measures in the first calls some connections get
        // a quarter of this for all their life, and client and server take turns.
        sockopt::set_socket_recv_buffer_size(&listener, RECEIVE_BYTES)?;
    }
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

fn cannot_listen(at: &dyn fmt::Display, error: io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => ": another server has it; stop that one, or name another address",
        io::ErrorKind::PermissionDenied => ": this user may not",
        io::ErrorKind::NotFound => ": its directory is not there",
        _ => "",
    };
    Error::invalid(format!("{at} cannot be listened at{hint}")).with_source(error)
}

fn unix(path: &Path, mode: u32) -> io::Result<(std::os::unix::net::UnixListener, SocketFile)> {
    // A killed server leaves the file of its socket, and `bind` fails where a file exists.
    remove_dead_socket(path)?;
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    // Identity of this very file: at the end only our own is removed, not that of a server that replaced it.
    let file = SocketFile { path: path.to_owned(), identity: SocketFile::identity(path)? };
    // Right after `bind`: until here the file has the permissions of the umask.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    listener.set_nonblocking(true)?;
    Ok((listener, file))
}

/// A socket that nobody listens at is left over from a server that was killed.
fn remove_dead_socket(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    // Only a refused connection proves that nobody listens. Any other answer leaves the file alone.
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err_and(refused) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Takes connections and deals them out to the threads in turn, until the server is stopping. Who monitors it is answered
/// until it is gone.
pub(crate) fn accept_all<S: ServedStore>(
    shared: &Arc<Shared>,
    listeners: Vec<Listener>,
    monitors: Option<(std::net::TcpListener, Scraper<S>)>,
    inboxes: Vec<Inbox>,
    mut halted: watch::Receiver<bool>,
) {
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
        tracing::error!("no event loop for the listeners");
        return;
    };
    let local = LocalSet::new();
    for listener in listeners {
        let (shared, inboxes) = (shared.clone(), inboxes.clone());
        local.spawn_local(async move {
            tokio::select! {
                () = shared.until_stopping() => {}
                () = accept(&shared, listener, &inboxes) => {}
            }
        });
    }
    if let Some((listener, scraper)) = monitors {
        local.spawn_local(http::serve(listener, shared.clone(), scraper));
    }
    // It cannot fail before the server is gone, which is an end as well.
    let _ = local.block_on(&runtime, async { halted.wait_for(|halted| *halted).await.map(|_| ()) });
}

async fn accept(shared: &Arc<Shared>, listener: Listener, inboxes: &[Inbox]) {
    let Listener { protocol, socket, .. } = listener;
    // The file goes with the task.
    let (tcp, unix, acceptor, _file) = match socket {
        Socket::Tcp(listener) => (TcpListener::from_std(listener).ok(), None, None, None),
        Socket::Tls(listener, acceptor) => (TcpListener::from_std(listener).ok(), None, Some(acceptor), None),
        Socket::Unix(listener, file) => (None, UnixListener::from_std(listener).ok(), None, Some(file)),
    };
    let mut next = 0;
    loop {
        let taken = match (&tcp, &unix) {
            (Some(listener), _) => take_tcp(listener, acceptor.as_ref()).await,
            (_, Some(listener)) => take_unix(listener).await,
            _ => return tracing::error!("a listener cannot be watched"),
        };
        let (stream, peer) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(%error, listener = protocol.name(), "a connection could not be taken");
                // Without a pause a process out of file descriptors would spin here and fill its log.
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(admitted) = Admitted::new(shared, peer) else {
            // Dropped without a word: an answer would need a session, which is what there are too many of.
            shared.refuse_peer(protocol.name(), "limit", Some(peer), "as many connections as there may be");
            continue;
        };
        shared.metrics.connected(protocol.name());
        tracing::debug!(listener = protocol.name(), %peer, "connected");
        // In turn, not by load: a connection stays on its thread, and its load is not known yet.
        next = (next + 1) % inboxes.len();
        if inboxes[next].send(Taken { protocol, peer, stream, admitted }).is_err() {
            return;
        }
    }
}

/// Bytes that a Unix socket holds for its reader; the system allows less where `net.core.wmem_max` says so.
const SEND_BYTES: usize = 1 << 20;

/// A peer that is gone without a word is noticed after two minutes at the latest, however idle its connection is.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(15))?;
    sockopt::set_tcp_keepcnt(stream, 4)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

async fn take_tcp(listener: &TcpListener, acceptor: Option<&Arc<Certificates>>) -> io::Result<(Stream, Peer)> {
    let (stream, address) = listener.accept().await?;
    stream.set_nodelay(true)?;
    keep_alive(&stream)?;
    let stream = stream.into_std()?;
    let stream = match acceptor {
        Some(certificates) => Stream::Tls(stream, certificates.acceptor()),
        None => Stream::Tcp(stream),
    };
    Ok((stream, Peer::Address(address)))
}

async fn take_unix(listener: &UnixListener) -> io::Result<(Stream, Peer)> {
    let (stream, _) = listener.accept().await?;
    // Room for what is written while the reader is busy: the system's 208 KiB make the two take turns.
    sockopt::set_socket_send_buffer_size(&stream, SEND_BYTES)?;
    let credentials = stream.peer_cred().ok().map(|peer| (peer.uid(), peer.pid().unwrap_or(0)));
    Ok((Stream::Unix(stream.into_std()?), Peer::Local(credentials)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("forebay-listen-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn a_socket_left_over_is_replaced_and_one_in_use_is_not() {
        let path = path("left");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "as a killed server leaves it");
        let open = || Listener::open(Protocol::Native, &Endpoint::Unix(path.clone()), None, 0o600);
        let listener = open().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let message = open().err().unwrap().to_string();
        assert!(message.contains("another server has it"), "{message}");
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn connections_within_this_machine_are_not_paced_and_hold_as_much_as_the_system_allows() {
        let (listener, address) = open_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (stream, _) = listener.accept().unwrap();
        assert_eq!(sockopt::tcp_congestion(&stream).unwrap(), UNPACED);
        let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
        // The system doubles what it is told, for its own needs (socket(7)).
        let told = most.trim().parse::<usize>().unwrap().min(RECEIVE_BYTES);
        assert_eq!(sockopt::socket_recv_buffer_size(&stream).unwrap(), 2 * told);
    }

    #[test]
    fn a_file_that_is_no_socket_or_anothers_by_now_stays() {
        let path = path("file");
        std::fs::write(&path, "precious").unwrap();
        let open = || Listener::open(Protocol::Native, &Endpoint::Unix(path.clone()), None, 0o600);
        assert!(open().is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
        let listener = open().unwrap();
        // Another server replaced it meanwhile. The first file is kept under another name, so that its number is not
        // given again.
        std::fs::rename(&path, path.with_extension("old")).unwrap();
        let other = open().unwrap();
        drop(listener);
        assert!(path.exists());
        drop(other);
        std::fs::remove_file(path.with_extension("old")).unwrap();
    }
}
