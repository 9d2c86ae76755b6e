//! Decisions that are in force and that devices do not have yet.

use super::Level;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A decision that is in force, and the devices on which it must be durable before its caller gets the answer.
#[must_use = "a decision is answered for once it has settled"]
#[derive(Default)]
pub(crate) struct Ticket(pub(crate) Option<Box<Awaited>>);

#[derive(Clone)]
pub(crate) struct Awaited {
    pub(crate) position: u64,
    pub(crate) devices: Vec<u32>,
    /// The name by which a repeat of the call is known.
    pub(crate) name: Vec<u8>,
}

impl Ticket {
    /// Nobody is answered: the store itself decided, or what follows is answered for.
    pub(crate) fn unanswered(self) {}

    /// Where the shadows have it; 0 where they are not told.
    pub(crate) fn position(&self) -> u64 {
        self.0.as_ref().map_or(0, |awaited| awaited.position)
    }
}

/// Decisions that devices do not have yet, by what a repeat of their calls is known by.
#[derive(Default)]
pub(crate) struct Unsettled {
    pub(crate) awaited: Mutex<BTreeMap<Vec<u8>, Awaited>>,
    /// When full: decisions until the next look for entries that have become durable.
    pub(crate) until_look: AtomicU64,
    pub(crate) count: AtomicU64,
    /// Highest position of those that found no room.
    pub(crate) beyond: AtomicU64,
}

/// Decisions without an answer that are remembered by name.
const UNSETTLED_MAX: usize = 1 << 16;
const LOOK_EVERY: u64 = 1 << 12;

impl Unsettled {
    pub(crate) fn note(&self, level: &Level, awaited: &Awaited) {
        let mut known = self.awaited.lock();
        if known.len() >= UNSETTLED_MAX {
            // With a failed device none of them can go: all of them are looked at only once in a while.
            let wait = self.until_look.load(Ordering::Relaxed);
            if wait == 0 {
                known.retain(|_, awaited| !awaited.devices.iter().all(|&d| level.log.is_durable(d, awaited.position)));
            }
            self.until_look.store(if wait == 0 { LOOK_EVERY } else { wait - 1 }, Ordering::Relaxed);
        }
        if known.len() >= UNSETTLED_MAX {
            // Without a name it makes every repeat wait for this position: slower, and never a success too early.
            self.beyond.fetch_max(awaited.position, Ordering::AcqRel);
            return;
        }
        known.insert(awaited.name.clone(), awaited.clone());
        self.count.store(known.len() as u64, Ordering::Release);
    }

    /// A device lacks decisions before this position, of which no names are known.
    pub(crate) fn note_all(&self, position: u64) {
        self.beyond.fetch_max(position, Ordering::AcqRel);
    }

    pub(crate) fn forget(&self, awaited: &Awaited) {
        let mut known = self.awaited.lock();
        debug_assert_eq!(self.count.load(Ordering::Relaxed), known.len() as u64, "a repeat looks only where it counts");
        // Only this decision: a later one of the same name may wait for more.
        if known.get(&awaited.name).is_some_and(|later| later.position == awaited.position) {
            known.remove(&awaited.name);
            self.count.store(known.len() as u64, Ordering::Release);
        }
    }

    pub(crate) fn get(&self, level: &Level, name: &[u8]) -> Option<Awaited> {
        // Those without names first: any call may be one of them.
        let position = self.beyond.load(Ordering::Acquire);
        if position > 0 {
            let devices: Vec<u32> = level.present().collect();
            if !devices.iter().all(|&device| level.log.is_durable(device, position)) {
                return Some(Awaited { position, devices, name: name.to_vec() });
            }
        }
        // Every repeat of a call comes here: without the lock where nothing is unsettled, as nearly always. Acquire pairs with
        // the release in `note`, which comes before the decision's first answer.
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.awaited.lock().get(name).cloned()
    }
}
