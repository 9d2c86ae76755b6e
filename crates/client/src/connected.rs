//! Connections to a server: to events, or to a keyspace of which it is not known what it is.

use crate::client::Client;
use crate::cluster::{ClusterClient, ClusterRing, Joined, first_that_answers};
use crate::options::Options;
use crate::pool::Pool;
use crate::ring::RingClient;
use forebay_core::{Either, Result, RingKeyspace};

/// What a server has under a name.
#[derive(Clone, Debug)]
pub enum Connected {
    /// A keyspace of events.
    Events(Client),
    /// A ring.
    Ring(RingClient),
}

impl Connected {
    /// Connects to a server, as [`Client::connect`] and [`RingClient::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(address: &str, options: Options) -> Result<Connected> {
        Connected::of_pool(Pool::connect(address, options)?)
    }

    fn of_pool(pool: Pool) -> Result<Connected> {
        if RingKeyspace::is_named_by(&pool.welcome.keyspace) {
            return RingClient::of_pool(pool).map(Connected::Ring);
        }
        Client::of_pool(pool, Box::<Joined>::default()).map(Connected::Events)
    }
}

impl Connected {
    /// Connects to a cluster by addresses of some of its nodes, as [`ClusterClient::connect`] and [`ClusterRing::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn cluster<A: AsRef<str>>(addresses: &[A], options: &Options) -> Result<Either<ClusterClient, ClusterRing>> {
        match first_that_answers(addresses, options, Connected::of_pool)? {
            Connected::Events(one) => ClusterClient::of(&one, options.clone()).map(Either::Here),
            Connected::Ring(one) => ClusterRing::of(&one, options.clone()).map(Either::There),
        }
    }
}

impl Client {
    /// Connects to a server: `tcp://host:7440`, `tls://host:7440` or `unix:/path`.
    ///
    /// # Errors
    /// `Invalid` for an ill-formed address, a token or keyspace that the server refuses, a keyspace that is a ring;
    /// `Unavailable` where nobody answers within the deadline.
    pub fn connect(address: &str, options: Options) -> Result<Client> {
        Client::of_pool(Pool::connect(address, options)?, Box::<Joined>::default())
    }
}
