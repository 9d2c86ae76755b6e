//! The handle that everybody holds.

use crate::engine::{Engine, Holder};
use crate::open::new_holder;
use forebay_core::{KeySchema, Keyspace};
use std::fmt;
use std::sync::Arc;

/// One keyspace on one node: a cheap handle, cloned freely, used from any number of threads.
#[derive(Clone)]
pub struct Store {
    pub(crate) holder: Arc<Holder>,
}

impl Store {
    /// The same store under a holder name: guards are counted and listed under it. One per thread is best.
    #[must_use]
    pub fn named(&self, holder: &str) -> Store {
        Store { holder: new_holder(&self.holder.engine, holder) }
    }

    /// The keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        &self.engine().keyspace
    }

    /// The keyspace's key schema.
    pub fn schema(&self) -> &KeySchema {
        &self.engine().keyspace.schema
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
