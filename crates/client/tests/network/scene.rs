//! Where tests take place: directories, stores, servers, clients, and this test binary as another process.

use engine::{Config, Store};
use forebay_client::core::{Key, Keyspace};
use forebay_client::{Client, Options};
use forebay_server::{Endpoint, Server, ServerConfig};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The run of all tests.
pub(crate) const RUN: u64 = 1;
/// How long a lease lasts without its client.
pub(crate) const LEASE: Duration = Duration::from_millis(500);

/// A directory that goes with the test.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Dir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("forebay-network-{}-{number}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Where the server listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("server")
    }

    /// The same as clients name it.
    pub(crate) fn address(&self) -> String {
        format!("unix:{}", self.socket().display())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

pub(crate) fn keyspace() -> Keyspace {
    let mut keyspace = Keyspace::events("network", 2).opening_runs();
    keyspace.run.complete_within = Duration::from_secs(3600);
    // Leases of answers that were lost count as failures: they must not end in the debug stream.
    keyspace.deliveries_max = 15;
    keyspace.announced = true;
    keyspace
}

fn config() -> Config {
    Config {
        hot_bytes: 64 << 20,
        segment_bytes: Some(256 << 10),
        write_heads: 1,
        lease: LEASE,
        put_deadline: Duration::from_secs(5),
        ..Config::default()
    }
}

/// The store of a directory: created if it does not exist.
pub(crate) fn store(dir: &Path) -> Store {
    let path = dir.join("store");
    if path.exists() {
        return Store::open(&path, config()).unwrap();
    }
    let store = Store::create(&path, &keyspace(), config()).unwrap();
    store.run_open(RUN, &keyspace().run).unwrap();
    store
}

pub(crate) fn serve(store: &Store, socket: &Path) -> Server {
    let native = vec![Endpoint::Unix(socket.to_owned()), Endpoint::Tcp("127.0.0.1:0".parse().unwrap())];
    Server::start(vec![store.clone()], ServerConfig { native, threads: 1, ..ServerConfig::default() }).unwrap()
}

/// Where a server listens on TCP.
pub(crate) fn tcp(server: &Server) -> String {
    let mut endpoints = server.endpoints().map(|(_, endpoint)| endpoint);
    endpoints.find(|endpoint| matches!(endpoint, Endpoint::Tcp(_))).unwrap().to_string()
}

pub(crate) fn client(address: &str) -> Client {
    let options = Options { deadline: Duration::from_secs(30), name: "network".to_owned(), ..Options::default() };
    Client::connect(address, options).unwrap()
}

pub(crate) fn key(event: u64, source: u64) -> Key {
    keyspace().schema.key(&[RUN, event, source]).unwrap()
}

/// How long a test goes on.
pub(crate) fn time(default: Duration) -> Duration {
    let text = std::env::var("FOREBAY_NETWORK_SECONDS").ok();
    text.and_then(|text| text.parse().ok()).map_or(default, Duration::from_secs)
}

/// The seed of a test, printed where it fails.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("FOREBAY_NETWORK_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(rand::random::<u64>);
    println!("FOREBAY_NETWORK_SEED={seed}");
    seed
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, is: impl Fn() -> bool) {
    let from = Instant::now();
    while !is() {
        assert!(from.elapsed() < Duration::from_secs(30), "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// This test binary as another process: it runs the test of this name, which finds its directory in a variable.
pub(crate) struct Process(Child);

impl Process {
    /// Starts it, and waits until it says that it is ready.
    pub(crate) fn start(role: &str, variable: &str, dir: &Path) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([role, "--exact", "--nocapture", "--test-threads=1"])
            .env(variable, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let is_ready = lines.any(|line| line.ends_with(READY));
        let mut process = Process(child);
        assert!(is_ready, "{role} ended by itself: {:?}", process.0.wait());
        // What else it says has to go somewhere.
        std::thread::spawn(move || lines.for_each(drop));
        process
    }

    /// Kills it: it can do nothing about that.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Tells it to end, and waits.
    pub(crate) fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const READY: &str = "ready";

/// The process says that it is ready.
pub(crate) fn say_ready() {
    println!("\n{READY}");
}

/// Waits until the process is told to end.
pub(crate) fn until_told() {
    let _ = std::io::stdin().read_line(&mut String::new());
}
