//! Inhibit: when a level is nearly full the trigger must pause, and people must see which level, why, who can change it,
//! and what ends it.
//!
//! ```text
//! fill of hot and warm, reserves, debug stream ─▶ latches ─▶ one class ─▶ dead time of that class
//!                                                               └─▶ words ─▶ board: watches, listener, stats
//!                                                                         └─▶ books: dead time of runs, by owner
//! ```
//!
//! A *look* does all of it. Maintenance looks in every round, and so do `stats` and a put that is refused.
//!
//! *Invariants*: hysteresis, for each level on its own (`latch`); at every instant in which inhibit is set exactly one
//! class is charged, so that dead time by class adds up (`upkeep/look/tests.rs`); changes are told in order, each once, and outside of
//! every lock (`board`).
//!
//! *Lock order*: a look's lock is taken with no other held, and before any cell. The locks of board and books come after it.
//!
//! *Not here*: waiting for space (`hot/space.rs`), when events are demoted.

mod board;
mod books;
mod gauge;
mod latch;
mod words;

pub(crate) use board::Board;
pub(crate) use books::{Balance, Books, row_of};
pub(crate) use gauge::{WarmBytes, WarmFill, WarmGauge};
pub(crate) use latch::Reading;
pub(crate) use words::Facts;

use crate::config::Config;
use forebay_core::{DeadTime, Inhibit, InhibitClass};
use latch::Latches;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use words::Words;

/// The largest part of a level's fill.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Largest {
    /// Part of the level, 0 to 1.
    pub(crate) share: f64,
    /// A live state by name (`open` to `accepted`), or other words, such as `recorded`.
    pub(crate) what: &'static str,
}

/// The result of a look.
pub(crate) struct Look {
    pub(crate) inhibit: Option<Inhibit>,
    /// Time since opening during which inhibit was set, up to now, measured from its beginnings to its ends.
    pub(crate) inhibited_ns: u64,
    /// The same by class.
    pub(crate) dead_time: DeadTime,
}

/// Whether inhibit is set, why, and for how long in total.
#[derive(Default)]
pub(crate) struct Inhibition {
    state: Mutex<LatchState>,
    pub(crate) board: Board,
    pub(crate) books: Books,
    warm: RwLock<Option<Arc<dyn WarmGauge>>>,
    /// Dead bytes under guards exceed their quota: `get` copies.
    copying: AtomicBool,
}

#[derive(Default)]
struct LatchState {
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

impl LatchState {
    /// Charges what ran up to now to the class that ran, and goes on with `class`.
    fn account(&mut self, class: Option<InhibitClass>, now: u64) {
        // Up to now by what was found before: a look sees states, and the time between two belongs to the first.
        if let Some(ran) = self.class {
            self.dead_time.charge(ran, now.saturating_sub(self.charged_ns));
        }
        match (self.class, class) {
            (None, Some(_)) => self.since_ns = now,
            (Some(_), None) => self.inhibited_ns += now.saturating_sub(self.since_ns),
            _ => {}
        }
        (self.class, self.charged_ns) = (class, now);
        debug_assert!(self.class.is_none() || self.since_ns <= self.charged_ns, "inhibit begins before it is charged");
    }

    fn inhibited_ns(&self, now: u64) -> u64 {
        let running = if self.class.is_some() { now.saturating_sub(self.since_ns) } else { 0 };
        self.inhibited_ns + running
    }
}

impl Inhibition {
    pub(crate) fn is_copying(&self) -> bool {
        self.copying.load(Ordering::Relaxed)
    }

    /// From now on the warm level counts.
    pub(crate) fn set_warm(&self, gauge: Arc<dyn WarmGauge>) {
        *self.warm.write() = Some(gauge);
    }

    /// The hot level in the words of inhibit, where it is not set. Called with no lock held.
    pub(crate) fn hot_words(
        &self,
        config: &Config,
        read: impl FnOnce() -> Reading,
        facts: impl FnOnce() -> Facts,
    ) -> Inhibit {
        let gauge = self.warm.read().clone();
        let reading = Reading { warm: gauge.as_ref().map(|gauge| gauge.warm_fill()), ..read() };
        let warm = gauge.map(|gauge| gauge.warm_bytes()).unwrap_or_default();
        Words { config, facts: facts(), warm }.describe(InhibitClass::HotFull, Latches::default(), &reading)
    }

    /// Looks at both levels, sets or clears inhibit, and tells who listens. Called with no lock held. `read` reads the hot
    /// level, `facts` what the words need.
    pub(crate) fn look(&self, config: &Config, read: impl FnOnce() -> Reading, facts: impl FnOnce() -> Facts) -> Look {
        let look = {
            // Held throughout: an older reading never follows a newer one.
            let mut state = self.state.lock();
            // Cloned, so that the lock is not held while the gauge looks at all containers.
            let warm = self.warm.read().clone();
            let reading = Reading { warm: warm.as_ref().map(|gauge| gauge.warm_fill()), ..read() };
            let quota = config.pinned_share * f64::from(reading.segments);
            // Relaxed: a hint for reads, each of which is right either way.
            self.copying.store(f64::from(reading.pinned) > quota, Ordering::Relaxed);
            let now = config.clock.now_ns();
            state.latches.look(&reading, config);
            let class = state.latches.class(&reading);
            state.account(class, now);
            let inhibit = class.map(|class| {
                let warm = warm.map(|gauge| gauge.warm_bytes()).unwrap_or_default();
                Words { config, facts: facts(), warm }.describe(class, state.latches, &reading)
            });
            self.books.charge(inhibit.as_ref(), &*config.clock);
            self.board.post(inhibit.as_ref(), now, state.dead_time, config.inhibit.is_some());
            Look { inhibit, inhibited_ns: state.inhibited_ns(now), dead_time: state.dead_time }
        };
        // After the lock: the listener may look again.
        if let Some(listener) = &config.inhibit {
            self.board.deliver(&**listener);
        }
        look
    }
}
