//! Making the warm level: containers preallocated on every device, the device's own block last.
//!
//! *On failure*: what was made is removed again; a device without its block is none.

use super::buffer::Buffer;
use super::container::Container;
use super::device::{BLOCK_BYTES, Device};
use super::log;
use super::reclaim::write_all;
use super::request::WarmShape;
use super::space::{DeviceSlot, Warm};
use crate::bytes::{
    CONTAINER_BLOCK_BYTES, CONTAINER_BYTES_MAX, CONTAINER_BYTES_MIN, CONTAINERS_MAX, ContainerHeader, DeviceSuperblock,
    ImageLayout,
};
use forebay_core::{Error, Result};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The file with the device's superblock.
pub(super) const DEVICE_FILE: &str = "device.fb";

/// The file of a container.
pub(super) fn container_file(number: u32) -> String {
    format!("container-{number:06}.fb")
}

impl WarmShape {
    /// # Errors
    /// `Invalid` for sizes that cannot work.
    pub(super) fn check(&self) -> Result<()> {
        let block = CONTAINER_BLOCK_BYTES;
        let sizes = (CONTAINER_BYTES_MIN..=CONTAINER_BYTES_MAX).contains(&self.container_bytes)
            && self.container_bytes.is_multiple_of(block)
            && self.log_bytes.is_multiple_of(block)
            && self.io_bytes >= BLOCK_BYTES
            && self.io_bytes.is_multiple_of(BLOCK_BYTES)
            && (1..=256).contains(&self.depth)
            && self.open_max >= 1;
        if sizes { Ok(()) } else { Err(Error::invalid(format!("a warm level of this shape cannot be: {self:?}"))) }
    }
}

impl Warm {
    /// Makes a warm level on these devices, each of the bytes given for it, the decision log included. `widths` are the bytes of
    /// a packed primary key and of the packed sub-keys after it.
    ///
    /// # Errors
    /// `Invalid` for sizes that cannot work; `Conflict` where a device is in use already; `Full` where a device has not
    /// the space; `Unavailable` where it fails.
    pub fn create(
        devices: Vec<Arc<dyn Device>>,
        bytes_per_device: Vec<u64>,
        store: [u8; 16],
        widths: (usize, usize),
        shape: WarmShape,
    ) -> Result<Warm> {
        shape.check()?;
        if devices.is_empty() || devices.len() != bytes_per_device.len() {
            let (devices, sizes) = (devices.len(), bytes_per_device.len());
            return Err(Error::invalid(format!("{devices} warm devices with {sizes} sizes")));
        }
        let mut superblocks = Vec::new();
        let mut first = 0_u32;
        for (number, bytes) in bytes_per_device.iter().enumerate() {
            let containers = containers_in(&shape, *bytes);
            if containers == 0 || first.checked_add(containers).is_none_or(|all| all > CONTAINERS_MAX) {
                return Err(Error::invalid(format!(
                    "warm device {} of {bytes} bytes: from 1 to {CONTAINERS_MAX} containers of {} bytes, over all devices",
                    devices[number].name(),
                    shape.container_bytes
                )));
            }
            superblocks.push(DeviceSuperblock {
                store,
                device: number as u32,
                devices: devices.len() as u32,
                first,
                containers,
                key_bytes: (widths.0 + widths.1) as u16,
                primary_bytes: widths.0 as u16,
                container_bytes: shape.container_bytes,
                log_bytes: shape.log_bytes,
                revision: 1,
            });
            first += containers;
        }
        if let Some(impossible) = superblocks.iter().find(|superblock| !superblock.possible()) {
            return Err(Error::invalid(format!("a warm device cannot be like this: {impossible:?}")));
        }
        let mut containers = Vec::new();
        for at in 0..devices.len() {
            let superblock = &superblocks[at];
            let header = |number| ContainerHeader::empty(superblock.device, number, superblock.container_bytes);
            let made = make(devices[at].as_ref(), superblock, header, &mut containers);
            if let Err(error) = made {
                for (device, superblock) in devices.iter().zip(&superblocks).take(at + 1) {
                    // Files that were there before belong to another level: only what this call made is removed.
                    let taken = error.kind() == io::ErrorKind::AlreadyExists && superblock.device == at as u32;
                    unmake(device.as_ref(), superblock, &containers, taken);
                }
                return Err(refused(devices[at].as_ref(), error));
            }
        }
        let layout = ImageLayout::new(widths.0, widths.1);
        let slots = devices.into_iter().map(|device| DeviceSlot::new(Some(device))).collect();
        let warm = Warm::new(store, layout, shape, slots, containers);
        warm.recovered.store(true, Ordering::Release);
        Ok(warm)
    }
}

impl Warm {
    /// Makes what a drained device has on another one that is to take its place: empty containers, each with the generation and the
    /// order of the one before. `log` makes its decision log.
    ///
    /// # Errors
    /// `Conflict` where the device is not drained, or the other one holds containers already; `Full` where that one has not the space;
    /// `Unavailable` where one fails; those of `log`. The other one is as it was then.
    pub fn make_replacement(&self, number: u32, to: &dyn Device, log: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.is_drained(number) {
            return Err(Error::conflict(format!(
                "device {number} ({}) is not drained: `forebay device drain` first",
                self.name_of(number)
            )));
        }
        let slot = &self.devices[number as usize];
        let old = slot.device.as_deref().ok_or_else(|| Error::internal("a drained device that is not there"))?;
        let superblock =
            Warm::superblock_of(old, &self.store, (self.layout.primary_bytes(), self.layout.rest_bytes()))?;
        if superblock.containers != slot.containers {
            return Err(Error::conflict(format!(
                "device {number} has {} of its {} containers: what became of the others is not known",
                slot.containers, superblock.containers
            )));
        }
        let header = |number: u32| {
            // A generation that went back looks like a restored backup to a mover, and of two versions the one in the later container is
            // in force: neither may begin again.
            let before = *self.containers[number as usize].header.lock();
            ContainerHeader {
                generation: before.generation,
                order: before.order,
                ..ContainerHeader::empty(superblock.device, number, superblock.container_bytes)
            }
        };
        make_beside(to, &superblock, header, log)
    }

