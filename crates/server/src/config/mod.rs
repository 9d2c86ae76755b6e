//! Configuration of a server: listeners, threads, limits, tokens, certificates; and the file that has it.
//!
//! ```text
//! file ──locate──▶ Settings ──┬──▶ stores (keyspace.rs), rings (ring.rs)
//!   errors name file, line    ├──▶ ServerConfig ──▶ Server::start
//!                             └──▶ log, grace (the program that runs the server)
//! ```

mod file;
mod keyspace;
mod listen;
mod ring;
mod start;
mod token;

pub use file::{ClusterSettings, LogFormat, LogLevel, LogSettings, Settings};
pub use keyspace::{CreateSettings, KeyspaceSettings, WarmSettings};
pub use listen::ListenSettings;
pub use ring::{CreateRingSettings, RingSettings};
pub use token::TokenSettings;

use crate::access::AccessToken;
use crate::audit::AuditSettings;
use crate::endpoint::Endpoint;
use crate::limits::Limits;
use crate::tls::TlsFiles;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Listeners, threads, limits and rules of a server. Stores are given beside it.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where Forebay's own protocol is spoken.
    pub native: Vec<Endpoint>,
    /// Where Redis's protocol is spoken.
    pub resp: Vec<Endpoint>,
    /// Where metrics and probes are answered over HTTP.
    pub http: Option<SocketAddr>,
    /// Listen beyond this machine without TLS or without anybody having to say who it is.
    pub insecure: bool,
    /// Answer metrics and probes beyond this machine.
    pub http_insecure: bool,
    /// Permissions of Unix sockets.
    pub unix_mode: u32,
    /// Certificate and key of `tls://` listeners.
    pub tls: Option<TlsFiles>,
    /// Access tokens and their rights; without any token everybody may do everything.
    pub tokens: Vec<AccessToken>,
    /// Where changes are noted, if anywhere.
    pub audit: Option<AuditSettings>,
    /// Threads that serve connections.
    pub threads: usize,
    /// Limits of connections.
    pub limits: Limits,
}

/// Permissions of Unix sockets that nobody chose: owner and group.
const UNIX_MODE: u32 = 0o660;
/// Most threads that are taken where nobody says how many.
const THREADS_DEFAULT_MAX: usize = 8;
/// Time for what is under way when a server is stopped, where nobody says how much.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Where a server remembers what it serves, where nobody says: packaging/forebay.service has it as StateDirectory.
const STATE_DIR: &str = "/var/lib/forebay";

/// The state directory that systemd gives a service, the first where it gives several.
fn state_dir_default() -> PathBuf {
    let given = std::env::var_os("STATE_DIRECTORY").unwrap_or_default();
    std::env::split_paths(&given).find(|path| path.is_absolute()).unwrap_or_else(|| PathBuf::from(STATE_DIR))
}

/// One thread for each processor, up to a bound.
fn threads_default() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_DEFAULT_MAX)
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            native: Vec::new(),
            resp: Vec::new(),
            http: None,
            insecure: false,
            http_insecure: false,
            unix_mode: UNIX_MODE,
            tls: None,
            tokens: Vec::new(),
            audit: None,
            threads: threads_default(),
            limits: Limits::default(),
        }
    }
}
