//! The handle on a store of events that everybody holds.
//!
//! *Not here*: connections, repeats, deadlines (`pool.rs`).

use crate::elsewhere::OtherNodes;
use crate::heartbeat::Heartbeat;
use crate::pool::Pool;
use forebay_core::{Error, KeySchema, Keyspace, Result, RingKeyspace};
use std::sync::{Arc, OnceLock};

/// A store on a server: a cheap handle, cloned freely, used from any number of threads.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) pool: Pool,
    keyspace: Keyspace,
    heartbeat: OnceLock<Heartbeat>,
    /// Other nodes of the server's cluster.
    pub(crate) others: Box<dyn OtherNodes>,
}

impl Client {
    pub(crate) fn of_pool(pool: Pool, others: Box<dyn OtherNodes>) -> Result<Client> {
        let text = &pool.welcome.keyspace;
        let keyspace = Keyspace::from_toml(text).map_err(|error| match RingKeyspace::from_toml(text) {
            Ok(ring) => Error::invalid(format!("keyspace `{}` is a ring: connect to it with RingClient", ring.name)),
            Err(_) => error,
        })?;
        Ok(Client { inner: Arc::new(Inner { pool, keyspace, heartbeat: OnceLock::new(), others }) })
    }

    /// The keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        &self.inner.keyspace
    }

    /// The keyspace's key schema.
    pub fn schema(&self) -> &KeySchema {
        &self.inner.keyspace.schema
    }

    /// Where the server is.
    pub fn address(&self) -> String {
        self.pool().address.to_string()
    }

    /// Ends: free connections are closed, further calls answer `Closed`. Leases are left to their time.
    pub fn close(&self) {
        self.pool().close();
        self.inner.others.close();
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// The thread that extends leases, if the options want one.
    pub(crate) fn heartbeat(&self) -> Option<&Heartbeat> {
        let options = &self.pool().options;
        let start = || Heartbeat::start(Arc::downgrade(&self.inner), &options.machine);
        options.extend_leases.then(|| self.inner.heartbeat.get_or_init(start))
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Client({}, keyspace {})", self.pool().address, self.keyspace().name)
    }
}
