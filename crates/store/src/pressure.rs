//! Inhibit: when the hot level is nearly full the trigger must pause, and people must see why, who can change it, and
//! what ends it.
//!
//! *Invariants*: hysteresis: set at the high-water mark, cleared at the low one (tests/full.rs).

use crate::Inhibit;
use crate::engine::Engine;
use forebay_core::{LIVE_STATES, LiveState, Tally};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether inhibit is set, why, and for how long in total.
#[derive(Default)]
pub(crate) struct Pressure {
    state: Mutex<State>,
    /// Dead bytes under guards exceed their quota: `get` copies.
    copying: AtomicBool,
}

#[derive(Default)]
struct State {
    inhibit: Option<Inhibit>,
    since_ns: u64,
    total_ns: u64,
}

impl Pressure {
    pub(crate) fn is_copying(&self) -> bool {
        self.copying.load(Ordering::Relaxed)
    }
}

impl Engine {
    /// Looks at the fill, sets or clears inhibit; answers it and the total time in nanoseconds during which it was set.
    pub(crate) fn update_pressure(&self) -> (Option<Inhibit>, u64) {
        let pinned = self.segments_pinned();
        let quota = self.config.pinned_share * f64::from(self.hot.geometry.segments);
        self.pressure.copying.store(f64::from(pinned) > quota, Ordering::Relaxed);
        let now = self.now_ns();
        let fill = self.hot.fill();
        // Where reserves bind before the mark (small stores, many small events), their end is the mark.
        let refused = !self.hot.admits(crate::hot::Class::NewEvent);
        // The debug stream is for a person to look at: past its quota the trigger pauses, until somebody has.
        let debug: u64 = self.cells.iter().map(|cell| cell.lock().debug_bytes).sum();
        let (quota, inhibited) = (self.debug_quota(), self.pressure.state.lock().inhibit.is_some());
        let crowded = debug > if inhibited { quota / 10 * 9 } else { quota };
        let refused = refused || crowded;
        let mut state = self.pressure.state.lock();
        match state.inhibit {
            None if fill >= self.config.hot_high || refused => {
                state.since_ns = now;
                state.inhibit = Some(self.inhibit(fill, pinned, crowded));
            }
            Some(_) if fill <= self.config.hot_low && !refused => {
                state.total_ns += now.saturating_sub(state.since_ns);
                state.inhibit = None;
            }
            Some(_) => state.inhibit = Some(self.inhibit(fill, pinned, crowded)),
            None => {}
        }
        let running = if state.inhibit.is_some() { now.saturating_sub(state.since_ns) } else { 0 };
        (state.inhibit.clone(), state.total_ns + running)
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

    fn inhibit(&self, fill: f64, pinned: u32, crowded: bool) -> Inhibit {
        let live = self.live();
        if crowded {
            let debug = live[LiveState::Debug as usize];
            return Inhibit {
                cause: format!(
                    "debug stream: {} events with {} bytes, quota {}",
                    debug.events,
                    debug.bytes,
                    self.debug_quota()
                ),
                owner: "debug stream".to_owned(),
                ends: "somebody replays, releases or removes debug events".to_owned(),
            };
        }
        let region = self.hot.geometry.region_bytes() as f64;
        let weight = |tally: &Tally| tally.bytes + tally.fragments * self.hot.layout.entry_bytes() as u64;
        let largest = LIVE_STATES.into_iter().max_by_key(|state| weight(&live[*state as usize]));
        let largest = largest.unwrap_or(LIVE_STATES[0]);
        let share = |bytes: u64| bytes as f64 / region * 100.0;
        let marks = format!(
            "hot fill {:.0} % (marks {:.0} and {:.0} %)",
            fill * 100.0,
            self.config.hot_high * 100.0,
            self.config.hot_low * 100.0
        );
        let pinned_bytes = u64::from(pinned) * self.hot.geometry.segment_bytes;
        if pinned_bytes > weight(&live[largest as usize]) {
            let owner =
                self.holder_stats().into_iter().next().map_or_else(|| "guards".to_owned(), |holder| holder.holder);
            return Inhibit {
                cause: format!("{marks}: {:.0} % dead bytes under guards", share(pinned_bytes)),
                ends: format!("`{owner}` drops its guards"),
                owner,
            };
        }
        let weight = weight(&live[largest as usize]);
        let (owner, ends) = match largest.name() {
            "open" => ("readout", "events complete or run out of time, and are decided"),
            "ready" => ("selection", "workers take and decide ready events"),
            "leased" => ("selection", "workers decide what they hold, or their leases run out"),
            "debug" => ("debug stream", "somebody releases or removes debug events"),
            _ => ("archive", "accepted events are taken over and released"),
        };
        Inhibit {
            cause: format!("{marks}: {:.0} % {}", share(weight), largest.name()),
            owner: owner.to_owned(),
            ends: ends.to_owned(),
        }
    }
}
