//! A connected socket, of any sort.

use crate::address::Address;
use crate::ahead::Ahead;
use crate::machine::{Machine, Stream};
use forebay_core::{Error, MachineTimer, Result, Timer};
use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout, set_tcp_congestion};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) enum Socket {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, Ahead>>),
    Unix(UnixStream),
    Made(Box<dyn Stream>),
}

impl Socket {
    /// Connects before the deadline, TLS handshake included; a `tls://` address needs `tls`.
    ///
    /// # Errors
    /// `Unavailable` where nobody answers, `Invalid` where a certificate is not believed.
    pub(crate) fn connect(
        address: &Address,
        end: Instant,
        tls: Option<&Arc<ClientConfig>>,
        machine: &dyn Machine,
    ) -> Result<Socket> {
        if let Some(made) = machine.connect(address, end) {
            return made.map(Socket::Made);
        }
        let away =
            |error: io::Error| Error::unavailable(format!("{address} does not answer: {error}")).with_source(error);
        match address {
            Address::Unix(path) => connect_unix(path, left(end)).map(Socket::Unix).map_err(away),
            Address::Tcp(host, port) | Address::Tls(host, port) => {
                let mut last = io::Error::from(io::ErrorKind::NotFound);
                for place in (host.as_str(), *port).to_socket_addrs().map_err(away)? {
                    match connect_tcp(&place, left(end)) {
                        Ok(stream) => {
                            // Each request is written whole: waiting for more bytes would only add latency.
                            stream.set_nodelay(true).map_err(away)?;
                            let Some(config) = tls else { return Ok(Socket::Tcp(stream)) };
                            return handshake(config, address, host, stream, end);
                        }
                        Err(error) => last = error,
                    }
                }
                Err(away(last))
            }
        }
    }

