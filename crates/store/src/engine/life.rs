//! One life of a store, from its opening to its close: who uses it, and what keeps others from opening it.
//!
//! *Invariants*: `closed` is set once and stays; a handle that sees it unset under a cell's lock may publish there, because
//! close sets it before it takes each of these locks (`open.rs`).

use super::Holder;
use forebay_core::HolderStats;
use forebay_core::map::Seat;
use forebay_media::bytes::Superblock;
use forebay_media::hot::{Kept, KeptBy};
use forebay_media::named::Named;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// This life.
pub(crate) struct Life {
    /// The store's directory; `None` on a simulated medium.
    pub(crate) dir: Option<PathBuf>,
    /// The region and the keyspace's file, under the names that they were opened by.
    pub(crate) named: Vec<Named>,
    /// What does not have its name any more, of these or of the devices, as the last look found it, and when that was.
    pub(crate) gone: Mutex<(u64, Option<String>)>,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) boot: u32,
    /// Devices that the store was made with.
    pub(super) devices: u32,
    /// What opening found missing and the operator accepted, bounded.
    pub(crate) losses: Mutex<Vec<String>>,
    pub(crate) holders: Mutex<Vec<Weak<Holder>>>,
    pub(crate) handles: AtomicU64,
    pub(crate) closed: AtomicBool,
    /// What the node is in its cluster; `None` outside of one.
    pub(crate) seat: Mutex<Option<Arc<Seat>>>,
    /// Epoch of the adopted map; 0 without one.
    pub(crate) epoch: AtomicU32,
    /// Held while a map is adopted, over waits for its being durable.
    pub(crate) adopting: Mutex<()>,
    /// Held by a round of maintenance: closing waits for it.
    pub(crate) maintaining: Mutex<()>,
}

impl Life {
    pub(super) fn new(dir: Option<PathBuf>, superblock: Superblock) -> Life {
        Life {
            named: Vec::new(),
            gone: Mutex::default(),
            dir,
            boot: superblock.boot,
            devices: superblock.devices,
            superblock: Mutex::new(superblock),
            losses: Mutex::default(),
            holders: Mutex::default(),
            seat: Mutex::new(None),
            epoch: AtomicU32::new(0),
            adopting: Mutex::new(()),
            handles: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            maintaining: Mutex::new(()),
        }
    }

    /// Guards out, by holder.
    pub(crate) fn holder_stats(&self) -> Vec<HolderStats> {
        // Weak and cleaned here: a holder ends with its last handle or guard, on any thread.
        let mut holders = self.holders.lock();
        holders.retain(|holder| holder.strong_count() > 0);
        let all = holders.iter().filter_map(Weak::upgrade);
        let mut stats: Vec<HolderStats> = all
            .map(|holder| HolderStats {
                holder: holder.name.clone(),
                guards: holder.guards.load(Ordering::Relaxed),
                bytes: holder.bytes.load(Ordering::Relaxed),
            })
            .filter(|holder| holder.guards > 0)
            .collect();
        stats.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        stats
    }

    /// What holders have of the region, beside the calls in flight that were counted before.
    pub(super) fn kept(&self, users: (u64, u64)) -> Kept {
        // Names for people; what keeps the region is counted by its users (`Hot::users`).
        let holders = self.holders.lock();
        let of = |holder: Arc<Holder>| KeptBy {
            holder: holder.name.clone(),
            guards: holder.guards.load(Ordering::Acquire),
            reservations: holder.reservations.load(Ordering::Acquire),
        };
        let all = holders.iter().filter_map(Weak::upgrade).map(of);
        Kept::new(users, all.filter(|holder| holder.guards + holder.reservations > 0).collect())
    }
}
