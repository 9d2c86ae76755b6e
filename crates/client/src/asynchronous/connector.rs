//! Who makes the connections of a client, and draws its random numbers: sockets, or a simulator.

use super::stream::connect;
use crate::address::Address;
use crate::machine::Machine;
use crate::tls;
use forebay_core::{Error, MachineTimer, Result};
use rustls::ClientConfig;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// What comes from the server.
pub type Reader = Pin<Box<dyn AsyncRead + Send>>;
/// What goes to it.
pub type Writer = Pin<Box<dyn AsyncWrite + Send>>;
/// A connection that is being made.
type Connecting<'a> = Pin<Box<dyn Future<Output = Result<(Reader, Writer)>> + Send + 'a>>;

/// Makes connections to one server.
pub trait Connector: Send + Sync {
    /// What people call the server.
    fn name(&self) -> String;

    /// Makes a connection: `Unavailable` where nobody answers, `Invalid` where trying again is of no use.
    fn connect(&self) -> Connecting<'_>;

    /// A random number from 0 to 1, for pauses between tries.
    fn draw(&self) -> f64;

    /// The server's refusal of this client, where an error of a connection says so.
    fn refusal(&self, _error: &Error) -> Option<Error> {
        None
    }
}

/// Sockets of the system.
pub(super) struct Sockets {
    pub(super) address: Address,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Connector for Sockets {
    fn name(&self) -> String {
        self.address.to_string()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(connect(&self.address, self.tls.as_ref()))
    }

    fn draw(&self) -> f64 {
        MachineTimer.draw()
    }

    fn refusal(&self, error: &Error) -> Option<Error> {
        tls::refusal(&self.address, error)
    }
}
