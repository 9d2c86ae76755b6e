//! The address of a server, as people write it: `tcp://host:7440`, `tls://host:7440`, `unix:/run/forebay/forebay.sock`.

use forebay_core::{Error, Result};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port of Forebay's own protocol.
pub const PORT: u16 = 7440;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP, as it is: host and port.
    Tcp(String, u16),
    /// TLS over TCP: host, by whose name the server's certificate is checked, and port.
    Tls(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address> {
        let wrong = || {
            Error::invalid(format!(
                "address `{text}`: expected tcp://HOST[:PORT], tls://HOST[:PORT] or unix:/PATH (port {PORT} without one)"
            ))
        };
        let (scheme, rest) = text.split_once(':').ok_or_else(wrong)?;
        if scheme == "unix" {
            let path = rest.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(rest);
            return if path.starts_with('/') { Ok(Address::Unix(path.into())) } else { Err(wrong()) };
        }
        let place = rest.strip_prefix("//").ok_or_else(wrong)?;
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.is_empty() && !port.ends_with(']') => {
                (host, port.parse().map_err(|error| wrong().with_source(error))?)
            }
            _ => (place, PORT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        match scheme {
            _ if host.is_empty() => Err(wrong()),
            "tcp" => Ok(Address::Tcp(host, port)),
            "tls" => Ok(Address::Tls(host, port)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            Address::Unix(path) => return write!(out, "unix:{}", path.display()),
            Address::Tcp(host, port) => ("tcp", host, port),
            Address::Tls(host, port) => ("tls", host, port),
        };
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(out, "{scheme}://{open}{host}{close}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back() {
        for (text, full) in [
            ("tcp://daq-01", "tcp://daq-01:7440"),
            ("tls://daq-01.example.org:9", "tls://daq-01.example.org:9"),
            ("tcp://[::1]:7", "tcp://[::1]:7"),
            ("tcp://[::1]", "tcp://[::1]:7440"),
            ("unix:/run/forebay.sock", "unix:/run/forebay.sock"),
            ("unix:///run/forebay.sock", "unix:/run/forebay.sock"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), full);
        }
        for text in ["", "daq-01", "tcp://", "tcp://x:port", "http://x", "unix:relative", "tcp:x"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
