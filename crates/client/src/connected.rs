//! A connection to a keyspace of which it is not known what it is.

use crate::client::Client;
use crate::options::Options;
use crate::pool::Pool;
use crate::ring::RingClient;
use forebay_core::{Result, RingKeyspace};

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
        let pool = Pool::connect(address, options)?;
        if RingKeyspace::is_named_by(&pool.welcome.keyspace) {
            return RingClient::of_pool(pool).map(Connected::Ring);
        }
        Client::of_pool(pool).map(Connected::Events)
    }
}
