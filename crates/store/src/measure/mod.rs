//! Measurements of parts that no public call reaches alone or at the size in question. For the benchmark; no promise of
//! stability.

mod decided;
mod warm;

pub use decided::decided_bytes;
pub use warm::{EventPlace, Payload, WarmCounters, WarmLevel, WarmPlan, Writing, checksum, copy_bare};

/// Takes a snapshot of the decision log now; answers its bytes.
///
/// # Errors
/// `Full` where the hot level has no room for it.
pub fn take_snapshot(store: &crate::Store) -> forebay_core::Result<usize> {
    let _only_one = store.engine().decisions.snapshotting.lock();
    store.engine().take_snapshot()
}

/// [`crate::Store::add_device`] of a medium that is no directory, and in no list.
///
/// # Errors
/// As there.
pub fn add_device(store: &crate::Store, device: &crate::WarmDevice) -> forebay_core::Result<()> {
    store.engine().add(device)
}

/// One round of what the warm level does by itself, and nothing else, until all of it is durable.
pub fn demote(store: &crate::Store) {
    store.engine().maintain_level(true);
}
