//! The warm level of a store: devices, their logs, and what is under way to them.

use super::{Custody, Demoter, Flushing, Keeper, Persisting, Unsettled};
use crate::config::Config;
use forebay_core::Keyspace;
use forebay_media::hot::{Class, Hot};
use forebay_media::warm::{DeviceLog, Warm};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
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
    pub(crate) relieving: AtomicBool,
    /// When no container was free, and how many were: asked again after a while, or when there are more.
    pub(crate) refused: Mutex<Option<(Instant, u32)>>,
    /// Some groups of sources go to the warm level by default.
    pub(crate) warm_groups: bool,
    pub(crate) demoted_events: AtomicU64,
    pub(crate) demoted_bytes: AtomicU64,
    /// Payload bytes of fragments that were to go down and whose events were rejected before.
    pub(crate) saved_bytes: AtomicU64,
    /// Payload bytes under way.
    pub(crate) in_flight: AtomicU64,
    /// Releases from custody under way, and what was let go early.
    pub(crate) custody: Mutex<Custody>,
    pub(crate) custody_shortened: AtomicU64,
    pub(crate) unproved_claims: AtomicU64,
    /// When a mover last proved something, by the calendar.
    pub(crate) proved_ms: AtomicU64,
    /// What went wrong on devices, bounded.
    pub(crate) notes: Mutex<Vec<String>>,
    /// Decisions that devices do not have yet.
    pub(crate) unsettled: Unsettled,
    /// Held over a change of the list of devices.
    pub(crate) list: Mutex<()>,
    /// Directories that take the places of devices with the next opening.
    pub(crate) exchanged: Mutex<BTreeMap<u32, PathBuf>>,
    /// Devices that take part from the next opening on.
    pub(crate) added: Mutex<Vec<Added>>,
    /// The keepers of the devices' shadows.
    pub(crate) keepers: Vec<Keeper>,
}

/// A device that takes part from the next opening on.
#[derive(Clone)]
pub(crate) struct Added {
    pub(crate) name: String,
    pub(crate) containers: u32,
}

const NOTES_MAX: usize = 1000;
/// Pause before a full warm level is asked again for a container.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Stalls that a device may have before those who wait for it give up.
const PATIENCE_STALLS: u32 = 7;

impl Level {
    pub(crate) fn new(warm: Arc<Warm>, log: DeviceLog, devices: u32, config: &Config, keyspace: &Keyspace) -> Level {
        // Without a distance between the marks one event more or less would start and stop demotion.
        debug_assert!(config.demote_low < config.demote_high, "marks are checked before a level is opened");
        Level {
            // An eighth stays for the metas of images, the directory and the padding of commits: an image always fits into an
            // empty container.
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
            custody: Mutex::default(),
            custody_shortened: AtomicU64::new(0),
            unproved_claims: AtomicU64::new(0),
            proved_ms: AtomicU64::new(0),
            notes: Mutex::default(),
            unsettled: Unsettled::default(),
            list: Mutex::default(),
            exchanged: Mutex::default(),
            added: Mutex::default(),
            keepers: (0..devices).map(|_| Keeper::default()).collect(),
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
    pub(crate) fn refuse(&self, now: Instant) {
        *self.refused.lock() = Some((now, self.warm.free_containers()));
    }

    /// Whether asking again would be in vain.
    pub(crate) fn is_refused(&self, now: Instant) -> bool {
        let mut refused = self.refused.lock();
        // Asked again early where a container was given back: its space is for what waits.
        let still = refused.is_some_and(|(since, free)| {
            now.saturating_duration_since(since) < ASK_AGAIN && self.warm.free_containers() <= free
        });
        if !still {
            *refused = None;
        }
        still
    }

    pub(crate) fn note(&self, what: String) {
        // Bounded, and the same words once in a row: a device that fails says so in every round.
        let mut notes = self.notes.lock();
        if notes.len() < NOTES_MAX && notes.last() != Some(&what) {
            notes.push(what);
        }
    }

    /// Whether undecided events have to go down: from the hot level's demotion mark until it is below the lower one.
    pub(crate) fn must_relieve(&self, hot: &Hot, config: &Config) -> bool {
        let fill = hot.fill();
        let was = self.relieving.load(Ordering::Relaxed);
        // Reserves grow with what is live: new events may be refused well below the mark, and then only demotion helps.
        let short = !hot.admits(Class::NewEvent);
        let now = short || fill > if was { config.demote_low } else { config.demote_high };
        self.relieving.store(now, Ordering::Relaxed);
        now
    }

    /// Payload bytes by which the hot level is above its lower mark.
    pub(crate) fn bytes_to_relieve(&self, hot: &Hot, config: &Config) -> u64 {
        // A segment at least: where reserves are the reason, fill may be below its mark.
        let above = (hot.fill() - config.demote_low).max(1.0 / f64::from(hot.geometry.segments));
        (above * hot.geometry.region_bytes() as f64) as u64
    }
}
