//! A small store and a server over it, on a Unix socket and on TCP.

use crate::session::raw::Raw;
use forebay_core::{Key, Keyspace, PutOptions};
use forebay_server::{Endpoint, Limits, Server, ServerConfig};
use forebay_store::{Config, Store};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Window of clients to which it does not matter.
pub(crate) const WINDOW: u32 = 1 << 20;
/// The run that is open.
pub(crate) const RUN: u64 = 1;

pub(crate) struct Scene {
    pub(crate) store: Store,
    pub(crate) server: Option<Server>,
    pub(crate) keyspace: Keyspace,
    dir: PathBuf,
    _turn: Turn,
}

/// Tests that measure the process run alone.
static TURNS: RwLock<()> = RwLock::new(());

enum Turn {
    #[expect(dead_code, reason = "held")]
    WithOthers(RwLockReadGuard<'static, ()>),
    #[expect(dead_code, reason = "held")]
    Alone(RwLockWriteGuard<'static, ()>),
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene::with(|_| {}, |_| {})
    }

    /// The same, while no other test runs.
    pub(crate) fn alone() -> Scene {
        Scene::make(Turn::Alone(TURNS.write()), |_| {}, |_| {})
    }

    /// A store of 8 MiB whose events have two sources, and a server with one thread.
    pub(crate) fn with(change: impl FnOnce(&mut Limits), store: impl FnOnce(&mut Config)) -> Scene {
        Scene::make(Turn::WithOthers(TURNS.read_recursive()), change, store)
    }

    fn make(turn: Turn, change: impl FnOnce(&mut Limits), store: impl FnOnce(&mut Config)) -> Scene {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("forebay-session-{}-{number}", std::process::id()));
        std::fs::remove_dir_all(&dir).ok();
        std::fs::create_dir_all(&dir).unwrap();
        let mut keyspace = Keyspace::events("session", 2).opening_runs();
        keyspace.run.complete_within = Duration::from_secs(3600);
        let mut config = Config {
            hot_bytes: 8 << 20,
            segment_bytes: Some(128 << 10),
            write_heads: 1,
            put_deadline: Duration::ZERO,
            ..Config::default()
        };
        store(&mut config);
        let store = Store::create(&dir.join("store"), &keyspace, config).unwrap();
        store.run_open(RUN, &keyspace.run).unwrap();
        let mut limits = Limits::default();
        change(&mut limits);
        let native = vec![Endpoint::Unix(dir.join("socket")), Endpoint::Tcp("127.0.0.1:0".parse().unwrap())];
        let config = ServerConfig { native, threads: 1, limits, ..ServerConfig::default() };
        let server = Server::start(vec![store.clone()], config).unwrap();
        Scene { store, server: Some(server), keyspace, dir, _turn: turn }
    }

    pub(crate) fn tcp_address(&self) -> SocketAddr {
        let mut endpoints = self.server.as_ref().unwrap().endpoints();
        let tcp = |(_, endpoint): (_, &Endpoint)| if let Endpoint::Tcp(at) = endpoint { Some(*at) } else { None };
        endpoints.find_map(tcp).unwrap()
    }

    /// The Unix socket.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// A connection before its hello, over a Unix socket.
    pub(crate) fn stranger(&self) -> Raw {
        Raw::unix(&self.path())
    }

    /// The same over TCP.
    pub(crate) fn stranger_over_tcp(&self) -> Raw {
        Raw::tcp(self.tcp_address())
    }

    /// A connection that has said hello.
    pub(crate) fn client(&self) -> Raw {
        self.stranger().hello(WINDOW)
    }

    pub(crate) fn key(&self, event: u64, source: u64) -> Key {
        self.keyspace.schema.key(&[RUN, event, source]).unwrap()
    }

    /// Puts fragments of this many bytes for an event with all its sources, without the server.
    pub(crate) fn event(&self, event: u64, bytes: usize) {
        for source in 0..2 {
            let options = PutOptions { deadline: Some(Duration::from_secs(5)), ..PutOptions::default() };
            let value = vec![event as u8; bytes];
            let _ = self.store.put(&self.key(event, source), &value, &options).unwrap();
        }
    }

    /// Fills the store until nothing more goes in; answers the number of the first event that did not.
    pub(crate) fn fill(&self, bytes: usize) -> u64 {
        let value = vec![7; bytes];
        for event in 100_000.. {
            for source in 0..2 {
                if self.store.put(&self.key(event, source), &value, &PutOptions::default()).is_err() {
                    return event;
                }
            }
        }
        unreachable!("a store without an end")
    }

    /// Guards that clients of the server hold.
    pub(crate) fn guards(&self) -> u64 {
        self.store.stats().holders.iter().filter(|holder| holder.holder == "raw").map(|holder| holder.guards).sum()
    }

    /// The account of the run is exact.
    #[track_caller]
    pub(crate) fn check_ledger(&self) {
        assert_eq!(self.store.ledger(RUN).unwrap().imbalance(), None);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.server = None;
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, is: impl Fn() -> bool) {
    let from = Instant::now();
    while !is() {
        assert!(from.elapsed() < Duration::from_secs(20), "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes of memory that this process has.
pub(crate) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}