    /// How long one read or write may take.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        // Zero would mean no time limit.
        let most = timeout.max(Duration::from_millis(1));
        let timeout = Some(most);
        match self {
            Socket::Tcp(stream) => stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout)),
            Socket::Tls(stream) => {
                let stream = &stream.sock.stream;
                stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout))
            }
            Socket::Unix(stream) => stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout)),
            Socket::Made(stream) => {
                stream.set_timeout(most);
                Ok(())
            }
        }
    }

    /// What the other side said before it closed, where that says why it took nothing more: an alert of TLS.
    pub(crate) fn last_word(&mut self) -> Option<io::Error> {
        let Socket::Tls(stream) = self else { return None };
        while stream.conn.read_tls(&mut stream.sock).is_ok_and(|bytes| bytes > 0) {
            if let Err(error) = stream.conn.process_new_packets() {
                return Some(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
        None
    }

    /// Whether the other side is still there and has said nothing that nobody asked for.
    pub(crate) fn is_quiet(&self) -> bool {
        if let Socket::Tls(stream) = self
            && !stream.sock.is_empty()
        {
            return false;
        }
        let socket = match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Tls(stream) => stream.sock.stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
            Socket::Made(stream) => return stream.is_quiet(),
        };
        let mut byte = [0; 1];
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        matches!(rustix::net::recv(socket, &mut byte, flags), Err(rustix::io::Errno::AGAIN))
    }
}

/// The time that is left, at least a millisecond: the system takes zero for no bound.
fn left(end: Instant) -> Duration {
    MachineTimer.block_at_most(end).unwrap_or_default().max(Duration::from_millis(1))
}

/// Bytes that are encrypted before they go to the socket with one call of the system: seven records, which stay below the
/// 128 KiB at which glibc returns freed memory to the system; that costs page faults each time.
const SEALED_BYTES: usize = 112 << 10;

/// Makes the TLS handshake before the deadline.
///
/// # Errors
/// `Invalid` where either side does not believe the other's certificate, `Unavailable` where nothing comes.
fn handshake(
    config: &Arc<ClientConfig>,
    address: &Address,
    host: &str,
    stream: TcpStream,
    end: Instant,
) -> Result<Socket> {
    let name = crate::tls::server_name(host)?;
    let mut session = ClientConnection::new(config.clone(), name)
        .map_err(|error| Error::internal(format!("{address}: no session of TLS")).with_source(error))?;
    let mut timed = Timed { stream, end };
    while session.is_handshaking() {
        session.complete_io(&mut timed).map_err(|error| crate::tls::unshaken(address, error))?;
    }
    session.set_buffer_limit(Some(SEALED_BYTES));
    Ok(Socket::Tls(Box::new(StreamOwned::new(session, Ahead::new(timed.stream)))))
}

/// A stream whose reads and writes are over by a time, however many there are: a server that sends byte by byte
/// cannot delay the client beyond it.
struct Timed {
    stream: TcpStream,
    end: Instant,
}

impl Timed {
    fn arm(&self) -> io::Result<()> {
        let timeout = MachineTimer.block_at_most(self.end);
        if timeout.is_none() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(timeout).and_then(|()| self.stream.set_write_timeout(timeout))
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.arm()?;
        self.stream.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.arm()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that a Unix socket holds for its reader, so that the two need not take turns; the system allows less where
/// `net.core.wmem_max` says so.
pub(crate) const SEND_BYTES: usize = 1 << 20;

/// Connects within the time. To this machine without BBR, where that is what the system takes: it paces what goes out by
/// the rate that it has seen, which for calls with pauses in between is less than memory gives, and a timer for each
/// packet costs processor time. There is no network whose queues it could keep short.
fn connect_tcp(place: &SocketAddr, within: Duration) -> io::Result<TcpStream> {
    if !place.ip().is_loopback() {
        return TcpStream::connect_timeout(place, within);
    }
    let family = if place.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Before it connects: with its beginning BBR sets the socket up for pacing. After an error the system's choice holds.
    let _ = set_tcp_congestion(&socket, UNPACED);
    connect_within(socket, place, within).map(TcpStream::from)
}

/// Congestion control without pacing, which every Linux has and every user may choose.
pub(crate) const UNPACED: &str = "reno";

/// Connects within the time: if many clients wait for a server that accepts none, the system's call waits as well.
fn connect_unix(path: &Path, within: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_send_buffer_size(&socket, SEND_BYTES)?;
    connect_within(socket, &SocketAddrUnix::new(path)?, within).map(UnixStream::from)
}

fn connect_within(socket: OwnedFd, to: &impl SocketAddrArg, within: Duration) -> io::Result<OwnedFd> {
    set_socket_timeout(&socket, Timeout::Send, Some(within.max(Duration::from_millis(1))))?;
    loop {
        match rustix::net::connect(&socket, to) {
            Err(Errno::INTR) => {}
            // The send timeout is over: the backlog of the listener is full, or nobody answers.
            Err(Errno::AGAIN | Errno::INPROGRESS | Errno::ALREADY) => return Err(io::ErrorKind::TimedOut.into()),
            connected => return connected.map(|()| socket).map_err(io::Error::from),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Tls(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
            Socket::Made(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Tls(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
            Socket::Made(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, places: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write_vectored(places),
            Socket::Tls(stream) => stream.write_vectored(places),
            Socket::Unix(stream) => stream.write_vectored(places),
            Socket::Made(stream) => stream.write_vectored(places),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Socket::Tls(stream) => stream.flush(),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::server::WebPkiClientVerifier;
    use rustls::{RootCertStore, ServerConfig, ServerConnection};
    use std::net::TcpListener;

    /// Both sides of a server that wants client certificates.
    fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots.clone()), provider.clone());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (Arc::new(server.unwrap()), Arc::new(client))
    }

    #[test]
    fn the_last_word_is_heard_where_the_server_has_closed_before_anything_was_sent() {
        let (server, client) = configs();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tls("localhost".to_owned(), listener.local_addr().unwrap().port());
        let serving = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut session = ServerConnection::new(server).unwrap();
            while session.is_handshaking() && session.complete_io(&mut stream).is_ok() {}
        });
        let end = Instant::now() + Duration::from_secs(10);
        let mut socket = Socket::connect(&address, end, Some(&client), &MachineTimer).unwrap();
        serving.join().unwrap();
        // The socket takes some before it knows that nobody is there.
        let failed = |socket: &mut Socket| socket.write_all(&[0; 100]).and_then(|()| socket.flush()).is_err();
        while !failed(&mut socket) {
            assert!(Instant::now() < end, "the end is never seen");
            std::thread::sleep(Duration::from_millis(1));
        }
        let said = socket.last_word().unwrap().to_string();
        assert!(said.contains("CertificateRequired"), "{said}");
        assert!(socket.last_word().is_none());
    }
}
