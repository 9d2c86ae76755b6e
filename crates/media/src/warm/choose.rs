//! Which container is emptied next, and what the level does by itself.

use super::container::Phase;
use super::log::DeviceLog;
use super::space::Warm;
use crate::bytes::Stream;
use forebay_core::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Full containers of which less than this share of the fragments lives are emptied when space is short.
const COMPACT_LIVE_SHARE: f64 = 0.5;
/// Containers that nobody has written for this long are closed: until then an opening has to scan them.
const IDLE: Duration = Duration::from_secs(10);

impl Warm {
    /// The container that should be emptied first: one that failed and still has something, else, where at most two are
    /// free or the fill is above `high`, the closed one with the smallest share that lives, with what lives in it. `None` where
    /// none is worth it. Those that are `spared` are left out until what lives in them changes.
    pub fn victim(&self, high: f64, spared: &mut BTreeMap<u32, u32>) -> Option<(u32, u32)> {
        // Before the last free one, which moves themselves need.
        let short = self.free_containers() <= 2 || self.fill() > high;
        let mut best: Option<(f64, (u32, u32))> = None;
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
        best.map(|best| best.1)
    }

    /// Takes the full container of a stream that began first to be drained; `None` if there is none. Shared containers
    /// are every stream's.
    ///
    /// # Errors
    /// `Unavailable` where the device fails.
    pub fn drain_next(&self, stream: Stream) -> Result<Option<u32>> {
        let mut full: Vec<(u64, u32)> = Vec::new();
        for container in &self.containers {
            let header = *container.header.lock();
            let fits = header.stream == stream || header.stream == Stream::Shared;
            if container.phase() == Phase::Full && fits && container.live() > 0 {
                full.push((header.order, container.number));
            }
        }
        // Oldest first, so that an archive gets the data in about the order in which it was taken.
        full.sort_unstable();
        for (_, number) in full {
            match self.begin_drain(number) {
                Ok(()) => return Ok(Some(number)),
                // Somebody was faster.
                Err(error) if error.kind() == forebay_core::Kind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
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
