//! The handle that everybody holds.

use super::engine::{Holder, Placement, RingEngine};
use forebay_core::RingKeyspace;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One ring on one node: a cheap handle, cloned freely, used from any number of threads. Reservations are handles too.
/// The ring closes with its last handle; windows may live on.
pub struct Ring {
    pub(super) holder: Arc<Holder>,
}

impl Clone for Ring {
    fn clone(&self) -> Ring {
        Ring::of(self.holder.clone())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.engine().handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Drop has nobody to answer to: a caller that must know whether the flush succeeded calls `close`.
            let _ = self.engine().close();
        }
    }
}

impl Ring {
    /// The same ring under a holder name: windows and pins are listed under it. One per thread is best.
    #[must_use]
    pub fn named(&self, holder: &str) -> Ring {
        Ring::of(new_holder(&self.holder.engine, holder))
    }

    pub(super) fn of(holder: Arc<Holder>) -> Ring {
        // Relaxed: made beside a handle that exists, so the count cannot reach zero meanwhile.
        holder.engine.handles.fetch_add(1, Ordering::Relaxed);
        Ring { holder }
    }

    /// Who knows which sources are this node's, where it is one of several. Told once, before anything is put.
    pub fn set_placement(&self, placement: Placement) {
        let told = self.engine().placement.set(placement);
        debug_assert!(told.is_ok(), "a ring is told once who knows its sources");
    }

    /// The keyspace.
    pub fn keyspace(&self) -> &RingKeyspace {
        &self.engine().keyspace
    }

    /// Identity of the ring, given at its creation: no other has it.
    pub fn id(&self) -> [u8; 16] {
        self.engine().hot.store
    }

    /// Boot generation of this opening.
    pub fn boot(&self) -> u32 {
        self.engine().boot
    }

    /// What this opening found missing or damaged and the operator accepted (`RingConfig::accept_loss`), by segment and
    /// entry: at most 10,000 lines.
    pub fn losses(&self) -> Vec<String> {
        self.engine().losses.lock().clone()
    }

    #[inline]
    pub(super) fn engine(&self) -> &RingEngine {
        &self.holder.engine
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Ring({}, holder {})", self.keyspace().name, self.holder.name)
    }
}

pub(super) fn new_holder(engine: &Arc<RingEngine>, name: &str) -> Arc<Holder> {
    let holder = Arc::new(Holder {
        engine: engine.clone(),
        name: name.into(),
        guards: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        reservations: AtomicU64::new(0),
        waiting: AtomicU64::new(0),
    });
    let mut holders = engine.holders.lock();
    holders.retain(|known| known.strong_count() > 0);
    holders.push(Arc::downgrade(&holder));
    holder
}
