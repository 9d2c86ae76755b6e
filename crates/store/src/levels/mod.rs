//! Two levels behind one index: where a record stands, when it goes down, and who is told when space is short.
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
//! *Not here*: bytes and files (`warm`), the meaning of events (`home`).

mod compact;
mod decide;
mod demote;
mod drain;
mod flush;
mod gauge;
mod inspect;
mod open;
mod persist;
mod place;
mod plan;
mod shadow;

pub(crate) use compact::LOST;
pub(crate) use decide::{ON_HOT_ONLY, Ticket};
pub(crate) use demote::{at, place_of, too_large};
pub use drain::Drain;
pub(crate) use flush::Flushing;

pub(crate) use open::{absent_devices, all_gone, create, devices_of, has_devices, open, unmake};
pub(crate) use place::{ONE_FRAGMENT, Reading, mark_detail, not_verified};

use crate::config::Config;
use crate::engine::{Engine, Holder};
use demote::Demoter;
use forebay_core::{Error, Keyspace, Result};
use forebay_media::warm::{DeviceLog, Warm};
use parking_lot::Mutex;
use persist::Persisting;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The warm level of one store.
pub(crate) struct Level {
    pub(crate) warm: Arc<Warm>,
    pub(crate) log: Arc<DeviceLog>,
    pub(crate) devices: u32,
    pub(crate) persisting: Persisting,
    pub(crate) flushing: Flushing,
    pub(crate) persist_delay: Duration,
    /// Payload bytes of one image, and what a fragment's entry adds to it.
    pub(crate) image_bytes_max: u64,
    pub(crate) entry_bytes_max: u64,
    pub(crate) demoter: Mutex<Demoter>,
    /// Shard at which the next batch begins.
    pub(crate) turn: AtomicU32,
    /// The hot level was above its mark, and is not below the lower one yet.
    relieving: AtomicBool,
    /// When no container was free, and how many were: asked again after a while, or when there are more.
    refused: Mutex<Option<(Instant, u32)>>,
    /// Some groups of sources go to the warm level by default.
    pub(crate) warm_groups: bool,
    pub(crate) demoted_events: AtomicU64,
    pub(crate) demoted_bytes: AtomicU64,
    /// Payload bytes of fragments that were to go down and whose events were rejected before.
    pub(crate) saved_bytes: AtomicU64,
    /// Payload bytes under way.
    pub(crate) in_flight: AtomicU64,
    /// What went wrong on devices, bounded.
    pub(crate) notes: Mutex<Vec<String>>,
    /// Decisions that devices do not have yet.
    pub(crate) unsettled: decide::Unsettled,
    /// Who keeps the shadow of each device.
    keepers: Vec<shadow::Keeper>,
}

const NOTES_MAX: usize = 1000;
/// Pause before a full warm level is asked again for a container.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Batches of one round of a store without threads.
const ROUNDS_MAX: u32 = 64;
/// Stalls that a device may have before those who wait for it give up.
const PATIENCE_STALLS: u32 = 7;

impl Level {
    pub(crate) fn new(warm: Arc<Warm>, log: DeviceLog, devices: u32, config: &Config, keyspace: &Keyspace) -> Level {
        Level {
            image_bytes_max: warm.payload_bytes_max() / 8 * 7,
            entry_bytes_max: keyspace.schema.key_bytes() as u64 + 32,
            warm,
            log: Arc::new(log),
            devices,
            persisting: Persisting::default(),
            flushing: Flushing::default(),
            persist_delay: config.persist_delay,
            demoter: Mutex::default(),
            turn: AtomicU32::new(0),
            relieving: AtomicBool::new(false),
            refused: Mutex::default(),
            warm_groups: keyspace.groups.iter().any(|group| group.level == forebay_core::Level::Warm),
            demoted_events: AtomicU64::new(0),
            demoted_bytes: AtomicU64::new(0),
            saved_bytes: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            notes: Mutex::default(),
            unsettled: decide::Unsettled::default(),
            keepers: (0..devices).map(|_| shadow::Keeper::default()).collect(),
        }
    }

