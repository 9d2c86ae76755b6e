//! The other side, in a process of its own: a server of Forebay, or one that only moves bytes.
//!
//! ```text
//! cargo xtask bench network ──starts──▶ this program as a peer ──says where it listens──▶ load
//!                           ◀── ends when its standard input does
//! ```

use super::wire::Bare;
use crate::Result;
use crate::engine::Scratch;
use clap::Args;
use forebay_core::{Completeness, Keyspace};
use forebay_server::{Endpoint, Protocol, Server, ServerConfig, TlsFiles};
use forebay_store::{Config, Store};
use rcgen::{CertificateParams, KeyPair};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Options of a peer.
#[derive(Args)]
pub(crate) struct PeerOptions {
    /// `forebay`, `cluster` or `bare`.
    #[arg(long)]
    what: String,
    /// Directory for its store and its sockets.
    #[arg(long)]
    dir: PathBuf,
    /// Bytes of the hot region.
    #[arg(long, default_value_t = 1 << 30)]
    hot_bytes: u64,
}

/// Fragments of an event, unless a run says otherwise.
pub(super) const SOURCES: u64 = 16;
/// File of its certificate, in its directory.
const CERTIFICATE: &str = "peer.pem";

/// Serves until standard input ends.
pub(crate) fn serve(options: &PeerOptions) -> Result<()> {
    let socket = options.dir.join("peer.sock");
    if options.what == "bare" {
        let bare = Bare::start(&socket)?;
        println!("native tcp://{}", bare.tcp);
        println!("native unpaced://{}", bare.unpaced);
        println!("native unix:{}\nready", socket.display());
        std::io::stdin().read_to_end(&mut Vec::new())?;
        return Ok(());
    }
    if options.what == "cluster" {
        return super::nodes::serve(&options.dir, options.hot_bytes);
    }
    let keyspace = keyspace();
    let config = Config { hot_bytes: options.hot_bytes, put_deadline: Duration::ZERO, ..Config::default() };
    let store = Store::create(&options.dir.join("store"), &keyspace, config)?;
    let listen = ["tcp://127.0.0.1:0".parse()?, "tls://127.0.0.1:0".parse()?, Endpoint::Unix(socket)];
    let resp = ["tcp://127.0.0.1:0".parse()?, Endpoint::Unix(options.dir.join("resp.sock"))];
    let tls = Some(certificate(&options.dir)?);
    let mut config =
        ServerConfig { native: listen.into(), resp: resp.into(), tls, threads: 1, ..ServerConfig::default() };
    config.limits.connections_max = 30_000;
    let server = Server::start(vec![store.clone()], config)?;
    for (protocol, endpoint) in server.endpoints() {
        let protocol = if protocol == Protocol::Native { "native" } else { "resp" };
        println!("{protocol} {endpoint}");
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop(Duration::from_secs(2));
    store.close()?;
    Ok(())
}

/// The keyspace of all peers.
pub(super) fn keyspace() -> Keyspace {
    let mut keyspace = Keyspace::events("bench", SOURCES as u32).opening_runs();
    keyspace.run.completeness = Completeness::Count(SOURCES as u32);
    keyspace.run.complete_within = Duration::from_secs(3600);
    keyspace
}

/// A self-signed certificate for this run, which clients trust.
fn certificate(dir: &Path) -> Result<TlsFiles> {
    let key = KeyPair::generate()?;
    let made = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.self_signed(&key)?;
    let files = TlsFiles { certificate: dir.join(CERTIFICATE), key: dir.join("peer.key"), ..TlsFiles::default() };
    std::fs::write(&files.certificate, made.pem())?;
    let mut secret = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&files.key)?;
    secret.write_all(key.serialize_pem().as_bytes())?;
    Ok(files)
}

/// A peer at work, ended when this is dropped.
pub(super) struct Peer {
    process: Child,
    /// Where it listens: protocol and address.
    pub(super) addresses: Vec<(String, String)>,
    scratch: Scratch,
}

impl Peer {
    /// Starts one, on these processors.
    pub(super) fn start(what: &str, dir: &Path, hot_bytes: u64) -> Result<Peer> {
        let scratch = Scratch::new(dir)?;
        let mut process = Command::new(std::env::current_exe()?)
            .args(["network-peer", "--what", what, "--hot-bytes", &hot_bytes.to_string(), "--dir"])
            .arg(scratch.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        super::pin::process(process.id(), super::pin::SERVER)?;
        let lines = BufReader::new(process.stdout.take().ok_or("no output of a peer")?).lines();
        let mut addresses = Vec::new();
        for line in lines {
            let line = line?;
            match line.split_once(' ') {
                Some((protocol, address)) => addresses.push((protocol.to_owned(), address.to_owned())),
                None if line == "ready" => return Ok(Peer { process, addresses, scratch }),
                None => {}
            }
        }
        let _ = process.wait();
        Err(format!("the {what} peer ended at once").into())
    }

    /// Where it listens with this protocol and transport (`tcp`, `tls`, `unix`).
    pub(super) fn address(&self, protocol: &str, transport: &str) -> Result<&str> {
        let found = self.addresses.iter().find(|(known, address)| known == protocol && address.starts_with(transport));
        found.map(|(_, address)| address.as_str()).ok_or_else(|| format!("no {protocol} over {transport}").into())
    }

    /// The certificate of its TLS listener.
    pub(super) fn certificate(&self) -> PathBuf {
        self.scratch.path().join(CERTIFICATE)
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        for _ in 0..100 {
            if self.process.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
