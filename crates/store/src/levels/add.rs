//! Devices that are added while data is taken, and take part from the next opening on (decision 0022).
//!
//! ```text
//! add ─▶ the new directory: containers, superblock, decision log ─▶ devices.toml ─▶ opening: taken in (`warm/grow.rs`)
//! ```
//!
//! *Invariant*: the change of the list is the moment: before it an opening finds the store as it was, after it the store with the
//! device (tests/levels/add.rs). The store that is open goes on without it.

use super::leave::busy;
use super::list::{is_listed, listed, remember_added};
use super::open::{CONTAINERS_MAX, open_device};
use crate::config::{WarmDevice, WarmPlace};
use crate::engine::Engine;
use crate::placement::Added;
use crate::store::Store;
use forebay_core::{Error, Result};
use forebay_media::warm::remove_all;
use std::path::Path;

impl Store {
    /// Adds a device that uses `bytes` bytes, or as many as device 0 for `None`: an empty directory gets containers and a decision
    /// log, and takes data once the store was opened again. The directory is made if it is not there. Until that opening the
    /// same call may be repeated. A program that names its devices in its [`crate::Config`] has to name this one as well.
    ///
    /// # Errors
    /// `Conflict` where the directory holds containers already, or a device of the store is missing; `Invalid` for a directory of
    /// the list, more containers than a store can have, a store without a list, and where the list cannot be written; `Full` where
    /// the directory has not the space; `Unavailable` where a device fails, or where another change of the devices goes on;
    /// `Closed`.
    pub fn add_device(&self, to: &Path, bytes: Option<u64>) -> Result<()> {
        let to = std::path::absolute(to)
            .map_err(|error| Error::invalid(format!("{}: no path", to.display())).with_source(error))?;
        self.engine().add(&WarmDevice::directory(to, bytes.unwrap_or(0)))
    }
}

impl Engine {
    /// Adds a device, which has as many bytes as device 0 where it says 0. One that a program lends is in no list.
    pub(crate) fn add(&self, device: &WarmDevice) -> Result<()> {
        let level = self.level_of_devices()?;
        let _list = level.list.try_lock_until(level.deadline()).ok_or_else(busy)?;
        self.check_open()?;
        let place = match &device.place {
            WarmPlace::Directory(path) => Some((self.list_dir()?, path)),
            WarmPlace::Device(_) => None,
        };
        let name = super::open::name_of(device);
        let known: Vec<Added> = level.added.lock().clone();
        if known.iter().any(|added| added.name == name) {
            return Ok(());
        }
        if self.lacks_devices() {
            // The containers of a missing one have numbers, and nobody here knows the last of them.
            return Err(Error::conflict("a device of this store is missing: none can be added before it is back"));
        }
        let number = level.devices + known.len() as u32;
        if let Some((dir, path)) = place {
            if is_listed(dir, path)? {
                return Err(Error::invalid(format!("{name} is a device of this store, or was one")));
            }
            let listed = listed(dir)?;
            if listed != number as usize {
                let list = super::list::list_of(dir);
                return Err(Error::invalid(format!(
                    "{} lists {listed} devices, and the store has {number}: it has to be right before one is added",
                    list.display()
                )));
            }
        }
        let bytes = if device.bytes == 0 { level.warm.bytes_of_first() } else { device.bytes };
        let containers = level.warm.containers_in(bytes);
        let first = level.warm.containers().len() as u32 + known.iter().map(|added| added.containers).sum::<u32>();
        let all = u64::from(first) + u64::from(containers);
        if containers == 0 || all > CONTAINERS_MAX {
            return Err(Error::invalid(format!(
                "{name}: {bytes} bytes are {containers} containers of {}; the store has {first}, and can have {CONTAINERS_MAX} in all",
                level.warm.shape().container_bytes
            )));
        }
        let opened = open_device(device, true)?;
        let capture = || self.capture(self.decisions.log.boundary(&self.placement.hot));
        level.warm.make_addition(number, first, containers, opened.as_ref(), || {
            level.log.make_beside(number, &opened, self.life.boot, capture, level.deadline())
        })?;
        if let Some((dir, path)) = place {
            remember_added(dir, path, bytes).inspect_err(|_| {
                // After a sync that failed the list may name it all the same: then it stays as it is.
                if !is_listed(dir, path).unwrap_or(true) {
                    remove_all(opened.as_ref());
                }
            })?;
        }
        level.added.lock().push(Added { name, containers });
        Ok(())
    }
}
