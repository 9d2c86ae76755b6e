//! The handle that everybody holds.

use crate::engine::{Engine, Holder, new_holder};
use forebay_core::{KeySchema, Keyspace, Signature};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One keyspace on one node: a cheap handle, cloned freely, used from any number of threads. Leases and reservations are
/// handles too. The store closes with its last handle; guards may live on.
pub struct Store {
    pub(crate) holder: Arc<Holder>,
}

impl Clone for Store {
    fn clone(&self) -> Store {
        Store::handle(self.holder.clone())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.engine().life.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            // What fails here was acknowledged at its own level; who must know calls `close`.
            let _ = self.engine().close();
        }
    }
}

impl Store {
    /// The same store under a holder name: guards are counted and listed under it, and what it changes of runs is signed with
    /// it. One per thread is best.
    #[must_use]
    pub fn named(&self, holder: &str) -> Store {
        Store::handle(new_holder(&self.holder.engine, holder))
    }

    pub(crate) fn handle(holder: Arc<Holder>) -> Store {
        holder.engine.life.handles.fetch_add(1, Ordering::Relaxed);
        Store { holder }
    }

    /// What this opening found missing or damaged and the operator accepted (`Config::accept_loss`), by segment and
    /// entry: at most 10,000 lines.
    pub fn losses(&self) -> Vec<String> {
        self.engine().life.losses.lock().clone()
    }

    /// The keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        &self.engine().keyspace
    }

    /// How long a lease lasts without a heartbeat where none is asked for.
    pub fn lease_time(&self) -> std::time::Duration {
        self.engine().config.lease
    }

    /// Identity of the store, given at its creation: no other has it.
    pub fn id(&self) -> [u8; 16] {
        self.engine().placement.hot.store
    }

    /// Boot generation of this opening, as tokens have it.
    pub fn boot(&self) -> u32 {
        self.engine().life.boot
    }

    /// Whether there is a warm level.
    pub fn has_warm(&self) -> bool {
        self.engine().placement.level.is_some()
    }

    /// The keyspace's key schema.
    pub fn schema(&self) -> &KeySchema {
        &self.engine().keyspace.schema
    }

    /// What this handle does is signed so.
    pub(crate) fn signature(&self) -> Signature {
        Signature::new(&self.holder.name, self.engine().config.clock.wall_ms())
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Engine {
        &self.holder.engine
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Store({}, holder {})", self.keyspace().name, self.holder.name)
    }
}
