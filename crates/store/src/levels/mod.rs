//! Two levels behind one index: where a record is, when it goes down, and what is signalled when space is short.
//!
//! ```text
//! accepted, debug ─┐                       ┌─▶ container of (run, stream) ─▶ committed ─▶ slots swapped ─▶ hot space freed
//! ready, when hot  ├─▶ plan (pin) ─▶ write ┤
//! is nearly full   ┘                       └─▶ device fails: it stays hot, goes elsewhere
//! ```
//!
//! *Invariants*: hot space is freed only after the commit has returned and the slots say so; leases, pins and guards are
//! not touched by a move (tests/levels/); an open event is never moved whole.
//!
//! *Not here*: bytes and files (`warm`), the meaning of events (`events`).

mod add;
mod compact;
mod custody;
mod decide;
mod demote;
mod flush;
mod inspect;
mod leave;
mod list;
mod open;
mod persist;
mod place;
mod plan;
mod shadow;

pub(crate) use open::{absent_devices, all_gone, create, devices_of, has_devices, open, unmake};
pub(crate) use place::{ONE_FRAGMENT, Reading, not_verified};

use crate::engine::{Engine, Holder};
use crate::placement::{Demoter, Level};
use crate::time;
use forebay_core::{Error, Result};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Batches of one round of a store without threads.
const ROUNDS_MAX: u32 = 64;

impl Engine {
    /// The store has this warm level from now on.
    pub(crate) fn adopt_level(&mut self, level: Option<Level>) {
        if let Some(level) = &level {
            self.inhibit.set_warm(level.warm.clone());
        }
        self.placement.level = level;
    }

    /// Closed runs of which no container has an image any more need no memory of the decided.
    pub(crate) fn forget_decided(&self) {
        let Some(level) = &self.placement.level else { return };
        // One that comes back has images of runs that nobody else remembers.
        if self.lacks_devices() {
            return;
        }
        let runs = level.warm.runs();
        let Some(runs) = runs else { return };
        for cell in &self.shards.cells {
            for run in &mut cell.lock().events.runs {
                if run.state == crate::RunState::Closed && !runs.contains(&run.run) {
                    run.decided = Default::default();
                }
            }
        }
    }

    /// One round of what the warm level does by itself; `true` where there was something to do.
    pub(crate) fn maintain_level(&self, finish: bool) -> bool {
        let Some(level) = &self.placement.level else { return false };
        // Held over waits for devices, and before every ranked lock. Asked under it: close takes it after it has set the flag.
        let mut demoter = level.demoter.lock();
        if self.is_closed() {
            return false;
        }
        self.leave_devices(level, &mut demoter);
        let mut any = self.demote(&mut demoter, finish);
        let mut rounds = 0;
        while finish && any && !self.is_closed() && rounds < ROUNDS_MAX && self.demote(&mut demoter, true) {
            (any, rounds) = (true, rounds + 1);
        }
        // After demotion, which may have freed a container: emptying one costs a write of all that is live in it.
        let compacted = self.compact(level, &mut demoter);
        self.end_old_claims();
        any |= self.release_custody(level);
        level.in_flight.store(demoter.in_flight(), Ordering::Relaxed);
        if let Err(error) = level.warm.maintain(&level.log) {
            level.note(error.to_string());
        }
        self.upkeep.level_worked(any || compacted);
        any || compacted
    }

    /// Nothing is on its way any more; containers under way are closed.
    ///
    /// # Errors
    /// `Unavailable` where a round does not end in time.
    pub(crate) fn rest_level(&self) -> Result<()> {
        let Some(level) = &self.placement.level else { return Ok(()) };
        let mut demoter = level
            .demoter
            .try_lock_until(level.deadline())
            .ok_or_else(|| Error::unavailable("a device does not answer what was asked of it before the close"))?;
        // Pins of what is under way keep segments and containers: all of it is carried out or given up.
        self.settle_durable(level, &mut demoter, 0);
        debug_assert!(!demoter.is_pending(), "pins would never be let go");
        *demoter = Demoter::default();
        level.persisting.close();
        if let Err(error) = level.warm.close_filling(Duration::ZERO, level.deadline()) {
            level.note(error.to_string());
        }
        Ok(())
    }
}

/// Pause of the thread when there was nothing to do, in milliseconds.
const PAUSE_MS: u64 = 2;

/// Runs rounds until the store closes or its last handle is gone.
pub(crate) fn spawn(holder: &Arc<Holder>) -> std::io::Result<()> {
    shadow::spawn_keepers(holder)?;
    let engine: Weak<Engine> = Arc::downgrade(&holder.engine);
    let clock = holder.engine.config.clock.clone();
    std::thread::Builder::new().name("forebay-levels".to_owned()).spawn(move || {
        loop {
            let any = match engine.upgrade() {
                Some(engine) if !engine.is_closed() => engine.maintain_level(false),
                _ => return,
            };
            if !any {
                time::pause(&*clock, Duration::from_millis(PAUSE_MS), || engine.strong_count() > 0);
            }
        }
    })?;
    Ok(())
}
