//! Keeping the shadows: on each device a copy of what is decided, replaced by a snapshot before it is full, and made whole after a
//! failure.
//!
//! *Invariants*: while a store with threads serves calls, only the device's keeper takes snapshots of its shadow. Each keeper has its own
//! thread, so that a device that stalls delays its own shadow only. Opening takes one of every shadow (`snapshot_shadows`). Close waits
//! for a snapshot that has begun, until its deadline (`close_device_logs`). In a store without threads the call that is about to
//! wait for the device takes it (`make_room`), and `tick` does. A call that waits for a device waits for a snapshot as well
//! where the log is full or poisoned, and for the last step of any snapshot (`warm/log/replace.rs`).
//!
//! *Not here*: their bytes (`warm/log/`), the calls that wait for them (`decide.rs`).

use crate::config::WarmPlace;
use crate::engine::{Engine, Holder};
use crate::placement::Level;
use forebay_core::Result;
use forebay_media::sync::{deadline_after, park_keeper};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Fill of a device's log from which on a snapshot replaces it.
const LOG_FILL: f64 = 0.5;
/// Pause after a snapshot that did not help.
const FOLD_AGAIN: Duration = Duration::from_secs(1);
/// Pause between two rounds that nobody asked for.
const PAUSE: Duration = Duration::from_millis(5);

impl Engine {
    /// One round for the shadow of each device.
    pub(crate) fn maintain_shadows(&self) {
        let Some(level) = &self.placement.level else { return };
        level.present().for_each(|device| self.maintain_shadow(level, device));
    }

    /// What came and nobody waits for becomes durable; a log that is half full, or takes nothing, is replaced by a
    /// snapshot.
    fn maintain_shadow(&self, level: &Level, device: u32) {
        // Tried, not waited for: another thread is at it, and what it writes is what this one came for.
        let Some(mut round) = level.keepers.get(device as usize).and_then(|keeper| keeper.round.try_lock()) else {
            return;
        };
        if self.is_closed() {
            return;
        }
        if !level.log.is_poisoned(device) && level.log.fill(device) <= LOG_FILL {
            round.fold_again = None;
            if !level.log.is_durable(device, level.log.end()) {
                // What is late is waited for again in the next round.
                let deadline = deadline_after(level.warm.shape().stall);
                if let Err(error) = level.log.flush(device, deadline) {
                    level.note(error.to_string());
                }
            }
            return;
        }
        // A device that refuses would otherwise be given a whole snapshot in every round.
        if round.fold_again.is_some_and(|again| self.timer().now() < again) {
            return;
        }
        debug_assert!(device < level.devices, "device {device} of {}", level.devices);
        let folded = self.fold_shadow(level, device);
        round.fold_again = folded.is_err().then(|| self.deadline_after(FOLD_AGAIN));
        if let Err(error) = folded {
            level.note(error.to_string());
        }
    }

    /// Without keepers the call that is about to wait for a device's log makes room in it.
    pub(super) fn make_room(&self, level: &Level, device: u32) {
        if level.log.is_poisoned(device) || level.log.fill(device) > LOG_FILL {
            self.maintain_shadow(level, device);
        }
    }

    /// Replaces the shadow of one device by a snapshot.
    fn fold_shadow(&self, level: &Level, device: u32) -> Result<()> {
        // The hot log goes on where it is: a reader of a shadow alone asks for no place in it.
        let capture = || self.capture(self.decisions.log.boundary(&self.placement.hot));
        level.log.replace(device, self.life.boot, capture, level.deadline())
    }

    /// Brings every shadow up to what is decided: at the beginning of a life.
    pub(crate) fn snapshot_shadows(&self) {
        let Some(level) = &self.placement.level else { return };
        for device in level.present() {
            if let Err(error) = self.fold_shadow(level, device) {
                level.note(error.to_string());
                // Served all the same: the hot log has everything, and the keeper tries again.
                // It may lack decisions of earlier lives: their repeats succeed only after the device has them.
                level.unsettled.note_all(level.log.end());
            }
        }
    }

    /// Closes the shadows after their last commit. Returns the devices to which this store writes nothing more.
    pub(crate) fn close_device_logs(&self) -> Vec<u32> {
        let Some(level) = &self.placement.level else { return Vec::new() };
        let deadline = level.deadline();
        // A device that is added or exchanged, and a keeper in the middle of a snapshot, end by the same patience. Otherwise all
        // stay locked: no other life may change the list meanwhile.
        let list = level.list.try_lock_until(deadline);
        let kept: Vec<_> = level.keepers.iter().map(|keeper| keeper.round.try_lock_until(deadline)).collect();
        if let Err(error) = level.log.close(deadline) {
            level.note(error.to_string());
            return Vec::new();
        }
        if list.is_none() {
            return Vec::new();
        }
        // A device of which a write is still under way stays locked: another life would meet that write.
        let idle = (0..).zip(&kept).filter(|(device, round)| round.is_some() && level.log.retire(*device));
        idle.map(|(device, _)| device).collect()
    }

    /// Unlocks the directories that the store opened itself, so that another life can have them.
    pub(crate) fn let_devices_go(&self, idle: &[u32]) {
        let Some(level) = &self.placement.level else { return };
        let lent = |device: &u32| {
            let wanted = self.config.warm.get(*device as usize);
            wanted.is_some_and(|device| matches!(device.place, WarmPlace::Device(_)))
        };
        idle.iter().filter(|device| !lent(device)).for_each(|device| level.warm.let_go(*device));
    }
}

/// A keeper for each device, until the store closes or its last handle is gone.
pub(crate) fn spawn_keepers(holder: &Arc<Holder>) -> std::io::Result<()> {
    let Some(level) = &holder.engine.placement.level else { return Ok(()) };
    for device in level.present() {
        let engine: Weak<Engine> = Arc::downgrade(&holder.engine);
        let keeper = std::thread::Builder::new().name(format!("forebay-log-{device}")).spawn(move || {
            loop {
                match engine.upgrade() {
                    Some(engine) if !engine.is_closed() => {
                        if let Some(level) = &engine.placement.level {
                            engine.maintain_shadow(level, device);
                        }
                    }
                    _ => return,
                }
                // Woken early by a call that waits (`Keeper::wake`).
                park_keeper(PAUSE);
            }
        })?;
        let _ = level.keepers[device as usize].thread.set(keeper.thread().clone());
    }
    Ok(())
}
