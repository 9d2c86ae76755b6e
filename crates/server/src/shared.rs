//! What every session of a server has in common.

use crate::access::Access;
use crate::limits::Limits;
use crate::metrics::Metrics;
use forebay_core::{Error, Result};
use forebay_store::Store;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Stores, rules and counters, shared by all threads.
pub(crate) struct Shared {
    /// Stores by the name of their keyspace.
    pub(crate) keyspaces: BTreeMap<String, Store>,
    /// Who may do what.
    pub(crate) access: Access,
    /// What a connection may take.
    pub(crate) limits: Limits,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// Set once the server takes no new requests.
    pub(crate) stopping: AtomicBool,
    /// Told when `stopping` is set.
    pub(crate) stop_notice: tokio::sync::Notify,
    /// Requests on threads now.
    pub(crate) on_threads: AtomicUsize,
    /// Connections now.
    pub(crate) connections: AtomicUsize,
}

impl Shared {
    /// The store of a keyspace; without a name that of the only one.
    ///
    /// # Errors
    /// `Invalid` for a name that is not served, and without a name where there are several.
    pub(crate) fn store(&self, name: &str) -> Result<&Store> {
        if name.is_empty() && self.keyspaces.len() == 1 {
            return self.keyspaces.values().next().ok_or_else(|| Error::internal("no keyspace"));
        }
        let names = || self.keyspaces.keys().cloned().collect::<Vec<_>>().join(", ");
        self.keyspaces.get(name).ok_or_else(|| {
            let what = if name.is_empty() { "a name is needed".to_owned() } else { format!("no keyspace `{name}`") };
            Error::invalid(format!("{what}: this server has {}", names()))
        })
    }
}
