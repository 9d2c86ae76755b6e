//! A store with a server on a TLS listener, and clients that believe its authority.

use crate::secure::certificates::{Authority, CLIENT, Pair, SERVER};
use engine::core::{Completeness, Error, Key, Keyspace};
use engine::{Config, Store};
use forebay_client::{AsyncClient, Client, Options, Tls};
use forebay_server::{Endpoint, Server, ServerConfig, TlsFiles};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) struct Scene {
    pub(crate) dir: PathBuf,
    pub(crate) authority: Authority,
    pub(crate) store: Store,
    server: Option<Server>,
    /// Where the server listens, once it has: it comes back there.
    listens: SocketAddr,
    client: Pair,
}

impl Scene {
    /// A server that takes certificates of clients, and wants none.
    pub(crate) fn new() -> Scene {
        let mut scene = Scene::without_server();
        let pair = scene.authority.sign("server", SERVER);
        scene.start(&pair, false);
        scene
    }

    pub(crate) fn without_server() -> Scene {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("forebay-client-tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut keyspace = Keyspace::events("tls", 1).opening_runs();
        keyspace.run.completeness = Completeness::Count(1);
        keyspace.run.complete_within = Duration::from_secs(600);
        let config = Config { hot_bytes: 128 << 20, segment_bytes: Some(4 << 20), ..Config::default() };
        let store = Store::create(&dir.join("store"), &keyspace, config);
        let authority = Authority::new(&dir, "authority");
        let client = authority.sign("client", CLIENT);
        let listens = "127.0.0.1:0".parse().unwrap();
        Scene { dir, authority, store: store.unwrap(), server: None, listens, client }
    }

    /// Starts the server with this certificate; `required` where it serves no client without one.
    pub(crate) fn start(&mut self, pair: &Pair, required: bool) {
        let tls = TlsFiles {
            certificate: pair.certificate.clone(),
            key: pair.key.clone(),
            client_ca: Some(self.authority.file.clone()),
            require_client_certificate: required,
        };
        let native = vec![Endpoint::Tls(self.listens)];
        let config = ServerConfig { native, tls: Some(tls), threads: 1, ..ServerConfig::default() };
        let server = Server::start(vec![self.store.clone()], config).unwrap();
        if let Some((_, Endpoint::Tls(address))) = server.endpoints().next() {
            self.listens = *address;
        }
        self.server = Some(server);
    }

    pub(crate) fn stop(&mut self) {
        self.server = None;
    }

    pub(crate) fn port(&self) -> u16 {
        self.listens.port()
    }

    pub(crate) fn address(&self) -> String {
        format!("tls://localhost:{}", self.port())
    }

    pub(crate) fn key(&self, event: u64) -> Key {
        self.store.schema().key(&[1, event, 0]).unwrap()
    }

    /// A client that believes the authority and shows nothing.
    pub(crate) fn options(&self) -> Options {
        let tls = Tls { ca: Some(self.authority.file.clone()), ..Tls::default() };
        Options { tls, ..Options::default() }
    }

    /// A client that shows its certificate as well.
    pub(crate) fn known(&self) -> Options {
        showing(self.options(), &self.client)
    }

    /// What each of the clients hears when it connects.
    pub(crate) fn errors(&self, address: &str, options: &Options) -> [Error; 2] {
        let connected = runtime().block_on(AsyncClient::connect(address, options.clone()));
        [Client::connect(address, options.clone()).unwrap_err(), connected.err().unwrap()]
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.server = None;
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

/// A client that shows this certificate.
pub(crate) fn showing(mut options: Options, pair: &Pair) -> Options {
    options.tls.certificate = Some(pair.certificate.clone());
    options.tls.key = Some(pair.key.clone());
    options
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
