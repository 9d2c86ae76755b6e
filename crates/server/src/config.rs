//! How a server is started.

use crate::endpoint::Endpoint;
use crate::limits::Limits;
use std::net::SocketAddr;

/// Listeners, threads and limits of a server. Stores are given beside it.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where Forebay's own protocol is spoken.
    pub native: Vec<Endpoint>,
    /// Where Redis's protocol is spoken.
    pub resp: Vec<Endpoint>,
    /// Where metrics and probes are answered over HTTP.
    pub http: Option<SocketAddr>,
    /// Threads that serve connections.
    pub threads: usize,
    /// What connections may take.
    pub limits: Limits,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            native: Vec::new(),
            resp: Vec::new(),
            http: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from).min(8),
            limits: Limits::default(),
        }
    }
}