    /// A device whose place another one has is no device of the store any more.
    ///
    /// # Errors
    /// `Unavailable` where it fails.
    pub fn disown(&self, device: u32) -> Result<()> {
        let slot = &self.devices[device as usize];
        let Some(old) = &slot.device else { return Ok(()) };
        old.remove(DEVICE_FILE).and_then(|()| old.sync_names()).map_err(|error| {
            Error::unavailable(format!("{}: {DEVICE_FILE} cannot be removed", slot.name)).with_source(error)
        })
    }
}

/// Containers of a device of these bytes.
pub(super) fn containers_in(shape: &WarmShape, bytes: u64) -> u32 {
    let room = bytes.saturating_sub(2 * shape.log_bytes + 2 * CONTAINER_BLOCK_BYTES);
    u32::try_from(room / shape.container_bytes).unwrap_or(u32::MAX)
}

/// Makes a device for a level that there is; `log` makes its decision log.
///
/// # Errors
/// As `make_replacement`. The device is as it was then.
pub(super) fn make_beside(
    to: &dyn Device,
    superblock: &DeviceSuperblock,
    header: impl Fn(u32) -> ContainerHeader,
    log: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let made = make(to, superblock, header, &mut Vec::new());
    // What was there before is not removed.
    if made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
        return Err(refused(to, io::ErrorKind::AlreadyExists.into()));
    }
    made.map_err(|error| refused(to, error)).and_then(|()| log()).inspect_err(|_| remove_all(to))
}

/// Removes all files of a warm level from a device.
pub fn remove_all(device: &dyn Device) {
    // The error that brought us here is the one to answer.
    for name in device.list().unwrap_or_default().iter().filter(|name| is_warm_file(name)) {
        let _ = device.remove(name);
    }
    let _ = device.sync_names();
}

fn refused(device: &dyn Device, error: io::Error) -> Error {
    let name = device.name();
    let error_kind = error.kind();
    match error_kind {
        io::ErrorKind::AlreadyExists => Error::conflict(format!(
            "{name} holds containers already: name another directory, or empty this one if no store lists it, as after \
             an interrupted creation, exchange or addition"
        )),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Error::full_of(format!("device {name}"), "operator", format!("{name} has not the space that was asked for"))
        }
        _ => Error::unavailable(format!("{name} cannot be made a warm device")),
    }
    .with_source(error)
}

/// Whether a file of this name on a device belongs to a warm level.
fn is_warm_file(name: &str) -> bool {
    name == DEVICE_FILE || name.starts_with("container-") && name.ends_with(".fb") || log::FILE_NAMES.contains(&name)
}

fn make(
    device: &dyn Device,
    superblock: &DeviceSuperblock,
    header: impl Fn(u32) -> ContainerHeader,
    containers: &mut Vec<Container>,
) -> io::Result<()> {
    if device.list()?.iter().any(|name| is_warm_file(name)) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    for number in superblock.first..superblock.first + superblock.containers {
        let file = device.create(&container_file(number), superblock.container_bytes)?;
        let mut header = header(number);
        containers.push(Container::new(header, Some(file)));
        // Both copies, so that at an opening one that does not verify was whole once: torn or rotten, never unwritten.
        let mut blocks = Buffer::new(2 * BLOCK_BYTES);
        blocks[..ContainerHeader::BYTES].copy_from_slice(&header.encode(&superblock.store));
        header.revision = 1;
        blocks[BLOCK_BYTES..BLOCK_BYTES + ContainerHeader::BYTES].copy_from_slice(&header.encode(&superblock.store));
        write_all(device, file, 0, &blocks)?;
        device.sync(file)?;
        if let Some(container) = containers.last() {
            container.header.lock().revision = 1;
        }
    }
    // Containers before the superblock: a device that has its superblock has all of them, also after a power loss.
    device.sync_names()?;
    let file = device.create(DEVICE_FILE, 2 * CONTAINER_BLOCK_BYTES)?;
    let mut blocks = Buffer::new(2 * BLOCK_BYTES);
    blocks[..DeviceSuperblock::BYTES].copy_from_slice(&superblock.encode());
    blocks[BLOCK_BYTES..BLOCK_BYTES + DeviceSuperblock::BYTES].copy_from_slice(&superblock.encode());
    write_all(device, file, 0, &blocks)?;
    device.sync(file)?;
    device.sync_names()
}

/// Removes what was made; nothing if the files belong to another store.
fn unmake(device: &dyn Device, superblock: &DeviceSuperblock, containers: &[Container], taken: bool) {
    if taken {
        return;
    }
    // The error that brought us here is the one to answer; what cannot be removed is in the way of the next attempt.
    let _ = device.remove(DEVICE_FILE);
    let last = superblock.first + superblock.containers;
    let of_device = |number: &u32| containers.iter().any(|container| container.number == *number);
    for number in (superblock.first..last).filter(of_device) {
        let _ = device.remove(&container_file(number));
    }
    let _ = device.sync_names();
}
