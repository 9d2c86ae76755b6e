//! Maintenance of a ring: sealing chunks, following the clock, keeping the account.

use super::Ring;
use super::engine::RingEngine;
use super::limits::{MAINTENANCE_MS, ROUNDS_PER_NOTE};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

impl Ring {
    /// One round of maintenance, for rings without their own thread.
    pub fn tick(&self) {
        self.engine().maintain(true);
    }
}

/// Runs rounds until the ring closes or its last handle is gone.
pub(super) fn spawn(engine: &Arc<RingEngine>) -> std::io::Result<()> {
    let engine: Weak<RingEngine> = Arc::downgrade(engine);
    std::thread::Builder::new().name("forebay-ring".to_owned()).spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(MAINTENANCE_MS));
            // Weak, so that a ring that nobody holds closes although this thread still runs.
            match engine.upgrade() {
                Some(engine) if !engine.is_closed() => engine.maintain(false),
                _ => return,
            }
        }
    })?;
    Ok(())
}

impl RingEngine {
    /// One round; the account is made durable in every 20th, or where it is asked for.
    fn maintain(&self, account: bool) {
        // Held for the round: no chunk is evicted between the gathering of the account and its note.
        let _taking = self.taking.lock();
        // Under the lock: after a close another process may have the region.
        if self.is_closed() {
            return;
        }
        self.hot.region.prefault();
        self.relations.drift(self.table.iter().map(|cell| &cell.vote));
        self.space.lock().expire(self.now_ns());
        self.hot.seal_closed();
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        // Not in every round: duplicates and refusals are in the note only, and a note is a flush of a page.
        if account || round.is_multiple_of(ROUNDS_PER_NOTE) {
            self.gather();
            let mut space = self.space.lock();
            if space.books.changed {
                self.write_note(&mut space, false);
            }
        }
    }

    /// Moves what sources have counted into the books. Under `taking`.
    pub(super) fn gather(&self) {
        for cell in self.table.iter() {
            let mut source = cell.source.lock();
            if !source.accounts.is_empty() {
                let mut space = self.space.lock();
                source.accounts.give(&mut space.books.accounts);
                space.books.changed = true;
            }
        }
        // Only runs without data may lose their own account: a user asks for those of which there is something to see.
        let over = self.space.lock().books.runs() > crate::note::RingNote::RUNS_MAX;
        if over {
            let live = self.live_runs();
            self.space.lock().books.merge_earlier(|run| live.contains(&run));
        }
    }

    /// Runs with fragments in the ring.
    fn live_runs(&self) -> std::collections::HashSet<u32> {
        let mut runs = std::collections::HashSet::new();
        for cell in self.table.iter() {
            let source = cell.source.lock();
            runs.extend(source.chunks.iter().flat_map(|chunk| chunk.runs.iter().map(|of_run| of_run.run)));
        }
        runs
    }
}
