//! Devices that are drained while data is taken: nothing new goes there, and what is there goes elsewhere.
//!
//! ```text
//! drain ─▶ devices.toml ─▶ writers let their containers go ─▶ full containers are emptied (`compact.rs`), those in custody
//! released (`custody.rs`) ─▶ drained
//! ```
//!
//! *Invariants*: the list says durably that a device leaves before anything moves; what is on it counts there until it is durable
//! elsewhere, as with every move (tests/levels/drain.rs).

use super::open::remember_leaving;
use crate::config::WarmPlace;
use crate::engine::Engine;
use crate::placement::{Demoter, Level};
use crate::store::Store;
use forebay_core::{Error, Result};

impl Store {
    /// Drains a device: from now on no data is written to it, also after a restart, and what lives on it moves to the others
    /// beside all other work. [`Store::warm_stats`] says when it is `drained`. What the archive has in custody there is released at
    /// once; the persisted copies of events that are not complete stay until these are. Without effect where it leaves already.
    ///
    /// # Errors
    /// `Invalid` for a device that is not there or is the last one that takes data, and where the list of devices cannot be
    /// written; `Full` where the others have no room for what lives on it; `Closed`.
    pub fn drain_device(&self, device: u32) -> Result<()> {
        self.engine().set_leaving(device, true)
    }

    /// A device that was being drained, or is drained, takes data again.
    ///
    /// # Errors
    /// `Invalid` for a device that is not there, and where the list of devices cannot be written; `Closed`.
    pub fn undo_drain(&self, device: u32) -> Result<()> {
        self.engine().set_leaving(device, false)
    }
}

impl Engine {
    fn set_leaving(&self, device: u32, leaving: bool) -> Result<()> {
        self.check_open()?;
        let level = self
            .placement
            .level
            .as_ref()
            .ok_or_else(|| Error::invalid("this store was made without devices: it has none to drain"))?;
        // From the check to the change: of two devices that are drained at once one could be the last one.
        let _list = level.list.lock();
        let known = level.present().any(|present| present == device);
        match leaving {
            true => level.warm.check_leaving(device)?,
            false if !known => return Err(Error::invalid(format!("device {device} is not there"))),
            false => {}
        }
        let lent = self.config.warm.iter().any(|device| matches!(device.place, WarmPlace::Device(_)));
        if let (Some(dir), false) = (&self.life.dir, lent) {
            remember_leaving(dir, &level.warm.name_of(device), leaving)?;
        }
        level.warm.set_leaving(device, leaving);
        Ok(())
    }

    /// Writers let containers go whose device leaves, and that they need no more: the next round closes them.
    pub(super) fn leave_devices(&self, level: &Level, demoter: &mut Demoter) {
        demoter.open.retain(|open| !(open.pending.is_empty() && open.writer.is_on_leaving()));
        // A put that is being persisted keeps them: it goes on elsewhere, or the next round comes here again.
        if let Some(mut writers) = level.persisting.writer.try_lock() {
            writers.retain(|(_, writer)| !writer.is_on_leaving());
        }
    }
}
