//! A connected stream in two halves, of any sort.
//!
//! *On failure*: `Unavailable` where nobody answers, `Invalid` where a certificate is not believed.

use super::connector::{Reader, Writer};
use crate::address::Address;
use crate::socket::{SEND_BYTES, UNPACED};
use crate::tls;
use forebay_core::{Error, Result};
use rustix::net::sockopt::{set_socket_send_buffer_size, set_tcp_congestion};
use rustls::ClientConfig;
use std::io;
use std::sync::Arc;
use tokio::net::{TcpSocket, TcpStream, UnixStream, lookup_host};
use tokio_rustls::TlsConnector;

/// Connects, with a TLS handshake if the address asks for one.
pub(super) async fn connect(address: &Address, config: Option<&Arc<ClientConfig>>) -> Result<(Reader, Writer)> {
    let away = |error: io::Error| Error::unavailable(format!("{address} does not answer: {error}")).with_source(error);
    let (host, port) = match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(away)?;
            set_socket_send_buffer_size(&stream, SEND_BYTES).map_err(|error| away(error.into()))?;
            let (reader, writer) = stream.into_split();
            return Ok((Box::pin(reader), Box::pin(writer)));
        }
        Address::Tcp(host, port) | Address::Tls(host, port) => (host.as_str(), *port),
    };
    let stream = connect_tcp(host, port).await.map_err(away)?;
    stream.set_nodelay(true).map_err(away)?;
    let Some(config) = config.filter(|_| matches!(address, Address::Tls(..))) else {
        let (reader, writer) = stream.into_split();
        return Ok((Box::pin(reader), Box::pin(writer)));
    };
    let shaken = TlsConnector::from(config.clone()).connect(tls::server_name(host)?, stream).await;
    let (reader, writer) = tokio::io::split(shaken.map_err(|error| tls::unshaken(address, error))?);
    Ok((Box::pin(reader), Box::pin(writer)))
}

/// Connects to the first address of the host that answers; to this machine without pacing (`socket::connect_tcp`).
async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for place in lookup_host((host, port)).await? {
        let socket = if place.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if place.ip().is_loopback() {
            let _ = set_tcp_congestion(&socket, UNPACED);
        }
        match socket.connect(place).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