    /// Numbers of the devices that are there.
    pub(crate) fn present(&self) -> impl Iterator<Item = u32> + '_ {
        self.warm.present_numbers()
    }

    /// The store closes: one patience for all that is under way, and one stall for each step after that.
    pub(crate) fn begin_closing(&self) {
        self.warm.begin_closing(PATIENCE_STALLS);
    }

    /// Until when to wait for a device from now on.
    pub(crate) fn deadline(&self) -> Instant {
        self.warm.deadline(PATIENCE_STALLS)
    }

    /// No container is free.
    fn refuse(&self) {
        *self.refused.lock() = Some((Instant::now(), self.warm.free_containers()));
    }

    /// Whether asking again would be in vain.
    fn is_refused(&self) -> bool {
        let mut refused = self.refused.lock();
        let still =
            refused.is_some_and(|(since, free)| since.elapsed() < ASK_AGAIN && self.warm.free_containers() <= free);
        if !still {
            *refused = None;
        }
        still
    }

    pub(crate) fn note(&self, what: String) {
        let mut notes = self.notes.lock();
        if notes.len() < NOTES_MAX && notes.last() != Some(&what) {
            notes.push(what);
        }
    }

    /// Whether undecided events have to go down: from the hot level's demotion mark until it is below the lower one.
    pub(crate) fn must_relieve(&self, engine: &Engine) -> bool {
        let fill = engine.hot.fill();
        let was = self.relieving.load(Ordering::Relaxed);
        let short = !engine.hot.admits(forebay_media::hot::Class::NewEvent);
        let now = short || fill > if was { engine.config.demote_low } else { engine.config.demote_high };
        self.relieving.store(now, Ordering::Relaxed);
        now
    }

    /// Payload bytes by which the hot level is above its lower mark.
    pub(crate) fn bytes_to_relieve(&self, engine: &Engine) -> u64 {
        let above = (engine.hot.fill() - engine.config.demote_low).max(1.0 / f64::from(engine.hot.geometry.segments));
        (above * engine.hot.geometry.region_bytes() as f64) as u64
    }
}

impl Engine {
    /// The store has this warm level from now on.
    pub(crate) fn adopt_level(&mut self, level: Option<Level>) {
        if let Some(level) = &level {
            self.inhibit.set_warm(level.warm.clone());
        }
        self.level = level;
    }

    /// Closed runs of which no container has an image any more need no memory of the decided.
    pub(crate) fn forget_decided(&self) {
        let Some(level) = &self.level else { return };
        // One that comes back has images of runs that nobody else remembers.
        if self.lacks_devices() {
            return;
        }
        let runs = level.warm.runs();
        let Some(runs) = runs else { return };
        for cell in &self.cells {
            for run in &mut cell.lock().runs {
                if run.state == crate::RunState::Closed && !runs.contains(&run.run) {
                    run.decided = Default::default();
                }
            }
        }
    }

    /// One round of what the warm level does by itself; `true` where there was something to do.
    pub(crate) fn maintain_level(&self, finish: bool) -> bool {
        let Some(level) = &self.level else { return false };
        let mut demoter = level.demoter.lock();
        if self.is_closed() {
            return false;
        }
        let mut any = self.demote(&mut demoter, finish);
        let mut rounds = 0;
        while finish && any && !self.is_closed() && rounds < ROUNDS_MAX && self.demote(&mut demoter, true) {
            (any, rounds) = (true, rounds + 1);
        }
        let compacted = self.compact(level, &mut demoter);
        level.in_flight.store(demoter.in_flight(), Ordering::Relaxed);
        if let Err(error) = level.warm.maintain(&level.log) {
            level.note(error.to_string());
        }
        any || compacted
    }

    /// Nothing is on its way any more; containers under way are closed.
    ///
    /// # Errors
    /// `Unavailable` where a round does not end in time.
    pub(crate) fn rest_level(&self) -> Result<()> {
        let Some(level) = &self.level else { return Ok(()) };
        let mut demoter = level
            .demoter
            .try_lock_until(level.deadline())
            .ok_or_else(|| Error::unavailable("a device does not answer what was asked of it before the close"))?;
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
    std::thread::Builder::new().name("forebay-levels".to_owned()).spawn(move || {
        loop {
            let any = match engine.upgrade() {
                Some(engine) if !engine.is_closed() => engine.maintain_level(false),
                _ => return,
            };
            if !any {
                std::thread::sleep(Duration::from_millis(PAUSE_MS));
            }
        }
    })?;
    Ok(())
}
