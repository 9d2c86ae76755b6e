//! What an archive has of a run, against what the store let go of.
//!
//! ```text
//! ledger: released, in custody ─▶ directories of all objects ─▶ which of their events does the store still have?
//! ```
//!
//! *Invariants*: only objects of this store and keyspace count; the ledger is read first, so that a proof in between is more
//! in the archive, never less. What the store still has cannot stand for what was released.
//!
//! *Not here*: payloads (`Archive::verify`).

use crate::archive::{Archive, Inventory};
use forebay_core::{EventStore, Ledger, Result, Sources};

/// What an audit found.
#[derive(Clone, Debug)]
pub struct Audit {
    /// The run's account, before the archive was read.
    pub ledger: Ledger,
    /// What the archive has of this store.
    pub inventory: Inventory,
    /// Fragments of it, and their payload bytes, whose events the store still has: in custody, or not proved yet.
    pub still_there: (u64, u64),
    /// What is wrong, in words.
    pub problems: Vec<String>,
}

/// Sets what the archive has of a run against the run's ledger; `told` hears how many of how many events were looked up.
///
/// # Errors
/// Those of the store, of the manifest and of the place.
pub fn audit<S: EventStore>(archive: &Archive, store: &S, run: u64, told: &mut dyn FnMut(u64, u64)) -> Result<Audit> {
    let ledger = store.ledger(run)?;
    let mut manifest = archive.manifest(run)?.unwrap_or_default();
    // What another store archived under this run number stands for nothing that this one let go of.
    let stores: Vec<String> = store.stats()?.stores.iter().map(|store| format!("{store:?}")).collect();
    let own = manifest.keyspace == store.keyspace().name;
    manifest.objects.retain(|object| own && stores.contains(&object.store));
    let inventory = archive.inventory(&manifest)?;
    let mut still_there = (0, 0);
    if ledger.live.total().events > 0 {
        for (at, (primary, (fragments, bytes))) in (0..).zip(&inventory.by_event) {
            told(at, inventory.events);
            if store.get_event(primary, &Sources::None)?.is_some() {
                still_there = (still_there.0 + fragments, still_there.1 + bytes);
            }
        }
    }
    let (released, custody) = (&ledger.released, &ledger.in_custody);
    let all = (inventory.fragments, inventory.payload_bytes);
    let gone = (all.0 - still_there.0, all.1 - still_there.1);
    let mut problems: Vec<String> = Vec::new();
    problems.extend(ledger.imbalance().map(|what| format!("the ledger does not balance: {what}")));
    if gone.0 < released.fragments || gone.1 < released.bytes {
        problems.push(format!(
            "{} fragments with {} bytes are released; of events that the store has no more the archive has {} with {}",
            released.fragments, released.bytes, gone.0, gone.1
        ));
    }
    let let_go = (released.fragments + custody.fragments, released.bytes + custody.bytes);
    if all.0 < let_go.0 || all.1 < let_go.1 {
        problems.push(format!(
            "{} fragments with {} bytes are released or in custody; the archive has {} with {}",
            let_go.0, let_go.1, all.0, all.1
        ));
    }
    problems.extend(inventory.faults.iter().map(|fault| format!("{}: {}", fault.name, fault.what)));
    Ok(Audit { ledger, inventory, still_there, problems })
}
