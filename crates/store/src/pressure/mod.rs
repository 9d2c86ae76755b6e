//! Inhibit: when a level is nearly full the trigger must pause, and people must see which level, why, who can change it,
//! and what ends it.
//!
//! ```text
//! fill of hot and warm, reserves, debug stream ─▶ latches ─▶ one class ─▶ dead time of that class
//!                                                               └─▶ words ─▶ board: watches, listener, stats
//! ```
//!
//! A *look* does all of it. Maintenance looks in every round, and so do `stats` and a put that is refused.
//!
//! *Invariants*: hysteresis, for each level on its own (`latch`); at every instant in which inhibit is set exactly one
//! class is charged, so that dead time by class adds up (`tests`); changes are told in order, each once, and outside of
//! every lock (`board`).
//!
//! *Lock order*: a look's lock is taken with no other held, and before any cell. The board's locks come after it.
//!
//! *Not here*: waiting for space (`hot/space.rs`), when events are demoted.

mod board;
mod gauge;
mod latch;
mod marks;
#[cfg(test)]
mod tests;
mod words;

pub use board::{InhibitListener, InhibitState, InhibitWatch};
pub(crate) use gauge::{WarmBytes, WarmFill, WarmGauge};
pub(crate) use marks::check_marks;

use crate::engine::Engine;
use crate::{DeadTime, Inhibit, InhibitClass};
use board::Board;
use forebay_core::Tally;
use forebay_media::hot::Class;
use latch::{Latches, Reading};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What fills a level most.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Largest {
    /// Part of the level, 0 to 1.
    pub(crate) share: f64,
    /// A live state by name (`open` to `accepted`), or other words, such as `recorded`.
    pub(crate) what: &'static str,
}

/// What a look found.
pub(crate) struct Look {
    pub(crate) inhibit: Option<Inhibit>,
    /// Time since opening during which inhibit was set, up to now, measured from its beginnings to its ends.
    pub(crate) inhibited_ns: u64,
    /// The same by class.
    pub(crate) dead_time: DeadTime,
}

/// Whether inhibit is set, why, and for how long in total.
#[derive(Default)]
pub(crate) struct Pressure {
    state: Mutex<State>,
    pub(crate) board: Board,
    warm: RwLock<Option<Arc<dyn WarmGauge>>>,
    /// Dead bytes under guards exceed their quota: `get` copies.
    copying: AtomicBool,
}

#[derive(Default)]
struct State {
    latches: Latches,
    /// Class that is charged now.
    class: Option<InhibitClass>,
    /// Up to when that class has been charged.
    charged_ns: u64,
    dead_time: DeadTime,
    /// When inhibit was set last.
    since_ns: u64,
    /// Length of all that was before.
    inhibited_ns: u64,
}

impl State {
    /// Charges what ran up to now to the class that ran, and goes on with `class`.
    fn account(&mut self, class: Option<InhibitClass>, now: u64) {
        if let Some(ran) = self.class {
            self.dead_time.charge(ran, now.saturating_sub(self.charged_ns));
        }
        match (self.class, class) {
            (None, Some(_)) => self.since_ns = now,
            (Some(_), None) => self.inhibited_ns += now.saturating_sub(self.since_ns),
            _ => {}
        }
        (self.class, self.charged_ns) = (class, now);
    }

    fn inhibited_ns(&self, now: u64) -> u64 {
        let running = if self.class.is_some() { now.saturating_sub(self.since_ns) } else { 0 };
        self.inhibited_ns + running
    }
}

impl Pressure {
    pub(crate) fn is_copying(&self) -> bool {
        self.copying.load(Ordering::Relaxed)
    }

    /// From now on the warm level counts.
    pub(crate) fn set_warm(&self, gauge: Arc<dyn WarmGauge>) {
        *self.warm.write() = Some(gauge);
    }
}

impl Engine {
    /// Looks at both levels, sets or clears inhibit, and tells who listens. Called with no lock held.
    pub(crate) fn update_pressure(&self) -> Look {
        let look = {
            // Held throughout: an older reading never follows a newer one.
            let mut state = self.pressure.state.lock();
            let pinned = self.segments_pinned();
            let quota = self.config.pinned_share * f64::from(self.hot.geometry.segments);
            self.pressure.copying.store(f64::from(pinned) > quota, Ordering::Relaxed);
            let reading = self.reading();
            let now = self.now_ns();
            state.latches.look(&reading, &self.config);
            let class = state.latches.class(&reading);
            state.account(class, now);
            let inhibit = class.map(|class| self.describe(class, state.latches, &reading, pinned));
            self.pressure.board.post(inhibit.as_ref(), now, state.dead_time, self.config.inhibit.is_some());
            Look { inhibit, inhibited_ns: state.inhibited_ns(now), dead_time: state.dead_time }
        };
        if let Some(listener) = &self.config.inhibit {
            self.pressure.board.deliver(&**listener);
        }
        look
    }

    fn reading(&self) -> Reading {
        let segments = self.hot.geometry.segments;
        let reserve = self.hot.reserve(Class::NewEvent);
        let free = self.hot.free_segments();
        Reading {
            hot: self.hot.fill(),
            segments,
            reserve,
            used: segments.saturating_sub(free),
            // The debug stream is for a person to look at: past its quota the trigger pauses, until somebody has.
            debug_bytes: self.cells.iter().map(|cell| cell.lock().debug_bytes).sum(),
            debug_quota: self.debug_quota(),
            warm: self.pressure.warm.read().as_ref().map(|gauge| gauge.warm_fill()),
        }
    }

    /// What stands on the warm level; nothing without one.
    fn warm_bytes(&self) -> WarmBytes {
        self.pressure.warm.read().as_ref().map(|gauge| gauge.warm_bytes()).unwrap_or_default()
    }

    /// Segments that only guards keep.
    pub(crate) fn segments_pinned(&self) -> u32 {
        let all = self.hot.segments.iter();
        all.filter(|segment| segment.live() == 0 && segment.pins() > 0).count() as u32
    }

    /// Live data of all runs by state.
    pub(crate) fn live(&self) -> [Tally; 5] {
        let mut live = [Tally::default(); 5];
        for cell in &self.cells {
            for run in &cell.lock().runs {
                for (sum, tally) in live.iter_mut().zip(run.ledger.live) {
                    *sum += tally;
                }
            }
        }
        live
    }
}
