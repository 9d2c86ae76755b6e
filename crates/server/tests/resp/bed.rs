//! A store and a server for one test, and a client that sees every byte.

use forebay_core::Keyspace;
use forebay_server::{Endpoint, Limits, Protocol, Server, ServerConfig};
use forebay_store::{Config, Store};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A server at work over stores in a directory of its own.
pub(crate) struct Bed {
    pub(crate) store: Store,
    pub(crate) port: u16,
    pub(crate) socket: PathBuf,
    // Ends before what it serves from.
    pub(crate) server: Option<Server>,
    _scratch: Scratch,
}

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn config() -> Config {
    Config { hot_bytes: 96 << 20, segment_bytes: Some(4 << 20), ..Config::default() }
}

impl Bed {
    /// Events of one fragment each.
    pub(crate) fn new() -> Bed {
        Bed::with(&[Keyspace::events("data", 1).opening_runs()], config(), Limits::default())
    }

    /// These keyspaces; the store of the first is at hand.
    pub(crate) fn with(keyspaces: &[Keyspace], config: Config, limits: Limits) -> Bed {
        Bed::serving(keyspaces, config, ServerConfig { limits, ..ServerConfig::default() })
    }

    /// The same, by a server that is configured like this.
    pub(crate) fn serving(keyspaces: &[Keyspace], config: Config, server: ServerConfig) -> Bed {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("forebay-resp-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let create = |keyspace: &Keyspace| Store::create(&dir.join(&keyspace.name), keyspace, config.clone()).unwrap();
        let stores: Vec<Store> = keyspaces.iter().map(create).collect();
        let store = stores[0].clone();
        let socket = dir.join("resp.sock");
        let mut resp = vec![Endpoint::Tcp("127.0.0.1:0".parse().unwrap()), Endpoint::Unix(socket.clone())];
        resp.extend(server.resp.iter().cloned());
        let server = Server::start(stores, ServerConfig { resp, threads: 1, ..server }).unwrap();
        let port = server.endpoints().find_map(|(protocol, endpoint)| match (protocol, endpoint) {
            (Protocol::Resp, Endpoint::Tcp(address)) => Some(address.port()),
            _ => None,
        });
        Bed { store, port: port.unwrap(), socket, server: Some(server), _scratch: Scratch(dir) }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.socket.parent().unwrap()
    }

    pub(crate) fn tcp(&self) -> Wire {
        Wire::tcp(SocketAddr::from(([127, 0, 0, 1], self.port)))
    }

    pub(crate) fn unix(&self) -> Wire {
        Wire::new(Box::new(UnixStream::connect(&self.socket).unwrap()))
    }
}

/// A stream whose reads end.
pub(crate) trait Stream: Read + Write + Send {
    fn set_read_timeout(&self, timeout: Duration);
    fn end_writing(&self);
}

impl Stream for TcpStream {
    fn set_read_timeout(&self, timeout: Duration) {
        TcpStream::set_read_timeout(self, Some(timeout)).unwrap();
        self.set_nodelay(true).unwrap();
    }

    fn end_writing(&self) {
        self.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

impl Stream for UnixStream {
    fn set_read_timeout(&self, timeout: Duration) {
        UnixStream::set_read_timeout(self, Some(timeout)).unwrap();
    }

    fn end_writing(&self) {
        self.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

/// A client that writes bytes and reads bytes.
pub(crate) struct Wire {
    pub(crate) stream: Box<dyn Stream>,
    ahead: Vec<u8>,
}

/// A command as clients write it.
pub(crate) fn request<B: AsRef<[u8]>>(parts: &[B]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        bytes.extend_from_slice(format!("${}\r\n", part.as_ref().len()).as_bytes());
        bytes.extend_from_slice(part.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Wire {
    pub(crate) fn tcp(address: SocketAddr) -> Wire {
        Wire::new(Box::new(TcpStream::connect(address).unwrap()))
    }

    fn new(stream: Box<dyn Stream>) -> Wire {
        stream.set_read_timeout(Duration::from_secs(20));
        Wire { stream, ahead: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Asks in words, and reads the answer as text: `OK`, `-ERR …`, `:1`, `nil`, `[a, [b, c]]`, `{a: b}`.
    pub(crate) fn ask(&mut self, words: &str) -> String {
        let parts: Vec<&str> = words.split(' ').collect();
        self.ask_parts(&parts)
    }

    pub(crate) fn ask_parts<B: AsRef<[u8]>>(&mut self, parts: &[B]) -> String {
        self.send(&request(parts));
        self.answer()
    }

    /// The next answer as text.
    pub(crate) fn answer(&mut self) -> String {
        let line = self.line();
        let (sign, rest) = line.split_at(1);
        let count = || rest.parse::<i64>().unwrap();
        match sign {
            "+" | "," => rest.to_owned(),
            "-" | ":" | "#" => line,
            "_" => "nil".to_owned(),
            "$" | "*" if count() < 0 => "nil".to_owned(),
            "$" | "=" => {
                let bytes = self.take(count() as usize + 2);
                assert!(bytes.ends_with(b"\r\n"));
                String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned()
            }
            "*" | "~" => format!("[{}]", (0..count()).map(|_| self.answer()).collect::<Vec<_>>().join(", ")),
            "%" => {
                let pairs = (0..count()).map(|_| format!("{}: {}", self.answer(), self.answer()));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
            _ => panic!("an answer that begins with {line:?}"),
        }
    }

    fn line(&mut self) -> String {
        let mut from = 0;
        loop {
            if let Some(end) = self.ahead[from..].windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.ahead.drain(..from + end + 2).collect();
                return String::from_utf8_lossy(&line[..line.len() - 2]).into_owned();
            }
            from = self.ahead.len().saturating_sub(1);
            assert!(self.more() > 0, "the connection ended in {:?}", String::from_utf8_lossy(&self.ahead));
        }
    }

    pub(crate) fn take(&mut self, count: usize) -> Vec<u8> {
        while self.ahead.len() < count {
            assert!(self.more() > 0, "the connection ended");
        }
        self.ahead.drain(..count).collect()
    }

    fn more(&mut self) -> usize {
        let mut bytes = [0; 64 << 10];
        let count = loop {
            match self.stream.read(&mut bytes) {
                Ok(count) => break count,
                // By a store's io_uring, for one.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break 0,
                Err(error) => panic!("{error}"),
            }
        };
        self.ahead.extend_from_slice(&bytes[..count]);
        count
    }

    /// Everything up to the end of the connection.
    pub(crate) fn rest(&mut self) -> String {
        while self.more() > 0 {}
        String::from_utf8_lossy(&std::mem::take(&mut self.ahead)).into_owned()
    }
}
