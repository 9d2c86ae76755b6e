//! Who makes the connections of a client, and draws its random numbers: sockets, or a simulator.

use super::stream::connect;
use crate::address::Address;
use crate::machine::Machine;
use crate::tls;
use forebay_core::{Error, Kind, MachineTimer, Result};
use rustls::ClientConfig;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Sockets of the system, to one of the server's addresses.
pub(super) struct Sockets {
    addresses: Vec<Address>,
    tls: Option<Arc<ClientConfig>>,
    /// The one that is tried, or that answered.
    at: AtomicUsize,
}

impl Sockets {
    pub(super) fn new(addresses: Vec<Address>, tls: Option<Arc<ClientConfig>>) -> Sockets {
        Sockets { addresses, tls, at: AtomicUsize::new(0) }
    }

    /// Each in turn. One that hangs is given up from outside: the next connection begins behind it.
    async fn connect_to_one(&self) -> Result<(Reader, Writer)> {
        let all = self.addresses.len();
        let mut left = all;
        loop {
            let at = self.at.fetch_add(1, Ordering::Relaxed) % all;
            let connected = connect(&self.addresses[at], self.tls.as_ref()).await;
            left -= 1;
            // One that answers and refuses would refuse at its other addresses too.
            if left == 0 || connected.as_ref().err().is_none_or(|error| error.kind() == Kind::Invalid) {
                self.at.store(at, Ordering::Relaxed);
                return connected;
            }
        }
    }
}

impl Connector for Sockets {
    fn name(&self) -> String {
        self.addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(" or ")
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(self.connect_to_one())
    }

    fn draw(&self) -> f64 {
        MachineTimer.draw()
    }

    fn refusal(&self, error: &Error) -> Option<Error> {
        tls::refusal(&self.addresses[self.at.load(Ordering::Relaxed) % self.addresses.len()], error)
    }
}
