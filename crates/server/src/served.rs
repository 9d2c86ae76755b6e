//! What a server serves under a name: the events of a store, or a ring.

use forebay_core::{Error, Result, ServedStore};
use forebay_ring::Ring;
use forebay_store::{RunStatus, Store};

/// A keyspace of either kind, with what holds it. `S` is a [`Store`], or what stands before one.
#[derive(Clone, Debug)]
pub enum Served<S = Store> {
    /// Events: completeness, selection, levels.
    Events(S),
    /// Continuous readout: a latency buffer.
    Ring(Ring),
}

impl From<Store> for Served {
    fn from(store: Store) -> Served {
        Served::Events(store)
    }
}

impl From<Ring> for Served {
    fn from(ring: Ring) -> Served {
        Served::Ring(ring)
    }
}

/// What sessions need: whatever store it is.
impl<S: ServedStore> Served<S> {
    /// Name of the keyspace.
    pub fn name(&self) -> &str {
        match self {
            Served::Events(store) => &store.keyspace().name,
            Served::Ring(ring) => &ring.keyspace().name,
        }
    }

    /// The same under a holder's name.
    pub(crate) fn named(&self, holder: &str) -> Served<S> {
        match self {
            Served::Events(store) => Served::Events(store.named(holder)),
            Served::Ring(ring) => Served::Ring(ring.named(holder)),
        }
    }

    /// The keyspace, as TOML.
    ///
    /// # Errors
    /// `Internal` where it cannot be written so.
    pub(crate) fn to_toml(&self) -> Result<String> {
        match self {
            Served::Events(store) => store.keyspace().to_toml(),
            Served::Ring(ring) => ring.keyspace().to_toml(),
        }
    }

    /// Its store, where it has events.
    pub(crate) fn store(&self) -> Option<&S> {
        match self {
            Served::Events(store) => Some(store),
            Served::Ring(_) => None,
        }
    }

    /// What is said where a call is for the other kind.
    pub(crate) fn other_kind(&self, call: &str) -> Error {
        let (is, other) = match self {
            Served::Events(_) => ("has events", "rings"),
            Served::Ring(_) => ("is a ring", "keyspaces of events"),
        };
        Error::invalid(format!("`{call}` is for {other}, and keyspace `{}` {is}", self.name()))
    }
}

/// What its owner needs: opening and closing are of stores.
impl Served {
    /// What its opening found missing or damaged and the operator accepted.
    pub fn losses(&self) -> Vec<String> {
        match self {
            Served::Events(store) => store.losses(),
            Served::Ring(ring) => ring.losses(),
        }
    }

    /// Its identity, which no other store or ring has.
    pub(crate) fn id(&self) -> [u8; 16] {
        match self {
            Served::Events(store) => store.id(),
            Served::Ring(ring) => ring.id(),
        }
    }

    /// Whether anything would be lost with it: an event that is not rejected, released or removed, one that is announced, or
    /// bytes of a conflict that are kept; a fragment of a ring.
    pub(crate) fn is_live(&self) -> bool {
        match self {
            Served::Events(store) => {
                let stats = store.stats();
                // An announced event without fragments is in no state that `stats` counts, but it would be lost as
                // well.
                let awaited = |run: &RunStatus| store.ledger(run.run).is_ok_and(|ledger| ledger.awaited > 0);
                stats.events.total().events > 0 || stats.conflicts_kept > 0 || store.runs().iter().any(awaited)
            }
            Served::Ring(ring) => ring.stats().fragments > 0,
        }
    }

    /// Ends the work of the store, or of the ring, durably.
    ///
    /// # Errors
    /// Those of its close.
    pub fn close(&self) -> Result<()> {
        match self {
            Served::Events(store) => store.close(),
            Served::Ring(ring) => ring.close(),
        }
    }
}

/// The error for two keyspaces of one name.
pub(crate) fn two_of(name: &str) -> Error {
    Error::invalid(format!("two keyspaces are called `{name}`: a server tells them by name"))
}
