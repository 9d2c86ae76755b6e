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

    /// The server has said hello on the connection that was made last.
    fn answered(&self) {}

    /// The server's refusal of this client, where an error of a connection says so.
    fn refusal(&self, _error: &Error) -> Option<Error> {
        None
    }
}

/// Sockets of the system, to one of the server's addresses.
pub(super) struct Sockets {
    addresses: Vec<Address>,
    tls: Option<Arc<ClientConfig>>,
    /// The one that the next connection begins with.
    next: AtomicUsize,
}

impl Sockets {
    pub(super) fn new(addresses: Vec<Address>, tls: Option<Arc<ClientConfig>>) -> Sockets {
        Sockets { addresses, tls, next: AtomicUsize::new(0) }
    }

    /// Each in turn. One that hangs, or says no hello, is given up from outside: the next connection begins behind it.
    async fn connect_to_one(&self) -> Result<(Reader, Writer)> {
        let mut left = self.addresses.len();
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed) % self.addresses.len();
            let connected = connect(&self.addresses[at], self.tls.as_ref()).await;
            left -= 1;
            // One that answers and refuses would refuse at its other addresses too.
            if left == 0 || connected.as_ref().err().is_none_or(|error| error.kind() == Kind::Invalid) {
                return connected;
            }
        }
    }

    /// The one of the connection that was made last.
    fn last(&self) -> &Address {
        &self.addresses[self.next.load(Ordering::Relaxed).wrapping_sub(1) % self.addresses.len()]
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

    fn answered(&self) {
        self.next.fetch_sub(1, Ordering::Relaxed);
    }

    fn refusal(&self, error: &Error) -> Option<Error> {
        tls::refusal(self.last(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn an_address_that_says_no_hello_is_left_behind() {
        let listeners =
            [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
        let address =
            |listener: &TcpListener| Address::Tcp("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
        let mut addresses = vec![address(&TcpListener::bind("127.0.0.1:0").await.unwrap())];
        addresses.extend(listeners.iter().map(address));
        let sockets = Sockets::new(addresses, None);
        // Nobody is at the first one any more; the second one says nothing.
        for (at, says_hello) in [(0, false), (1, true), (1, true)] {
            let connected = sockets.connect().await.unwrap();
            tokio::time::timeout(Duration::from_secs(30), listeners[at].accept()).await.unwrap().unwrap();
            if says_hello {
                sockets.answered();
            }
            drop(connected);
        }
    }
}
