//! Which container is emptied next, and what the level does by itself.

use super::container::Phase;
use super::log::DeviceLog;
use super::space::Warm;
use forebay_core::{Error, Filling, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Full containers of which less than this share of the fragments lives are emptied when space is short.
const COMPACT_LIVE_SHARE: f64 = 0.5;
/// Containers that nobody has written for this long are closed: until then an opening has to scan them.
const IDLE: Duration = Duration::from_secs(10);

impl Warm {
    /// The container that should be emptied first: one that failed and still has something; else, unless no `moves` are possible, a
    /// closed one of a device that leaves; else, where at most two are free or the fill is above `high`, the closed one with the
    /// smallest share that lives; with what lives in it. `None` where none is worth it. Those that are `spared` are left out until
    /// what lives in them changes.
    pub fn victim(&self, high: f64, moves: bool, spared: &mut BTreeMap<u32, u32>) -> Option<(u32, u32)> {
        // Before the last free one, which moves themselves need.
        let short = self.free_containers() <= 2 || self.fill() > high;
        let mut best: Option<(f64, (u32, u32))> = None;
        let mut leaves = None;
        for container in &self.containers {
            let live = container.live();
            if spared.get(&container.number).is_some_and(|known| *known != live) {
                spared.remove(&container.number);
            }
            // Spared: somebody has tried, and nothing has ended in it since; it would fail again.
            if live == 0 || spared.contains_key(&container.number) {
                continue;
            }
            match container.phase() {
                // At once, regardless of the space: its only copy is on a medium that has failed.
                Phase::Poisoned => return Some((container.number, live)),
                Phase::Full if self.is_leaving(container.device) => {
                    leaves = leaves.or(moves.then_some((container.number, live)));
                }
                Phase::Full if short => {
                    let all = container.header.lock().fragments.max(1) as f64;
                    let share = f64::from(live) / all;
                    if share < COMPACT_LIVE_SHARE && best.is_none_or(|best| share < best.0) {
                        best = Some((share, (container.number, live)));
                    }
                }
                _ => {}
            }
        }
        leaves.or(best.map(|best| best.1))
    }

    /// Full containers in which accepted events or those of the debug stream may live, oldest first, with their filling; of
    /// one device, or of all.
    pub fn drainable(&self, device: Option<u32>) -> Vec<(u32, u32, Filling)> {
        let mut full: Vec<(u64, (u32, u32, Filling))> = Vec::new();
        for container in &self.containers {
            let header = *container.header.lock();
            let here = device.is_none_or(|device| device == container.device);
            if container.phase() == Phase::Full && header.stream.is_decided() && here && container.live() > 0 {
                full.push((header.order, (container.number, header.generation, Filling(header.filling))));
            }
        }
        // Oldest first, so that an archive gets the data in about the order in which it was taken.
        full.sort_unstable();
        full.into_iter().map(|(_, container)| container).collect()
    }

    /// Containers in custody, with the time since which they are, in milliseconds since 1970; longest first.
    pub fn in_custody(&self) -> Vec<(u64, u32)> {
        let in_custody = self.containers.iter().filter(|container| container.phase() == Phase::Custody);
        let mut all: Vec<(u64, u32)> =
            in_custody.map(|container| (container.header.lock().custody_since, container.number)).collect();
        all.sort_unstable();
        all
    }

    /// Whether a container is in custody.
    pub fn is_in_custody(&self, container: u32) -> bool {
        self.containers.get(container as usize).is_some_and(|container| container.phase() == Phase::Custody)
    }

    /// Fragments that live in a container; `None` for a number that none has.
    pub fn live_in(&self, container: u32) -> Option<u32> {
        self.containers.get(container as usize).map(|container| container.live())
    }

    /// Runs of which containers have images; `None` where a shared one may have some of any run.
    pub fn runs(&self) -> Option<BTreeSet<u64>> {
        let mut runs = BTreeSet::new();
        for container in &self.containers {
            let header = *container.header.lock();
            if container.phase() == Phase::Empty {
                continue;
            }
            if header.run == crate::bytes::ContainerHeader::SHARED_RUN {
                return None;
            }
            runs.insert(header.run);
        }
        Some(runs)
    }

    /// Empty containers become free, idle ones are closed.
    ///
    /// # Errors
    /// `Unavailable` where a device fails; the others have had their turn.
    pub fn maintain(self: &Arc<Warm>, log: &DeviceLog) -> Result<()> {
        self.settle_blocks();
        let reclaimed = self.reclaim_empty(Some(log)).map(|_| ());
        // In one round a device is waited for as long as it may stall: a store that closes waits for the round.
        let closed: std::result::Result<(), Error> = self.close_filling(IDLE, Instant::now() + self.shape.stall);
        reclaimed.and(closed)
    }
}
