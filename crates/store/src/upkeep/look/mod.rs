//! Looks at how full the levels are: what the store reads for inhibit, and watches of it.
//!
//! *Not here*: latches, marks, dead time and words (`inhibit/`).

use crate::Store;
use crate::engine::Engine;
use crate::inhibit::{Facts, Look, Reading};
use forebay_core::{Inhibit, InhibitState, Kind, Live, Result, Shortage, Tally};
use forebay_media::hot::Class;
use std::fmt;
use std::time::Duration;

impl Store {
    /// Follows inhibit from now on. To poll, ask a watch rather than `stats`, which looks at everything.
    pub fn watch_inhibit(&self) -> InhibitWatch {
        InhibitWatch { seen: self.engine().inhibit.board.state().change, store: self.clone() }
    }
}

/// Follows inhibit. It shows what the last look found: maintenance looks every few milliseconds.
pub struct InhibitWatch {
    store: Store,
    seen: u64,
}

impl InhibitWatch {
    /// Inhibit as it is now.
    pub fn state(&self) -> InhibitState {
        self.store.engine().inhibit.board.state()
    }

    /// The state after changes that this watch has not yet answered; waits for one, `None` at the end of the wait. Several
    /// changes at once give the newest; their numbers tell. Without a change and a timeout it takes no lock.
    pub fn wait_change(&mut self, timeout: Duration) -> Option<InhibitState> {
        let engine = self.store.engine();
        engine.inhibit.board.wait_change(&mut self.seen, timeout, engine.timer())
    }
}

impl fmt::Debug for InhibitWatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "InhibitWatch(change {})", self.seen)
    }
}

impl Engine {
    /// Looks at both levels, sets or clears inhibit, and tells who listens. Called with no lock held.
    pub(crate) fn look(&self) -> Look {
        // The listener is called at the end, and a reading takes every cell.
        self.locks.assert_free();
        let look = self.inhibit.look(&self.config, || self.reading(), || self.facts());
        if look.inhibit.is_some() {
            self.upkeep.follow();
        }
        look
    }

    /// What is full, from a look; without inhibit the hot level as it is.
    pub(crate) fn shortage_of(&self, inhibit: Option<Inhibit>) -> Shortage {
        let hot = || self.inhibit.hot_words(&self.config, || self.reading(), || self.facts());
        let Inhibit { scope, owner, cause, .. } = inhibit.unwrap_or_else(hot);
        Shortage { level: scope, owner, cause }
    }

    /// An answer that says what is full where the call found no space. Called with no lock held.
    pub(crate) fn explained<T>(&self, answer: Result<T>) -> Result<T> {
        answer.map_err(|error| {
            if error.kind() != Kind::Full || error.shortage().is_some() {
                return error;
            }
            error.with_shortage(self.shortage_of(self.look().inhibit))
        })
    }

    fn reading(&self) -> Reading {
        let segments = self.placement.hot.geometry.segments;
        let free = self.placement.hot.free_segments();
        Reading {
            hot: self.placement.hot.fill(),
            segments,
            used: segments.saturating_sub(free),
            reserve: self.placement.hot.reserve(Class::NewEvent),
            pinned: self.segments_pinned(),
            // The debug stream is for a person to look at: past its quota the trigger pauses, until somebody has.
            debug_bytes: self.shards.cells.iter().map(|cell| cell.lock().events.lists.debug_bytes).sum(),
            debug_quota: self.debug_quota(),
            warm: None,
            gone: self.life.gone.lock().1.clone(),
        }
    }

    fn facts(&self) -> Facts {
        let (live, foreign) = self.live_and_foreign();
        Facts {
            live,
            foreign,
            most_guards: self.life.holder_stats().into_iter().next().map(|holder| holder.holder),
            region_bytes: self.placement.hot.geometry.region_bytes(),
            segment_bytes: self.placement.hot.geometry.segment_bytes,
            entry_bytes: self.placement.hot.layout.entry_bytes() as u64,
        }
    }

    /// Segments that only guards keep.
    pub(crate) fn segments_pinned(&self) -> u32 {
        let all = self.placement.hot.segments.iter();
        all.filter(|segment| segment.live() == 0 && segment.pins() > 0).count() as u32
    }

    /// Live data of all runs by state.
    pub(crate) fn live(&self) -> Live {
        self.live_and_foreign().0
    }

    fn live_and_foreign(&self) -> (Live, Tally) {
        let (mut live, mut foreign) = (Live::default(), Tally::default());
        for cell in &self.shards.cells {
            for run in &cell.lock().events.runs {
                live += run.ledger.live;
                foreign += run.foreign;
            }
        }
        (live, foreign)
    }
}

#[cfg(test)]
mod tests;
