//! The address that a server listens at, as people write it: `tcp://127.0.0.1:7440`, `tls://0.0.0.0:7440`,
//! `unix:/run/forebay.sock`.

use forebay_core::{Error, Result};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// An address of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// TCP, as it is.
    Tcp(SocketAddr),
    /// TLS over TCP.
    Tls(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Endpoint> {
        let wrong = || Error::invalid(format!("address `{text}`: expected tcp://IP:PORT, tls://IP:PORT or unix:/PATH"));
        let address = |text: &str| text.parse().map_err(|error| wrong().with_source(error));
        match text.split_once(':').ok_or_else(wrong)? {
            ("unix", path) if path.starts_with('/') => Ok(Endpoint::Unix(path.into())),
            ("tcp", rest) => Ok(Endpoint::Tcp(address(rest.strip_prefix("//").ok_or_else(wrong)?)?)),
            ("tls", rest) => Ok(Endpoint::Tls(address(rest.strip_prefix("//").ok_or_else(wrong)?)?)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => write!(out, "tcp://{address}"),
            Endpoint::Tls(address) => write!(out, "tls://{address}"),
            Endpoint::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back() {
        for text in ["tcp://127.0.0.1:7440", "tls://[::1]:7440", "unix:/run/forebay/forebay.sock"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        for text in ["", "7440", "tcp:127.0.0.1:1", "tcp://nowhere", "unix:relative", "http://127.0.0.1:1"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
