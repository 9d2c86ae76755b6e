//! A connected stream in two halves, of any sort.
//!
//! *On failure*: `Unavailable` where nobody answers, `Invalid` where a certificate is not believed.

use super::connector::{Reader, Writer};
use crate::address::Address;
use crate::socket::SEND_BYTES;
use crate::tls;
use forebay_core::{Error, Result};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustls::ClientConfig;
use std::io;
use std::sync::Arc;
use tokio::net::{TcpStream, UnixStream};
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
    let stream = TcpStream::connect((host, port)).await.map_err(away)?;
    stream.set_nodelay(true).map_err(away)?;
    let Some(config) = config else {
        let (reader, writer) = stream.into_split();
        return Ok((Box::pin(reader), Box::pin(writer)));
    };
    let shaken = TlsConnector::from(config.clone()).connect(tls::server_name(host)?, stream).await;
    let (reader, writer) = tokio::io::split(shaken.map_err(|error| tls::unshaken(address, error))?);
    Ok((Box::pin(reader), Box::pin(writer)))
}
