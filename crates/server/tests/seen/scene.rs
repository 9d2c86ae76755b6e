//! A server over a store with two levels and some events in every state, and a ring.

use forebay_core::{GetAny, KeySchema, Keyspace, PutOptions, RingKeyspace};
use forebay_ring::{Ring, RingConfig};
use forebay_server::{AuditSettings, Endpoint, Served, Server, ServerConfig, TlsFiles};
use forebay_store::{Config, Store, WarmDevice};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Payload bytes of each fragment.
pub(crate) const FRAGMENT_BYTES: u64 = 1000;
/// Events that were put, with two fragments each.
pub(crate) const EVENTS: u64 = 10;

/// A server at work; directories go with it.
pub(crate) struct Scene {
    pub(crate) store: Store,
    pub(crate) ring: Ring,
    pub(crate) server: Option<Server>,
    dir: PathBuf,
}

impl Scene {
    /// A store named `physics` with a warm level of one device, and a server over it.
    pub(crate) fn new() -> Scene {
        Scene::with("physics", |_| {})
    }

    pub(crate) fn with(name: &str, change: impl FnOnce(&mut Config)) -> Scene {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("forebay-seen-{}-{number}", std::process::id()));
        std::fs::remove_dir_all(&dir).ok();
        std::fs::create_dir_all(&dir).unwrap();
        let mut keyspace = Keyspace::events(name, 2).opening_runs();
        keyspace.run.complete_within = Duration::from_secs(3600);
        let mut config = Config {
            hot_bytes: 8 << 20,
            segment_bytes: Some(64 << 10),
            put_deadline: Duration::ZERO,
            container_bytes: 256 << 10,
            device_log_bytes: 64 << 10,
            warm: vec![WarmDevice::directory(dir.join("disk one"), 4 << 20)],
            ..Config::default()
        };
        change(&mut config);
        let store = Store::create(&dir.join("store"), &keyspace, config).unwrap();
        store.run_open(1, &keyspace.run).unwrap();
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let config = ServerConfig {
            native: vec![Endpoint::Tcp(address), Endpoint::Tls(address)],
            tls: Some(certificate(&dir)),
            audit: Some(AuditSettings { file: dir.join("audit.log"), ..AuditSettings::default() }),
            http: Some(address),
            threads: 1,
            ..ServerConfig::default()
        };
        let links = RingConfig { hot_bytes: 4 << 20, segment_bytes: Some(64 << 10), ..RingConfig::default() };
        let mut keyspace = RingKeyspace::wibeth("links", 2).unwrap();
        (keyspace.history, keyspace.source_bytes_per_second) = (Duration::from_millis(1), 1_000_000);
        let ring = Ring::create(&dir.join("ring"), &keyspace, links).unwrap();
        let server = Server::start([Served::from(store.clone()), Served::from(ring.clone())], config).unwrap();
        Scene { store, ring, server: Some(server), dir }
    }

    /// [`EVENTS`] events: one is accepted, one rejected, one leased until the lease is dropped, one open; the others
    /// are ready.
    pub(crate) fn fill(&self) -> forebay_store::Lease {
        let options = PutOptions::default();
        for event in 0..EVENTS {
            for source in 0..2 {
                // The last event waits for its second source.
                if (event, source) != (EVENTS - 1, 1) {
                    let _ = self.store.put(&key(event, source), &[7; FRAGMENT_BYTES as usize], &options).unwrap();
                }
            }
        }
        // The same again, and other bytes.
        let _ = self.store.put(&key(0, 0), &[7; FRAGMENT_BYTES as usize], &options).unwrap();
        self.store.put(&key(0, 0), &[8; FRAGMENT_BYTES as usize], &options).unwrap_err();
        let ask = GetAny { n: 3, wait: Duration::from_secs(5), ..GetAny::default() };
        let mut leases = self.store.get_any(&ask).unwrap().into_iter();
        let (one, two, three) = (leases.next().unwrap(), leases.next().unwrap(), leases.next().unwrap());
        one.accept(&["tape"]).unwrap();
        two.reject().unwrap();
        three
    }

    /// Where metrics are.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.as_ref().unwrap().http().unwrap()
    }

    /// Where Forebay's own protocol is spoken.
    pub(crate) fn native(&self) -> SocketAddr {
        match self.server.as_ref().unwrap().endpoints().next().unwrap().1 {
            Endpoint::Tcp(address) => *address,
            other => panic!("{other}"),
        }
    }

    /// A page of the server.
    pub(crate) fn get(&self, path: &str) -> String {
        let (status, text) = get(self.address(), path);
        assert_eq!(status, 200, "{path}: {text}");
        text
    }

    /// The value of a sample, by its text up to the value.
    pub(crate) fn sample(&self, name: &str) -> f64 {
        let text = self.get("/metrics");
        value(&text, name).unwrap_or_else(|| panic!("no {name} in\n{text}"))
    }

    /// Waits until a sample has a value.
    pub(crate) fn until(&self, name: &str, is: impl Fn(f64) -> bool) {
        let from = std::time::Instant::now();
        while !is(self.sample(name)) {
            assert!(from.elapsed() < Duration::from_secs(20), "{name} stays at {}", self.sample(name));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn dir(&self) -> &std::path::Path {
        &self.dir
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.server = None;
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

/// A certificate that it signed itself.
fn certificate(dir: &Path) -> TlsFiles {
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (dir.join("certificate.pem"), dir.join("key.pem"));
    std::fs::write(&certificate, pair.cert.pem()).unwrap();
    std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    TlsFiles { certificate, key, client_ca: None, require_client_certificate: false }
}

/// Status and text of a page.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(20)))
        .http_status_as_error(false)
        .build()
        .into();
    let mut answer = agent.get(format!("http://{address}{path}")).call().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

/// The value of a sample in a page.
pub(crate) fn value(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

fn key(event: u64, source: u64) -> forebay_core::Key {
    KeySchema::run_event_source().key(&[1, event, source]).unwrap()
}
