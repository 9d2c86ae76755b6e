//! The handle on a store of events that everybody holds.
//!
//! *Not here*: connections, repeats, deadlines (`pool.rs`).

use crate::elsewhere::OtherNodes;
use crate::heartbeat::Heartbeat;
use crate::pool::{Calls, Pool};
use crate::retry::Limit;
use forebay_core::{Error, KeySchema, Keyspace, Result, RingKeyspace};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A store on a server: a cheap handle, cloned freely, used from any number of threads.
pub struct Client {
    pub(crate) inner: Arc<Inner>,
    /// The time of the call that calls by this handle are parts of.
    within: Option<Limit>,
}

/// A handle for calls of their own, also where it is copied within a call.
impl Clone for Client {
    fn clone(&self) -> Client {
        Client { inner: self.inner.clone(), within: None }
    }
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
        Ok(Client { inner: Arc::new(Inner { pool, keyspace, heartbeat: OnceLock::new(), others }), within: None })
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

    pub(crate) fn calls(&self) -> Calls<'_> {
        Calls::new(self.pool(), self.within)
    }

    /// The time of the call that calls by this handle are parts of.
    pub(crate) fn limit(&self) -> Option<Limit> {
        self.within
    }

    /// The same handle, whose calls are parts of one that has this time.
    pub(crate) fn within(&self, limit: Limit) -> Client {
        self.in_time_of(Some(limit))
    }

    /// The same handle, whose calls are parts of the one that has this time, or calls of their own.
    pub(crate) fn in_time_of(&self, limit: Option<Limit>) -> Client {
        Client { within: limit, ..self.clone() }
    }

    /// The same handle, whose calls are parts of one that begins now and itself waits so long.
    pub(crate) fn in_one_call(&self, wait: Duration) -> Client {
        self.within(self.calls().limit(wait))
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
