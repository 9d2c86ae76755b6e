//! Configuration, and what comes before every session: limits, TLS, tokens; starts and stops.

mod certificates;
mod config;
mod connections;
mod handshake;
mod log;
mod sample;
mod start;
mod tokens;

use forebay_core::Keyspace;
use forebay_server::{Endpoint, Protocol, Server, ServerConfig};
use forebay_store::{Config, Store};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A directory of its own per test, removed at the end.
struct Temp {
    path: PathBuf,
}

impl Temp {
    fn new() -> Temp {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("forebay-secure-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Temp { path }
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// A small store with a keyspace of this name.
    fn store(&self, name: &str) -> Store {
        let config = Config { hot_bytes: 4 << 20, segment_bytes: Some(64 << 10), ..Config::default() };
        Store::create(&self.path.join(name), &Keyspace::events(name, 1).opening_runs(), config).unwrap()
    }

    /// A server for one store, where it listens at first.
    fn server(&self, config: ServerConfig) -> (Server, SocketAddr) {
        let server = Server::start(vec![self.store("events")], ServerConfig { threads: 1, ..config }).unwrap();
        let address = address(&server, Protocol::Native);
        (server, address)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn address(server: &Server, wanted: Protocol) -> SocketAddr {
    let endpoint = server.endpoints().find(|(protocol, _)| *protocol == wanted).unwrap().1;
    match endpoint {
        Endpoint::Tcp(address) | Endpoint::Tls(address) => *address,
        Endpoint::Unix(path) => panic!("no address: {}", path.display()),
    }
}

/// Waits until this holds, for ten seconds.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What the server's metrics say of refusals by this listener, for this reason.
fn refused(server: &Server, listener: &str, reason: &str) -> u64 {
    let url = format!("http://{}/metrics", server.http().unwrap());
    let page = ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap();
    let is_ours = |line: &&str| {
        line.starts_with("forebay_refused_total{")
            && line.contains(&format!("listener=\"{listener}\""))
            && line.contains(&format!("reason=\"{reason}\""))
    };
    let line = page.lines().find(is_ours).unwrap_or_else(|| panic!("no such figure in {page}"));
    line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64
}
