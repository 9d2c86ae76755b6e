//! Devices that are drained while data is taken: nothing new goes there, and what is there goes elsewhere.
//!
//! ```text
//! drain ─▶ devices.toml ─▶ writers let their containers go ─▶ full containers are emptied (`compact.rs`), those in custody
//! released (`custody.rs`) ─▶ drained
//! ```
//!
//! *Invariants*: the list says durably that a device leaves before anything moves; what is on it counts there until it is durable
//! elsewhere, as with every move (tests/levels/drain.rs).

use super::list::{is_listed, remember_exchange, remember_leaving, took_a_place};
use super::open::open_device;
use crate::config::{WarmDevice, WarmPlace};
use crate::engine::Engine;
use crate::placement::{Demoter, Level};
use crate::store::Store;
use forebay_core::{Error, Result};
use forebay_media::warm::remove_all;
use std::path::Path;

impl Store {
    /// Drains a device: from now on no data is written to it, also after a restart, and what lives on it moves to the others
    /// beside all other work. [`Store::warm_stats`] says when it is `drained`. What the archive has in custody there is released at
    /// once; the persisted copies of events that are not complete stay until these are. Without effect where it leaves already.
    ///
    /// # Errors
    /// `Invalid` for a device that is not there or is the last one that takes data, and where the list of devices cannot be
    /// written; `Full` where the others have no room for what lives on it; `Unavailable` where another change of the devices goes on;
    /// `Closed`.
    pub fn drain_device(&self, device: u32) -> Result<()> {
        self.engine().set_leaving(device, true)
    }

    /// A device that was being drained, or is drained, takes data again.
    ///
    /// # Errors
    /// `Invalid` for a device that is not there, and where the list of devices cannot be written; `Conflict` for one that was
    /// exchanged; `Unavailable` where another change of the devices goes on; `Closed`.
    pub fn undo_drain(&self, device: u32) -> Result<()> {
        self.engine().set_leaving(device, false)
    }

    /// Gives the place of a drained device to an empty directory, from the next opening of the store on: it gets the containers and
    /// the decision log of the device, and data once the store was opened again. Until then the store goes on without it, and the
    /// drain cannot be undone. The directory is made if need be; the same exchange may be repeated, also after that opening.
    ///
    /// # Errors
    /// `Conflict` where the device is not drained, was exchanged for another one, or the directory holds containers already; `Invalid`
    /// for a device of the list, a store without a list, and where the list cannot be written; `Full` where the directory has not
    /// the space; `Unavailable` where a device fails, or where another change of the devices goes on; `Closed`.
    pub fn exchange_device(&self, device: u32, to: &Path) -> Result<()> {
        self.engine().exchange(device, to)
    }
}

/// Another change holds the devices: an exchange takes as long as its disk needs for the whole size.
pub(super) fn busy() -> Error {
    Error::unavailable("the devices are being changed by another call: try again when it has ended")
}

impl Engine {
    pub(super) fn level_of_devices(&self) -> Result<&Level> {
        self.check_open()?;
        let level = self.placement.level.as_ref();
        level.ok_or_else(|| Error::invalid("this store was made without devices: it has none to change, and gets none"))
    }

    /// The directory with the list of devices; `None` where they are not those of a list.
    fn dir_of_list(&self) -> Option<&Path> {
        let lent = self.config.warm.iter().any(|device| matches!(device.place, WarmPlace::Device(_)));
        self.life.dir.as_deref().filter(|_| !lent)
    }

    /// The same.
    ///
    /// # Errors
    /// `Invalid` where there is none.
    pub(super) fn list_dir(&self) -> Result<&Path> {
        self.dir_of_list().ok_or_else(|| Error::invalid("the devices of this store are no directories of a list"))
    }

    fn exchange(&self, number: u32, to: &Path) -> Result<()> {
        let level = self.level_of_devices()?;
        let dir = self.list_dir()?;
        if number >= level.devices {
            return Err(Error::invalid(format!("there is no device {number}")));
        }
        let to = std::path::absolute(to)
            .map_err(|error| Error::invalid(format!("{}: no path", to.display())).with_source(error))?;
        let _list = level.list.try_lock_until(level.deadline()).ok_or_else(busy)?;
        self.check_open()?;
        match level.exchanged.lock().get(&number) {
            Some(known) if *known == to => return Ok(()),
            Some(known) => {
                return Err(Error::conflict(format!("device {number} was exchanged for {} already", known.display())));
            }
            None => {}
        }
        let name = level.warm.name_of(number);
        // It was exchanged in an earlier life, whose answer may not have arrived.
        if took_a_place(dir, &to, &name)? {
            return Ok(());
        }
        if is_listed(dir, &to)? {
            return Err(Error::invalid(format!("{} is a device of this store, or was one", to.display())));
        }
        if !level.warm.is_drained(number) {
            return Err(Error::conflict(format!("device {number} ({name}) is not drained: drain it first")));
        }
        let device = open_device(&WarmDevice::directory(&to, 0), true)?;
        let capture = || self.capture(self.decisions.log.boundary(&self.placement.hot));
        level.warm.make_replacement(number, device.as_ref(), || {
            level.log.make_beside(number, &device, self.life.boot, capture, level.deadline())
        })?;
        // From here on the old one has nothing that the store needs, and the new one all that it had.
        if let Err(error) = remember_exchange(dir, &name, &to) {
            // After a sync that failed the list may name it all the same: then it stays as it is.
            if !is_listed(dir, &to).unwrap_or(true) {
                remove_all(device.as_ref());
            }
            return Err(error);
        }
        level.exchanged.lock().insert(number, to);
        // A list that was written by hand must not serve the old one instead of the new one.
        if let Err(error) = level.warm.disown(number) {
            level.note(error.to_string());
        }
        Ok(())
    }

    fn set_leaving(&self, device: u32, leaving: bool) -> Result<()> {
        let level = self.level_of_devices()?;
        // From the check to the change: of two devices that are drained at once one could be the last one.
        let _list = level.list.try_lock_until(level.deadline()).ok_or_else(busy)?;
        if let Some(to) = level.exchanged.lock().get(&device) {
            let to = to.display();
            return Err(Error::conflict(format!(
                "device {device} was exchanged: {to} takes data from the next opening on"
            )));
        }
        let known = level.present().any(|present| present == device);
        match leaving {
            true => level.warm.check_leaving(device)?,
            false if !known => return Err(Error::invalid(format!("device {device} is not there"))),
            false => {}
        }
        if let Some(dir) = self.dir_of_list() {
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
