//! Devices that are added to a level that there is already: made beside it, and taken in by a later opening.
//!
//! ```text
//! made: revision 0, counts itself ─▶ listed ─▶ opening: revision 1 ─▶ all devices count it ─▶ the region counts it
//! ```
//!
//! *Invariants*: a device is taken in before any other one counts it, and the region counts it last. So an opening that finds
//! revision 0 on a device that others count knows that it was never the store's, and that another one has its number
//! (test `a_directory_that_never_became_a_device_is_refused`). No data goes to a device before all others count it.
//!
//! *On failure*: an opening that is cut off in between has changed nothing that the next one does not do again
//! (tests/levels/add.rs).

use super::buffer::Buffer;
use super::create::{DEVICE_FILE, containers_in};
use super::device::{BLOCK_BYTES, Device};
use super::reclaim::write_all;
use super::recover::superblocks;
use super::space::Warm;
use crate::bytes::{CONTAINER_BLOCK_BYTES, ContainerHeader, DeviceSuperblock};
use forebay_core::{Error, Result};
use std::io;

impl Warm {
    /// Bytes of a device with as many containers as the first one has, in whole.
    pub fn bytes_of_first(&self) -> u64 {
        let containers = self.containers.iter().filter(|container| container.device == 0).count() as u64;
        containers * self.shape.container_bytes + 2 * self.shape.log_bytes + 2 * CONTAINER_BLOCK_BYTES
    }

    /// Containers that a device of these bytes would get.
    pub fn containers_in(&self, bytes: u64) -> u32 {
        containers_in(&self.shape, bytes)
    }

    /// Makes device `number`, with empty containers from `first` on. It counts once an opening has taken it in
    /// ([`Warm::take_in`]). `log` makes its decision log.
    ///
    /// # Errors
    /// `Conflict` where it holds containers already; `Invalid` for numbers that cannot be; `Full` where it has not the space;
    /// `Unavailable` where it fails; those of `log`. It is as it was then.
    pub fn make_addition(
        &self,
        number: u32,
        first: u32,
        containers: u32,
        to: &dyn Device,
        log: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let (primary, rest) = (self.layout.primary_bytes(), self.layout.rest_bytes());
        let superblock = DeviceSuperblock {
            store: self.store,
            device: number,
            devices: number + 1,
            first,
            containers,
            key_bytes: (primary + rest) as u16,
            primary_bytes: primary as u16,
            container_bytes: self.shape.container_bytes,
            log_bytes: self.shape.log_bytes,
            revision: DeviceSuperblock::REVISION_ADDED,
        };
        if !superblock.possible() {
            return Err(Error::invalid(format!("a warm device cannot be like this: {superblock:?}")));
        }
        let header = |container| ContainerHeader::empty(number, container, superblock.container_bytes);
        super::create::make_beside(to, &superblock, header, log)
    }

    /// Takes in what was added: the superblocks of all devices count all devices, durably. Without effect where they do.
    ///
    /// # Errors
    /// `Unavailable` where a device fails; the next opening goes on.
    pub fn take_in(&self) -> Result<()> {
        let widths = (self.layout.primary_bytes(), self.layout.rest_bytes());
        let devices = self.present();
        let mut known = Vec::new();
        for device in &devices {
            known.push((superblocks(device.as_ref(), &self.store, widths)?, device));
        }
        let count = self.devices.len() as u32;
        // Where one copy says less than the other, an earlier opening was cut off between the two.
        let is_behind = |copies: &[Option<DeviceSuperblock>; 2]| {
            copies.iter().flatten().any(|copy| copy.is_added() || copy.devices < count)
        };
        // First those that were added, as they count; then all count all.
        for all in [false, true] {
            for ((in_force, copies), device) in &mut known {
                let added = copies.iter().flatten().any(DeviceSuperblock::is_added);
                if !(added || all && is_behind(copies)) {
                    continue;
                }
                in_force.revision += 1;
                in_force.devices = if all { count } else { in_force.devices };
                let at = usize::from(copies[0].is_some_and(|copy| copy.revision + 1 == in_force.revision));
                rewrite(device.as_ref(), in_force, at).map_err(|error| {
                    let what = format!("{}: {DEVICE_FILE} cannot be written", device.name());
                    Error::unavailable(what).with_source(error)
                })?;
                *copies = [Some(*in_force); 2];
            }
        }
        Ok(())
    }
}

/// Writes both copies of a superblock, first copy `first`, which is not in force: a write that is torn leaves the other one.
fn rewrite(device: &dyn Device, superblock: &DeviceSuperblock, first: usize) -> io::Result<()> {
    let (file, _) = device.open(DEVICE_FILE)?;
    let mut block = Buffer::new(BLOCK_BYTES);
    block[..DeviceSuperblock::BYTES].copy_from_slice(&superblock.encode());
    for copy in [first, 1 - first] {
        write_all(device, file, (copy * BLOCK_BYTES) as u64, &block)?;
        device.sync(file)?;
    }
    Ok(())
}
